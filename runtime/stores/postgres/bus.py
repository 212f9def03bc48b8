"""``PostgresBus``: the bus between the processes of a store, by LISTEN and NOTIFY.

    publish ─► what waits ─► SELECT pg_notify(…), one statement at a time ─► the server
    the server ─► notifications ─► hear

* It has a connection of its own, of which the event loop waits for the socket: nothing here waits
  for the server but connecting, which a thread does.  A notification writes nothing to disk.
* A connection that is lost is made anew; what was under way is lost with it, and nothing else.  A
  pooler that forgets LISTEN costs pieces of answers, too, and nothing else.
* Everybody who may connect to a database may listen there to every channel whose name he knows, so
  the names hold a digest of what only those can read who can read the store.
"""

import hashlib
import selectors
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from hubbub.hub.bus.bus import Hear, Topic
from hubbub.hub.logs import log
from hubbub.hub.ports import Clock, Worker
from hubbub.hub.task_host import TaskHost
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.attentive import SILENCE, ServerSilent
from hubbub.runtime.stores.postgres.server.faults import postgres_failure

__all__ = ["PostgresBus"]

MAX_WAITING: Final = 64
"""Frames that wait to be sent; further ones are dropped."""

AT_ONCE: Final = 16
"""Frames in one statement."""

FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0
"""Seconds between two attempts to connect."""

_DONE: Final = frozenset((ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK))


class PostgresBus:
    """One process's ``Bus`` of a store that exists.  It raises nothing: what fails is logged."""

    def __init__(
        self, address: PostgresAddress, make_worker: Callable[[], Worker], clock: Clock
    ) -> None:
        self._address = address
        self._make_worker = make_worker
        self._clock = clock
        self._tasks: TaskHost | None = None
        self._db: psycopg.Connection[object] | None = None
        self._channels: dict[Topic, str] = {}
        self._waiting: deque[tuple[Topic, bytes]] = deque()
        self._wants: bytes | None = None
        """What was said last about these: others are told once more after a connection is made."""
        self._is_virtual = False
        """Whether time passes without the server: then it says nothing of that."""
        self._asked_at: float | None = None
        """When a statement was sent that is not answered yet."""
        self._name = self._known_as = f"{address.prefix}bus"
        """What the connection is to be called, and what the server knows."""
        self._listens = self._is_listening = False
        """Whether pieces are to be heard, and whether the server knows."""

    # ── for the hub ──────────────────────────────────────────────────────────────────────────

    def open(self, hear: Hear, tasks: TaskHost) -> None:
        self._tasks = tasks
        self._scope = anyio.CancelScope()  # Needs an event loop, which a store is made without.
        tasks.start(self._live(hear), name="hubbub bus", steady=True)

    def publish(self, topic: Topic, frame: bytes) -> None:
        if topic == "wants":
            self._wants = frame
        if self._db is not None and len(self._waiting) < MAX_WAITING:
            self._waiting.append((topic, frame))
            self._pump()

    def listen(self, deltas: bool) -> None:
        self._listens = deltas
        self._pump()

    def call_itself(self, name: str) -> None:
        """Be known to the server under another name."""
        self._name = name
        self._pump()

    def close(self) -> None:
        self._tasks = None

    # ── the connection ───────────────────────────────────────────────────────────────────────

    async def _live(self, hear: Hear) -> None:
        worker, wait, is_away = self._make_worker(), FIRST_WAIT, False
        slow, self._is_virtual = 0, worker.is_inline
        try:
            while True:
                try:
                    self._db = await worker.run(partial(self._connect, slow))
                    if is_away:
                        log.info("bus.back", place=self._address.place)
                    wait, is_away, slow = FIRST_WAIT, False, 0
                    if self._wants is not None:
                        self._waiting.append(("wants", self._wants))
                    await self._attend(self._db.pgconn, hear)
                except psycopg.Error as error:
                    slow += isinstance(error, psycopg.errors.ConnectionTimeout | ServerSilent)
                    if not is_away:
                        is_away = True
                        words = postgres_failure(self._address.place, error)
                        log.warning("bus.lost", problem=words)
                finally:
                    self._drop()
                await self._clock.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
        finally:
            worker.close()

    def _connect(self, slow: int) -> psycopg.Connection[object]:
        schema = self._address.schema
        self._known_as = self._name
        db = self._address.connect(self._known_as, slow)
        try:
            db.silence = self._address.handshake(slow)
            found = db.execute(
                f"SELECT value FROM \"{schema}\".meta WHERE key = 'proof'"
            ).fetchall()
            digest = hashlib.sha256(repr(found).encode()).hexdigest()[:10]
            self._channels = {"deltas": f"{schema}_d{digest}", "wants": f"{schema}_w{digest}"}
            db.execute(f'LISTEN "{self._channels["wants"]}"')
            db.pgconn.nonblocking = 1
        except BaseException:
            db.close()
            raise
        return db

    def _drop(self) -> None:
        db, self._db = self._db, None
        self._waiting.clear()
        self._asked_at, self._is_listening = None, False
        if db is not None:
            if not db.closed:
                anyio.notify_closing(db.pgconn.socket)
            db.close()

    async def _attend(self, db: PGconn, hear: Hear) -> None:
        """Take what the server says, until the connection is lost."""
        topics = {name.encode(): topic for topic, name in self._channels.items()}
        with anyio.CancelScope() as self._scope:
            self._pump()
            while True:
                await anyio.wait_readable(db.socket)
                db.consume_input()
                self._settle(db)
                while (said := db.notifies()) is not None:
                    topic = topics.get(said.relname)
                    if topic is not None and said.be_pid != db.backend_pid:
                        hear(topic, said.extra)
        raise psycopg.OperationalError("the connection is taken to be lost")

    def _settle(self, db: PGconn) -> None:
        """Send what waits once the last statement is answered."""
        if self._asked_at is None or db.is_busy():
            return
        while (result := db.get_result()) is not None:
            if result.status not in _DONE:
                log.warning("bus.refused", problem=result.get_error_message())
        self._asked_at = None
        self._pump()

    def _pump(self) -> None:
        """Send the next statement, unless one is under way."""
        if self._db is None or self._tasks is None:
            return
        if self._asked_at is not None:
            if self._is_silent():
                self._scope.cancel()
            return
        statement, values = self._next()
        if not statement:
            return
        db, self._asked_at = self._db.pgconn, self._clock.monotonic()
        try:
            db.send_query_params(statement.encode(), values)
            if db.flush():
                self._tasks.start(self._flush(db), name="hubbub bus flush", steady=True)
        except psycopg.Error:
            self._scope.cancel()

    def _is_silent(self) -> bool:
        """Whether the server has said nothing for too long, though there was time to hear it."""
        if self._db is None or self._asked_at is None or self._is_virtual:
            return False
        if self._clock.monotonic() - self._asked_at <= SILENCE:
            return False
        # Where this process has stood still, the answer is there, and nobody has looked.
        with selectors.DefaultSelector() as selector:
            selector.register(self._db.pgconn.socket, selectors.EVENT_READ)
            return not selector.select(0)

    def _next(self) -> tuple[str, list[bytes]]:
        if self._listens != self._is_listening:
            self._is_listening = self._listens
            verb = "LISTEN" if self._listens else "UNLISTEN"
            return f'{verb} "{self._channels["deltas"]}"', []
        if self._name != self._known_as:
            self._known_as = self._name
            return "SELECT set_config('application_name', $1, false)", [self._name.encode()]
        values: list[bytes] = []
        while self._waiting and len(values) < 2 * AT_ONCE:
            topic, frame = self._waiting.popleft()
            values += self._channels[topic].encode(), frame
        calls = [f"pg_notify(${at}, ${at + 1})" for at in range(1, len(values), 2)]
        return (f"SELECT {', '.join(calls)}" if calls else ""), values

    async def _flush(self, db: PGconn) -> None:
        """Send the rest of what the network has not taken at once."""
        try:
            while self._db is not None and self._db.pgconn is db and db.flush():
                await anyio.wait_writable(db.socket)
        except (psycopg.Error, anyio.ClosedResourceError):
            self._scope.cancel()
