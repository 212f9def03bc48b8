"""Several faults within seconds, of all kinds, drawn by seed: when the last one is over everybody
goes on soon, and what was acknowledged is there once."""

import random
from collections import Counter
from contextlib import ExitStack
from threading import Event
from typing import Any, Final

import anyio
import pytest
from support.postgres import Server
from support.postgres_faults import Moment, faulty_connection
from support.postgres_proxy import Proxy, running_proxy
from support.profiles import portion

from hubbub.hub.conformance import commit_of, read_all
from hubbub.hub.events import CustomEvent
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.postgres import store as store_module
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.long

TTL: Final = 1.5
SILENCE: Final = 1.0
SOON: Final = TTL + 10.0
"""Seconds: a lease, two handshakes that hear nothing, and what a busy machine needs."""

FAULTS: Final = (
    "cut", "half open", "silent", "refused", "held", "swallowed", "slow",
    "stands still", "ended", "lease ended", "restarted", "frozen",
)  # fmt: skip


class Member:
    """A process: its store, and the way to the server."""

    def __init__(self, server: Server, schema: str, proxy: Proxy) -> None:
        self.proxy = proxy
        self.store = PostgresStore(server.dsn_at(proxy.port, schema=schema), ttl=TTL)
        self.said = 0
        self.acknowledged: list[int] = []

    async def talk(self) -> None:
        while True:
            self.said += 1
            commit = Commit(events=(CustomEvent.of("test:said", n=self.said, by=id(self)),))
            done = await commit_of(self.store, commit)
            assert not done.error, done.error
            self.acknowledged.append(self.said)
            await anyio.sleep(0.01)


class World:
    """Some members, and what happens to them."""

    def __init__(self, server: Server, seed: int, ends: ExitStack) -> None:
        self.server, self.draw = server, random.Random(seed)
        self.schema = server.new_schema()
        self.happened: list[str] = []
        self._goes_on, self._is_to_stand = Event(), False
        patch = ends.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(
            store_module, "PostgresConnection", faulty_connection(self._happen, silence=SILENCE)
        )
        self.members = [
            Member(server, self.schema, ends.enter_context(running_proxy(server.port)))
            for _ in range(3)
        ]

    def _happen(self, moment: Moment, db: PostgresConnection) -> None:
        if self._is_to_stand and moment == "between":
            self._is_to_stand = False
            self._goes_on.wait(30)

    async def strike(self) -> None:
        """Three or four faults, one soon after the other, each for a while."""
        async with anyio.create_task_group() as group:
            for _ in range(self.draw.randint(3, 4)):
                fault = self.draw.choice(FAULTS)
                self.happened.append(fault)
                group.start_soon(self._fault, fault, self.draw.choice(self.members))
                await anyio.sleep(self.draw.uniform(0.0, 1.0))

    async def _fault(self, fault: str, member: Member) -> None:
        proxy, schema = member.proxy, self.schema
        seconds = self.draw.uniform(0.1, TTL + 1.0)
        match fault:
            case "cut":
                proxy.cut()
            case "half open":
                proxy.half_open()
            case "silent":
                proxy.silence()
            case "swallowed":
                proxy.swallow_after_commit(self.draw.randint(1, 3))
            case "held":
                proxy.hold(self.draw.randint(1, 2))
                proxy.cut()
            case "refused":
                proxy.refuse()
                await anyio.sleep(seconds)
                proxy.heal()
            case "slow":
                proxy.delay(0.05)
                await anyio.sleep(seconds)
                proxy.heal()
            case "stands still":
                self._goes_on.clear()
                self._is_to_stand = True
                await anyio.sleep(seconds)
                self.go_on()
            case "ended":
                async with self._of_the_server:
                    self.server.end_connections(f"hubbub:{schema}:%")
            case "lease ended":
                number = self.draw.choice((1, 2, 3))
                over = f"UPDATE {schema}.worker SET live = false WHERE id = {number}"
                async with self._of_the_server:
                    self.server.query(over)
            case "restarted":
                async with self._of_the_server:
                    await anyio.to_thread.run_sync(self.server.restart)
            case _:
                async with self._of_the_server:
                    self.server.freeze()
                    await anyio.sleep(min(seconds, 1.0))
                    self.server.freeze(is_frozen=False)

    def go_on(self) -> None:
        """Nobody stands still any more."""
        self._is_to_stand = False
        self._goes_on.set()

    async def live(self) -> None:
        self._of_the_server = anyio.Lock()
        for member in self.members:
            await member.store.open()
        try:
            async with anyio.create_task_group() as talking:
                for member in self.members:
                    talking.start_soon(member.talk)
                await self.strike()
                before = [len(member.acknowledged) for member in self.members]
                with anyio.move_on_after(SOON):
                    while not all(self._progress(before)):  # noqa: ASYNC110
                        await anyio.sleep(0.05)
                assert all(self._progress(before)), (self.happened, self._progress(before))
                talking.cancel_scope.cancel()
            await self._check()
        finally:
            self.go_on()
            for member in reversed(self.members):
                member.proxy.heal()
                await member.store.aclose()

    def _progress(self, before: list[int]) -> list[bool]:
        pairs = zip(self.members, before, strict=True)
        return [len(member.acknowledged) > count + 1 for member, count in pairs]

    async def _check(self) -> None:
        store = self.members[0].store
        await store.flush()
        events: list[Any] = await read_all(store)
        found = Counter((x.data["by"], x.data["n"]) for x in events if isinstance(x, CustomEvent))
        assert not [x for x, count in found.items() if count > 1], self.happened
        for member in self.members:
            lost = [n for n in member.acknowledged if not found[id(member), n]]
            assert not lost, (self.happened, lost)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_after_several_faults_everybody_goes_on_soon(server: Server, loop: str) -> None:
    for seed in portion(range(10)):
        with ExitStack() as ends:
            world = World(server, seed + 1000 * (loop == "trio"), ends)
            anyio.run(world.live, backend=loop)
