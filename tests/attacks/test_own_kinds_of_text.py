"""A user's own kind of text (markupsafe's, numpy's) is refused where it enters, on every store."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub import Message, RunContext, Runtime, agent
from hubbub.hub.errors import BadValue

pytestmark = pytest.mark.anyio


class Text(str):
    """Such as ``markupsafe.Markup``: msgspec and SQLite write exact strings only."""


TEXT = Text("alpha")

BY_CODE: dict[str, Callable[[RunContext], Awaitable[Any]]] = {
    "kv.set": lambda ctx: ctx.kv.set(TEXT, 1),
    "step": lambda ctx: ctx.step(TEXT, lambda: 1),
    "options": lambda ctx: ctx.ask("Which?", options=[TEXT]),
    "question": lambda ctx: ctx.ask(TEXT),
}

BY_USERS: dict[str, Callable[[Runtime], Any]] = {
    "agent": lambda rt: rt.hub.open(TEXT),
    "name": lambda rt: rt.hub.open("idle", name=TEXT),
    "session_key": lambda rt: rt.hub.open("idle", session_key=TEXT),
    "correlation_id": lambda rt: rt.hub.open("idle", correlation_id=TEXT),
    "run_id": lambda rt: rt.hub.open("idle", run_id=TEXT),
    "message": lambda rt: rt.hub.send_to_run("x", TEXT),
    "key": lambda rt: rt.hub.send_to_run("x", Message("hi", key=TEXT)),
    "to": lambda rt: rt.hub.send_to_run(TEXT, "hi"),
    "reply": lambda rt: rt.hub.reply("x", TEXT),
    "reason": lambda rt: rt.hub.terminate("x", TEXT),
}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory" if request.param == "memory" else f"sqlite:{tmp_path}"


@pytest.mark.spec("G-01")
@pytest.mark.parametrize("say", BY_USERS.values(), ids=[*BY_USERS])
async def test_what_users_say_is_refused_at_the_call(
    store: str, say: Callable[[Runtime], Any]
) -> None:
    @agent("idle")
    async def idle(input: Any, ctx: RunContext) -> None:
        """Do nothing."""

    async with Runtime([idle], store=store) as rt:
        with pytest.raises(BadValue, match=r"not Text; use str\(\.\.\.\)"):
            say(rt)


@pytest.mark.spec("G-01")
@pytest.mark.parametrize("act", BY_CODE.values(), ids=[*BY_CODE])
async def test_what_code_says_is_refused_at_the_call(
    store: str, act: Callable[[RunContext], Awaitable[Any]]
) -> None:
    @agent("acting")
    async def acting(input: Any, ctx: RunContext) -> str:
        """Say it."""
        with pytest.raises(BadValue, match=r"not Text; use str\(\.\.\.\)"):
            await act(ctx)
        return "refused"

    async with Runtime([acting], store=store) as rt:
        assert (await rt.run("acting", "go")).value() == "refused"
