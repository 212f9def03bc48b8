"""Variables: what an agent may be configured with, and who gives the value.

    NAME ─► the run's own value              start(env=…), state.set_env, a scoped transfer, what
    is provided later
         ─► its ancestors' own, nearest first     a ``scoped`` one only if it was given as such
         ─► the agent's env ─► the prompt's env ─► the runtime's env ─► not set

Rules
-----
* The process environment is never looked at.  A blank text is a value.
* A ``secret`` variable (the default) is for tools and hooks; it never enters a prompt.  Of a
  ``text`` variable ``{{NAME}}`` in a prompt is replaced by its value.
* A ``scoped`` variable is not inherited from a run that merely has a value of that name: it must
  be given to a run (``scoped_env``, ``provide_variables``), or that run itself declares it; from
  there its whole subtree inherits it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

from hubbub.hub.near_misses import kind_of, shown, told_fields
from hubbub.hub.texts import text_problem

__all__ = [
    "VariableDefinition",
    "env_problems",
    "fill_prompt",
    "is_true",
    "placeholders",
    "resolve",
    "told_name",
    "variable_problems",
]

MAX_TOLD: Final = 12
"""Characters of a refused name that are shown; keys and passwords are longer."""
TOLD: Final = 3
_USUAL: Final = re.compile(r"[A-Z][A-Z_]{0,39}[0-9]{0,2}")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]{0,127})\s*\}\}")


class VariableDefinition(Struct, metaclass=told_fields, frozen=True, kw_only=True):
    """A variable that a prompt or a tool reads."""

    name: str
    type: Literal["secret", "text"] = "secret"
    required: bool = False
    scoped: bool = False
    description: str = ""


def variable_problems(path: str, variables: object) -> Iterable[str]:
    """What is wrong with a list of ``VariableDefinition``s."""
    if isinstance(variables, str) or not isinstance(variables, Iterable):
        yield f"{path}: expected a list of VariableDefinitions"
        return
    seen: set[str] = set()
    for index, each in enumerate(variables):
        if not isinstance(each, VariableDefinition):
            yield f"{path}[{index}]: expected VariableDefinition, not {kind_of(each)}"
            continue
        if not isinstance(each.name, str) or not _NAME.fullmatch(each.name):
            yield f"{path}[{index}].name: expected letters, digits and '_', not {shown(each.name)}"
        elif each.name in seen:
            yield f"{path}[{index}]: the name {shown(each.name)} is taken"
        if each.type not in ("secret", "text"):
            yield f'{path}[{index}].type: "secret" or "text", not {shown(each.type)}'
        if problem := text_problem(each.description):
            yield f"{path}[{index}].description: {problem}"
        if isinstance(each.name, str):
            seen.add(each.name)


def env_problems(path: str, env: object) -> Iterable[str]:
    """What is wrong with a mapping of values."""
    if not isinstance(env, Mapping):
        yield f"{path}: expected a mapping of names to texts"
        return
    for name, value in env.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            told = shown(told_name(name) if isinstance(name, str) else name)
            yield f"{path}: {told} is no variable's name; use letters, digits and '_'"
        elif not isinstance(value, str):
            yield f"{path}.{name}: expected a text, not {kind_of(value)}"
        elif text_problem(value):  # Which says what is there, and that may be a secret.
            yield f"{path}.{name}: expected a text that UTF-8 can hold"


def told_name(name: str) -> str:
    """A name that is refused, as a message may show it: only the beginning of one that looks like
    no variable's name, for it may be a value that was given in the name's place."""
    if len(name) <= MAX_TOLD or _USUAL.fullmatch(name):
        return name
    return f"{name[:TOLD]}… ({len(name)} characters)"


def is_true(value: str | None) -> bool:
    """Whether a variable that enables a branch does so."""
    return value is not None and value.lower() in ("true", "1", "yes")


def placeholders(prompt: str) -> frozenset[str]:
    """The names that a prompt's text asks for."""
    return frozenset(_PLACEHOLDER.findall(prompt)) if "{{" in prompt else frozenset()


def fill_prompt(
    prompt: str, variables: Iterable[VariableDefinition], value_of: Callable[[str], str | None]
) -> str:
    """The prompt with the values of its ``text`` variables; what has none becomes empty."""
    if "{{" not in prompt:
        return prompt
    texts = {each.name for each in variables if each.type == "text"}

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        return (value_of(name) or "") if name in texts else found[0]

    return _PLACEHOLDER.sub(fill, prompt)


def resolve(
    name: str,
    *,
    own: Callable[[str], str | None],
    ancestors: Iterable[str],
    own_of: Callable[[str, str], str | None],
    is_scoped: bool,
    was_given: Callable[[str, str], bool],
    defaults: Iterable[Mapping[str, str]],
) -> str | None:
    """The value of a variable for one run, or ``None``.

    ``own_of(run_id, name)`` is an ancestor's own value; ``was_given(run_id, name)`` whether that
    run got, or itself declares, it as a scoped one.
    """
    value = own(name)
    if value is not None:
        return value
    for run_id in ancestors:
        value = own_of(run_id, name)
        if value is not None and (not is_scoped or was_given(run_id, name)):
            return value
    for env in defaults:
        if name in env:
            return env[name]
    return None
