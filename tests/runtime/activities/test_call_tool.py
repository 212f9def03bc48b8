"""One tool call always comes to one result (D-04, S-07)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import pytest

from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import NO_RESULT, Tool, ToolError, ToolResult, tool
from hubbub.agents.frames.activation import ChildActivated
from hubbub.agents.frames.frame import AgentContext, SessionState, StackFrame
from hubbub.hub.ports import ThreadOffload
from hubbub.runtime.activities.call_tool import call_tool

pytestmark = [pytest.mark.anyio, pytest.mark.spec("D-04")]

T = TypeVar("T")


class Inline:
    """An offload that runs at once, and counts."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, fn: Callable[[], T]) -> T:
        self.runs += 1
        return fn()


@dataclass
class State:
    run_id: str = "run"
    root_run_id: str = "root"
    agent: str = "tester"
    call_id: str = "call"
    hub: Any = None

    def spawn(self, agent: Any, input: Any = None, *, name: str | None = None) -> Any:
        raise NotImplementedError


async def call(
    of: Tool[..., Any], arguments: str = "{}", offload: Any = None, state: RunState | None = None
) -> ToolResult:
    return await call_tool(of, arguments, state or State(), offload or Inline())


async def test_async_tool_is_awaited_without_the_offload() -> None:
    @tool
    async def greet(name: str) -> str:
        await anyio.lowlevel.checkpoint()
        return f"hello {name}"

    offload = Inline()
    assert await call(greet, '{"name": "Ada"}', offload) == ToolResult("hello Ada")
    assert offload.runs == 0


async def test_sync_tool_runs_through_the_offload() -> None:
    @tool
    def thread() -> int:
        return threading.get_ident()

    offload = Inline()
    assert (await call(thread, "", offload)).content == str(threading.get_ident())
    assert offload.runs == 1
    assert (await call(thread, "", ThreadOffload())).content != str(threading.get_ident())


async def test_awaitable_from_a_sync_tool_is_awaited() -> None:
    async def later() -> dict[str, int]:
        return {"a": 1}

    @tool
    def start() -> Awaitable[dict[str, int]]:
        return later()

    assert await call(start) == ToolResult('{"a":1}')


async def test_state_is_injected() -> None:
    @tool
    async def who(greeting: str, state: RunState) -> str:
        return f"{greeting} {state.call_id}"

    assert (await call(who, '{"greeting": "hi"}', state=State(call_id="7"))).content == "hi 7"


async def test_omitted_arguments_get_the_functions_own_defaults() -> None:
    marker = object()

    @tool
    def fn(it: Any = marker) -> bool:
        return it is marker

    assert await call(fn) == ToolResult("true")


async def test_nothing_returned_is_said() -> None:
    @tool
    def fn() -> None: ...

    assert await call(fn) == ToolResult(NO_RESULT)


async def test_bad_arguments_are_an_error_result_and_the_tool_does_not_run() -> None:
    ran = []

    @tool
    def fn(n: int) -> None:
        ran.append(n)

    for arguments in ("", "[]", "{", '{"n": "1"}', '{"n": 1, "m": 2}', '{"n": 1}' + " " * 2**20):
        result = await call(fn, arguments)
        assert result.is_error
        assert result.content.startswith("Bad arguments for fn:")
    assert ran == []


@pytest.mark.parametrize("offload", [Inline(), ThreadOffload()])
@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (ToolError("no such city"), "no such city"),
        (ValueError("bad"), "ValueError: bad"),
        (TimeoutError(), "TimeoutError"),
        (RecursionError("deep"), "RecursionError: deep"),
        (ExceptionGroup("g", [ToolError("inner")]), "inner"),
    ],
)
async def test_what_a_tool_raises_is_an_error_result(
    problem: Exception, text: str, offload: Any
) -> None:
    @tool
    def sync() -> None:
        raise problem

    @tool
    async def not_sync() -> None:
        raise problem

    assert await call(sync, offload=offload) == ToolResult(text, is_error=True)
    assert await call(not_sync, offload=offload) == ToolResult(text, is_error=True)


@pytest.mark.parametrize("offload", [Inline(), ThreadOffload()])
async def test_even_stop_iteration_is_an_error_result(offload: Any) -> None:
    @tool
    def fn() -> int:
        return next(iter(()))

    @tool
    async def later() -> int:
        return next(iter(()))

    for each in (fn, later):  # And under its own name, whatever a coroutine makes of it.
        assert await call(each, offload=offload) == ToolResult("StopIteration", is_error=True)

    @tool
    def other() -> int:
        raise RuntimeError("coroutine raised something") from StopIteration()

    said = ToolResult("RuntimeError: coroutine raised something", is_error=True)
    assert await call(other, offload=offload) == said


async def test_a_tool_may_return_its_own_failure_with_attachments() -> None:
    @tool
    async def fn() -> ToolResult:
        return ToolResult({"tried": 3}, is_error=True, attachments=("log",))

    assert await call(fn) == ToolResult('{"tried":3}', True, ("log",))


async def test_unwritable_result_is_an_error_result() -> None:
    @tool
    def fn() -> object:
        return object()

    result = await call(fn)
    assert result.is_error
    assert "object" in result.content


async def test_cancellation_passes() -> None:
    results = []
    with anyio.CancelScope() as scope:

        @tool
        async def fn() -> None:
            scope.cancel()
            await anyio.sleep_forever()

        results.append(await call(fn))
    assert scope.cancelled_caught
    assert results == []


FRAME = StackFrame("f", "main", "main", SessionState(), "", AgentContext("s"))


def type_name(thing: object) -> str:
    return type(thing).__name__


@pytest.mark.parametrize("offload", [Inline(), ThreadOffload()])
@pytest.mark.parametrize("error", [ChildActivated(FRAME), SystemExit(3)], ids=type_name)
async def test_what_gives_the_conversation_away_or_ends_the_program_passes_also_in_groups(
    error: BaseException, offload: Any
) -> None:
    @tool
    def sync() -> None:
        raise error

    @tool
    async def grouped() -> None:
        raise BaseExceptionGroup("of a task group", [error])

    with pytest.raises(type(error)):
        await call(sync, offload=offload)
    with pytest.raises(BaseExceptionGroup) as caught:
        await call(grouped, offload=offload)
    assert caught.value.exceptions[0] is error


class Own(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [Own("x"), GeneratorExit(), asyncio.CancelledError(), BaseExceptionGroup("x", [Own()])],
    ids=type_name,
)
async def test_every_other_exception_becomes_an_error_result(error: BaseException) -> None:
    @tool
    async def careless() -> None:
        raise error

    result = await call(careless)
    assert result.is_error
