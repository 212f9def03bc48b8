"""``answer_prompt``: an answer to a prompt of a store at rest.

    the prompt, as its run has it on record ──► the answer, in its inbox

It is the hub's own reply, so the first one counts and what does not fit is rejected.  The run takes
it when the next runtime is at work on the store.
"""

from functools import partial
from typing import Any, Literal

from msgspec import Struct

from hubbub.agents.definitions.answers import answer_problem
from hubbub.hub.errors import OperatorError
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.runtime.inspection.prompts import ShownPrompt, find_prompt
from hubbub.runtime.inspection.store_at_rest import on_store_at_rest

__all__ = ["PromptAnswer", "answer_prompt", "check_answerable"]

SOURCE = "hubbub reply"


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

    async def give(hub: Hub) -> None:
        prompt = await hub.journal.inspect(lambda reader: find_prompt(reader, prompt_id))
        check_answerable(prompt, answer, ports.clock.now())
        fits, until = partial(answer_problem, prompt.schema), prompt.expires_at or 0
        hub.prompts.hold(prompt.prompt_id, prompt.run_id, prompt.kind, fits, until)
        receipt = await _give(hub, prompt.prompt_id, answer)
        if receipt.rejected:
            raise _refused(prompt, f"{receipt.reason}; nothing was sent")

    await on_store_at_rest(store, ports, give, command=SOURCE)


def _give(hub: Hub, prompt_id: str, answer: PromptAnswer) -> Receipt:
    if answer.decision == "approve":
        return hub.approve(prompt_id, answer.arguments, source=SOURCE)
    if answer.decision == "deny":
        return hub.deny(prompt_id, answer.text, source=SOURCE)
    return hub.reply(prompt_id, answer.text, is_error=answer.is_error, source=SOURCE)


def _refused(prompt: ShownPrompt, why: str) -> OperatorError:
    return OperatorError(f"prompt {prompt.prompt_id}: {why}")
