"""A mistake in a test of a tool or agent fails that test at once, and is named."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import anyio
import msgspec
import pytest

from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.hub.errors import HubbubError
from hubbub.testing import ctx_for, state_for

pytestmark = [pytest.mark.anyio, pytest.mark.spec("U-11")]


def careless(prompt: Any) -> str:
    raise KeyError(prompt.question)


async def asks(at: Any) -> None:
    await at.ask("Which?")


async def asks_for_a_number(at: Any) -> None:
    await at.ask("How many?", schema=int)


async def asks_a_service(at: Any) -> None:
    await at.hub.ask("svc", "?")


async def asks_a_service_as_nobody(at: Any) -> None:
    await at.hub.hub.ask("svc", "?")


ANSWERS: Final[tuple[tuple[Any, Any, str], ...]] = (
    (asks, (), "nothing answers"),
    (asks, careless, "answers=… raised over 'Which\\?'"),
    (asks, [object()], "answers: "),
    (asks, ["\ud800"], "surrogate"),
    (asks_for_a_number, ["many"], "the answer to 'How many\\?' was not accepted: .*expected `int`"),
    (asks_a_service, (), "which nothing serves"),
    (asks_a_service_as_nobody, (), "is no service"),
)


@pytest.mark.parametrize("number", range(len(ANSWERS)))
@pytest.mark.parametrize("bench", [state_for, ctx_for])
async def test_an_answer_that_is_none_is_named(
    bench: Callable[..., AbstractAsyncContextManager[Any]], number: int
) -> None:
    code, answers, named = ANSWERS[number]
    with anyio.fail_after(100), pytest.raises(HubbubError, match=named):
        async with bench(answers=answers) as at:
            await code(at)


NEEDED: Final = VariableDefinition(name="TOKEN", required=True)

WRONG: Final[tuple[tuple[Any, dict[str, Any], str], ...]] = (
    (state_for, {"variables": [NEEDED]}, "TOKEN"),
    (state_for, {"input": None}, "give an input"),
    *((each, {name: value}, name) for each in (state_for, ctx_for) for name, value in (
        ("files", ["a.txt"]), ("files", {1: "x"}), ("kv", 7), ("children", ["judge"]),
        ("agents", [7]), ("agents", "judge"), ("agents", 7),
    )),
    (state_for, {"variables": ["TOKEN"]}, "variables"),
    (ctx_for, {"messages": "hello"}, "messages"),
    (ctx_for, {"messages": [7]}, "messages"),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG)))
async def test_what_a_test_gives_wrongly_is_named(number: int) -> None:
    bench, given, named = WRONG[number]
    with anyio.fail_after(100), pytest.raises(HubbubError, match=named):
        async with bench(**given):
            raise AssertionError("it was entered")


async def test_what_fits_is_taken_as_before() -> None:
    class Choice(msgspec.Struct):
        number: int

    async with state_for(answers=[{"number": 3}]) as state:
        assert (await state.ask("Which?", schema=Choice)).number == 3
