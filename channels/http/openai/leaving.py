"""``Leaving``: what becomes of a run when its client leaves before the answer is there.

A session's run goes on.  One that is for a single request is interrupted after a grace, unless
somebody has come back for it: its answer would be for nobody.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hubbub.channels.http.openai.answers.following import recorded
from hubbub.channels.http.openai.answers.question import ClientQuestion, find_question, is_latest
from hubbub.channels.http.openai.answers.response_frames import ResponseFrames
from hubbub.hub.hub import Hub

__all__ = ["GRACE", "Leaving"]

GRACE: Final = 30.0
"""Seconds that a client has to come back."""


class Leaving:
    """Who is being answered now; nothing of it outlives the process."""

    __slots__ = ("_attended", "_hub")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._attended: dict[str, int] = {}

    @contextmanager
    def attending(self, run_id: str) -> Iterator[None]:
        """Somebody waits for what a run says."""
        attended = self._attended
        attended[run_id] = attended.get(run_id, 0) + 1
        try:
            yield
        finally:
            attended[run_id] -= 1
            if not attended[run_id]:
                del attended[run_id]

    def left(self, question: ClientQuestion) -> None:
        """A client has left before its answer was there."""
        if question.is_thrown_away and not self._hub.is_closed:
            name = f"grace of {question.run_id}"
            self._hub.tasks.start(self._interrupt(question), name=name, steady=True)

    async def _interrupt(self, question: ClientQuestion) -> None:
        hub, run_id = self._hub, question.run_id
        await hub.ports.clock.sleep(GRACE)
        now = await find_question(hub, run_id, question.seq)
        if now is None or not await is_latest(hub, now):
            return  # Its client has gone on.
        frames = ResponseFrames(now)
        await recorded(hub, now, frames)
        if not frames.is_over and run_id not in self._attended and not hub.is_closed:
            hub.interrupt(run_id, "its client has left")
