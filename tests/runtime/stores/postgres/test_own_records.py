"""What is looked for at the end of a long run is found there."""

from typing import Any

import anyio
import pytest
from support.postgres import Server

from hubbub.hub.conformance import A_RUN, B_RUN, open_run, write
from hubbub.hub.events import AgentStatus
from hubbub.runtime.stores.postgres.store import PostgresStore
from hubbub.runtime.stores.sql.own_records import own_record

pytestmark = pytest.mark.long

LENGTH = 6000


def rows_read(plan: dict[str, Any]) -> int:
    """How many rows a statement has looked at, as its plan says."""
    here = plan.get("Rows Removed by Filter", 0) + plan["Actual Rows"]
    return int(here + sum(rows_read(below) for below in plan.get("Plans", ())))


@pytest.mark.parametrize("runs", [1, 2])
def test_a_record_near_the_end_of_a_run_is_found_without_reading_the_run(
    server: Server, runs: int
) -> None:
    schema = server.new_schema()

    async def fill() -> None:
        store = PostgresStore(server.dsn(schema))
        await store.open()
        for run in (A_RUN, B_RUN)[:runs]:
            await open_run(store, run)
            await write(store, run, 0, *[AgentStatus() for _ in range(LENGTH)], taken=(1,))
        await store.aclose()

    anyio.run(fill)
    [(number,)] = server.query(f"SELECT number FROM {schema}.run WHERE run_id = '{A_RUN}'")
    seq = LENGTH - 50
    statement = own_record("crc").replace("FROM event", f"FROM {schema}.event")
    for value in (number, seq, seq):
        statement = statement.replace("?", str(value), 1)
    server.query(f"ANALYZE {schema}.event")  # As the server does by itself, as a table grows.
    [([plan],)] = server.query(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
    assert plan["Plan"]["Actual Rows"] == 1
    # Where another run stands behind it, its rows may be gone through, too.
    assert rows_read(plan["Plan"]) < 100 + (runs - 1) * LENGTH, plan
