"""``OffLoop``: what lives in the event loop, as code in a worker thread sees it.

    a tool's thread        state.set_env("A", "b") ──┐            ┌──► goes on
    the loop                                         └─► done here ┘

A plain ``def`` tool runs in a worker thread.  Nothing of a run may be touched from there, so each
plain member of its ``RunState`` is done in the loop while the thread waits, and what it gives back
is seen in the same way.  Members that are async stay so: ``anyio.from_thread.run`` awaits them in
the loop, and called plainly they raise.  In the loop's own thread all of it acts at once.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.from_thread

from hubbub.hub.delivery.audience import Subscription
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.errors import Closed, WrongThread
from hubbub.hub.hub import Hub
from hubbub.hub.run_hub import RunHub
from hubbub.hub.tasks.raised import exit_in
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.activities.files import FileArea, KeyArea
from hubbub.runtime.activities.thread_state import Outside, ThreadState
from hubbub.runtime.kernel.handle import Run

__all__ = ["OffLoop"]

T = TypeVar("T")


class OffLoop:
    """Anything of a run's: looking at a member, and calling it, is done in the loop of ``hub``.

    From a thread that the tool has started itself: ``WrongThread``.
    """

    __slots__ = ("_hub", "_target")

    def __init__(self, target: Any, hub: Hub) -> None:
        self._hub = hub
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self._target).__name__} shows no {name!r} to a thread")
        return self._do(name, getattr, self._target, name)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __repr__(self) -> str:
        return str(self._do("repr", repr, self._target))

    def _do(self, call: str, act: Callable[..., Any], *args: Any) -> Any:
        seen = _in_loop(self._hub, call, lambda: act(*args))
        return _seen(seen, self._hub, f"{_name_of(self._target)}.{call}")


class _Mapping(OffLoop, Mapping[str, str]):
    """Variables."""

    __slots__ = ()

    def __getitem__(self, name: str) -> str:
        value: str = self._do("env", self._target.__getitem__, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._do("env", tuple, self._target))

    def __len__(self) -> int:
        number: int = self._do("env", len, self._target)
        return number


class _Subscription(OffLoop):
    """A listener's place; called or left, it is given up."""

    __slots__ = ()

    def __call__(self) -> None:
        self._do("unsubscribe", self._target.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self()


class _Stream(OffLoop):
    """A stream, which the thread hands to an async function of its own."""

    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._target.__anext__()

    async def __aenter__(self) -> Self:
        await self._target.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._target.__aexit__(*exc)


_LIVE: Final[tuple[tuple[type[OffLoop], tuple[type, ...]], ...]] = (
    (OffLoop, (ThreadState, Outside, RunHub, Hub, FileArea, KeyArea, Run)),
    (_Mapping, (Environment,)),
    (_Subscription, (Subscription,)),
    (_Stream, (EventStream,)),
)
"""What must not be touched from a thread, and how it is seen there."""


_NAMES: Final[tuple[tuple[type, str], ...]] = (
    (ThreadState, "state"), (RunHub, "state.hub"), (Outside, "state.hub"), (Hub, "state.hub.hub"),
    (FileArea, "state.files"), (KeyArea, "state.kv"), (Run, "run"), (EventStream, "stream"),
)  # fmt: skip


def _seen(value: Any, hub: Hub, call: str) -> Any:
    """What the thread is given for ``value``; data are themselves."""
    if isinstance(value, MethodType | FunctionType):
        return _callable(value, hub, call)
    for view, kinds in _LIVE:
        if isinstance(value, kinds):
            return view(value, hub)
    return value


def _callable(function: Callable[..., Any], hub: Hub, name: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        async def wait(*args: Any, **kwargs: Any) -> Any:
            return _seen(await function(*_own(args), **kwargs), hub, name)

        def begin(*args: Any, **kwargs: Any) -> Any:
            if not hub.is_current_thread:  # Its coroutine would be awaited nowhere.
                raise WrongThread(name, f"it is async: anyio.from_thread.run({name}, ...)")
            return wait(*args, **kwargs)

        return begin

    def call(*args: Any, **kwargs: Any) -> Any:
        return _seen(_in_loop(hub, name, lambda: function(*_own(args), **kwargs)), hub, name)

    return call


def _name_of(target: Any) -> str:
    """What a tool calls it."""
    return next((name for kind, name in _NAMES if isinstance(target, kind)), type(target).__name__)


def _own(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each._target if isinstance(each, OffLoop) else each for each in args)


def _in_loop(hub: Hub, call: str, act: Callable[[], T]) -> T:
    """Do it in the loop's thread, and return or raise here what it does there."""
    if hub.is_current_thread:
        return act()
    if hub.pipeline.home.is_forked:  # The loop is the parent's alone.
        hub.pipeline.home.refuse(call)
    came: list[T] = []
    raised: list[BaseException] = []

    def do() -> None:
        try:
            came.append(act())
        except BaseException as error:  # ``ChildActivated`` among them.
            if exit_in(error) is not None:
                raise
            raised.append(error)

    try:
        anyio.from_thread.run_sync(do)
    except anyio.NoEventLoopError:
        raise WrongThread(
            call, "call it in the thread of the tool itself, not in one that the tool has started"
        ) from None
    except RuntimeError:  # The loop has ended, maybe under a tool that was given up.
        raise Closed("the runtime") from None
    if raised:
        raise raised.pop()
    return came[0]
