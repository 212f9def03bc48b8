"""``partner``: the agent that a person converses with while a channel is checked.

It numbers what it hears, so that what is shown tells which run has heard it, and how often.  Some
words have it do more: ``ASK`` asks a question, ``FLOOD`` says so much that a slow listener is left
behind, ``LEAVE`` ends the run.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol

__all__ = [
    "ASK", "FLOOD", "LEAVE", "MUCH", "OPTIONS", "PARTNER", "PartnerContext", "heard", "partner",
]  # fmt: skip

PARTNER: Final = "partner"
"""The name that the agent must have on the hub."""

ASK: Final = "ask me"
FLOOD: Final = "talk a lot"
LEAVE: Final = "good bye"

OPTIONS: Final = ("red", "blue")
"""What may be answered to ``ASK``."""

MUCH: Final = 1500
"""Events that are more than a channel's mailbox holds."""


class PartnerContext(Protocol):
    """What the agent needs of the context that a runtime gives to code."""

    def say(self, text: str) -> None: ...
    def status(self, status: str) -> None: ...
    def messages(self) -> AsyncIterator[Any]: ...
    async def ask(self, question: str, *, options: Sequence[str] = ()) -> str: ...


async def partner(input: object, ctx: PartnerContext) -> str:
    """Tell the person what was heard, and which message of the run it was."""
    count = 1
    ends = await _hear(count, str(input), ctx)
    if not ends:
        async for message in ctx.messages():
            count += 1
            if await _hear(count, message.content, ctx):
                break
    return f"{count} heard"


def heard(count: int, text: str) -> str:
    """What the agent says about its ``count``-th message."""
    return f"number {count} is: {text}."


async def _hear(count: int, text: str, ctx: PartnerContext) -> bool:
    """Do what is asked for; whether the run is to end."""
    if text == ASK:
        answer = await ctx.ask("Which colour?", options=OPTIONS)
        ctx.say(heard(count, f"{answer} it is"))
    elif text == FLOOD:
        for each in range(MUCH):
            ctx.status(f"thing {each}")
            ctx.say(f"{each} of {MUCH} things")
        ctx.say(heard(count, "enough"))
    else:
        ctx.say(heard(count, text))
    return text == LEAVE
