"""What is of the wrong kind where an object of the library's is due is refused in one line."""

from collections.abc import Callable
from typing import Any

import pytest

from attacks.test_definition_types import Unshowable, nested
from hubbub import FunctionModel, Hub, ScriptedModel, agent, execute_turn, send_agent_message
from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentText
from hubbub.hub.store.journal import Journal
from hubbub.runtime.runtime import Runtime

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01")]

ODD: list[Any] = [5, "x", b"b", [1], {1: 2}, object(), len, Unshowable(), nested(5_000), type]

MADE: dict[str, Callable[[Any], object]] = {
    "journal": lambda odd: Hub(journal=odd),
    "ports": lambda odd: Hub(ports=odd),
    "clock": lambda odd: FunctionModel(lambda _: "", clock=odd),
    "clock of a script": lambda odd: ScriptedModel(["a"], clock=odd),
    "event": lambda odd: Hub().delivery(odd),
}
CALLED: dict[str, Callable[[Any], Any]] = {
    "frame": lambda odd: execute_turn(odd, "Go on."),
    "state": lambda odd: send_agent_message("Hello.", state=odd),
}


def refused(error: BadValue, what: str) -> None:
    line = str(error)
    assert line.startswith(f"{what.partition(' ')[0]}: expected ")
    assert "\n" not in line and len(line) < 200


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize("what", MADE)
def test_a_part_of_the_wrong_kind_is_refused_where_it_is_given(what: str, odd: Any) -> None:
    with pytest.raises(BadValue) as wrong:
        MADE[what](odd)
    refused(wrong.value, what)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize("what", CALLED)
async def test_what_a_function_works_on_is_refused_where_it_is_given(what: str, odd: Any) -> None:
    with pytest.raises(BadValue) as wrong:
        await CALLED[what](odd)
    refused(wrong.value, what)


@pytest.mark.parametrize("name", ["memory", "sqlite:data", "postgresql://user:secret@host/db"])
def test_the_name_of_a_store_for_a_hub_is_refused_with_where_it_belongs(name: str) -> None:
    with pytest.raises(BadValue) as wrong:
        Hub(journal=name)  # type: ignore[arg-type]
    line = "journal: expected a store, not str; Runtime(store=…) takes the name of one"
    assert str(wrong.value) == line


def test_an_event_that_goes_into_no_inbox_is_not_addressed() -> None:
    with pytest.raises(BadValue, match="an item of an inbox, not AgentText"):
        Hub().delivery(AgentText(text="x"))  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [x for x in ODD if x != "x"], ids=lambda odd: type(odd).__name__)
async def test_odd_names_of_children_and_steps_are_refused(odd: Any, store: Journal) -> None:
    @agent("code")
    async def code(input: Any, ctx: Any) -> str:
        for call in (
            lambda: ctx.spawn(odd), lambda: ctx.spawn("code", name=odd),
            lambda: ctx.spawn("code", key=odd),
        ):  # fmt: skip
            with pytest.raises(BadValue, match=r"^(agent|name|key): expected "):
                call()
        with pytest.raises(BadValue, match="name of a step: a key is a text"):
            await ctx.step(odd, len)
        return "refused"

    async with Runtime([code], store=store) as rt:
        assert (await rt.run("code", None)).value() == "refused"
