"""``run_seeded``: one async program on Trio in virtual time, its tasks scheduled by a seed.

Trio shuffles the tasks that could run next, so that nobody relies on an order.  With its private
switch for repeatable scheduling it sorts them first and shuffles with a generator of its own: the
same seed gives the same order, in every process and for every ``PYTHONHASHSEED``.  Switch and
generator are private names, which only this module uses; it says so when they are gone.

What else must be the same is up to the program: time, ids and randomness from ports (see
``hubbub.hub.virtual``), no threads, no real files, no iteration over sets of texts.

A program that waits for ever raises ``NothingHappens``, and one that is busy for ever at one moment
of virtual time ``NeverRests``.  Only a loop that awaits something can be told of: who never lets
the scheduler go on (``while True: pass``), or takes no cancellation, hangs the test as it would
hang any program.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import anyio

from hubbub.hub.errors import BadValue, MissingExtra, OperatorError

try:
    import trio._core
    from trio.testing import MockClock

    from hubbub.runtime.simulation.patience import MAX_ROUNDS, NeverRests, Patience
except ImportError as missing:
    raise MissingExtra("simulation", "testing") from missing

__all__ = ["HORIZON", "MAX_ROUNDS", "NeverRests", "NothingHappens", "run_seeded"]

T = TypeVar("T")

HORIZON: Final = 100.0 * 365 * 86_400
"""Virtual seconds after which a program that still waits waits for ever."""

MAX_SEED: Final = 2**64

_run: Any = trio._core._run


class NothingHappens(AssertionError):
    """The program waits for something that never comes: virtual time has run out."""

    def __init__(self) -> None:
        super().__init__(
            f"nothing happens any more: the program still waits after {HORIZON / 31_536_000:.0f} "
            "years of virtual time"
        )


def run_seeded(
    main: Callable[[], Awaitable[T]], seed: int = 0, *, max_rounds: int = MAX_ROUNDS
) -> T:
    """Run ``main`` on a loop of its own and return what it returns.

    Sleeping takes no time, and the same seed schedules the same way.  A group of one exception is
    raised as that exception, however deep it lies.  Raises ``NothingHappens`` where ``main`` waits
    for ever, ``NeverRests`` where it goes on for more than ``max_rounds`` at one moment (it is
    cancelled then), ``BadValue`` for a seed that is none, and ``OperatorError`` for a Trio without
    repeatable scheduling.  What was set in Trio before is set again afterwards.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < MAX_SEED:
        raise BadValue("seed", f"a whole number from 0 to 2**64 is wanted, not {seed!r}")
    switch, state = _trio_scheduling()
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True
    # Seeded, not replaced: Hypothesis holds this very object.
    _run._r.seed(seed)
    try:
        return anyio.run(
            _watched,
            main,
            max_rounds,
            backend="trio",
            backend_options={"clock": MockClock(autojump_threshold=0)},
        )
    except BaseExceptionGroup as group:
        if (one := _only(group)) is None:
            raise
        # Its own traceback says where it was raised; the groups around it say nothing.
        raise one from one.__cause__
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING = switch
        _run._r.setstate(state)


async def _watched(main: Callable[[], Awaitable[T]], max_rounds: int) -> T:
    trio.lowlevel.current_task().name = "main"
    patience = Patience(max_rounds)
    trio.lowlevel.add_instrument(patience)
    found: list[T] = []
    try:
        with patience.scope:
            found.append(await _until_the_horizon(main))
    except Exception as error:
        # What it has stumbled over on being cancelled is not what is wrong with it.
        if (busy := patience.verdict()) is not None:
            raise busy from error
        raise
    if (busy := patience.verdict()) is not None:
        raise busy
    return found[0]


async def _until_the_horizon(main: Callable[[], Awaitable[T]]) -> T:
    with anyio.move_on_after(HORIZON) as scope:
        return await main()
    assert scope.cancelled_caught
    raise NothingHappens


def _trio_scheduling() -> tuple[bool, Any]:
    """How Trio schedules just now: its switch, and the state of its generator."""
    generator = getattr(_run, "_r", None)
    switch = getattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", None)
    if not isinstance(switch, bool) or not hasattr(generator, "setstate"):
        raise OperatorError(
            f"trio {trio.__version__} has no repeatable scheduling where it is looked for "
            "(trio._core._run); use a version with which the simulation was tested"
        )
    return switch, generator.getstate()  # type: ignore[union-attr]


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The one exception in a group of groups, if there is just one."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        if len(found.exceptions) != 1:
            return None
        found = found.exceptions[0]
    return found
