"""``Journal``: the port of a store.  One log per run, two lanes, one commit a step.

* The **own lane** of a run is its truth: dense ``seq`` from 1, written by the run's owner,
  fenced by ``Commit.expect``.
* The **in lane** is what others sent: numbered by the store, deduplicated by (run, source,
  key), refused once the inbox is closed.
* The **hub lane** takes what belongs to no run's scope.

A ``Commit`` is all or nothing and never fails for a recipient's sake: each delivery gets its own
outcome.  ``submit`` is plain: it may call ``commit.done`` at once (memory) or later from the same
event loop (disk, network), but always in the order of submission.  Positions number all durable
events of the store in that order.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from hubbub.hub.events import ContentPart, Event, FileRef, InLane, SessionMessage
from hubbub.hub.events.descriptors import Descriptor
from hubbub.hub.receipt import Receipt

__all__ = [
    "OVERTAKEN",
    "Addressing",
    "Commit",
    "Cut",
    "Delivery",
    "FoundRun",
    "FoundTree",
    "Journal",
    "LoadedRun",
    "NewRun",
    "RequestKey",
    "RunInfo",
    "RunStatus",
    "Selection",
]

OVERTAKEN: Final = "overtaken"
"""The error of a commit that ends a run which was terminated before (``Commit.error``)."""

RunStatus: TypeAlias = Literal["active", "waiting", "parked", "ended"]
"""``waiting``: at work, but for a child to finish; there is nothing to continue with until it
has."""

Addressing: TypeAlias = Literal[
    "run", "name", "key", "descriptor", "only", "newest", "every", "below"
]
"""How ``Delivery.to`` is meant:

    run     by run id
    name    the one live run of an agent
    key     the open run of a session key; else of the user that the key spells
    descriptor  the open run that a ``user``, ``cron`` or ``heartbeat`` stands for, as JSON text
    only    the one open conversation there is: of those that people hold, else of all roots
    newest  the open run with a descriptor of that type that a user spoke to last; what a
            program began stands for nobody (``recency_of``)
    every   all live runs
    below   all live descendants of a run that are not being terminated already
"""


class NewRun(Struct, frozen=True, kw_only=True):
    """The address that a ``session:open`` creates if there is none yet.

    There is one if a run has this id, if an open run has this session key, or if an open run
    stands for the same user, cron task or heartbeat: asked and made in one write, in this order.
    """

    run_id: str
    root_run_id: str
    """Empty: that of its parent, which must be open."""
    parent_run_id: str | None
    agent: str
    session_key: str = ""
    name: str = ""
    wake_at: int | None = None
    """When the run must be looked at even if nothing arrives (µs since the epoch)."""
    descriptor: Descriptor | None = None
    by_descriptor: bool = False
    """Whether the descriptor alone says whom it is for: its key finds nobody, and is given to the
    new run unless an open one has it."""
    found: InLane | None = None
    """What is delivered instead to an open run that was found."""
    refusal: str = ""
    """Why no run may be made if there is none: the opening is rejected with it."""
    refusal_of_found: Callable[[str], str] | None = None
    """Why a run that is found, given by its id, cannot be what the opening is for; empty if it
    can.  Called where the store decides, in whichever thread that is."""


class RequestKey(Struct, frozen=True):
    """Under which a request of a client counts once in a store, whoever it is addressed to.

    What is accepted with it is noted in the same commit.  The same ``name`` again is a duplicate,
    or, with another ``digest`` of what it says, rejected as ``key reused``; for as long as the run
    that has accepted it is kept, whether or not it has ended or the address leads elsewhere now.
    A message's own key counts in its run; this is for what may be retried by who knows no run.
    """

    name: str
    digest: str = ""


RefusalOfFiles: TypeAlias = Callable[[str, Sequence[str], Iterable[Event], Iterable[InLane]], str]
"""Of an agent, the files that a message names, the own lane of a run and what waits for it: why
the message cannot come, for the run has no such file, or has one that the message brings."""


class Delivery(Struct, eq=False):
    """One item for one inbox.  The store fills in the last five fields."""

    event: InLane
    to: str
    by: Addressing = "run"
    source: str = ""
    key: str = ""
    expect: tuple[int, int] | None = None
    """Refused as ``changed`` where the lanes of the run have not come to these numbers, the own one
    and the in lane."""
    limit: int = 0
    """Waiting messages from which on this one is refused; 0 for what is exempt."""
    closes: Literal["", "closing", "terminated"] = ""
    new: NewRun | None = None
    touches: bool = False
    """Whether its acceptance counts for how recently a user spoke to the run."""
    agents: Container[str] | None = None
    """Refused as ``agent gone`` by a run that is none of these agents'."""
    request: RequestKey | None = None
    refusal_of_files: RefusalOfFiles | None = None
    """Why a run cannot be sent what names or brings these files; asked of what is a message, where
    the store decides, in whichever thread that is."""
    needs: Sequence[FileRef | ContentPart] = ()
    """What the event names that has a content; of one that comes from outside."""
    refusal_of_contents: Callable[[str], str] | None = None
    """Of the root of a tree: why a run in it cannot be sent what names these, for they are not
    kept.  Called where the store decides, in whichever thread that is."""
    contents: Mapping[str, bytes] | None = None
    """What the event's parts hold, by digest.  A store that keeps contents itself
    (``Store.blobs``) has them, durably, before it has the event."""
    outcome: Literal["", "accepted", "duplicate", "rejected"] = ""
    reason: str = ""
    run_ids: tuple[str, ...] = ()
    first: tuple[str, str, int] | None = None
    """Of a duplicate: where in which lane stands what was accepted."""
    repeats: bool = False
    """Whether it is a duplicate by its request."""


class FoundRun(Struct, frozen=True, kw_only=True):
    """A run of a ``FoundTree``; ``waiting`` are numbers of its in lane, and so is what it has
    ``accepted``, by source and key.  ``settled`` is the same of items that have gone: what each
    said, as a number."""

    new: NewRun
    created_at: int
    status: RunStatus
    inbox: Literal["open", "closing", "terminated", "ended"]
    waiting: frozenset[int] = frozenset()
    accepted: Mapping[tuple[str, str], int] = {}
    settled: Mapping[tuple[str, str], int] = {}


class FoundTree(Struct, frozen=True, kw_only=True):
    """A tree of new runs that comes in whole, with all that is on record of them, as a fork does.

    The runs, the root first and those above others before them; and their events, of both lanes,
    numbered and in order, which are dispatched as those of any run.  ``at`` is when (µs): its root
    is spoken to then, as one that is opened, however old its events are.  ``notes`` are what the
    store has to note with it.
    """

    at: int
    runs: Sequence[FoundRun]
    events: Sequence[Event]
    notes: Mapping[str, str] = {}

    @property
    def root(self) -> NewRun:
        return self.runs[0].new


class Cut(Struct, frozen=True, kw_only=True):
    """What of a run's two lanes goes: all that stands between how it began, up to the first record
    of its own, and record ``seq`` of that, a base; ``inbox`` items had come to it by then.

    A long one goes step by step, from its base backwards: each time what stands behind position
    ``after``.  So what is left is at any moment a beginning, a base, and all that came since.
    ``until`` is where the last event stands that goes, and ``place`` where the base does, if that
    is known: nothing is left between the two, and a store need not look there.
    """

    run_id: str
    seq: int
    inbox: int
    after: int = 0
    until: int = 0
    place: int = 0


class HubNotes(Struct, eq=False, kw_only=True):
    """What the hub notes on a commit that is on its way; no store looks at it."""

    about: str = ""
    """The run that it is about: what that emits without a lane meanwhile waits for it."""
    lane: "InFlight | None" = None
    """The own lane that submitted it, and counts what is in flight."""
    before: "Callable[[Commit], None] | None" = None
    """Called when it is committed or refused, ahead of everything else."""
    receipt: Receipt | None = None
    """What the sender of its one delivery holds, to be settled next."""
    trailing: list[Event] | None = None
    """Ephemeral events that are dispatched with it, behind its own."""
    after: "Callable[[Commit], None] | None" = None
    """Called last, when the dispatch is done or queued behind one at work."""


class InFlight(Protocol):
    """What counts its commits that the store has yet to write."""

    in_flight: int


class Commit(HubNotes, eq=False):
    """What is written together.

    ``events`` are stamped except for what the store numbers; after the commit ``written`` holds
    every event as it is in the store, in order, ``leftovers`` the items that a closed inbox
    still held, and ``error`` is ``""``, ``"conflict"`` (another owner writes this lane, or an
    item in ``taken`` or ``lent`` does not wait there, or a note is not as it was expected to be),
    ``OVERTAKEN`` (it ends a run that was
    terminated before, and does not take that), or the store's own words: why it has failed, or
    why this commit cannot be written for its own contents, which is no other's trouble.
    """

    run_id: str = ""
    events: Sequence[Event] = ()
    expect: int = 0
    taken: Iterable[int] = ()
    deliveries: Sequence[Delivery] = ()
    status: RunStatus | None = None
    agent: str = ""
    """The agent that the run is from now on, if that has changed."""
    notes: Mapping[str, str] | None = None
    """Texts to remember by key, in the place of what stood there."""
    lent: Sequence[tuple[str, int]] = ()
    """Items of other inboxes that are taken, too, by run id and number: those of the conversation
    that a takeover frame holds."""
    leave_to: str = ""
    """Where the messages go that an ending run's inbox still holds, instead of into
    ``leftovers``: to the inbox of that run, in order, behind what waits there."""
    again: SessionMessage | None = None
    """What waits once more, behind what waits in its inbox, where no reply among ``deliveries`` is
    accepted: it was taken for an answer, and another one came first."""
    notes_expect: Mapping[str, str] | None = None
    """What must stand under keys of notes, empty for nothing; else it is a conflict."""
    found: FoundTree | None = None
    """A tree that comes in whole; a conflict where one of its runs is there, or an open run has the
    session key of its root."""
    gone: Sequence[str] = ()
    """Runs that go for good, with all that is theirs: whole trees of them.  A conflict where one
    has not ended; those that are not there have gone before.  The run that has the last event of
    the store must stay, or its position were used again.  ``notes`` that are emptied with them are
    kept no longer."""
    cut: Cut | None = None
    """The part of a run's lanes that goes for good; a conflict where one of the items waits, and
    nothing where it has gone before.  Keys under which items of it were accepted are known as long
    as the run is."""
    written: list[Event] = field(default_factory=list)
    leftovers: Sequence[InLane] = ()
    error: str = ""
    done: "Callable[[Commit], None] | None" = None
    """For the store to call, once it is written or refused."""

    @property
    def recorded(self) -> Sequence[Event]:
        """The events that it brings itself, deliveries apart."""
        return self.events if self.found is None else self.found.events

    @property
    def openings(self) -> list[NewRun]:
        """The runs that it asks for; of a tree that comes in whole the root alone."""
        asked = [each.new for each in self.deliveries if each.new is not None]
        return asked if self.found is None else [*asked, self.found.root]

    def forget_outcome(self) -> None:
        """Be as before it was tried to be written; for a store that tries once more."""
        self.written = []
        self.leftovers = ()
        self.error = ""
        for delivery in self.deliveries:
            delivery.outcome = ""
            delivery.reason = ""
            delivery.run_ids = ()
            delivery.first = None


class RunInfo(Struct, frozen=True, kw_only=True):
    """What the store knows of an address."""

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    agent: str
    name: str
    session_key: str
    status: RunStatus
    inbox: Literal["open", "closing", "terminated", "ended"]
    waiting: int
    created_at: int
    wake_at: int | None = None
    descriptor: Descriptor | None = None


class LoadedRun(Struct, frozen=True, kw_only=True):
    """A run as its owner needs it to continue."""

    info: RunInfo
    events: Sequence[Event]
    """The own lane, in order, from number ``after`` on."""
    waiting: Sequence[InLane]
    """The untaken items, in order."""
    after: int = 0
    kept: bytes | None = None
    """The snapshot of what the run had come to with event ``after``, where it was asked for."""

    @property
    def seq(self) -> int:
        """The number of the last event in the own lane."""
        return self.after + len(self.events)


class Selection(Struct, frozen=True, kw_only=True):
    """Which events a reader wants; ``match`` looks at the type."""

    run_id: str | None = None
    root_run_id: str | None = None
    match: Callable[[str], bool] | None = None

    def wants(self, event: Event) -> bool:
        """Whether an event is one of them."""
        return (
            (self.run_id is None or event.run_id == self.run_id)
            and (self.root_run_id is None or event.root_run_id == self.root_run_id)
            and (self.match is None or self.match(event.type))
        )

    def meets(self, root_run_id: str | None, run_ids: Collection[str] | None) -> bool:
        """Whether an event of a tree may be one of them; of any tree without its root, and of any
        run of it without their ids."""
        return (run_ids is None or self.run_id is None or self.run_id in run_ids) and (
            root_run_id is None or self.root_run_id in (None, root_run_id)
        )


class Journal(Protocol):
    """A store of events and inboxes.  See the module's docstring for its guarantees."""

    @property
    def name(self) -> str:
        """What cursors and messages call this store."""
        ...

    @property
    def tip(self) -> int:
        """The position of the last committed event; 0 when there is none."""
        ...

    @property
    def failure(self) -> str:
        """Why the store accepts nothing any more; empty while it does."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """What users must know about the opening, one line each."""
        ...

    async def open(self) -> None:
        """Begin: everything else is for an open journal.  Raises ``OperatorError``s."""
        ...

    async def aclose(self) -> None:
        """Flush and release every resource; idempotent."""
        ...

    def submit(self, commit: Commit) -> None:
        """Write a commit, now or later; ``commit.done`` is called when it is written or refused."""
        ...

    async def flush(self) -> None:
        """Return when everything submitted before the call is done.

        What is submitted later is not waited for: it returns however much others write meanwhile.
        """
        ...

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        """A run, as of one moment; of its own lane what comes after number ``after``, or from its
        base on where what is before that has gone."""
        ...

    async def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        """The last event in a run's own lane that is of one of these types."""
        ...

    async def info(self, run_id: str) -> RunInfo | None:
        """What the store knows of a run; ``None`` for an unknown one."""
        ...

    async def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        """Every live run (or every run), of one tree or of all, by creation."""
        ...

    async def ready(self) -> Sequence[str]:
        """Runs with work to continue with: active ones, and parked ones with mail."""
        ...

    async def timed(self) -> Sequence[tuple[str, int]]:
        """Live runs that must be looked at at a certain time, and that time."""
        ...

    async def find(self, to: str, by: Addressing) -> Sequence[str]:
        """The runs that a delivery addressed like this would be meant for."""
        ...

    async def notes(self, prefix: str = "") -> Mapping[str, str]:
        """What commits have noted under keys that begin with ``prefix``."""
        ...

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        """Up to ``limit`` events after a position, and the position reached.

        A page may end before ``limit``, or without any event, and then has not reached ``until``:
        a store bounds what it reads at once.  It has always got further."""
        ...

    async def position(self, run_id: str, lane: str, seq: int) -> int | None:
        """The position of the event of that identity, or ``None`` when it is not kept."""
        ...

    def depths(self) -> tuple[int, int, int]:
        """Live runs, parked runs, and items waiting in all inboxes."""
        ...
