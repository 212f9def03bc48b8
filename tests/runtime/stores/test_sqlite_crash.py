"""Killed after any transaction of its store, everything comes to the same end (P-10, P-11).

What the folder holds at that moment is all that the next life finds.
"""

import random
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from support.crash_story import DyingStore, Story
from support.profiles import portion
from torture.audit import Record

from hubbub.hub.ports import Ports
from hubbub.runtime.stores.sql.writer import Operation
from hubbub.runtime.stores.sqlite.schema import connect_read_only
from hubbub.runtime.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

STRIDE = 5
"""Of the places where a story can be cut, each run of the test takes every fifth."""


class DyingSqlite(DyingStore, SqliteStore):
    """A store whose folder is put back, in the end, as it was when its process died."""

    def __init__(self, folder: Path, ports: Ports) -> None:
        super().__init__(folder, ports=ports)
        self._grave = folder.with_name("grave")

    async def open(self) -> None:
        await super().open()
        self._db.execute("PRAGMA synchronous=OFF")  # Here processes die, not machines.

    async def write_unheard(self, batch: Sequence[Operation]) -> None:
        await self._writing.run(partial(self._writer.apply, batch))

    def bury(self) -> None:
        shutil.copytree(self.folder.root, self._grave)

    async def aclose(self) -> None:
        await super().aclose()
        if self.crashed.is_set():
            shutil.rmtree(self.folder.root)
            self._grave.rename(self.folder.root)


def story_in(folder: Path, seed: int) -> Story:
    def record() -> Record | None:
        database = folder / "store" / "hubbub.db"
        return Record(connect_read_only(database)) if database.exists() else None

    return Story(folder, seed, partial(DyingSqlite, folder / "store"), record)


@pytest.mark.spec("P-10", "P-11", "P-17", "H-07", "H-09")
@pytest.mark.parametrize("offset", range(STRIDE))
async def test_killed_after_any_transaction_everything_comes_to_the_same_end(
    tmp_path: Path, offset: int
) -> None:
    whole = story_in(tmp_path / "whole", offset)
    transactions = await whole.live(None)
    assert transactions is not None and transactions > 40
    expected = whole.facts()
    for after in portion(range(offset, transactions, STRIDE)):
        story = story_in(tmp_path / f"killed-{after}", offset)
        # On Trio a story may come to its end in fewer transactions than the one before.
        if await story.live(after, unacknowledged=bool(after % 2)) is None:
            assert await story.live(None) is not None
        assert story.facts() == expected, f"killed after {after} transactions"
        shutil.rmtree(story.folder)


@pytest.mark.spec("P-10", "P-11")
@pytest.mark.parametrize("seed", range(3))
async def test_killed_again_and_again_everything_comes_to_the_same_end(
    tmp_path: Path, seed: int
) -> None:
    whole, story = story_in(tmp_path / "whole", seed), story_in(tmp_path / "killed", seed)
    await whole.live(None)
    draw, deaths = random.Random(seed), 0
    # Enough transactions to get on by a step, or a run fails as one that kills its process.
    while await story.live(draw.randint(12, 30), unacknowledged=draw.random() < 0.5) is None:
        deaths += 1
        assert deaths < 50
    assert deaths > 1
    assert story.facts() == whole.facts()
