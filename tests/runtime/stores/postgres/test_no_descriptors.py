"""A process that has no descriptors left for a moment hears of others all the same."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from hubbub.runtime.stores.postgres.tail import Pause

pytestmark = [
    pytest.mark.spec("X-03"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs to count open files"),
]


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Nothing can be opened inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, hard)
    )
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
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
