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
    keep_turns: int | None = None,
    prefix: str = "--",
) -> Retention | None:
    """What was typed; ``None`` where nothing was.

    Raises ``BadValue`` and ``OperatorError`` for what is no limit, by the name of its option.
    """
    given = (ended, silent, keep_last, max_bytes, keep_turns)
    if all(each is None for each in given):
        return None
    for name, count in (("keep-last", keep_last), ("keep-turns", keep_turns)):
        if count is not None and count < 1:
            words = f"{prefix}{name} {count}: expected a number of at least 1"
            raise OperatorError(words)
    largest = f"{prefix}max-bytes"
    return Retention(
        ended=None if ended is None else seconds_of(f"{prefix}ended", ended),
        silent=None if silent is None else seconds_of(f"{prefix}silent", silent),
        keep_last=keep_last,
        keep_turns=keep_turns,
        max_bytes=None if max_bytes is None else bytes_of(largest, max_bytes, bare=True),
    )
