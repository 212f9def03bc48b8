"""``ScheduleRun``: the run that one schedule has at a time."""

from typing import Final

from msgspec.structs import replace

from hubbub.hub import events as e
from hubbub.hub.events.descriptors import CronDescriptor, HeartbeatDescriptor, encode_descriptor
from hubbub.hub.events.identities import SCHEDULES
from hubbub.hub.store.journal import Delivery, RunInfo
from hubbub.hub.values import encode_value
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.schedules.schedules import Heartbeat, Schedule, agent_of

__all__ = ["ScheduleRun"]

_BEGINNINGS: Final = (e.SessionStart.type, e.AgentStart.type, e.AgentRestore.type)
_ENDINGS: Final = (e.SessionEnd.type, e.AgentComplete.type)


class ScheduleRun:
    """Finds the run of a schedule, and makes what opens it or is said to it."""

    __slots__ = ("_agent", "_definitions", "_descriptor", "_hub", "_schedule", "identity")

    def __init__(self, services: Services, schedule: Schedule) -> None:
        self._hub = services.hub
        self._definitions = services.definitions
        self._schedule = schedule
        self._agent = agent_of(schedule)
        self._descriptor = encode_descriptor(
            HeartbeatDescriptor()
            if isinstance(schedule, Heartbeat)
            else CronDescriptor(id=schedule.uid)
        )
        self.identity = bytes(self._descriptor).decode()
        """By which it is found."""

    async def at_work(self, last: str) -> RunInfo | None:
        """The schedule's run, if it is at work; a run whose agent is missing does not count.

        ``last``, the run of the last fire, counts until it has ended, also when its key is free
        again already.
        """
        journal = self._hub.journal
        await journal.flush()
        found = await journal.find(self.identity, "descriptor")
        for run_id in dict.fromkeys((*found, last)):
            info = await journal.info(run_id)
            known = self._definitions.names
            if info is not None and _is_at_work(info) and info.agent in known:
                return info
        return None

    async def last_session(self, run_id: str) -> tuple[int, int]:
        """When the last session of a run began, or was gone on with, and when it ended."""
        began = await self._hub.journal.latest(run_id, _BEGINNINGS)
        ended = await self._hub.journal.latest(run_id, _ENDINGS)
        return (0 if began is None else began.at), (0 if ended is None else ended.at)

    def mail(self, tick: int) -> tuple[Delivery, Delivery | None]:
        """What finds or opens the run, and what is said to it where the opening does not say it.

        A heartbeat is a reset, also for a run that has just been opened; a code agent,
        which has no context to forget, gets its batch as its input.
        """
        key = f"{self._schedule.uid}@{tick}"
        is_beat = isinstance(self._schedule, Heartbeat)
        resets = is_beat and not self._definitions.agent(self._agent).is_code
        opening = self._hub.delivery(
            e.SessionOpen(
                open_agent=self._agent,
                input_json=encode_value("prompt", None if resets else self._schedule.prompt),
                correlation_id=key,
                descriptor_json=self._descriptor,
            ),
            to="",
        )
        opening.touches = False
        if resets:
            reset = e.SessionReset(message=self._schedule.prompt)
            message = self._hub.delivery(reset, to=self.identity, by="descriptor")
            message.source, message.key = SCHEDULES, key
            return opening, message
        opening.source, opening.key = SCHEDULES, key
        assert opening.new is not None and isinstance(opening.new.found, e.SessionMessage)
        found = replace(opening.new.found, source=SCHEDULES, key=key)
        opening.new = replace(opening.new, found=found)
        return opening, None


def _is_at_work(info: RunInfo) -> bool:
    if info.status == "parked":
        return info.waiting > 0
    return info.status != "ended"
