"""Types that prompts name, as the JSON schemas that a package has in their place."""

from typing import Any

from hubbub.agents.definitions.schema import read_schema
from hubbub.agents.definitions.signature import is_pydantic
from hubbub.agents.packaging.format import in_place

__all__ = ["schema_of_type"]


def schema_of_type(cls: Any) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """The JSON schema of a type, all in one; or what of the type none can say."""
    problems: tuple[str, ...] = ()
    try:
        if is_pydantic(cls):
            shown = cls.model_json_schema()
        else:
            _, shown, problems = read_schema(cls)
        if problems:
            return None, problems
        found: dict[str, Any] = in_place(shown, shown.get("$defs", {}), ())
    except Exception as problem:
        return None, (str(problem),)
    return found, read_schema(found)[2]
