"""``Hearing``: what a process learns of the others at work on its store, told in its place.

    tail   ─► others' events, in pages ─┐
    a group of its own is committed ────┴─► one at a time, in order of position ─► the hub
    look   ─► lease over: all trees are lost, before anything else
           ─► trees are free: a share of them is claimed
    guard  ─► no renewal is known for as long as a lease lasts: the same, whatever the server says

Where nothing has a thread of its own, in virtual time, nobody looks: what others have written is
then heard with the next group of commits, or when it is waited for.
"""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio
import anyio.lowlevel
import psycopg

from hubbub.hub.logs import log
from hubbub.hub.ports import Clock, Worker
from hubbub.hub.store.placement import surplus
from hubbub.runtime.stores.postgres.lease import WorkerLease
from hubbub.runtime.stores.postgres.server.faults import is_passing, postgres_wait
from hubbub.runtime.stores.postgres.share import PostgresShare
from hubbub.runtime.stores.postgres.tail import CLAIMS, Look, Page, Pause, Tail

__all__ = ["Hearing"]

T = TypeVar("T")

BEAT: Final = 0.5
"""Seconds between two looks at the store, at most; a third of a lease, if less."""

COMPARE: Final = 2.0
"""Seconds after which a process looks again whether it owns more than its share."""

POLL: Final = 0.25
"""Seconds after which what others have written is looked for, where nothing was notified."""

UNNOTIFIED: Final = 5.0
"""Seconds for which others' events are found before it is said that no notification comes."""


class HearingStore(Protocol):
    """The store whose process this is."""

    tip: int
    failure: str

    async def persist(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something again and again while what is in its way passes."""
        ...

    def heard(self, page: Page) -> None:
        """What others have written is told next."""
        ...

    def looked(self, look: Look) -> None:
        """A look has found the store to be so."""
        ...

    def wake(self) -> None:
        """Have the writing task look."""
        ...

    async def fail(self, error: Exception) -> None:
        """Nothing is accepted from now on."""
        ...


class Hearing:
    """In the event loop, beside the task that writes."""

    def __init__(
        self, host: HearingStore, share: PostgresShare, tail: Tail, lease: WorkerLease,
        clock: Clock, tailing: Worker,
    ) -> None:  # fmt: skip
        self._host = host
        self._share = share
        self._tail = tail
        self._lease = lease
        self._clock = clock
        self._tailing = tailing
        self.telling = anyio.Lock()
        """Held by who tells something: there is one order of it."""
        self.is_over = False
        """Whether the lease is over, as far as is known, and no other one has begun."""
        self.is_anybody_else = True
        """Whether other processes may be at work."""
        self._version = 0
        self._is_waiting = False
        """Whether the thread waits for what is notified."""
        self._unnotified_since: float | None = None
        """Since when events are found of which nothing was notified; ``inf``: that is said."""
        self._is_due = True
        self._compare_at = 0.0
        self._beat = min(BEAT, lease.ttl / 3)
        self._guarding = Pause()

    def begin(self, version: int) -> None:
        """What is of that version is known."""
        self._version = version

    def look_now(self) -> None:
        """Have the next look be at once."""
        self._is_due = True
        self._tail.call()

    async def look_if_due(self) -> None:
        """Look, where no thread does so by itself."""
        if self._is_due:
            self._is_due = False
            await self.look()

    def end(self) -> None:
        """Have nobody wait any more."""
        self._tail.end()
        self._guarding.end()

    def close(self) -> None:
        self._guarding.close()

    # ── one order ────────────────────────────────────────────────────────────────────────────

    async def hear(self, until: int | None = None, *, found: Page | None = None) -> None:
        """Tell what others have written, up to a position; whoever calls it holds ``telling``.

        Nothing is told behind a group of commits of this process's own that is not told yet.  A
        page that was ``found`` before is told if nothing else was since.
        """
        host = self._host
        while until is None or host.tip < until:
            page, found = found, None
            if page is None or page.after != host.tip:
                known = (self._version, self._share.removals)
                page = await self._ask(partial(self._tail.page, host.tip, until, *known))
            self._version = page.version
            if page.events and until is None and not self._tail.is_notified:
                self._found_unnotified()
            host.heard(page)
            if page.is_last:
                return

    def _found_unnotified(self) -> None:
        """Others have written, and no notification came: say so once, when that is no chance."""
        now = self._clock.monotonic()
        if self._unnotified_since is None:
            self._unnotified_since = now
        elif now >= self._unnotified_since + UNNOTIFIED:
            self._unnotified_since = math.inf
            log.warning(
                "store.unnotified", poll=POLL,
                remedy="what others write is found by polling, up to so many seconds late; a "
                "connection pooler in between? give the server's own address, or pool sessions",
            )  # fmt: skip

    async def hear_until(self, position: int, told: Callable[[], Awaitable[bool]]) -> None:
        """Return when everything up to a position is told; ``told`` waits for own commits, and says
        whether they will come."""
        host = self._host
        while host.tip < position and not host.failure:
            async with self.telling:
                await self.hear(position)
            if host.tip < position and not await told():
                return

    async def _ask(self, ask: Callable[[], T]) -> T:
        """What the thread finds that may be waiting for others."""

        async def do() -> T:
            if self._is_waiting:
                self._tail.call()
            return await self._tailing.run(ask)

        return await self._host.persist(do)

    # ── looking ──────────────────────────────────────────────────────────────────────────────

    async def listen(self) -> None:
        """Hear others and keep the lease, for as long as the store works."""
        due, clock = self._clock.monotonic(), self._clock
        found: Page | None = None
        while not self._host.failure:
            try:
                now = clock.monotonic()
                is_due = now + POLL / 5 >= due or self._is_due or self._tail.is_free_said
                if self._share.sharer is not None and (found is not None or not is_due):
                    async with self.telling:
                        await self.hear(found=found)
                if is_due:
                    due, self._is_due = now + self._beat, False
                    await self.look()
            except Exception as error:
                if not (isinstance(error, psycopg.Error) and is_passing(error)):
                    await self._host.fail(error)
                    return
                words = postgres_wait(self._lease.db.address.place, error)
                log.warning("store.unheard", problem=words)
            wait = min(POLL, max(0.0, due - clock.monotonic()))
            after = None if self._share.sharer is None else self._host.tip
            self._is_waiting = True
            found = await self._tailing.run(
                partial(self._tail.wait_page, wait, after, self._version, self._share.removals)
            )
            self._is_waiting = False
            await anyio.lowlevel.checkpoint()  # A thread is not left half-way.

    async def look(self) -> None:
        """Renew the lease, and do what a look at the store demands."""
        asked_at, told = self._clock.monotonic(), self._host.tip
        self._lease.told = told
        self._tail.is_free_said = False
        look = await self._ask(self._tail.look)
        if look.position < told:
            raise self._lease.gone_back()
        self._host.looked(look)
        self.is_anybody_else = look.others > 0
        if look.worker != self._lease.worker:
            return
        if not look.is_live:
            self.lose("another process has ended it")
            return
        if look.is_renewed:
            self._share.renewed(asked_at)
        if look.removals > (known := self._share.removals):
            self._share.have_gone(await self._ask(partial(self._tail.removals, known)))
        is_free = look.is_free
        if look.is_anybody_over and await self._ask(self._tail.reap):
            is_free = True
            self._tail.hint(is_free=True)  # Of its trees only a share is for this process.
        if self._lease.is_worker and self._share.sharer is not None and not self._share.drains:
            if is_free:
                await self._claim()  # Not all of it may be for anybody who is there.
            if self.is_anybody_else and asked_at >= self._compare_at:
                self._compare_at = asked_at + COMPARE
                await self._compare()
        if look.position > self._host.tip and self._share.sharer is not None:
            async with self.telling:
                await self.hear()

    async def _claim(self) -> None:
        while True:
            known = self._share.known()
            # What comes after a claim is told after it: an item of a later version takes a tree
            # from its owner, who is to be known by then.
            async with self.telling:
                worker, claims = await self._ask(partial(self._tail.claim, known))
                if claims and worker == self._lease.worker and not self.is_over:
                    if self._share.left > 0:
                        self._share.own(claims)
                    else:  # Else nobody would drive them, should the lease be renewed after all.
                        self.lose("no renewal is known for its whole time")
            if len(claims) < CLAIMS:
                return

    async def _compare(self) -> None:
        """Hand over what others have room for."""
        if own := self._share.agents():
            free, loads = await self._ask(self._tail.places)
            worker = self._lease.worker
            if any(load.number == worker for load in loads):
                self._share.crowded(surplus(own, worker, loads, free))

    # ── the lease ────────────────────────────────────────────────────────────────────────────

    async def guard(self, guarding: Worker) -> None:
        """Lose all trees once no renewal is known for as long as a lease lasts."""
        while not self._host.failure:
            left = self._share.left
            if left <= 0 and not self.is_over:
                self.lose("no renewal is known for its whole time")
            wait = left if left > 0 else self._beat
            await guarding.run(partial(self._guarding.wait, wait))
            await anyio.lowlevel.checkpoint()
        self.lose("the store has failed")

    def lose(self, why: str) -> None:
        """The lease is over: nothing is owned any more, before anything is asked or refused."""
        if not self.is_over:
            log.warning("lease.over", worker=self._lease.worker, why=why)
        self.is_over = True
        self._share.lose_all()
        self._host.wake()

    def joined(self, asked_at: float) -> None:
        """Another lease has begun."""
        self.is_over = False
        self._share.renewed(asked_at)
