"""``ContentsUnderWay``: what the parts of messages hold, until it is kept.

Sending is no async call, and keeping a content may be.  A SQLite store writes the contents of a
delivery in its own thread, ahead of the event that names them, so that what is on record is
durable.  For a store without a place for contents they go to the ``Blobs`` port as soon as the
store has accepted the event, in memory at once.  A run may begin before either is done; meanwhile
``get`` finds them here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from hubbub.hub.events import ContentPart, FileRef
from hubbub.hub.logs import log
from hubbub.hub.ports import Blobs, MemoryBlobs
from hubbub.hub.store.journal import Delivery, Journal
from hubbub.hub.task_host import TaskHost

__all__ = ["Contents", "ContentsUnderWay"]

Contents: TypeAlias = Mapping[str, bytes]
"""What parts hold, by digest."""


class ContentsUnderWay:
    """Contents by digest, of deliveries that are not done."""

    __slots__ = ("_are_stored", "_blobs", "_counts", "_held", "_tasks")

    def __init__(self, journal: Journal, blobs: Blobs, tasks: TaskHost) -> None:
        self._are_stored = getattr(journal, "blobs", None) is blobs
        """Whether the store itself keeps them, with the event."""
        self._blobs = blobs
        self._tasks = tasks
        self._held: dict[str, bytes] = {}
        self._counts: Counter[str] = Counter()

    def refusal(
        self, needs: Iterable[FileRef | ContentPart], brought: Contents
    ) -> Callable[[str], str] | None:
        """Of the root of a tree: why nothing in it can be sent what names these; ``None`` where
        they are all brought, or nobody can say without waiting whether the rest is kept."""
        size_of = getattr(self._blobs, "size_of", None)
        missing = tuple([each for each in needs if each.digest not in brought])
        if not missing or size_of is None:
            return None

        # What such a store was given before is kept by now, or was refused with what named it.
        under_way = {} if self._are_stored else self._held

        def refusal(root_run_id: str) -> str:
            for each in missing:
                held = under_way.get(each.digest)
                size = size_of(root_run_id, each.digest) if held is None else len(held)
                if size != each.size:
                    return _missing(each, size)
            return ""

        return refusal

    def hold(self, contents: Contents) -> None:
        """A delivery with these is submitted."""
        self._held.update(contents)
        self._counts.update(contents.keys())

    def settle(self, delivery: Delivery) -> None:
        """A delivery is written or refused."""
        contents, event = delivery.contents or {}, delivery.event
        delivery.contents = None
        if self._are_stored or delivery.outcome != "accepted":
            self._release(contents)
        elif isinstance(self._blobs, MemoryBlobs):
            for digest, content in contents.items():
                self._blobs.put_nowait(event.root_run_id, digest, content)
            self._release(contents)
        else:
            put = partial(self._put, event.root_run_id, contents)
            self._tasks.start(put(), name="hubbub contents", steady=True)

    async def get(self, root_run_id: str, digest: str) -> bytes | None:
        """A content of a tree of runs; ``None`` where it is not kept."""
        held = self._held.get(digest)
        return held if held is not None else await self._blobs.get(root_run_id, digest)

    async def put(self, root_run_id: str, contents: Contents) -> None:
        """Keep contents, durably when this returns."""
        for digest, content in contents.items():
            await self._blobs.put(root_run_id, digest, content)

    async def _put(self, root_run_id: str, contents: Contents) -> None:
        try:
            await self.put(root_run_id, contents)
        except Exception as error:  # A place of somebody's own: nobody is here to be told.
            log.error("contents.not_kept", root_run_id=root_run_id, exc_info=error)
        finally:
            self._release(contents)

    def _release(self, contents: Contents) -> None:
        for digest in contents:
            self._counts[digest] -= 1
            if not self._counts[digest]:
                del self._counts[digest], self._held[digest]


def _missing(named: FileRef | ContentPart, size: int | None) -> str:
    what = named.path if isinstance(named, FileRef) else named.words
    if size is None:
        return f"the content of {what} is not kept here; send it with its bytes"
    return f"the content of {what} has {size:,} bytes, not {named.size:,}; send it with its bytes"
