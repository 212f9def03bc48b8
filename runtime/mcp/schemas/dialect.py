"""``SchemaDialect``: the version of JSON Schema in which a server's schema is written."""

from enum import IntEnum
from typing import Any, Final

__all__ = ["SchemaDialect", "dialect_of"]

MAX_ADDRESS: Final = 100


class SchemaDialect(IntEnum):
    """A version; later ones are greater."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 2019
    DRAFT_2020_12 = 2020
    """What a schema is in that does not say, by the rules of MCP."""
    OTHER = 9999
    """One that is not known here, so that nothing can be told by its schemas."""


_BY_ADDRESS: Final = {
    "json-schema.org/draft-04/schema": SchemaDialect.DRAFT_4,
    "json-schema.org/draft-06/schema": SchemaDialect.DRAFT_6,
    "json-schema.org/draft-07/schema": SchemaDialect.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": SchemaDialect.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": SchemaDialect.DRAFT_2020_12,
}


def dialect_of(schema: Any) -> SchemaDialect:
    """What a schema says of itself by ``$schema``."""
    if not isinstance(schema, dict) or "$schema" not in schema:
        return SchemaDialect.DRAFT_2020_12
    address = schema["$schema"]
    if not isinstance(address, str) or len(address) > MAX_ADDRESS:
        return SchemaDialect.OTHER
    return _BY_ADDRESS.get(address.removesuffix("#").partition("://")[2], SchemaDialect.OTHER)
