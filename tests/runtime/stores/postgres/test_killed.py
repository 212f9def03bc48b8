"""Real processes at work on a server are killed, cut off and made to wait: nothing is lost, and
nothing happens twice."""

import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path

import pytest
from support.postgres import Server, schema_record
from support.profiles import examples
from torture.killing import Killing

pytestmark = pytest.mark.long

CYCLES = max(examples(6), 2)

WRITERS = "application_name LIKE 'hubbub:%' AND pid <> pg_backend_pid()"


def beside(live: Callable[[], list[str]], seconds: float, do: Callable[[], None]) -> list[str]:
    """What a life says beside which something is done, again and again."""
    with ThreadPoolExecutor(1) as thread:
        life = thread.submit(live)
        while not wait([life], seconds).done:  # In this thread: a server ends with its starter.
            do()
        return life.result()


def killing(server: Server, folder: Path, seed: int) -> Killing:
    store = server.dsn()
    return Killing(folder, seed, store=store, record=partial(schema_record, store))


def check(work: Killing) -> None:
    work.finish()
    assert (work.count.lost, work.count.doubled) == (0, 0)
    assert work.count.acknowledged > 0


def test_whenever_a_process_is_killed_what_was_acknowledged_is_there_and_nothing_twice(
    server: Server, tmp_path: Path
) -> None:
    work = killing(server, tmp_path, 1)
    for _ in range(CYCLES):
        work.kill()
    check(work)
    assert work.count.acknowledged > 10 * CYCLES


def test_cut_connections_lose_nothing_and_do_nothing_twice(server: Server, tmp_path: Path) -> None:
    draw = random.Random(7)
    work = killing(server, tmp_path, 2)

    times: list[int] = []

    def cut() -> None:
        pids = server.query(f"SELECT pid FROM pg_stat_activity WHERE {WRITERS}")
        for (pid,) in pids:
            if draw.random() < 0.7:
                server.query(f"SELECT pg_terminate_backend({pid})")
                times.append(1)

    for _ in range(2):
        work.check_lines(beside(partial(work.live, 2.0), 0.05, cut))
    assert len(times) > 5
    check(work)
    assert work.count.acknowledged > 20


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT], ids=["at once", "in order"])
def test_restarts_of_the_server_lose_nothing_and_do_nothing_twice(
    server: Server, tmp_path: Path, how: signal.Signals
) -> None:
    work = killing(server, tmp_path, 3)

    def restart() -> None:
        if server.query(f"SELECT 1 FROM pg_stat_activity WHERE {WRITERS}"):  # It is open.
            server.stop(how)
            server.start()
            times.append(1)

    times: list[int] = []
    work.check_lines(beside(partial(work.live, 3.0), 0.7, restart))
    assert times
    check(work)
    assert work.count.acknowledged > 20
