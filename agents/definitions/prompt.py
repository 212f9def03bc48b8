"""``PromptDefinition``: one model's instructions, and which tools and subagents it may call."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.agents.compaction import Compaction, compaction_problems
from hubbub.agents.definitions.output import output_problems
from hubbub.agents.definitions.problems import (
    absent_or_named,
    id_problems,
    is_limit,
    keep_tuples,
    listed_problems,
    name_problems,
    text_problems,
)
from hubbub.agents.definitions.schema import read_schema
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.definitions.variables import (
    VariableDefinition,
    env_problems,
    placeholders,
    variable_problems,
)
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model import Model
from hubbub.agents.model_choice import ModelChoice, ModelSpec, choices_of, model_problems
from hubbub.agents.settings import ModelSettings
from hubbub.agents.state.spending import limits_problems
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import Limits
from hubbub.hub.masking.safe_repr import SafeRepr
from hubbub.hub.near_misses import shown, told_fields, unmade
from hubbub.hub.values import COUNTED

__all__ = [
    "Immediate",
    "PromptDefinition",
    "Resumable",
    "SubagentToolConfig",
]
SideName: TypeAlias = Literal["side_a", "side_b"]

CACHE_TIMES: Final = ("5m", "1h")
_SIDES: Final = ("side_a", "side_b")
_MAPPINGS: Final = (
    "init_user_message_property", "init_attachments_property", "init_agent_name_property",
    "optional",
)  # fmt: skip


# ── subagents ────────────────────────────────────────────────────────────────────────────────


class Resumable(Struct, metaclass=told_fields, frozen=True, kw_only=True):
    """A child that stays after its session and can be written to.

    ``receives_messages``: the child's side that sees the parent's later messages as ``user``.
    ``max_instances``: how many may live at once.  ``parent_communication="explicit"``: nothing
    is queued for the parent when a session ends; tools and hooks speak for themselves.
    """

    receives_messages: SideName | None = None
    max_instances: int | None = None
    parent_communication: Literal["implicit", "explicit"] = "implicit"


class Immediate(Struct, metaclass=told_fields, frozen=True, kw_only=True):
    """A child that is started as soon as its prompt becomes active.

    ``name_env`` and ``description_env`` name variables that give its name and first message;
    ``scoped_env`` lists variables copied into its scope, seen by its tools and hooks only.
    """

    name_env: str | None = None
    description_env: str | None = None
    scoped_env: Sequence[str] = ()


class SubagentToolConfig(Struct, metaclass=told_fields, frozen=True, kw_only=True):
    """An agent as a tool of a prompt: each call starts a run of it, a child.

    The agent is named and must be exposed; ``agent.as_tool(…)`` needs neither.  A ``dual_ai`` agent
    ends as its bindings say; an agent of one model or of code runs without a user, and its first
    final text, or its return value, is the result.

    Two facts make the four modes: ``blocking``, the caller waits for the child's session;
    ``resumable``, the child stays.  ``init_user_message_property`` (default ``message``),
    ``init_attachments_property`` and ``init_agent_name_property`` name the arguments that become
    the child's first message, files and name.  ``optional`` names a variable that must be
    ``true``, ``1`` or ``yes`` for the branch to exist.  Raises ``DefinitionError``.
    """

    name: str
    blocking: bool = True
    init_user_message_property: str | None = None
    init_attachments_property: str | None = None
    init_agent_name_property: str | None = None
    immediate: bool | Immediate = False
    optional: str | None = None
    resumable: Resumable | Literal[False] | None = False

    def __post_init__(self) -> None:
        problems = list(name_problems(self.name))
        problems.extend(absent_or_named("", self, *_MAPPINGS))
        if not isinstance(self.blocking, bool):
            problems.append("blocking: expected True or False")
        if isinstance(self.immediate, Immediate):
            keep_tuples(self.immediate, "scoped_env")
            problems.extend(_immediate_problems(self.immediate))
        elif not isinstance(self.immediate, bool):
            problems.append(
                f"immediate: expected True, False or Immediate(…){unmade(self.immediate)}"
            )
        if isinstance(self.resumable, Resumable):
            problems.extend(_resumable_problems(self.resumable))
        elif self.resumable is not False and self.resumable is not None:
            remedy = unmade(self.resumable)
            problems.append(f"resumable: expected False or Resumable(receives_messages=…){remedy}")
        problems.extend(text_problems("", self))
        if problems:
            raise DefinitionError(f"subagent tool {shown(self.name)}", problems)

    @property
    def is_immediate(self) -> bool:
        """Whether its agents may be started together with the agent that has it."""
        return self.immediate is not False

    @property
    def stays(self) -> Resumable | None:
        """How the child stays, if it does."""
        return self.resumable or None


# ── prompts ──────────────────────────────────────────────────────────────────────────────────


class PromptDefinition(SafeRepr, frozen=True, kw_only=True):
    """A system prompt with the model that reads it and the tools it may use.

    * ``model``: ``"provider:name"``, the name of one of ``Runtime(models=…)``, or a ``Model``; or a
      list of these and of ``ModelChoice``s, of which the next is asked when one fails for good.
    * ``tools``: ``Tool`` objects, ``mcp(…)`` servers, names of ``Runtime(tools=…)``, names of
      exposed agents, and ``SubagentToolConfig``s.
    * ``variables``: what the prompt reads; ``{{NAME}}`` in its text is replaced by the value of
      the ``text`` variable of that name.  ``env``: values for what is not set otherwise.
    * ``hooks``: ids of ``Runtime(hooks=…)``; a list, also an empty one, replaces the agent's.
    * ``required_schema``: a JSON Schema or a Struct, for the arguments with which an agent whose
      side A reads this prompt is called as a tool.
    * ``settings`` say how the model is to answer; what it lacks is refused by a runtime.
    * ``provider_options`` go into the provider's request as they are, and win over ``settings``.
    * ``cache``: whether the provider is asked to keep what it has read, so that the next request
      of the conversation pays for the new part alone: for five minutes since its last use (``True``
      and ``"5m"``), for an hour where it offers that (``"1h"``), or not (``False``).
    * ``compaction``: when the older messages of a long conversation become a summary; ``True`` is
      ``Compaction()``, with ``False`` they never do by themselves.
    * ``output``: what each answer is: a Struct, dataclass or TypedDict type, a JSON Schema of an
      object, or a pydantic model.  The model may call tools first; its answer, checked, is the
      turn's ``output``.  What does not fit it is told, twice at most; then the turn fails.
    * ``limits``: what one turn may use; reaching one of them ends the turn (see ``Limits``).
    * ``agents``: names of exposed ``ai_human`` agents that ``use_agent`` may give the conversation
      to; ``skills``: ``Skill``s, or names of ``Runtime(skills=…)``, for ``use_skill`` (IA).

    Raises ``DefinitionError`` listing every problem.
    """

    name: str
    prompt: str
    model: ModelSpec
    tools: Sequence[Tool[..., Any] | McpServer | SubagentToolConfig | str] = ()
    agents: Sequence[str] = ()
    skills: Sequence[Skill | str] = ()
    variables: Sequence[VariableDefinition] = ()
    env: Mapping[str, str] = {}
    hooks: Sequence[str] | None = None
    required_schema: Mapping[str, Any] | type | None = None
    parallel_tool_calls: bool = False
    tool_choice: str = "auto"
    provider_options: Mapping[str, Any] = {}
    cache: bool | Literal["5m", "1h"] = True
    settings: ModelSettings | None = None
    compaction: Compaction | bool = True
    output: type | Mapping[str, Any] | None = None
    limits: Limits | None = None

    def __post_init__(self) -> None:
        problems = list(name_problems(self.name))
        if not isinstance(self.prompt, str):
            problems.append("prompt: expected a text")
        _keep_model(self)
        problems.extend(model_problems(self.model))
        keep_tuples(self, "tools", "agents", "skills", "variables", "hooks")
        problems.extend(_tool_problems(self.tools))
        problems.extend(listed_problems("agents", self.agents, str, "the name of an agent"))
        problems.extend(listed_problems("skills", self.skills, Skill | str, "a Skill or its name"))
        problems.extend(variable_problems("variables", self.variables))
        problems.extend(env_problems("env", self.env))
        if self.hooks is not None:
            problems.extend(id_problems("hooks", self.hooks))
        problems.extend(_option_problems(self))
        if self.required_schema is not None:
            for each in read_schema(self.required_schema)[2]:
                joint = "." if each.startswith("properties") else ": "
                problems.append(f"required_schema{joint}{each}")
        if self.output is not None:
            problems.extend(_output_problems(self))
        problems.extend(text_problems("", self))
        if not problems:
            problems.extend(_placeholder_problems(self))
        if problems:
            raise DefinitionError(f"prompt {shown(self.name)}", problems)

    @property
    def choices(self) -> tuple[ModelChoice, ...]:
        """Its models in order, each with the settings and options that hold for it."""
        return choices_of(self.model, self.settings, self.provider_options)


def _keep_model(prompt: PromptDefinition) -> None:
    """A list becomes a tuple, and one of one model the model."""
    model: Any = prompt.model
    if isinstance(model, ModelChoice):
        model = (model,)
    if isinstance(model, list | tuple) and not isinstance(model, Model):
        model = tuple(model)
        if len(model) == 1:
            (model,) = model
            if isinstance(model, ModelChoice):
                if model.settings is not None:
                    force_setattr(prompt, "settings", model.settings)
                if model.provider_options is not None:
                    force_setattr(prompt, "provider_options", model.provider_options)
                model = model.model
        force_setattr(prompt, "model", model)


# ── problems ─────────────────────────────────────────────────────────────────────────────────


def _tool_problems(tools: object) -> Iterable[str]:
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        yield "tools: give a list of tools or of their names"
        return
    for index, tool in enumerate(tools):
        if not isinstance(tool, Tool | McpServer | str | SubagentToolConfig):
            what = getattr(tool, "__name__", type(tool).__name__)
            hint = unmade(tool)[2:] or "decorate the function with @tool"
            if hasattr(tool, "as_tool"):
                what, hint = "an agent", "give agent.as_tool()"
            yield f"tools[{index}]: {what} is not a tool; {hint}"


def _option_problems(prompt: PromptDefinition) -> Iterable[str]:
    if not isinstance(prompt.parallel_tool_calls, bool):
        yield "parallel_tool_calls: expected True or False"
    if not isinstance(prompt.tool_choice, str):
        yield 'tool_choice: expected "auto", "none", "any" or the name of a tool'
    options: object = prompt.provider_options
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        yield "provider_options: expected a mapping of names to JSON values"
    cache: object = prompt.cache
    if not isinstance(cache, bool) and not (isinstance(cache, str) and cache in CACHE_TIMES):
        yield f'cache: expected True, False, "5m" or "1h", not {shown(cache)}'
    if not isinstance(prompt.settings, ModelSettings | None):
        yield f"settings: expected ModelSettings(…){unmade(prompt.settings)}"
    yield from compaction_problems(prompt.compaction)
    yield from limits_problems("limits", prompt.limits)


def _output_problems(prompt: PromptDefinition) -> Iterable[str]:
    for each in output_problems(prompt.output):
        yield f"output{'.' if each.startswith('properties') else ': '}{each}"
    if isinstance(prompt.tool_choice, str) and prompt.tool_choice not in ("auto", "none", "any"):
        yield 'tool_choice: calls of one tool at each step leave no answer for output; give "auto"'
    for name in ("agents", "skills"):
        if getattr(prompt, name):
            yield (
                f"{name}: what takes the conversation over answers in words of its own, which "
                "are no output; give agents as tools (agent.as_tool()), or leave output out"
            )


def _placeholder_problems(prompt: PromptDefinition) -> Iterable[str]:
    kinds = {each.name: each.type for each in prompt.variables}
    for name in sorted(placeholders(prompt.prompt)):
        if kinds.get(name) == "secret":
            yield f"prompt: {{{{{name}}}}} is secret; only a text variable enters a prompt"


def _immediate_problems(immediate: Immediate) -> Iterable[str]:
    yield from absent_or_named("immediate", immediate, "name_env", "description_env")
    names: object = immediate.scoped_env
    if not isinstance(names, tuple) or not all(isinstance(each, str) and each for each in names):
        yield "immediate.scoped_env: expected a list of the names of variables"


def _resumable_problems(resumable: Resumable) -> Iterable[str]:
    if resumable.receives_messages is None:
        yield "resumable.receives_messages: required; 'side_a' or 'side_b'"
    elif resumable.receives_messages not in _SIDES:
        wrong: object = resumable.receives_messages
        yield f"resumable.receives_messages: 'side_a' or 'side_b', not {shown(wrong)}"
    if not is_limit(resumable.max_instances):
        yield f"resumable.max_instances: {COUNTED}"
    if resumable.parent_communication not in ("implicit", "explicit"):
        wrong = resumable.parent_communication
        yield f"resumable.parent_communication: 'implicit' or 'explicit', not {shown(wrong)}"
