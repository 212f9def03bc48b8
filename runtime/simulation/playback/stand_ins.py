"""Stand-ins: agents that can do what a recording says was done, made from it alone.

For a recording whose own agents are not at hand.  Prompts are not known; what the agents had shows
in what they did: which tools they called, whom they began and how, which calls ended a session.
Limits (``max_steps``, ``max_session_turns``) show nowhere, so the stand-ins have the default ones.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
from msgspec import Struct, field, structs

from hubbub.agents.built_in import BUILT_IN, INTERRUPT, USE_AGENT, USE_SKILL
from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig
from hubbub.agents.definitions.approval import Approval
from hubbub.agents.definitions.arguments import Arguments
from hubbub.agents.definitions.prompt import PromptDefinition, Resumable, SubagentToolConfig
from hubbub.agents.definitions.skills import SKILL_PREFIX, Skill
from hubbub.agents.definitions.tools import Tool, tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.mcp_server import ListedTools, McpServer
from hubbub.agents.model import Model, ToolSpec, parse_arguments
from hubbub.hub import events as e
from hubbub.hub.events import ToolCall
from hubbub.hub.values import decode_value
from hubbub.runtime.simulation.playback.recorded_outputs import RecordedOutputs, is_answer
from hubbub.runtime.simulation.playback.recording import RecordedRun, Recording, is_spawned
from hubbub.runtime.simulation.playback.replies import Replies, recorded_tool
from hubbub.runtime.simulation.story.setup import Setup

__all__ = ["recorded_server", "stand_ins"]

UNKNOWN: Final = "(made from a recording: the prompt is not known)"
TOLD: Final = (e.AgentText, e.AgentStatus, e.AgentStep, e.AgentToolStart, e.AgentToolComplete,
               e.AgentMessage, e.SessionPrompt, e.SessionPromptEnd)  # fmt: skip
"""What a run of code is seen doing, its conversations with models included."""

DELEGATING: Final = (e.AgentChild, e.AgentMessage, e.AgentHandoff, e.SessionVariables)


class _Side(Struct):
    """What the recording shows of one side of an agent."""

    called: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Its own tools, with the arguments that were seen."""
    children: dict[str, SubagentToolConfig] = field(default_factory=dict)
    agents: dict[str, None] = field(default_factory=dict)
    skills: dict[str, None] = field(default_factory=dict)
    handoffs: dict[str, None] = field(default_factory=dict)
    bound: dict[str, SessionToolBinding] = field(default_factory=dict)
    stop_tool: str | None = None
    asks: bool = False
    is_parallel: bool = False


class _Asked(Struct):
    """What the recording shows of a tool about whose calls somebody was asked."""

    is_external: bool = False
    timeout: float | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    """The arguments of the calls that a person was asked to approve."""

    def needs_approval(self, **arguments: Any) -> bool:
        """Whether a call with these arguments was asked about."""
        return arguments in self.calls


class _Agent(Struct):
    """What the recording shows of an agent."""

    is_code: bool = False
    is_two_sided: bool = False
    is_typed: bool = False
    """Whether it answers with values."""
    sides: dict[str, _Side] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    """The arguments with which it was called as a tool."""
    message: str = "message"
    variables: dict[str, None] = field(default_factory=dict)
    models: int = 1

    def side(self, name: str) -> _Side:
        return self.sides.setdefault(name or "side_a", _Side())


def stand_ins(recording: Recording, model: Model, replies: Replies) -> Setup:
    """A setup whose agents do what the recording says, with the answers of ``replies``."""
    reader = _Reader(recording)
    for run in recording.runs.values():
        reader.read(run)
    maker = _Maker(reader, model, replies, recording)
    return Setup(agents=tuple(maker.agents()), skills=tuple(maker.skills()))


# ── what was done ────────────────────────────────────────────────────────────────────────────


class _Reader:
    """Goes through the lanes and collects what they show of each agent."""

    def __init__(self, recording: Recording) -> None:
        self.agents: dict[str, _Agent] = {}
        self.passthrough: dict[str, None] = {}
        """Skills that one tool carried out."""
        self.asked: dict[str, _Asked] = {}
        """By tool."""
        self.outputs = RecordedOutputs()
        self._runs = recording.runs
        self._begun = {
            run.agent
            for run in recording.runs.values()
            if any(isinstance(placed.event, e.AgentStart) for placed in run.own)
        }

    def read(self, run: RecordedRun) -> None:
        calls: dict[str, ToolCall] = {}
        delegated = {
            x.event.call_id
            for x in run.own
            if isinstance(x.event, DELEGATING) and not is_spawned(x.event)
        }
        pushed = {x.event.call_id for x in run.own if isinstance(x.event, e.SessionPush)}
        last: e.AgentToolComplete | None = None
        begun: dict[str, e.AgentToolStart] = {}
        agent = self._agent(run.agent)
        self.outputs.begin(is_code=run.is_code)
        for placed in run.own:
            event = placed.event
            agent = self._agent(event.agent or run.agent)
            side = agent.side(event.side)
            agent.is_typed |= self.outputs.see(event)
            match event:
                case e.AgentStart():
                    agent.is_code = run.is_code
                    agent.is_two_sided = event.two_sided
                case e.AgentStep():
                    calls |= {f"{event.step}.{n}": x for n, x in enumerate(event.calls)}
                    side.is_parallel |= event.parallel
                case e.AgentRetry():
                    agent.models = max(agent.models, event.choice + 1)
                case e.AgentToolStart():
                    begun[event.call_id] = event
                case e.AgentToolComplete():
                    last = event
                    begun.pop(event.call_id, None)
                    # A tool of the agent's own may give the conversation away, too.
                    is_own = event.call_id in pushed and event.name not in BUILT_IN
                    if event.ran and (is_own or event.call_id not in delegated):
                        self._called(side, event, calls.get(event.call_id))
                case e.AgentChild() if is_spawned(event):
                    self._agent(event.child_agent)
                case e.AgentChild():
                    self._began(side, event, calls.get(event.call_id))
                case e.AgentHandoff() if event.to != event.agent:
                    agent.side("side_a").handoffs[event.to] = None
                    self._agent(event.to)
                case e.SessionVariables() if event.child_agent:
                    self._agent(event.child_agent).variables |= dict.fromkeys(event.required)
                case e.SessionPrompt() if event.kind != "question":
                    self._asked_about(side, event, calls.get(event.call_id))
                case e.SessionPrompt():
                    side.asks |= event.pauses
                case e.AgentStatus() if event.call_id in calls:
                    _bind(side, "session_status", calls[event.call_id], event.status, ())
                case e.SessionTurn() if event.reason == "stop_tool" and last is not None:
                    agent.side(last.side).stop_tool = last.name
                case e.SessionEnd() if last is not None and last.call_id in calls:
                    self._ended(agent.side(last.side), event, calls[last.call_id])
                case _:
                    pass
        for each in begun.values():  # At work when the recording ended.
            if each.name not in BUILT_IN and each.call_id not in delegated - pushed:
                self._called(agent.side(each.side), each, calls.get(each.call_id))

    def _agent(self, name: str) -> _Agent:
        return self.agents.setdefault(name, _Agent())

    def _called(
        self, side: _Side, event: e.AgentToolStart | e.AgentToolComplete, call: ToolCall | None
    ) -> None:
        arguments = _arguments(call)
        if is_answer(event):
            return
        if event.name == USE_SKILL:
            name = str(arguments.get("name", ""))
            side.skills[name] = None
            self.passthrough[name] = None
        elif event.name == INTERRUPT:
            side.asks = True
        elif event.name not in BUILT_IN:
            side.called.setdefault(event.name, {}).update(arguments)

    def _asked_about(self, side: _Side, event: e.SessionPrompt, call: ToolCall | None) -> None:
        """Somebody must approve a call, or carry it out elsewhere."""
        arguments = _arguments(call)
        asked = self.asked.setdefault(event.tool, _Asked())
        asked.is_external |= event.kind == "external"
        asked.timeout = event.timeout
        asked.calls.append(arguments)
        side.called.setdefault(event.tool, {}).update(arguments)

    def _began(self, side: _Side, event: e.AgentChild, call: ToolCall | None) -> None:
        child = self._agent(event.child_agent)
        if event.takeover:
            if event.child_agent.startswith(SKILL_PREFIX):
                side.skills[event.child_agent.removeprefix(SKILL_PREFIX)] = None
            else:
                side.agents[event.child_agent] = None
            return
        if event.child_agent not in self._begun:
            child.is_two_sided = True  # As most subagents are; it never came to begin.
        arguments = _arguments(call)
        arguments = arguments.get("arguments", arguments) if event.resumable else arguments
        opened = self._runs.get(event.child_run_id)
        opening = opened.opening if opened is not None else e.SessionOpen()
        if isinstance(arguments, dict):
            child.inputs.update(arguments)
            said = (key for key, value in arguments.items() if value == opening.input)
            child.message = next(said, child.message)
        known = side.children.get(event.child_agent)
        side.children[event.child_agent] = SubagentToolConfig(
            name=event.child_agent,
            blocking=event.blocking,
            immediate=event.immediate or (known is not None and bool(known.immediate)),
            init_user_message_property=None if child.message == "message" else child.message,
            resumable=event.resumable
            and Resumable(
                receives_messages="side_b" if opening.receives == "side_b" else "side_a",
                parent_communication="explicit" if event.explicit else "implicit",
            ),
        )

    def _ended(self, side: _Side, event: e.SessionEnd, call: ToolCall) -> None:
        """A session ended: if the last call said so, it is bound to that."""
        words = decode_value(event.output_json) if event.success else event.reason
        which = "session_stop" if event.success else "session_fail"
        if call.name not in BUILT_IN and event.outcome in ("completed", "failed"):
            _bind(side, which, call, words, [x.path for x in event.files])


def _bind(side: _Side, which: str, call: ToolCall, words: Any, files: Iterable[str]) -> None:
    arguments = _arguments(call)
    message = next((key for key, value in arguments.items() if value == words and words), None)
    if message is None:
        return
    paths = list(files)
    held = (key for key, value in arguments.items() if paths and value in (paths, paths[0]))
    side.bound[which] = SessionToolBinding(call.name, message, next(held, None))


def _arguments(call: ToolCall | None) -> dict[str, Any]:
    try:
        return parse_arguments(call.arguments) if call is not None else {}
    except ValueError:
        return {}


# ── who can do it again ──────────────────────────────────────────────────────────────────────


class _Maker:
    """Makes definitions from that."""

    def __init__(
        self, reader: _Reader, model: Model, replies: Replies, recording: Recording
    ) -> None:
        self._reader = reader
        self._model = model
        self._replies = replies
        self._recording = recording
        self._tools: dict[str, Tool[..., Any]] = {}
        # One for all: agents that hand over to each other have the same.
        self._output: Any = reader.outputs.form

    def agents(self) -> Iterator[AgentDefinition]:
        for name, agent in self._reader.agents.items():
            if name.startswith(SKILL_PREFIX):
                continue
            if agent.is_code:
                yield AgentDefinition(
                    name=name, execute=self._execute, on_restart="resume", expose_as_tool=True
                )
                continue
            is_two_sided = agent.is_two_sided or "side_b" in agent.sides
            yield AgentDefinition(
                name=name,
                type="dual_ai" if is_two_sided else "ai_human",
                side_a=self._side(name, "side_a", agent),
                side_b=self._side(name, "side_b", agent) if is_two_sided else None,
                expose_as_tool=True,
                tool_description=UNKNOWN,
                supports_checkpointing=agent.side("side_a").asks,
            )

    def skills(self) -> Iterator[Skill]:
        named = (name for x in self._reader.agents.values() for s in x.sides.values()
                 for name in s.skills)  # fmt: skip
        for name in dict.fromkeys(named):
            if name in self._reader.passthrough:
                carried = self._tool(_tool_name(name), {"message": ""})
                yield Skill(name=name, description=UNKNOWN, passthrough=carried)
                continue
            side = self._reader.agents.get(SKILL_PREFIX + name, _Agent()).side("side_a")
            tools: list[Any] = [self._tool(*each) for each in side.called.items()]
            yield Skill(
                name=name, description=UNKNOWN, instructions=UNKNOWN, model=self._model,
                tools=[*tools, *([USE_AGENT] if side.agents else [])], agents=tuple(side.agents),
            )  # fmt: skip

    def _side(self, name: str, which: str, agent: _Agent) -> SideConfig:
        side = agent.side(which)
        tools: list[Any] = [self._tool(*each) for each in side.called.items()]
        inputs = None
        if set(agent.inputs) - {"message"} and which == "side_a":
            inputs = {"type": "object", "properties": _schemas(agent.inputs)}
        prompt = PromptDefinition(
            name=f"{name}-{which}",
            prompt=UNKNOWN,
            model=[self._model] * agent.models,
            tools=[*tools, *side.children.values(), *side.handoffs],
            agents=tuple(side.agents),
            skills=tuple(side.skills),
            variables=[
                VariableDefinition(name=each, scoped=True, required=True)
                for each in agent.variables
            ],
            required_schema=inputs,
            parallel_tool_calls=side.is_parallel,
            output=self._output if agent.is_typed and which == "side_a" else None,
        )
        return SideConfig(prompt=prompt, stop_tool=side.stop_tool, **_one_each(side.bound))

    def _tool(self, name: str, arguments: Mapping[str, Any]) -> Tool[..., Any]:
        """A tool that takes what was seen, and anything else; the same one for a name."""
        if name not in self._tools:
            made = recorded_tool(_template, self._replies)
            self._tools[name] = made
        seen = {**self._tools[name].schema["properties"], **_schemas(arguments)}
        schema = {"type": "object", "properties": seen}
        spec = ToolSpec(name=name, description=UNKNOWN, schema=schema)
        fn = recorded_tool(replace(_template, name=name), self._replies).fn
        self._tools[name] = replace(
            self._tools[name], name=name, description=UNKNOWN, schema=schema, spec=spec, fn=fn,
            _arguments=_Anything(name, ()), **self._asks(name),
        )  # fmt: skip
        return self._tools[name]

    def _asks(self, name: str) -> dict[str, Any]:
        """Who is asked about the calls of a tool."""
        asked = self._reader.asked.get(name)
        if asked is None:
            return {}
        if asked.is_external:
            return {"is_external": True, "timeout": asked.timeout}
        return {"approval": Approval(asked.needs_approval, asked.timeout)}

    async def _execute(self, input: Any, ctx: Any) -> Any:
        """Repeat what the run's code did, at the same times."""
        run_id = self._replies.counterparts.then_of(ctx.run_id)
        run = self._recording.runs.get(run_id or "")
        for placed in run.own if run is not None else ():
            await self._replies.wait_until(placed.event.at, placed.place)
            match event := self._replies.counterparts.as_now(placed.event):
                case _ if isinstance(event, TOLD):
                    ctx.hub.emit(structs.replace(event, run_id="", lane="", seq=0))
                case e.AgentChild() | e.AgentFile() | e.AgentKey():
                    await self._replies.write(placed.event, ctx)
                case e.AgentComplete() if event.success:
                    return event.output
                case e.AgentComplete() if event.outcome == "failed":
                    raise _failure(event.reason)
                case _:
                    pass
        return await anyio.sleep_forever()


def recorded_server(server: McpServer, recording: Recording, replies: Replies) -> McpServer:
    """``server`` with the tools of it that were called, and their recorded results; nothing is
    connected to."""
    steps = (x.event for run in recording.runs.values() for x in run.own)
    called = {call.name for step in steps if isinstance(step, e.AgentStep) for call in step.calls}
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tools = [
        replace(
            recorded_tool(replace(_template, name=name), replies),
            schema=schema,
            spec=ToolSpec(name=name, description=UNKNOWN, schema=schema),
            _arguments=_Anything(name, ()),
        )
        for name in sorted(filter(server.claims, called))
    ]
    return structs.replace(server, target=ListedTools(tuple(tools)))


def _one_each(bound: Mapping[str, SessionToolBinding]) -> dict[str, Any]:
    """A tool can be bound to one thing only."""
    named: dict[str, str] = {}
    for which, binding in bound.items():
        named.setdefault(binding.name, which)
    return {which: bound[which] for which in named.values()}


def _schemas(values: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas for values of this sort."""
    return {key: {"type": "string"} if isinstance(x, str) else {} for key, x in values.items()}


def _tool_name(skill: str) -> str:
    return f"recorded_{skill.replace('.', '_')}"[:64]


def _failure(reason: str) -> Exception:
    """An exception that is reported as ``TypeName: message``, as the recorded one was."""
    name, _, message = reason.partition(": ")
    if not message or not name.isidentifier():
        return RuntimeError(reason)
    error: Exception = type(name, (Exception,), {})(message)
    return error


class _Anything(Arguments):
    """Reads whatever arguments there are."""

    def parse(self, arguments: str) -> dict[str, Any]:
        try:
            return parse_arguments(arguments)
        except ValueError:
            return {}


@tool(name="recorded")
async def _template() -> str:
    """A tool of a recording."""
    return ""
