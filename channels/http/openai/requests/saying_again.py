"""``SayingAgain``: whether a run was told what a request says before, by the same client.

    its transcript                     is what was said before an answer that has the same words
    no transcript, its client retries  the last words are the same
    no transcript                      so they are, and what comes of that answer is still to come

Who shows what came of its answer, or says other words, says something new.
"""

from collections.abc import Callable

from hubbub.channels.http.openai.answers.answer import approves
from hubbub.channels.http.openai.answers.following import recorded
from hubbub.channels.http.openai.answers.question import (
    ClientQuestion,
    find_question,
    last_said,
    said_after,
)
from hubbub.channels.http.openai.answers.response_frames import ResponseFrames
from hubbub.channels.http.openai.requests.exchanges import read_exchanges
from hubbub.channels.http.openai.requests.extending import extends, repeated
from hubbub.channels.http.openai.requests.recent_requests import RequestPlace
from hubbub.channels.http.openai.requests.wanted import WantedAnswer
from hubbub.hub.events import SessionMessage, SessionReply
from hubbub.hub.events.parts import Audio, Document, Image
from hubbub.hub.hub import Hub

__all__ = ["SayingAgain"]


class SayingAgain:
    """Compares one request with what runs were told."""

    def __init__(
        self,
        hub: Hub,
        wanted: WantedAnswer,
        shown_with: Callable[[str], tuple[Image | Document | Audio, ...]],
    ) -> None:
        self._hub = hub
        self._wanted = wanted
        self._shown_with = shown_with
        """What is shown with a text."""
        self.is_transcript = wanted.is_whole or any(x.role == "assistant" for x in wanted.entries)
        """Whether it says what its client knows of what was said before."""

    async def compare(self, state: ClientQuestion, text: str) -> tuple[RequestPlace | None, bool]:
        """Where a run was told the same before, and, if it was not, whether it is said behind what
        was said there."""
        if not self.is_transcript:
            placed = None if self._wanted.key else await self.said_before(state, text)
            return placed, placed is None
        entries, is_retry = self._wanted.entries, self._wanted.is_retry
        before = await read_exchanges(self._hub, state.opening)
        said, is_cut = before.said, before.is_cut
        heard = [*said, *before.waiting]
        same = repeated(entries, heard, is_cut=is_cut, is_retry=is_retry)
        if same is None:
            return None, extends(entries, said, is_cut=is_cut)
        return RequestPlace(run_id=state.run_id, seq=same.seq, is_answer=same.is_answer), False

    async def said_before(
        self, state: ClientQuestion, text: str, *, behind: int = 0, is_taken: bool = False
    ) -> RequestPlace | None:
        """Where a run was told the same last, by a client that tries again, or has yet to hear what
        comes of its answer; ``is_taken``: somebody else has answered the same."""
        seq, said = await last_said(self._hub, state) or (0, None)
        if said is None or seq <= behind or _compared(said) != _compared(text):
            return None
        question = await find_question(self._hub, state.run_id, seq)
        if question is None:
            return None
        item = question.item
        if isinstance(item, SessionMessage) and item.parts != self._shown_with(text):
            return None
        is_answer = isinstance(item, SessionReply) or bool(question.asked) or approves(text)
        placed = RequestPlace(run_id=state.run_id, seq=seq, is_answer=is_answer)
        is_same = self._wanted.is_retry or is_taken
        return placed if is_same or (is_answer and await self.is_coming(placed)) else None

    async def said_with(self, state: ClientQuestion, seq: int, text: str) -> RequestPlace | None:
        """Where a run was told the same next behind the results that are sent again with it."""
        found = await said_after(self._hub, state, seq)
        if found is None or found[1] is None or _compared(found[1]) != _compared(text):
            return None
        return RequestPlace(run_id=state.run_id, seq=found[0], is_answer=True)

    async def is_coming(self, placed: RequestPlace) -> bool:
        """Whether something may still come of a request."""
        question = await find_question(self._hub, placed.run_id, placed.seq)
        if question is None:
            return False
        frames = ResponseFrames(question)
        await recorded(self._hub, question, frames)
        return not frames.is_over


def _compared(text: str) -> str:
    return text.strip().lower()
