"""Every exception of the library leaves a process as it is: its class, its text, what it knows.

The classes are found by importing every module, their arguments by the types that they declare.
"""

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

import pytest

import hubbub
from hubbub import ToolError
from hubbub.agents.frames.frame import StackFrame
from hubbub.hub.errors import (
    BadPattern,
    BadValue,
    EventsMissed,
    ModelUnavailable,
    RunFailed,
    UnknownAgent,
)
from hubbub.hub.store.journal import RunInfo
from hubbub.runtime.simulation.simulate import SimulationFailed, failure_of
from hubbub.runtime.simulation.story.history import History

KNOWN: Final[Mapping[Any, Any]] = {
    str: "a text", int: 3, float: 2.5, bool: True, object: ("any", "thing"), Any: 7,
}  # fmt: skip
"""An argument of each type."""


def error_classes() -> Iterator[type[BaseException]]:
    """Every class of exception that a module of the library defines."""
    for module in pkgutil.walk_packages(hubbub.__path__, "hubbub."):
        if not module.name.startswith("hubbub.tests") and not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                if (
                    isinstance(value, type)
                    and issubclass(value, BaseException)
                    and value.__module__ == module.name
                ):
                    yield value


def made(kind: type[BaseException], *, is_full: bool) -> BaseException:
    """An exception with an argument of its type for each parameter; ``is_full``: optional ones
    too."""
    if kind is SimulationFailed:
        return kind(["a problem"], History(), "replay()")
    init = kind.__init__
    if not inspect.isfunction(init):
        return kind("a text")
    hints = typing.get_type_hints(init)
    args, options = [], {}
    for parameter in list(inspect.signature(init).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.default is not parameter.empty and not is_full:
            continue
        value = argument(hints[parameter.name])
        if kind.__name__ == "Refusal" and parameter.name == "kind":
            value = "not-found"
        if parameter.kind is parameter.KEYWORD_ONLY:
            options[parameter.name] = value
        elif parameter.kind is parameter.VAR_POSITIONAL:
            args += [value, value]
        else:
            args.append(value)
    return kind(*args, **options)


def argument(hint: Any) -> Any:
    if hint in KNOWN:
        return KNOWN[hint]
    if hint is StackFrame:
        return "stands for a frame"
    if hint is RunInfo:
        return RunInfo(
            run_id="r", root_run_id="r", parent_run_id=None, agent="a", name="", session_key="",
            status="ended", inbox="ended", waiting=0, created_at=0,
        )  # fmt: skip
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return argument(next(x for x in typing.get_args(hint) if x is not type(None)))
    if origin is Mapping or origin is dict:
        return {"name": "value"}
    if origin in (Iterable, Sequence, list, tuple):
        return [argument(typing.get_args(hint)[0])] * 2
    raise AssertionError(f"an argument of {hint}: add it to KNOWN")


WAYS: Final[dict[str, Callable[[Any], Any]]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "the oldest pickle": lambda error: pickle.loads(pickle.dumps(error, 0)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}

CLASSES: Final = {f"{x.__module__}.{x.__name__}": x for x in error_classes()}


def test_the_classes_are_found() -> None:
    assert len(CLASSES) > 60
    assert {BadValue, UnknownAgent, ToolError, SimulationFailed} <= {*CLASSES.values()}


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_is_copied_as_it_is(name: str) -> None:
    for is_full in (False, True):
        error = made(CLASSES[name], is_full=is_full)
        error.add_note("a note")
        shown = {key: repr(value) for key, value in vars(error).items()}
        for way, copied in WAYS.items():
            again = copied(error)
            assert (type(again), str(again)) == (type(error), str(error)), way
            assert {key: repr(value) for key, value in vars(again).items()} == shown, way


def test_a_broken_invariant_keeps_its_class() -> None:
    error = failure_of("messages_are_handled")(["a problem"], History(), "replay()")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, SimulationFailed)
    assert (again.broken, str(again)) == ("messages_are_handled", str(error))


def test_an_error_of_ones_own_is_copied_as_it_is() -> None:
    error = OwnError(7, because="it rained")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, OwnError)
    assert (str(again), again.number) == ("number 7: it rained", 7)


class OwnError(ToolError):
    def __init__(self, number: int, *, because: str) -> None:
        self.number = number
        super().__init__(f"number {number}: {because}")


def test_an_error_that_quotes_something_huge_has_a_text_that_can_be_read() -> None:
    error = UnknownAgent("x" * 5_000_000, ["the other"])
    assert len(str(error)) <= 20_000
    assert str(error).startswith("no agent named 'xxx")
    assert "the other" in str(error)[-2_000:]
    assert len(error.name) == 5_000_000
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert len(str(ToolError("y" * 100_000))) == 100_000, "it is the tool's own, for its model"


RAISED: Final[tuple[BaseException, ...]] = (
    BadValue("input", "no text"), UnknownAgent("a", ["b"]), EventsMissed(3, "slow", "c"),
    BadPattern("agent", "agent:*"), RunFailed("r", "failed", "x"),
    ModelUnavailable("m", "rate_limit", "slow down", status=429, retry_after=2.5),
)  # fmt: skip


def raise_it(number: int) -> None:
    raise RAISED[number]


def test_an_error_comes_out_of_a_pool_of_processes() -> None:
    """Of its own threads the pool loses the one that reads results to an error that is no copy."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        futures = [pool.submit(raise_it, number) for number in range(len(RAISED))]
        for expected, future in zip(RAISED, futures, strict=True):
            error = future.exception(timeout=60)
            assert type(error) is type(expected)
            assert str(error) == str(expected)
            assert {**vars(error), "__notes__": None} == {**vars(expected), "__notes__": None}
