"""One live agent of each user, cron task and heartbeat, against a plain dict (P-05, P-06, P-13).

Openings by key and by descriptor, messages, terminations and restarts, several at once, as chance
has it; on every store and both loops.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.restarts import Lives

from attacks.scale import scale
from hubbub import Runtime
from hubbub.hub.errors import NoAgentFound
from hubbub.hub.events import SessionMessage, SessionOpen
from hubbub.hub.events.descriptors import (
    CronDescriptor,
    Descriptor,
    HeartbeatDescriptor,
    UserDescriptor,
    descriptor_of_key,
    encode_descriptor,
    key_of_descriptor,
)
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.values import decode_value

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-05", "P-06", "P-13", "P-17")]

FOREGROUND = "most-recent-foreground"
PARTS = ("a", "a_b", "_", "%", "%5F", "local", "1")
KEYS = (
    "a_a_a", "daily", "local_daily_local", "a%5Fb_%25_1", "a_b_a", "a__b", "%5F_a_%5F",
    "schedule:job", "schedule:heartbeat",
)  # fmt: skip

Action: TypeAlias = tuple[Receipt, Callable[[], None]]
"""A call, and what the plain agents make of it."""

Life: TypeAlias = Callable[[], Any]


class Agents:
    """What there must be: one live run an identity, and what each was told."""

    def __init__(self) -> None:
        self.live: dict[Descriptor, str] = {}
        self.told: dict[str, list[str]] = {}
        self.recent: list[str] = []
        """Runs of users, whom somebody spoke to last at the end."""

    def opened(self, who: Descriptor, run_id: str, text: str) -> None:
        """An opening was accepted: for the live run, or a new one."""
        if who in self.live:
            assert run_id == self.live[who], f"a second agent of {who}"
        else:
            assert run_id not in self.told, f"{run_id} is somebody else's, not {who}"
            self.live[who] = run_id
        self.say(who, text)

    def say(self, who: Descriptor, text: str) -> None:
        run_id = self.live[who]
        self.told.setdefault(run_id, []).append(text)
        if isinstance(who, UserDescriptor) or run_id in self.recent:
            self.recent = [*(x for x in self.recent if x != run_id), run_id]

    def closed(self, who: Descriptor) -> None:
        self.recent = [x for x in self.recent if x != self.live[who]]
        del self.live[who]


class Attack:
    """Does what chance says, and the same with the plain agents."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.agents = Agents()
        self.programs: list[str] = []
        self.number = 0

    def whom(self) -> Descriptor:
        match self.chance.randrange(8):
            case 0:
                return CronDescriptor(id=self.chance.choice(("job", "a_b", "heartbeat")))
            case 1:
                return HeartbeatDescriptor()
            case 2 | 3:
                connector, channel, user = self.chance.choices(PARTS, k=3)
                return UserDescriptor(connector=connector, channel_id=channel, user_id=user)
            case _:
                return descriptor_of_key(self.chance.choice(KEYS))

    def act(self, rt: Runtime) -> Action:
        """One call; what it comes to follows from the order of the calls."""
        self.number += 1
        text = f"m{self.number}"
        match self.chance.randrange(10):
            case 0 if self.agents.live:
                return self._end(rt)
            case 1:
                return self._send(rt, text)
            case 2:
                receipt = rt.hub.open("assistant", text)
                return receipt, lambda: self.programs.append(receipt.run_id)
            case _:
                return self._open(rt, text)

    def _open(self, rt: Runtime, text: str) -> Action:
        who = self.whom()
        how: dict[str, Any] = {"descriptor": who}
        if isinstance(who, UserDescriptor) and self.chance.random() < 0.5:
            keys = [key for key in (*KEYS, key_of_descriptor(who)) if descriptor_of_key(key) == who]
            how = {"session_key": self.chance.choice(keys)}
        elif self.chance.random() < 0.5:
            how = {"descriptor": decode_value(encode_descriptor(who))}
        receipt = rt.hub.open("assistant", text, **how)

        def then() -> None:
            assert receipt.status == "accepted"
            self.agents.opened(who, receipt.run_id, text)

        return receipt, then

    def _send(self, rt: Runtime, text: str) -> Action:
        key = self.chance.choice(KEYS)
        who = descriptor_of_key(key)
        receipt = rt.hub.send(text, session_key=key)

        def then() -> None:
            if who in self.agents.live:
                assert (receipt.status, receipt.run_ids) == ("accepted", (self.agents.live[who],))
                self.agents.say(who, text)
            else:
                assert (receipt.status, receipt.reason) == ("rejected", "unknown")

        return receipt, then

    def _end(self, rt: Runtime) -> Action:
        who = self.chance.choice(list(self.agents.live))
        run_id = self.agents.live[who]
        end = self.chance.choice((rt.hub.terminate, rt.hub.close_run))

        def then() -> None:
            if self.agents.live.get(who) == run_id:
                self.agents.closed(who)

        return end(run_id), then

    async def live(self, rt: Runtime) -> None:
        """One life of a runtime."""
        for _ in range(self.chance.randrange(1, 5)):
            deeds = [self.act(rt) for _ in range(self.chance.randrange(1, 7))]
            for receipt, _then in deeds:
                await receipt
            for _receipt, then in deeds:
                then()
            await anyio.sleep(1)
            await self.check(rt)

    async def check(self, rt: Runtime) -> None:
        journal = rt.hub.journal
        agents = self.agents
        for who, run_id in agents.live.items():
            text = bytes(encode_descriptor(who)).decode()
            assert list(await journal.find(text, "descriptor")) == [run_id]
            if isinstance(who, UserDescriptor):
                assert list(await journal.find(key_of_descriptor(who), "key")) == [run_id]
            info = await journal.info(run_id)
            assert info is not None and info.descriptor == who and info.inbox == "open"
        standing = [x.run_id for x in await journal.runs() if x.descriptor and x.inbox == "open"]
        assert sorted(standing) == sorted(agents.live.values())
        for run_id, told in agents.told.items():
            heard = [
                x.input if isinstance(x, SessionOpen) else x.content
                for x in await rt.hub.read(run_id)
                if isinstance(x, SessionOpen | SessionMessage)
            ]
            assert heard == told, "each once, and in order"
        for run_id in self.programs:
            info = await journal.info(run_id)
            assert info is not None and info.descriptor is None and info.session_key == ""
        if agents.recent:
            assert await rt.agent_for(FOREGROUND) == agents.recent[-1]
        else:
            with pytest.raises(NoAgentFound):
                await rt.agent_for(FOREGROUND)


@pytest.fixture(params=["memory", "late", "sqlite left", "sqlite killed"])
def life(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Callable[[int], Life]:
    """Of a number: what makes one life after another on a store of that number's own."""

    def store_of(number: int) -> Life:
        bot = model_agent(echo_model(0))
        if request.param.startswith("sqlite"):
            place = tmp_path / str(number)
            place.mkdir()
            lives = Lives(place, ports, is_killed=request.param.endswith("killed"))
            return lambda: lives.life(bot)
        journal: Journal = MemoryJournal()
        if request.param == "late":
            journal = LateJournal(journal, turns=2)

        @asynccontextmanager
        async def one() -> AsyncIterator[Runtime]:
            async with Runtime([bot], store=journal, ports=ports, grace=0) as rt:
                yield rt

        return one

    return store_of


async def test_there_is_one_live_agent_of_each_identity_whatever_comes(
    life: Callable[[int], Life],
) -> None:
    for seed in range(scale(5, 100)):
        attack, begin = Attack(seed), life(seed)
        for _ in range(attack.chance.randrange(2, 5)):
            async with begin() as rt:
                await attack.check(rt)
                await attack.live(rt)
