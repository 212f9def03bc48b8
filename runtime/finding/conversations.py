"""Conversations: a page of them, as their store knows them.

A conversation is a root that people or programs speak to: no child, no schedule's run, and nothing
that was asked for a single session (``Runtime.run``).  Ended ones count.

    StoreReader.spoken_to ──► roots, newest first ──► title: the first words
                                                 └──► what it waits for: its tree's open prompts

The work for a page is bounded, whatever the store holds: by rows looked at, by events read of each.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, StoreFailed
from hubbub.hub.events import Event, PromptKind
from hubbub.hub.near_misses import shown
from hubbub.hub.store.reader import Recency, RunRow, StoreReader, answered_prompts
from hubbub.hub.texts import check_label
from hubbub.hub.values import NULL, Json, decode_value
from hubbub.runtime.inspection.variable_requests import VariableRequest, open_requests

__all__ = ["Awaited", "Conversation", "Conversations", "list_conversations"]

MAX_PAGE: Final = 1_000
MAX_LOOKED_AT: Final = 5_000
"""Roots that are looked at for one page, however few of them are asked for."""

MAX_TREE: Final = 50
"""Runs of a conversation that are asked what they wait for."""

FIRST_EVENTS: Final = 20
"""Among so many events of a run its first words are looked for."""

LAST_EVENTS: Final = 500
"""Among so many events of a run the prompts are looked for that are open."""

TITLE: Final = 80
"""Characters of a title."""

Status: TypeAlias = Literal["active", "waiting", "parked", "ended"]


class Awaited(Struct, frozen=True, kw_only=True):
    """Something that a conversation waits for.

    ``kind`` is ``question``, ``approval`` (may ``tool`` run with these ``arguments``?),
    ``external`` (the result of ``tool``), ``variables`` or ``child``.  What people are asked has a
    ``prompt_id``, by which ``hub.reply`` and its like answer it.  ``run_id`` is the run that asks,
    or the child.  ``schema`` is the JSON schema that an answer must fit, ``None`` where any text
    will do.  ``request`` is what ``variables`` are given for.
    """

    kind: PromptKind | Literal["variables", "child"]
    run_id: str
    prompt_id: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    tool: str = ""
    arguments_json: Json = msgspec.field(name="arguments", default=NULL)
    schema_json: Json = msgspec.field(name="schema", default=NULL)
    request: VariableRequest | None = None

    @property
    def arguments(self) -> Any:
        """What the model wants ``tool`` to be run with; a fresh copy each time."""
        return decode_value(self.arguments_json)

    @property
    def schema(self) -> Any:
        """The JSON schema that an answer must fit, as a type has it with ``$defs``; a fresh copy
        each time."""
        return decode_value(self.schema_json)


class Conversation(Struct, frozen=True, kw_only=True):
    """A conversation, as its store knows it.

    ``key`` is its session key, empty for one that was started without.  ``status`` is ``active``
    (at work, or has messages to take), ``waiting`` (for a person whom it or a run below it has
    asked, for a child, or for what a frame of its stack waits for), ``parked`` (for the next
    message) or ``ended``.  ``title`` are the first words said in it, cut.  ``last_activity``, when
    it was opened or a user spoke to it last, and ``created_at`` are µs since the Unix epoch, UTC.
    ``waits_for`` is empty where it waits for nothing but the next message, is at work, or has
    ended; what has been answered is left out, taken or not.  ``cursor`` is its place in the list.
    """

    key: str
    run_id: str
    agent: str
    status: Status
    title: str
    last_activity: int
    created_at: int
    waits_for: tuple[Awaited, ...] = ()
    cursor: str = ""


class Conversations(Struct, frozen=True, kw_only=True):
    """A page of conversations, the one that was spoken to last first.

    ``next`` is the cursor to go on ``before``; empty where nothing older is left.  With few that
    match among many a page may hold fewer than asked for, or none, and still have a ``next``.
    """

    conversations: tuple[Conversation, ...]
    next: str = ""

    def __iter__(self) -> Iterator[Conversation]:
        return iter(self.conversations)

    def __len__(self) -> int:
        return len(self.conversations)

    def __getitem__(self, index: int) -> Conversation:
        return self.conversations[index]

    if not TYPE_CHECKING:  # A type checker finds what is not there by itself.

        def __getattr__(self, name: str) -> None:
            raise AttributeError(
                f"Conversations has no {name!r}: go through the page itself, or .conversations"
            )


def list_conversations(
    store: StoreReader,
    *,
    agent: str = "",
    status: str = "",
    before: str = "",
    after: str = "",
    limit: int = 50,
    now: int = 0,
) -> Conversations:
    """A page of the store's conversations: of an agent, of a status, or all.

    ``before`` and ``after`` are cursors: what was spoken to earlier than that one, or later (the
    nearest).  Requests for variables that have expired ``now`` (µs) are left out.  Raises
    ``BadValue``.
    """
    check_label("agent", agent)
    if status not in ("", *get_args(Status)):
        raise BadValue(
            "status", f"expected one of {', '.join(get_args(Status))}, not {shown(status)}"
        )
    if before and after:
        raise BadValue("after", "give one of before and after")
    if limit.__class__ is not int or not 0 < limit <= MAX_PAGE:
        raise BadValue("limit", f"expected a number from 1 to {MAX_PAGE:,}")
    with store.one_moment():
        search = _Search(store, agent, status, limit, now)
        return (
            search.later(_place("after", after))
            if after
            else search.earlier(_place("before", before) if before else None)
        )


class _Search:
    """Goes through the roots of a store until there are enough."""

    def __init__(self, store: StoreReader, agent: str, status: str, limit: int, now: int) -> None:
        self._store = store
        self._now = now
        self._agent = agent
        self._status = status
        self._limit = limit
        self._looked_at = 0
        self._found: list[Conversation] = []

    def earlier(self, place: Recency | None) -> Conversations:
        """The newest, or those before a place."""
        while rows := self._store.spoken_to(self._page, before=place):
            for row in rows:
                if self._is_full:
                    return self._answer(more=_cursor(place))
                self._look_at(row)
                place = (row.recent, row.born)
        return self._answer()

    def later(self, place: Recency) -> Conversations:
        """The nearest after a place; older ones are left, the one of that place at least."""
        while rows := self._store.spoken_to(self._page, after=place):
            for row in reversed(rows):
                if self._is_full:
                    break
                self._look_at(row)
                place = (row.recent, row.born)
            if self._is_full:
                break
        self._found.reverse()
        return self._answer(more=self._found[-1].cursor if self._found else _cursor(place))

    @property
    def _page(self) -> int:
        return max(self._limit + 1, 100)

    @property
    def _is_full(self) -> bool:
        return len(self._found) >= self._limit or self._looked_at >= MAX_LOOKED_AT

    def _look_at(self, row: RunRow) -> None:
        self._looked_at += 1
        status = _status(row)
        if self._agent not in ("", row.agent) or not self._may_be(status):
            return
        waits = tuple(_waits(self._store, row))
        if any(each.prompt_id for each in waits):
            status = "waiting"
        elif status == "waiting" and not waits and row.waiting:  # It has its answer to take.
            status = "active"
        if self._status not in ("", status):
            return
        begun = _begun(self._store, row)
        if any(isinstance(x, e.SessionOpen) and x.once for x in begun):
            return
        waits += tuple(_wanted(self._store, row, self._now))
        self._found.append(
            Conversation(
                key=row.session_key, run_id=row.run_id, agent=row.agent, status=status,
                title=_title(begun), last_activity=row.recent or row.created_at,
                created_at=row.created_at, waits_for=waits,
                cursor=_cursor((row.recent, row.born)),
            )
        )  # fmt: skip

    def _may_be(self, status: Status) -> bool:
        """Whether one of this status may be looked for: what is asked makes it ``waiting``, what
        is answered ``active``."""
        other = {"ended": "ended", "waiting": "active"}.get(status, "waiting")
        return self._status in ("", status, other)

    def _answer(self, more: str = "") -> Conversations:
        return Conversations(conversations=tuple(self._found), next=more)


# ── cursors ──────────────────────────────────────────────────────────────────────────────────


def _cursor(place: Recency | None) -> str:
    return "" if place is None else f"{place[0]}.{place[1]}"


def _place(name: str, cursor: str) -> Recency:
    if isinstance(cursor, str):
        recent, _, born = cursor.partition(".")
        if recent.isdecimal() and born.isdecimal() and len(cursor) <= 38 and cursor.isascii():
            return int(recent), int(born)
    raise BadValue(name, "expected the cursor of a conversation, or next of a page")


# ── one conversation ─────────────────────────────────────────────────────────────────────────


def _status(row: RunRow) -> Status:
    """What it is at; one that has mail is at work as soon as there is a runtime."""
    status: Status = row.status  # type: ignore[assignment]
    return "active" if status == "parked" and row.waiting else status


def _begun(store: StoreReader, row: RunRow) -> Sequence[Event]:
    """How it began, as far as that can be read: damage is what fsck reports."""
    try:
        return store.lanes(row.run_id, FIRST_EVENTS)
    except StoreFailed:
        return ()


def _title(begun: Sequence[Event]) -> str:
    for event in begun:
        text = ""
        if isinstance(event, e.SessionOpen) and event.history:
            text = next((x.content for x in event.history if x.role == "user"), "")
        elif isinstance(event, e.SessionOpen) and event.input_json is not NULL:
            said = event.input
            text = said if isinstance(said, str) else bytes(event.input_json).decode()
            text = "" if said is None else text
        elif isinstance(event, e.SessionMessage) and event.role == "user":
            text = event.content
        if words := " ".join(text[: 10 * TITLE].split()):
            return words if len(words) <= TITLE else f"{words[: TITLE - 1].rstrip()}…"
    return ""


def _waits(store: StoreReader, row: RunRow) -> Iterator[Awaited]:
    """What a conversation waits for: the prompts of its tree, and children at work."""
    if row.status == "ended":
        return
    tree = [x for x in store.tree(row.run_id, live=True) if x.status != "ended"][:MAX_TREE]
    asks = False
    for each in tree:
        if each.status in ("active", "waiting"):
            for prompt in _open_prompts(store, each):
                asks = True
                yield prompt
    if row.status == "waiting" and not asks:
        for each in tree:
            if each.parent_run_id == row.run_id and each.status in ("active", "waiting"):
                yield Awaited(kind="child", run_id=each.run_id)


def _wanted(store: StoreReader, row: RunRow, now: int) -> Iterator[Awaited]:
    """The variables that subagents of a conversation wait for."""
    if row.status != "ended":
        tree = [x.run_id for x in store.tree(row.run_id, live=True)][:MAX_TREE]
        for each in open_requests(store, tree, now=now):
            yield Awaited(kind="variables", run_id=each.run_id, request=each)


def _open_prompts(store: StoreReader, row: RunRow) -> Sequence[Awaited]:
    """What a run has asked people and nobody has answered, the oldest first."""
    run_id = row.run_id
    try:
        events = store.lanes(run_id, LAST_EVENTS, backwards=True)
        ended = {*answered_prompts(store, run_id)} if row.waiting else set()
    except StoreFailed:
        return ()
    found: list[Awaited] = []
    for event in events:
        if isinstance(event, e.SessionStart):
            break  # What was asked before has ended with its session.
        if event.lane != "own":
            continue
        if isinstance(event, e.SessionPromptEnd):
            ended.add(event.prompt_id)
        elif isinstance(event, e.SessionTaken):
            ended.update(x.prompt_id for x in event.items if isinstance(x, e.SessionReply))
        elif (
            isinstance(event, e.SessionPrompt)
            and event.prompt_id not in ended
            and event.to == "user"
        ):
            found.append(
                Awaited(
                    kind=event.kind, run_id=run_id, prompt_id=event.prompt_id,
                    question=event.question, options=event.options, tool=event.tool,
                    arguments_json=event.arguments_json, schema_json=event.schema_json,
                )
            )  # fmt: skip
    return found[::-1]
