"""Files that a message names: its run has them, or nothing is sent, whichever way it enters."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from hubbub import Agent, AgentDefinition, Message, RunState, Runtime, ScriptedModel, agent, tool
from hubbub.hub.errors import CallerError, HubbubError, NoSuchFile
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("A-01")]
KEY = "web_ada"
ABSENT = "no file 'none.txt'"


@agent("collect")
async def collect(input: Any, ctx: Any) -> list[str]:
    return [name async for message in ctx.messages() for name in message.attachments]


def agents() -> list[AgentDefinition]:
    return [Agent("bot", "", model=ScriptedModel(["Hello."], repeat=True)), collect]


def message(*names: str, key: str | None = None) -> Message:
    return Message("See it.", attachments=names, key=key)


WAYS: dict[str, Callable[[Runtime, str, Message], Any]] = {
    "send_to_run": lambda rt, run_id, said: rt.hub.send_to_run(run_id, said),
    "send_to": lambda rt, run_id, said: rt.hub.send_to("bot", said),
    "send": lambda rt, run_id, said: rt.hub.send(said, session_key=KEY),
    "send to the only one": lambda rt, run_id, said: rt.hub.send(said),
    "open by a key": lambda rt, run_id, said: rt.hub.open("bot", said, session_key=KEY),
    "run.send": lambda rt, run_id, said: _sent(rt, run_id, said),
}


async def _sent(rt: Runtime, run_id: str, said: Message) -> Any:
    return await (await rt.handle(run_id)).send(said)


async def give(rt: Runtime, run_id: str) -> None:
    """As ``PUT /api/runs/…/files/there.txt`` does it."""
    assert (await (await rt.hub.ask("runtime", f"put {run_id} there.txt", given=b"x"))).accepted


async def messages(rt: Runtime) -> int:
    return len(await rt.hub.read(types=["session:message", "session:open"]))


@pytest.mark.parametrize("way", WAYS)
async def test_a_message_that_names_no_file_of_its_run_is_rejected(
    way: str, journal: Journal, ports: Ports
) -> None:
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        run = await rt.start("bot", "hi", session_key=KEY)
        await run.result()
        await give(rt, run.run_id)
        before = await messages(rt)
        for names in (("none.txt",), ("there.txt", "none.txt")):
            receipt = await WAYS[way](rt, run.run_id, message(*names))
            assert receipt.rejected and ABSENT in receipt.reason
        assert await messages(rt) == before
        for names in (("there.txt",), ("/attachments/there.txt",), ()):
            assert (await WAYS[way](rt, run.run_id, message(*names))).accepted


async def test_a_new_run_has_no_files_to_name(journal: Journal, ports: Ports) -> None:
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        for name in ("bot", "collect"):
            receipt = await rt.hub.open(name, message("none.txt"))
            assert receipt.rejected and ABSENT in receipt.reason
            with pytest.raises(CallerError, match=ABSENT):
                await rt.start(name, message("none.txt"))
            with pytest.raises(CallerError, match=ABSENT):
                await rt.run(name, message("none.txt"))
        assert not await rt.hub.journal.runs(live=False)


async def test_a_code_run_is_sent_what_names_its_files(journal: Journal, ports: Ports) -> None:
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        run = await rt.start("collect", None)
        await give(rt, run.run_id)
        assert (await run.send(message("none.txt"))).rejected
        assert (await run.send(message("there.txt"))).accepted
        run.close()
        # The file itself comes as a message, too.
        assert (await run.result()).output == ["there.txt", "there.txt"]


async def test_a_parked_run_that_is_not_in_memory_is_looked_at(tmp_path: Any) -> None:
    """Its store knows its files, also in the next process."""
    store = f"sqlite:{tmp_path}"
    async with Runtime(agents(), store=store) as rt:
        run = await rt.start("bot", "hi", session_key=KEY)
        await run.result()
        await give(rt, run.run_id)
    async with Runtime(agents(), store=store) as rt:
        assert (await rt.hub.send(message("none.txt"), session_key=KEY)).rejected
        assert (await rt.hub.send(message("there.txt"), session_key=KEY)).accepted


async def test_a_child_is_started_with_copies_of_the_files_that_are_named(
    journal: Journal, ports: Ports
) -> None:
    came: list[str] = []

    @agent("reads")
    async def reads(input: Any, ctx: Any) -> str:
        return str(await ctx.files.read_text("there.txt"))

    @agent("parent")
    async def parent(input: Any, ctx: Any) -> str:
        await ctx.files.write("there.txt", "from above")
        with pytest.raises(NoSuchFile, match=r"none\.txt"):
            ctx.spawn("reads", message("none.txt"))
        return str((await ctx.spawn("reads", message("there.txt")).result()).value())

    @tool
    async def spawn(state: RunState) -> str:
        await state.files.write("there.txt", "from a tool")
        for names in (("none.txt",), ("there.txt",)):
            try:
                child = state.spawn("reads", message(*names))
                came.append((await child.result()).value())
            except HubbubError as error:
                came.append(type(error).__name__)
        return "ok"

    model = ScriptedModel([call("spawn"), "done"])
    bot = Agent("bot", "", model=model, tools=[spawn])
    async with Runtime([reads, parent, bot], store=journal, ports=ports) as rt:
        with anyio.fail_after(3600):
            assert (await rt.run("parent", None)).output == "from above"
            await rt.run("bot", "go")
    assert came == ["NoSuchFile", "from a tool"]


async def test_one_s_own_messages_name_one_s_own_files(journal: Journal, ports: Ports) -> None:
    came: list[str] = []

    @tool
    async def remember(state: RunState) -> str:
        await state.files.write("there.txt", "x")
        for said in (message("none.txt"), message("there.txt")):
            came.append((await state.queue_message(said)).status)
            came.append((await state.inject_message(said)).status)
        return "ok"

    model = ScriptedModel([call("remember"), *["done"] * 9])
    bot = Agent("bot", "", model=model, tools=[remember])
    async with Runtime([bot], store=journal, ports=ports) as rt:
        await (await rt.start("bot", "go")).result()
    assert came == ["rejected", "rejected", "accepted", "accepted"]
