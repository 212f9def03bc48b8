"""Workers are killed, cut off and left at seeded moments: nothing is lost or done twice."""

from random import Random

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.profiles import portion
from support.shared_history import Audited, check_history
from support.workers import workers

from hubbub import Message, agent, tool
from hubbub.agents.model import UserMessage
from hubbub.hub.store.shared.memory import SharedMemory
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.simulation.loop.seeded import run_seeded

SEEDS = range(12)
TTL = 3.0


class Nemesis:
    """What goes wrong, when, and what users do meanwhile, drawn from a seed."""

    def __init__(self, seed, *, cuts=True, differ=False, memory=Audited):
        self.random = Random(seed)
        self.cuts = cuts
        self.differ = differ
        """Whether workers that begin know only some agents, or have little room."""
        self.memory = memory
        self.sent = set()
        self.effects = []

    def agents(self):
        @tool
        async def work(job: str) -> str:
            """Do a job, once."""
            self.effects.append(job)
            await anyio.sleep(0.4)
            return f"did {job}"

        def worker(request):
            last = request.messages[-1]
            if isinstance(last, UserMessage):
                return reply("", call("work", job=last.content))
            return f"it {last.calls[-1].output}"

        @agent("child", on_restart="resume")
        async def child(input, ctx):
            await anyio.sleep(0.7)
            return input

        @agent("parent", on_restart="resume")
        async def parent(input, ctx):
            async for message in ctx.messages():
                started = ctx.spawn("child", message.content)
                ctx.say(str((await started.result()).output))

        return [
            model_agent(echo_model(0.5), name="echo"),
            model_agent(FunctionModel(worker, latency=0.3), work, name="worker"),
            child, parent,
        ]  # fmt: skip

    async def live(self):
        latency = self.random.choice([0.0, 0.001, 0.05])
        async with workers(self.agents, 3, ttl=TTL, seconds=latency, memory=self.memory) as store:
            async with store.channel() as hub, anyio.create_task_group() as group:
                for number, name in enumerate(("echo", "worker", "parent", "echo")):
                    group.start_soon(self.chat, hub, name, f"chat {number}")
                await self.harm(store)
            for worker in store.all:
                worker.link.mend()
            if self.differ:
                await store.begin()
            await anyio.sleep(120)
            owners = self.owners(store)
            await anyio.sleep(30)
            assert owners == self.owners(store), "trees go on changing hands"
            for _ in range(2):
                for worker in store.all:
                    if not worker.is_over:
                        await worker.hub.journal.flush()
            await check_history(store.place, store.all, self.sent, coded=("parent",))

    def owners(self, store):
        return {info: store.place.memory.owner_of(info) for info in store.place.memory._trees}

    async def one_more(self, store):
        """Somebody begins, who knows all agents or some, and has room for all trees or for few."""
        options = {}
        if self.differ:
            agents = self.agents()
            options["capacity"] = self.random.choice([None, 1, 2])
            match self.random.choice(["all", "models", "code"]):
                case "models":
                    options["agents"] = agents[:2]
                case "code":
                    options["agents"] = agents[2:]
        await store.begin(**options)

    async def chat(self, hub, name, key):
        random = Random(self.random.random())
        for number in range(8):
            text = f"{key}/{number}"
            message = Message(text, key=text)
            if number == 0:
                receipt = await hub.open(name, message, session_key=key)
            else:
                receipt = await hub.send(message, session_key=key)
            if receipt.accepted:
                self.sent.add(text)
            await anyio.sleep(random.choice([0.05, 0.5, 3.0]))

    async def harm(self, store):
        for _ in range(8):
            await anyio.sleep(self.random.choice([0.1, 0.6, 1.7, 4.0]))
            alive = [x for x in store.all if not x.is_over]
            victim = self.random.choice(alive)
            harms = ["kill", "leave", "cut" if self.cuts else "kill"]
            match self.random.choice([*harms, "late"] if self.differ else harms):
                case "late":
                    await self.one_more(store)
                case "kill":
                    await victim.die()
                    await self.one_more(store)
                case "leave":
                    await self.one_more(store)
                    victim.link.mend()
                    await victim.left()
                case "cut":
                    victim.link.cut()
                    await anyio.sleep(self.random.choice([0.3, TTL, TTL + 2]))
                    victim.link.mend()


def test_nothing_is_lost_or_doubled_whoever_is_killed_cut_off_or_left():
    for seed in portion(SEEDS):
        nemesis = Nemesis(seed)
        run_seeded(nemesis.live, seed)
        assert len(nemesis.sent) == 32, seed


def test_nothing_is_lost_or_doubled_where_workers_differ_in_what_they_know_and_have_room_for():
    for seed in portion(SEEDS):
        nemesis = Nemesis(seed, differ=True)
        run_seeded(nemesis.live, seed)
        assert len(nemesis.sent) == 32, seed


def test_nothing_has_its_effect_twice_where_workers_are_only_killed_or_left():
    for seed in portion(SEEDS):
        nemesis = Nemesis(seed, cuts=False)
        run_seeded(nemesis.live, seed)
        assert len(nemesis.effects) == len(set(nemesis.effects)), seed


# ── what the check would see ─────────────────────────────────────────────────────────────────


class Sloppy(SharedMemory):
    """A claim begins no epoch of its own."""

    def _claim(self, lease):
        super()._claim(lease)
        for tree in lease.trees.values():
            tree.epoch = 1


class Lossy(SharedMemory):
    """Nobody takes over the trees of the dead."""

    def _set_free(self, tree):
        tree.owner = 0


def _is_wrong(seed, memory):
    nemesis = Nemesis(seed, memory=type(memory.__name__, (Audited, memory), {}))
    try:
        run_seeded(nemesis.live, seed)
    except (AssertionError, ExceptionGroup):
        return True
    return False


@pytest.mark.parametrize("memory", [Sloppy, Lossy])
def test_check_sees_a_store_that_is_wrong(memory):
    assert any(_is_wrong(seed, memory) for seed in SEEDS)
