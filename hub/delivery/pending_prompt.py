"""``PendingPrompt``: a prompt that waits for its reply, and which replies it takes.

kind       a reply with text                      ``approve``     ``deny``
─────────  ─────────────────────────────────────  ──────────────  ─────────────────────────
question   the answer, if it fits the schema      rejected        ends without an answer
approval   ``approve`` approves, all else denies  approved        denied, with the reason
external   the result, or with ``is_error`` the   rejected        an error, with the reason
           failure
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct, structs

from hubbub.hub.events import PromptKind, SessionReply
from hubbub.hub.tasks.cancelling import is_of_the_loop, put_off_cancellation
from hubbub.hub.tasks.waiter import MakeWaiter, Waiter, wake

__all__ = [
    "ANSWERED",
    "APPROVE",
    "APPROVED",
    "DENIED",
    "DENY",
    "EXPIRED",
    "Check",
    "PendingPrompt",
    "end_of",
    "problem_of",
    "read_reply",
]

APPROVE: Final = "approve"
DENY: Final = "deny"
"""What a reply to an approval may be; any other text denies, too, and is the reason."""

ANSWERED: Final = "answered"
"""The reason by which a prompt ends whose asker gets the reply."""

APPROVED: Final = "approved"
DENIED: Final = "denied"
"""The reasons by which the prompt for an approval ends; after the second one what was said."""

EXPIRED: Final = "expired"
"""The reason by which a prompt ends that nobody has answered in time."""

Check = Callable[[SessionReply], str] | None
"""Why a reply does not fit its prompt; empty where it does."""


class PendingPrompt(Struct, eq=False):
    """A prompt that waits for its reply."""

    id: str
    asker: str
    asked: str
    kind: PromptKind = "question"
    check: Check = None
    expires_at: int = 0
    """From when on no reply counts, whatever timers are due (µs since the epoch); 0 for never."""
    answer: SessionReply | None = None
    """The reply, which has yet to reach the asker's run, if it is one."""
    ended: str = ""
    """Why nobody can reply any more."""
    is_announced: bool = False
    """Whether the hub's lane says that it is open."""
    waiter: Waiter | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has neither a reply nor an end."""
        return self.answer is None and not self.ended

    @property
    def is_answered(self) -> bool:
        """Whether its end says that the asker has the reply."""
        return self.answer is not None and self.ended == ANSWERED

    @property
    def is_expired(self) -> bool:
        """Whether it has ended without an answer in time."""
        return self.ended == EXPIRED

    def is_over_at(self, now: int) -> bool:
        """Whether its time is over."""
        return 0 < self.expires_at <= now

    def end(self, reason: str) -> None:
        self.ended = reason
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None:
            wake(self.waiter)

    async def wait(self, make_waiter: MakeWaiter) -> None:
        """Return when it has ended, and its asker is to know of it."""
        if self.ended:
            return
        self.waiter = make_waiter()
        try:
            await self.waiter
        except BaseException as error:
            # It is on record that the asker has its answer: cancelled in the same breath, too.
            if not (self.is_answered and is_of_the_loop(error)):
                raise
            put_off_cancellation(error)


def read_reply(prompt: PendingPrompt, reply: SessionReply, now: int) -> SessionReply:
    """A reply that is given ``now``, as it is delivered: what a text decides is said outright."""
    event = SessionReply(
        prompt_id=reply.prompt_id, content=reply.content, source=reply.source,
        decision=reply.decision, arguments_json=reply.arguments_json, is_error=reply.is_error,
        metadata_json=reply.metadata_json, at=now,
    )  # fmt: skip
    if prompt.kind != "approval" or event.decision:
        return event
    if event.content == APPROVE:
        return structs.replace(event, content="", decision="approve")
    reason = "" if event.content == DENY else event.content
    return structs.replace(event, content=reason, decision="deny")


def problem_of(prompt: PendingPrompt, reply: SessionReply) -> str:
    """Why a reply does not fit its prompt; empty where it does."""
    if reply.decision == "deny":
        return ""
    if reply.decision == "approve" and prompt.kind != "approval":
        return "there is nothing to approve: reply with the answer"
    if reply.is_error and prompt.kind != "external":
        return "only the result of an external tool can be an error; deny the prompt instead"
    return prompt.check(reply) if prompt.check is not None else ""


def end_of(reply: SessionReply) -> str:
    """The reason by which a question ends that has this reply."""
    if reply.decision != "deny":
        return ANSWERED
    return f"{DENIED}: {reply.content}" if reply.content.strip() else DENIED
