"""What an agent is: definitions, each checked when it is made.

One ``AgentDefinition`` has exactly one of two bodies: ``execute``, a function that
is the agent (AP's code agent), or ``side_a``, a model with a prompt (SA's agent), with ``side_b``
where two models talk to each other.  How definitions fit together is checked where they are put
together, in ``agents/resolution/definitions.py``.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias

from msgspec import Struct

from hubbub.agents.definitions.output import Output_co
from hubbub.agents.definitions.problems import (
    absent_or_named,
    id_problems,
    is_limit,
    keep_tuples,
    name_problems,
    text_problems,
)
from hubbub.agents.definitions.prompt import (
    Immediate,
    PromptDefinition,
    Resumable,
    SubagentToolConfig,
)
from hubbub.agents.definitions.variables import env_problems
from hubbub.agents.state.spending import limits_problems
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import Limits
from hubbub.hub.masking.safe_repr import SafeRepr
from hubbub.hub.near_misses import kind_of, shown, told_fields, unmade
from hubbub.hub.tasks.callables import is_async
from hubbub.hub.values import COUNTED

__all__ = [
    "AgentDefinition",
    "AgentTool",
    "Execute",
    "SessionToolBinding",
    "SideConfig",
    "agent",
]

Execute: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""What a code agent runs: its input and its ``RunContext``, to its output."""
_TEXTS: Final = (
    "title", "description", "icon", "tool_description", "package_name", "version", "author",
    "license",
)  # fmt: skip


# ── sides ────────────────────────────────────────────────────────────────────────────────────


class SessionToolBinding(Struct, metaclass=told_fields, frozen=True):
    """A tool that controls the session's life.

    ``message_property`` and ``attachments_property`` name fields of the call's arguments: the
    message, and a path or a list of paths of the run's own files.  Without ``message_property``
    the message is the tool's result.
    """

    name: str
    message_property: str | None = None
    attachments_property: str | None = None


class SideConfig(Struct, metaclass=told_fields, frozen=True, kw_only=True):
    """One side of an agent.

    * ``prompt``: a ``PromptDefinition`` or the name of one of ``Runtime(prompts=…)``.
    * ``stop_on_response``: text without tool calls ends the side's turn.
    * ``stop_tool``: a call of it ends the turn; the other side gets
      ``stop_tool_response_property`` of its result, else the whole result.
    * ``max_steps``: model calls of one turn (default 250); reaching it ends the turn.
    * ``session_stop``, ``session_fail``, ``session_status``: tools that end the session, or say
      what it is at; a name or a ``SessionToolBinding``.
    """

    prompt: str | PromptDefinition
    label: str = ""
    stop_on_response: bool = True
    stop_tool: str | None = None
    stop_tool_response_property: str | None = None
    max_steps: int | None = None
    session_stop: str | SessionToolBinding | None = None
    session_fail: str | SessionToolBinding | None = None
    session_status: str | SessionToolBinding | None = None

    def binding(self, which: str) -> SessionToolBinding | None:
        """``session_stop``, ``session_fail`` or ``session_status``, in the object form."""
        found = getattr(self, which)
        return SessionToolBinding(found) if isinstance(found, str) else found


BINDINGS: Final = ("session_stop", "session_fail", "session_status")


# ── agents ───────────────────────────────────────────────────────────────────────────────────


class AgentDefinition(SafeRepr, Generic[Output_co], frozen=True, kw_only=True):
    """An agent, by name; ``AgentDefinition[T]`` is one whose outputs are ``T``s.

    * ``execute(input, ctx)``: a code agent.  With ``emits_start_complete`` it emits
      ``agent:start`` and ``agent:complete`` itself.  ``on_restart`` says what becomes of a run
      that a crash cut off: ``"fail"`` (default) ends it, ``"resume"`` executes it again with
      the same input, as a further attempt of the same run.
    * ``side_a``: a model agent.  ``type="ai_human"``: the user is its other side.
      ``type="dual_ai"``: ``side_b`` is, both being models; ``max_session_turns`` bounds the turns
      of both (default 250).
    * ``expose_as_tool``: other prompts may name it in their ``tools``, described by
      ``tool_description``, else ``description``.  By its plain name an ``ai_human`` agent is
      handed the conversation, any other is started as a child; by a ``SubagentToolConfig`` each is
      started as a child.  ``as_tool`` needs neither this nor a name.
    * ``supports_checkpointing``: the agent has the tool ``interrupt(prompt, options=[])``, which
      pauses it until the user has answered, over restarts.
    * ``env``: values of variables not set otherwise.  ``hooks``: ids, for prompts without their
      own list.
    * ``run_limits``: what each run of it may use in all, without the runs below it; of code its
      own conversations with models (see ``Limits``).
    * ``package_name``, ``version``, ``author``, ``license`` matter when it is packed, only.

    Raises ``DefinitionError`` with every problem and its path.
    """

    name: str
    execute: Execute | None = None
    side_a: SideConfig | None = None
    side_b: SideConfig | None = None
    type: Literal["ai_human", "dual_ai"] = "ai_human"
    max_session_turns: int | None = None
    emits_start_complete: bool = False
    on_restart: Literal["fail", "resume"] = "fail"
    title: str = ""
    description: str = ""
    icon: str = ""
    expose_as_tool: bool = False
    supports_checkpointing: bool = False
    tool_description: str = ""
    env: Mapping[str, str] = {}
    hooks: Sequence[str] = ()
    run_limits: Limits | None = None
    package_name: str = ""
    version: str = ""
    author: str = ""
    license: str = ""

    def __post_init__(self) -> None:
        problems = list(name_problems(self.name))
        if self.type not in ("ai_human", "dual_ai"):
            problems.append(f"type: 'ai_human' or 'dual_ai', not {shown(self.type)}")
        if self.execute is None and self.side_a is None:
            problems.append("execute, side_a: give one of them")
        elif self.execute is not None and self.side_a is not None:
            problems.append("execute, side_a: give one of them, not both")
        if self.is_code:
            problems.extend(_code_problems(self))
        else:
            for which in ("side_a", "side_b"):
                if (side := getattr(self, which)) is not None:
                    problems.extend(_side_problems(which, side))
            problems.extend(_model_problems(self))
        problems.extend(env_problems("env", self.env))
        keep_tuples(self, "hooks")
        problems.extend(id_problems("hooks", self.hooks))
        problems.extend(
            f"{field}: expected True or False"
            for field in ("emits_start_complete", "expose_as_tool", "supports_checkpointing")
            if not isinstance(getattr(self, field), bool)
        )
        problems.extend(
            f"{field}: expected a text"
            for field in _TEXTS
            if not isinstance(getattr(self, field), str)
        )
        problems.extend(limits_problems("run_limits", self.run_limits))
        if self.on_restart not in ("fail", "resume"):
            problems.append(f'on_restart: "fail" or "resume", not {shown(self.on_restart)}')
        problems.extend(text_problems("", self))
        if problems:
            raise DefinitionError(f"agent {shown(self.name)}", problems)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is valid, but probably not what its author wants; a runtime logs it."""
        if self.is_two_sided and self.max_session_turns is None:
            return ("max_session_turns: not given for dual_ai; a session may take 250 turns",)
        return ()

    @property
    def is_code(self) -> bool:
        """Whether its runs execute a function instead of talking to a model."""
        return self.execute is not None

    @property
    def is_two_sided(self) -> bool:
        """Whether a second prompt answers the first one in the user's place."""
        return self.type == "dual_ai"

    @property
    def tool_text(self) -> str:
        """What a model reads of the agent as a tool."""
        return self.tool_description or self.description

    def as_tool(
        self,
        *,
        blocking: bool = True,
        resumable: bool | Resumable = False,
        init_user_message_property: str | None = None,
        init_attachments_property: str | None = None,
        init_agent_name_property: str | None = None,
        immediate: bool | Immediate = False,
        optional: str | None = None,
    ) -> "AgentTool":
        """Make a subagent of it, for the ``tools`` of another agent's prompt.

            Agent("lead", "You lead.", model=…, tools=[researcher.as_tool(blocking=False)])

        The agent need not be exposed, nor given to the runtime: what an agent reaches in this way
        is known with it.  Each call starts a run of its own, without a user: an agent of one model
        ends its session with its first text without calls, a code agent with its return value, and
        that is the result.  ``blocking``: the call waits for it; else it comes later, as a message.
        ``resumable``: the child stays and may be written to; ``True`` is
        ``Resumable(receives_messages="side_a")``.  The rest as for ``SubagentToolConfig``.

        Raises ``DefinitionError``.
        """
        return AgentTool(
            name=self.name,
            agent=self,
            blocking=blocking,
            resumable=Resumable(receives_messages="side_a") if resumable is True else resumable,
            init_user_message_property=init_user_message_property,
            init_attachments_property=init_attachments_property,
            init_agent_name_property=init_agent_name_property,
            immediate=immediate,
            optional=optional,
        )


class AgentTool(SubagentToolConfig, frozen=True, kw_only=True):
    """A subagent together with its definition; ``AgentDefinition.as_tool`` makes it."""

    agent: AgentDefinition

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.agent, AgentDefinition) or self.agent.name != self.name:
            raise DefinitionError(
                f"subagent tool {shown(self.name)}", ["agent: give agent.as_tool()"]
            )

    @property
    def by_name(self) -> SubagentToolConfig:
        """The same by the agent's name only."""
        fields = SubagentToolConfig.__struct_fields__
        return SubagentToolConfig(**{each: getattr(self, each) for each in fields})


def agent(
    name: str,
    *,
    emits_start_complete: bool = False,
    on_restart: Literal["fail", "resume"] = "fail",
    description: str = "",
    expose_as_tool: bool = False,
    run_limits: Limits | None = None,
) -> Callable[[Execute], AgentDefinition]:
    """Make a code agent of ``async def f(input, ctx)``.

    @agent("echo")
    async def echo(input: str, ctx) -> str:
        return input
    """

    if not isinstance(name, str):
        raise DefinitionError(
            "agent", [f'name: expected a text, not {kind_of(name)}; write @agent("name")']
        )

    def decorate(execute: Execute) -> AgentDefinition:
        return AgentDefinition(
            name=name,
            execute=execute,
            emits_start_complete=emits_start_complete,
            on_restart=on_restart,
            description=description or (execute.__doc__ or "").strip(),
            expose_as_tool=expose_as_tool,
            run_limits=run_limits,
        )

    return decorate


# ── problems ─────────────────────────────────────────────────────────────────────────────────


def _code_problems(agent: AgentDefinition) -> Iterable[str]:
    if not callable(agent.execute) or isinstance(agent.execute, type):
        yield "execute: expected an async function (input, ctx)"
    elif not is_async(agent.execute):
        name = getattr(agent.execute, "__qualname__", type(agent.execute).__name__)
        yield f"execute: {name} is not async; write `async def {name}(input, ctx)`"
    elif not _takes(agent.execute, 2):
        name = getattr(agent.execute, "__qualname__", type(agent.execute).__name__)
        yield f"execute: {name} takes something else; write `async def {name}(input, ctx)`"
    if agent.side_a is None:
        for field in ("side_b", "max_session_turns", "hooks", "supports_checkpointing"):
            value = getattr(agent, field)
            if value or (value is not None and field in ("side_b", "max_session_turns")):
                yield f"{field}: belongs to a model agent"
        if agent.type == "dual_ai":
            yield "type: 'dual_ai' belongs to a model agent"


def _takes(function: Callable[..., Any], number: int) -> bool:
    """Whether it can be called with so many arguments, as far as it says."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(number))
    except TypeError:
        return False
    return True


def _model_problems(agent: AgentDefinition) -> Iterable[str]:
    """Those of a model agent, but not of its sides."""
    if agent.type == "dual_ai" and agent.side_b is None:
        yield "side_b: required for dual_ai"
    if agent.type == "ai_human" and agent.side_b is not None:
        yield "side_b: the other side of ai_human is the user; give type='dual_ai'"
    if not is_limit(agent.max_session_turns):
        yield f"max_session_turns: {COUNTED}"
    if agent.supports_checkpointing and agent.type == "dual_ai":
        yield "supports_checkpointing: needs a user to ask; 'dual_ai' has none"
    if agent.emits_start_complete:
        yield "emits_start_complete: belongs to a code agent"
    if agent.on_restart != "fail":
        yield "on_restart: belongs to a code agent; model agents always resume"


def _side_problems(path: str, side: object) -> Iterable[str]:
    if not isinstance(side, SideConfig):
        yield f"{path}: expected a SideConfig, not {kind_of(side)}"
        return
    if not isinstance(side.prompt, str | PromptDefinition) or not side.prompt:
        yield f"{path}.prompt: expected a PromptDefinition or its name{unmade(side.prompt)}"
    if not isinstance(side.label, str):
        yield f"{path}.label: expected a text"
    if not is_limit(side.max_steps):
        yield f"{path}.max_steps: {COUNTED}"
    if not isinstance(side.stop_on_response, bool):
        yield f"{path}.stop_on_response: expected True or False"
    yield from absent_or_named(path, side, "stop_tool", "stop_tool_response_property")
    if side.stop_tool_response_property and not side.stop_tool:
        yield f"{path}.stop_tool_response_property: there is no stop_tool"
    bound: dict[str, str] = {}
    for which in BINDINGS:
        binding = getattr(side, which)
        if binding is None:
            continue
        name = binding.name if isinstance(binding, SessionToolBinding) else binding
        if not isinstance(name, str) or not name:
            yield f"{path}.{which}: expected a tool's name or a SessionToolBinding{unmade(binding)}"
            continue
        if isinstance(binding, SessionToolBinding):
            fields = ("message_property", "attachments_property")
            yield from absent_or_named(f"{path}.{which}", binding, *fields)
        if name in bound:
            yield f"{path}.{which}: {name!r} is {bound[name]} already"
        bound[name] = which
