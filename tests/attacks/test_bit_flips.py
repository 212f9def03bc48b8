"""Bits of the database change, at rest or while it is open: whoever meets that is told, in time."""

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from support.profiles import examples
from support.stores import agents, fill

from attacks.scale import scale
from hubbub import Runtime
from hubbub.hub.errors import HubbubError, OperatorError
from hubbub.hub.events import HubErrorEvent
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.stores.sqlite import index_check

pytestmark = pytest.mark.anyio

PAGE = 4096
TALKS = 6
"""Conversations beside what a filled store has."""

FLIPPER = """
import os, sys
for line in sys.stdin:
    name, at, bit = line.rsplit(" ", 2)
    file = os.open(name, os.O_RDWR)
    byte = os.pread(file, 1, int(at))
    os.pwrite(file, bytes([byte[0] ^ 1 << int(bit)]), int(at)) if byte else None
    os.close(file)
    print(flush=True)
"""


def runtime(folder: Path, ports: Ports) -> Runtime:
    store = sqlite_store(folder, ports=ports, mirror=False)
    return Runtime(agents(), store=store, ports=ports, grace=1)


class Made:
    """A store at rest, one whose process was killed, and the runs in both that answer."""

    def __init__(self, folder: Path, killed: Path, run_ids: Sequence[str]) -> None:
        self.folder = folder
        self.killed = killed
        self.run_ids = run_ids


async def make(folder: Path, killed: Path) -> Made:
    ports = virtual_ports()
    filled = await fill(folder, ports)
    async with runtime(folder, ports) as rt:
        run_ids = [filled.chat]
        for number in range(TALKS):
            run = await rt.start("bot", "hi", session_key=f"web_c_{number}")
            await run.result()
            run_ids.append(run.run_id)
        # At once, so that all of them wait when the process is killed.
        receipts = [rt.hub.send_to_run(run_id, "more") for run_id in run_ids]
        assert all([(await each).accepted for each in receipts])
        shutil.copytree(folder, killed)
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Made(folder, killed, run_ids)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    from support.virtual_time import VirtualTimeLoop

    place = tmp_path_factory.mktemp("made")
    options = {"loop_factory": VirtualTimeLoop}
    return anyio.run(make, place / "store", place / "killed", backend_options=options)


@pytest.fixture(scope="module")
def flip() -> Iterator[Callable[[Path, int, int], None]]:
    """Flips a bit of a file from another process: closing a file that this one has open as a
    database would drop SQLite's locks on it."""
    command = [sys.executable, "-c", FLIPPER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdin is not None and it.stdout is not None

        def ask(file: Path, at: int, bit: int) -> None:
            print(file, at, bit, file=it.stdin, flush=True)
            it.stdout.readline()  # type: ignore[union-attr]

        yield ask
        it.stdin.close()


def somewhere(chance: random.Random, file: Path) -> tuple[Path, int, int]:
    """A bit of a file; those at the ends of pages, where entries and their headers stand, often."""
    size = file.stat().st_size
    page = chance.randrange(max(1, size // PAGE)) * PAGE
    within = chance.choice(
        (chance.randrange(PAGE), chance.randrange(100), PAGE - 1 - chance.randrange(400))
    )
    return file, min(page + within, size - 1), chance.randrange(8)


async def talk(
    rt: Runtime, run_ids: Sequence[str], told: list[HubErrorEvent], between: Callable[[], None]
) -> None:
    """Speak to every run and wait for it: each answers, or says within bounds why it does not."""
    for run_id in run_ids:
        between()
        with anyio.fail_after(50_000):
            receipt = await rt.hub.send_to_run(run_id, "again")
        if not receipt.accepted:
            assert receipt.reason, receipt
            continue
        try:
            with anyio.fail_after(50_000):
                outcome = await rt.result(run_id)
            assert outcome.run_id == run_id
        except OperatorError as error:
            complaint = str(error)
        else:
            continue
        is_told = run_id in [each.run_id for each in told]
        assert is_told or rt.hub.journal.failure or complaint.startswith("store "), complaint


async def live(folder: Path, run_ids: Sequence[str], between: Callable[[], None]) -> str:
    """A life of a runtime on a damaged store; how it ended if not as it should."""
    told: list[HubErrorEvent] = []
    ports = virtual_ports()
    try:
        with anyio.fail_after(1_000_000):
            async with runtime(folder, ports) as rt:
                rt.hub.subscribe("hub:error", told.append)
                await talk(rt, run_ids, told, between)
    except HubbubError as error:
        complaint = str(error)
    else:
        complaint = ""
    assert "\n" not in complaint
    return complaint


@pytest.mark.spec("G-07")
async def test_flipped_bits_of_a_store_at_rest_are_told_or_harmless(
    made: Made, tmp_path: Path, flip: Callable[[Path, int, int], None]
) -> None:
    folder = tmp_path / "store"
    for seed in range(scale(examples(60), 4_000)):
        chance = random.Random(seed)
        origin = made.killed if seed % 4 == 3 else made.folder
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(origin, folder)
        name = "hubbub.db-wal" if seed % 4 == 3 and seed % 8 == 3 else "hubbub.db"
        for _ in range(chance.choice((1, 1, 1, 8))):
            flip(*somewhere(chance, folder / name))
        await live(folder, made.run_ids, lambda: None)


@pytest.mark.spec("G-07")
async def test_bits_flipped_while_a_store_is_open_are_told_or_harmless(
    made: Made, tmp_path: Path, flip: Callable[[Path, int, int], None]
) -> None:
    folder = tmp_path / "store"
    for seed in range(scale(examples(40), 3_000)):
        chance = random.Random(seed)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made.folder, folder)
        files = [folder / "hubbub.db", folder / "hubbub.db", folder / "hubbub.db-wal"]

        def between(chance: random.Random = chance, files: list[Path] = files) -> None:
            file = chance.choice(files)
            if file.exists() and file.stat().st_size:
                flip(*somewhere(chance, file))

        await live(folder, made.run_ids, between)


@pytest.mark.spec("G-07")
async def test_a_run_that_an_index_has_lost_is_told_of_at_the_opening(
    made: Made, tmp_path: Path
) -> None:
    """Every bit of the index of runs with something to do, which no page of SQLite's guards."""
    origin = made.killed
    with closing(sqlite3.connect(shutil.copytree(origin, tmp_path / "one") / "hubbub.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        select = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        pages = {
            name: db.execute(select, (name,)).fetchone()[0]
            for name in ("run_ready", "run_live", "run_key", "run_timed", "run_recent")
        }
    image = (tmp_path / "one" / "hubbub.db").read_bytes()
    chance = random.Random(7)
    folder = tmp_path / "store"
    for number in range(scale(examples(50), 2_000)):
        page = pages[list(pages)[number % len(pages)]]
        damaged = bytearray(image)
        damaged[(page - 1) * PAGE + PAGE - 1 - chance.randrange(250)] ^= 1 << chance.randrange(8)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "hubbub.db").write_bytes(damaged)
        await live(folder, made.run_ids, lambda: None)


def with_a_run_lost_by_an_index(made: Made, folder: Path) -> Path:
    """As a flipped bit does it: the entry is gone from the index, and the row is as it was."""
    shutil.copytree(made.killed, folder)
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        definition = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'run_ready'")
        (right,) = definition.fetchone()
        number = db.execute("SELECT number FROM run WHERE ready = 1").fetchone()[0]
        db.execute("PRAGMA writable_schema = ON")
        wrong = f"{right} AND number <> {number}"
        update = "UPDATE sqlite_schema SET sql = ? WHERE name = 'run_ready'"
        db.execute(update, (wrong,))
        db.commit()
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        db.execute("REINDEX run_ready")
        db.execute("PRAGMA writable_schema = ON")
        db.execute(update, (right,))
        db.commit()
    return folder


@pytest.mark.spec("G-07")
async def test_an_index_that_has_lost_a_run_with_mail_is_found_before_anybody_sends(
    made: Made, tmp_path: Path
) -> None:
    """Nobody speaks to the run: without the comparison at the opening it would wait unheard."""
    folder = with_a_run_lost_by_an_index(made, tmp_path / "store")
    with pytest.raises(OperatorError, match="hubbub fsck"):
        async with runtime(folder, virtual_ports()):
            pass


@pytest.mark.spec("G-07")
async def test_of_a_store_with_many_runs_it_is_found_beside_the_first_work(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opening does not wait for the comparison; the store fails once it has found it."""
    monkeypatch.setattr(index_check, "MAX_AT_ONCE", 0)
    folder = with_a_run_lost_by_an_index(made, tmp_path / "store")
    async with runtime(folder, virtual_ports()) as rt:
        with anyio.fail_after(30):
            while not rt.hub.journal.failure:
                await anyio.lowlevel.checkpoint()
        assert "hubbub fsck" in rt.hub.journal.failure
        with pytest.raises(HubbubError, match="hubbub fsck"):
            await rt.start("bot", "Hello")
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        db.execute("REINDEX")
    async with runtime(folder, virtual_ports()) as rt:
        await rt.hub.journal.flush()
        assert not rt.hub.journal.failure


@pytest.mark.spec("G-07")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE meta SET value = 'x' WHERE key = 'projected'",
        "UPDATE note SET value = '{' WHERE key = 'runs:left'",
        "UPDATE secret SET value = x'ff00'",
        "UPDATE note SET key = 'pause/x?1', value = 'soon' WHERE key = 'runs:left'",
        "UPDATE run SET wake_at = 'soon'",
        "UPDATE run SET born = x'00'",
        "UPDATE event SET seq = 'x' WHERE position = (SELECT max(position) FROM event)",
    ],
)
async def test_values_that_nobody_wrote_are_told_or_harmless_too(
    statement: str, made: Made, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "store"))
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        db.execute("INSERT OR IGNORE INTO meta VALUES ('projected', '1')")
        db.execute("INSERT OR IGNORE INTO note VALUES ('runs:left', '{}')")
        assert db.execute(statement).rowcount > 0
        db.commit()
    await live(folder, made.run_ids, lambda: None)
