"""``replay``: a run as it was at any point of its life, from its own lane alone.

    own lane, up to a record  →  Thread or CodeThread  →  Replayed

The folds are those that the run itself goes by, so what comes out is what the live run had.
"""

from typing import Any, Literal

from msgspec import Struct

from hubbub.agents.code.run_states import RunStates
from hubbub.agents.model import ModelMessage, Usage
from hubbub.agents.state.area import Area
from hubbub.agents.state.thread import OpenCall
from hubbub.hub.errors import CallerError, UnknownRun
from hubbub.hub.events import AgentBase, FileRef
from hubbub.hub.near_misses import shown
from hubbub.hub.store.reader import StoreReader, own_lane
from hubbub.hub.values import MAX_COUNT, decode_value

__all__ = ["GoneRecord", "NoSuchRecord", "Replayed", "replay"]


class NoSuchRecord(CallerError):
    """A run's own lane has no record of that number."""

    def __init__(self, run_id: str, until: int, last: int) -> None:
        self.last = last
        super().__init__(
            f"run {run_id}: {shown(until)} is none of its own records; they go from 1 to {last}, "
            "and 0 is before the first"
        )


class GoneRecord(CallerError):
    """A record of a run has gone with its old turns."""

    def __init__(self, run_id: str, seq: int, first: int) -> None:
        super().__init__(
            f"run {run_id}: record {seq} has gone with its old turns; those from {first} on are "
            "there, an export has what it had"
        )


class Replayed(Struct, frozen=True, kw_only=True):
    """A run's state after record ``seq`` of its own lane, which was written ``at`` (µs since the
    Unix epoch).

    ``kind`` says what its agent is; before a session has begun that is not known and empty.
    ``agent`` names the definition that it goes by.  ``conversation`` is what the model sees (side B
    of a two-sided agent: ``conversation_b``); ``calls`` are those of the step at work, with their
    results so far.  ``files`` are known by name and digest.  ``outcome`` is how the run has ended,
    or else its latest session; empty before one has.
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
    keys: dict[str, Any]
    outcome: str = ""


def replay(store: StoreReader, run_id: str, until: int | None = None) -> Replayed:
    """The state of a run after own-lane record ``until``; by default after its last one.

    0 is the state before anything was recorded.  Raises ``UnknownRun``, ``NoSuchRecord`` for a
    number that the lane has not, ``GoneRecord`` for one that has gone, ``StoreFailed`` for a record
    that cannot be read.
    """
    row = store.row(run_id)
    if row is None:
        raise UnknownRun(run_id)
    states = RunStates()
    if until is not None and not 0 <= until <= MAX_COUNT:
        raise NoSuchRecord(run_id, until, row.seq)
    for event in own_lane(store, run_id) if until != 0 else ():
        if until is not None and event.seq > until and isinstance(event, AgentBase):
            raise GoneRecord(run_id, until, event.seq)
        states.take(event)
        if event.seq == until:
            break
    if until is not None and states.seq != until:
        raise NoSuchRecord(run_id, until, states.seq)
    return _replayed(run_id, states)


def _replayed(run_id: str, states: RunStates) -> Replayed:
    thread, code = states.thread, states.code
    is_code = states.kind == "code"
    area: Area = code.area if is_code else thread.area
    end = code.ending if is_code else thread.outcome
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
        keys={key: decode_value(area.keys[key]) for key in sorted(area.keys)},
        outcome=end.outcome if end is not None else "",
    )  # fmt: skip
