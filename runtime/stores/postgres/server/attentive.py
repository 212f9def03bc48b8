"""``AttentiveConnection``: a connection of psycopg that notices what it is not told.

A network that drops everything, and a server that stands still, answer nothing: a thread that waits
for them would wait without end.  And a server that is asked to give up waiting for its standby says
that it has committed, with a warning that the standby may not have it.
"""

from collections.abc import Generator
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

__all__ = ["SILENCE", "AttentiveConnection", "ServerSilent"]

SILENCE: Final = 10.0
"""Seconds without a word after which a server that is asked is taken to be gone."""

TICK: Final = 0.1
"""Seconds after which psycopg looks up from waiting."""

WAITS_FOR_STANDBY: Final = "SyncRepWaitForLSN"
"""The function of PostgreSQL in which a commit waits for a standby."""


class ServerSilent(psycopg.OperationalError):
    """A server that was asked has said nothing for too long."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)


class AttentiveConnection(psycopg.Connection[Any]):
    """Lost when the server is silent for ``silence`` seconds while it is asked; ``None``: never."""

    silence: float | None = SILENCE
    _is_unreplicated = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.add_notice_handler(self._note)

    def wait(self, gen: Any, interval: float = TICK, *args: Any, **more: Any) -> Any:
        """Consume a generator of psycopg's.  Raises ``ServerSilent``, and ``psycopg.Error`` where
        the system does not let it wait."""
        try:
            return super().wait(self._heeded(gen, interval), interval, *args, **more)
        except OSError as error:
            raise psycopg.OperationalError(str(error)) from error

    def check_replicated(self) -> None:
        """Close a connection whose last commit no standby may have, though one was waited for.

        Raises ``psycopg.OperationalError`` then.
        """
        if self._is_unreplicated:
            self.close()
            raise psycopg.OperationalError("a commit was cut off from waiting for its standby")

    def _heeded(self, gen: Any, interval: float) -> Generator[Any, Any, Any]:
        idle, silence = 0.0, self.silence
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    idle = 0.0
                elif silence is not None and self._is_asked:
                    idle += interval
                    if idle >= silence:
                        self.close()
                        raise ServerSilent(
                            f"the server has said nothing for {silence:g} s: "
                            "the connection is taken to be lost"
                        )
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    @property
    def _is_asked(self) -> bool:
        return self.pgconn.transaction_status == TransactionStatus.ACTIVE

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == WAITS_FOR_STANDBY:
            self._is_unreplicated = True
