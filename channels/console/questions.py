"""``Questions``: what the user is asked, and what a line means while a question is open.

the number of an option, or any text      the reply
a word, while a model's call is paused    said to the conversation: it gives up
"""

from collections.abc import Iterable, Iterator
from typing import Final

from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["BY_WORD", "WORDS", "Questions", "chosen", "is_for_anybody", "is_word"]

WORDS: Final = frozenset(("cancel", "stop", "/stop", "/back"))
"""What takes the conversation back; here only to be distinguished from replies."""

BY_WORD: Final = frozenset(("cancelled by the user", "sent back by the user"))
"""The reasons of endings that such a word has brought about."""


class Questions:
    """The questions that wait for the user, the oldest first."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str, e.SessionPrompt] = {}

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

    def resume(self, past: Iterable[Event]) -> None:
        """Note what is still open of what is on record: of questions, those that wait there."""
        for event in past:
            if not isinstance(event, e.SessionPrompt) or event.pauses:
                self.follow(event)

    def close(self, prompt_id: str) -> None:
        self._open.pop(prompt_id, None)


def is_for_anybody(event: Event) -> bool:
    """Whether ``event`` is a question, or its reply, from outside any run: ``hub.ask``."""
    return not event.root_run_id and isinstance(
        event, e.SessionPrompt | e.SessionReply | e.SessionPromptEnd
    )


def is_word(line: str, question: e.SessionPrompt) -> bool:
    """Whether ``line`` gives up what a model's call has paused for, and is no answer to it."""
    said = line.strip()
    return question.pauses and said.casefold() in WORDS and said not in question.options


def chosen(line: str, options: tuple[str, ...]) -> str:
    """The option that ``line`` is the number of, or ``line`` itself."""
    if line not in options and line.isdecimal() and 1 <= int(line) <= len(options):
        return options[int(line) - 1]
    return line
