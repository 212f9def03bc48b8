"""``SafeRepr``: definitions whose ``repr`` shows none of the secrets that they hold.

    env={"TOKEN": "…"}                        ──► env={'TOKEN': ***}
    model="openai:NAME@http://me:…@HOST/v1"   ──► model='openai:NAME@http://***@HOST/v1'

A definition ends up in logs, tracebacks and test reports of its author; what it holds is theirs.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from hubbub.hub.near_misses import told_fields
from hubbub.hub.values import Secret

__all__ = ["SafeRepr", "without_credentials"]

VALUES: Final = frozenset(("env", "headers"))
"""The fields whose values may be secrets, whoever gave them."""

_ADDRESS: Final = re.compile(r"(?P<scheme>https?://)(?P<host>[^\s/?#]*)(?P<rest>[^\s]*)", re.I)
_QUERY: Final = re.compile(r"(?<=[?&#;])([^=&#;]*)=[^&#;]+")


class SafeRepr(Struct, metaclass=told_fields, frozen=True):
    """A struct that is shown without the values of ``env`` and ``headers``, and with addresses
    that have neither a password nor the values of a query."""

    def __repr__(self) -> str:
        fields = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({', '.join(fields)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, _shown(name, getattr(self, name))) for name in self.__struct_fields__]


def without_credentials(text: str) -> str:
    """The text, in whose addresses nothing says who asks; plain ones stay as they are."""
    return _ADDRESS.sub(_address, text) if "://" in text else text


def _address(found: re.Match[str]) -> str:
    _, at, host = found["host"].rpartition("@")
    who = "***" if at else ""
    rest = _QUERY.sub(r"\1=***", found["rest"])
    return f"{found['scheme']}{who}{at}{host}{rest}"


def _shown(name: str, value: Any) -> Any:
    if name in VALUES and isinstance(value, Mapping):
        return dict.fromkeys(value, Secret())
    if isinstance(value, str):
        return without_credentials(value)
    if value.__class__ is tuple:
        return tuple(_shown("", each) for each in value)
    return value
