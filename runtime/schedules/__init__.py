"""What happens by itself: cron and heartbeat."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "NOTES",
    "RUNNING",
    "Cron",
    "Heartbeat",
    "HeartbeatTask",
    "Misfire",
    "Schedule",
    "ScheduleNote",
    "ScheduleStatus",
    "checked",
    "note_of",
    "past_of",
    "read_notes",
    "schedule_statuses",
]

_EXPORTS: Final = {
    "hubbub.runtime.schedules.schedules": (
        "Cron",
        "Heartbeat",
        "HeartbeatTask",
        "Misfire",
        "Schedule",
        "checked",
    ),
    "hubbub.runtime.schedules.status": (
        "NOTES",
        "RUNNING",
        "ScheduleNote",
        "ScheduleStatus",
        "note_of",
        "past_of",
        "read_notes",
        "schedule_statuses",
    ),
}

if TYPE_CHECKING:
    from hubbub.runtime.schedules.schedules import (
        Cron,
        Heartbeat,
        HeartbeatTask,
        Misfire,
        Schedule,
        checked,
    )
    from hubbub.runtime.schedules.status import (
        NOTES,
        RUNNING,
        ScheduleNote,
        ScheduleStatus,
        note_of,
        past_of,
        read_notes,
        schedule_statuses,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
