"""A text that is too long for any model is refused by every way in, and by the same number."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw
from support.agents import model_agent

from hubbub import Message, Runtime, ScriptedModel, agent
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.message import MAX_MESSAGE_CHARS
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01")]

LONGEST = "x" * MAX_MESSAGE_CHARS


def as_json(text: str) -> Raw:
    return Raw(b'"%s"' % text.encode())


async def spawned(rt: Runtime, text: str) -> None:
    outcome = await rt.run("parent", len(text))
    if outcome.outcome == "failed":
        raise BadValue("spawn", outcome.reason)


WAYS: dict[str, Callable[[Runtime, str, str], Any]] = {
    "open": lambda rt, run_id, text: rt.hub.open("bot", text),
    "open by a key": lambda rt, run_id, text: rt.hub.open("bot", text, session_key="k"),
    "open with a message": lambda rt, run_id, text: rt.hub.open("bot", Message(text)),
    "start": lambda rt, run_id, text: rt.start("bot", text),
    "run": lambda rt, run_id, text: rt.run("bot", text),
    "run code": lambda rt, run_id, text: rt.run("echo", text),
    "spawn": lambda rt, run_id, text: spawned(rt, text),
    "send": lambda rt, run_id, text: rt.hub.send_to_run(run_id, text),
    "reset": lambda rt, run_id, text: rt.hub.reset(run_id, text),
    "an opening": lambda rt, run_id, text: rt.hub.publish(
        e.SessionOpen(open_agent="bot", input_json=as_json(text))
    ),
    "a message": lambda rt, run_id, text: rt.hub.publish(
        e.SessionMessage(run_id=run_id, content=text)
    ),
    "a reset": lambda rt, run_id, text: rt.hub.publish(e.SessionReset(run_id=run_id, message=text)),
}


@agent("echo")
async def echo(input: Any, ctx: Any) -> None:
    """Takes anything."""


@agent("parent")
async def parent(input: int, ctx: Any) -> None:
    """Starts a child with so long a text."""
    await ctx.spawn("echo", "x" * input).result()


@pytest.mark.parametrize("way", WAYS)
async def test_a_text_has_one_limit_by_every_way(way: str, journal: Journal, ports: Ports) -> None:
    agents = [model_agent(ScriptedModel(["Hello."] * 9), name="bot"), echo, parent]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        run = await rt.start("bot", "hi")
        await run.result()
        await WAYS[way](rt, run.run_id, LONGEST)
        with pytest.raises(BadValue, match="longer than 4,000,000 characters"):
            await WAYS[way](rt, run.run_id, f"{LONGEST}x")
