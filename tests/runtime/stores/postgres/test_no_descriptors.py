"""A process that has no descriptors left for a moment hears of others all the same."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from support.postgres import Server

from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.server.faults import is_passing, postgres_wait
from hubbub.runtime.stores.postgres.tail import Pause

pytestmark = [
    pytest.mark.spec("X-03"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs to count open files"),
]


@contextmanager
def without_descriptors(free: int = 0) -> Iterator[None]:
    """No more than ``free`` files can be opened inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, hard)
    )
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(taken.pop())
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_wait_needs_no_descriptor_of_its_own() -> None:
    pause = Pause()
    reads, writes = os.pipe()
    try:
        with without_descriptors():
            with pytest.raises(OSError, match="Too many open files"):
                os.open(os.devnull, os.O_RDONLY)
            pause.call()
            assert not pause.wait(60.0, reads)
            os.write(writes, b".")
            assert pause.wait(60.0, reads)
    finally:
        os.close(reads)
        os.close(writes)
        pause.close()


@pytest.mark.parametrize("free", range(6))
def test_a_connection_for_which_no_descriptor_is_free_is_waited_for(
    server: Server, free: int
) -> None:
    """The connection's own comes first: what it is waited for by is refused then."""
    db = PostgresConnection(PostgresAddress(server.dsn("few")), "few")
    try:
        problem: Exception | None = None
        with without_descriptors(free):
            try:
                db.connect()
            except Exception as error:
                problem = error
        assert problem is not None or free
        if problem is not None:
            assert is_passing(problem), repr(problem)
            if "open files" in str(problem):
                assert "ulimit -n" in postgres_wait("here", problem)
        db.connect()
        assert db.execute("SELECT 1").fetchone() == (1,)
    finally:
        db.close()
