"""``answer_prompt``: an answer to a prompt of a store on which no runtime is at work.

    the store, opened for writing ──► the prompt, as its run has it on record ──► its inbox

It is the hub's own reply, so the first one counts and what does not fit is rejected.  The run takes
it when the next runtime is at work on the store.
"""

from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct

from hubbub.agents.definitions.answers import answer_problem
from hubbub.hub.errors import OperatorError
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.runtime.inspection.prompts import ShownPrompt, find_prompt
from hubbub.runtime.stores.open import folder_of_store, open_store, sqlite_store
from hubbub.runtime.stores.sql.in_use import StoreInUse

__all__ = ["PromptAnswer", "answer_prompt", "check_answerable"]

SOURCE = "hubbub reply"

PATIENCE: Final = 2.0
"""Seconds for which another command may have the store: it may be another answer."""

POLL_SECONDS: Final = 0.05


class PromptAnswer(Struct, frozen=True, kw_only=True):
    """An answer: a ``reply`` with a text, an approval (``arguments`` instead of the model's), or a
    denial whose reason is ``text``."""

    decision: Literal["reply", "approve", "deny"]
    text: str = ""
    arguments: dict[str, Any] | None = None
    is_error: bool = False


def check_answerable(prompt: ShownPrompt, answer: PromptAnswer, now: int) -> None:
    """Raise ``OperatorError`` for a prompt that cannot be answered ``now``, or not by this."""
    if prompt.is_answered:
        raise _refused(prompt, "it is answered already; the next runtime takes the answer")
    if prompt.expires_at is not None and prompt.expires_at <= now:
        raise _refused(prompt, "it has expired; the next runtime goes on without an answer")
    if prompt.waits_in == "process":
        raise _refused(prompt, "it was asked by code that runs in one process; answer it there")
    if prompt.kind == "approval" and answer.decision == "reply":
        raise _refused(prompt, "it is an approval; give --approve, or --deny REASON")
    if prompt.kind != "approval" and answer.decision == "approve":
        raise _refused(prompt, "there is nothing to approve; give the answer as TEXT")
    if answer.is_error and prompt.kind != "external":
        raise _refused(prompt, "only the result of an external tool can be an error; --deny REASON")


async def answer_prompt(store: str, prompt_id: str, answer: PromptAnswer, ports: Ports) -> None:
    """Put an answer into the inbox of the run that asks; durable when this returns.

    Raises ``StoreInUse`` where a runtime is at work on the store, ``OperatorError`` where it cannot
    be written, and for a prompt that is over, is answered, or does not take this answer.
    """
    until = ports.clock.monotonic() + PATIENCE
    while True:
        try:
            await _answer_now(store, prompt_id, answer, ports)
            return
        except StoreInUse:
            if ports.clock.monotonic() >= until:
                raise
        await ports.clock.sleep(POLL_SECONDS)


async def _answer_now(store: str, prompt_id: str, answer: PromptAnswer, ports: Ports) -> None:
    folder = folder_of_store(store)
    # Folders of agents are kept up to date where there are any, and made by no command.
    opened = open_store(store, ports)
    if folder is not None:
        opened = sqlite_store(folder.database, ports=ports, mirror=folder.agents.is_dir())
    async with Hub(journal=opened, ports=ports) as hub:
        prompt = await hub.journal.inspect(lambda reader: find_prompt(reader, prompt_id))
        check_answerable(prompt, answer, ports.clock.now())
        fits, until = partial(answer_problem, prompt.schema), prompt.expires_at or 0
        hub.prompts.hold(prompt.prompt_id, prompt.run_id, prompt.kind, fits, until)
        receipt = await _give(hub, prompt.prompt_id, answer)
        if receipt.rejected:
            raise _refused(prompt, f"{receipt.reason}; nothing was sent")


def _give(hub: Hub, prompt_id: str, answer: PromptAnswer) -> Receipt:
    if answer.decision == "approve":
        return hub.approve(prompt_id, answer.arguments, source=SOURCE)
    if answer.decision == "deny":
        return hub.deny(prompt_id, answer.text, source=SOURCE)
    return hub.reply(prompt_id, answer.text, is_error=answer.is_error, source=SOURCE)


def _refused(prompt: ShownPrompt, why: str) -> OperatorError:
    return OperatorError(f"prompt {prompt.prompt_id}: {why}")
