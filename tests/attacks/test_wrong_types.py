"""What is of the wrong type is refused by its name, never by an exception from within."""

from collections.abc import Callable
from typing import Any

import pytest

from attacks.test_definition_types import Unshowable, nested
from hubbub import Hub, Runtime, ScriptedModel, agent
from hubbub.hub.errors import BadValue
from hubbub.hub.store.journal import Journal
from hubbub.runtime.stores.open import folder_of_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01")]

ODD: list[Any] = [b"b", [], {}, object(), len, Unshowable(), nested(5_000)]

CALLS: dict[str, Callable[[Any], object]] = {
    "latency": lambda odd: ScriptedModel(["a"], latency=odd),
    "chunk": lambda odd: ScriptedModel(["a"], chunk=odd),
}


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize("what", CALLS)
def test_an_odd_argument_is_refused_by_its_name(what: str, odd: Any) -> None:
    with pytest.raises(BadValue, match=what):
        CALLS[what](odd)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
async def test_a_hub_and_a_context_refuse_odd_arguments_by_name(odd: Any, store: Journal) -> None:
    @agent("reads")
    async def reads(input: Any, ctx: Any) -> None:
        with pytest.raises(BadValue, match="idle_timeout"):
            ctx.messages(idle_timeout=odd)

    async with Hub(journal=store) as hub, Runtime([reads], hub=hub) as rt:
        for call in (hub.cursor, hub.has):
            with pytest.raises(BadValue, match=call.__name__):
                call(odd)
        assert (await rt.run("reads", 1)).success


def test_a_store_in_memory_is_refused_by_the_commands_with_the_reason() -> None:
    with pytest.raises(BadValue, match="ends with its program"):
        folder_of_store("memory")
