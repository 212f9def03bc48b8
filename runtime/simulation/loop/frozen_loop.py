"""``FrozenLoop``: a seeded loop that stands still while nothing is asked of it.

``RuleBasedStateMachine`` calls its rules one by one, as plain functions; a world lives in one
loop.  So the loop runs in a greenlet of its own, which is left in the middle of its main task
whenever that has nothing to do, and entered again for the next thing:

    do(act) ──► main task awaits act(resource); the others run meanwhile ──► its value
    do(act) ──► …
    close() ──► main task leaves the resource, the loop ends

There is no thread, so it all stays as repeatable as ``run_seeded``.  Between two calls no task
runs and no time passes.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

from hubbub.hub.errors import CallerError, MissingExtra
from hubbub.runtime.simulation.loop.seeded import MAX_ROUNDS, run_seeded

try:
    from greenlet import getcurrent, greenlet
except ImportError:
    raise MissingExtra("a simulated world as a state machine", "testing") from None

__all__ = ["FrozenLoop"]

R = TypeVar("R")
T = TypeVar("T")

_OPENED: Final = object()


class FrozenLoop(Generic[R]):
    """Enters what ``make`` makes in a loop of its own, and does things there until closed.

    Raises what entering raises.  One thread can have one loop at a time, whatever its kind: close
    this one before another begins, also one of ``run_seeded`` or ``anyio.run``.
    """

    def __init__(
        self,
        make: Callable[[], AbstractAsyncContextManager[R]],
        seed: int = 0,
        *,
        max_rounds: int = MAX_ROUNDS,
    ) -> None:
        self._make = make
        self._seed = seed
        self._max_rounds = max_rounds
        self._caller: Any = None
        self._greenlet: Any = greenlet(self._run)
        opened = self._switch()
        assert opened is _OPENED

    @property
    def is_closed(self) -> bool:
        return bool(self._greenlet.dead)

    def do(self, act: Callable[[R], Awaitable[T]]) -> T:
        """Await ``act(resource)`` in the loop's main task; returns or raises what it does.

        Where the loop breaks down meanwhile, because one of its tasks raised, nothing happens any
        more or it never rests, that is raised, and the loop is closed.
        """
        if self.is_closed:
            raise CallerError("this loop is closed; begin another one")
        answer: _Answer = self._switch(act)
        if answer.error is not None:
            raise answer.error
        value: T = answer.value
        return value

    def close(self) -> None:
        """Leave the resource and end the loop; raises what that raises.  Idempotent."""
        if not self.is_closed:
            self._switch(None)

    # ── the greenlet ─────────────────────────────────────────────────────────────────────────

    def _switch(self, *what: Any) -> Any:
        self._caller = self._greenlet.parent = getcurrent()
        return self._greenlet.switch(*what)

    def _run(self) -> None:
        run_seeded(self._main, self._seed, max_rounds=self._max_rounds)

    async def _main(self) -> None:
        async with self._make() as resource:
            answer: Any = _OPENED
            while (act := self._caller.switch(answer)) is not None:
                answer = await _answer_of(act, resource)


class _Answer:
    """What an act came to."""

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self.value = value
        self.error = error


async def _answer_of(act: Callable[[Any], Awaitable[Any]], resource: Any) -> _Answer:
    try:
        return _Answer(await act(resource))
    except Exception as error:
        return _Answer(error=error)
