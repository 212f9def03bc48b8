"""``EndedPrompts``: why nobody can reply to a prompt any more.

ended in this process, lately   remembered
asked by a run, whenever        read from the lane of the run, which is in the prompt's id
anything else                   ``unknown``, or only for the process that asks to say

Where several processes share the store, what a run asks may be open in another one.  Then its lane
alone counts: a reply to what is open there goes to the run's inbox, which takes the first one.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

from hubbub.hub.delivery.pending_prompt import (
    ANSWERED,
    APPROVED,
    DENIED,
    EXPIRED,
    PendingPrompt,
    problem_of,
    read_reply,
)
from hubbub.hub.errors import CallerError, HubbubError
from hubbub.hub.events import AgentComplete, SessionPrompt, SessionPromptEnd, SessionReply
from hubbub.hub.events.event import ending_words
from hubbub.hub.ports import Clock
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Journal, RequestKey, Selection
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.task_host import TaskHost
from hubbub.hub.texts import check_text

__all__ = ["HUB_CLOSED", "NOBODY", "EndedPrompts", "asker_of", "is_asked_by_run", "is_uuid"]

REMEMBERED: Final = 1000
"""Ended prompts whose reason needs no reading."""

MAX_LOOKUPS: Final = 100
"""Replies that may wait for the reading of a lane; further ones are rejected without."""

NOBODY: Final = "hub"
"""What the id of a prompt begins with that no run asks."""

HUB_CLOSED: Final = "hub closed"
UNKNOWN: Final = "unknown"
ELSEWHERE: Final = "unknown here: it is no run's, and only the process that asks takes its reply"
AWAY: Final = "the process that asked has stopped, and its run has not come back yet"

Deliver: TypeAlias = Callable[..., Receipt]
"""``Pipeline.deliver``."""


class Refusals(Protocol):
    """Who knows what fits."""

    @property
    def refusal_of_reply(self) -> Callable[[SessionPrompt, SessionReply], str] | None:
        """Why a reply does not fit what a run asks; empty where it does, as far as is known."""
        ...


_TYPES: Final = frozenset(
    {SessionPrompt.type, SessionPromptEnd.type, SessionReply.type, AgentComplete.type}
)


def asker_of(prompt_id: str) -> str:
    """The run that a prompt's id begins with; ids of versions before have a ``?`` behind it."""
    return re.split(r"[.?]", prompt_id, maxsplit=1)[0]


def is_asked_by_run(prompt_id: str) -> bool:
    """Whether a prompt's id begins with a run's, as far as it says."""
    return asker_of(prompt_id) not in ("", NOBODY, prompt_id)


def is_uuid(address: str) -> bool:
    """Whether an address has the form of the ids that runs get which nobody has given one.

    A run whose id its caller chose may have one of any other form.
    """
    return len(address) == 36 and address[8] == address[13] == address[18] == address[23] == "-"


def why_not_again(end: str) -> str:
    """Why nobody can reply any more to a prompt that has ended so.

    To whoever comes second it is the same what the first one has said, and none of his business.
    """
    is_denied = end == DENIED or end.startswith(f"{DENIED}: ")
    return ANSWERED if is_denied or end == APPROVED else end


class EndedPrompts:
    """The prompts of one hub that are not open."""

    def __init__(
        self,
        journal: Journal,
        tasks: TaskHost,
        clock: Clock,
        deliver: Deliver | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._deliver = deliver
        """Brings a reply to a run that another process drives; ``None`` where none does."""
        self._refusals = refusals
        self._tasks = tasks
        self._reasons: OrderedDict[str, str] = OrderedDict()
        self._looked_up: set[Receipt] = set()

    def remember(self, prompt_id: str, reason: str) -> None:
        """A prompt has ended; the first reason stands."""
        if prompt_id not in self._reasons:
            self._reasons[prompt_id] = why_not_again(reason)
            if len(self._reasons) > REMEMBERED:
                self._reasons.popitem(last=False)

    def refuse(self, reply: SessionReply, request: RequestKey | None = None) -> Receipt:
        """The rejection of a reply, or what becomes of it in another process; it is settled later
        where that takes reading."""
        prompt_id = reply.prompt_id
        check_text("prompt_id", prompt_id)
        is_of_run = is_asked_by_run(prompt_id)
        reason = self._reasons.get(prompt_id, "")
        if self._deliver is not None and is_of_run:
            reason = ""  # It may have ended in this process alone.
        can_read = self._tasks.is_open and len(self._looked_up) < MAX_LOOKUPS
        if reason or not can_read or not is_of_run:
            is_elsewhere = self._deliver is not None and asker_of(prompt_id) == NOBODY
            return Receipt("rejected", reason or (ELSEWHERE if is_elsewhere else UNKNOWN))
        receipt = Receipt()
        self._looked_up.add(receipt)
        self._tasks.start(self._look_up(reply, receipt, request), name="hubbub reply", steady=True)
        return receipt

    async def check_here(self, address: str) -> None:
        """Raise ``CallerError`` where another process drives the run that nobody's run asks: its
        reply would not come here."""
        if self._deliver is None:
            return
        sharing, info = sharing_of(self._journal), await self._journal.info(address)
        if info is not None and sharing is not None and not sharing.owns(info.root_run_id):
            raise CallerError(
                f"run {address}: another process drives it, and its reply would reach only a run; "
                "ask from a run's code (ctx.hub.ask), or say it and wait: handle.ask(…)"
            )

    def close(self) -> None:
        """The hub closes; nothing is read any more."""
        for receipt in tuple(self._looked_up):
            self._settle(receipt, HUB_CLOSED)

    async def _look_up(
        self, reply: SessionReply, receipt: Receipt, request: RequestKey | None
    ) -> None:
        try:
            reason, asked = await self._read(reply.prompt_id)
        except HubbubError as error:
            reason, asked = f"unreadable: {error}", None
        if self._deliver is not None and asked is not None and receipt in self._looked_up:
            deliver = partial(self._deliver, to=asked.run_id, request=request)
            reason = self._pass_on(deliver, asked, reply, receipt)
        if reason:
            self._settle(receipt, reason)

    def _pass_on(
        self, deliver: Deliver, asked: SessionPrompt, reply: SessionReply, receipt: Receipt
    ) -> str:
        """Bring a reply to whom another process drives; returns why that would be in vain."""
        now = self._clock.now()
        refuse = None if self._refusals is None else self._refusals.refusal_of_reply
        check = None if refuse is None else partial(refuse, asked)
        prompt = PendingPrompt(asked.prompt_id, asked.run_id, asked.to, asked.kind, check)
        if asked.timeout is not None and now >= asked.at + int(asked.timeout * 1_000_000):
            return EXPIRED
        event = read_reply(prompt, reply, now)
        if problem := problem_of(prompt, event):
            return problem
        self._looked_up.discard(receipt)

        def told(sent: Receipt) -> None:
            receipt.run_id, receipt.run_ids = sent.run_id, sent.run_ids
            receipt.key, receipt.cursor = sent.key, sent.cursor
            receipt.settle(sent.status, sent.reason)

        deliver(event).watch(told)
        return ""

    async def _read(self, prompt_id: str) -> tuple[str, SessionPrompt | None]:
        """What the lane of the run that asked says: why nobody can reply; and the prompt, if
        somebody can, where that run is."""
        run_id = asker_of(prompt_id)
        selection = Selection(run_id=run_id, match=_TYPES.__contains__)
        reason, asked = UNKNOWN, None
        position, end = 0, self._journal.tip
        while position < end:
            events, position = await self._journal.read(selection, after=position, until=end)
            for event in events:
                match event:
                    case SessionPrompt() if event.prompt_id == prompt_id:
                        reason, asked = AWAY, event
                    case SessionPromptEnd() if event.prompt_id == prompt_id:
                        return why_not_again(event.reason), None
                    case SessionReply() if event.prompt_id == prompt_id:
                        reason, asked = ANSWERED, None  # The run has yet to take it.
                    case AgentComplete() if reason != UNKNOWN:
                        return ending_words(event.outcome, event.reason), None
                    case _:
                        pass
        return reason, asked

    def _settle(self, receipt: Receipt, reason: str) -> None:
        if receipt in self._looked_up:
            self._looked_up.discard(receipt)
            receipt.settle("rejected", reason)
