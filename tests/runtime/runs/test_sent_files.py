"""Files that a run is sent: the first one of a name has it, and nobody else is told that he has."""

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import Agent, AgentDefinition, RunState, Runtime, ScriptedModel, agent, tool
from hubbub.hub.errors import HubbubError
from hubbub.hub.ports import MemoryBlobs, Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("A-01")]
MANY = 20


class SlowBlobs(MemoryBlobs):
    """Contents that take a while to be kept, as on a disk: meanwhile others send, too."""

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        await anyio.sleep(0.01)
        await super().put(root_run_id, digest, content)


@pytest.fixture
def ports(ports: Ports) -> Ports:
    ports.blobs = SlowBlobs()
    return ports


@pytest.fixture(params=["at once", "late", "on disk"])
def journal(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Journal:
    match request.param:
        case "at once":
            return MemoryJournal(ids=ports.ids)
        case "late":
            return LateJournal(MemoryJournal(ids=ports.ids))
        case _:
            return sqlite_store(tmp_path / "store", ports=ports, mirror=False)


@agent("collect")
async def collect(input: Any, ctx: Any) -> list[str]:
    return [name async for message in ctx.messages() for name in message.attachments]


@tool
async def forget(state: RunState) -> str:
    """Forget the file."""
    await state.files.delete("a.txt")
    return "ok"


def agents() -> list[AgentDefinition]:
    model = ScriptedModel(["Hello.", "Seen.", call("forget"), "Gone.", *["Hello."] * 9])
    return [Agent("bot", "", model=model, tools=[forget]), collect]


async def put(rt: Runtime, run_id: str, path: str, content: bytes) -> str:
    """What becomes of a file that is sent, as ``PUT /api/runs/…/files/…`` does it."""
    try:
        receipt = await rt.hub.ask("runtime", f"put {run_id} {path}", given=content)
        return str((await receipt).status)
    except HubbubError:
        return "rejected"


async def files(rt: Runtime, run_id: str) -> list[str]:
    return [each["path"] for each in await rt.hub.ask("runtime", f"files {run_id}")]


async def all_at_once(
    rt: Runtime, run_id: str, sent: list[tuple[str, bytes]]
) -> tuple[Counter[str], list[bytes]]:
    """How many came to what, and the contents that were accepted."""
    outcomes: Counter[str] = Counter()
    accepted: list[bytes] = []

    async def send(path: str, content: bytes) -> None:
        outcome = await put(rt, run_id, path, content)
        outcomes[outcome] += 1
        if outcome == "accepted":
            accepted.append(content)

    async with anyio.create_task_group() as group:
        for path, content in sent:
            group.start_soon(send, path, content)
    return outcomes, accepted


@pytest.mark.parametrize("name", ["bot", "collect"])
async def test_of_other_contents_under_one_name_at_once_one_is_accepted(
    name: str, journal: Journal, ports: Ports
) -> None:
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        run = await rt.start(name, "hi")
        contents = [("a.txt", b"%d" % number) for number in range(MANY)]
        outcomes, (content,) = await all_at_once(rt, run.run_id, contents)
        assert outcomes == {"accepted": 1, "rejected": MANY - 1}
        assert await files(rt, run.run_id) == ["a.txt"]
        assert await rt.hub.ask("runtime", f"content {run.run_id} a.txt") == content


@pytest.mark.parametrize("name", ["bot", "collect"])
async def test_one_content_under_one_name_at_once_is_the_same_again(
    name: str, journal: Journal, ports: Ports
) -> None:
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        run = await rt.start(name, "hi")
        outcomes, _ = await all_at_once(rt, run.run_id, [("a.txt", b"x")] * MANY)
        assert outcomes == {"accepted": 1, "duplicate": MANY - 1}
        assert await files(rt, run.run_id) == ["a.txt"]


async def test_of_a_file_and_a_folder_of_one_name_at_once_one_is_accepted(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        run = await rt.start("bot", "hi")
        both = [("a", b"x"), ("a/b", b"x")]
        outcomes, _ = await all_at_once(rt, run.run_id, both)
        assert outcomes == {"accepted": 1, "rejected": 1}
        assert await files(rt, run.run_id) in (["a"], ["a/b"])


async def test_a_file_that_its_run_has_deleted_can_be_sent_again(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        run = await rt.start("bot", "hi")
        await run.result()
        assert await put(rt, run.run_id, "a.txt", b"x") == "accepted"
        await (await run.send("Take it.")).raise_if_rejected()
        await run.result()
        assert await put(rt, run.run_id, "a.txt", b"x") == "duplicate"
        assert await put(rt, run.run_id, "a.txt", b"y") == "rejected"
        await run.send("Forget it.")
        await run.result()
        assert await files(rt, run.run_id) == []
        assert await put(rt, run.run_id, "a.txt", b"x") == "accepted"
        assert await files(rt, run.run_id) == ["a.txt"]


async def test_a_file_that_code_reads_just_now_is_one_file(journal: Journal, ports: Ports) -> None:
    reads, goes_on = anyio.Event(), anyio.Event()

    @agent("reader")
    async def reader(input: Any, ctx: Any) -> None:
        async for _ in ctx.messages():
            reads.set()
            await goes_on.wait()

    async with Runtime([reader], store=journal, ports=ports) as rt:
        run = await rt.start("reader", None)
        assert await put(rt, run.run_id, "a.txt", b"x") == "accepted"
        await reads.wait()
        assert await files(rt, run.run_id) == ["a.txt"]
        goes_on.set()
        run.close()
        await run.result()
        assert await files(rt, run.run_id) == ["a.txt"]
