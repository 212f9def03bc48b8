"""``answer_to``: what a line means while a prompt is open.

prompt     line                                          meaning
─────────  ────────────────────────────────────────────  ─────────────────────────────────────
question   the number of an option, or any text          the reply
approval   ``approve``, ``yes``, ``y``                   the tool runs
           ``approve {…}``, ``y {…}``                    it runs with these arguments instead
           ``deny [REASON]``, ``n [REASON]``, ``no``     it does not run; the model reads why
external   ``result TEXT``                               the result
           ``error TEXT``                                it has failed, and how
           ``deny [REASON]``, ``n [REASON]``, ``no``     there will be no result
any        ``cancel``, ``stop``, ``/stop``, ``/back``,   said to the conversation: it gives up
           while a call of the model's waits

Anything else is the user's next message, which denies what is open, so only words that say so
approve.  A line that begins like an approval and goes on otherwise means nothing, and is answered
by how to approve.
"""

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.hub import events as e
from hubbub.hub.hub import Hub
from hubbub.hub.receipt import Receipt

__all__ = ["HOW", "WORDS", "Answer", "answer_to", "give"]

WORDS: Final = frozenset(("cancel", "stop", "/stop", "/back"))
"""What takes the conversation back; here only to be distinguished from answers."""

APPROVE: Final = frozenset(("approve", "yes", "y"))
DENY: Final = frozenset(("deny", "n"))

HOW: Final = {
    "approval": (
        "approve (or y); deny, with a reason (or n); approve {…} to change the arguments; "
        "anything else denies it and is your next message"
    ),
    "external": (
        "result TEXT; error TEXT if it failed; deny, with a reason (or n); anything else ends it "
        "without a result and is your next message"
    ),
}
"""How each kind of prompt is answered, as it is shown; a question needs no words."""

Meaning: TypeAlias = Literal[
    "reply", "approve", "deny", "message", "word", "nothing", "unclear",
]  # fmt: skip


class Answer(Struct, frozen=True):
    """What a line means; ``text`` is the reply, the reason, or why the line is unclear."""

    meaning: Meaning
    text: str = ""
    arguments: dict[str, Any] | None = None
    """Those to approve instead of the model's."""
    is_error: bool = False


def answer_to(prompt: e.SessionPrompt, line: str) -> Answer:
    """What ``line`` means while ``prompt`` is the oldest that is open."""
    said = line.strip()
    if prompt.pauses and said.casefold() in WORDS and said not in prompt.options:
        return Answer("word", said)
    if prompt.kind == "question":
        return _to_question(said, prompt.options)
    if not said:
        return Answer("nothing")
    first, _, rest = said.partition(" ")
    first, rest = first.casefold(), rest.strip()
    if first in DENY or said.casefold() == "no":
        return Answer("deny", rest)
    if prompt.kind == "approval":
        return _to_approval(first, rest, line)
    if first in ("result", "error"):
        return Answer("reply", rest, is_error=first == "error")
    if first in APPROVE and not rest:
        return Answer("unclear", "there is nothing to approve; give the result: result TEXT")
    return Answer("message", line)


def give(hub: Hub, prompt_id: str, answer: Answer) -> Receipt:
    """Answer a prompt by an approval, a denial or a reply.

    Raises ``CallerError`` for what no prompt takes.
    """
    if answer.meaning == "approve":
        return hub.approve(prompt_id, answer.arguments, source="console")
    if answer.meaning == "deny":
        return hub.deny(prompt_id, answer.text, source="console")
    return hub.reply(prompt_id, answer.text, is_error=answer.is_error, source="console")


def _to_question(said: str, options: tuple[str, ...]) -> Answer:
    if said not in options and said.isdecimal() and 1 <= int(said) <= len(options):
        return Answer("reply", options[int(said) - 1])
    return Answer("reply", said) if said or not options else Answer("nothing")


def _to_approval(first: str, rest: str, line: str) -> Answer:
    if first not in APPROVE:
        return Answer("message", line)
    if not rest:
        return Answer("approve")
    try:
        return Answer("approve", arguments=msgspec.json.decode(rest, type=dict[str, Any]))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Answer("unclear", f"after {first} only arguments may follow, as JSON ({error})")
