"""The seams between hubbub and the world: time, ids, randomness, threads, secrets.

Nothing else in the library reads a clock, makes an id, draws a random number or starts a
thread, which is what makes simulation exact.  ``Journal``, the port of the store, is in
``hub/store/journal.py``.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Protocol, TypeVar

import anyio
import anyio.lowlevel

from hubbub.hub.errors import BadValue, Closed
from hubbub.hub.home_loop import HomeLoop, running_loop
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.tasks.cancelling import outlast
from hubbub.hub.tasks.loop_watch import Held, NoWatch, ThreadWatch
from hubbub.hub.tasks.offload import THREADS, ThreadOffload

__all__ = [
    "Blobs",
    "Clock",
    "IdSource",
    "Keeper",
    "LoopWatch",
    "MemoryBlobs",
    "MemorySecrets",
    "Offload",
    "Ports",
    "Secrets",
    "SystemClock",
    "SystemIds",
    "ThreadOffload",
    "ThreadWorker",
    "Worker",
]

T = TypeVar("T")


class Clock(Protocol):
    """Time.  ``now`` is wall time for people, ``monotonic`` for waiting."""

    def now(self) -> int:
        """Microseconds since the Unix epoch, UTC, as an int.

        A hub that is entered with another clock, or one that is off by 18,000 years, raises
        ``BadValue``."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes backwards."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class IdSource(Protocol):
    """Ids and randomness."""

    def run_id(self, now: int) -> str:
        """A new UUIDv7 text for the time ``now`` (µs); later calls sort after earlier ones."""
        ...

    def random(self) -> float:
        """A float in [0, 1), for jitter."""
        ...

    def number(self) -> int:
        """A random integer of 48 bits, for instance ids."""
        ...


class Offload(Protocol):
    """Where blocking functions run."""

    async def run(self, fn: Callable[[], T]) -> T:
        """Run ``fn`` off the event loop.  When cancelled, the caller continues at once and what
        ``fn`` still returns is dropped."""
        ...


class Worker(Protocol):
    """A thread of a store's own, which does one thing after another."""

    @property
    def is_inline(self) -> bool:
        """Whether there is no thread: nothing may wait there for the world outside."""
        ...

    async def run(self, fn: Callable[[], T]) -> T:
        """Have ``fn`` done after everything that was asked for before; not cancelled half-way.

        Raises ``Closed`` after ``close``.
        """
        ...

    def when_idle(self, fn: Callable[[], None], seconds: float) -> None:
        """Have ``fn``, which must not raise, done whenever nothing was for so many seconds.

        These are seconds of the world outside: where time is virtual it is never done.
        """
        ...

    def close(self) -> None:
        """Let the thread end once it has done what it was asked to; idempotent."""
        ...


class LoopWatch(Protocol):
    """Where it is noticed that a function holds the event loop."""

    def begin(self, held: Held) -> Callable[[], None]:
        """Call ``held``, in any thread, with what holds the current loop for more than a second.

        It ends when what is returned is called, in any thread and maybe more than once.
        """
        ...


class Secrets(Protocol):
    """Values that may appear nowhere else: no event, journal, log or export."""

    def put_if_absent(self, key: str, value: str) -> bool: ...
    def put(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> str | None: ...

    def keys(self, prefix: str) -> tuple[str, ...]:
        """The keys that begin with ``prefix``."""
        ...

    def drop(self, prefix: str) -> None: ...


class Blobs(Protocol):
    """Contents of files, by digest, kept for each tree of runs."""

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        """Keep ``content``, durably when this returns; the same digest again is a no-op."""
        ...

    async def get(self, root_run_id: str, digest: str) -> bytes | None: ...

    def drop(self, root_run_id: str) -> None:
        """Release what is kept for a tree."""
        ...


class Keeper(Protocol):
    """Who may have places of its own for secrets and contents; ``None`` where it has none."""

    @property
    def secrets(self) -> Secrets | None: ...

    @property
    def blobs(self) -> Blobs | None: ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return anyio.current_time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


LAST_STAMPED: Final = (2**48 - 86_400_000) * 1000
"""µs of a day before the 48 bits of a UUID's milliseconds end; later ones count on from it."""


class SystemIds:
    """UUIDv7 run ids; ``seed`` makes the sequence repeatable for tests."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()
        self._bits = random.Random(self._random.getrandbits(128))
        self._last = 0

    def run_id(self, now: int) -> str:
        # The 12 bits after the millisecond hold its fraction; a counter step keeps order when
        # the clock stops or goes back, so ids of one source always sort by creation.
        now = min(now, LAST_STAMPED)
        stamp = max((now // 1000 << 12) | (now % 1000 << 2), self._last + 1)
        self._last = stamp
        text = f"{stamp >> 12:012x}{stamp & 0xFFF:03x}"
        tail = f"{self._bits.getrandbits(62) | 1 << 63:016x}"
        return f"{text[:8]}-{text[8:12]}-7{text[12:]}-{tail[:4]}-{tail[4:]}"

    def random(self) -> float:
        return self._bits.random()

    def number(self) -> int:
        return self._bits.getrandbits(48)


class ThreadWorker:
    """A real thread.  It calls back into the event loop by the loop's own thread-safe call."""

    is_inline = False

    def __init__(self, name: str = "hubbub store") -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_closed = False
        self._when_idle: Callable[[], None] = _nothing
        self._home = HomeLoop()
        """The loop of who asked last."""
        self._call_back: Callable[[Callable[[], object]], object] = _unasked
        self._patience: float | None = None
        # A daemon: a program that ends without closing its store must not hang at its exit.
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            try:
                work = self._queue.get(timeout=self._patience)
            except Empty:
                self._when_idle()
                continue
            if work is None:
                return
            work()
            del work  # A thread that waits keeps nothing of what it has read.

    async def run(self, fn: Callable[[], T]) -> T:
        if self._is_closed or not self._thread.is_alive():  # In a forked child it is not.
            raise Closed("the store")
        home = self._home
        if home.loop is None or home.loop is not running_loop():
            self._call_back = self._arrive()
        done = home.make_event()
        call_back, tell = self._call_back, done.set
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(fn())
            except BaseException as error:  # The thread continues: others wait for it, too.
                errors.append(error)
            with suppress(RuntimeError):  # The loop has ended, and with it the waiter.
                call_back(tell)

        self._queue.put(work)
        await outlast(done, home.make_scope)
        if errors:
            raise errors.pop()
        return results[0]

    def _arrive(self) -> Callable[[Callable[[], object]], object]:
        """Be asked in the loop at work from now on; returns how a thread calls something there."""
        self._home.begin()
        token: Any = anyio.lowlevel.current_token().native_token
        call: Callable[[Callable[[], object]], object]
        call = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe
        return call

    def when_idle(self, fn: Callable[[], None], seconds: float) -> None:
        self._when_idle, self._patience = fn, seconds
        self._queue.put(_nothing)  # It may be waiting without end.

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)


def _nothing() -> None:
    """What is done in order to be waited for again."""


def _unasked(call: Callable[[], object]) -> object:
    raise AssertionError("nobody has asked for anything yet")


class MemorySecrets:
    """Secrets in a dict of this process."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def put_if_absent(self, key: str, value: str) -> bool:
        if key in self._values:
            return False
        self._values[key] = value
        return True

    def put(self, key: str, value: str) -> None:
        self._values[key] = value

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def keys(self, prefix: str) -> tuple[str, ...]:
        return tuple(key for key in self._values if key.startswith(prefix))

    def drop(self, prefix: str) -> None:
        for key in self.keys(prefix):
            del self._values[key]


class MemoryBlobs:
    """Contents in a dict of this process."""

    def __init__(self) -> None:
        self._trees: dict[str, dict[str, bytes]] = {}

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        self.put_nowait(root_run_id, digest, content)

    def put_nowait(self, root_run_id: str, digest: str, content: bytes) -> None:
        """``put``, for whom nothing is to be waited for."""
        self._trees.setdefault(root_run_id, {}).setdefault(digest, content)

    async def get(self, root_run_id: str, digest: str) -> bytes | None:
        return self._trees.get(root_run_id, {}).get(digest)

    def size_of(self, root_run_id: str, digest: str) -> int | None:
        """The size of a content; ``None`` where it is not kept."""
        content = self._trees.get(root_run_id, {}).get(digest)
        return None if content is None else len(content)

    def drop(self, root_run_id: str) -> None:
        self._trees.pop(root_run_id, None)


OWN_THREADS: Final = 8
"""Threads for the library's own work, none of which waits for anybody."""


class Ports:
    """The ports one hub and its runtime share; leave out what should be the machine's own.

    With a ``clock`` of your own nobody watches who holds the event loop, or holds up those who
    leave, unless you give a ``watch``: its seconds may not be the machine's.  ``threads``: how many
    plain functions, tools first of all, are at work at once in threads of their own
    (``ThreadOffload``).  ``own_offload`` does what the library does itself, where that is not
    ``offload`` as well.
    """

    __slots__ = (
        "_given", "_threads", "blobs", "clock", "ids", "is_watched", "make_worker", "offload",
        "own_offload", "secrets", "watch",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        offload: Offload | None = None,
        secrets: Secrets | None = None,
        blobs: Blobs | None = None,
        make_worker: Callable[[], Worker] = ThreadWorker,
        watch: LoopWatch | None = None,
        threads: int = THREADS,
        own_offload: Offload | None = None,
    ) -> None:
        if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
            raise BadValue("threads", f"expected a number of at least 1, not {shown(threads)}")
        given = {
            "clock": clock, "ids": ids, "offload": offload, "secrets": secrets, "blobs": blobs,
            "watch": watch, "own_offload": own_offload,
        }  # fmt: skip
        for name, port in given.items():
            if isinstance(port, type):
                raise BadValue(name, f"expected a port, not {kind_of(port)}")
        self._given = secrets, blobs
        self.watch: LoopWatch = watch or (ThreadWatch() if clock is None else NoWatch())
        self.is_watched = not isinstance(self.watch, NoWatch)
        """Whether it is said what takes long; else no timer and no task stands beside a wait."""
        self.make_worker = make_worker
        self.clock: Clock = clock or SystemClock()
        self.ids: IdSource = ids or SystemIds()
        self._threads: tuple[ThreadOffload, ...] = ()
        own = own_offload or offload
        if offload is None or own is None:
            self._threads = ThreadOffload(threads), ThreadOffload(OWN_THREADS)
            offload, own = offload or self._threads[0], own or self._threads[1]
        self.offload: Offload = offload
        self.own_offload: Offload = own
        """For what the library does itself, which waits for no function of a user's."""
        self.secrets: Secrets = secrets or MemorySecrets()
        self.blobs: Blobs = blobs or MemoryBlobs()

    def of_store(self, store: Keeper | None) -> "Ports":
        """These ports, with the secrets and the contents of files that a store keeps itself.

        What was given at construction is kept.
        """
        if store is None or (store.secrets is None and store.blobs is None):
            return self
        secrets, blobs = self._given
        ports = Ports(
            self.clock,
            self.ids,
            self.offload,
            secrets or store.secrets or self.secrets,
            blobs or store.blobs or self.blobs,
            self.make_worker,
            self.watch,
        )
        ports._threads, ports.own_offload = self._threads, self.own_offload
        return ports

    def dismiss_threads(self) -> None:
        """Let the threads end in which functions ran, but for those of an ``Offload`` that was
        given; a hub that is closed does so.  Hubs that share the ports go on with new ones."""
        for each in self._threads:
            each.dismiss()
