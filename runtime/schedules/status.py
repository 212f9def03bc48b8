"""What a store remembers of each schedule, and what that says to people.

The note ``schedule/<uid>`` is written in the same commit as each fire and each skip, so a tick is
handled once only; it names everything that showing a schedule takes, without its definition.
Notes of versions before are read as they are (``past_of``).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hubbub.hub.errors import HubbubError
from hubbub.hub.logs import log
from hubbub.runtime.schedules.schedules import Cron, Heartbeat, KnownTicks, Schedule, agent_of
from hubbub.runtime.schedules.ticks import BeatTicks, CronTicks, Past, Ticks

__all__ = [
    "NOTES",
    "RUNNING",
    "ScheduleNote",
    "ScheduleStatus",
    "is_first_seen",
    "note_of",
    "past_of",
    "read_notes",
    "schedule_statuses",
]

NOTES: Final = "schedule/"
"""Begins the keys of all notes of schedules."""

RUNNING: Final = "running"
"""The outcome of a fire whose session is not over."""

_ASSUMED: Final = 7 * 86_400_000_000
"""µs before its last tick in which a cron of an old note is taken to have been at work.

Should that tick be of a clock that was wrong, it is as long as the cron will be silent.
"""


class ScheduleNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered of a schedule; times in µs.

    ``last_tick`` is the last one handled, fired or not; ``since`` when the schedule was first
    seen (a cron: as it is planned now); ``at`` and ``spans`` are those of its ``Past``.
    What begins with ``fired_at`` is about the last fire: ``run_agent`` is what its run was
    started as, ``outcome`` how the session ended (``running``: not yet; ``rejected``: it could
    not be started; ``unknown``: the store keeps the run no longer).
    """

    kind: str = ""
    agent: str = ""
    expression: str = ""
    timezone: str = ""
    interval: float = 0.0
    since: int = 0
    last_tick: int = 0
    at: int = 0
    spans: tuple[tuple[int, int], ...] = ()
    fired_at: int = 0
    run_id: str = ""
    run_agent: str = ""
    outcome: str = ""
    reason: str = ""
    finished_at: int = 0

    def encoded(self) -> str:
        """The note as JSON."""
        return _encoder.encode(self).decode()


class ScheduleStatus(Struct, frozen=True, kw_only=True):
    """A schedule as one shows it.

    ``next_at``, ``last_tick`` and ``last_fired_at`` are microseconds since the Unix epoch, UTC
    (``datetime.fromtimestamp(next_at / 1e6)``), 0 or ``None`` for never.

    ``next_at`` is the next regular tick; ``last_tick`` was handled last, fired or skipped;
    ``last_outcome`` is that of the last fire, ``run_id`` its run.
    """

    uid: str
    kind: str
    agent: str
    next_at: int | None
    """In µs since the Unix epoch, UTC."""
    last_tick: int
    last_fired_at: int
    last_outcome: str
    run_id: str


def note_of(schedule: Schedule, note: ScheduleNote) -> ScheduleNote:
    """``note`` with the schedule as it is defined now."""
    if isinstance(schedule, Cron):
        return replace(
            note, kind="cron", agent=agent_of(schedule), expression=schedule.expression,
            timezone=schedule.timezone,
        )  # fmt: skip
    return replace(
        note, kind="heartbeat", agent=agent_of(schedule), interval=float(schedule.interval)
    )


def is_first_seen(note: ScheduleNote) -> bool:
    """Whether nothing on record says since when there is the schedule of a note.

    Versions before noted that of a cron only with the first tick that was handled.
    """
    if note.kind == "heartbeat":
        return not note.since
    return not (note.at or note.last_tick)


def past_of(note: ScheduleNote, now: int) -> Past:
    """What of a schedule's time is over by its note; one that was never seen begins ``now``."""
    is_beat = note.kind == "heartbeat"
    since = 0 if is_beat else note.since  # A beat is one, however many were missed.
    if note.at:
        return Past(note.at, since, note.spans)
    if note.last_tick:
        # Which names the beats of an old note have used nobody knows, and there are enough.
        after = 0 if is_beat else note.last_tick - _ASSUMED
        return Past(note.last_tick, since, ((after, note.last_tick),))
    return Past(note.since or now) if is_beat else Past.begin(now)


def read_notes(notes: Mapping[str, str]) -> dict[str, ScheduleNote]:
    """The notes of schedules among ``notes``, by uid; one that cannot be read is passed over."""
    found: dict[str, ScheduleNote] = {}
    for key, text in notes.items():
        if not key.startswith(NOTES):
            continue
        try:
            found[key.removeprefix(NOTES)] = _decoder.decode(text)
        except msgspec.DecodeError as error:
            log.warning("schedule.unreadable", schedule=key.removeprefix(NOTES), error=str(error))
    return found


def schedule_statuses(
    notes: Mapping[str, str], now: int, definitions: Iterable[Cron | Heartbeat] | None = None
) -> tuple[ScheduleStatus, ...]:
    """Every schedule there is or was, by uid: from a store's notes (``await
    journal.notes("schedule/")``) and, where they are known, the definitions.

    Runs nothing.  With ``definitions`` a schedule that is none of them has no next tick; without,
    the next ticks are those of the schedules as they last ran.
    """
    remembered = read_notes(notes)
    if definitions is None:
        found = {uid: _status(uid, note, _ticks_of(note), now) for uid, note in remembered.items()}
    else:
        found = {uid: _status(uid, note, None, now) for uid, note in remembered.items()}
        ticks = KnownTicks()
        for each in definitions:
            note = note_of(each, remembered.get(each.uid, ScheduleNote()))
            found[each.uid] = _status(each.uid, note, ticks.of(each), now)
    return tuple(found[uid] for uid in sorted(found))


def _ticks_of(note: ScheduleNote) -> Ticks | None:
    if note.kind == "heartbeat":
        return BeatTicks(note.interval)
    try:
        return CronTicks(note.expression, note.timezone)
    except HubbubError:  # Without the extra the rest can be shown all the same.
        return None


def _status(uid: str, note: ScheduleNote, ticks: Ticks | None, now: int) -> ScheduleStatus:
    next_at = None
    past = past_of(note, now).seen(now)
    if isinstance(ticks, BeatTicks):
        next_at = max(now, ticks.coming(past))
    elif ticks is not None:
        next_at = ticks.coming(replace(past, at=now))
    return ScheduleStatus(
        uid=uid, kind=note.kind, agent=note.agent, next_at=next_at, last_tick=note.last_tick,
        last_fired_at=note.fired_at, last_outcome=note.outcome, run_id=note.run_id,
    )  # fmt: skip


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(ScheduleNote)
