"""``Tail``: how a process hears of the others at work on its store, and keeps its lease.

    wait    until something is notified, it is called, or some time has passed; what is notified
            of is read at once
    look    one query: renews the lease, and sees how far the store is, whose lease is over, and
            whether trees are free
    claim   trees that nobody owns, up to a share
    page    what was written after a position

Notifications are hints: whoever hears none looks all the same.  It has a connection and a thread
of its own, so that no group of commits that waits for its turn keeps the lease from renewal.
"""

import selectors
import socket
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import psycopg
from msgspec import Struct

from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event
from hubbub.hub.logs import log
from hubbub.hub.store.placement import Offer, WorkerLoad, placed
from hubbub.runtime.stores.postgres.lease import FREE, WorkerLease, share_lock
from hubbub.runtime.stores.postgres.removal.removals import NEWEST, Removals, removals_after
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.trees import CLAIM, CLAIMED, FREE_TREES
from hubbub.runtime.stores.sql.reader import READ_ERRORS
from hubbub.runtime.stores.sql.rows import Depths

__all__ = ["PAGE", "Claims", "Look", "Page", "Pause", "Tail"]

PAGE: Final = 1_000
"""Events that are read at a time."""

CLAIMS: Final = 5_000
"""Trees of one agent that are claimed at a time."""

FRESH: Final = 1.0
"""Seconds since a process was heard of, after which others no longer leave its share to it."""

Claims: TypeAlias = Mapping[str, tuple[int, str]]


class Look(Struct, frozen=True):
    """What the store was like at a look."""

    worker: int
    """The lease that was looked after."""
    is_live: bool
    """Whether that lease still holds."""
    is_renewed: bool
    """Not while a group of commits is about to renew it."""
    position: int
    depths: Depths
    is_anybody_over: bool
    """Whether a lease is over that nobody has ended."""
    is_free: bool
    """Whether there are trees that nobody owns."""
    others: int
    """Other processes that are at work."""
    removals: int
    """The number of the tree that has gone last."""


class Page(Struct, frozen=True):
    """What others have written after a position.  It does not age: there may only be more."""

    after: int
    events: Sequence[tuple[int, Event]]
    """Each with its position."""
    position: int
    """Of the last of them, or, where nothing else is kept up to there, that which was asked for."""
    is_last: bool
    """Whether nothing more is there yet, or what comes next is this process's own."""
    secrets: Sequence[tuple[str, bytes]]
    """Values that they have written, encrypted, by key."""
    version: int
    """That of the last one."""
    removals: Removals
    """Trees that have gone, all of which some event may be missing."""


_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""Takes no descriptor of its own: there may be none left."""


class Pause:
    """A wait in a thread, which any other thread can end."""

    def __init__(self) -> None:
        self._hears, self._calls = socket.socketpair()
        self._hears.setblocking(False)
        self._calls.setblocking(False)
        self._is_over = False

    def wait(self, seconds: float, also: int | None = None) -> bool:
        """Wait, but no longer than until it is called; whether there is something to read from
        the descriptor ``also``."""
        if self._is_over:
            return False
        with _Selector() as selector:
            selector.register(self._hears, selectors.EVENT_READ)
            if also is not None:
                selector.register(also, selectors.EVENT_READ)
            found = {key.fd for key, _ in selector.select(max(0.0, seconds))}
        with suppress(BlockingIOError):
            while self._hears.recv(4096):
                pass
        return also in found

    def call(self) -> None:
        """End the wait, or the next one."""
        with suppress(OSError):  # It is called already, so often that nothing more fits.
            self._calls.send(b".")

    def end(self) -> None:
        """Have nobody wait any more."""
        self._is_over = True
        self.call()

    def close(self) -> None:
        self._hears.close()
        self._calls.close()


class Tail:
    """What is done in the thread; but for ``call``, which any other one may do."""

    def __init__(self, db: PostgresConnection, lease: WorkerLease) -> None:
        self._db = db
        self._lease = lease
        self._pause = Pause()
        self._has_heard = False
        """Whether something was notified since this was last asked."""
        self.is_free_said = False
        """Whether that was that trees are free."""
        self.is_notified = False
        """Whether notifications arrive at all, as far as is known."""
        self._says_new = self._says_free = False
        """What the others are to be told next."""
        self._in_doubt = 0
        """The lease under which trees were claimed without an answer."""

    def connect(self) -> None:
        """Connect, anew where the connection is lost."""
        self._db.call_itself(self._lease.name_of("tail"))
        if self._db.is_lost:
            self._db.connect()
            self._share_lock()
            self._db.listen(self._db.address.schema, self._heard)
            self._has_heard = True  # What was notified meanwhile is lost.

    def _share_lock(self) -> None:
        """The writing connection may be lost, and nothing to be written: this one renews."""
        try:
            share_lock(self._db)
        except psycopg.Error:
            self._db.close()
            raise

    def _heard(self, word: str) -> None:
        self._has_heard = self.is_notified = True
        self.is_free_said = self.is_free_said or word == FREE

    # ── waiting ──────────────────────────────────────────────────────────────────────────────

    def wait_page(
        self, seconds: float, after: int | None, version: int, removals: int
    ) -> Page | None:
        """Like ``wait``; then, if something was notified, what others have written after a position
        that is given.  To be asked for it once that is said costs more than the reading."""
        if not self.wait(seconds) or after is None or self._db.is_lost:
            return None
        try:
            return self.page(after, None, version, removals)
        except Exception:  # Whoever asks for it next meets it again, and can say so.
            self._db.close()
            return None

    def wait(self, seconds: float) -> bool:
        """Wait for a notification, a call, or so long; whether something was notified."""
        try:
            if not self._db.is_lost:
                self._hint()
                self._db.take_notifications()  # What came with an answer is in no socket any more.
            if not self._has_heard and self._pause.wait(seconds, self._db.descriptor):
                self._db.take_notifications()
            if not self._db.is_lost:  # What it was called for: whoever listens waits for it.
                self._hint()
        except psycopg.Error:  # It is lost: the next look is by another one.
            self._db.close()
        heard, self._has_heard = self._has_heard, False
        return heard

    def call(self) -> None:
        """Have ``wait`` return."""
        self._pause.call()

    def hint(self, *, is_free: bool) -> None:
        """Tell the others soon that there is something new; ``is_free``: trees to be claimed."""
        if is_free:
            self._says_free = True
        else:
            self._says_new = True
        self._pause.call()

    def end(self) -> None:
        """Have nobody wait any more."""
        self._pause.end()

    def close(self) -> None:
        self._db.close()
        self._pause.close()

    def _hint(self) -> None:
        notify = "SELECT pg_notify(?, ?)"
        if self._says_free:
            self._says_free = self._says_new = False
            self._db.execute(notify, (self._db.address.schema, FREE))
        elif self._says_new:
            self._says_new = False
            self._db.execute(notify, (self._db.address.schema, ""))

    # ── looking ──────────────────────────────────────────────────────────────────────────────

    def look(self) -> Look:
        """Renew the lease, and see what there is."""
        self.connect()
        lease = self._lease
        worker = lease.worker
        values = (worker, lease.ttl, lease.drains, *lease.offered, lease.told)
        found: Any = self._db.execute(_LOOK, values).fetchone()
        is_live, is_renewed, position, live, parked, waiting, *rest = found
        return Look(worker, is_live, is_renewed, position, (live, parked, waiting), *rest)

    def reap(self) -> bool:
        """End the leases that are over; whether there was one.

        A process that stands still inside a group keeps all others from theirs, and one that
        listens keeps the server from forgetting what was notified: first of all its connections are
        ended.
        """
        self.connect()
        values = (self._lease.worker, self._lease.ttl)
        over = [worker for (worker,) in self._db.execute(_WHO_IS_OVER, values)]
        names = [self._db.address.name_of(what, each) for each in over for what in _BESIDE]
        with suppress(psycopg.errors.InsufficientPrivilege):  # Of another role.
            self._db.execute(_END_BACKENDS, values)
            self._db.execute(_END_NAMED, (names,))
        return bool(self._db.execute(_REAP, values).fetchall())

    def places(self) -> tuple[Mapping[str, int], list[WorkerLoad]]:
        """How many trees nobody owns, by agent, and what the workers own and offer: those that
        know all that this one knows."""
        free, loads = self._places()
        counts: Counter[str] = Counter()
        for (needs, agent), count in free.items():
            if needs <= self._lease.format:
                counts[agent] += count
        return counts, [load for format_, load in loads if format_ >= self._lease.format]

    def _places(self) -> tuple[Mapping[tuple[int, str], int], list[tuple[int, WorkerLoad]]]:
        """Trees that nobody owns, by what they need and by agent; workers, with their formats."""
        self.connect()
        lease = self._lease
        heard = max(0.0, lease.ttl - min(FRESH, lease.ttl / 2))
        with self._db.pipeline():
            free = self._db.execute(FREE_TREES)
            loads = self._db.execute(_LOADS, (lease.worker, heard))
        counts = {(needs, agent): count for needs, agent, count in free}
        found = []
        for number, trees, agents, room, format_ in loads:
            offer = Offer(None if agents is None else frozenset(agents), room)
            found.append((format_, WorkerLoad(number, trees, offer)))
        return counts, found

    def claim(self, known: Collection[tuple[str, int]]) -> tuple[int, Claims]:
        """Claim free trees, up to a share: for which lease, and by root the epochs and agents.

        Where the answer to the last claim was lost, what it came to is found, too: the trees that
        have been claimed for this lease, but for those ``known`` before.
        """
        free, loads = self._places()
        worker = self._lease.worker
        claims: dict[str, tuple[int, str]] = {}
        if self._in_doubt == worker:
            for root, epoch, agent in self._db.execute(CLAIMED, (worker,)):
                if (root, epoch) not in known:
                    claims[root] = (epoch, agent)
        self._in_doubt = worker
        if not any(load.number == worker for _, load in loads):  # It drains, or is over.
            self._in_doubt = 0
            return worker, claims
        # First those that few can take.
        for needs in sorted(
            {needs for needs, _ in free if needs <= self._lease.format}, reverse=True
        ):
            able = [load for format_, load in loads if format_ >= needs]
            there = {agent: count for (level, agent), count in free.items() if level == needs}
            for agent, count in placed(there, able)[worker].items():
                found = self._db.execute(CLAIM, (worker, min(count, CLAIMS), agent, needs))
                claims |= {root: (epoch, of) for root, epoch, of in found}
        self._in_doubt = 0
        return worker, claims

    def page(self, after: int, until: int | None, version: int, removals: int) -> Page:
        """What others have written after a position, up to another one, of the values since a
        ``version``, and what has gone since ``removals``; nothing behind what is this process's
        own."""
        self.connect()
        worker, own = self._lease.worker, self._lease.own
        limit = _LAST if until is None else until
        found = self._db.execute(_SELECT_PAGE, (after, limit)).fetchall()
        events: list[tuple[int, Event]] = []
        told, is_last = after, len(found) < PAGE
        is_over = is_last and until is not None
        for position, writer, body, _ in found:
            if writer in own:
                is_last, is_over = True, False
                break
            told = position
            try:
                events.append((position, decode_event(body)))
            except READ_ERRORS:  # Who reads the run is told; the others' come after it.
                log.error("event.unreadable", position=position)
        values: list[tuple[str, bytes]] = []
        newest = found[0][-1] if events else None
        if newest is not None and newest > version:
            # Behind the events: what they need is there.
            for key, value, each in self._db.execute(_SELECT_SECRETS, (version, worker)).fetchall():
                values.append((key, bytes(value)))
                newest = max(newest, each)
            version = newest
        if is_over:
            told = limit
        # Behind the events: what is missing among them has gone by now.
        gone = removals_after(self._db, removals) if told > after else ()
        return Page(after, events, told, is_last, values, version, gone)

    def removals(self, after: int) -> Removals:
        """The trees that have gone since the one of that number."""
        self.connect()
        return removals_after(self._db, after)


_LAST: Final = 1 << 62

_OVER: Final = (
    "live AND id <> ?1 AND expires < clock_timestamp() "
    "AND clock_timestamp() > pg_postmaster_start_time() + make_interval(secs => ?2::float8)"
)
"""Leases that others hold and have not renewed; after a restart of the server, they have time."""

_LOOK: Final = f"""
WITH mine AS (
  UPDATE worker SET expires = clock_timestamp() + make_interval(secs => ?2::float8),
    drains = ?3, agents = ?4, capacity = ?5, told = ?6
  WHERE id = (SELECT id FROM worker WHERE id = ?1 AND live FOR UPDATE SKIP LOCKED) RETURNING id
)
SELECT EXISTS (SELECT 1 FROM worker WHERE id = ?1 AND live), EXISTS (SELECT 1 FROM mine),
  position, head.live, parked, waiting,
  EXISTS (SELECT 1 FROM worker WHERE {_OVER}),
  EXISTS (SELECT 1 FROM tree WHERE owner IS NULL)
    OR EXISTS (SELECT 1 FROM tree WHERE owner = ANY(ARRAY(SELECT id FROM worker WHERE NOT live))),
  (SELECT count(*) FROM worker WHERE live AND id <> ?1), {NEWEST}
FROM head WHERE log = 0
"""
_END_BACKENDS: Final = (
    "SELECT pg_terminate_backend(a.pid) FROM worker JOIN pg_stat_activity AS a "
    "ON a.pid = worker.pid AND a.backend_start = worker.connected "
    f"WHERE {_OVER}"
)
_BESIDE: Final = ("reader", "tail", "bus")
"""The connections of a process beside the writing one."""
_WHO_IS_OVER: Final = f"SELECT id FROM worker WHERE {_OVER}"
_END_NAMED: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name = ANY(?)"
)
_REAP: Final = (
    "UPDATE worker SET live = false WHERE id IN "
    f"(SELECT id FROM worker WHERE {_OVER} FOR UPDATE SKIP LOCKED) RETURNING id"
)
_LOADS: Final = (
    "SELECT id, (SELECT count(*) FROM tree WHERE owner = worker.id), agents, capacity, format "
    "FROM worker "
    "WHERE live AND NOT drains AND kind = 'worker' AND (id = ?1 OR "
    "expires >= clock_timestamp() + make_interval(secs => ?2::float8)) ORDER BY id"
)
"""One of which nothing is heard gets no more."""
_SELECT_PAGE: Final = (
    "SELECT position, writer, body, (SELECT max(version) FROM secret) FROM event "
    f"WHERE position > ? AND position <= ? ORDER BY position LIMIT {PAGE}"
)
"""With the version of the newest value of a secret, as of the same moment."""
_SELECT_SECRETS: Final = (
    "SELECT key, value, version FROM secret WHERE version > ? AND writer <> ? ORDER BY version"
)
