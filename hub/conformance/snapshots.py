"""What a store does that keeps snapshots; one that keeps none passes.

Part of ``hub/conformance/journal.py``.
"""

from typing import Final

import anyio

from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    Check,
    MakeJournal,
    info_of,
    open_journal,
    open_run,
    send,
    write,
)
from hubbub.hub.events import AgentStatus
from hubbub.hub.snapshots.draft import RECORDS, SnapshotDraft
from hubbub.hub.store.journal import LoadedRun
from hubbub.hub.store.store import Store, snapshots_of

__all__ = ["SNAPSHOT_CHECKS"]

VERSION: Final = "1-test"

TRIES: Final = 200


async def _grow(journal: Store, run_id: str, expect: int, count: int = RECORDS) -> int:
    """Write so many events; the number of the last one."""
    events = [AgentStatus(status=f"status {expect + number}") for number in range(count)]
    await write(journal, run_id, expect, *events)
    return expect + count


def _keep(journal: Store, seq: int, body: bytes, *, run_id: str = A_RUN, by: str = VERSION) -> None:
    found = snapshots_of(journal)
    assert found is not None
    found.keep_snapshot(SnapshotDraft(run_id, seq, by, lambda: body))


async def _load(journal: Store, run_id: str = A_RUN, by: str = VERSION) -> LoadedRun:
    found = snapshots_of(journal)
    assert found is not None
    loaded = await found.load_kept(run_id, by)
    assert loaded is not None
    return loaded


async def _kept(journal: Store, seq: int, body: bytes) -> LoadedRun:
    """The run from that snapshot on, as soon as it is kept."""
    for _ in range(TRIES):
        loaded = await _load(journal)
        if loaded.kept == body:
            break
        await journal.flush()
        await anyio.sleep(0.02)
    assert (loaded.kept, loaded.after) == (body, seq)
    return loaded


async def check_a_run_is_read_from_its_snapshot_on(make_journal: MakeJournal) -> None:
    """What is kept comes with exactly the events since, and with what waits; the newest counts."""
    async with open_journal(make_journal) as journal:
        if snapshots_of(journal) is None:
            return
        await open_run(journal, A_RUN)
        await open_run(journal, B_RUN)
        seq = await _grow(journal, A_RUN, 0)
        await _grow(journal, B_RUN, 0)
        assert ((await _load(journal)).kept, (await _load(journal)).after) == (None, 0)
        _keep(journal, seq, b'"first"')
        assert list((await _kept(journal, seq, b'"first"')).events) == []
        await send(journal, A_RUN, "since then")
        last = await _grow(journal, A_RUN, seq, 3)
        loaded, whole = await _load(journal), await journal.load(A_RUN)
        assert whole is not None and whole.kept is None and whole.after == 0
        assert (loaded.kept, loaded.after, loaded.seq) == (b'"first"', seq, last)
        assert list(loaded.events) == list(whole.events[seq:])
        assert (loaded.info, list(loaded.waiting)) == (whole.info, list(whole.waiting))
        last = await _grow(journal, A_RUN, last)
        _keep(journal, last, b'"second"')
        await _kept(journal, last, b'"second"')
        assert (await _load(journal, B_RUN)).kept is None


async def check_a_snapshot_of_another_version_is_none(make_journal: MakeJournal) -> None:
    """It is read by its own version alone, and is replaced at once by one of another."""
    async with open_journal(make_journal) as journal:
        if snapshots_of(journal) is None:
            return
        await open_run(journal, A_RUN)
        seq = await _grow(journal, A_RUN, 0)
        _keep(journal, seq, b'"old"', by="0-test")
        for _ in range(TRIES):
            if (await _load(journal, by="0-test")).kept is not None:
                break
            await journal.flush()
            await anyio.sleep(0.02)
        loaded, whole = await _load(journal), await journal.load(A_RUN)
        assert whole is not None
        assert (loaded.kept, loaded.after) == (None, 0)
        assert list(loaded.events) == list(whole.events)


async def check_no_snapshot_is_kept_before_it_is_worth_it(make_journal: MakeJournal) -> None:
    """Between two snapshots are so many events; of what is not on record there is none."""
    async with open_journal(make_journal) as journal:
        if snapshots_of(journal) is None:
            return
        await open_run(journal, A_RUN)
        seq = await _grow(journal, A_RUN, 0)
        _keep(journal, seq + 1, b'"ahead"')
        _keep(journal, seq, b'"nobody"', run_id=B_RUN)
        _keep(journal, seq, b'"first"')
        await _kept(journal, seq, b'"first"')
        next_ = await _grow(journal, A_RUN, seq, RECORDS - 1)
        _keep(journal, next_, b'"too early"')
        await journal.flush()
        last = await _grow(journal, A_RUN, next_, 1)
        _keep(journal, last, b'"in time"')
        await _kept(journal, last, b'"in time"')


async def check_a_snapshot_that_cannot_be_made_fails_nothing(make_journal: MakeJournal) -> None:
    """The run is read whole, and whatever else is written is."""
    async with open_journal(make_journal) as journal:
        if (found := snapshots_of(journal)) is None:
            return

        def fail() -> bytes:
            raise ValueError("no text")

        await open_run(journal, A_RUN)
        seq = await _grow(journal, A_RUN, 0)
        found.keep_snapshot(SnapshotDraft(A_RUN, seq, VERSION, fail))
        await journal.flush()
        await send(journal, A_RUN, "afterwards")
        commit = await write(journal, A_RUN, seq, AgentStatus(status="afterwards"))
        assert not commit.error and not journal.failure
        assert (await info_of(journal, A_RUN)).waiting == 2
        loaded = await _load(journal)
        assert (loaded.kept, loaded.after, loaded.seq) == (None, 0, seq + 1)


SNAPSHOT_CHECKS: Final[tuple[Check, ...]] = (
    check_a_run_is_read_from_its_snapshot_on,
    check_a_snapshot_of_another_version_is_none,
    check_no_snapshot_is_kept_before_it_is_worth_it,
    check_a_snapshot_that_cannot_be_made_fails_nothing,
)
"""The checks, in order."""
