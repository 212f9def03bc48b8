"""One of several processes at work on a store in PostgreSQL, which things are done to.

    python tests/torture/member.py FOLDER NAME --store postgresql://… --role channel --seed 3

A worker drives runs until it is ended; in order by SIGTERM.  A channel carries what ``Users`` say,
and listens to everything from where another one has come to, until there is a file ``stop`` in
FOLDER; then it waits until all is done that was begun, and says ``quiet``.  What each is told is
so, it says at the end of ``said-NAME``, line by line, after the awaiting of it has returned and not
before.
"""

import argparse
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.postgres_faults import INJECTED, Moment, faulty_connection, inject
from support.postgres_formats import NEXT, version

from hubbub import Runtime
from hubbub.hub.events import SessionPrompt
from hubbub.hub.ports import Ports, SystemClock
from hubbub.runtime.schedules.schedules import Cron
from hubbub.runtime.stores.postgres import store as store_module
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore
from torture.heard import Heard
from torture.users import Users
from torture.workload import SCHEDULED, TICKED, Effects, agents

__all__ = ["main"]

SILENCE = 1.5
"""Seconds after which a silent server is taken to be gone."""


class LateClock(SystemClock):
    """A clock that nobody has set right."""

    def __init__(self, seconds: float) -> None:
        self._late = int(seconds * 1_000_000)

    def now(self) -> int:
        return super().now() - self._late


class Member:
    """The process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        folder: Path = options.folder
        self._said = os.open(
            folder / f"said-{options.name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT
        )
        self._effects = Effects(folder / "effects.log", flushes=False)
        self._stop = folder / "stop"

    def tell(self, *words: object) -> None:
        """One line, whole or not at all."""
        os.write(self._said, (" ".join(map(str, words)) + "\n").encode())

    def store(self) -> PostgresStore:
        options = self.options
        is_worker = options.role == "worker"
        # What a network has dropped is found out sooner than by people's settings.
        (PostgresConnection.__init__.__kwdefaults__ or {})["silence"] = SILENCE
        if options.inject:
            kind = faulty_connection(
                _injecting(random.Random(options.seed), options.inject), silence=SILENCE
            )
            store_module.PostgresConnection = kind  # type: ignore[misc]
        ports = Ports(clock=LateClock(options.late)) if options.late else None
        return PostgresStore(
            options.store, ports=ports, is_worker=is_worker, name=options.name, ttl=options.ttl
        )

    # ── a worker ─────────────────────────────────────────────────────────────────────────────

    async def work(self) -> None:
        ticks = Cron("tick", "* * * * * *", SCHEDULED, f"safe#{TICKED}", misfire="latest")
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async with Runtime(
                agents(self._effects, self.tell), store=self.store(), role="worker",
                schedules=(ticks,) if self.options.ticks else (),
            ) as runtime:  # fmt: skip
                self.tell("open")
                async with anyio.create_task_group() as group:
                    group.start_soon(self._until_failed, runtime)
                    async for _ in signals:
                        break
                    group.cancel_scope.cancel()
        self.tell("left")

    async def _until_failed(self, runtime: Runtime) -> None:
        while not runtime.hub.journal.failure:  # noqa: ASYNC110
            await anyio.sleep(0.1)
        self.tell("failed", runtime.hub.journal.failure)

    # ── a channel ────────────────────────────────────────────────────────────────────────────

    async def carry(self) -> None:
        heard = Heard(self.options.folder / "heard")
        async with (
            Runtime(store=self.store(), role="channel") as runtime,
            anyio.create_task_group() as group,
        ):
            users = Users(runtime, self.tell, seed=self.options.seed, life=self.options.life)
            group.start_soon(self._listen, runtime, heard, users)
            self.tell("open")
            async with anyio.create_task_group() as talkers:
                talkers.start_soon(self._until_failed, runtime)
                talkers.start_soon(users.talk)
                await users.answer_open()
                while not self._stop.exists():  # noqa: ASYNC110
                    await anyio.sleep(0.05)
                talkers.cancel_scope.cancel()
            await users.rest()
            await self._hear_out(runtime, heard)
            self.tell("quiet")
            group.cancel_scope.cancel()

    async def _listen(self, runtime: Runtime, heard: Heard, users: Users) -> None:
        """Hear everything, from where the channel before this one had come."""
        async with (
            runtime.hub.subscribe("*", after=heard.cursor, lossless=True) as events,
            anyio.create_task_group() as group,
        ):
            async for event in events:
                if event.lane:
                    heard.note(event, runtime.hub.cursor(event))
                if isinstance(event, SessionPrompt):
                    group.start_soon(users.answer, *users.answer_to(event))

    async def _hear_out(self, runtime: Runtime, heard: Heard) -> None:
        """Return when what is to be heard was heard."""
        while await runtime.hub.read(after=heard.cursor, limit=1):  # noqa: ASYNC110
            await anyio.sleep(0.05)


def _injecting(draw: random.Random, share: float) -> Callable[[Moment, PostgresConnection], None]:
    """Have so many groups fail with what passes, each at some moment."""
    codes = [*INJECTED]

    def happen(moment: Moment, db: PostgresConnection) -> None:
        if moment != "after" and draw.random() < share / 3:
            inject(draw.choice(codes))

    return happen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--store", required=True)
    parser.add_argument("--role", choices=("worker", "channel"), default="worker")
    parser.add_argument("--loop", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--ttl", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--life", type=int, default=0, help="which process of the story it is")
    parser.add_argument("--next", action="store_true", help="be a program of the next version")
    parser.add_argument("--ticks", action="store_true", help="fire the schedule")
    parser.add_argument("--inject", type=float, default=0.0, help="share of groups that fail")
    parser.add_argument("--late", type=float, default=0.0, help="seconds its clock is late")
    options = parser.parse_args()
    member = Member(options)
    do = member.work if options.role == "worker" else member.carry
    with version(*NEXT) if options.next else nullcontext():
        anyio.run(do, backend=options.loop)


if __name__ == "__main__":
    main()
