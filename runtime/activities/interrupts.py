"""``Interrupts``: prompts of runs that wait in no task, or can outlive their process.

    a call pauses ─► a note in the same commit, a prompt that can be replied to, a timer
    it is answered ─► all three go; no answer comes in time ─► ``session:timer`` to the run

The note is what the next runtime on the store finds; the run itself stays where it is.
"""

from typing import Final

from hubbub.agents.state.prompts import OpenPrompt, find_prompt
from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.ended_prompts import asker_of
from hubbub.hub.logs import log
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
        """A run's open prompts are about to change; ``commit`` says so."""
        notes: dict[str, str] = {}
        for event in commit.events:
            if isinstance(event, e.SessionPromptEnd):
                # No reply is accepted from here on.
                self._forget(event.prompt_id, event.reason)
        for prompt in before.prompts:
            if prompt.is_held and find_prompt(after.prompts, prompt.prompt_id) is None:
                notes[NOTE + prompt.prompt_id] = ""
                self._forget(prompt.prompt_id, "")
        for prompt in after.prompts:
            if prompt.is_held and find_prompt(before.prompts, prompt.prompt_id) is None:
                notes[NOTE + prompt.prompt_id] = _note_of(prompt)
                self._wait(prompt.prompt_id, prompt.expires_at)
        if notes:
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


def _note_of(prompt: OpenPrompt) -> str:
    return str(prompt.expires_at)
