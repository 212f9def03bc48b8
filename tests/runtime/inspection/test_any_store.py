"""What looks into a store does so through ``StoreReader``, whatever store it is."""

from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs
from support.stores import agents

from hubbub import Message, Runtime
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.find import find_run
from hubbub.runtime.inspection.folder_export import export_context, export_state
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.inspection.replay import replay
from hubbub.runtime.inspection.views import list_runs, report
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, open_store

pytestmark = pytest.mark.anyio


async def looked_into(store: Store, ports: Ports) -> tuple[str, list[Any]]:
    """A run of a little story in that store, and all that can be looked at."""
    async with Runtime(agents(), store=store, ports=ports) as rt:
        chat = await rt.start("bot", "hello", session_key="chat_1_2")
        await chat.result()
        await rt.hub.send_to_run(chat.run_id, Message("again", key="first"))
        await chat.result()
        await rt.run("bot", "one question")
        parent = await rt.start("parent", "wait")
        await anyio.sleep(1)  # Until it waits, its child at its end.
        await rt.hub.send_to_run(parent.run_id, "are you there?")
        with closing(store.reader()) as reader:
            (header, *lines) = export_run(reader, chat.run_id, contents=False)
            assert store.name.encode() in header
            reports = [report(reader, row.run_id, full=True, frames=True) for row in reader.rows()]
            # A position names its store.
            assert {x.position for x in reports} == {f"{store.name}@{reader.tip}"}
            reports = [structs.replace(x, position="") for x in reports]
            return chat.run_id, [
                lines, list_runs(reader, ended=True), list_runs(reader),
                reports,
                [replay(reader, row.run_id) for row in reader.rows()],
                find_run(reader, chat.run_id[:-1]), find_run(reader, "chat_1_2"),
                [*export_context(reader, chat.run_id)],
                export_state(reader, chat.run_id),
            ]  # fmt: skip


async def test_a_memory_store_shows_what_a_database_shows(tmp_path: Path) -> None:
    made: list[tuple[str, list[Any]]] = []
    for name in ("memory", f"sqlite:{tmp_path}"):
        ports = virtual_ports()
        made.append(await looked_into(open_store(name, ports), ports))
    (run_id, of_memory), (same_id, of_sqlite) = made
    assert run_id == same_id
    for one, other in zip(of_memory, of_sqlite, strict=True):
        assert one == other


async def test_a_run_goes_from_memory_into_a_database(tmp_path: Path, ports: Ports) -> None:
    store = MemoryJournal()
    run_id, _ = await looked_into(store, ports)
    with closing(store.reader()) as reader:
        lines = [*export_run(reader, run_id, contents=False)]
    assert import_runs(f"sqlite:{tmp_path}", "f", lines, ports=ports).runs == 1
    with open_reader(f"sqlite:{tmp_path}") as reader:
        assert [*export_run(reader, run_id, contents=False)] == lines
