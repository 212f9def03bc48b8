"""``EndedPrompts``: why nobody can reply to a prompt any more.

ended in this process, lately   remembered
asked by a run, whenever        read from the lane of the run, which is in the prompt's id
anything else                   ``unknown``
"""

import re
from collections import OrderedDict
from typing import Final

from hubbub.hub.delivery.pending_prompt import ANSWERED
from hubbub.hub.errors import HubbubError
from hubbub.hub.events import AgentComplete, SessionPrompt, SessionPromptEnd, SessionReply
from hubbub.hub.events.event import ending_words
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Journal, Selection
from hubbub.hub.task_host import TaskHost
from hubbub.hub.texts import check_text

__all__ = ["HUB_CLOSED", "EndedPrompts", "asker_of", "is_run_address"]

REMEMBERED: Final = 1000
"""Ended prompts whose reason needs no reading."""

MAX_LOOKUPS: Final = 100
"""Replies that may wait for the reading of a lane; further ones are rejected without."""

HUB_CLOSED: Final = "hub closed"
UNKNOWN: Final = "unknown"
AWAY: Final = "the process that asked has stopped, and its run has not come back yet"

_TYPES: Final = frozenset(
    {SessionPrompt.type, SessionPromptEnd.type, SessionReply.type, AgentComplete.type}
)


def asker_of(prompt_id: str) -> str:
    """The run that a prompt's id begins with; ids of versions before have a ``?`` behind it."""
    return re.split(r"[.?]", prompt_id, maxsplit=1)[0]


def is_run_address(address: str) -> bool:
    """Whether what is asked of an address is asked of a run."""
    return len(address) == 36 and address[8] == address[13] == address[18] == address[23] == "-"


class EndedPrompts:
    """The prompts of one hub that are not open."""

    def __init__(self, journal: Journal, tasks: TaskHost) -> None:
        self._journal = journal
        self._tasks = tasks
        self._reasons: OrderedDict[str, str] = OrderedDict()
        self._looked_up: set[Receipt] = set()

    def remember(self, prompt_id: str, reason: str) -> None:
        """A prompt has ended; the first reason stands."""
        if prompt_id not in self._reasons:
            self._reasons[prompt_id] = reason
            if len(self._reasons) > REMEMBERED:
                self._reasons.popitem(last=False)

    def refuse(self, prompt_id: str) -> Receipt:
        """The rejection of a reply; it is settled later where that takes reading."""
        check_text("prompt_id", prompt_id)
        reason = self._reasons.get(prompt_id, "")
        can_read = self._tasks.is_open and len(self._looked_up) < MAX_LOOKUPS
        if reason or not can_read or not is_run_address(asker_of(prompt_id)):
            return Receipt("rejected", reason or UNKNOWN)
        receipt = Receipt()
        self._looked_up.add(receipt)
        self._tasks.start(self._look_up(prompt_id, receipt), name="hubbub reply")
        return receipt

    def close(self) -> None:
        """The hub closes; nothing is read any more."""
        for receipt in tuple(self._looked_up):
            self._settle(receipt, HUB_CLOSED)

    async def _look_up(self, prompt_id: str, receipt: Receipt) -> None:
        try:
            reason = await self._read(prompt_id)
        except HubbubError as error:
            reason = f"unreadable: {error}"
        self._settle(receipt, reason)

    async def _read(self, prompt_id: str) -> str:
        """What the lane of the run that asked says."""
        run_id = asker_of(prompt_id)
        selection = Selection(run_id=run_id, match=_TYPES.__contains__)
        reason = UNKNOWN
        position, end = 0, self._journal.tip
        while position < end:
            events, position = await self._journal.read(selection, after=position, until=end)
            for event in events:
                match event:
                    case SessionPrompt() if event.prompt_id == prompt_id:
                        reason = AWAY
                    case SessionPromptEnd() if event.prompt_id == prompt_id:
                        return event.reason
                    case SessionReply() if event.prompt_id == prompt_id:
                        reason = ANSWERED  # The run has yet to take it, which ends the prompt.
                    case AgentComplete() if reason != UNKNOWN:
                        return ending_words(event.outcome, event.reason)
                    case _:
                        pass
        return reason

    def _settle(self, receipt: Receipt, reason: str) -> None:
        if receipt in self._looked_up:
            self._looked_up.discard(receipt)
            receipt.settle("rejected", reason)
