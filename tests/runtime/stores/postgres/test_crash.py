"""Killed after a transaction of its store, everything comes to the same end, in a database, too."""

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from support.crash_story import DyingStore, Story
from support.postgres import Server, schema_record
from support.profiles import portion

from hubbub.hub.ports import Ports
from hubbub.runtime.stores.postgres.store import PostgresStore
from hubbub.runtime.stores.sql.writer import Operation

pytestmark = [pytest.mark.anyio, pytest.mark.long]

STRIDE = 12


class DyingPostgres(DyingStore, PostgresStore):
    """A store whose connections are cut when its process dies."""

    async def write_unheard(self, batch: Sequence[Operation]) -> None:
        await self._writing.run(partial(self._writer.write, batch))

    def bury(self) -> None:
        self._lease.db.close()
        self._reader_db.close()
        self._tail.close()


def story_on(server: Server, folder: Path, seed: int) -> Story:
    address = server.dsn()

    def life(ports: Ports) -> DyingPostgres:
        return DyingPostgres(address, ports=ports)

    return Story(folder, seed, life, partial(schema_record, address))


@pytest.mark.spec("P-10", "P-11", "H-07", "H-09")
async def test_killed_after_a_transaction_everything_comes_to_the_same_end(
    server: Server, tmp_path: Path
) -> None:
    whole = story_on(server, tmp_path / "whole", 1)
    transactions = await whole.live(None)
    assert transactions is not None and transactions > 40
    expected = whole.facts()
    for after in portion(range(1, transactions, STRIDE)):
        story = story_on(server, tmp_path / f"killed-{after}", 1)
        if await story.live(after, unacknowledged=bool(after // STRIDE % 2)) is None:
            assert await story.live(None) is not None
        assert story.facts() == expected, f"killed after {after} transactions"


@pytest.mark.spec("P-10", "P-11")
async def test_killed_again_and_again_everything_comes_to_the_same_end(
    server: Server, tmp_path: Path
) -> None:
    whole = story_on(server, tmp_path / "whole", 2)
    await whole.live(None)
    story = story_on(server, tmp_path / "killed", 2)
    draw, deaths = random.Random(2), 0
    while await story.live(draw.randint(12, 30), unacknowledged=draw.random() < 0.5) is None:
        deaths += 1
        assert deaths < 50
    assert deaths > 1
    assert story.facts() == whole.facts()
