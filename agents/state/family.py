"""A run's children: who they are, whose result goes where, in which words.

Rules
-----
* An *invocation* is one session of a child; it has one result, and it names the parent's messages
  that it took (``answers``).
* A call that waits for one of these messages (or for any, once the child's run is over) gets the
  result bare, as its own.
* A result that no call waits for is reported to the side that started the child, in these words,
  unless its child is ``explicit``, its parent reads it by a handle, or a call that waited for it
  has been answered otherwise (an interruption).
* The result of a child that a tool's code has started stays with its handle.  Where the call ends
  and it has not been asked for, it is reported, too; until then it waits in the inbox.  So it is
  where the call fails, or is cut off, and has given up asking.  A handle does not outlive its
  process.
* A child whose handle a call asks is waited for, until the call ends or gives up.
* A child whose run ends outside of a session has no result, and nothing is reported.
"""

from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.model import UserMessage
from hubbub.agents.state.area import attachment_note
from hubbub.hub import events as e
from hubbub.hub.events import FileRef

__all__ = [
    "FAILURE",
    "NOTICE",
    "NO_FAMILY",
    "NO_RESULT",
    "OPENING",
    "REQUEST_SECONDS",
    "RESULT",
    "Child",
    "Deferred",
    "Family",
    "Start",
    "describe",
    "failure_of",
    "notes_of",
    "reports_to_side",
    "succeeded",
]

RESULT: Final = "Subagent (reference: {}) has returned the following result:\n\n{}"
FAILURE: Final = "Subagent (reference: {}) has reported a failure:\n\n{}"
NOTICE: Final = "Subagent (reference: {}):\n\n{}"

NO_RESULT: Final = "(finished; nothing returned)"
"""What a model reads where code returned None: neither a failure nor an answer of null."""

OPENING: Final = "open"
"""The key of the message that a child was started with."""

_CUT_OFF: Final = {
    "interrupted": "interrupted", "terminated": "terminated", "timed_out": "timed out",
}  # fmt: skip

REQUEST_SECONDS: Final = 3600
"""How long a creation waits for its variables."""

_OPEN: Final = ("call", "read", "left")
_WITH_HANDLE: Final = ("read", "left", "handle")

MAX_DEFERRED: Final = 100
"""Creations that wait for variables; the oldest is given up for a further one."""


class Child(Struct, frozen=True, gc=False, kw_only=True):
    """A run that this run has started."""

    run_id: str
    agent: str
    name: str = ""
    title: str = ""
    description: str = ""
    tool: str = ""
    side: str = "side_a"
    group: str = ""
    created_at: int = 0
    resumable: bool = False
    blocking: bool = False
    explicit: bool = False
    reports: bool = False
    takeover: bool = False
    ended: bool = False
    result: str = ""
    """As in ``agent:child``, where code has started it; ``read``: its handle was asked, ``left``:
    in vain."""
    call: str = ""
    """The call whose end decides."""

    @property
    def is_undecided(self) -> bool:
        """Whether the call at work decides what becomes of the result."""
        return bool(self.call) and self.result in _OPEN


class Start(Struct, frozen=True, gc=False):
    """A subagent that starts with its prompt."""

    name: str
    message: str
    status: Literal["todo", "waiting", "done"] = "todo"
    child: str = ""


class Deferred(Struct, frozen=True, gc=False, kw_only=True):
    """A child whose creation waits for variables."""

    request_id: str
    agent: str
    name: str
    message: str
    owner: str
    side: str
    required: tuple[str, ...]
    missing: tuple[str, ...]
    """Those of them that had no value when it was called."""
    files: tuple[FileRef, ...]
    expires_at: int

    @property
    def asked_at(self) -> int:
        return self.expires_at - REQUEST_SECONDS * 1_000_000


class Family(Struct, frozen=True, gc=False):
    """The runs that a run has started, and is about to."""

    children: tuple[Child, ...] = ()
    starts: tuple[Start, ...] = ()
    activated: tuple[str, ...] = ()
    """Sides whose prompt has started what starts with it."""
    given_up: tuple[tuple[str, str], ...] = ()
    """Child and message of calls that were answered before their result came."""
    deferred: tuple[Deferred, ...] = ()
    booted: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    """Children whose results wait for the end of the calls that have started them."""
    has_lent: bool = False
    """Whether any child, one that has ended or not, has had the conversation."""
    awaited: tuple[tuple[str, str], ...] = ()
    """Calls (empty for a hook) and the children whose handles they ask."""

    @property
    def holds(self) -> bool:
        for start in self.starts:  # noqa: SIM110 - without a generator
            if start.status != "done":
                return True
        return False

    @property
    def only_waits(self) -> bool:
        return self.holds and all(start.status != "todo" for start in self.starts)

    @property
    def registry(self) -> tuple[Child, ...]:
        """The instances that stay."""
        return tuple(child for child in self.children if child.resumable)

    def find(self, run_id: str) -> Child | None:
        for child in self.children:  # Without a generator: asked of each result.
            if child.run_id == run_id:
                return child
        return None

    def living(self, tool: str) -> tuple[Child, ...]:
        """The instances of one configured tool that count against its cap."""
        return tuple(c for c in self.children if c.tool == tool and c.resumable and not c.ended)


NO_FAMILY = Family()


# ── how a family grows ───────────────────────────────────────────────────────────────────────


def with_child(family: Family, event: e.AgentChild) -> Family:
    """The family after a child was started, or could not be."""
    if event.child_run_id and not event.error:
        child = Child(
            run_id=event.child_run_id, agent=event.child_agent, name=event.name,
            title=event.title, description=event.description, tool=event.tool,
            side=event.side or "side_a", group=event.group, created_at=event.created_at,
            resumable=event.resumable, blocking=event.blocking, explicit=event.explicit,
            reports=event.reports, takeover=event.takeover, result=event.result,
            call=event.call_id if event.result == "call" else "",
        )  # fmt: skip
        has_lent = family.has_lent or child.takeover
        family = replace(family, children=(*family.children, child), has_lent=has_lent)
        if child.is_undecided:
            family = replace(family, undecided=(*family.undecided, child.run_id))
    if event.immediate:
        status: Literal["waiting", "done"] = "waiting" if event.waits else "done"
        start = replace(family.starts[event.index], status=status, child=event.child_run_id)
        starts = list(family.starts)
        starts[event.index] = start
        family = replace(family, starts=tuple(starts))
    return family


def without_starts(family: Family, skipped: tuple[int, ...]) -> Family:
    """The family after it turned out that some of those that are due do not start."""
    starts = tuple(
        [
            replace(start, status="done") if index in skipped else start
            for index, start in enumerate(family.starts)
        ]
    )
    return replace(family, starts=starts)


def with_result(family: Family, item: e.SessionResult) -> Family:
    """The family after a result came: who has ended, what is answered."""
    child = item.child_run_id
    children, starts, given_up = family.children, family.starts, family.given_up
    if item.final:
        children = tuple(
            [
                replace(each, ended=True) if each.run_id == child else each
                for each in children
                if each.run_id != child or each.resumable or each.result in _WITH_HANDLE
            ]
        )
        if family.awaited:
            awaited = tuple([pair for pair in family.awaited if pair[1] != child])
            family = replace(family, awaited=awaited)
    if starts:
        starts = tuple(
            [
                replace(s, status="done") if s.child == child and s.status == "waiting" else s
                for s in starts
            ]
        )
    if given_up:
        given_up = tuple(
            [
                (run_id, key)
                for run_id, key in given_up
                if run_id != child or not (item.final or key in item.answers)
            ]
        )
    return replace(family, children=children, starts=starts, given_up=given_up)


def with_results(family: Family, changes: dict[str, str], call: str = "") -> Family:
    """The family after it is decided what becomes of results: of those that ``call`` has started,
    or of all."""
    children = tuple(
        [
            replace(each, result=changes.get(each.result, each.result))
            if not call or each.call == call
            else each
            for each in family.children
        ]
    )
    undecided = tuple([each.run_id for each in children if each.is_undecided])
    awaited = tuple([pair for pair in family.awaited if call and pair[0] != call])
    return replace(family, children=children, undecided=undecided, awaited=awaited)


def with_read(family: Family, event: e.AgentRead) -> Family:
    """The family after a child's handle was asked for its result, or is asked no longer."""
    children = tuple(
        [
            replace(each, result="left" if event.left else "read")
            if each.run_id == event.child_run_id and each.result in _OPEN
            else each
            for each in family.children
        ]
    )
    asks = (event.call_id, event.child_run_id)
    awaited = tuple([pair for pair in family.awaited if pair != asks])
    if not event.left:
        awaited = (*awaited, asks)
    return replace(family, children=children, awaited=awaited)


def with_interruption(family: Family) -> Family:
    """The family after an interruption: what held a step back, or a hook, is waited for no more."""
    waited = tuple((start.child, OPENING) for start in family.starts if start.status == "waiting")
    starts = tuple(replace(s, status="done") if s.status == "waiting" else s for s in family.starts)
    awaited = tuple([pair for pair in family.awaited if pair[0]])
    return replace(family, starts=starts, given_up=(*family.given_up, *waited), awaited=awaited)


def with_deferred(family: Family, event: e.SessionVariables) -> Family:
    """The family after a creation was put off."""
    deferred = Deferred(
        request_id=event.request_id, agent=event.child_agent, name=event.name,
        message=event.message, owner=event.owner, side=event.side or "side_a",
        required=event.required, missing=event.names, files=event.files,
        expires_at=event.expires_at,
    )  # fmt: skip
    return replace(family, deferred=(*family.deferred, deferred)[-MAX_DEFERRED:])


def with_booted(family: Family, request_id: str) -> Family:
    """The family after a creation that was put off has been carried out."""
    left = tuple(each for each in family.deferred if each.request_id != request_id)
    return replace(family, deferred=left, booted=(*family.booted, request_id)[-MAX_DEFERRED:])


# ── whose result, in which words ─────────────────────────────────────────────────────────────


def reports_to_side(family: Family, item: e.SessionResult) -> Child | None:
    """The child, if a result that no call waits for is reported to the side that started it."""
    child = family.find(item.child_run_id)
    if child is None or not child.reports or child.explicit or item.only_ends:
        return None
    if child.result in _WITH_HANDLE or child.is_undecided:
        return None
    if child.takeover:
        return None  # What comes too late is the user's, not the caller's.
    given_up = family.given_up
    if given_up and any((child.run_id, key) in given_up for key in item.answers):
        return None
    return child


def succeeded(item: e.SessionResult) -> bool:
    """Whether a result is one: an end without a word is none."""
    return item.outcome in ("completed", "limit") and bool(item.content.strip())


def failure_of(item: e.SessionResult) -> str:
    """What went wrong, in words."""
    if item.outcome in _CUT_OFF:
        words = _CUT_OFF[item.outcome]
        return f"{words}: {item.reason}" if item.reason not in ("", item.outcome) else words
    if item.reason and item.outcome == "failed":
        return item.reason
    if item.content.strip():
        return item.content
    why = f" ({item.reason})" if item.reason else ""
    return f"it ended without any text{why}"


def notes_of(item: e.SessionResult, paths: tuple[str, ...]) -> tuple[str, ...]:
    """What follows the words: files, and that a limit was reached."""
    limit = ("Reason: limit",) if item.outcome == "limit" else ()
    return (*attachment_note(paths), *limit) if paths else limit


def describe(item: e.SessionResult, paths: tuple[str, ...]) -> UserMessage:
    """A result as it is reported to the side that started the child."""
    if succeeded(item):
        text = RESULT.format(item.child_run_id, item.content)
    else:
        text = FAILURE.format(item.child_run_id, failure_of(item))
    return UserMessage(content=text, notes=notes_of(item, paths))
