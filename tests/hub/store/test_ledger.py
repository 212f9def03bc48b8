"""The ledger decides as an independent model in plain data does, whichever store keeps it."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledger_model import Model, commit_of, told
from support.ledger_plans import family, plan
from support.profiles import examples

from hubbub.hub.events import Event, InLane
from hubbub.hub.store.journal import Addressing, Commit, NewRun
from hubbub.hub.store.ledger import Ledger, Writes
from hubbub.hub.store.ledger_row import LedgerRow
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.memory_rows import MemoryRow, MemoryRows
from hubbub.runtime.stores.sqlite.schema import prepare
from hubbub.runtime.stores.sqlite.writer import SqliteWriter


def state_of(rows: Iterable[LedgerRow]) -> dict[str, Any]:
    names = ("status", "inbox", "seq", "in_seq", "agent", "session_key")
    return {
        row.run_id: (*(getattr(row, name) for name in names), sorted(row.waiting)) for row in rows
    }


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_memory_and_sqlite_decide_as_the_model_does(data: st.DataObject) -> None:
    model, memory = Model(), MemoryJournal()
    db = sqlite3.connect(":memory:", isolation_level=None)
    prepare(db, Path("none.db"))
    sqlite = SqliteWriter(db)
    for _ in range(data.draw(st.integers(1, 6))):
        plans, expected = [], []
        for _ in range(data.draw(st.integers(1, 6))):
            plans.append(plan(data.draw, model) if model.runs else family())
            expected.append(model.apply(plans[-1]))
        batch = [commit_of(each) for each in plans]
        sqlite.apply(batch)
        assert [told(commit) for commit in batch] == expected
        for each, wanted in zip(plans, expected, strict=True):
            commit = commit_of(each)
            memory.submit(commit)
            assert told(commit) == wanted
        assert sqlite.depths == memory.depths() == model.depths()
        assert sqlite.tip == memory.tip
        assert state_of(memory._rows.by_id.values()) == model.state()
    again = SqliteWriter(db)  # What is in the database is what was decided.
    assert (again.tip, again.depths) == (sqlite.tip, sqlite.depths)
    assert state_of(filter(None, map(again._rows.find, model.runs))) == model.state()
    assert {key for (key,) in db.execute("SELECT key FROM note")} == model.notes
    db.close()


# ── a store behind a network ─────────────────────────────────────────────────────────────────


class Remote:
    """A server in plain data, and the ``Rows`` of one group of commits there.

    What a group names is fetched in one trip, decided without another, and written in one.
    """

    def __init__(self) -> None:
        self.server = MemoryRows()
        self.trips = 0
        self._rows: dict[str, MemoryRow] = {}
        self._keys: set[tuple[str, str, str]] = set()

    def fetch(self, commits: Sequence[Commit]) -> None:
        """The first trip: the rows that the commits name, and those above them."""
        self.trips += 1
        named = {run_id for commit in commits for run_id in named_by(commit)}
        while named:
            run_id = named.pop()
            row = self.server.find(run_id)
            if row is not None and run_id not in self._rows:
                self._rows[run_id] = row
                if row.parent_run_id is not None:
                    named.add(row.parent_run_id)
        self._keys = {
            (each.to, each.source, each.key)
            for commit in commits for each in commit.deliveries if each.key
        }  # fmt: skip

    def write(self, writes: Writes[MemoryRow]) -> None:
        """The second trip."""
        self.trips += 1
        for (row, source, key), item in writes.accepted.items():
            row.keys = (row.keys or {}) | {(source, key): item}
        self._rows.clear()

    def find(self, run_id: str, /) -> MemoryRow | None:
        if run_id not in self._rows:
            assert self.server.find(run_id) is None, f"{run_id} was not fetched"
        return self._rows.get(run_id)

    def create(self, new: NewRun, at: int) -> MemoryRow:
        row = self._rows[new.run_id] = self.server.create(new, at)
        return row

    def known(self, row: MemoryRow, source: str, key: str) -> InLane | None:
        assert (row.run_id, source, key) in self._keys, "was not fetched"
        return self.server.known(row, source, key)

    def opening(self, row: MemoryRow) -> Event | None:
        return self.server.opening(row)

    def readdress(self, row: MemoryRow) -> None:
        self.server.readdress(row)

    def candidates(self, to: str, by: Addressing) -> Sequence[str]:
        raise AssertionError("no search in these groups")

    def opened(self, new: NewRun) -> str | None:
        raise AssertionError("no search in these groups")

    def is_key_free(self, session_key: str) -> bool:
        raise AssertionError("no search in these groups")


def named_by(commit: Commit) -> Iterable[str]:
    yield from (commit.run_id, commit.leave_to, *(run_id for run_id, _ in commit.lent))
    for delivery in commit.deliveries:
        yield delivery.to
        if delivery.new is not None:
            yield delivery.new.run_id
            yield delivery.new.parent_run_id or ""


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_a_group_of_commits_takes_two_trips_to_a_server(data: st.DataObject) -> None:
    model, remote = Model(), Remote()
    ledger = Ledger(remote)
    groups = data.draw(st.integers(1, 6))
    for _ in range(groups):
        plans, expected = [], []
        for _ in range(data.draw(st.integers(1, 6))):
            made = plan(data.draw, model) if model.runs else family()
            made.sent = [each for each in made.sent if each.by == "run"]
            for sent in made.sent:
                if sent.new is not None:
                    sent.new |= {"session_key": "", "stands_for": "", "by_descriptor": False}
            plans.append(made)
            expected.append(model.apply(made))
        commits = [commit_of(each) for each in plans]
        remote.fetch(commits)
        for commit in commits:
            ledger.apply(commit)
        remote.write(ledger.writes)
        ledger.writes = Writes()
        assert [told(commit) for commit in commits] == expected
    assert state_of(remote.server.by_id.values()) == model.state()
    assert remote.trips == 2 * groups
