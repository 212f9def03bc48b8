"""Numbers that JSON cannot hold are refused wherever a value is given; none becomes null."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Struct
from support.agents import model_agent

from hubbub import Hub, Message, RunState, Runtime, ScriptedModel, agent, tool
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.store.journal import Journal
from hubbub.hub.values import decode_value, encode_value
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01", "R-01")]

NUMBERS = [math.nan, math.inf, -math.inf]


class Measured(Struct):
    value: float
    unit: str | None = None


@dataclass
class Point:
    x: float


SHAPES: dict[str, Any] = {
    "alone": lambda n: n,
    "in a list": lambda n: [None, n],
    "in a tuple in a dict": lambda n: {"a": (1, n)},
    "in a struct": Measured,
    "in a dataclass": lambda n: [Point(n)],
    "as a key": lambda n: {n: None},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("number", NUMBERS)
async def test_a_number_out_of_range_is_refused_where_it_is_said(
    number: float, shape: str, store: Journal
) -> None:
    value = SHAPES[shape](number)

    @agent("echo")
    async def echo(input: Any, ctx: Any) -> Any:
        return input

    @agent("returns")
    async def returns(input: Any, ctx: Any) -> Any:
        return value

    @tool
    async def measures(state: RunState) -> Any:
        return value

    asked = ScriptedModel([call("measures"), "Well."])
    agents = [echo, returns, model_agent(asked, measures, name="asks")]
    async with Runtime(agents, store=store) as rt:
        with pytest.raises(BadValue, match="out of range"):
            await rt.run("echo", value)
        with pytest.raises(BadValue, match="out of range"):
            await rt.start("echo", value)
        with pytest.raises(BadValue, match="out of range"):
            e.CustomEvent.of("test:it", value=value)
        with pytest.raises(BadValue, match="out of range"):
            rt.hub.send_to("echo", Message("x", metadata={"a": value}))
        outcome = await rt.run("returns", 1)
        assert outcome.outcome == "failed" and "out of range" in outcome.reason
        run = await rt.start("asks", "go")
        await run.result()
        (result,) = [x for x in await run.read() if isinstance(x, e.AgentToolComplete)]
    assert result.is_error and "out of range" in result.output


def test_what_is_null_is_no_number_out_of_range() -> None:
    for value in (None, [None], {"null": 1.5}, "null", Measured(1.0), [1e308, None]):
        assert decode_value(encode_value("it", value), type(value)) == value


@pytest.mark.spec("R-06")
async def test_a_model_agent_that_is_run_without_an_input_is_refused_at_once(
    store: Journal,
) -> None:
    async with (
        Hub(journal=store) as hub,
        Runtime([model_agent(ScriptedModel(["Hi"]))], hub=hub) as rt,
    ):
        with pytest.raises(BadValue, match="give it an input"):
            await rt.run("assistant")
        with pytest.raises(BadValue, match="give it an input"):
            await rt.executable("assistant").execute()
        assert await hub.read() == []
