"""A provider that reports no usage: its calls are not taken for free, and that is said."""

from typing import Any

import pytest
from support.agents import model_agent

from hubbub import FunctionModel, Limits, ModelReply, Price, Runtime, Usage
from hubbub.hub.events import NO_USAGE
from hubbub.hub.ports import Ports

pytestmark = pytest.mark.spec("L-05")

PRICED = {"function": Price(input=1, output=10)}
FREE = {"function": Price(input=0, output=0)}


def silent(request: Any) -> ModelReply:
    return ModelReply(text="Yes.")


def reporting(request: Any) -> ModelReply:
    return ModelReply(text="Yes.", usage=Usage(input_tokens=10, output_tokens=1))


@pytest.mark.anyio
async def test_the_cost_of_calls_without_usage_is_not_known_and_that_is_said_once(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(cost=0.001, model_calls=3)
    async with Runtime(
        [model_agent(FunctionModel(silent))], store="memory", ports=ports, prices=PRICED,
        limits=limits,
    ) as runtime:  # fmt: skip
        run = await runtime.start("assistant", "one", session_key="ann")
        outcomes = [await run.ask(text) for text in ("two", "three", "four")]
    assert [x.tree.cost for x in outcomes] == [None] * 3
    assert (outcomes[-1].outcome, outcomes[-1].reason) == ("limit", "tree.model_calls")
    (line,) = [x for x in caplog.messages if "usage.unknown" in x]
    assert "model='function'" in line
    assert "model_calls and seconds" in line


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "prices", "cost"),
    [(silent, FREE, 0.0), (silent, {}, None), (reporting, PRICED, 0.00002)],
    ids=["free", "no price", "reported"],
)
async def test_where_usage_tells_nothing_or_is_reported_nothing_is_said(
    ports: Ports, caplog: pytest.LogCaptureFixture, model: Any, prices: Any, cost: float | None
) -> None:
    agents = [model_agent(FunctionModel(model))]
    async with Runtime(agents, store="memory", ports=ports, prices=prices) as runtime:
        run = await runtime.start("assistant", "one")
        outcome = await run.result()
        assert outcome is not None
    assert outcome.tree.cost == cost
    assert "usage.unknown" not in caplog.text


def test_a_price_without_usage_is_not_known_unless_it_is_nothing() -> None:
    assert PRICED["function"].nanos(NO_USAGE, cached_apart=False) is None
    assert FREE["function"].nanos(Usage(), cached_apart=True) == 0
