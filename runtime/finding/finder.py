"""``Finder``: what is in a runtime's store, found without starting anything."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hubbub.hub.errors import BadValue, UnknownRun
from hubbub.hub.events.descriptors import Descriptor
from hubbub.hub.hub import Hub
from hubbub.hub.near_misses import kind_of
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.texts import check_label
from hubbub.runtime.finding.answers import answer, find_conversation, run_info
from hubbub.runtime.finding.conversations import Conversations, list_conversations

if TYPE_CHECKING:
    from hubbub.runtime.inspection.replay import Replayed

__all__ = ["Finder"]

T = TypeVar("T")


class Finder:
    """Asks the store of a hub, behind everything that was submitted before."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def answer(self, question: str) -> Any:
        """What channels may ask at the address ``runtime``."""
        if question == "statistics":
            return msgspec.to_builtins(self._hub.statistics())
        now = self._hub.ports.clock.now()
        return await self._inspect(lambda store: answer(store, question, now))

    async def conversations(self, **which: Any) -> Conversations:
        """See ``list_conversations``."""
        now = self._hub.ports.clock.now()
        return await self._inspect(lambda store: list_conversations(store, now=now, **which))

    async def find(self, key: str | Descriptor) -> RunInfo | None:
        """See ``find_conversation``."""
        return await self._inspect(lambda store: find_conversation(store, key))

    async def run(self, run_id: str) -> RunInfo:
        """What the store knows of a run.  Raises ``UnknownRun``."""
        check_label("run_id", run_id)
        info = await self._inspect(lambda store: run_info(store, run_id))
        if info is None:
            raise UnknownRun(run_id)
        return info

    async def state_at(self, run_id: str, seq: int | None) -> "Replayed":
        """The state of a run after a record of its own lane; see ``replay``."""
        check_label("run_id", run_id)
        if seq is not None and (not isinstance(seq, int) or isinstance(seq, bool)):
            raise BadValue("seq", f"expected the number of a record, not {kind_of(seq)}")
        from hubbub.runtime.inspection.replay import replay

        def look(store: StoreReader) -> "Replayed":
            with store.one_moment():
                return replay(store, run_id, seq)

        return await self._inspect(look)

    async def _inspect(self, look: Callable[[StoreReader], T]) -> T:
        await self._hub.journal.flush()
        return await self._hub.journal.inspect(look)
