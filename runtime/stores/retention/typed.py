"""A retention as it is typed on a command line."""

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.retention.amounts import bytes_of, seconds_of
from hubbub.runtime.stores.retention.retention import Retention

__all__ = ["typed_retention"]


def typed_retention(
    *,
    ended: str | None = None,
    silent: str | None = None,
    keep_last: int | None = None,
    max_bytes: str | None = None,
    prefix: str = "--",
) -> Retention | None:
    """What was typed; ``None`` where nothing was.

    Raises ``BadValue`` and ``OperatorError`` for what is no limit, by the name of its option.
    """
    if ended is None and silent is None and keep_last is None and max_bytes is None:
        return None
    if keep_last is not None and keep_last < 1:
        words = f"{prefix}keep-last {keep_last}: expected a number of at least 1"
        raise OperatorError(words)
    largest = f"{prefix}max-bytes"
    return Retention(
        ended=None if ended is None else seconds_of(f"{prefix}ended", ended),
        silent=None if silent is None else seconds_of(f"{prefix}silent", silent),
        keep_last=keep_last,
        max_bytes=None if max_bytes is None else bytes_of(largest, max_bytes, bare=True),
    )
