"""What tools, models, children and listeners say, and texts that only look hostile."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from attacks.hostile_texts import HALF, World, opened
from attacks.scale import scale
from hubbub import (
    AgentDefinition,
    CustomEvent,
    FunctionModel,
    Message,
    PromptDefinition,
    SideConfig,
    agent,
    tool,
)  # fmt: skip
from hubbub.agents.definitions.tools import ToolError, ToolResult
from hubbub.agents.model import ModelReply, TextDelta, ToolCall
from hubbub.hub.events import AgentComplete, Event, HubErrorEvent
from hubbub.hub.events.codec import decode_event, encode_event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.texts import MAX_KEY
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01")]


# ── what tools, models and children say ──────────────────────────────────────────────────────


def raises(error: Exception) -> Any:
    raise error


SAID: Mapping[str, Callable[[], Any]] = {
    "a text": lambda: HALF,
    "a value": lambda: {"a": [HALF]},
    "a key": lambda: {HALF: 1},
    "a result": lambda: ToolResult(HALF),
    "a file": lambda: ToolResult("ok", attachments=(HALF,)),
    "an exception": lambda: raises(ValueError(HALF)),
    "a tool's error": lambda: raises(ToolError(HALF)),
    "nested in a group": lambda: raises(ExceptionGroup(HALF, [KeyError(HALF)])),
}


@pytest.mark.parametrize("what", SAID)
async def test_what_a_tool_says_is_its_own_call_s_error(
    what: str, store: Journal, ports: Ports
) -> None:
    @tool
    async def speak() -> Any:
        """Say something."""
        return SAID[what]()

    model = FunctionModel(
        lambda request: (
            request.messages[-1].calls[-1].output  # type: ignore[union-attr]
            if len(request.messages) > 1
            else call("speak")
        )
    )
    prompt = PromptDefinition(name="p", prompt="", model=model, tools=[speak])
    bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))
    async with opened(store, ports, bot) as world:
        outcome = await world.rt.run("bot", "go")
        assert outcome.success
        (done,) = await world.rt.hub.read(outcome.run_id, types="agent:tool:complete")
        assert done.is_error  # type: ignore[attr-defined]
        await everything_is_text(world)


def speaks(**parts: Any) -> Callable[[], ModelReply]:
    return lambda: ModelReply(**parts)


REPLIES: Mapping[str, Callable[[], ModelReply]] = {
    "text": speaks(text=HALF),
    "a call's name": speaks(text="", calls=(ToolCall(name=HALF),)),
    "arguments": speaks(text="", calls=(ToolCall(name="t", arguments=HALF),)),
    "an id": speaks(text="", calls=(ToolCall(name="t", id=HALF),)),
    "why it stopped": speaks(text="x", stop_reason=HALF),
    "an exception": lambda: raises(ValueError(HALF)),
}


class Hostile:
    """A model that says one thing, in pieces first."""

    name = "hostile"

    def __init__(self, answer: Callable[[], ModelReply]) -> None:
        self._answer = answer

    async def call(self, request: Any, on_delta: Any = None) -> ModelReply:
        if on_delta is not None:
            on_delta(TextDelta("fine"))
            on_delta(TextDelta(HALF))
        return self._answer()


@pytest.mark.parametrize("what", REPLIES)
async def test_what_a_model_says_fails_its_own_step(
    what: str, store: Journal, ports: Ports
) -> None:
    prompt = PromptDefinition(name="p", prompt="", model=Hostile(REPLIES[what]))
    bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))
    async with opened(store, ports, bot) as world:
        heard: list[Event] = []
        world.rt.hub.subscribe("agent:text:delta", heard.append)
        run = await world.rt.start("bot", "go", session_key="k")
        outcome = await run.result()
        assert outcome.outcome == "failed"
        assert {each.text for each in heard} == {"fine"}  # type: ignore[attr-defined]
        assert (await run.terminate()).accepted, "the conversation is still there"
        await everything_is_text(world)


async def test_what_children_and_listeners_say_is_their_own_trouble(
    store: Journal, ports: Ports
) -> None:
    @agent("child")
    async def child(input: str, ctx: Any) -> str:
        if input == "raise":
            raise ValueError(HALF)
        return HALF

    @agent("parent")
    async def parent(input: Any, ctx: Any) -> list[str]:
        return [(await ctx.spawn("child", how).result()).outcome for how in ("raise", "return")]

    def listener(event: Event) -> None:
        raise ValueError(HALF)

    async with opened(store, ports, child, parent) as world:
        told: list[HubErrorEvent] = []
        world.rt.hub.subscribe("hub:error", told.append)  # type: ignore[arg-type]
        listening = world.rt.hub.subscribe("agent:start", listener)
        assert (await world.rt.run("parent")).output == ["failed", "failed"]
        listening.close()
        assert told and all(each.error.encode() for each in told)
        await everything_is_text(world)


async def everything_is_text(world: World) -> None:
    """Whatever is in the journal can be written, sent and read back, and others go on."""
    for event in await world.rt.hub.read():
        assert decode_event(encode_event(event)) == event
    await world.is_well()


# ── texts that only look hostile ─────────────────────────────────────────────────────────────

STRANGE: Mapping[str, str] = {
    "no character": "\ufffe\uffff",
    "from the right": "\u202eabc\u2067",
    "combining": "e" + "\u0301" * 50,
    "lines": "a\nb\r\n\tc",
    "an escape": "\x1b[31mred\x07",
    "astral": "😀𝔘",
    "quotes": "'\"`$(x);--",
    "paths": "../../etc/passwd",
    "patterns": "*%_?[]",
    "long": "x" * scale(100_000, 3_900_000),
}


@pytest.mark.parametrize("what", STRANGE)
async def test_strange_texts_are_texts(what: str, store: Journal, ports: Ports) -> None:
    text = STRANGE[what]
    key = text[:MAX_KEY] if text.isascii() else text
    async with opened(store, ports) as world:
        rt = world.rt
        run = await rt.start("other", {"a": text}, session_key=key, name=key, correlation_id=key)
        assert (await rt.start("other", session_key=key)).run_id == run.run_id
        assert (await rt.hub.send(Message(text, key=key), session_key=key, source=key)).accepted
        assert (await rt.hub.send(Message(text, key=key), session_key=key, source=key)).duplicate
        await rt.hub.publish(CustomEvent.of("test:x", a=text))
        (message,) = await rt.hub.read(run.run_id, types="session:message")
        assert (message.content, message.key) == (text, key)  # type: ignore[attr-defined]
        run.close()
        assert (await run.result()).output == 1
        done = [x for x in await rt.hub.read(run.run_id) if isinstance(x, AgentComplete)]
        assert len(done) == 1
        await everything_is_text(world)
