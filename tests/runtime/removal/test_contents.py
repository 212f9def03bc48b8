"""Contents of files go beside runs at work when nothing names them any more, and never before."""

from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from support.pruned_stores import DAY, problems
from support.stores import agents

from hubbub import Document, Message, Retention, Runtime
from hubbub.hub.errors import UnknownRun
from hubbub.hub.events import FileRef, SessionMessage
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.record_check import RecordCheck
from hubbub.runtime.removal.passes import RetentionPasses
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader

pytestmark = pytest.mark.anyio

Open = Callable[[], Runtime]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def opened(folder: Path, ports: Ports) -> Open:
    """A runtime that keeps a tree for two days."""
    retention = Retention(ended="2d")
    return lambda: Runtime(agents(), store=f"sqlite:{folder}", ports=ports, retention=retention)


def passes_of(rt: Runtime) -> RetentionPasses:
    assert rt._passes is not None
    return rt._passes


def contents_in(folder: Path) -> set[bytes]:
    return {place.read_bytes() for place in (folder / "blobs").rglob("*") if place.is_file()}


def document(text: str) -> Document:
    return Document(b"%PDF-1.7\n" + text.encode())


async def put(rt: Runtime, run_id: str, content: bytes) -> None:
    """The first half of writing a file: nothing names it yet."""
    await rt.hub.ports.blobs.put(run_id, sha256(content).hexdigest(), content)


def naming(content: bytes) -> SessionMessage:
    ref = FileRef(path="put.txt", digest=sha256(content).hexdigest(), size=len(content))
    return SessionMessage(files=(ref,), silent=True, triggers=False)


async def test_a_content_goes_with_the_last_tree_that_names_it(folder: Path, opened: Open) -> None:
    async with opened() as rt:
        await rt.run("bot", "alone")
        await rt.run("bot", "shared")
        chat = await rt.start("bot", "talk", session_key="chat")
        await chat.result()
        await anyio.sleep(DAY)
        await rt.run("bot", "shared")
        await anyio.sleep(1.5 * DAY)
        assert contents_in(folder) == {b"heard shared", b"heard talk"}
        await rt.run("bot", "newest")
        await anyio.sleep(1.5 * DAY)
        assert contents_in(folder) == {b"heard newest", b"heard talk"}
        removed = passes_of(rt).removed
        assert (removed.contents, removed.content_bytes) == (2, len("heard aloneheard shared"))
    assert problems(f"sqlite:{folder}") == []


async def test_a_content_that_is_put_and_not_on_record_yet_stays_however_long_that_takes(
    folder: Path, opened: Open
) -> None:
    content = b"heard old"
    async with opened() as rt:
        await rt.run("bot", "old")
        chat = await rt.start("bot", "talk", session_key="chat")
        await chat.result()
        await put(rt, chat.run_id, content)  # It is there already: the old run has it.
        await anyio.sleep(4 * DAY)
        assert passes_of(rt).removed.trees == 1 and content in contents_in(folder)
        receipt = await rt.hub.pipeline.deliver(naming(content), to=chat.run_id)
        assert receipt.accepted
        await anyio.sleep(DAY)
        assert content in contents_in(folder)
        await rt.hub.terminate(chat.run_id)
        await rt.run("bot", "newest")
        await anyio.sleep(3 * DAY)
        assert contents_in(folder) == {b"heard newest"}
    assert problems(f"sqlite:{folder}") == []


async def test_what_was_put_for_a_tree_that_never_named_it_goes_with_that_tree(
    folder: Path, opened: Open
) -> None:
    async with opened() as rt:
        run = await rt.start("bot", "talk", session_key="chat")
        await run.result()
        await put(rt, run.run_id, b"never named")
        await rt.hub.terminate(run.run_id)
        await rt.run("bot", "newest")
        await anyio.sleep(1.5 * DAY)
        assert b"never named" in contents_in(folder)
        await anyio.sleep(DAY)
        assert contents_in(folder) == {b"heard newest"}


async def test_what_a_life_has_put_and_not_named_goes_in_the_next(
    folder: Path, opened: Open
) -> None:
    async with opened() as rt:
        run = await rt.start("bot", "talk", session_key="chat")
        await run.result()
        await put(rt, run.run_id, b"never named")
    async with opened() as rt:
        await anyio.sleep(1)
    assert contents_in(folder) == {b"heard talk"}


async def test_contents_of_what_was_removed_or_written_without_a_retention_go_with_one(
    folder: Path, opened: Open, ports: Ports
) -> None:
    async with Runtime(agents(), store=f"sqlite:{folder}", ports=ports) as rt:
        await rt.run("bot", "first")
    async with opened() as rt:
        await rt.run("bot", "second")
    async with Runtime(agents(), store=f"sqlite:{folder}", ports=ports) as rt:
        await rt.run("bot", "third")
        await rt.run("bot", Message("fourth", parts=(document("a part"),)))
    async with opened() as rt:
        await anyio.sleep(3 * DAY)
        await rt.run("bot", "newest")
        await anyio.sleep(DAY)
        assert contents_in(folder) == {b"heard newest"}


async def test_a_content_that_is_shared_in_a_message_is_there_or_the_message_is_refused(
    folder: Path, opened: Open
) -> None:
    async with opened() as rt:
        chat = await rt.start("bot", "talk", session_key="chat")
        await chat.result()
        await rt.run("bot", "old")
        await rt.run("bot", "the last event of the store is another run's")
        await anyio.sleep(3 * DAY)
        assert b"heard old" not in contents_in(folder)
        part = document("told once")
        receipt = await rt.hub.send_to_run(chat.run_id, Message("look", parts=(part,)))
        assert receipt.accepted
        await rt.hub.terminate(chat.run_id)
        other = await rt.start("bot", Message("look", parts=(part,)), session_key="other")
        await other.result()
        await anyio.sleep(3 * DAY)
        assert any(b"told once" in content for content in contents_in(folder))
    assert problems(f"sqlite:{folder}") == []


@pytest.mark.parametrize("by", ["backup", "export", "fsck"])
async def test_while_somebody_reads_the_contents_of_a_store_none_goes(
    by: str, folder: Path, opened: Open, tmp_path: Path
) -> None:
    async with opened() as rt:
        old = await rt.run("bot", "old")
        await rt.run("bot", "newest")
        with open_reader(f"sqlite:{folder}") as reader, reader.one_moment():
            await anyio.sleep(3 * DAY)
            assert passes_of(rt).removed.trees == 1
            assert contents_in(folder) == {b"heard old", b"heard newest"}
            if by == "backup":
                reader.back_up(tmp_path / "copy")
                assert problems(f"sqlite:{tmp_path / 'copy'}") == []
            elif by == "export":
                assert len([*export_run(reader, old.run_id)]) > 5
            else:
                found = RecordCheck(reader, thorough=True, tell=lambda _: None).problems()
                assert [x for x in found if not x.heals] == []
        await anyio.sleep(DAY)
        assert contents_in(folder) == {b"heard newest"}


async def test_a_content_that_cannot_be_removed_stays_is_told_once_and_goes_later(
    folder: Path, opened: Open, tmp_path: Path
) -> None:
    digest = sha256(b"heard old").hexdigest()
    place = folder / "blobs" / digest[:2] / digest
    async with opened() as rt:
        await rt.run("bot", "old")
        await rt.run("bot", "newest")
        place.rename(tmp_path / "aside")
        place.mkdir()
        (folder / "blobs" / "zz").write_text("what is no folder")
        await anyio.sleep(3 * DAY)
        removed = passes_of(rt).removed
        assert (removed.trees, removed.contents, removed.problems) == (1, 0, 1)
        place.rmdir()
        (tmp_path / "aside").rename(place)
        await anyio.sleep(DAY)
        assert (removed.contents, removed.problems) == (1, 1)
        assert not place.exists()


async def test_whatever_names_a_content_while_it_goes_has_it_or_is_refused(
    folder: Path, opened: Open
) -> None:
    forked: list[bool] = []
    async with opened() as rt:

        async def attempt(call: Callable[[], Awaitable[Any]]) -> None:
            try:
                await call()
            except UnknownRun:
                forked.append(False)
            else:
                forked.append(True)

        for turns in range(40):
            old = await rt.run("bot", f"old {turns}")
            await rt.run("bot", "the last event of the store is another run's")
            chat = await rt.start("bot", "talk", session_key=f"chat {turns}")
            await chat.result()
            await anyio.sleep(2 * DAY - 1)
            content = f"heard old {turns}".encode()
            await anyio.sleep(2)
            async with anyio.create_task_group() as group:
                group.start_soon(passes_of(rt).make_pass)
                for _ in range(turns):
                    await checkpoint()
                # What it brings along takes its time: meanwhile the old run may go.
                parts = [document(f"{turns}, {number}") for number in range(turns % 2 * 12)]
                said = Message("on", parts=parts)
                group.start_soon(attempt, partial(rt.fork, old.run_id, message=said))
                if turns % 3 == 0:  # Writes the same file.
                    group.start_soon(rt.run, "bot", f"old {turns}")
                elif turns % 3 == 1:
                    await put(rt, chat.run_id, content)
                    await rt.hub.pipeline.deliver(naming(content), to=chat.run_id)
            assert problems(f"sqlite:{folder}") == []
            await rt.hub.terminate(chat.run_id)
    assert {*forked} == {True, False}
