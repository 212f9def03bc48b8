"""What a skill is: instructions, a whitelist of tools and limits, checked when it is made (IA).

A skill is called with ``use_skill(name, message)`` and gets the conversation, as an agent named
``skill:NAME``, until it completes.  A *passthrough* skill is carried out by one tool instead:
nothing is pushed.  How a skill fits together with tools and agents is checked where they are put
together, in ``agents/resolution/definitions.py``; ``runtime/loading/skills.py`` reads skills from
files.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hubbub.agents.built_in import BUILT_IN, USE_AGENT, USE_SKILL
from hubbub.agents.definitions.problems import keep_tuples, listed_problems, text_problems
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.definitions.variables import (
    VariableDefinition,
    env_problems,
    placeholders,
    variable_problems,
)
from hubbub.agents.model import Model
from hubbub.agents.model_choice import one_model_problems
from hubbub.hub.errors import DefinitionError
from hubbub.hub.masking.safe_repr import SafeRepr
from hubbub.hub.near_misses import shown
from hubbub.hub.values import COUNTED, is_count

__all__ = ["SKILL_PREFIX", "Skill", "passthrough_problems"]

SKILL_PREFIX: Final = "skill:"
"""What the agent of a skill is called before the skill's name."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class Skill(SafeRepr, frozen=True, kw_only=True):
    """Instructions that an agent hands the conversation to, until they are carried out.

    * ``description``: what the model that may call it reads.  ``instructions``: the system
      prompt of the agent that carries it out; ``{{NAME}}`` is a ``text`` variable, as in a prompt.
    * ``tools``: a whitelist of ``Tool`` objects and of names of ``Runtime(tools=…)``, and
      ``"use_agent"``.  ``None``: every tool that the runtime knows.  ``()``: none.  ``complete``
      is there in any case, ``use_skill`` never.
    * ``agents``: whom ``use_agent`` may call.  ``None``: every exposed ``ai_human`` agent, unless
      ``tools`` leaves ``use_agent`` out.  ``()``: none.
    * ``model``: as in a prompt; ``""`` is the model of the caller of the skill.
    * ``max_iterations``: model calls from its beginning, or from what the user says, to its next
      word for the user; over it the skill is popped with an error for its caller.
    * ``variables``: what it reads.  ``env``: values for what is not set otherwise.
    * ``passthrough``: a tool, or the name of one, that is the skill: it is called with the
      ``message``, and what it returns is the result of the call.  Such a skill has no model, so
      ``tools``, ``agents`` and ``model`` are refused; its instructions are for people.

    Raises ``DefinitionError`` with every problem and its path.
    """

    name: str
    description: str
    instructions: str = ""
    tools: Sequence[Tool[..., Any] | str] | None = None
    agents: Sequence[str] | None = None
    model: str | Model = ""
    max_iterations: int = 25
    variables: Sequence[VariableDefinition] = ()
    env: Mapping[str, str] = {}
    passthrough: Tool[..., Any] | str = ""

    def __post_init__(self) -> None:
        problems: list[str] = []
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            problems.append("name: expected 1 to 100 letters, digits, '_', '-' or '.'")
        if not isinstance(self.description, str) or not self.description.strip():
            problems.append("description: required; say when to use the skill")
        keep_tuples(self, "tools", "agents", "variables")
        if self.tools is not None:
            wanted = "a tool, made with @tool, or the name of one"
            problems.extend(listed_problems("tools", self.tools, Tool | str, wanted))
        if self.agents is not None:
            problems.extend(listed_problems("agents", self.agents, str, "the name of an agent"))
        problems.extend(_skill_calls(self))
        if not isinstance(self.model, str) or self.model:
            problems.extend(one_model_problems("model", self.model))
        if not is_count(self.max_iterations):
            problems.append(f"max_iterations: {COUNTED}")
        problems.extend(variable_problems("variables", self.variables))
        problems.extend(env_problems("env", self.env))
        problems.extend(_path_problems(self))
        problems.extend(text_problems("", self))
        if not problems:
            problems.extend(_placeholder_problems(self))
        if problems:
            raise DefinitionError(f"skill {shown(self.name)}", problems)

    @property
    def agent_name(self) -> str:
        """The name of the agent that carries it out."""
        return f"{SKILL_PREFIX}{self.name}"

    @property
    def is_passthrough(self) -> bool:
        """Whether one tool carries it out, and nothing is pushed."""
        return self.passthrough != ""


def passthrough_problems(tool: Tool[..., Any]) -> Iterable[str]:
    """Why a tool cannot be a passthrough skill: it is called with a text, ``message``, alone."""
    if tool.name in BUILT_IN:
        yield f"passthrough: {tool.name!r} belongs to the conversation; name a tool of your own"
    known = tool.schema.get("properties", {})
    if "message" not in known:
        yield f"passthrough: {tool.name!r} has no parameter `message`; add `message: str`"
    elif not _takes_text(known["message"]):
        yield f"passthrough: `message` of {tool.name!r} takes no text; make it a str"
    others = [name for name in tool.schema.get("required", ()) if name != "message"]
    if others:
        names = ", ".join(f"`{name}`" for name in others)
        yield f"passthrough: {tool.name!r} also requires {names}; give them defaults"


def _takes_text(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", "string")
    return "string" in ([kinds] if isinstance(kinds, str) else kinds)


def _skill_calls(skill: Skill) -> Iterable[str]:
    """A skill may not call skills, and calls agents through ``use_agent`` only."""
    listed = skill.tools if isinstance(skill.tools, tuple) else ()
    agents = skill.agents if isinstance(skill.agents, tuple) else ()
    tools = [_named(each) for each in listed if isinstance(each, Tool | str)]
    if USE_SKILL in tools:
        yield f"tools[{tools.index(USE_SKILL)}]: a skill may not call skills; leave it out"
    for index, name in enumerate(agents):
        if isinstance(name, str) and name.startswith(SKILL_PREFIX):
            yield f"agents[{index}]: {shown(name)} is a skill; a skill may not call skills"
    if agents and skill.tools is not None and USE_AGENT not in tools:
        yield "agents: its tools lack 'use_agent', so it can call none; add it, or leave agents out"


def _path_problems(skill: Skill) -> Iterable[str]:
    """Whether it is carried out by a model or by a tool, and by one of them only."""
    if not isinstance(skill.instructions, str):
        yield "instructions: expected a text"
        return
    if not isinstance(skill.passthrough, Tool | str):
        what = getattr(skill.passthrough, "__name__", type(skill.passthrough).__name__)
        yield f"passthrough: {what} is not a tool; decorate the function with @tool"
        return
    if not skill.is_passthrough:
        if not skill.instructions.strip():
            yield "instructions: required; say what is to be done, or name a passthrough tool"
        return
    if isinstance(skill.passthrough, Tool):
        yield from passthrough_problems(skill.passthrough)
    elif skill.passthrough in BUILT_IN or not skill.passthrough.strip():
        wrong = skill.passthrough
        yield f"passthrough: {shown(wrong)} is no tool of your own; name one of Runtime(tools=…)"
    for field, absent in (("tools", None), ("agents", None), ("model", "")):
        if getattr(skill, field) != absent:
            yield f"{field}: a passthrough skill has no model that could use it; leave it out"


def _placeholder_problems(skill: Skill) -> Iterable[str]:
    secrets = {each.name for each in skill.variables if each.type == "secret"}
    for name in sorted(placeholders(skill.instructions) & secrets):
        yield f"instructions: {{{{{name}}}}} is secret; only a text variable enters a prompt"


def _named(tool: Tool[..., Any] | str) -> str:
    return tool if isinstance(tool, str) else tool.name
