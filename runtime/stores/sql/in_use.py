"""``StoreInUse``: why a second runtime is refused."""

from hubbub.hub.errors import OperatorError

__all__ = ["StoreInUse"]


class StoreInUse(OperatorError):
    """Another runtime, or a command that writes, is at work on a store."""
