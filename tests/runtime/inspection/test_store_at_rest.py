"""Commands that write a store for a moment, one after another."""

import os
from pathlib import Path

import anyio
import pytest

from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.store_at_rest import on_store_at_rest
from hubbub.runtime.stores.open import open_intake
from hubbub.runtime.stores.sql.in_use import StoreInUse
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import COMMANDS, StoreLock

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path, ports: Ports) -> str:
    with open_intake(f"sqlite:{tmp_path}", ports.ids):
        return f"sqlite:{tmp_path}"


def lock_of(store: str, command: str) -> StoreLock:
    return StoreLock(DataFolder(store.partition(":")[2]).database, command)


async def test_a_command_waits_for_one_that_has_the_store(store: str, ports: Ports) -> None:
    acted: list[float] = []

    async def act(hub: Hub) -> None:
        acted.append(ports.clock.monotonic())

    async def work() -> None:
        await on_store_at_rest(store, ports, act, command="hubbub reply")

    lock = lock_of(store, "hubbub reply")
    lock.acquire()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.sleep(3)
        assert not acted
        lock.release()
    assert len(acted) == 1


@pytest.mark.parametrize("command", ["", *COMMANDS])
async def test_who_has_the_store_is_said(command: str, store: str, ports: Ports) -> None:
    async def act(hub: Hub) -> None:
        raise AssertionError("the store is in use")

    lock = lock_of(store, command)
    lock.acquire()
    try:
        with pytest.raises(StoreInUse) as refused:
            await on_store_at_rest(store, ports, act, command="hubbub reply")
        with pytest.raises(StoreInUse) as import_refused, open_intake(store, ports.ids):
            pass
    finally:
        lock.release()
    for words in (str(refused.value), str(import_refused.value)):
        who = command or "another runtime"
        assert f"{who} is at work on this store (process {os.getpid()}); " in words
        assert ("do this again when it is done" in words) == bool(command)
    assert refused.value.command == command


async def test_a_command_says_that_it_is_one_while_it_has_the_store(
    store: str, ports: Ports
) -> None:
    async def act(hub: Hub) -> None:
        with pytest.raises(StoreInUse) as refused:
            lock_of(store, "").acquire()
        assert refused.value.command == "hubbub compact"

    await on_store_at_rest(store, ports, act, command="hubbub compact")
    with open_intake(store, ports.ids), pytest.raises(StoreInUse) as refused:
        lock_of(store, "").acquire()
    assert refused.value.command == "hubbub import"
