"""``PostgresBlobs``: contents of files in a table, by digest, each once."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from hubbub.hub.errors import StoreFailed
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.writer import PUT_CONTENT

__all__ = ["PostgresBlobs"]

Ask = Callable[[Callable[[], Any]], Awaitable[Any]]


class PostgresBlobs:
    """Keeps contents permanently.  ``ask`` has something done by the reading connection, and again
    where that is lost."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.db: PostgresConnection | None = None
        """The reading connection while the store is open."""
        self.writing: PostgresConnection | None = None
        """The connection in whose transactions items are accepted."""

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        """Keep ``content``, durably when this returns.  Raises ``StoreFailed``."""
        await self._ask(lambda: self._connected.execute(PUT_CONTENT, (digest, bytes(content))))

    async def get(self, root_run_id: str, digest: str) -> bytes | None:
        """A content, or ``None``.  Raises ``StoreFailed`` for one that has changed."""
        select = "SELECT content FROM blob WHERE digest = ?"
        found = await self._ask(lambda: self._connected.execute(select, (digest,)).fetchone())
        if found is None:
            return None
        content = bytes(found[0])
        if hashlib.sha256(content).hexdigest() != digest:
            place = f"{self._connected.address.place}: blob {digest}"
            problem = "its content has changed; put it back from a backup (hubbub fsck lists all)"
            raise StoreFailed(place, problem)
        return content

    def size_of(self, root_run_id: str, digest: str) -> int | None:
        """The size of a content; ``None`` where none is kept.

        Called in the writing thread, in the middle of a group: what waits for a server is there.
        """
        assert self.writing is not None
        select = "SELECT octet_length(content) FROM blob WHERE digest = ?"
        found = self.writing.execute(select, (digest,)).fetchone()
        return None if found is None else int(found[0])

    def drop(self, root_run_id: str) -> None:
        """Nothing: contents are kept as long as the journal that names them."""

    @property
    def _connected(self) -> PostgresConnection:
        assert self.db is not None
        return self.db
