"""``state_for``: a real ``RunState``, for unit tests of tools and hooks."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from msgspec import structs

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import Tool, ToolResult, tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.model import ModelRequest
from hubbub.hub.errors import BadValue
from hubbub.hub.message import Sayable
from hubbub.hub.near_misses import kind_of
from hubbub.hub.ports import Ports
from hubbub.hub.values import check_flag
from hubbub.runtime.activities.call_tool import call_tool
from hubbub.runtime.activities.off_loop import OffLoop
from hubbub.runtime.activities.thread_state import ThreadState
from hubbub.runtime.activities.timeouts import TIMED_OUT
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.models.scripted import call as tool_call
from hubbub.runtime.testing.bench import Answers, Bench, Children, checked, checked_mapping

__all__ = ["BenchState", "call", "state_for"]

_PROBE: Final = "hubbub_unit_test"


class BenchState(ThreadState):
    """A run's state as its tools get it; ``bench`` has collected what was done with it."""

    __slots__ = ("bench",)

    bench: Bench

    def lacking(self, called: Tool[..., Any]) -> str:
        """Why a tool cannot be called: a variable that it requires is not set; else empty."""
        return self._environment.lacking(called)


@asynccontextmanager
async def state_for(
    agent: str | AgentDefinition = "assistant",
    *,
    input: Sayable = "Go.",
    env: Mapping[str, str] | None = None,
    variables: Sequence[VariableDefinition] = (),
    files: Mapping[str, str | bytes] | None = None,
    kv: Mapping[str, Any] | None = None,
    agents: Iterable[AgentDefinition] = (),
    children: Children | None = None,
    answers: Answers = (),
    as_child: bool = False,
    ports: Ports | None = None,
) -> AsyncIterator[BenchState]:
    """The state of a run that is at a tool call, for calling a tool or hook with.

        @tool
        async def refund(order: str, state: RunState) -> str:
            if await state.ask(f"Refund {order}?", options=["yes", "no"]) == "no":
                raise ToolError("not allowed")
            await state.kv.set(order, "refunded")
            return "done"

        async def test_refund_asks_first() -> None:
            async with state_for(answers=["yes"]) as state:
                assert await refund("A-1", state=state) == "done"
                assert state.kv.get("A-1") == "refunded"
                assert state.bench.prompts[0].question == "Refund A-1?"

    It is the real thing, in a memory store of its own: everything is checked, kept and refused as
    in a run, and nothing is left of it afterwards.

    * ``agent``: the model agent whose run it is, or a name; its model is never asked.
    * ``input``: what the run was begun with; ``env``: its values of variables, which are declared
      by ``agent`` or in ``variables``; ``files`` and ``kv``: what it has already.
    * ``agents``: further agents, which really run; ``children``: what children of other agents
      return.  Agents that are in neither are unknown.
    * ``answers``: what is answered to ``state.ask``; see ``Answers``.
    * ``as_child``: whether the run has a parent.

    Raises what ``Runtime`` raises, and ``CallerError`` where the code asked something that nothing
    answers.
    """
    bench = Bench(answers)
    given_files, given_kv = checked_mapping("files", files), checked_mapping("kv", kv)
    given_children = checked_mapping("children", children)
    agents = checked("agents", agents, AgentDefinition)
    check_flag("as_child", as_child)
    done, ready = anyio.Event(), anyio.Event()
    found: list[ThreadState] = []

    @tool(name=_PROBE, timeout=None)
    async def hold(state: RunState) -> str:
        assert isinstance(state, ThreadState)
        found.append(state)
        ready.set()
        await done.wait()
        return ""

    definition = _held(agent, variables, hold)
    parent = _parent_of(definition.name, input, env)
    async with bench.open((definition, *agents, parent), given_children, ports) as runtime:
        if as_child:
            await runtime.start(parent.name)
        else:
            await runtime.start(definition.name, input, env=env)
        await ready.wait()
        state = _observed(found[0], bench)
        for name, content in given_files.items():
            await state.files.write(name, content)
        for key, value in given_kv.items():
            await state.kv.set(key, value)
        bench.begin(state.run_id)
        try:
            yield state
        finally:
            done.set()


async def call(called: Tool[..., Any], state: BenchState, /, **arguments: Any) -> ToolResult:
    """Call a tool as a model does: its arguments are checked, what it raises is a result, in which
    values of secrets are masked; that it takes longer than its ``timeout`` is one, and so is that
    a variable that it requires is not set.

    A plain ``def`` tool runs in a thread, where ``state`` acts as it does there in a run.
    Raises ``BadValue`` for what is no tool, or no state of ``state_for``.
    """
    if not isinstance(called, Tool):
        name = getattr(called, "__name__", "")
        remedy = f"; write @tool above {name}" if name and not isinstance(called, type) else ""
        raise BadValue("called", f"expected a tool, not {kind_of(called)}{remedy}")
    if not isinstance(state, BenchState):
        raise BadValue("state", "expected what state_for gives")
    hub = state.hub.hub
    given: Any = state if called.is_async else OffLoop(state, hub)
    text = msgspec.json.encode(arguments).decode()
    if lacking := state.lacking(called):
        return ToolResult(lacking, is_error=True)
    with anyio.move_on_after(called.timeout):
        result = await call_tool(called, text, given, hub.ports.offload)
        return _masked(result, state)
    return ToolResult(TIMED_OUT.format(called.timeout), is_error=True)


def _masked(result: ToolResult, state: BenchState) -> ToolResult:
    if result.is_error:
        result = structs.replace(result, content=state.masker()(result.content))
    return result


def _held(
    agent: str | AgentDefinition, variables: Sequence[VariableDefinition], probe: Tool[..., Any]
) -> AgentDefinition:
    """The agent, with a model that does nothing but call ``probe``; of its tools, those at hand."""

    def answer(request: ModelRequest) -> Any:
        return tool_call(_PROBE)

    model = FunctionModel(answer, name="unit test")
    if isinstance(agent, str):
        empty = PromptDefinition(name=agent, prompt="", model=model)
        agent = AgentDefinition(name=agent, side_a=SideConfig(prompt=empty))
    if not isinstance(agent, AgentDefinition):
        raise BadValue("agent", f"expected an agent or a name, not {kind_of(agent)}")
    given = agent.side_a.prompt if agent.side_a is not None else ""
    if not isinstance(given, PromptDefinition):
        raise BadValue("agent", "expected an agent of a model, with its prompt in place")
    tools = (each for each in given.tools if isinstance(each, Tool))
    prompt = structs.replace(
        given, model=model, tools=(*tools, probe), tool_choice="auto", hooks=None,
        variables=(*given.variables, *checked("variables", variables, VariableDefinition)),
    )  # fmt: skip
    return AgentDefinition(name=agent.name, env=agent.env, side_a=SideConfig(prompt=prompt))


def _parent_of(name: str, input: Sayable, env: Mapping[str, str] | None) -> AgentDefinition:
    """An agent that starts the run as its child, and waits for it."""

    async def execute(_: Any, ctx: Any) -> None:
        for each, value in (env or {}).items():
            ctx.set_env(each, value)
        await ctx.spawn(name, input).finished()

    return AgentDefinition(name=f"parent-of-{name}", execute=execute)


def _observed(state: ThreadState, bench: Bench) -> BenchState:
    """The same state, with ``bench``."""
    observed = BenchState.__new__(BenchState)
    for name in ThreadState.__slots__:
        setattr(observed, name, getattr(state, name))
    setattr(observed, "_by", observed)  # noqa: B010  # It is its own again.
    observed.bench = bench
    return observed
