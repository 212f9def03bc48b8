"""One of several processes at work on a store in PostgreSQL, which things are done to.

    python tests/torture/member.py FOLDER NAME --store postgresql://… --role channel --seed 3

A worker drives runs until it is ended; in order by SIGTERM.  A channel converses, answers prompts
and listens to everything, until there is a file ``stop`` in FOLDER; then it waits until all is done
that was begun, and says ``quiet``.  What each is told is so, it says at the end of ``said-NAME``,
line by line, after the awaiting of it has returned and not before.
"""

import argparse
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.postgres_faults import INJECTED, Moment, faulty_connection, inject

from hubbub import Event, Message, Runtime
from hubbub.hub.events import SessionPrompt
from hubbub.hub.ports import Ports, SystemClock
from hubbub.runtime.schedules.schedules import Cron
from hubbub.runtime.stores.postgres import store as store_module
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore
from torture.workload import APPROVED, ORDERS, SCHEDULED, TICKED, Effects, agents

__all__ = ["main"]

APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
CONVERSATIONS = 20
ORDERED = (*ORDERS, "risky", APPROVED)
SILENCE = 1.5
"""Seconds after which a silent server is taken to be gone."""
PAUSE = 0.4
"""Seconds between two messages of a conversation, at most."""


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
                agents(self._effects, lambda *_: None), store=self.store(), role="worker",
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
        heard = os.open(self.options.folder / f"heard-{self.options.name}", APPENDING)

        def hear(event: Event) -> None:
            if event.lane:
                os.write(heard, f"{event.run_id or '-'} {event.lane} {event.seq}\n".encode())
            if isinstance(event, SessionPrompt) and event.kind == "approval":
                group.start_soon(self._approve, runtime, event.prompt_id)

        async with (
            Runtime(store=self.store(), role="channel") as runtime,
            anyio.create_task_group() as group,
        ):
            runtime.hub.subscribe("*", hear)
            self.tell("open")
            async with anyio.create_task_group() as talkers:
                talkers.start_soon(self._until_failed, runtime)
                for number in range(CONVERSATIONS):
                    draw = random.Random(self.options.seed * 1000 + number)
                    talkers.start_soon(self._converse, runtime, number, draw)
                while not self._stop.exists():  # noqa: ASYNC110
                    await anyio.sleep(0.05)
                talkers.cancel_scope.cancel()
            await _until_quiet(runtime)
            self.tell("quiet")
            group.cancel_scope.cancel()

    async def _approve(self, runtime: Runtime, prompt_id: str) -> None:
        receipt = await runtime.hub.approve(prompt_id)
        self.tell("approved", prompt_id, receipt.status)

    async def _converse(self, runtime: Runtime, user: int, draw: random.Random) -> None:
        """One user: orders, each with a key, some of them sent again."""
        number, life = 0, 0
        while True:
            life += 1
            opened = await runtime.hub.open("lead", session_key=f"user{user}x{life}")
            if not opened.accepted:
                self.tell("refused", opened.reason)
                return
            self.tell("opened", opened.run_id)
            for _ in range(draw.randint(5, 20)):
                number += 1
                name = f"u{user}m{number}"
                whats = draw.sample(ORDERED, draw.randint(1, 2))
                orders = " ".join(f"{what}#{name}o{at}" for at, what in enumerate(whats))
                await self._send(runtime, opened.run_id, Message(orders, key=name), draw)
                if draw.random() < 0.5:
                    with anyio.move_on_after(20):
                        await runtime.result(opened.run_id)
                await anyio.sleep(draw.random() * PAUSE)

    async def _send(
        self, runtime: Runtime, run_id: str, message: Message, draw: random.Random
    ) -> None:
        start = perf_counter()
        receipt = await runtime.hub.send_to_run(run_id, message)
        if not receipt.accepted:
            self.tell("refused", run_id, receipt.reason)
            return
        self.tell("accepted", run_id, message.key, round(1000 * (perf_counter() - start), 2))
        if draw.random() < 0.2:
            again = await runtime.hub.send_to_run(run_id, message)
            self.tell("again", run_id, message.key, again.status)


async def _until_quiet(runtime: Runtime) -> None:
    journal = runtime.hub.journal
    while True:
        await journal.flush()
        infos = await journal.runs()
        if all(x.status == "ended" or (x.status == "parked" and not x.waiting) for x in infos):
            return
        await anyio.sleep(0.1)


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
    parser.add_argument("--ticks", action="store_true", help="fire the schedule")
    parser.add_argument("--inject", type=float, default=0.0, help="share of groups that fail")
    parser.add_argument("--late", type=float, default=0.0, help="seconds its clock is late")
    options = parser.parse_args()
    member = Member(options)
    do = member.work if options.role == "worker" else member.carry
    anyio.run(do, backend=options.loop)


if __name__ == "__main__":
    main()
