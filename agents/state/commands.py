"""The words with which a person gets the conversation back.

    cancel, stop, /stop   unwind all frames      the main agent takes them, at once
    /back                 pops one               the frame on top takes it, at once

Rules
-----
* A word is the whole message, whatever its case and the blanks around it, said by a person.
* With no frame above the main agent they are ordinary messages; unless it waits for a person: then
  they are none, and what was asked is given up.
* A word is acted upon and not heard: it enters no transcript.
* They overtake what else waits, as control does: people who say them do not want to wait.
"""

from typing import Final, Literal, TypeAlias

from hubbub.agents.state.thread import Thread
from hubbub.hub.addressing import is_from_user
from hubbub.hub.events import InLane, SessionMessage

__all__ = [
    "BACK", "CANCELLED", "SENT_BACK", "STOP", "UserCommand", "command_of", "is_not_for_model",
]  # fmt: skip

UserCommand: TypeAlias = Literal["", "stop", "back"]

STOP: Final = frozenset(("cancel", "stop", "/stop"))
BACK: Final = "/back"

CANCELLED: Final = "cancelled by the user"
SENT_BACK: Final = "sent back by the user"

_LONGEST: Final = 100
"""Characters of a message that can be a word with blanks around it."""


def command_of(item: InLane) -> UserCommand:
    """Which word an item is, if it is one."""
    if not isinstance(item, SessionMessage) or len(item.content) > _LONGEST:
        return ""
    said = item.content.strip().casefold()
    if said != BACK and said not in STOP:
        return ""
    if not is_from_user(item):
        return ""
    return "back" if said == BACK else "stop"


def is_not_for_model(thread: Thread, item: SessionMessage) -> bool:
    """Whether a message that is taken just now is acted upon instead of heard.

    While a call waits for a frame or for an answer, nothing but such words, and the answer itself,
    is taken.
    """
    if thread.open is not None and thread.frame is None:
        return True
    if thread.frame is not None or (thread.origin.frame and not thread.once):
        return bool(command_of(item))
    return False
