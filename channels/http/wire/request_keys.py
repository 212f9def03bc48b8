"""Under which a client's request counts once: its ``Idempotency-Key``, and a digest of the rest.

The key counts where it was sent to (the path), and everything that the body says counts with it,
but for the values of variables: of those nothing is to be known, not even a digest.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from hubbub.channels.http.wire.host import SOURCE
from hubbub.hub.store.journal import RequestKey
from hubbub.hub.values import Secret

__all__ = ["request_key"]


def request_key(key: str, path: Sequence[str], body: object) -> RequestKey | None:
    """The key of a request to a path; ``None`` where its client has given none."""
    if not key:
        return None
    return RequestKey(_digest((SOURCE, *path, key)), _digest(body))


def _digest(content: object) -> str:
    text = msgspec.json.encode(content, order="deterministic", enc_hook=_without_value)
    return hashlib.sha256(text).hexdigest()[:40]


def _without_value(value: Any) -> str:
    if not isinstance(value, Secret):
        raise TypeError(f"a body holds {type(value).__name__}")
    return ""
