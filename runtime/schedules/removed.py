"""``RemovedSchedule``: what came of the last fire of a schedule that there is no more."""

from msgspec.structs import replace

from hubbub.hub.errors import Closed, UnknownRun
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.schedules.record import ScheduleRecord
from hubbub.runtime.schedules.status import ScheduleNote

__all__ = ["RemovedSchedule", "outcome_of"]


async def outcome_of(outcomes: Outcomes, uid: str, run_id: str) -> tuple[str, str] | None:
    """How the session of a schedule's run ends, and why; ``None`` where that stays open."""
    try:
        found = await outcomes.result(run_id)
    except UnknownRun:
        return "unknown", "the store keeps the run no longer"
    except Closed:
        return None  # The next boot sees to it.
    except Exception as error:
        log.error("schedule.unwatched", schedule=uid, exc_info=error)
        return None
    return found.outcome, found.reason


class RemovedSchedule:
    """A schedule that there is no more, and whose last fire is at work."""

    def __init__(
        self, hub: Hub, outcomes: Outcomes, uid: str, note: ScheduleNote, record: ScheduleRecord
    ) -> None:
        self._record = record
        self._clock = hub.ports.clock
        self._outcomes = outcomes
        self._uid = uid
        self._note = note

    async def run(self) -> None:
        """Note how it ends."""
        found = await outcome_of(self._outcomes, self._uid, self._note.run_id)
        if found is None:
            return
        outcome, reason = found
        now = self._clock.now()
        note = replace(self._note, outcome=outcome, reason=reason, finished_at=now)
        self._record.write(note.encoded())
