"""A store whose folder is full, read-only, in use, foreign or damaged says so, and what to do."""

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent

from hubbub import Message, Runtime
from hubbub.hub import events as e
from hubbub.hub.errors import HubbubError, OperatorError, StoreFailed
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sqlite import folder as data_folder
from hubbub.runtime.stores.sqlite.migrations import newest

pytestmark = pytest.mark.anyio

LONG = "x" * 20_000


def runtime(folder: Path, ports: Ports) -> Runtime:
    agents = [model_agent(echo_model(0.01))]
    return Runtime(agents, store=sqlite_store(folder, ports=ports, mirror=False), ports=ports)


async def messages_in(folder: Path, ports: Ports, run_id: str) -> list[str]:
    async with runtime(folder, ports) as rt:
        with anyio.fail_after(1000):
            await rt.result(run_id)
        events = await rt.hub.read(run_id)
        return [x.key for x in events if isinstance(x, e.SessionMessage) and x.lane == "in"]


# ── no room ──────────────────────────────────────────────────────────────────────────────────


@contextmanager
def tmpfs(place: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A small file system of its own; what it gives makes it larger."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"this machine mounts no tmpfs: {mounted.stderr.strip()}")
    try:
        yield lambda size: subprocess.run(
            ["mount", "-o", f"remount,size={size}", str(place)], check=True
        ).check_returncode()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def small_files(size: int) -> Iterator[Callable[[str], None]]:
    """No file may become larger than ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield lambda _size: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def send_until_refused(rt: Runtime, run_id: str) -> tuple[list[str], str]:
    """The keys that were accepted, and why the first that was not was not."""
    accepted: list[str] = []
    for number in range(1000):
        receipt = await rt.hub.send_to_run(run_id, Message(LONG, key=f"m{number}"))
        if not receipt.accepted:
            return accepted, receipt.reason
        accepted.append(f"m{number}")
        await anyio.sleep(0.05)
    raise AssertionError("there was room for everything")


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("kind", ["a full disk", "a limit on the size of files"])
async def test_without_room_nothing_is_accepted_and_nothing_acknowledged_is_lost(
    tmp_path: Path, ports: Ports, kind: str
) -> None:
    full = tmp_path / "full"
    limit = tmpfs(full, "2m") if kind == "a full disk" else small_files(1_000_000)
    with limit as grow:
        folder = full / "store"
        with anyio.fail_after(10_000):
            async with runtime(folder, ports) as rt:
                run = await rt.start("assistant")
                accepted, reason = await send_until_refused(rt, run.run_id)
                assert str(folder / "hubbub.db") in reason
                assert "start again" in reason and "\n" not in reason
                if kind == "a full disk":
                    assert "free some space" in reason
                # It stays so, in the same words; and what is there can be read.
                again = await rt.hub.send_to_run(run.run_id, "Anybody?")
                assert (again.rejected, again.reason) == (True, reason)
                read = await rt.hub.read(run.run_id)
                assert len(accepted) > 3
                assert {x.key for x in read if isinstance(x, e.SessionMessage)} >= set(accepted)
        grow("50m")
        assert [key for key in await messages_in(folder, ports, run.run_id) if key] == accepted


async def test_a_full_disk_that_is_met_by_the_clearing_of_the_log_is_a_failure_too(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would else end the store's one task, and everybody would wait forever."""
    monkeypatch.setattr("hubbub.runtime.stores.sqlite.store.CHECKPOINT", 1)

    def checkpoint() -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    async with runtime(tmp_path, ports) as rt:
        rt.hub.journal._writer.checkpoint = checkpoint  # type: ignore[attr-defined]
        with anyio.fail_after(100):
            run = await rt.start("assistant")
            for _ in range(5):
                receipt = await rt.hub.send_to_run(run.run_id, "hello")
                await anyio.sleep(1)
        assert receipt.rejected and "SQLITE_FULL" in receipt.reason


@pytest.mark.parametrize("wait", ["result", "finished", "run"])
async def test_whoever_waits_for_a_run_is_told_that_its_store_has_failed(
    tmp_path: Path, ports: Ports, wait: str
) -> None:
    """Not that it is over, and not nothing."""

    def fail(batch: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error

    async def waited(rt: Runtime) -> Any:
        if wait == "run":
            return await rt.run("assistant", "hello")
        run = await rt.start("assistant", "hello")
        return await getattr(run, wait)()

    store = sqlite_store(tmp_path, ports=ports, mirror=False)
    async with Runtime([model_agent(echo_model(1))], store=store, ports=ports) as rt:
        rt.services.timers.after(0.5, lambda: setattr(store._writer, "apply", fail))
        with anyio.fail_after(100):
            with pytest.raises(StoreFailed, match="start again"):
                await waited(rt)


async def test_a_failed_flush_is_noted_until_the_store_is_open_again(
    tmp_path: Path, ports: Ports
) -> None:
    """What the log shows then may be on no disk: see ``tests/runtime/stores/test_crash_vfs.py``."""
    run_id = await a_store(tmp_path, ports)
    store = sqlite_store(tmp_path, ports=ports, mirror=False)
    noted = tmp_path / "hubbub.db-failed"
    async with Runtime([model_agent(echo_model())], store=store, ports=ports) as rt:
        await rt.hub.send_to_run(run_id, "hello")

        def fail(batch: object) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
            raise error

        store._writer.apply = fail  # type: ignore[assignment, method-assign]
        assert (await rt.hub.send_to_run(run_id, "lost")).rejected
        assert noted.exists()
        log = tmp_path / "hubbub.db-wal"
        assert log.stat().st_size > 0
        (tmp_path / "killed").mkdir()
        for name in ("hubbub.db", "hubbub.db-wal", "hubbub.db-failed"):
            (tmp_path / "killed" / name).write_bytes((tmp_path / name).read_bytes())
    assert await messages_in(tmp_path / "killed", ports, run_id) == ["m0", "m1", "m2", ""]
    assert not (tmp_path / "killed" / "hubbub.db-failed").exists()


# ── a folder that cannot be used ─────────────────────────────────────────────────────────────


async def refused(store: str) -> str:
    """Why a runtime cannot be opened, as the user reads it: one line, and soon."""
    with anyio.fail_after(1000):
        with pytest.raises(OperatorError) as caught:
            async with Runtime(store=store):
                pass
    words = str(caught.value)
    assert "\n" not in words
    return words


async def a_store(folder: Path, ports: Ports, messages: int = 3) -> str:
    async with runtime(folder, ports) as rt:
        run = await rt.start("assistant")
        for number in range(messages):
            await rt.hub.send_to_run(run.run_id, Message(LONG[:2000], key=f"m{number}"))
            await run.result()
    return run.run_id


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Bound over itself, read-only: bits of a mode do not bind root."""
    for options in (["--bind", str(folder)], ["-o", "remount,ro,bind"]):
        target = [str(folder)]
        done = subprocess.run(["mount", *options, *target], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"this machine binds no folders: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_read_only_folder_is_refused(tmp_path: Path, ports: Ports) -> None:
    await a_store(tmp_path / "old", ports)
    (tmp_path / "new").mkdir()
    for folder in (tmp_path / "old", tmp_path / "new"):
        with read_only(folder):
            words = await refused(f"sqlite:{folder}")
        assert str(folder) in words and "writ" in words


async def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "another path" in await refused(f"sqlite:{tmp_path / 'file' / 'store'}")


async def test_a_second_runtime_on_a_folder_is_refused(tmp_path: Path, ports: Ports) -> None:
    async with runtime(tmp_path, ports):
        words = await refused(f"sqlite:{tmp_path}")
        assert f"process {os.getpid()}" in words and "a runtime was not left" in words
        program = (
            "import sys, anyio\nfrom hubbub import Runtime\nfrom hubbub.hub.errors import "
            "OperatorError\nasync def main():\n    try:\n        async with Runtime(store="
            f"'sqlite:{tmp_path}'): pass\n    except OperatorError as error:\n"
            "        print(error)\nanyio.run(main)"
        )
        command = [sys.executable, "-c", program]
        other = subprocess.run(  # noqa: ASYNC221
            command, capture_output=True, text=True, timeout=60, check=True
        )
        known, _, _ = words.partition(";")
        assert other.stdout.startswith(known) and "stop it" in other.stdout
    await a_store(tmp_path, ports)


def _newer(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute(f"PRAGMA user_version = {newest() + 1}")
    db.close()


def _foreign(file: Path) -> None:
    file.unlink()
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_newer, "upgrade hubbub"),
        (_foreign, "not of hubbub"),
        (lambda file: file.write_text("Dear diary, " * 1000), "restore it from a backup"),
        (lambda file: os.truncate(file, 6000), "restore it from a backup"),
        (lambda file: os.truncate(file, 100), "restore it from a backup"),
    ],
    ids=["newer", "foreign", "no database", "truncated", "cut to its head"],
)
async def test_a_file_that_cannot_be_read_is_refused_and_left_as_it_is(
    tmp_path: Path, ports: Ports, spoil: Callable[[Path], Any], words: str
) -> None:
    await a_store(tmp_path, ports)
    file = tmp_path / "hubbub.db"
    spoil(file)
    before = file.read_bytes()
    found = await refused(f"sqlite:{tmp_path}")
    assert str(file) in found and words in found
    assert file.read_bytes() == before


async def test_a_file_that_was_emptied_beside_its_log_is_refused(
    tmp_path: Path, ports: Ports
) -> None:
    """SQLite would throw the log away, and a new store would begin in its place."""
    async with runtime(tmp_path / "first", ports) as rt:
        await rt.start("assistant", "hello")
        (tmp_path / "killed").mkdir()
        log = (tmp_path / "first" / "hubbub.db-wal").read_bytes()
    (tmp_path / "killed" / "hubbub.db-wal").write_bytes(log)
    (tmp_path / "killed" / "hubbub.db").write_bytes(b"")
    assert "restore it from a backup" in await refused(f"sqlite:{tmp_path / 'killed'}")
    assert (tmp_path / "killed" / "hubbub.db-wal").read_bytes() == log


async def test_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder, "file_system_of", lambda path: "nfs4")
    words = await refused(f"sqlite:{tmp_path}")
    assert "nfs4" in words and "local disk" in words


@pytest.mark.parametrize("seed", range(12))
async def test_a_flipped_bit_is_a_clear_failure_or_none(
    tmp_path: Path, ports: Ports, seed: int
) -> None:
    """Wherever it is: nothing hangs, and what is read is what was written, or an error."""
    run_id = await a_store(tmp_path, ports, messages=8)
    async with runtime(tmp_path, ports) as rt:
        written = {(x.lane, x.seq): x for x in await rt.hub.read(run_id)}
    file = tmp_path / "hubbub.db"
    image = bytearray(file.read_bytes())
    place = seed * 7919 * 31 % len(image)
    for at in range(place, min(place + 40, len(image))):
        image[at] ^= 0x81
    file.write_bytes(image)
    with anyio.fail_after(10_000), suppress(HubbubError):
        async with runtime(tmp_path, ports) as rt:
            for read in await rt.hub.read(run_id):
                assert read == written.get((read.lane, read.seq), read), "damage was believed"
            receipt = await rt.hub.send_to_run(run_id, "Still there?")
            if receipt.accepted:
                await rt.result(run_id)
