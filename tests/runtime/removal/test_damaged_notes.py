"""What a pass cannot read, or do, ends no runtime: it is told, and the next pass goes on."""

import errno
import logging
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.pruned_stores import DAY, problems
from support.stores import agents

from hubbub import Retention, Runtime
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.removal import passes
from hubbub.runtime.stores.retention.trees import damage_in

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-07")]

RETENTION = Retention(ended="2d")


async def have_one_go(rt: Runtime) -> str:
    """A run whose time is over, and a later one, whose events are the store's last."""
    old = await rt.run("bot", "one")
    await anyio.sleep(DAY)
    await rt.run("bot", "later")
    await anyio.sleep(1.5 * DAY)
    return old.run_id


def changed(folder: Path, table: str, key: str) -> None:
    """Flip a bit of what is noted."""
    with sqlite3.connect(folder / "hubbub.db") as db:
        ((old,),) = db.execute(f"SELECT value FROM {table} WHERE key = ?", (key,)).fetchall()
        new = f"{old[:-1]}{chr(ord(old[-1]) ^ 64)}"
        db.execute(f"UPDATE {table} SET value = ? WHERE key = ?", (new, key))
    db.close()


@pytest.mark.parametrize(
    ("table", "key"), [("meta", "contents_looked_at"), ("note", "removed/position")]
)
async def test_a_position_that_cannot_be_read_is_found_and_heals(
    table: str, key: str, ports: Ports, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    async with Runtime(agents(), store=store, ports=ports, retention=RETENTION) as rt:
        cursor = rt.hub.cursor((await rt.hub.read((await rt.run("bot", "zero")).run_id))[0])
        await have_one_go(rt)
        assert rt.hub.statistics().removed.trees == 2
    changed(tmp_path / "store", table, key)
    found = [x.text for x in StoreCheck(store, thorough=True).problems()]
    assert any("cannot be read" in each for each in found)
    async with Runtime(agents(), store=store, ports=ports, retention=RETENTION) as rt:
        async with rt.hub.subscribe("*", after=cursor) as events:
            assert (await anext(events)).type == "hub:gap", "something was removed behind it"
        old = await have_one_go(rt)
        assert rt.hub.statistics().removed.trees == 2, "and that one goes, too"
        assert old not in {x.run_id for x in await rt.hub.read()}
    assert problems(store) == []


@pytest.mark.parametrize("event", range(1, 12, 2))
async def test_a_tree_of_which_any_event_is_damaged_stays_and_is_told(
    event: int, ports: Ports, tmp_path: Path
) -> None:
    """Damage is for people: what is left of such a tree may be all that there is."""
    store = f"sqlite:{tmp_path / 'store'}"
    async with Runtime(agents(), store=store, ports=ports) as rt:
        kept = await rt.run("bot", "zero")
        await rt.run("bot", "one")
    with sqlite3.connect(tmp_path / "store" / "hubbub.db") as db:
        of_run = "run = (SELECT number FROM address WHERE run_id = ?)"
        changed = db.execute(
            "UPDATE event SET body = replace(body, ':', ': ') WHERE position = ("
            f"SELECT position FROM event WHERE {of_run} ORDER BY position LIMIT 1 OFFSET ?)",
            (kept.run_id, event - 1),
        )
        assert changed.rowcount == 1
    db.close()
    async with Runtime(agents(), store=store, ports=ports, retention=RETENTION) as rt:
        await have_one_go(rt)
        removed = rt.hub.statistics().removed
        assert (removed.trees, removed.problems) == (2, 1)
    found = [x.text for x in StoreCheck(store, thorough=True).problems()]
    assert found and all(kept.run_id in each for each in found)


@pytest.mark.parametrize("how", ["changed", "missing"])
@pytest.mark.parametrize("place", [6, 40, 90])
async def test_old_turns_of_which_any_event_is_damaged_stay_and_are_told(
    how: str, place: int, ports: Ports, tmp_path: Path
) -> None:
    """The run goes on from its snapshot, so that nobody else meets the damage."""
    store = f"sqlite:{tmp_path / 'store'}"

    async def talk(rt: Runtime, key: str) -> str:
        run = await rt.start("bot", session_key=key)
        for _ in range(20):
            await run.ask("more")
        return run.run_id

    async with Runtime(agents(), store=store, ports=ports) as rt:
        damaged, sound = await talk(rt, "one"), await talk(rt, "two")
    with sqlite3.connect(tmp_path / "store" / "hubbub.db") as db:
        at = (
            "position = (SELECT position FROM event WHERE run = (SELECT number FROM address "
            "WHERE run_id = ?) ORDER BY position LIMIT 1 OFFSET ?)"
        )
        change = "UPDATE event SET body = replace(body, ':', ': ')"
        change = change if how == "changed" else "DELETE FROM event"
        assert db.execute(f"{change} WHERE {at}", (damaged, place)).rowcount == 1
    db.close()
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(keep_turns=3)) as rt:
        await talk(rt, "one")
        await talk(rt, "two")
        await anyio.sleep(120)
        removed = rt.hub.statistics().removed
        assert removed.cuts > 0 and removed.problems == 1
    found = [x.text for x in StoreCheck(store, thorough=True).problems()]
    assert found and all(damaged in each for each in found)
    assert not any(sound in each for each in found)


async def test_what_could_not_go_is_tried_again_after_longer_and_longer_and_told_once(
    ports: Ports,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Something else in the database stands in the way for a while."""
    store = f"sqlite:{tmp_path / 'store'}"
    file = tmp_path / "store" / "hubbub.db"

    def change(sql: str) -> None:
        with closing(sqlite3.connect(file)) as db:
            db.execute(sql)

    tried: list[float] = []
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="100s")) as rt:
        change("CREATE TRIGGER no BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'no'); END")
        journal = rt.hub.journal
        put_by = journal.put_by  # type: ignore[attr-defined]

        async def noting(run_ids: list[str]) -> None:
            tried.append(ports.clock.monotonic())
            await put_by(run_ids)

        monkeypatch.setattr(journal, "put_by", noting)
        old = await rt.run("bot", "one")
        await rt.start("bot", "stays", session_key="chat")
        await anyio.sleep(12_000)
        removed = rt.hub.statistics().removed
        assert (removed.trees, removed.problems) == (0, 1)
        waits = [round(b - a) for a, b in pairwise(tried)]
        assert waits[:6] == [20, 40, 80, 160, 320, 640] and waits[-1] == 3_600
        assert len(waits) < 14
        change("DROP TRIGGER no")
        await anyio.sleep(4_000)
        removed = rt.hub.statistics().removed
        assert (removed.trees, removed.problems) == (1, 1)
        assert await rt.hub.read(old.run_id) == []
    assert [x.levelname for x in caplog.records if x.levelno > logging.INFO] == ["WARNING"]
    assert "retention.kept" in caplog.text
    assert problems(store) == []


async def test_a_damaged_tree_is_read_seldom_and_goes_when_it_is_mended(
    ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    looks = 0

    def counting(reader: StoreReader, run_ids: Any) -> str:
        nonlocal looks
        looks += 1
        return damage_in(reader, run_ids)

    monkeypatch.setattr(passes, "damage_in", counting)

    def flip(colon: str, other: str) -> None:
        with closing(sqlite3.connect(tmp_path / "store" / "hubbub.db")) as db:
            body = f"replace(body, '\"at\"{colon}', '\"at\"{other}')"
            first = "SELECT min(position) FROM event"
            db.execute(f"UPDATE event SET body = {body} WHERE position = ({first})")
            db.commit()

    async with Runtime(agents(), store=store, ports=ports) as rt:
        await rt.run("bot", "one")
        await rt.start("bot", "stays", session_key="chat")
    flip(":", ": ")
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="100s")) as rt:
        await anyio.sleep(12_000)
        removed = rt.hub.statistics().removed
        assert (removed.trees, removed.problems) == (0, 1) and 8 < looks < 14
        flip(": ", ":")
        await anyio.sleep(4_000)
        removed = rt.hub.statistics().removed
        assert (removed.trees, removed.problems) == (1, 1)
    assert problems(store) == []


async def test_a_store_that_cannot_have_folders_removed_for_a_while_ends_nothing(
    ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it while nothing is to be removed."""
    store = f"sqlite:{tmp_path / 'store'}"
    is_short = True

    async with Runtime(agents(), store=store, ports=ports, retention=RETENTION) as rt:
        journal = rt.hub.journal
        put_by = journal.put_by  # type: ignore[attr-defined]

        async def without_descriptors(run_ids: list[str]) -> None:
            if is_short:
                raise OSError(errno.EMFILE, "Too many open files", str(tmp_path))
            await put_by(run_ids)

        monkeypatch.setattr(journal, "put_by", without_descriptors)
        await have_one_go(rt)
        assert rt.hub.statistics().removed.trees == 0
        assert (await rt.run("bot", "two")).success
        is_short = False
        await anyio.sleep(DAY)
        assert rt.hub.statistics().removed.trees == 2


async def test_a_pass_that_fails_by_whatever_it_is_is_told_and_tried_again(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime(agents(), store="memory", ports=ports, retention=RETENTION) as rt:
        flush, is_broken = rt.hub.journal.flush, True

        async def broken() -> None:
            if is_broken:
                raise IndexError("list index out of range")
            await flush()

        monkeypatch.setattr(rt.hub.journal, "flush", broken)
        await have_one_go(rt)
        assert rt.hub.statistics().removed.trees == 0
        assert "retention.failed" in caplog.text and "IndexError" in caplog.text
        is_broken = False
        await anyio.sleep(DAY / 4)
        assert rt.hub.statistics().removed.trees == 1
