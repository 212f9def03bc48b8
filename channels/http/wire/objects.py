"""``JsonObject``: an object in a body, which is measured before anything is made of it.

A list of two characters becomes an object of sixty bytes, and 8 MB of them hold the loop for
seconds.  So a field that is never long is kept as the text that was sent, and made an object when
it is known to be short enough.
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hubbub.channels.http.wire.bodies import json_problem
from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.errors import BadValue
from hubbub.hub.near_misses import kind_of

__all__ = ["JsonObject", "object_in", "size_at_least"]

JsonObject: TypeAlias = (
    Annotated[msgspec.Raw, Meta(extra_json_schema={"type": ["object", "null"]})] | UnsetType
)
"""An object or ``null``, as it was sent.  Give its field the default ``UNSET``."""

_ESCAPE: Final = len("\\u0000") - 1


def size_at_least(sent: JsonObject) -> int:
    """How many characters a JSON text has at the least when it is written as the hub writes it,
    without spaces and with letters where escapes were."""
    if sent is UNSET:
        return 0
    try:
        text = str(msgspec.json.format(sent, indent=-1), "utf-8")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return 0  # It is no JSON, which is said when it is read.
    return len(text) - _ESCAPE * text.replace(r"\\", "").count(r"\u")


def object_in(where: str, sent: JsonObject, most: int) -> dict[str, Any] | None:
    """The object in a field; ``None`` where it is left out or ``null``.

    Raises ``BadValue`` for one of more than ``most`` characters, which is not read, and for another
    value, and ``Refusal`` for what is no JSON.
    """
    if sent is UNSET:
        return None
    if (size := size_at_least(sent)) > most:
        raise BadValue(where, f"{size:,} characters are too many; send at most {most:,}")
    try:
        found = msgspec.json.decode(sent)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = json_problem(error, bytes(sent))
        raise Refusal("invalid-request", f"{where}: {problem}") from None
    if found is not None and not isinstance(found, dict):
        raise BadValue(where, f"expected an object, not {kind_of(found)}")
    return found
