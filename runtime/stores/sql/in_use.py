"""``StoreInUse``: why a second runtime is refused."""

from hubbub.hub.errors import OperatorError

__all__ = ["StoreInUse"]


class StoreInUse(OperatorError):
    """Another runtime, or a command that writes, is at work on a store.

    ``command`` is that command; empty for a runtime, and where it is not known.
    """

    def __init__(self, words: str, command: str = "") -> None:
        super().__init__(words)
        self.command = command
