"""``World``: users, agents and a store in one seeded run, over the lives of its process.

    async with World(setup, seed=7, faults=[Crash(commit=5)]) as world:
        run = await world.open("support", "my parcel is lost", user="ann")
        await world.say(run, "and it was fragile", user="ann")
        await world.settle()
    print(*world.history.trace(), sep="\\n")

To be run by ``run_seeded``; ``simulate`` does that and checks what came of it.  Hub, runtime and
store are the real ones.  Time is virtual, ids come from the seed, threads work while it stands.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, Unpack

import anyio

from hubbub.agents.model import Model, ModelRequest
from hubbub.hub.delivery.ended_prompts import asker_of
from hubbub.hub.errors import CallerError, UnknownRun
from hubbub.hub.events.descriptors import Descriptor
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.message import Message
from hubbub.hub.ports import Clock, Ports, SystemIds
from hubbub.hub.receipt import Receipt
from hubbub.hub.texts import check_names
from hubbub.hub.values import encode_value
from hubbub.hub.virtual import InlineOffload, InlineWorker, LoopClock
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.injection.line import Line
from hubbub.runtime.simulation.injection.plan import Plan
from hubbub.runtime.simulation.injection.wrappers import wrap_model, wrap_tool
from hubbub.runtime.simulation.loop.asyncio_only import AsyncioWatch
from hubbub.runtime.simulation.loop.lockstep import WatchedOffload
from hubbub.runtime.simulation.loop.seeded import check_seed
from hubbub.runtime.simulation.story.arguments import (
    check_agents,
    check_workers,
    check_world,
    setup_of,
)
from hubbub.runtime.simulation.story.faults import Crash, CrashMoment, WorldFault
from hubbub.runtime.simulation.story.fields import check_amount, check_whole
from hubbub.runtime.simulation.story.history import Asked, History, Sent, StoreName, Verb
from hubbub.runtime.simulation.story.logbook import Logbook
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.world.forks import ForkChanges, fork
from hubbub.runtime.simulation.world.process import DyingModel, Process
from hubbub.runtime.simulation.world.processes import Processes
from hubbub.runtime.simulation.world.reading import (
    read_live,
    read_open_store,
    read_store,
    read_tasks,
    shown_prompt,
    stray_tasks,
)
from hubbub.runtime.simulation.world.shared_processes import SharedProcesses

__all__ = ["SETTLE", "World"]

SETTLE: Final = 100_000.0
"""Seconds after which whatever happens by itself has happened: retries and timeouts take less."""


class World:
    """One store, the processes that live on it, and what users do with them.

    ``faults`` strike when they are due.  A crash makes what is being done end quietly, and the
    next thing that is done finds a new process.  ``store``: ``"memory"`` commits at once,
    ``"late"`` a turn later, ``"sqlite"`` is the real one, in a folder that goes with the world;
    all of them survive their processes.

    ``workers``: with 2 and more, so many are at work on one store in memory at once, and the world
    speaks through a process of its own, which is what ``hub`` and ``runtime`` are of and owns no
    run.  ``die``, ``end`` and ``restart`` are of all of them.  ``None`` and 1: one process.

    ``async with`` begins the first process, and leaves the last one in order.  ``history`` is
    whole after that.  What the library logs meanwhile goes to ``history.logged``, not to the log
    of the process.  Raises ``AsyncioOnly`` where a tool or an agent has asked for asyncio's loop,
    and nothing else went wrong.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        seed: int = 0,
        faults: Sequence[WorldFault] = (),
        store: StoreName = "memory",
        workers: int | None = None,
    ) -> None:
        self.setup: Final = setup_of(setup)
        check_seed(seed)
        count = check_workers(workers, faults, store)
        check_world(self.setup, faults, store)
        self.history = History(seed=seed, faults=tuple(faults), store=store, workers=count)
        self.plan = Plan(faults, LoopClock(), on_request=self._asked)
        self.clock: Clock = self.plan.clock
        self._functions = WatchedOffload()
        ports = Ports(
            clock=self.clock, ids=SystemIds(seed), offload=self._functions,
            own_offload=InlineOffload(), make_worker=InlineWorker,
        )  # fmt: skip
        wrapped = self.setup.wrapped(self._can_die, lambda tool: wrap_tool(tool, self.plan))
        self._asyncio = AsyncioWatch()
        given = wrapped, ports, self.plan, self.history, faults, self._asyncio.listen
        kind = Processes if count is None else partial(SharedProcesses, count=count)
        self._processes: Processes = kind(*given)
        self._line = Line(self.plan)
        self._never_rests = bool(setup.schedules) or count is not None
        self._keys: set[str] = set()
        """Session keys that were opened."""
        self._answered: set[str] = set()
        """Prompts that have their reply, which may be on its way to the run."""

    # ── lives ────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        self._end_log = log.divert(Logbook(self.history.logged, self.clock.monotonic))
        try:
            self._others = read_tasks()
            await self._enter()
        except BaseException:
            self._end_log()
            raise
        return self

    async def _enter(self) -> None:
        await self._processes.__aenter__()
        await self._line.__aenter__()
        try:
            await self.begin()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            await self._line.__aexit__(exc_type, exc, traceback)
            if exc is None or isinstance(exc, Exception):
                await self._finish()
        finally:
            try:
                is_handled = await self._processes.__aexit__(exc_type, exc, traceback)
            finally:
                self._end_log()
        if exc is None:
            self._functions.check()
            self._asyncio.check(self.history.logged)
        return is_handled

    async def read(self) -> History:
        """The history so far: what the store has is read into it, as at the end by itself."""
        history = self.history
        await self._processes.do(lambda rt: read_open_store(rt.hub.journal, history), None)
        return history

    @property
    def lives(self) -> int:
        """How many processes there have been."""
        return len(self.history.lives)

    @property
    def crashes(self) -> int:
        """How many of them a fault has killed."""
        return sum(life.end == "crashed" for life in self.history.lives)

    @property
    def runtime(self) -> Runtime:
        """The runtime of the process at work; raises ``CallerError`` while there is none."""
        process = self._processes.process
        if process is None:
            raise CallerError("the world has no process; use begin() or restart()")
        return process.runtime

    @property
    def hub(self) -> Hub:
        """The hub of the process at work; raises ``CallerError`` while there is none."""
        return self.runtime.hub

    async def begin(self) -> None:
        """Begin a process, and another one as long as faults kill it before it is at work.

        Raises what the runtime raises, and ``CallerError`` when one is at work.
        """
        await self._processes.begin()

    async def end(self) -> None:
        """Leave the runtime in order, if one is at work.  The next thing that the scenario does
        begins it again; until then nothing runs, and what a fault holds up waits."""
        await self._processes.end()

    async def die(self) -> None:
        """Kill the process now, as by ``kill -9``; then nothing runs, as after ``end``."""
        await self._processes.die()

    async def die_after(self, commits: int, when: CrashMoment = "after", sectors: int = 0) -> None:
        """Have the process at work die at its ``commits``-th commit from now on.

        It is as if there had been a ``Crash`` for it, which this one replaces; 1 is the next
        commit, ``when`` and ``sectors`` are those of ``Crash``.  A process that dies or is left
        before dies no second time.  Begins a process if none is at work; ``end_faults`` takes it
        back.
        """
        check_whole("commits", commits, least=1)
        Crash(commit=commits, when=when, sectors=sectors)  # Refuses what is none.
        (await self._processes.living()).crash_after(commits, when, sectors)

    async def restart(self) -> None:
        """Leave in order what is at work, and begin again on the same store."""
        await self._processes.restart()

    def end_faults(self) -> None:
        """Let nothing go wrong any more, in this life and in later ones."""
        self.plan.end()
        self._processes.cancel_crashes()

    # ── what users do ────────────────────────────────────────────────────────────────────────

    async def open(
        self,
        agent: str = "",
        input: Any = None,
        *,
        session_key: str = "",
        descriptor: Descriptor | None = None,
        user: str = "user",
        once: bool = False,
        timeout: float | None = None,
    ) -> str:
        """Start a run, or find that of ``session_key`` or ``descriptor``.

        Returns its id, also when the process has died and nobody knows whether the run is there.
        """
        if agent:
            check_agents("agent", [agent], self.setup)
        if session_key:
            self._keys.add(session_key)
        text = input if isinstance(input, str) else bytes(encode_value("input", input)).decode()

        def act(hub: Hub) -> Receipt:
            return hub.open(
                agent, input, session_key=session_key, descriptor=descriptor, once=once,
                timeout=timeout,
            )  # fmt: skip

        sent = Sent(verb="open", run_id="", text=text, key=session_key, user=user, agent=agent)
        return (await self._act(sent, act)).run_id

    async def fork(
        self, run_id: str, seq: int | None = None, *, user: str = "user",
        **changes: Unpack[ForkChanges],
    ) -> str:  # fmt: skip
        """Have a new run go on from record ``seq`` of a root (``Runtime.fork``).

        Returns its id, also when the process has died and nobody knows whether the run is there;
        empty where it was refused (``history.forks`` says why).
        """
        check_names(run_id=run_id, user=user)
        given = self._processes, self.history, self._write
        return await fork(*given, run_id, seq, changes, user)

    async def say(self, to: str, text: str, *, user: str = "user", key: str = "") -> Receipt:
        """Say something to a run, or to the conversation of a session key that was opened.

        The receipt is pending when the process has died before it could say, or while a fault
        holds the message up.
        """
        check_names(to=to, key=key, user=user)
        message = Message(text, key=key or None)
        handed_over: list[tuple[Process, Receipt]] = []

        def act(hub: Hub) -> Receipt:
            if to in self._keys:
                return hub.send(message, session_key=to, source=user)
            return hub.send_to_run(to, message, source=user)

        async def send(held_up: bool) -> Receipt:
            process = await self._processes.living(held_up=held_up)
            receipt = self._note(process, Sent(run_id=to, text=text, key=key, user=user), act)
            handed_over.append((process, receipt))
            return receipt

        receipt = await self._line.bring(send)
        for process, given in handed_over:
            if given is receipt:  # Not one that was brought a second time, or will come later.
                await self._wait_settled(process, receipt)
        return receipt

    async def interrupt(self, run_id: str = "", reason: str = "", *, user: str = "user") -> Receipt:
        """Interrupt the turn at work of a run, or of all of them."""
        return await self._command(
            "interrupt", run_id, reason, user, lambda hub: hub.interrupt(run_id or None, reason)
        )

    async def terminate(self, run_id: str, reason: str = "", *, user: str = "user") -> Receipt:
        """End a run, and its descendants, now."""
        return await self._command(
            "terminate", run_id, reason, user, lambda hub: hub.terminate(run_id, reason)
        )

    async def close(self, run_id: str, reason: str = "", *, user: str = "user") -> Receipt:
        """Have a run accept no more messages, handle what waits, and end."""
        return await self._command(
            "close", run_id, reason, user, lambda hub: hub.close_run(run_id, reason)
        )

    def open_prompt(self, run_id: str, kind: str = "") -> str:
        """The oldest prompt of a run, or of one below it, that was shown and is open; of that
        kind (``question``, ``approval``, ``external``), where one is given; else empty."""
        check_names(run_id=run_id, kind=kind)
        hub = None if self._processes.process is None else self._processes.process.hub
        return shown_prompt(self.history, hub, run_id, kind, self._answered)

    async def reply(
        self, prompt_id: str, text: str, *, is_error: bool = False, user: str = "user"
    ) -> Receipt:
        """Answer a prompt (``Hub.reply``)."""
        return await self._answer(
            "reply", prompt_id, text, user,
            lambda hub: hub.reply(prompt_id, text, is_error=is_error, source=user),
        )  # fmt: skip

    async def approve(
        self, prompt_id: str, arguments: Mapping[str, Any] | None = None, *, user: str = "user"
    ) -> Receipt:
        """Approve a call (``Hub.approve``)."""
        text = "" if arguments is None else bytes(encode_value("arguments", arguments)).decode()
        return await self._answer(
            "approve", prompt_id, text, user,
            lambda hub: hub.approve(prompt_id, arguments, source=user),
        )  # fmt: skip

    async def deny(self, prompt_id: str, reason: str = "", *, user: str = "user") -> Receipt:
        """Refuse what a prompt asks for (``Hub.deny``)."""
        return await self._answer(
            "deny", prompt_id, reason, user,
            lambda hub: hub.deny(prompt_id, reason, source=user),
        )  # fmt: skip

    async def _answer(
        self, verb: Verb, prompt_id: str, text: str, user: str, act: Callable[[Hub], Receipt]
    ) -> Receipt:
        check_names(prompt_id=prompt_id)
        receipt = await self._command(verb, asker_of(prompt_id), text, user, act)
        if receipt.accepted:
            self._answered.add(prompt_id)
        return receipt

    async def _command(
        self, verb: Verb, run_id: str, reason: str, user: str, act: Callable[[Hub], Receipt]
    ) -> Receipt:
        check_names(run_id=run_id)
        return await self._act(Sent(verb=verb, run_id=run_id, text=reason, user=user), act)

    async def _act(self, sent: Sent, act: Callable[[Hub], Receipt]) -> Receipt:
        check_names(user=sent.user)
        process = await self._processes.living()
        receipt = self._note(process, sent, act)
        await self._wait_settled(process, receipt)
        return receipt

    def _note(self, process: Process, sent: Sent, act: Callable[[Hub], Receipt]) -> Receipt:
        """Do it, and write down what becomes of it."""
        self._write(sent, process.life.number)

        def settled(receipt: Receipt) -> None:
            sent.run_id, sent.status, sent.reason = receipt.run_id, receipt.status, receipt.reason

        receipt = act(process.hub)
        settled(receipt)
        receipt.watch(settled)
        return receipt

    def _write(self, sent: Sent, life: int | None = None) -> None:
        sent.life = self.lives - 1 if life is None else life
        sent.at, sent.place = self.clock.monotonic(), len(self.history.heard)
        self.history.sent.append(sent)

    async def _wait_settled(self, process: Process, receipt: Receipt) -> None:
        """Wait for what a process has to say; of one that is over nobody hears any more."""
        if receipt.status == "pending" and not process.is_over:
            with process.operation():
                await receipt

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    async def wait(self, seconds: float) -> None:
        """Let virtual time pass; less of it, if the process dies meanwhile."""
        check_amount("seconds", seconds)
        await self._processes.do(lambda _: anyio.sleep(seconds), None)

    async def result(self, run_id: str) -> RunOutcome | None:
        """What the run's latest session comes to, in whatever life that is; see ``Run.result``.

        ``None`` for a run that was lost with its process: nobody ever said that it was there.
        """
        while True:
            try:
                outcome = await self._processes.do(lambda rt: rt.result(run_id), None)
            except UnknownRun:
                if any(x.run_id == run_id and x.status == "pending" for x in self.history.sent):
                    return None
                raise
            if outcome is not None:
                return outcome

    async def settle(self, seconds: float = SETTLE) -> None:
        """Return when nothing happens any more by itself, which takes ``seconds`` at the most.

        With schedules, and with several workers, which never rest: as soon as no run is at work.
        """
        check_amount("seconds", seconds)
        nap = 1.0 if self._never_rests else seconds
        rest = partial(self._processes.rest, seconds=seconds, nap=nap)
        while not await self._processes.do(rest, otherwise=False):
            pass

    # ── what is written down ─────────────────────────────────────────────────────────────────

    def _can_die(self, model: Model) -> Model:
        return DyingModel(wrap_model(model, self.plan), lambda: self._processes.is_dead_here())

    def _asked(self, agent: str, run_id: str, request: ModelRequest) -> None:
        asked = Asked(
            agent=agent, run_id=run_id, request=request, life=self._processes.life_here(),
            at=self.clock.monotonic(),
        )  # fmt: skip
        self.history.requests.append(asked)

    async def _finish(self) -> None:
        """Write down how it all stands, leave the last process in order, and read the store."""
        history, process = self.history, self._processes.process
        if process is not None and not process.is_over:
            read_live(self._processes.runtimes, history)
            history.unowned = self._processes.ownerless()
            history.tasks = stray_tasks(self._processes.runtimes, self._others)
        history.injected = tuple(self.plan.log)
        await self._processes.end()
        await read_store(self._processes.new_store(), history)
