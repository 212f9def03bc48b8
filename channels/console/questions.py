"""``Questions``: what the user is asked, one thing at a time, the oldest first.

Only the first is shown with everything that belongs to it; the next follows when that is over,
answered here or elsewhere or given up.  What is typed right after another one has come first may
have been meant for the one before: see ``is_new``.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["BY_WORD", "Questions", "is_for_anybody"]

READ: Final = 0.5
"""Seconds in which nobody can have read what came first."""

BY_WORD: Final = frozenset(("cancelled by the user", "sent back by the user"))
"""The reasons of endings that such a word has brought about."""


class Questions:
    """The prompts that wait for the user, the oldest first."""

    __slots__ = ("_open", "_shown", "_shown_at")

    def __init__(self) -> None:
        self._open: dict[str, e.SessionPrompt] = {}
        self._shown = ""
        self._shown_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._open)

    def __iter__(self) -> Iterator[e.SessionPrompt]:
        """Those that are open now; they may be closed on the way."""
        return iter(tuple(self._open.values()))

    @property
    def first(self) -> e.SessionPrompt | None:
        return next(iter(self._open.values()), None)

    def follow(self, event: Event) -> None:
        """Note what ``event`` opens or closes."""
        match event:
            case e.SessionPrompt():
                self._open[event.prompt_id] = event
            case e.SessionReply() | e.SessionPromptEnd():
                self.close(event.prompt_id)
            case e.SessionEnd() | e.AgentComplete():
                for question in self:
                    if question.run_id == event.run_id:
                        self.close(question.prompt_id)

    def resume(self, past: Iterable[Event], is_open: Callable[[str], bool]) -> None:
        """Note what is still open of what is on record: what ``is_open`` says of its id, too."""
        for event in past:
            self.follow(event)
        for question in self:
            if not is_open(question.prompt_id):
                self.close(question.prompt_id)

    def close(self, prompt_id: str) -> None:
        """It waits for the user no more."""
        self._open.pop(prompt_id, None)

    def open_again(self, question: e.SessionPrompt) -> None:
        """The answer was none: it is still the first, and was shown."""
        self._open = {question.prompt_id: question, **self._open}

    def to_show(self, now: float) -> e.SessionPrompt | None:
        """The first one, unless it was shown; from ``now`` on it was."""
        first = self.first
        if first is None or first.prompt_id == self._shown:
            return None
        self._shown, self._shown_at = first.prompt_id, now
        return first

    def is_new(self, now: float) -> bool:
        """Whether the first one was shown so lately that a line cannot be meant for it."""
        return now - self._shown_at < READ


def is_for_anybody(event: Event) -> bool:
    """Whether ``event`` is a question, or its reply, from outside any run: ``hub.ask``."""
    return not event.root_run_id and isinstance(
        event, e.SessionPrompt | e.SessionReply | e.SessionPromptEnd
    )
