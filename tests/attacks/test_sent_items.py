"""What is sent as an event is refused, or leaves a store that its own tools find in order."""

import math
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import anyio
import msgspec
import pytest
from msgspec import structs

from attacks.hostile_values import VALUES
from hubbub import Agent, FunctionModel, Image, Message, Runtime
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, CallerError, HubbubError
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.values import Secret
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = pytest.mark.anyio

ZEROS = "0" * 64
PNG = b"\x89PNG\r\n\x1a\n"
ITEMS = get_args(e.InLane)

_PARTS = [
    e.ContentPart(kind="image", media_type="image/png", size=3, digest=digest)
    for digest in ("", "bogus", ZEROS, "../" * 22)
] + [
    e.ContentPart(kind="image"),
    e.ContentPart(kind="image", media_type="text/html", url="javascript:x"),
    e.ContentPart(kind="image", url="https://name:password@there/x.png"),
    e.ContentPart(kind="image", media_type="image/png", size=-5, digest=ZEROS, name="a\nb"),
]  # fmt: skip
_FILES = [
    e.FileRef(path=path, digest=digest, size=size)
    for path, digest, size in (
        ("../../up", ZEROS, 3), ("a\0b", ZEROS, 3), ("", ZEROS, 0), ("/etc/passwd", ZEROS, 1),
        ("x", "nonsense", 3), ("x", ZEROS, 3), ("x", ZEROS, -1), ("x", ZEROS, 10**30),
    )
]  # fmt: skip
_OTHERS: list[Any] = [
    math.inf, -math.inf, math.nan, -1.0, 1e300, b"x", object(), msgspec.Raw(b"[1]"),
    msgspec.Raw(b"{"), msgspec.Raw(b'"x"'), ("a\0b",), ("x",) * 101, ("",), (_PARTS[2],) * 101,
    (e.Variable(name="a\0b", value=Secret("x")),), (e.Variable(name="", value=Secret("\ud800")),),
    *((each,) for each in (*_PARTS, *_FILES)),
    e.SessionMessage(content="m", files=(_FILES[5],)), e.SessionMessage(role=""),
    e.SessionMessage(content="m", parts=(_PARTS[2],)), e.SessionMessage(content="m", turn=2**70),
    e.SessionMessage(content="m", attachments=("no such file",)),
    (e.HistoryMessage(content="t", parts=(_PARTS[2],)),), (e.HistoryMessage(role="tool"),),
    (e.GivenTool(name=msgspec.Raw(b'"t"')),), (e.HistoryMessage(role=msgspec.Raw(b'"user"')),),
    (e.FileRef(path="x", digest=msgspec.Raw(b'"x"'), size=1),), UUID(int=0), Decimal(1),
    (e.GivenTool(name="t", schema_json=msgspec.Raw(b'{"type":"object"}')),),
    (e.GivenTool(name="a b"),), (e.GivenTool(name="t", timeout=math.inf),),
]  # fmt: skip


def hostile(kind: type[e.Event], place: e.Event) -> Iterator[e.Event]:
    """Events of a class, each with one field that nobody expects."""
    for field in structs.fields(kind):
        for value in (*VALUES, *_OTHERS):
            with suppress(Exception):  # What cannot even be built is sent by nobody.
                yield structs.replace(place, **{field.name: value})


def bot(name: str = "bot") -> Agent:
    return Agent(name, "You.", model=FunctionModel(lambda request: "fine"))


def harmless(kind: type[e.Event], run_id: str) -> e.Event:
    said: dict[str, Any] = {
        e.SessionOpen: {"open_agent": "bot"}, e.SessionMessage: {"content": "x"},
    }.get(kind, {})  # fmt: skip
    return kind(**({} if kind is e.SessionOpen else {"run_id": run_id}), **said)


async def attack(rt: Runtime, kind: type[e.Event]) -> int:
    """Send all hostile events of a class; how many were taken."""
    run = await rt.start("bot", "hi")
    await run.result()
    taken = 0
    for event in hostile(kind, harmless(kind, run.run_id)):
        with anyio.fail_after(60), suppress(HubbubError):
            await rt.hub.publish(event)
            taken += 1
    await anyio.sleep(5)
    assert (await rt.run("bot", "still there?")).output == "fine"
    assert not rt.hub.journal.failure
    return taken


@pytest.mark.spec("G-01", "G-04")
@pytest.mark.parametrize("kind", ITEMS, ids=lambda kind: kind.type)
async def test_an_item_is_refused_or_its_store_stays_in_order(
    kind: type[e.Event], tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    async with Runtime([bot()], store=sqlite_store(folder, ports=ports), ports=ports) as rt:
        taken = await attack(rt, kind)
        if kind in (e.SessionResult, e.SessionTimer, e.SessionVariables):
            assert not taken, "the runtime alone says so"
    found = [problem.text for problem in StoreCheck(f"sqlite:{folder}").problems()]
    assert found == []
    with open_reader(f"sqlite:{folder}") as reader:
        roots = [row.run_id for row in reader.rows() if row.parent_run_id is None]
        exports = [list(export_run(reader, run_id)) for run_id in roots]
    copy = tmp_path / "copy"
    for lines in exports:
        import_runs(f"sqlite:{copy}", "f.jsonl", lines, ports=Ports())
    for place in (folder, copy):
        async with Runtime([bot()], store=sqlite_store(place, ports=ports), ports=ports) as rt:
            assert (await rt.run("bot", "again")).output == "fine"


@pytest.mark.spec("G-01")
@pytest.mark.parametrize("kind", ITEMS, ids=lambda kind: kind.type)
async def test_an_item_troubles_nobody_else_in_memory(
    kind: type[e.Event], journal: Journal, ports: Ports
) -> None:
    async with Runtime([bot()], store=journal, ports=ports) as rt:
        await attack(rt, kind)


@pytest.mark.spec("L-02")
@pytest.mark.parametrize("is_kept_in", ["memory", "sqlite"])
async def test_a_part_whose_content_is_not_kept_is_refused_by_every_way(
    is_kept_in: str, journal: Journal, tmp_path: Path, ports: Ports
) -> None:
    store = journal if is_kept_in == "memory" else sqlite_store(tmp_path / "s", ports=ports)
    lacking = e.ContentPart(kind="image", media_type="image/png", size=3, digest=ZEROS)
    async with Runtime([bot()], store=store, ports=ports) as rt:
        run = await rt.start("bot", ["look", Image(PNG)])
        assert (await run.result()).outcome == "completed"
        for said in (["x", lacking], Message("x", parts=[lacking])):
            assert "is not kept here" in (await rt.hub.send_to_run(run.run_id, said)).reason
            assert "is not kept here" in (await rt.hub.open("bot", said)).reason
            with pytest.raises(CallerError, match="is not kept here"):
                await run.ask(said)
        history = [{"role": "user", "content": "t", "parts": [lacking]}]
        assert "is not kept here" in (await rt.hub.open("bot", "x", history=history)).reason
        with pytest.raises(CallerError, match="is not kept here"):
            await rt.hub.publish(e.SessionMessage(run_id=run.run_id, parts=(lacking,)))
        # What an event of the run has had is kept, and may be sent again.
        part = Image(PNG).part
        assert (await rt.hub.send_to_run(run.run_id, ["again", part])).accepted
        larger = structs.replace(part, size=part.size + 1)
        assert "bytes, not" in (await rt.hub.send_to_run(run.run_id, ["x", larger])).reason


@pytest.mark.parametrize("is_kept_in", ["memory", "sqlite"])
async def test_a_part_counts_as_kept_only_if_the_message_that_brings_it_is_accepted(
    is_kept_in: str, journal: Journal, tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "s"
    store = journal if is_kept_in == "memory" else sqlite_store(folder, ports=ports)
    part = Image(PNG).part
    async with Runtime([bot()], store=store, ports=ports) as rt:
        chat = await rt.start("bot", "hello", session_key="chat")
        assert (await chat.result()).outcome == "completed"
        over = await rt.run("bot", "over")
        # Both are on their way to the store at once.
        brought = rt.hub.send_to_run(over.run_id, ["x", Image(PNG)])
        named = rt.hub.send_to_run(chat.run_id, ["x", part])
        assert (await brought).reason == "ended"
        assert "is not kept here" in (await named).reason
        brought = rt.hub.send_to_run(chat.run_id, ["x", Image(PNG)])
        named = rt.hub.send_to_run(chat.run_id, ["x", part])
        assert (await brought).accepted and (await named).accepted
        assert (await chat.result()).outcome == "completed"
    if is_kept_in == "sqlite":
        found = [x.text for x in StoreCheck(f"sqlite:{folder}", thorough=True).problems()]
        assert found == []


@pytest.mark.spec("R-09")
async def test_a_message_that_opens_a_run_by_event_is_its_input(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([bot()], store=journal, ports=ports) as rt:
        said = e.SessionMessage(content="hello")
        await rt.hub.publish(e.SessionOpen(open_agent="bot", session_key="k", message=said))
        await anyio.sleep(1)
        (opening,) = await rt.hub.read(types="session:open")
        assert isinstance(opening, e.SessionOpen)
        assert opening.input == "hello"
        assert len(await rt.hub.read(types="session:end")) == 1
        other = e.SessionOpen(open_agent="bot", message=said, input_json=msgspec.Raw(b'"other"'))
        with pytest.raises(BadValue, match="give one of them"):
            rt.hub.emit(other)
