"""What the Messages interface can bind an answer to: ``output_config.format``.

The same schemas come out as those that Anthropic's own client makes.  Claude has it since 4.5; of
another maker's model behind the interface nobody knows.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from hubbub.runtime.models.http.bound_schema import SchemaRules

__all__ = ["RULES", "format_of", "has_formats"]

RULES: Final = SchemaRules(
    keeps=frozenset(),
    formats=frozenset(
        ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6",
         "uuid")
    ),
    keeps_one_item=True,
    types_lists=False,
)  # fmt: skip
_BEFORE: Final = re.compile(
    r"claude-(2|instant|3|4-|(opus|sonnet|haiku)-4(-[01])?(?!\d|-\d{1,2}(?!\d)))"
)


def has_formats(model: str) -> bool:
    """Whether a model can be bound to a schema at all."""
    name = model.lower()
    return "claude" in name and _BEFORE.search(name) is None


def format_of(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The format for a schema; ``None`` where there is none that says so much."""
    bound = RULES.bound(schema)
    return None if bound is None else {"type": "json_schema", "schema": bound}
