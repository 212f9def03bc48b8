"""``Plan``: which faults are due, by counting; and the clock that jumps.

Nothing here draws a number: the same calls in the same order meet the same faults.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

import anyio
from msgspec import Struct, field

from hubbub.agents.model import ModelRequest
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Clock
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.simulation.story.faults import (
    ChannelFault,
    ClockJump,
    ListenerFault,
    ModelFault,
    ToolFault,
    WorldFault,
)
from hubbub.runtime.supervision.supervisor import Supervisor

__all__ = ["JumpingClock", "OnRequest", "Plan"]

F = TypeVar("F")
Due = TypeVar("Due", ModelFault, ToolFault, ChannelFault)

OnRequest: TypeAlias = Callable[[str, str, ModelRequest], object]
"""Told of every model call: agent, run id, request."""


class PlannedLife(Struct, eq=False):
    """A process that is at work, as its faults need it."""

    hub: Hub
    kill: Callable[[], object]
    gone: anyio.Event = field(default_factory=anyio.Event)


class Plan:
    """Which faults are due, by counting; one for all lives of a world.

    ``clock`` is for the world's ``Ports``: the clock that was given, with the plan's jumps.
    ``log`` says what was done, in order, as tuples of plain data whose first word is the sort of
    fault.  Crashes are the store's matter (``dying_store``).
    """

    def __init__(
        self, faults: Iterable[WorldFault], clock: Clock, *, on_request: OnRequest | None = None
    ) -> None:
        faults = tuple(faults)
        self.log: list[tuple[str | int | float, ...]] = []
        self.clock: Final = JumpingClock(clock, _of(ClockJump, faults), self._note_jump)
        self.listener_faults: Final = _of(ListenerFault, faults)
        self.on_request = on_request
        self._model_faults = list(_of(ModelFault, faults))
        self._tool_faults = list(_of(ToolFault, faults))
        self._channel_faults = list(_of(ChannelFault, faults))
        self._counts: Counter[tuple[str, str]] = Counter()
        self._over = anyio.Event()
        self._lives: dict[int, PlannedLife] = {}
        self._last = -1
        """The number of the life that began last."""
        self.life_here: Callable[[], int | None] = lambda: self._last
        """The number of the life that the current task belongs to."""

    @property
    def is_over(self) -> bool:
        """Whether nothing goes wrong any more."""
        return self._over.is_set()

    def end(self) -> None:
        """Inject no more faults, and release what the plan holds up, except for calls that are
        already bound to time out."""
        for faults in (self._model_faults, self._tool_faults, self._channel_faults):
            faults.clear()
        self.clock.settle()
        self._over.set()

    # ── lives ────────────────────────────────────────────────────────────────────────────────

    def begin_life(self, hub: Hub, kill: Callable[[], object], number: int = 0) -> None:
        """A process begins, with this hub; before its runtime is entered, which may call models.

        ``kill`` ends it, as ``kill -9`` does.
        """
        self._lives[number] = PlannedLife(hub, kill)
        self._last = number

    def end_life(self, number: int = 0) -> None:
        """The process is gone: nobody waits for its late answers."""
        if (life := self._lives.get(number)) is not None:
            life.gone.set()

    def _life(self) -> PlannedLife | None:
        """That of the calling task."""
        number = self.life_here()
        return None if number is None else self._lives.get(number)

    def caller(self) -> tuple[str, str]:
        """Agent and run id of the run that the caller works for."""
        run_id = CURRENT_RUN.get()
        life = self._life()
        owner = life.hub.dispatcher.owner if life is not None else None
        if isinstance(owner, Supervisor):
            for run in owner.in_memory:
                if run.lane.run_id == run_id:
                    return run.lane.agent, run_id
        return "", run_id

    # ── what is due ──────────────────────────────────────────────────────────────────────────

    def due_in_model(self, agent: str) -> tuple[ModelFault, ...]:
        """Count a model call of ``agent``: the faults that may ``strike`` it."""
        return self._count(self._model_faults, "model", agent)

    def due_in_tool(self, tool: str) -> tuple[ToolFault, ...]:
        """Count a call of ``tool``."""
        return self._count(self._tool_faults, "tool", tool)

    def due_on_line(self) -> tuple[ChannelFault, ...]:
        """Count a message of a user."""
        return self._count(self._channel_faults, "channel", "")

    def _count(self, faults: list[Due], sort: str, name: str) -> tuple[Due, ...]:
        self._counts[sort, ""] += 1
        if name:
            self._counts[sort, name] += 1
        return tuple(
            fault
            for fault in faults
            if _name(fault) in ("", name) and _number(fault) <= self._counts[sort, _name(fault)]
        )

    def strike(self, fault: ModelFault | ToolFault | ChannelFault, name: str = "") -> bool:
        """Whether ``fault`` strikes now, in a call of ``name``: each does once, while there are
        faults at all."""
        match fault:
            case ModelFault():
                sort, is_left = "model", _take(self._model_faults, fault)
            case ToolFault():
                sort, is_left = "tool", _take(self._tool_faults, fault)
            case ChannelFault():
                sort, is_left = "channel", _take(self._channel_faults, fault)
        if is_left:
            self.note(sort, fault.kind, name, self._counts[sort, _name(fault)])
        return is_left

    def note(self, *what: str | int | float) -> None:
        """Add to the log."""
        self.log.append(what)

    def _note_jump(self, jump: ClockJump) -> None:
        self.note("clock", jump.at, jump.seconds)

    # ── waiting ──────────────────────────────────────────────────────────────────────────────

    async def wait_over(self, seconds: float | None = None) -> None:
        """Wait ``seconds`` (``None``: forever), but no longer than there are faults."""
        with anyio.move_on_after(seconds):
            await self._over.wait()

    async def kill_after(self, seconds: float) -> None:
        """Wait, and kill the process, which ends the code that waits here."""
        if seconds:
            await self.clock.sleep(seconds)
        if (life := self._life()) is not None:
            life.kill()
        await anyio.sleep_forever()

    async def wait_stubbornly(self, seconds: float) -> None:
        """Wait ``seconds`` even if cancelled meanwhile, as long as the process lives."""
        life = self._life()
        with anyio.move_on_after(seconds, shield=True):
            await (life.gone if life is not None else anyio.Event()).wait()


class JumpingClock:
    """``inner``, but ``now()`` jumps; ``monotonic()`` and ``sleep`` know nothing of it."""

    def __init__(
        self,
        inner: Clock,
        jumps: Iterable[ClockJump] = (),
        note: Callable[[ClockJump], object] = lambda jump: None,
    ) -> None:
        self._inner = inner
        self._due = sorted(jumps, key=lambda jump: jump.at, reverse=True)
        self._note = note
        self._ahead = 0

    def now(self) -> int:
        if self._due:
            time = self._inner.monotonic()
            while self._due and self._due[-1].at <= time:
                jump = self._due.pop()
                self._ahead += int(jump.seconds * 1_000_000)
                self._note(jump)
        return self._inner.now() + self._ahead

    def monotonic(self) -> float:
        return self._inner.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    def settle(self) -> None:
        """Jump no more; what it has jumped stays."""
        self.now()
        self._due.clear()


def _of(sort: type[F], faults: Sequence[object]) -> tuple[F, ...]:
    return tuple(fault for fault in faults if isinstance(fault, sort))


def _name(fault: ModelFault | ToolFault | ChannelFault) -> str:
    """Whose calls a fault counts; empty for all."""
    match fault:
        case ModelFault(agent=name) | ToolFault(tool=name):
            return name
    return ""


def _number(fault: ModelFault | ToolFault | ChannelFault) -> int:
    """The call or message that it waits for."""
    return fault.message if isinstance(fault, ChannelFault) else fault.call


def _take(faults: list[Due], fault: Due) -> bool:
    """Take ``fault`` out of ``faults``, if it is there."""
    if fault in faults:
        faults.remove(fault)
        return True
    return False
