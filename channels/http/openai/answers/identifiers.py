"""Ids that clients see, and what they stand for.

resp_RUN_SEQ                  what came of item SEQ in the inbox of RUN
chatcmpl-RUN_SEQ              the same, as a chat completion
call_STEP_INDEX_RUN           the external call whose prompt is ``RUN.call_STEP_INDEX``
msg_RUN_SEQ_PLACE             an item of a response's output (also ``rs_``, ``fc_``)
"""

import re
from typing import Final

__all__ = ["call_id_of", "chat_id", "item_id", "prompt_id_of", "read_response_id", "response_id"]

_RESPONSE: Final = re.compile(r"resp_([A-Za-z0-9_-]{1,64})_([1-9][0-9]{0,9})")
_CALL: Final = re.compile(r"(call_[0-9]{1,9}_[0-9]{1,9})_([A-Za-z0-9_-]{1,64})")
_PROMPT: Final = re.compile(r"([A-Za-z0-9_-]{1,64})\.(call_[0-9]{1,9}_[0-9]{1,9})")


def response_id(run_id: str, seq: int) -> str:
    """The id of what comes of item ``seq`` in the inbox of a run."""
    return f"resp_{run_id}_{seq}"


def read_response_id(text: str) -> tuple[str, int] | None:
    """The run and the number of its item; ``None`` for what is no such id."""
    found = _RESPONSE.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


def chat_id(run_id: str, seq: int) -> str:
    """The id of a chat completion."""
    return f"chatcmpl-{run_id}_{seq}"


def item_id(prefix: str, run_id: str, seq: int, place: int, void: int = 0) -> str:
    """The id of an item of a response's output; ``void`` counts those that were withdrawn there."""
    return f"{prefix}_{run_id}_{seq}_{place}" + (f"_void{void}" if void else "")


def call_id_of(prompt_id: str) -> str:
    """The call that a prompt for the result of an external tool is about; empty for another."""
    found = _PROMPT.fullmatch(prompt_id)
    return "" if found is None else f"{found[2]}_{found[1]}"


def prompt_id_of(call_id: str) -> tuple[str, str] | None:
    """The run and the prompt of a call; ``None`` for a call of somebody else's."""
    found = _CALL.fullmatch(call_id)
    return None if found is None else (found[2], f"{found[2]}.{found[1]}")
