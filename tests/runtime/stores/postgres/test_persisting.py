"""What is in the way is asked for again: soon, and no more often than a server can bear."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import anyio
import psycopg
import pytest

from hubbub.hub.ports import Ports
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.anyio

ADDRESS = "postgresql://nobody@127.0.0.1:1/none"


async def attempts(ports: Ports, takes: float, count: int) -> Sequence[float]:
    """When something was tried that fails so often, after so many seconds each time."""
    store = PostgresStore(ADDRESS, ports=ports, environ={}, patience=120)
    began: list[float] = []

    async def do() -> None:
        began.append(ports.clock.monotonic())
        await ports.clock.sleep(takes)
        if len(began) <= count:
            raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")

    await store.persist(do)
    return [at - began[0] for at in began]


async def test_who_has_waited_for_its_turn_in_vain_waits_again_at_once(ports: Ports) -> None:
    assert await attempts(ports, 3.0, 10) == pytest.approx([n * 3.02 for n in range(11)])


async def test_a_server_that_refuses_at_once_is_asked_once_a_second_in_the_end(
    ports: Ports,
) -> None:
    began = await attempts(ports, 0.0, 12)
    pauses = [later - at for at, later in pairwise(began)]
    assert pauses == pytest.approx(sorted(pauses)) and pauses[0] < 0.1
    assert pauses[-4:] == pytest.approx([1.0] * 4)


async def test_patience_ends_however_long_each_attempt_takes(ports: Ports) -> None:
    with anyio.fail_after(200), pytest.raises(psycopg.errors.LockNotAvailable):
        await attempts(ports, 30.0, 1000)


def said_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Any]]:
    return [
        (record.hubbub_event, record.hubbub_fields)  # type: ignore[attr-defined]
        for record in caplog.records
        if record.name.startswith("hubbub")
    ]


async def test_a_wait_is_said_once_with_what_to_do_and_so_is_its_end(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hubbub")
    store = PostgresStore(ADDRESS, ports=ports, environ={}, patience=120)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(attempts_on, store, ports, psycopg.OperationalError("gone"))
    (waits, of_wait), (back, of_back) = said_of(caplog)
    assert (waits, back) == ("store.waits", "store.back")
    assert of_wait["problem"].endswith(
        "gone; start the server, or mend the way there; what was submitted is kept meanwhile"
    )
    assert of_back["waited"] == pytest.approx(10, abs=1)
    caplog.clear()
    await attempts_on(store, ports, psycopg.errors.LockNotAvailable("lock timeout"))
    (_, of_wait), _ = said_of(caplog)
    assert of_wait["problem"].endswith("look for one that stands still (pg_stat_activity)")


async def test_who_gives_up_does_not_say_that_the_server_is_back(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hubbub")
    store = PostgresStore(ADDRESS, ports=ports, environ={}, patience=5)
    with pytest.raises(psycopg.OperationalError):
        await attempts_on(store, ports, psycopg.OperationalError("gone"))
    assert [event for event, _ in said_of(caplog)] == ["store.waits"]


async def attempts_on(store: PostgresStore, ports: Ports, error: psycopg.Error) -> None:
    """Something that works ten seconds from now."""
    works_at = ports.clock.monotonic() + 10

    async def do() -> None:
        if ports.clock.monotonic() < works_at:
            raise error

    await store.persist(do)
