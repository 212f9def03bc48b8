"""``Interrupts``: runs that wait for a person's answer (``interrupt``), over restarts.

    a call pauses ─► a note in the same commit, a prompt that can be replied to, a timer
    it is answered ─► all three go; no answer comes in time ─► ``session:timer`` to the run

The note is what the next runtime on the store finds; the run itself stays where it is.
"""

from typing import Final

from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.logs import log
from hubbub.hub.prompts import asker_of
from hubbub.hub.store.journal import Commit
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.kernel.timers import Timer

__all__ = ["Interrupts"]

NOTE: Final = "pause/"


class Interrupts:
    """The paused runs of one runtime."""

    __slots__ = ("_services", "_timers")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._timers: dict[str, Timer] = {}

    async def begin(self) -> None:
        """Go on waiting where an earlier runtime did."""
        for key, note in (await self._services.hub.journal.notes(NOTE)).items():
            prompt_id = key.removeprefix(NOTE)
            if not note or prompt_id in self._timers:
                continue
            try:
                self._wait(prompt_id, int(note))
            except ValueError as error:
                log.warning("pause.unreadable", prompt_id=prompt_id, error=str(error))

    def follow(self, before: Thread, after: Thread, commit: Commit) -> None:
        """A run's state is about to change; ``commit`` says so."""
        old, new = before.pause, after.pause
        if old is new or (old is not None and new is not None and old.key == new.key):
            return
        notes: dict[str, str] = {}
        if old is not None:
            notes[NOTE + old.key] = ""
            ends = (x for x in commit.events if isinstance(x, e.SessionPromptEnd))
            self._forget(old.key, next((x.reason for x in ends if x.prompt_id == old.key), ""))
        if new is not None:
            notes[NOTE + new.key] = str(new.expires_at)
            self._wait(new.key, new.expires_at)
        commit.notes = {**(commit.notes or {}), **notes}

    def _wait(self, prompt_id: str, expires_at: int) -> None:
        hub, services = self._services.hub, self._services
        run_id = asker_of(prompt_id)
        hub.prompts.pause(prompt_id, run_id)
        seconds = max(0.0, (expires_at - hub.ports.clock.now()) / 1_000_000)

        def expire() -> None:
            if not hub.is_closed and not services.phase.is_leaving:
                hub.pipeline.deliver(e.SessionTimer(timer=prompt_id), to=run_id)

        self._timers[prompt_id] = services.timers.after(seconds, expire)

    def _forget(self, prompt_id: str, reason: str) -> None:
        self._services.hub.prompts.end(prompt_id, reason or "closed")
        timer = self._timers.pop(prompt_id, None)
        if timer is not None:
            timer.cancel()
