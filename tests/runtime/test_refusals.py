"""What can be known when a runtime is built is refused then, with what was probably meant."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.agents import model_agent

from hubbub import (
    AgentDefinition,
    Hook,
    Hub,
    PromptDefinition,
    Runtime,
    ScriptedModel,
    SideConfig,
    Skill,
    SubagentToolConfig,
    VariableDefinition,
    agent,
    tool,
)
from hubbub.hub.errors import (
    BadPattern,
    DefinitionError,
    MissingKey,
    UnknownAgent,
    UnknownModel,
)
from hubbub.hub.events import KNOWN_TYPES
from hubbub.hub.message import Message
from hubbub.hub.near_misses import nearest
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal

MODEL = ScriptedModel(["Well."], repeat=True)


@tool
async def weather(city: str) -> str:
    return city


@agent("helper")
async def helper(input: Any, ctx: Any) -> None: ...


def one(text: str = "You help.", **fields: Any) -> AgentDefinition:
    prompt = PromptDefinition(**{"name": "p", "prompt": text, "model": MODEL, **fields})
    return AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))


HOOK = Hook(id="redact", point="filter_messages", fn=lambda state, value: value)
SKILL = Skill(name="translate", description="d", instructions="i")

REFUSED: dict[str, tuple[Callable[[], AgentDefinition], str]] = {
    "provider": (
        lambda: one(model="antropic:claude"), "did you mean 'anthropic:claude'?"
    ),
    "provider with a slash": (lambda: one(model="openai/gpt"), "did you mean 'openai:gpt'?"),
    "registered model": (lambda: one(model="scriptd"), "did you mean 'scripted'?"),
    "bare model": (lambda: one(model="gpt"), "write anthropic:NAME, openai:NAME"),
    "no name": (lambda: one(model="openai:"), "the name is missing"),
    "no URL": (lambda: one(model="openai:m@nowhere"), "after '@' comes http://"),
    "a password": (lambda: one(model="opena:m@http://a:planted@b/v1"), "did you mean 'openai:m@…'"),
    "model of a skill": (
        lambda: one(skills=[Skill(name="s", description="d", instructions="i", model="x:y")]),
        "no such model",
    ),
    "tool": (lambda: one(tools=["wether"]), "did you mean 'weather'?"),
    "agent": (lambda: one(tools=[SubagentToolConfig(name="helpr")]), "did you mean 'helper'?"),
    "takeover": (lambda: one(agents=["helpr"]), "did you mean 'helper'?"),
    "skill": (lambda: one(skills=["translat"]), "did you mean 'translate'?"),
    "hook": (lambda: one(hooks=["redct"]), "did you mean 'redact'?"),
    "tool choice": (lambda: one(tools=[weather], tool_choice="wether"), "did you mean 'weather'?"),
    "prompt": (
        lambda: AgentDefinition(name="bot", side_a=SideConfig(prompt="spar")),
        "did you mean 'spare'?",
    ),
    "placeholder": (
        lambda: one("In {{CTY}}.", variables=[VariableDefinition(name="CITY", type="text")]),
        "agents.bot.side_a.prompt.prompt: {{CTY}} is not declared; did you mean {{CITY}}?",
    ),
    "undeclared": (
        lambda: one("In {{ city }}."), 'add VariableDefinition(name="city", type="text")'
    ),
}  # fmt: skip


def build(*agents: AgentDefinition, **more: Any) -> Runtime:
    spare = PromptDefinition(name="spare", prompt="x", model="openai:unused")
    return Runtime(
        [helper, *agents], prompts=[spare], tools=[weather], hooks=[HOOK], skills=[SKILL],
        models={"scripted": MODEL}, store="memory", environ={}, **more,
    )  # fmt: skip


@pytest.mark.spec("U-09")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_with_what_was_probably_meant(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(DefinitionError) as refused:
        build(make())
    assert words in str(refused.value) and "planted" not in str(refused.value)


def test_all_prompts_are_looked_at_also_those_that_no_agent_has() -> None:
    unused = PromptDefinition(name="unused", prompt="{{X}} {{Y}}", model="nobody:x")
    with pytest.raises(DefinitionError) as refused:
        Runtime(prompts=[unused], store="memory")
    paths = [each.partition(":")[0] for each in refused.value.problems]
    assert paths == ["prompts.unused.model", "prompts.unused.prompt", "prompts.unused.prompt"]


def test_the_text_of_a_skill_may_show_braces() -> None:
    build(one(skills=[Skill(name="s", description="d", instructions="Write {{NAME}} there.")]))


def test_names_that_are_like_nothing_known_get_no_hint() -> None:
    with pytest.raises(DefinitionError) as refused:
        build(one(tools=["zzz"]))
    assert "did you mean" not in str(refused.value)
    with pytest.raises(UnknownAgent, match="did you mean 'helper'"):
        build(default_agent="Helpr")
    assert nearest("x" * 100_000, ["x" * 100_000]) is None


def plain(input: Any, ctx: Any) -> str:
    return "x"


class AsyncCall:
    async def __call__(self, input: Any, ctx: Any) -> None: ...

    async def method(self, input: Any, ctx: Any) -> None: ...


@functools.wraps(helper.execute)  # type: ignore[arg-type]
def wrapped(input: Any, ctx: Any) -> Any:
    assert helper.execute is not None
    return helper.execute(input, ctx)


@pytest.mark.spec("U-09")
def test_a_plain_function_is_no_code_agent() -> None:
    with pytest.raises(DefinitionError, match=r"plain is not async; write `async def plain\("):
        agent("bot")(plain)
    for good in (AsyncCall(), AsyncCall().method, wrapped, functools.partial(AsyncCall().method)):
        agent("bot")(good)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.spec("U-09")
async def test_missing_keys_of_models_in_use_are_reported_when_the_runtime_is_entered(
    ports: Ports,
) -> None:
    agents = [model_agent("openai:a", name="a"), model_agent("anthropic:b", name="b")]  # type: ignore[arg-type]
    runtime = build(*agents, ports=ports)
    with pytest.raises(MissingKey, match="set OPENAI_API_KEY and ANTHROPIC_API_KEY in the env"):
        await runtime.__aenter__()
    assert runtime.hub.is_closed
    # Models that answer without a key, and prompts that no agent has, need none.
    local = model_agent("openai:a@http://localhost:11434/v1", name="a")  # type: ignore[arg-type]
    async with build(local, ports=ports):
        pass


@pytest.mark.anyio
async def test_what_only_the_client_of_a_model_refuses_is_reported_then_too(ports: Ports) -> None:
    wrong = model_agent("openai:a@http://local host/v1", name="a")  # type: ignore[arg-type]
    with pytest.raises(UnknownModel):
        async with build(wrong, ports=ports):
            pass


@pytest.mark.anyio
async def test_a_runtime_that_was_refused_has_not_touched_its_store(
    ports: Ports, tmp_path: Any
) -> None:
    runtime = Runtime(
        [model_agent("openai:a")],  # type: ignore[arg-type]
        store=f"sqlite:{tmp_path / 'store'}", ports=ports, environ={},
    )  # fmt: skip
    with pytest.raises(MissingKey):
        async with runtime:
            pass
    assert not (tmp_path / "store").exists()


# ── openings ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.spec("U-09")
async def test_an_opening_of_an_unknown_agent_is_a_rejected_receipt(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(MODEL)], store=journal, ports=ports) as rt:
        for more in ({}, {"session_key": "k"}, {"run_id": "r"}, {"env": {"KEY": "planted"}}):
            receipt = await rt.hub.open("asistant", "Go.", **more)  # type: ignore[arg-type]
            assert receipt.rejected and not await rt.hub.journal.runs()
            assert "no agent named 'asistant'" in receipt.reason
            assert "did you mean 'assistant'?" in receipt.reason
        assert not rt.ports.secrets.keys("")
        with pytest.raises(Exception, match="did you mean 'assistant'"):
            receipt.raise_if_rejected()


@pytest.mark.anyio
async def test_what_was_opened_before_is_found_whatever_the_agent_that_is_named(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(MODEL)], store=journal, ports=ports) as rt:
        message = Message("Go.", key="1")
        opened = await rt.hub.open("assistant", message, session_key="k", run_id="r")
        assert opened.accepted
        for again in ({"session_key": "k"}, {"run_id": "r"}):
            receipt = await rt.hub.open("asistant", message, **again)  # type: ignore[arg-type]
            assert receipt.duplicate and receipt.run_id == "r"
        assert (await rt.result("r")).value() == "Well."


# ── patterns ─────────────────────────────────────────────────────────────────────────────────


NEARLY = {
    "agent:complet": "agent:complete",
    "agent:tool": "agent:tool:*",
    "agent:text:deltas": "agent:text:delta",
    "session:messages": "session:message",
    "session:clos:*": "session:close",
    "hub:dead-letter": "hub:dead_letter",
    "schedule:fired": "schedule:fire",
}


@pytest.mark.anyio
@pytest.mark.spec("U-09")
@pytest.mark.parametrize("pattern", NEARLY)
async def test_a_pattern_that_is_nearly_one_is_refused(pattern: str, ports: Ports) -> None:
    async with Hub(ports=ports) as hub:
        with pytest.raises(BadPattern, match=f"did you mean '{NEARLY[pattern]}") as refused:
            hub.subscribe(pattern)
        assert refused.value.meant == NEARLY[pattern]
        with pytest.raises(BadPattern):
            await hub.read(types=["agent:start", pattern])


@pytest.mark.anyio
@pytest.mark.spec("U-09")
async def test_a_pattern_of_the_library_that_matches_nothing_is_warned_of_once(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    async with Hub(ports=ports) as hub:
        for pattern in (*sorted(KNOWN_TYPES), "agent:*", "agent:tool:*", "shop:order", "agents:x"):
            hub.subscribe(pattern).close()
        assert not caplog.records
        for _ in range(3):
            hub.subscribe("session:zzz:*", print).close()
            hub.subscribe(["session:zzz:*", "agent:zzz"]).close()
    lines = [x.getMessage() for x in caplog.records if x.levelno == logging.WARNING]
    assert ["'session:zzz:*'" in lines[0], "'agent:zzz'" in lines[1], len(lines)] == [True, True, 2]
