"""Durations and counts that nobody can wait for or count to.

Each is accepted with a sense, or refused by its name where it is given, never by an exception from
within.  What is public and takes a number is found by introspection: a new parameter must have a
row in ``GIVEN``, or be of something that the library makes itself.
"""

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
from support.agents import model_agent

from attacks.entries import calls_of
from hubbub import (
    Agent,
    AgentDefinition,
    Compaction,
    FunctionModel,
    Heartbeat,
    Hub,
    Limits,
    ModelSettings,
    Price,
    PromptDefinition,
    Resumable,
    Retention,
    RunState,
    Runtime,
    ScriptedModel,
    SideConfig,
    Skill,
    SubagentToolConfig,
    agent,
    external_tool,
    mcp,
    tool,
)
from hubbub.channels import Channel, Channels
from hubbub.channels.http import HttpLimits, serve
from hubbub.hub.errors import HubbubError, PromptClosed, PromptTimeout
from hubbub.hub.events import GivenTool
from hubbub.hub.near_misses import shown
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models import Fault
from hubbub.runtime.models.scripted import call
from hubbub.runtime.simulation import ClockJump, Crash, ToolFault, Wait, run_seeded
from hubbub.runtime.stores import PostgresStore, open_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01")]

PACKAGES: Final = (
    "hubbub", "hubbub.hub", "hubbub.channels", "hubbub.channels.http",
    "hubbub.agents.definitions", "hubbub.runtime", "hubbub.runtime.models",
    "hubbub.runtime.schedules", "hubbub.runtime.stores", "hubbub.testing",
)  # fmt: skip

AMOUNTS: Final = (
    0, -1, 0.5, 1e-9, math.nan, math.inf, float("1e400"), -math.inf, 10**400, 10**5_000, 2**63,
    1e18, True, "5", b"5", [1],
)  # fmt: skip

MADE: Final = frozenset({
    "Event", "CustomEvent", "ContentPart", "ModelRequest", "RunOutcome", "Spent", "StackFrame",
    "StackFrameMeta", "SubagentRegistryEntry", "Usage", "EventStream", "HubStatistics",
    "Conversation", "ScheduleNote", "ScheduleStatus", "Address", "Replayed",
})  # fmt: skip
"""What the library makes, or a model that is asked."""

OTHER: Final = {
    "TerminalReader.fd": "a file descriptor of the caller's own",
    "render_result.max_chars": "for who calls tools themselves",
    "past_of.now": "a clock's", "schedule_statuses.now": "a clock's",
}  # fmt: skip
_POSITIONS: Final = re.compile(r"(Sqlite|Postgres)Store\.(load|position|read)\.")


def numbers_of(call: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):
        return
    for each in parameters.values():
        if re.search(r"\b(int|float)\b", str(each.annotation)):
            yield each.name


def public_numbers() -> set[str]:
    """Each parameter that takes a number, of what is public."""
    found = set()
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            offered = getattr(module, name)
            if name in MADE or not callable(offered):
                continue
            found |= {f"{name}.{each}" for each in numbers_of(offered)}
            if isinstance(offered, type):
                for method, function in calls_of(offered).items():
                    found |= {f"{name}.{method}.{each}" for each in numbers_of(function)}
    return {each for each in found if each not in OTHER and not _POSITIONS.match(each)}


async def look(word: str) -> str:
    """Look."""
    return word


def bot(**given: Any) -> AgentDefinition:
    return Agent("bot", "You help.", model=ScriptedModel(["x"], repeat=True), **given)


def runtime(*agents: Any, **given: Any) -> Runtime:
    return Runtime(agents, store="memory", **given)


def fields_of(made: Callable[..., object], /, *names: str, **given: Any) -> dict[str, Any]:
    """A row for each of these fields."""
    label = made.__name__
    return {f"{label}.{n}": partial(lambda n, v: made(**{**given, n: v}), n) for n in names}


def side(**given: Any) -> SideConfig:
    return SideConfig(
        prompt=PromptDefinition(name="p", prompt="x", model=ScriptedModel([])), **given
    )


def with_child(resumable: Resumable) -> PromptDefinition:
    child = SubagentToolConfig(name="kid", resumable=resumable)
    return PromptDefinition(name="p", prompt="x", model=ScriptedModel([]), tools=[child])


async def no_app(scope: Any, receive: Any, send: Any) -> None:
    """Never called."""


async def subscribed(rt: Runtime, buffer: Any) -> None:
    async with rt.hub.subscribe("*", buffer=buffer):
        pass


async def stopped(rt: Runtime, grace: Any) -> None:
    async with Channels(rt.hub, Channel("c", {})) as channels:
        await channels.attached["c"].stop(grace)


def mcp_of(**given: Any) -> object:
    return mcp(["server"], approval=True, **given)


async def within(ask: Callable[[Any], Any]) -> None:
    """Do something with a context of a code agent; what it raises is raised."""
    raised: list[BaseException] = []

    @agent("asks")
    async def asks(input: Any, ctx: Any) -> None:
        try:
            with anyio.move_on_after(100):
                done = ask(ctx)
                if inspect.isawaitable(done):
                    await done
        except HubbubError as error:
            raised.append(error)

    async with runtime(asks) as own:
        outcome = await own.run("asks", 1)
        assert outcome.success, outcome
    for error in raised:
        raise error


async def in_tool(ask: Callable[[RunState], Any]) -> None:
    raised: list[BaseException] = []

    @tool
    async def asks(state: RunState) -> str:
        """Ask."""
        try:
            with anyio.move_on_after(100):
                await ask(state)
        except HubbubError as error:
            raised.append(error)
        return "done"

    model = ScriptedModel([call("asks"), "Done."])
    async with runtime(model_agent(model, asks)) as own:
        outcome = await own.run("assistant", "go")
        assert outcome.success, outcome
    for error in raised:
        raise error


async def state_at(rt: Runtime, seq: Any) -> None:
    run = await rt.start("bot", "x")
    await rt.state_at(run.run_id, seq)


async def fork(rt: Runtime, seq: Any) -> None:
    run = await rt.start("bot", "x")
    await run.result()
    await rt.fork(run.run_id, seq)


async def asked(rt: Runtime, timeout: Any) -> None:
    with anyio.move_on_after(100):
        await rt.hub.ask("nobody", "?", timeout=timeout)


GIVEN: Final[Mapping[str, Callable[[Any], object]]] = {
    "AgentDefinition.max_session_turns": lambda v: AgentDefinition(
        name="a", type="dual_ai", side_a=side(), side_b=side(), max_session_turns=v
    ),
    "SideConfig.max_steps": lambda v: AgentDefinition(name="a", side_a=side(max_steps=v)),
    "Agent.max_steps": lambda v: bot(max_steps=v),
    "Resumable.max_instances": lambda v: with_child(
        Resumable(receives_messages="side_a", max_instances=v)
    ),
    **fields_of(Skill, "max_iterations", name="s", description="d", instructions="x"),
    **fields_of(Compaction, "at", "keep", "window"),
    **fields_of(FunctionModel, "latency", "chunk", fn=lambda request: "x"),
    **fields_of(ScriptedModel, "latency", "chunk", script=["x"]),
    **fields_of(Fault, "times", "seconds", "after", "status", "retry_after", kind="delay"),
    "Heartbeat.interval": lambda v: runtime(bot(), schedules=[Heartbeat("bot", ["t"], v)]),
    **fields_of(Retention, "ended", "silent", "keep_last", "max_bytes", "keep_turns"),
    **fields_of(Limits, "input_tokens", "output_tokens", "model_calls", "seconds", "cost"),
    **fields_of(ModelSettings, "temperature", "top_p", "max_tokens", "seed", "thinking", "timeout"),
    **fields_of(Price, "input", "output", "cache_read", "cache_write", input=1, output=1),
    **{
        f"{name}.{each}": partial(lambda each, v: mcp_of(**{each: v}), each)
        for name in ("mcp", "McpServer")
        for each in ("timeout", "start_timeout", "approval_timeout", "max_tools")
    },
    "tool.timeout": lambda v: tool(look, timeout=v),
    "tool.approval_timeout": lambda v: tool(look, approval=True, approval_timeout=v),
    "external_tool.timeout": lambda v: external_tool("look", timeout=v),
    **fields_of(Hub, "buffer", "max_inbox"),
    **{
        f"Runtime.{each}": partial(lambda each, v: runtime(**{each: v}), each)
        for each in numbers_of(Runtime)
    },
    **{
        f"HttpLimits.{each}": partial(lambda each, v: HttpLimits(**{each: v}), each)
        for each in numbers_of(HttpLimits)
    },
    "Channel.buffer": lambda v: Channel("c", {}, buffer=v),
    "Channels.grace": lambda v: Channels(Hub(), grace=v),
    "open_store.keep": lambda v: open_store("memory", Ports(), keep=v),
    **fields_of(MemoryJournal, "keep", "keep_hub_events"),
    "PostgresStore.patience": lambda v: PostgresStore("postgresql://x/y", patience=v),
    "PostgresStore.ttl": lambda v: PostgresStore("postgresql://x/y", ttl=v),
    **fields_of(Wait, "seconds"),
    **fields_of(ClockJump, "at", "seconds", at=1, seconds=1),
    **fields_of(Crash, "commit", "life", "sectors", commit=1),
    **fields_of(ToolFault, "call", "seconds", kind="late"),
    "run_seeded.max_rounds": lambda v: run_seeded(anyio.lowlevel.checkpoint, max_rounds=v),
}
"""Refused when it is built."""

ASKED: Final[Mapping[str, Callable[[Runtime, Any], Awaitable[object]]]] = {
    "Hub.ask.timeout": asked,
    "Hub.open.timeout": lambda rt, v: rt.hub.open("bot", "x", timeout=v),
    "Hub.read.limit": lambda rt, v: rt.hub.read(limit=v),
    "Runtime.start.timeout": lambda rt, v: rt.start("bot", "x", timeout=v),
    "Runtime.state_at.seq": state_at,
    "Runtime.fork.seq": fork,
    "Runtime.conversations.limit": lambda rt, v: rt.conversations(limit=v),
    "RunContext.ask.timeout": lambda rt, v: within(lambda ctx: ctx.ask("?", timeout=v)),
    "RunContext.messages.idle_timeout": lambda rt, v: within(
        lambda ctx: ctx.messages(idle_timeout=v)
    ),
    "RunContext.session.max_steps": lambda rt, v: within(
        lambda ctx: ctx.session(model=ScriptedModel([]), max_steps=v)
    ),
    "RunState.ask.timeout": lambda rt, v: in_tool(lambda state: state.ask("?", timeout=v)),
    "GivenTool.timeout": lambda rt, v: rt.hub.open(
        "bot", "x", tools=[GivenTool(name="t", timeout=v)]
    ),
    "Hub.subscribe.buffer": subscribed,
    "Attachment.stop.grace": stopped,
    "serve.grace": lambda rt, v: serve(no_app, host="no.such.host", grace=v),
    "serve.port": lambda rt, v: serve(no_app, host="no.such.host", port=v),
}
"""Refused at the call."""

SAID_OTHERWISE: Final = {
    "Resumable.max_instances": "max_instances",
    "Runtime.state_at.seq": "record",
    "Runtime.fork.seq": "record",
    "serve.port": "port|no.such.host",
    "serve.grace": "grace|no.such.host",
}


def test_every_public_parameter_that_takes_a_number_is_attacked() -> None:
    benches = ("BenchContext.", "BenchState.")  # They have the real ones beneath.
    new = public_numbers() - {*GIVEN, *ASKED}
    assert not {each for each in new if not each.startswith(benches)}


def refused(what: str, error: Exception, amount: object) -> None:
    """Whether the message names what is wrong."""
    words = SAID_OTHERWISE.get(what, what.rpartition(".")[2])
    assert re.search(words, str(error)), f"{what}={shown(amount)}: {error}"


@pytest.mark.parametrize("what", GIVEN)
def test_an_amount_is_accepted_or_refused_by_its_name_when_it_is_given(what: str) -> None:
    for amount in (*AMOUNTS, None):
        try:
            GIVEN[what](amount)
        except HubbubError as error:
            refused(what, error, amount)
        else:
            assert makes_sense(amount), f"{what}={shown(amount)} was accepted"


@pytest.mark.parametrize("what", ASKED)
async def test_an_amount_is_accepted_or_refused_by_its_name_at_the_call(what: str) -> None:
    async with runtime(bot()) as rt:
        for amount in (*AMOUNTS, None):
            try:
                await ASKED[what](rt, amount)
            except (PromptClosed, PromptTimeout):  # Asked, and not answered.
                assert makes_sense(amount)
            except HubbubError as error:
                refused(what, error, amount)
            else:
                assert makes_sense(amount), f"{what}={shown(amount)} was accepted"


def makes_sense(amount: Any) -> bool:
    """Whether an amount may be accepted somewhere: a store can keep it, and a clock wait for it."""
    if amount is None or amount == math.inf:  # No limit, where that is said.
        return True
    return type(amount) in (int, float) and -1 <= amount < 2**63


LONG: Final = 10 * 365 * 86_400 - 1
"""Seconds: the longest time that is accepted."""


@pytest.mark.parametrize("seconds", [1e-9, 5e-7, LONG])
async def test_what_is_accepted_can_be_waited_for_and_kept(store: Journal, seconds: float) -> None:
    @tool(timeout=seconds)
    async def quick() -> str:
        """Be quick."""
        return "done"

    @tool(approval=True, approval_timeout=seconds)
    async def asked_for() -> str:
        """Be asked for."""
        return "done"

    outside = external_tool("outside", timeout=seconds)
    settings = ModelSettings(timeout=max(seconds, 2.0))
    script = [call("quick"), call("asked_for"), call("outside"), "Done."]
    model = ScriptedModel(script, latency=min(seconds, 1.0))
    bot = Agent(
        "bot", "You help.", model=model, settings=settings, tools=[quick, asked_for, outside]
    )
    async with Hub(journal=store) as hub, Runtime([bot], hub=hub, grace=LONG) as rt:
        run = await rt.start("bot", "go", timeout=LONG, limits=Limits(seconds=9e17))
        outcome = await run.result()
    assert outcome.success or (seconds == LONG and outcome.outcome == "timed_out"), outcome
