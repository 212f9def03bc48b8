"""What goes wrong in a simulated world, as data.

    WorldFault = Crash          the process or its power, at one of its commits
          | ModelFault     one call of a model
          | ToolFault      one call of a tool
          | ListenerFault  a subscriber, all the time
          | ChannelFault   one message on its way in
          | ClockJump      the wall clock, once
          | PauseWorker    one of several workers stands still for a while
          | KillWorker     one of several workers dies
          | CutWorker      one of several workers cannot reach the store for a while

Faults are small frozen values of plain numbers and words.  They are compared by value, their
``repr`` is the code that makes them, and Hypothesis shrinks them like any other data.  Each says
*when* by counting what happens, never by chance: the same world meets the same faults.  Counts
begin at 1 and continue over crashes and restarts, except for ``Crash.commit``, which counts within
one life.  Faults that are due at one moment take it and those after it, in their order: five
``ModelFault(kind="error")`` fail five calls.  A fault whose moment never comes does nothing.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.errors import BadValue
from hubbub.runtime.simulation.story.fields import check_fields

__all__ = [
    "INJECTED",
    "AnyFault",
    "ChannelFault",
    "ChannelFaultKind",
    "ClockJump",
    "Crash",
    "CrashMoment",
    "CutWorker",
    "KillWorker",
    "ListenerFault",
    "ListenerFaultKind",
    "ModelFault",
    "ModelFaultKind",
    "PauseWorker",
    "ToolFault",
    "ToolFaultKind",
    "WorkerFault",
    "WorldFault",
]

INJECTED: Final = "injected fault"
"""The message of every exception that a fault raises: by it the log leaves them out."""

CrashMoment: TypeAlias = Literal["before", "after", "torn"]
ModelFaultKind: TypeAlias = Literal[
    "hang", "error", "refused", "rate_limit", "cut", "empty", "bad_arguments", "unknown_tool",
    "duplicate_id", "slow", "crash",
]  # fmt: skip
ToolFaultKind: TypeAlias = Literal["hang", "raise", "late", "crash"]
ListenerFaultKind: TypeAlias = Literal["slow", "stuck", "raise"]
ChannelFaultKind: TypeAlias = Literal["duplicate", "reorder", "late"]


class WorldFault(Struct, frozen=True, kw_only=True):
    """What goes wrong: any of the classes in this module, and nothing else."""

    def __post_init__(self) -> None:
        if type(self) is WorldFault:
            raise BadValue("WorldFault", "this is any fault; make a Crash, a ModelFault, …")


class Crash(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="crash"):
    """The process dies at commit number ``commit`` of life number ``life``.

    ``when``:

    * ``before``: as by ``kill -9``; that commit is lost and nobody is notified of it;
    * ``after``: as by ``kill -9``; it is the last one kept, and nobody was notified of it either;
    * ``torn``: the power fails while it is written, together with what else is in its batch.
      Nobody was notified of any of them.  Some of the disk's sectors that were written have
      survived, ``sectors`` says which: 0 none, 1 all, and any other number some that are drawn
      from it. The store must then hold all of the batch or nothing.  In stores without a disk
      nothing of it survives: there this is ``before``.  See ``power_loss`` for what exactly is
      simulated.

    Lives count from 0; the commits of recovery count, so a process may die while it recovers.
    """

    commit: int
    when: CrashMoment = "after"
    life: int = 0
    sectors: int = 0

    def __post_init__(self) -> None:
        check_fields(self, counts=("commit",), ordinals=("life", "sectors"), when=CrashMoment)
        if self.sectors and self.when != "torn":
            raise BadValue("Crash.sectors", f"none are written {self.when!r} a commit, only 'torn'")


class ModelFault(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="model"):
    """Call number ``call`` of a model for ``agent`` (``""``: for any) goes wrong.

    ``kind``:

    * ``hang``: it never returns;
    * ``error``: the provider answers with a server error, which may be retried;
    * ``refused``: it refuses the call for good, as it does without a valid key: where a prompt has
      several models, the next one is asked;
    * ``rate_limit``: with 429, and ``Retry-After: seconds`` unless that is 0;
    * ``cut``: the first half of its text is streamed, then the connection is lost;
    * ``empty``: the reply has neither text nor calls;
    * ``slow``: the reply comes ``seconds`` later;
    * ``crash``: the reply comes, and the process dies before it is on record, as by ``Crash``;
    * ``unknown_tool``: its calls name a tool that does not exist; a reply without calls gets one;
    * ``bad_arguments``: the arguments of its calls lack their last character;
    * ``duplicate_id``: its calls carry an id that a call before them has.

    The last two wait for the first reply, from that call on, that has such calls.  ``seconds``
    pass first, with every kind but ``rate_limit``.
    """

    agent: str = ""
    call: int = 1
    kind: ModelFaultKind
    seconds: float = 0.0

    def __post_init__(self) -> None:
        check_fields(
            self, counts=("call",), amounts=("seconds",), texts=("agent",), kind=ModelFaultKind
        )


class ToolFault(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="tool"):
    """Call number ``call`` of the tool named ``tool`` (``""``: of any) goes wrong.

    ``kind``:

    * ``hang``: it does nothing and never returns (a tool without a timeout: until the faults are
      over, when it raises);
    * ``raise``: it raises a ``RuntimeError`` instead of doing anything, after ``seconds``;
    * ``late``: it has its effect at once, and returns ``seconds`` later, also when it has been
      cancelled by then (interrupted, timed out): a thread that nobody can stop;
    * ``crash``: it has its effect, and the process dies ``seconds`` later, before the result is on
      record: as by ``Crash``, but wherever that is.
    """

    tool: str = ""
    call: int = 1
    kind: ToolFaultKind
    seconds: float = 0.0

    def __post_init__(self) -> None:
        check_fields(
            self, counts=("call",), amounts=("seconds",), texts=("tool",), kind=ToolFaultKind
        )


class ListenerFault(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="listener"):
    """A subscriber to ``pattern`` that does not do what it should, in every life.

    ``slow`` takes ``seconds`` for each event, ``stuck`` never comes back from the first one,
    ``raise`` raises a ``RuntimeError`` at each one.
    """

    kind: ListenerFaultKind
    pattern: str = "*"
    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, amounts=("seconds",), kind=ListenerFaultKind)
        Patterns(self.pattern)


class ChannelFault(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="channel"):
    """Message number ``message`` on its way from a user to the hub: what opens a run is none.

    ``duplicate`` brings it twice, ``late`` brings it ``seconds`` later, ``reorder`` lets the
    next one pass (or brings it after ``seconds``, at least one, if no other comes).  What is due
    while the scenario has ended or killed the process comes when there is one again.
    """

    message: int = 1
    kind: ChannelFaultKind
    seconds: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, counts=("message",), amounts=("seconds",), kind=ChannelFaultKind)


class ClockJump(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="clock"):
    """The wall clock jumps by ``seconds``, which may be negative, ``at`` seconds after the start.

    What waits does not notice: monotonic time continues as it did.
    """

    at: float
    seconds: float

    def __post_init__(self) -> None:
        check_fields(self, amounts=("at",), numbers=("seconds",))


class PauseWorker(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="pause"):
    """Worker number ``worker`` (from 0) stands still for ``seconds``, ``at`` seconds after the
    start.

    As by SIGSTOP: none of its tasks runs, while time passes and the others go on.  Where that is
    longer than its lease lasts (``TTL``, six seconds) others take over its trees, and it goes on
    with what it was doing, as a former owner: what it writes then must be refused.  Does nothing
    to a worker that is not at work at that moment.
    """

    worker: int = 0
    at: float = 0.0
    seconds: float = 10.0

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("worker",), amounts=("at", "seconds"))


class KillWorker(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="kill"):
    """Worker number ``worker`` (from 0) dies ``at`` seconds after the start, as by ``kill -9``;
    another one begins in its place ``seconds`` later.

    Its trees are taken over when its lease is over.  Does nothing to a worker that is not at work
    at that moment.
    """

    worker: int = 0
    at: float = 0.0
    seconds: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("worker",), amounts=("at", "seconds"))


class CutWorker(WorldFault, frozen=True, kw_only=True, repr_omit_defaults=True, tag="cut"):
    """Worker number ``worker`` (from 0) cannot reach the store for ``seconds``, ``at`` seconds
    after the start.

    What it asks waits, and answers that are on their way are lost.  Where that is longer than its
    lease lasts (``TTL``, six seconds) it gives up its trees by itself, and others take them over.
    Does nothing to a worker that is not at work at that moment.
    """

    worker: int = 0
    at: float = 0.0
    seconds: float = 10.0

    def __post_init__(self) -> None:
        check_fields(self, ordinals=("worker",), amounts=("at", "seconds"))


WorkerFault: TypeAlias = PauseWorker | KillWorker | CutWorker
"""What can happen only in a world of several workers."""

AnyFault: TypeAlias = (
    Crash | ModelFault | ToolFault | ListenerFault | ChannelFault | ClockJump | PauseWorker
    | KillWorker | CutWorker
)  # fmt: skip
"""The same as a union, for ``match`` and for decoding."""
