"""``Agent``: a whole agent of one model in one call.

    Agent(name, prompt, model=…)  ──►  AgentDefinition(name, side_a=SideConfig(PromptDefinition(…)))

Rules
-----
* It makes what the long form makes, and nothing else: the two are equal.
* The options are the fields of the three layers.  ``env`` and ``hooks``, which prompt and agent
  both have, are the agent's.
* The prompt has the agent's name.  Another prompt of that name is refused where both are put
  together.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack, overload

from hubbub.agents.compaction import Compaction
from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig
from hubbub.agents.definitions.output import Output
from hubbub.agents.definitions.prompt import PromptDefinition, SubagentToolConfig
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model_choice import ModelSpec
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import Limits
from hubbub.hub.near_misses import did_you_mean, shown

__all__ = ["Agent", "AgentOptions"]


class AgentOptions(TypedDict, total=False):
    """What ``Agent`` takes besides name, prompt, model, tools and output; each may be left out.

    They are explained where they are fields: ``PromptDefinition`` has those of the first group,
    ``SideConfig`` those of the second, ``AgentDefinition`` those of the third.
    """

    agents: Sequence[str]
    skills: Sequence[Skill | str]
    variables: Sequence[VariableDefinition]
    required_schema: Mapping[str, Any] | type | None
    parallel_tool_calls: bool
    tool_choice: str
    provider_options: Mapping[str, Any]
    cache: bool | Literal["5m", "1h"]
    settings: ModelSettings | None
    compaction: Compaction | bool
    limits: Limits | None

    label: str
    stop_on_response: bool
    stop_tool: str | None
    stop_tool_response_property: str | None
    max_steps: int | None
    session_stop: str | SessionToolBinding | None
    session_fail: str | SessionToolBinding | None
    session_status: str | SessionToolBinding | None

    title: str
    description: str
    icon: str
    expose_as_tool: bool
    supports_checkpointing: bool
    tool_description: str
    env: Mapping[str, str]
    hooks: Sequence[str]
    run_limits: Limits | None
    package_name: str
    version: str
    author: str
    license: str


_OPTIONS: Final = tuple(AgentOptions.__annotations__)
_OF_AGENT: Final = frozenset(AgentDefinition.__struct_fields__)
_OF_SIDE: Final = frozenset(SideConfig.__struct_fields__) - _OF_AGENT
_OF_PROMPT: Final = frozenset(PromptDefinition.__struct_fields__) - _OF_AGENT - _OF_SIDE


@overload
def Agent(
    name: str,
    prompt: str,
    *,
    model: ModelSpec,
    tools: Sequence[Tool[..., Any] | McpServer | SubagentToolConfig | str] = (),
    output: type[Output],
    **options: Unpack[AgentOptions],
) -> AgentDefinition[Output]: ...
@overload
def Agent(
    name: str,
    prompt: str,
    *,
    model: ModelSpec,
    tools: Sequence[Tool[..., Any] | McpServer | SubagentToolConfig | str] = (),
    output: Mapping[str, Any],
    **options: Unpack[AgentOptions],
) -> AgentDefinition[dict[str, Any]]: ...
@overload
def Agent(
    name: str,
    prompt: str,
    *,
    model: ModelSpec,
    tools: Sequence[Tool[..., Any] | McpServer | SubagentToolConfig | str] = (),
    output: None = None,
    **options: Unpack[AgentOptions],
) -> AgentDefinition[str]: ...
def Agent(  # noqa: N802  # What it makes is an agent: it is called like a class.
    name: str,
    prompt: str,
    *,
    model: ModelSpec,
    tools: Sequence[Tool[..., Any] | McpServer | SubagentToolConfig | str] = (),
    output: type | Mapping[str, Any] | None = None,
    **options: Unpack[AgentOptions],
) -> AgentDefinition[Any]:
    """Make an agent of one model.  A function; what it returns is an ``AgentDefinition``.

        Agent("support", "You help customers.", model="anthropic:NAME", tools=[lookup, refund])

    ``prompt`` is the text of its instructions; ``output`` the type of its answers, which type
    checkers know from then on (see ``PromptDefinition``).  The ``options`` are listed in
    ``AgentOptions``.  A runtime takes the agent like any other definition, also together with
    agents in long form.
    For a second model on the other side (``dual_ai``), write the long form.

    Raises ``DefinitionError`` with every problem, and its path in this call.
    """
    problems = list(_unknown(options))
    definition: str | PromptDefinition = "prompt"
    try:
        definition = PromptDefinition(
            name=name, prompt=prompt, model=model, tools=tools, output=output,
            **_chosen(options, _OF_PROMPT),
        )  # fmt: skip
    except DefinitionError as error:
        problems += error.problems
    try:
        made = AgentDefinition(
            name=name,
            side_a=SideConfig(prompt=definition, **_chosen(options, _OF_SIDE)),
            **_chosen(options, _OF_AGENT),
        )
    except DefinitionError as error:
        problems += (each.removeprefix("side_a.") for each in error.problems)
    if problems:
        raise DefinitionError(f"agent {shown(name)}", list(dict.fromkeys(problems)))
    return made


def _chosen(options: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    return {each: options[each] for each in fields if each in options and each in _OPTIONS}


def _unknown(options: Iterable[str]) -> Iterable[str]:
    for each in options:
        if each not in _OPTIONS:
            known = ("name", "prompt", "model", "tools", "output", *_OPTIONS)
            yield f"{each}: Agent has no such option{did_you_mean(each, known)}"
