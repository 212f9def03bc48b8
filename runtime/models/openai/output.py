"""What OpenAI's interfaces can bind an answer to: strictly, where a schema is of the kind.

A schema that is not is sent as it is: the model reads it, and what it answers is checked here.
"""

import re
from typing import Any, Final

from hubbub.agents.model import OutputSpec
from hubbub.runtime.models.http.bound_schema import SchemaRules

__all__ = ["STRICT", "has_formats", "schema_fields"]

STRICT: Final = SchemaRules(
    keeps=frozenset(
        ("pattern", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
         "minItems", "maxItems")
    ),
    formats=frozenset(
        ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
    ),
    all_required=True,
    recursive=True,
    max_depth=10,
)  # fmt: skip
_BEFORE: Final = re.compile(r"gpt-3|gpt-4(-|$)|chatgpt-4o|o1-(mini|preview)")


def has_formats(model: str) -> bool:
    """Whether a model of OpenAI's can be bound to a schema: since GPT-4o."""
    return _BEFORE.search(model.lower()) is None


def schema_fields(output: OutputSpec) -> dict[str, Any]:
    """Name, schema and whether it is strict, as both interfaces have them."""
    bound = STRICT.bound(output.schema)
    schema = dict(output.schema) if bound is None else bound
    return {"name": output.name, "schema": schema, "strict": bound is not None}
