"""``Cast``: the processes of a story, and the servers that they are at work on."""

import random
from pathlib import Path
from time import monotonic, sleep, time
from typing import Final

from support.sql_history import watch_owners

from hubbub.runtime.stores.postgres.schema import make_schema
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from torture.killing import Problems
from torture.member_process import MemberProcess
from torture.servers import Servers

__all__ = ["TO_GO_ON", "TO_OPEN", "Cast"]

LOOPS: Final = ("asyncio", "trio")

TO_OPEN, TO_GO_ON = 180.0, 60.0
"""Seconds after which something is taken to hang."""

CONNECTING: Final = "&connect_timeout=2"
"""For connections that are cut while they are made."""

SHARE_OF_FAILURES: Final = 0.03
"""Of the groups of commits of some processes."""

AN_HOUR: Final = 3600.0


class Cast:
    """A channel and some workers on a schema of their own, each with a proxy to the server."""

    def __init__(
        self, servers: Servers, folder: Path, seed: int, *, ttl: float, workers: int
    ) -> None:
        folder.mkdir(parents=True)
        self.servers, self.folder, self.seed, self.ttl = servers, folder, seed, ttl
        self.draw = random.Random(f"nemesis {seed}")
        self.schema = f"nemesis_{seed}"
        self._count = workers
        self._lives = 0
        self.channels: list[MemberProcess] = []
        """One after another."""
        self.workers: list[MemberProcess] = []
        self.dead: list[MemberProcess] = []
        self.ends: list[tuple[str, float]] = []
        """Workers that were killed, or stopped for longer than their lease, and when."""
        self._is_upgraded = False
        """Whether the tables are those of the next version."""
        self.leaving: list[float] = []
        """Seconds that workers took to leave in order."""

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Make the store, and return when everybody is at work."""
        db = self.connect()
        make_schema(db, "nemesis")
        watch_owners(db)
        db.close()
        self.start_channel()
        for _ in range(self._count):
            self.start_worker()
        self.go_on()

    def end(self) -> None:
        """Leave no process behind."""
        for each in (*self.workers, *self.dead, *self.channels):
            each.kill()

    @property
    def channel(self) -> MemberProcess:
        return self.channels[-1]

    @property
    def everybody(self) -> tuple[MemberProcess, ...]:
        return (self.channel, *self.workers)

    def start_channel(self) -> None:
        """The next one, which listens from where the last one had come to."""
        self.channels.append(self._start(f"channel{self._lives}", "channel"))

    def upgrade(self) -> None:
        """Have another worker that is of the next version, and changes the tables."""
        self._is_upgraded = True
        self.start_worker(is_next=True)

    def start_worker(self, *, ticks: bool = True, is_next: bool = False) -> None:
        """Some have groups that fail, some a clock that is an hour off; after an upgrade some are
        of one version and some of the other."""
        number = self._lives
        is_next = is_next or (self._is_upgraded and self.draw.random() < 0.5)
        inject = SHARE_OF_FAILURES if number % 3 == 1 else 0
        late = AN_HOUR * self.draw.choice((-1, 1)) if number % 3 == 2 else 0
        self.workers.append(
            self._start(
                f"worker{number}", "worker", inject=inject, late=late, ticks=ticks, next=is_next
            )
        )

    def _start(self, name: str, role: str, **options: object) -> MemberProcess:
        primary = self.servers.primary
        process = MemberProcess(self.folder, name, primary.port)
        number, self._lives = self._lives, self._lives + 1
        process.start(
            primary.dsn_at(process.proxy.port, schema=self.schema) + CONNECTING, role=role,
            loop=LOOPS[(self.seed + number) % 2], seed=self.seed, ttl=self.ttl, life=number,
            **options,
        )  # fmt: skip
        return process

    def kill(self, worker: MemberProcess) -> None:
        self.ends.append((worker.name, time()))
        worker.kill()
        self._bury(worker)

    def leave(self, worker: MemberProcess) -> None:
        """Have a worker leave in order."""
        seconds = worker.leave(TO_GO_ON)
        self.leaving.append(seconds)
        self._bury(worker)

    def _bury(self, worker: MemberProcess) -> None:
        self.workers.remove(worker)
        self.dead.append(worker)

    def connect(self) -> PostgresConnection:
        address = self.servers.primary.dsn(self.schema)
        db = PostgresConnection(PostgresAddress(address), "audit", silence=None)
        db.connect()
        return db

    def said(self, what: str) -> list[list[str]]:
        """What all of them have said of one kind."""
        everybody = (*self.channels, *self.workers, *self.dead)
        return [words for each in everybody for words in each.lines(what)]

    # ── how it is ────────────────────────────────────────────────────────────────────────────

    def busiest(self) -> MemberProcess:
        """The worker that owns most trees."""
        found = self.servers.primary.query(
            f"SELECT worker.name, count(*) FROM {self.schema}.tree JOIN {self.schema}.worker "
            "ON worker.id = tree.owner WHERE worker.live GROUP BY 1 ORDER BY 2 DESC"
        )
        names = {worker.name: worker for worker in self.workers}
        busy = [names[str(name)] for name, _ in found if name in names]
        return busy[0] if busy else self.draw.choice(self.workers)

    def go_on(self) -> None:
        """Return when messages are accepted again, and everybody has renewed its lease."""
        for each in self.everybody:
            each.wait_for("open", TO_OPEN)
        count, at, until = self._accepted(), time(), monotonic() + TO_GO_ON
        while waiting := self._waiting(count, at):
            for each in self.everybody:
                if not each.is_alive or each.lines("failed"):
                    raise Problems(f"{each.name} has failed: {each.errors[-3000:]}")
            if monotonic() > until:
                raise Problems(f"no work goes on after {TO_GO_ON:.0f} s in {', '.join(waiting)}")
            sleep(0.05)

    def _accepted(self) -> int:
        return len(self.channel.lines("accepted"))

    def _waiting(self, count: int, at: float) -> list[str]:
        """Who has done nothing since some moment."""
        renewed = self.servers.primary.query(
            f"SELECT name FROM {self.schema}.worker WHERE live AND "
            f"expires > to_timestamp({at + self.ttl})"
        )
        idle = {each.name for each in self.everybody} - {str(name) for (name,) in renewed}
        return sorted(idle | ({"the conversations"} if self._accepted() < count + 5 else set()))

    def wait_for_heirs(self) -> None:
        """Return when the killed own nothing any more."""
        names = ", ".join(f"'{each.name}'" for each in self.dead)
        owned = (
            f"SELECT 1 FROM {self.schema}.tree JOIN {self.schema}.worker "
            f"ON worker.id = tree.owner WHERE worker.name IN ({names or 'NULL'})"
        )
        until = monotonic() + TO_GO_ON
        while self.servers.primary.query(owned):
            if monotonic() > until:
                raise Problems(f"nobody has taken over from {names} after {TO_GO_ON:.0f} s")
            sleep(0.05)
