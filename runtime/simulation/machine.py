"""``SimMachine``: a state machine of Hypothesis whose rules act on a live world.

    class SupportDesk(SimMachine):
        setup = Setup.of(desk, refunds)

        @async_rule(run=SimMachine.runs)
        async def asks_twice(self, run):
            await self.world.say(run, "Well?", user="ann")
            await self.world.say(run, "WELL?", user="ann")

    test_support_desk = SupportDesk.TestCase

Where the steps of ``simulate`` are a list that is drawn beforehand, rules see what has happened:
a rule is about runs that are there, and may ask the world before it acts.  It costs time; use
``simulate`` where a list will do.

The world runs in a loop that stands still between rules (``FrozenLoop``), so a rule finds
agents in the middle of what they do.  ``go_on`` lets them do a little more, ``wait`` much more.
"""

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

import anyio.lowlevel
from msgspec import structs

from hubbub.hub.errors import BadValue, CallerError, MissingExtra
from hubbub.runtime.simulation.invariants.all import INVARIANTS, Invariant, problems_of
from hubbub.runtime.simulation.loop.frozen_loop import FrozenLoop
from hubbub.runtime.simulation.loop.seeded import MAX_ROUNDS
from hubbub.runtime.simulation.simulate import SimulationFailed, failure_of
from hubbub.runtime.simulation.story.arguments import (
    check_agents,
    check_async,
    check_mapping,
    check_no_loop,
    check_store,
    check_texts,
    setup_of,
)
from hubbub.runtime.simulation.story.budgets import with_limits_of
from hubbub.runtime.simulation.story.faults import WorldFault
from hubbub.runtime.simulation.story.history import History, StoreName
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.story.targets import set_targets
from hubbub.runtime.simulation.strategies.worlds import faults, opened_agents, seconds, seeds, texts
from hubbub.runtime.simulation.world.reading import read_live, read_open_store
from hubbub.runtime.simulation.world.world import World

try:
    from hypothesis import Phase, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import (
        Bundle,
        RuleBasedStateMachine,
        initialize,
        invariant,
        precondition,
        rule,
    )
    from hypothesis.strategies import SearchStrategy
except ImportError:
    raise MissingExtra("a simulated world as a state machine", "testing") from None

__all__ = ["SimMachine", "async_rule"]

P = ParamSpec("P")
S = TypeVar("S", bound="SimMachine")
T = TypeVar("T")


def async_rule(
    **arguments: Any,
) -> Callable[[Callable[Concatenate[S, P], Awaitable[T]]], Callable[Concatenate[S, P], T]]:
    """Make a rule of an async method: as ``hypothesis.stateful.rule``, but awaited in the world.

    ``@precondition`` goes above it, as above a rule.  Raises ``BadValue`` for a plain method.
    """

    def decorate(
        method: Callable[Concatenate[S, P], Awaitable[T]],
    ) -> Callable[Concatenate[S, P], T]:
        check_async("async_rule", method, "or make it a rule of hypothesis.stateful")

        @functools.wraps(method)
        def act(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self.do(lambda _: method(self, *args, **kwargs))

        make: Any = rule(**arguments)
        return cast("Callable[Concatenate[S, P], T]", make(act))

    return decorate


def _of(draw: Callable[["SimMachine"], SearchStrategy[T]]) -> SearchStrategy[T]:
    """A strategy that depends on the machine at hand."""
    return st.runner().flatmap(draw)


class SimMachine(RuleBasedStateMachine):
    """A world, and users who do this and that in it; subclass it and give a ``setup``.

    ``setup`` is a ``Setup`` or a method or function that makes one: that, where tools or models
    keep something, so that each example begins with new ones.  Users open runs, talk to them, wait,
    interrupt, close and terminate; the process crashes, is killed and restarted; faults are drawn
    with the seed, in ``begin``.  Further rules are made with ``async_rule``, or use ``do``; those
    that say ``target=SimMachine.runs`` add runs.  ``begun`` is for what comes first.

    ``invariants_of`` are asked after each rule that leaves the world at rest, and at the end, when
    the faults are over and the world has settled; a broken one raises ``SimulationFailed``.  The
    world is closed in any case.  ``hypothesis.target`` seeks depth and interleavings.

    ``TestCase.settings`` leave out ``Phase.explain``, which takes many times as long as finding the
    failure; with settings of one's own: ``settings(X.TestCase.settings, max_examples=20)``.
    """

    setup: ClassVar[Any]
    store: ClassVar[StoreName] = "memory"
    users: ClassVar[Sequence[str]] = ("ann", "bob")
    agents: ClassVar[Sequence[str]] = ()
    """Those that users open; by default the setup's, except for those that only others use."""
    max_faults: ClassVar[int] = 2
    max_rounds: ClassVar[int] = MAX_ROUNDS
    """Of the scheduler, without time passing; see ``loop``."""
    invariants_of: ClassVar[Mapping[str, Invariant]] = INVARIANTS

    runs: ClassVar[Bundle[str]] = Bundle("runs")
    """Ids of the runs that were opened."""
    _faults: ClassVar[SearchStrategy[list[WorldFault]]]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # To explain a failure Hypothesis traces each line of each world, the library's too.
        given = cls.TestCase.settings
        phases = [phase for phase in given.phases if phase is not Phase.explain]
        cls.TestCase.settings = settings(given, phases=phases)

    def __init__(self) -> None:
        super().__init__()
        self._raised_before = sys.exc_info()[1]
        self._loop: FrozenLoop[World] | None = None
        self._setup = self._made_setup()
        self._check_arguments()
        self._broken: SimulationFailed | None = None
        self.seed = 0

    # ── for further rules ────────────────────────────────────────────────────────────────────

    @property
    def world(self) -> World:
        """The world; await what it offers in an ``async_rule`` or by ``do``."""
        if self._loop is None:
            raise CallerError("the world has not begun; use the method begun() for what is first")
        return self._world

    def do(self, act: Callable[[World], Awaitable[T]]) -> T:
        """Await ``act(world)`` in the world's loop; returns or raises what it does."""
        if self._loop is None:
            raise CallerError("the world has not begun; use the method begun() for what is first")
        return self._loop.do(act)

    async def begun(self) -> None:
        """What happens before the first rule; nothing, unless a subclass says so."""

    def look(self) -> History | None:
        """What has happened so far; ``None`` while something is under way."""
        return self.do(_look)

    def check_history(self, history: History) -> None:
        """Ask every invariant; raises ``SimulationFailed`` for the first one that is broken."""
        for name, invariant in with_limits_of(self._setup, self.invariants_of).items():
            if problems := problems_of(name, invariant, history):
                raise failure_of(name)(problems, history, self._replay())

    # ── rules ────────────────────────────────────────────────────────────────────────────────

    @initialize(
        seed=seeds(),
        faults=_of(lambda self: self._faults_for(self._setup)),
    )
    def begin(self, seed: int, faults: Sequence[WorldFault]) -> None:
        """Begin a world with a seed and faults that Hypothesis has drawn."""
        self.seed = seed
        self._world = World(self._setup, seed=seed, faults=faults, store=self.store)
        self._loop = FrozenLoop(lambda: self._world, seed, max_rounds=self.max_rounds)
        self.do(lambda _: self.begun())

    @rule(
        target=runs,
        agent=_of(lambda self: st.sampled_from(tuple(self.agents) or opened_agents(self._setup))),
        text=texts(),
        user=_of(lambda self: st.sampled_from(tuple(self.users))),
    )
    def open(self, agent: str, text: str, user: str) -> str:
        """A user opens a run of some agent."""
        return self.do(lambda world: world.open(agent, text, user=user))

    @rule(run=runs, text=texts(), user=_of(lambda self: st.sampled_from(tuple(self.users))))
    def say(self, run: str, text: str, user: str) -> None:
        """A user says something to a run."""
        self.do(lambda world: world.say(run, text, user=user))

    @rule(time=seconds())
    def wait(self, time: float) -> None:
        """Virtual time passes."""
        self.do(lambda world: world.wait(time))

    @rule(turns=st.integers(1, 20))
    def go_on(self, turns: int) -> None:
        """A few turns of the loop, which take no time."""
        self.do(lambda _: _turns(turns))

    @rule(run=runs)
    def interrupt(self, run: str) -> None:
        """Interrupt a run's turn."""
        self.do(lambda world: world.interrupt(run))

    @rule(run=runs)
    def close(self, run: str) -> None:
        """Close a run."""
        self.do(lambda world: world.close(run))

    @rule(run=runs)
    def terminate(self, run: str) -> None:
        """Terminate a run."""
        self.do(lambda world: world.terminate(run))

    @rule()
    def crash(self) -> None:
        """As by ``kill -9``; the next rule that does something begins a process."""
        self.do(lambda world: world.die())

    @rule()
    def restart(self) -> None:
        """The process is left in order, and another one begun."""
        self.do(lambda world: world.restart())

    # ── what must hold ───────────────────────────────────────────────────────────────────────

    # Hypothesis shows each invariant that it asks after each rule, unless a precondition says that
    # there is nothing to ask: so it looks first, and what is broken alone is shown.
    @precondition(lambda self: self._is_broken())
    @invariant()
    def invariants_hold(self) -> None:
        """Whatever has come to rest holds already."""
        assert self._broken is not None
        raise self._broken

    def _is_broken(self) -> bool:
        self._broken = None
        if self._loop is not None and (history := self.look()) is not None:
            try:
                self.check_history(history)
            except SimulationFailed as failed:
                self._broken = failed
        return self._broken is not None

    def teardown(self) -> None:
        """End the faults, let the world settle, close it, and ask the invariants once more.

        After a rule that has failed it is only closed.
        """
        loop = self._loop
        if loop is None:
            return
        if sys.exc_info()[1] is not self._raised_before:
            self._close_quietly(loop)
            return
        try:
            loop.do(_settle)
            loop.close()
        except BaseException:
            self._close_quietly(loop)
            raise
        finally:
            self._loop = None
        self.check_history(self._world.history)
        set_targets(self._world.history)

    def _made_setup(self) -> Setup:
        given = inspect.getattr_static(type(self), "setup", None)
        if given is None:
            what = f"{type(self).__name__}.setup"
            raise BadValue(what, "it is missing; write `setup = Setup.of(agent)` in the class")
        # What can be called without a machine is no method.
        return setup_of(
            given if inspect.isfunction(given) and _needs_nothing(given) else self.setup
        )

    def _check_arguments(self) -> None:
        """Raise ``BadValue`` for what the class says that could mean nothing."""
        name = type(self).__name__
        check_no_loop(name)
        check_store(f"{name}.store", self.store)
        check_texts(f"{name}.users", self.users)
        check_texts(f"{name}.agents", self.agents)
        check_agents(f"{name}.agents", self.agents, self._setup)
        check_mapping(f"{name}.invariants_of", self.invariants_of)
        if isinstance(inspect.getattr_static(type(self), "invariants", None), Mapping):
            raise BadValue(f"{name}.invariants", "it is Hypothesis' own; write invariants_of = …")

    @classmethod
    def _faults_for(cls, setup: Setup) -> SearchStrategy[list[WorldFault]]:
        # Made once a class: it takes as long as a few rules, and differs in no example.
        if "_faults" not in vars(cls):
            cls._faults = faults(setup, max_size=cls.max_faults)
        return cls._faults

    def _close_quietly(self, loop: FrozenLoop[World]) -> None:
        self._loop = None
        try:
            loop.close()
        except Exception:
            # What has failed already is what its author must see.
            return

    def _replay(self) -> str:
        return f"the rules that Hypothesis shows, in a world of seed={self.seed}"


def _needs_nothing(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True


async def _turns(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def _settle(world: World) -> None:
    world.end_faults()
    await world.settle()
    world.history.is_settled = True


async def _look(world: World) -> History | None:
    """The history of a world that continues, or ``None`` if it is not at rest, or has no
    process."""
    if not world.lives or world.history.lives[-1].end:
        return None
    runtime, heard = world.runtime, tuple(world.history.heard)
    if runtime.hub.statistics().uncommitted or await runtime.hub.journal.ready():
        return None
    found = structs.replace(world.history, heard=list(heard))
    read_live([runtime], found)
    await read_open_store(runtime.hub.journal, found)
    # Reading may let others run: what has happened meanwhile would be half of something.
    is_same = len(world.history.heard) == len(heard) and not world.history.lives[-1].end
    return found if is_same else None
