"""Whoever listens when a piece of an answer is made gets it (R-11)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent

from hubbub import Event, Run, Runtime, agent
from hubbub.agents.model import (
    ModelReply,
    ModelRequest,
    OnDelta,
    TextDelta,
    Thinking,
    ThinkingDelta,
)
from hubbub.hub.events import AgentTextDelta, AgentThinkingDelta
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import ScriptedModel, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("R-11")]

WORDS = [f"{word} " for word in ["zero", "one", "two", "three", "four", "five", "six"]]
TEXT = "".join(WORDS)
MIDDLE = "".join(WORDS[3:])
"""What is said after two and a half seconds, one word a second; reasoning comes first."""


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Journal:
    """Each kind of store there is."""
    if request.param == "sqlite":
        return sqlite_store(tmp_path, ports=ports)
    inner = MemoryJournal()
    return inner if request.param == "memory" else LateJournal(inner)


def speaker() -> ScriptedModel:
    return ScriptedModel([TEXT], latency=float(len(WORDS)))


Listen = Callable[[Runtime, Run, list[Event]], Awaitable[None]]


async def _called(rt: Runtime, run: Run, heard: list[Event]) -> None:
    rt.hub.subscribe("agent:text:delta", heard.append)


async def _called_for_the_run(rt: Runtime, run: Run, heard: list[Event]) -> None:
    rt.hub.subscribe(["session:*", "agent:text:*"], heard.append, run_id=run.run_id)


async def _awaited_for_the_tree(rt: Runtime, run: Run, heard: list[Event]) -> None:
    async def hear(event: Event) -> None:
        heard.append(event)

    rt.hub.subscribe("agent:*", hear, root_run_id=run.run_id)


async def _called_after_the_past(rt: Runtime, run: Run, heard: list[Event]) -> None:
    rt.hub.subscribe("*", heard.append, after="start")


async def _streamed(rt: Runtime, run: Run, heard: list[Event]) -> None:
    stream = rt.hub.subscribe("agent:*")

    async def hear() -> None:
        async with stream:
            heard.extend([event async for event in stream])

    rt.hub.tasks.start(hear(), name="a listener")


@pytest.mark.parametrize(
    "listen",
    [
        _called, _called_for_the_run, _awaited_for_the_tree, _called_after_the_past, _streamed,
    ],
)  # fmt: skip
async def test_who_begins_to_listen_in_the_middle_hears_the_rest(
    store: Journal, ports: Ports, listen: Listen
) -> None:
    heard: list[Event] = []
    async with Runtime([model_agent(speaker())], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "go")
        await anyio.sleep(3.5)
        await listen(rt, run, heard)
        await run.result()
        await anyio.sleep(1)
    pieces = [x for x in heard if isinstance(x, AgentTextDelta)]
    said = "".join(x.text for x in pieces)
    # A stream that is behind leaves out what the finished text has overtaken.
    assert said
    assert MIDDLE.startswith(said)
    assert len(pieces) >= len(WORDS) - 4
    assert [TEXT[x.offset :].startswith(x.text) for x in pieces] == [True] * len(pieces)
    assert pieces[0].offset == len("".join(WORDS[:3])), "it shows that something came before"
    assert {(x.step, x.attempt, x.block) for x in pieces} == {(1, 1, 0)}


async def test_who_leaves_and_comes_again_misses_what_was_said_meanwhile(
    store: Journal, ports: Ports
) -> None:
    heard: list[Any] = []
    async with Runtime([model_agent(speaker())], store=store, ports=ports) as rt:
        leave = rt.hub.subscribe("agent:text:delta", heard.append)
        run = await rt.start("assistant", "go")
        await anyio.sleep(1.5)
        leave()
        await anyio.sleep(3)
        rt.hub.subscribe("agent:text:delta", heard.append, run_id=run.run_id)
        await run.result()
        await anyio.sleep(1)
    assert [x.text.strip() for x in heard] == ["zero", "four", "five", "six"]
    assert [x.offset for x in heard] == [0, *(TEXT.index(x) for x in ("four", "five", "six"))]


async def test_a_code_agents_conversation_is_heard_from_the_middle_on(
    store: Journal, ports: Ports
) -> None:
    @agent("talker")
    async def talker(input: Any, ctx: Any) -> str:
        async with ctx.session(model=speaker()) as session:
            await session.send("go")
            return "".join([x.text async for x in session.receive() if x.type == "agent:text"])

    heard: list[Any] = []
    async with Runtime([talker], store=store, ports=ports) as rt:
        run = await rt.start("talker", "go")
        await anyio.sleep(3.5)
        rt.hub.subscribe("agent:text:delta", heard.append)
        assert (await run.result()).output == TEXT
    assert "".join(x.text for x in heard) == MIDDLE


async def test_each_block_of_reasoning_counts_for_itself(store: Journal, ports: Ports) -> None:
    thoughts = (Thinking(text="wéll 👋"), Thinking(redacted="?"), Thinking(text="so then"))

    class Thinker:
        name = "thinker"

        async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
            assert on_delta is not None, "somebody may begin to listen at any time"
            for block, thought in enumerate(thoughts):
                for letter in thought.text:
                    on_delta(ThinkingDelta(letter, block))
            on_delta(TextDelta("yes"))
            return ModelReply(text="yes", thinking=thoughts)

    models = [Thinker(), ScriptedModel([reply("yes", thinking="wéll 👋")])]
    for model in models:
        heard: list[Any] = []
        async with Runtime([model_agent(model)], store=MemoryJournal(), ports=ports) as rt:
            rt.hub.subscribe(["agent:thinking", "agent:thinking:*"], heard.append)
            await rt.run("assistant", "go")
        pieces = [x for x in heard if isinstance(x, AgentThinkingDelta)]
        for whole in (x for x in heard if x.type == "agent:thinking"):
            of_block = [x for x in pieces if x.block == whole.block]
            assert "".join(x.text for x in of_block) == whole.text
            assert all(whole.text[x.offset :].startswith(x.text) for x in of_block)
