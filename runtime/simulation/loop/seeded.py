"""``run_seeded``: one async program on Trio in virtual time, its tasks scheduled by a seed.

Trio shuffles the tasks that could run next, so that nobody relies on an order.  With its private
switch for repeatable scheduling it sorts them first and shuffles with a generator of its own: the
same seed gives the same order, in every process and for every ``PYTHONHASHSEED``.  Switch and
generator are private names, which only this module uses; it says so when they are gone.

Trio's threads, and so anyio's (``to_thread.run_sync``), work while the loop stands still
(``lockstep``): they take no virtual time, and are as repeatable as anything else.  What else must
be the same is up to the program: time, ids and randomness from ports (see ``hubbub.hub.virtual``),
no threads of its own, no sockets and processes, no iteration over sets of texts.

A program that waits forever raises ``NothingHappens``, and one that is busy forever at one moment
of virtual time ``NeverRests``.  Only a loop that awaits something can be told of: who never lets
the scheduler continue (``while True: pass``), or takes no cancellation, hangs the test as it would
hang any program.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import anyio

from hubbub.hub.errors import BadValue, MissingExtra, OperatorError
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.logs import log
from hubbub.hub.near_misses import kind_of
from hubbub.hub.values import check_counts
from hubbub.runtime.simulation.loop.lockstep import Baton, Lockstep, StuckThread

try:
    import trio._core
    import trio._threads
    from trio.testing import MockClock

    from hubbub.runtime.simulation.loop.patience import MAX_ROUNDS, NeverRests, Patience
except ImportError as missing:
    raise MissingExtra("simulation", "testing") from missing

__all__ = [
    "HORIZON", "MAX_ROUNDS", "NeverRests", "NothingHappens", "StuckThread", "check_seed",
    "run_seeded",
]  # fmt: skip

T = TypeVar("T")

HORIZON: Final = 100.0 * 365 * 86_400
"""Virtual seconds after which a program that still waits waits forever."""

MAX_SEED: Final = 2**64

_run: Any = trio._core._run
_threads: Any = trio._threads


class NothingHappens(CopiedWhole, AssertionError):
    """The program waits for something that never comes: virtual time has run out."""

    def __init__(self) -> None:
        super().__init__(
            f"nothing happens any more: the program still waits after {HORIZON / 31_536_000:.0f} "
            "years of virtual time (what comes over a socket, from a process or from a thread of "
            "one's own never comes here)"
        )


def run_seeded(
    main: Callable[[], Awaitable[T]], seed: int = 0, *, max_rounds: int = MAX_ROUNDS
) -> T:
    """Run ``main`` on a loop of its own and return what it returns.

    Sleeping takes no time, and the same seed schedules the same way.  A group of one exception is
    raised as that exception, however deep it lies.  Raises ``NothingHappens`` where ``main`` waits
    forever, ``NeverRests`` where it continues for more than ``max_rounds`` at one moment (it is
    cancelled then), ``StuckThread`` for a thread that is not done in a minute of real time,
    ``BadValue`` for a seed that is none, and ``OperatorError`` for a Trio without
    repeatable scheduling.  What was set in Trio before is set again afterwards.
    """
    __tracebackhide__ = True
    check_seed(seed)
    check_counts(1, max_rounds=max_rounds)
    if not callable(main):
        raise BadValue("main", f"expected an async function, not {kind_of(main)}")
    switch, state = _trio_scheduling()
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True
    # Seeded, not replaced: Hypothesis holds this very object.
    _run._r.seed(seed)
    try:
        with log.ended_diversions():
            return anyio.run(
                _watched,
                main,
                max_rounds,
                backend="trio",
                backend_options={"clock": MockClock(autojump_threshold=0)},
            )
    except (NothingHappens, NeverRests, StuckThread) as verdict:
        # Where it was found out is the loop; where the program is at work, its text says.
        raise verdict.with_traceback(None) from verdict.__cause__
    except BaseExceptionGroup as group:
        if (one := _only(group)) is None:
            raise
        # Its own traceback says where it was raised; the groups around it say nothing.
        raise one from one.__cause__
    except trio.TrioInternalError as error:
        # A thread that nobody waits for is answered by a task of Trio's own.
        if isinstance(stuck := _only(error.__cause__), StuckThread):
            raise stuck from None
        raise
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING = switch
        _run._r.setstate(state)


async def _watched(main: Callable[[], Awaitable[T]], max_rounds: int) -> T:
    trio.lowlevel.current_task().name = "main"
    patience = Patience(max_rounds)
    trio.lowlevel.add_instrument(patience)
    found: list[T] = []
    with _threads_in_step(Lockstep(patience.scope.cancel)) as lockstep:
        try:
            with patience.scope:
                found.append(await _until_the_horizon(main))
        except Exception as error:
            if lockstep.stuck is not None:
                raise lockstep.stuck from None
            # What it has stumbled over on being cancelled is not what is wrong with it.
            if (busy := patience.verdict()) is not None:
                raise busy from error
            raise
    if (wrong := lockstep.stuck or patience.verdict()) is not None:
        raise wrong
    return found[0]


@contextmanager
def _threads_in_step(lockstep: Lockstep) -> Iterator[Lockstep]:
    """Have Trio start its threads in lockstep with the current loop.

    Loops in other threads start theirs as before.
    """
    before = _trio_threads()
    start, send = before
    token = trio.lowlevel.current_trio_token()

    def start_in_step(fn: Any, deliver: Any, name: str | None = None) -> None:
        if lockstep.is_current_thread:
            lockstep.begin(lambda work, done: start(work, done, name), fn, deliver)
        else:
            start(fn, deliver, name)

    def send_in_step(to: Any, message: Any) -> Any:
        if (worker := lockstep.worker) is not None and to in (None, token):
            object.__setattr__(message, "queue", Baton(lockstep, worker))  # It is frozen.
        return send(to, message)

    _threads.start_thread_soon, _threads._send_message_to_trio = start_in_step, send_in_step
    try:
        yield lockstep
    finally:
        lockstep.end()
        # A loop in another thread that has come later stands on this one, which does nothing now.
        if _trio_threads() == (start_in_step, send_in_step):
            _threads.start_thread_soon, _threads._send_message_to_trio = before


async def _until_the_horizon(main: Callable[[], Awaitable[T]]) -> T:
    with anyio.move_on_after(HORIZON) as scope:
        return await main()
    assert scope.cancelled_caught
    raise NothingHappens


def check_seed(seed: object) -> None:
    """Raise ``BadValue`` for what is no seed."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < MAX_SEED:
        raise BadValue("seed", f"expected a whole number from 0 to 2**64, not {seed!r}")


def _trio_scheduling() -> tuple[bool, Any]:
    """How Trio schedules just now: its switch, and the state of its generator."""
    generator = getattr(_run, "_r", None)
    switch = getattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", None)
    if not isinstance(switch, bool) or not hasattr(generator, "setstate"):
        raise _missing("repeatable scheduling", "trio._core._run")
    return switch, generator.getstate()  # type: ignore[union-attr]


def _trio_threads() -> tuple[Any, Any]:
    """How Trio starts a thread just now, and how a thread asks it for something."""
    start = getattr(_threads, "start_thread_soon", None)
    send = getattr(_threads, "_send_message_to_trio", None)
    if not callable(start) or not callable(send):
        raise _missing("threads", "trio._threads")
    return start, send


def _missing(what: str, where: str) -> OperatorError:
    return OperatorError(
        f"trio {trio.__version__} has no {what} where it is looked for ({where}); use a version "
        "with which the simulation was tested"
    )


def _only(found: BaseException | None) -> BaseException | None:
    """The one exception in a group of groups, if there is just one."""
    while isinstance(found, BaseExceptionGroup):
        if len(found.exceptions) != 1:
            return None
        found = found.exceptions[0]
    return found
