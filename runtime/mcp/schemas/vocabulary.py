"""``KEYWORDS``: the keywords of each dialect, and which of them are left to the server.

Left to it are patterns, which may take without end, and with them what is said of all other names;
``format``, which is checked by some and by others not; what would compare each item with each
other; and references to what is only known when they are followed.  So is a keyword in a dialect
that does not have it, which may be a mistake, or be read by the server nonetheless.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from hubbub.runtime.mcp.schemas.dialect import SchemaDialect
from hubbub.runtime.mcp.schemas.keywords import COMMON
from hubbub.runtime.mcp.schemas.trial import Keyword, Problem, SchemaPlace, Trial
from hubbub.runtime.mcp.schemas.unevaluated import UNEVALUATED

__all__ = ["KEYWORDS"]

_SINCE: Final[Mapping[str, SchemaDialect]] = {
    "const": SchemaDialect.DRAFT_6,
    "contains": SchemaDialect.DRAFT_6,
    "propertyNames": SchemaDialect.DRAFT_6,
    "if": SchemaDialect.DRAFT_7,
    "dependentRequired": SchemaDialect.DRAFT_2019_09,
    "dependentSchemas": SchemaDialect.DRAFT_2019_09,
    "unevaluatedItems": SchemaDialect.DRAFT_2019_09,
    "unevaluatedProperties": SchemaDialect.DRAFT_2019_09,
    "prefixItems": SchemaDialect.DRAFT_2020_12,
}
_UNTIL: Final[Mapping[str, SchemaDialect]] = {
    "additionalItems": SchemaDialect.DRAFT_2019_09,
    "dependencies": SchemaDialect.DRAFT_7,
}


def _left(concerns: Callable[[Any, Any], bool]) -> Keyword:
    """A keyword of which nothing is known where it concerns a value."""

    def keyword(
        trial: Trial, given: Any, value: Any, schema: dict[str, Any], place: SchemaPlace
    ) -> Iterator[Problem]:
        if concerns(given, value):
            yield None

    return keyword


_ALWAYS: Final = _left(lambda given, value: True)
_OF_TEXT: Final = _left(lambda given, value: isinstance(value, str))

_LEFT: Final[Mapping[str, Keyword]] = {
    "$dynamicRef": _ALWAYS,
    "$recursiveRef": _ALWAYS,
    "contentEncoding": _OF_TEXT,
    "contentMediaType": _OF_TEXT,
    "contentSchema": _OF_TEXT,
    "format": _left(lambda given, value: isinstance(value, str | int | float)),
    "pattern": _OF_TEXT,
    "patternProperties": _left(
        lambda given, value: isinstance(value, dict) and len(value) > 0 and bool(given)
    ),
    "uniqueItems": _left(
        lambda given, value: isinstance(value, list) and len(value) > 1 and given is not False
    ),
}


def _keywords_of(dialect: SchemaDialect) -> Mapping[str, Keyword]:
    found = {**COMMON, **UNEVALUATED, **_LEFT}
    for word in found:
        is_there = _SINCE.get(word, dialect) <= dialect <= _UNTIL.get(word, dialect)
        if dialect is SchemaDialect.OTHER or not is_there:
            found[word] = _ALWAYS
    return found


KEYWORDS: Final[Mapping[SchemaDialect, Mapping[str, Keyword]]] = {
    dialect: _keywords_of(dialect) for dialect in SchemaDialect
}
