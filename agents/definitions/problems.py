"""What is wrong with a definition: each problem a sentence that opens with the path of its field.

``definitions`` collects them, so that an author is told all of them at once; here stand those that
need nothing but the values.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.agents.definitions.variables import placeholders
from hubbub.hub.texts import text_problem

if TYPE_CHECKING:
    from hubbub.agents.definitions.agent import AgentDefinition
    from hubbub.agents.definitions.prompt import Immediate, PromptDefinition, Resumable

__all__ = [
    "absent_or_named",
    "code_problems",
    "id_problems",
    "immediate_problems",
    "is_limit",
    "keep_tuples",
    "listed_problems",
    "model_problems",
    "name_problems",
    "option_problems",
    "placeholder_problems",
    "resumable_problems",
    "text_problems",
]

MAX_NESTED: Final = 100
"""How deep a definition's own values may be nested."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_SIDES: Final = ("side_a", "side_b")


def code_problems(agent: "AgentDefinition") -> Iterable[str]:
    if not callable(agent.execute):
        yield "execute: an async function (input, ctx) is wanted"
    if agent.side_a is None:
        for field in (
            "side_b", "max_session_turns", "hooks", "expose_as_tool", "supports_checkpointing",
        ):  # fmt: skip
            if getattr(agent, field):
                yield f"{field}: belongs to a model agent"
        if agent.type == "dual_ai":
            yield "type: 'dual_ai' belongs to a model agent"


def model_problems(agent: "AgentDefinition") -> Iterable[str]:
    """Those of a model agent, but not of its sides."""
    if agent.type == "dual_ai" and agent.side_b is None:
        yield "side_b: required for dual_ai"
    if agent.type == "ai_human" and agent.side_b is not None:
        yield "side_b: the other side of ai_human is the user; give type='dual_ai'"
    if not is_limit(agent.max_session_turns):
        yield "max_session_turns: at least 1"
    if agent.supports_checkpointing and agent.type == "dual_ai":
        yield "supports_checkpointing: needs a user to ask; 'dual_ai' has none"
    if agent.emits_start_complete:
        yield "emits_start_complete: belongs to a code agent"
    if agent.on_restart != "fail":
        yield "on_restart: belongs to a code agent; model agents always resume"


def option_problems(prompt: "PromptDefinition") -> Iterable[str]:
    if not isinstance(prompt.parallel_tool_calls, bool):
        yield "parallel_tool_calls: True or False is wanted"
    if not isinstance(prompt.tool_choice, str):
        yield 'tool_choice: "auto", "none", "any" or the name of a tool is wanted'
    options: object = prompt.provider_options
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        yield "provider_options: a mapping of names to JSON values is wanted"


def placeholder_problems(prompt: "PromptDefinition") -> Iterable[str]:
    kinds = {each.name: each.type for each in prompt.variables}
    for name in sorted(placeholders(prompt.prompt)):
        if kinds.get(name) == "secret":
            yield f"prompt: {{{{{name}}}}} is secret; only a text variable enters a prompt"


def immediate_problems(immediate: "Immediate") -> Iterable[str]:
    yield from absent_or_named("immediate", immediate, "name_env", "description_env")
    names: object = immediate.scoped_env
    if not isinstance(names, tuple) or not all(isinstance(each, str) and each for each in names):
        yield "immediate.scoped_env: a list of the names of variables is wanted"


def resumable_problems(resumable: "Resumable") -> Iterable[str]:
    if resumable.receives_messages is None:
        yield "resumable.receives_messages: required; 'side_a' or 'side_b'"
    elif resumable.receives_messages not in _SIDES:
        wrong: object = resumable.receives_messages
        yield f"resumable.receives_messages: 'side_a' or 'side_b', not {wrong!r}"
    if not is_limit(resumable.max_instances):
        yield "resumable.max_instances: at least 1"
    if resumable.parent_communication not in ("implicit", "explicit"):
        wrong = resumable.parent_communication
        yield f"resumable.parent_communication: 'implicit' or 'explicit', not {wrong!r}"


def name_problems(name: object) -> Iterable[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield "name: 1 to 128 letters, digits, '_', '-', '.' or ':' are wanted"


def id_problems(path: str, ids: object) -> Iterable[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        yield f"{path}: a list of hook ids is wanted"
        return
    seen: set[object] = set()
    for index, each in enumerate(ids):
        if not isinstance(each, str):
            yield f"{path}[{index}]: a hook's id is wanted, not {type(each).__name__}"
        elif each in seen:
            yield f"{path}[{index}]: {each!r} is listed twice"
        else:
            seen.add(each)


def absent_or_named(path: str, holder: object, *fields: str) -> Iterable[str]:
    """Those of fields that are a name or ``None``."""
    for field in fields:
        value = getattr(holder, field)
        if not isinstance(value, str | None) or value == "":
            yield f"{path}.{field}: a name is wanted".lstrip(".")


def text_problems(path: str, value: object, *, depth: int = 0) -> Iterable[str]:
    """The texts in a definition that UTF-8 cannot hold, each by its path."""
    if isinstance(value, str):
        if problem := "" if value.isascii() else text_problem(value):
            yield f"{path}: {problem}"
    elif depth > MAX_NESTED:
        yield f"{path}: nested more than {MAX_NESTED} deep"
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from text_problems(f"{path} (a key)", key)
            yield from text_problems(f"{path}.{ascii(key)[1:-1]}", each, depth=depth + 1)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from text_problems(f"{path}[{index}]", each, depth=depth + 1)
    elif isinstance(value, Struct) and value.__class__.__module__.startswith("hubbub.agents."):
        for field in value.__struct_fields__:
            name = f"{path}.{field}".lstrip(".")
            yield from text_problems(name, getattr(value, field), depth=depth + 1)


def is_limit(value: object) -> bool:
    """Whether it bounds something, or is absent; True is no number here."""
    if value is None:
        return True
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def listed_problems(path: str, listed: object, kinds: Any, wanted: str) -> Iterable[str]:
    """What is wrong with a list of things that have names, or of their names."""
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        yield f"{path}: a list is wanted, each {wanted}"
        return
    seen: set[str] = set()
    for index, each in enumerate(listed):
        name = each if isinstance(each, str) else getattr(each, "name", None)
        if not isinstance(each, kinds) or not name:
            yield f"{path}[{index}]: {wanted} is wanted, not {type(each).__name__}"
        elif name in seen:
            yield f"{path}[{index}]: {name!r} is listed twice"
        else:
            seen.add(str(name))


def keep_tuples(holder: Struct, *fields: str) -> None:
    """Lists become tuples before they are looked at: an iterator can be read only once."""
    for field in fields:
        value = getattr(holder, field)
        if isinstance(value, Iterable) and not isinstance(value, str):
            force_setattr(holder, field, tuple(value))
