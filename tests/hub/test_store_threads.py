"""The threads that work for stores."""

import threading
import weakref

import anyio
import pytest

from hubbub.hub.ports import ThreadWorker


class Page:
    """What is read."""


@pytest.mark.anyio
@pytest.mark.spec("G-03")
async def test_a_thread_that_waits_keeps_nothing_of_what_it_has_read() -> None:
    """Real threads: it is about when they let go."""
    gone = threading.Event()

    def read() -> Page:
        page = Page()
        weakref.finalize(page, gone.set)
        return page

    worker = ThreadWorker()
    try:
        page = await worker.run(read)
        assert not gone.is_set()
        del page
        assert await anyio.to_thread.run_sync(gone.wait, 10)
    finally:
        worker.close()
