"""What is of the wrong kind is refused by all that helps to test, argument by argument."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from inspect import Parameter
from types import NoneType
from typing import Any, Final, get_args

import anyio
import pytest
from support.simulations import one_tool

import hubbub.testing as units
from attacks.entries import calls_of
from hubbub import agent, tool
from hubbub.hub.errors import BadValue, HubbubError
from hubbub.runtime.simulation import (
    Open,
    SimulationFailed,
    Step,
    World,
    WorldFault,
    run_seeded,
    simulate,
)
from hubbub.runtime.simulation.strategies import worlds

pytestmark = pytest.mark.spec("U-11")


class Odd:
    """Of no kind that anything takes."""


ODD: Final[tuple[Any, ...]] = (Odd(), float("nan"), b"b", [], None)

VALUES: Final = {"input", "answers", "value"}
"""What takes anything that JSON can hold, bytes and lists among it."""


@tool
async def looks() -> str:
    """Look."""
    return ""


@agent("counts")
async def counts(input: int, ctx: Any) -> int:
    return input


def wrong_for(call: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Each parameter, with what it cannot take."""
    for each in inspect.signature(call).parameters.values():
        if each.name == "self" or each.kind is Parameter.VAR_KEYWORD:
            continue
        for odd in ODD:
            is_value = each.name in VALUES and not isinstance(odd, Odd | float)
            kinds = str(each.annotation)
            is_none = odd is None and ("None" in kinds or "Optional" in kinds)
            has_default = isinstance(each.default, tuple | list | NoneType | Mapping)
            is_list = odd == [] and (has_default or "Sequence" in kinds)
            is_many = each.kind is Parameter.VAR_POSITIONAL and odd in ([], None)
            if not (is_value or is_none or is_list or is_many):
                yield each.name, odd


def called(call: Callable[..., Any], given: Mapping[str, Any], what: str, odd: object) -> Any:
    """Call it with ``given`` and, for ``what``, something odd."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for each in inspect.signature(call).parameters.values():
        if each.name == what or each.name in given:
            value = odd if each.name == what else given[each.name]
            if each.kind is Parameter.KEYWORD_ONLY:
                named[each.name] = value
            else:
                args.append(value)
    return call(*args, **named)


def refused(call: Callable[..., Any], act: Callable[[str, Any], object]) -> None:
    """Each odd value is refused by an error of the library's."""
    wrong = list(wrong_for(call))
    for what, odd in wrong:
        try:
            act(what, odd)
        except HubbubError:
            continue
        except BaseException as error:
            pytest.fail(f"{call.__qualname__}({what}={odd!r}) raised {error!r}")
        pytest.fail(f"{call.__qualname__}({what}={odd!r}) was taken")


# ── unit tests ───────────────────────────────────────────────────────────────────────────────


async def enter(manager: AbstractAsyncContextManager[object]) -> None:
    async with manager:
        pass


async def call_tool(what: str, odd: Any) -> None:
    async with units.state_for() as state:
        await called(units.call, {"called": looks, "state": state}, what, odd)


async def call_code(what: str, odd: Any) -> None:
    async with units.ctx_for() as ctx:
        await called(units.run_code, {"agent": counts, "input": 1, "ctx": ctx}, what, odd)


UNITS: Final[dict[str, Callable[[str, Any], Awaitable[None]]]] = {
    "call": call_tool,
    "run_code": call_code,
    "state_for": lambda what, odd: enter(called(units.state_for, {}, what, odd)),
    "ctx_for": lambda what, odd: enter(called(units.ctx_for, {}, what, odd)),
}


def test_every_function_for_unit_tests_is_tried() -> None:
    assert {*UNITS} == {n for n in units.__all__ if inspect.isfunction(getattr(units, n))}


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_test_with_something_of_the_wrong_kind_is_refused(name: str) -> None:
    anyio.run(UNITS[name], "", None)
    refused(getattr(units, name), lambda what, odd: anyio.run(UNITS[name], what, odd))


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (looks.fn, "called: expected a tool, not function; write @tool above looks"),
        ("refund", "called: expected a tool, not str"),
        (None, "called: expected a tool, not NoneType"),
        (counts, "called: expected a tool, not AgentDefinition"),
    ],
)
def test_a_forgotten_decorator_is_named(given: Any, line: str) -> None:
    with pytest.raises(BadValue) as wrong:
        anyio.run(call_tool, "called", given)
    assert str(wrong.value) == line


# ── worlds ───────────────────────────────────────────────────────────────────────────────────

STORY: Final = [Open(agent="desk", input="hi")]


@pytest.mark.parametrize("call", [simulate, run_seeded, World], ids=lambda x: str(x.__name__))
def test_a_world_of_the_wrong_kind_is_refused(call: Callable[..., Any]) -> None:
    given = {"scenario": STORY, "setup": one_tool(), "main": partial(anyio.sleep, 1)}
    called(call, given, "", None)
    refused(call, lambda what, odd: called(call, given, what, odd))


@pytest.mark.parametrize("name", sorted(n for n in calls_of(World) if not n.startswith("_")))
def test_what_happens_in_a_world_is_checked_as_steps_are(name: str) -> None:
    async def act(what: str, odd: Any) -> None:
        async with World(one_tool()) as world:
            run_id = await world.open("desk", "hi")
            given = {
                "to": run_id, "run_id": run_id, "text": "x", "seconds": 1.0, "commits": 1,
                "prompt_id": "p", "agent": "desk",
            }  # fmt: skip
            came = called(getattr(world, name), given, what, odd)
            if inspect.isawaitable(came):
                await came

    refused(calls_of(World)[name], lambda what, odd: run_seeded(partial(act, what, odd)))


@pytest.mark.parametrize("name", worlds.__all__)
def test_strategies_refuse_what_none_can_be_made_of(name: str) -> None:
    call = getattr(worlds, name)
    refused(call, lambda what, odd: called(call, {"setup": one_tool()}, what, odd))


@pytest.mark.parametrize("kind", [*Step.__subclasses__(), *WorldFault.__subclasses__()])
def test_steps_and_faults_have_no_field_of_the_wrong_kind(kind: type[Any]) -> None:
    given: dict[str, Any] = {"commit": 1, "at": 1.0, "seconds": 1.0}
    if (word := inspect.signature(kind).parameters.get("kind")) is not None:
        given["kind"] = get_args(word.annotation)[0]
    called(kind, given, "", None)
    refused(kind, lambda what, odd: called(kind, given, what, odd))


def test_a_scenario_that_takes_no_world_is_told_so() -> None:
    async def nothing() -> None: ...

    with pytest.raises(BadValue) as wrong:
        simulate(nothing, one_tool())  # type: ignore[arg-type]
    assert str(wrong.value) == (
        "scenario: nothing() -> None is called with the world alone; write "
        "`async def nothing(world)`"
    )


def test_a_group_that_a_scenario_raises_is_shown_by_what_it_holds() -> None:
    async def tasks(world: World) -> None:
        raise ExceptionGroup("both", [ValueError("one"), ExceptionGroup("in", [KeyError("two")])])

    async def one_task(world: World) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(tasks, world)

    for scenario in (tasks, one_task):
        with pytest.raises(SimulationFailed) as failed:
            simulate(scenario, one_tool())
        assert failed.value.problems == ("ValueError: one", "KeyError: 'two'")
