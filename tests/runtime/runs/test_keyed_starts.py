"""Starting with a ``Message``: what is delivered again is a duplicate, not a second turn (U-07)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub import (
    AgentDefinition,
    FunctionModel,
    Message,
    PromptDefinition,
    Runtime,
    SideConfig,
    agent,
)  # fmt: skip
from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.hub.errors import CallerError, RunEnded
from hubbub.hub.events import SessionMessage, SessionOpen
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

Open = Callable[[], Runtime]


def heard(request: ModelRequest) -> list[str]:
    return [each.content for each in request.messages if isinstance(each, UserMessage)]


@pytest.fixture(params=["memory", "late", "sqlite"])
def open_runtime(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Open:
    """Opens a runtime on the same store, again and again."""
    memory = MemoryJournal()

    def store() -> Journal:
        if request.param == "sqlite":
            return sqlite_store(tmp_path / "store", ports=ports)
        return memory if request.param == "memory" else LateJournal(memory)

    model = FunctionModel(lambda asked: " | ".join(heard(asked)))
    prompt = PromptDefinition(name="bot", prompt="", model=model)
    bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))

    @agent("code")
    async def code(input: str, ctx: Any) -> str:
        return f"heard {input}"

    return lambda: Runtime([bot, code], store=store(), ports=ports)


HI = Message("hi", key="m1")


@pytest.mark.spec("H-09", "R-09", "U-07")
async def test_a_message_that_starts_a_conversation_is_taken_once(open_runtime: Open) -> None:
    async with open_runtime() as rt:
        first = await rt.start("bot", HI, session_key="k")
        again = await rt.start("bot", HI, session_key="k")
        assert again.run_id == first.run_id
        assert (await again.result()).output == "hi"
        assert (await rt.hub.open("bot", HI, session_key="k")).duplicate
        assert (await rt.hub.send_to_run(first.run_id, HI)).duplicate
        assert (await rt.hub.open("bot", Message("bye", key="m1"), session_key="k")).rejected
        with pytest.raises(CallerError, match="key reused"):
            await rt.start("bot", Message("bye", key="m1"), session_key="k")
        assert (await rt.hub.open("bot", HI, session_key="k", source="elsewhere")).accepted
        assert (await first.result()).output == "hi | hi"


@pytest.mark.spec("H-09", "R-09")
async def test_a_message_that_finds_its_conversation_is_taken_once(open_runtime: Open) -> None:
    second = Message("and?", key="m2")
    async with open_runtime() as rt:
        run = await rt.start("bot", HI, session_key="k")
        await run.result()
        for _ in range(2):
            found = await rt.start("bot", second, session_key="k")
            assert found.run_id == run.run_id
        assert (await run.result()).output == "hi | and?"
        assert (await rt.hub.send_to_run(run.run_id, second)).duplicate
        sent = Message("sent", key="m3")
        assert (await rt.hub.send_to_run(run.run_id, sent)).accepted
        assert (await rt.hub.open("bot", sent, session_key="k")).duplicate
        said = await rt.hub.read(run.run_id, types=["session:open", "session:message"])
        assert [type(each) for each in said] == [SessionOpen, SessionMessage, SessionMessage]


@pytest.mark.spec("H-09", "P-03", "U-07")
async def test_it_is_a_duplicate_after_a_restart_too(open_runtime: Open) -> None:
    async with open_runtime() as rt:
        run = await rt.start("bot", HI, session_key="k")
        await run.result()
        await rt.start("bot", Message("and?", key="m2"), session_key="k")
        await run.result()
    async with open_runtime() as rt:
        for message in (HI, Message("and?", key="m2")):
            again = await rt.start("bot", message, session_key="k")
            assert again.run_id == run.run_id
            assert (await again.result()).output == "hi | and?"


@pytest.mark.spec("R-09")
async def test_the_same_run_id_is_the_same_start(open_runtime: Open) -> None:
    async with open_runtime() as rt:
        first = await rt.start("bot", HI, run_id="mine")
        again = await rt.start("bot", HI, run_id="mine")
        assert first.run_id == again.run_id == "mine"
        assert (await again.result()).output == "hi"
        assert again.duplicate and not first.duplicate


@pytest.mark.spec("R-09")
async def test_a_handle_says_whether_what_was_started_was_dropped(open_runtime: Open) -> None:
    async with open_runtime() as rt:
        assert not (await rt.start("bot", "one", run_id="mine")).duplicate
        dropped = await rt.start("bot", "two", run_id="mine")
        assert dropped.duplicate
        keyed = await rt.start("bot", Message("three", key="3"), run_id="mine")
        assert not keyed.duplicate
        await dropped.send("four")
        assert (await keyed.result()).output == "one | three | four"
        assert not (await rt.start("bot", "hi", session_key="k")).duplicate
        assert not (await rt.start("bot", "hi", session_key="k")).duplicate


@pytest.mark.spec("H-09", "R-09")
async def test_what_opens_a_run_again_by_its_id_is_judged_by_its_key(open_runtime: Open) -> None:
    async with open_runtime() as rt:
        run = await rt.start("bot", HI, run_id="mine")
        await run.result()
        with pytest.raises(CallerError, match="key reused"):
            await rt.start("bot", Message("bye", key="m1"), run_id="mine")
        refused = await rt.hub.open("bot", Message("bye", key="m1"), run_id="mine")
        assert (refused.status, refused.reason) == ("rejected", "key reused")
        # A key that the run has not seen: nobody has said this before, so it is no duplicate.
        assert (await rt.hub.open("bot", Message("and?", key="m2"), run_id="mine")).accepted
        assert (await run.result()).output == "hi | and?"
    async with open_runtime() as rt:
        for message, is_said in ((HI, True), (Message("bye", key="m2"), False)):
            again = await rt.hub.open("bot", message, run_id="mine")
            assert again.duplicate is is_said and again.rejected is not is_said
        # Without a key the id alone says that it is the same opening.
        assert (await rt.hub.open("bot", "bye", run_id="mine")).duplicate
        assert (await rt.hub.open("bot", Message("bye"), run_id="mine")).duplicate
        await rt.terminate("mine")
        await rt.finished("mine")
        assert (await rt.hub.open("bot", HI, run_id="mine")).duplicate
        reused = await rt.hub.open("bot", Message("bye", key="m1"), run_id="mine")
        assert (reused.status, reused.reason) == ("rejected", "key reused")
        # Nobody has said that before, and nobody would hear it.
        late = await rt.hub.open("bot", Message("late", key="m3"), run_id="mine")
        assert (late.status, late.reason) == ("rejected", "terminated")
        with pytest.raises(RunEnded):
            await rt.start("bot", Message("late", key="m3"), run_id="mine")


@pytest.mark.spec("H-09", "R-09")
async def test_an_opening_that_nobody_would_hear_is_rejected_after_a_restart_too(
    open_runtime: Open,
) -> None:
    async with open_runtime() as rt:
        await (await rt.start("code", HI, run_id="mine")).finished()
    async with open_runtime() as rt:
        assert (await rt.hub.open("code", HI, run_id="mine")).duplicate
        assert (await rt.hub.open("code", "hi", run_id="mine")).duplicate
        late = await rt.hub.open("code", Message("late", key="m3"), run_id="mine")
        assert (late.status, late.reason) == ("rejected", "ended")


async def test_without_an_address_each_start_is_a_run_of_its_own(open_runtime: Open) -> None:
    """Keys are told apart by run: another user's message may have the same one."""
    async with open_runtime() as rt:
        first, other = await rt.start("bot", HI), await rt.start("bot", HI)
        assert first.run_id != other.run_id


@pytest.mark.spec("H-20")
async def test_a_message_is_a_message_from_the_start(open_runtime: Open) -> None:
    async with open_runtime() as rt:
        message = Message("hi", role="system", silent=True, metadata={"n": 1})
        run = await rt.start("bot", message)
        assert (await run.result()).output == "hi"
        (opened,) = await rt.hub.read(run.run_id, types="session:open")
        assert isinstance(opened, SessionOpen) and opened.message is not None
        assert (opened.input, opened.message.role) == ("hi", "system")
        assert (opened.message.silent, opened.message.metadata) == (True, {"n": 1})
        assert (await rt.run("bot", HI)).output == "hi"


async def test_a_code_agent_gets_the_text_of_a_message(open_runtime: Open) -> None:
    async with open_runtime() as rt:
        assert (await rt.run("code", HI)).output == "heard hi"
        run = await rt.start("code", HI, session_key="k")
        assert (await run.result()).output == "heard hi"
