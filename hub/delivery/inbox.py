"""``Inbox``: the messages of one run, as the stream that is their one reader sees them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from hubbub.hub.events import SessionMessage

__all__ = ["Inbox"]


class Inbox(Protocol):
    """What such a stream may ask and do.  The run whose code reads implements it."""

    on_message: Callable[[], object]
    """Called when there is a message to read, or will never be one again."""

    @property
    def run_id(self) -> str:
        """The run whose messages these are."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing waits and nothing will come."""
        ...

    def begin(self) -> None:
        """The next is asked for, so the one before is consumed; raises ``InboxInUse``."""
        ...

    def next_nowait(self) -> SessionMessage | None:
        """The next message, if one waits."""
        ...

    def consume(self) -> None:
        """The message that was yielded is done with."""
        ...

    def waiting(self, *, for_others: bool = False) -> AbstractContextManager[None]:
        """Inside, the code waits for a message; ``for_others``: or for what other runs do."""
        ...

    def release(self) -> None:
        """Let another one read."""
        ...
