"""``replay``: a run as it was at any point of its life, from its own lane alone.

    own lane, up to a record  →  Thread or CodeThread  →  Replayed

The folds are those that the run itself goes by, so what comes out is what the live run had.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal

from msgspec import Struct

from hubbub.agents.code.lifecycle import CodeThread, fold_code
from hubbub.agents.model import ModelMessage, Usage
from hubbub.agents.state.area import Area
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, OpenCall, Thread
from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event, FileRef, SessionStart
from hubbub.hub.values import Json
from hubbub.runtime.stores.sqlite.file import BY_ID, StoreFile

__all__ = ["NoSuchRecord", "Replayed", "replay", "state_after"]


class NoSuchRecord(CallerError):
    """A run's own lane has no record of that number."""

    def __init__(self, run_id: str, until: int, last: int) -> None:
        self.last = last
        super().__init__(
            f"run {run_id}: --until {until} is none of its own records; they go from 1 to {last}, "
            "and 0 is before the first"
        )


class Replayed(Struct, frozen=True, kw_only=True):
    """A run's state after record ``seq`` of its own lane.

    ``kind`` says what its agent is; before a session has begun that is not known and empty.
    ``conversation`` is what the model sees (side B of a two-sided agent: ``conversation_b``);
    ``calls`` are those of the step at work, with what has come of them.
    """

    run_id: str
    seq: int
    at: int
    kind: Literal["", "model", "code"]
    agent: str
    phase: str
    session: int
    in_session: bool
    side: str
    turn: int
    step: int
    attempt: int
    restarts: int
    status: str
    parked: bool
    closing: bool
    usage: Usage
    draft: str
    conversation: tuple[ModelMessage, ...]
    conversation_b: tuple[ModelMessage, ...]
    calls: tuple[OpenCall, ...]
    children: tuple[str, ...]
    files: tuple[FileRef, ...]
    keys: dict[str, Json]


class _States:
    """Both folds of a lane side by side: which of them holds is known once a session begins."""

    __slots__ = ("at", "code", "kind", "seq", "thread")

    def __init__(self) -> None:
        self.thread: Thread = EMPTY
        self.code = CodeThread()
        self.kind: Literal["", "model", "code"] = ""
        self.seq = 0
        self.at = 0

    def take(self, event: Event) -> None:
        self.thread = fold(self.thread, event)
        self.code = fold_code(self.code, event)
        self.seq, self.at = event.seq, event.at
        if not self.kind and isinstance(event, SessionStart):
            # A model's session begins with one of its sides; a function has none.
            self.kind = "model" if event.side else "code"


def replay(store: StoreFile, run_id: str, until: int | None = None) -> Replayed:
    """The state of a run after own-lane record ``until``; by default after its last one.

    0 is the state before anything was recorded.  Raises ``NoSuchRecord`` for a number that the
    lane has not, ``StoreFailed`` for a record that cannot be read.
    """
    states = _States()
    if until is None or until > 0:
        for event in islice(_own_lane(store, run_id), until):
            states.take(event)
    if until is not None and (until < 0 or states.seq != until):
        raise NoSuchRecord(run_id, until, states.seq if until > 0 else _last(store, run_id))
    return _replayed(run_id, states)


def state_after(events: Iterable[Event]) -> Thread | CodeThread:
    """What ``events``, a beginning of an own lane, come to: the state that the run itself has."""
    states = _States()
    for event in events:
        states.take(event)
    return states.code if states.kind == "code" else states.thread


def _own_lane(store: StoreFile, run_id: str) -> Iterator[Event]:
    return (each.event for each in store.events(run_id) if each.event.lane == "own")


def _last(store: StoreFile, run_id: str) -> int:
    found = store.db.execute(f"SELECT seq FROM run WHERE {BY_ID}", (run_id,)).fetchone()
    return found[0] if found is not None else 0


def _replayed(run_id: str, states: _States) -> Replayed:
    thread, code = states.thread, states.code
    is_code = states.kind == "code"
    area: Area = code.area if is_code else thread.area
    children = code.children if is_code else tuple(x.run_id for x in thread.family.children)
    return Replayed(
        run_id=run_id, seq=states.seq, at=states.at, kind=states.kind, agent=thread.agent,
        phase=code.phase if is_code else thread.phase, session=thread.session,
        in_session=thread.in_session, side="" if is_code else thread.side, turn=thread.turn,
        step=code.step if is_code else thread.step,
        attempt=code.attempt if is_code else thread.attempt,
        restarts=code.restarts if is_code else thread.restarts, status=thread.status,
        parked=thread.parked, closing=code.closing if is_code else thread.closing,
        usage=code.usage if is_code else thread.total_usage, draft=thread.draft_text,
        conversation=thread.transcript, conversation_b=thread.transcript_b,
        calls=thread.open.calls if thread.open is not None else (),
        children=children, files=tuple(area.files[path] for path in sorted(area.files)),
        keys={key: area.keys[key] for key in sorted(area.keys)},
    )  # fmt: skip
