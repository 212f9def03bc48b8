"""Processes that die of what runs do, on one store; runs that kill them, and runs that wait."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hubbub import AgentDefinition, RunContext, RunState, Runtime, agent, tool
from hubbub.agents.model import ModelReply, ModelRequest
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call
from support.agents import model_agent
from support.crash_journal import CrashJournal
from support.families import Recorder, child, config, parent

__all__ = ["KILLERS", "WAITERS", "WORKERS", "Lives"]

LONG = 10_000.0


class Lives:
    """One process after the other on a store, each until it is killed or left."""

    def __init__(self, journal: Journal, ports: Ports) -> None:
        self.journal = journal
        self.ports = ports
        self.deaths = 0
        self._store = CrashJournal(journal)
        self.died = anyio.Event()

    def kill(self) -> None:
        """The process is dead: nothing that it still writes is kept."""
        if not self.died.is_set():
            self.deaths += 1
            self._store._after = self._store.commits
            self.died.set()

    async def die(self, seconds: float = 0.0) -> None:
        """Kill the process after a while, and never come back."""
        await anyio.sleep(seconds)
        self.kill()
        await anyio.sleep_forever()

    @asynccontextmanager
    async def life(self, *agents: AgentDefinition, **options: Any) -> AsyncIterator[Runtime]:
        """One process; left in order where it has not been killed."""
        self._store, self.died = CrashJournal(self.journal), anyio.Event()
        store: Any = self._store
        async with Runtime(agents, store=store, ports=self.ports, grace=0, **options) as rt:
            yield rt

    async def live(self, *agents: AgentDefinition, seconds: float = LONG, **options: Any) -> bool:
        """One process, for so long; whether it died of something meanwhile."""
        async with self.life(*agents, **options):
            with anyio.move_on_after(seconds):
                await self.died.wait()
            return self.died.is_set()

    async def lane(self, run_id: str) -> list[Event]:
        loaded = await self.journal.load(run_id)
        assert loaded is not None
        return list(loaded.events)

    async def failure(self, run_id: str) -> e.AgentFailed | None:
        """What a run has failed of, if it has."""
        failed = [x for x in await self.lane(run_id) if isinstance(x, e.AgentFailed)]
        return failed[0] if failed else None

    async def restores(self, run_id: str) -> list[e.AgentRestore]:
        return [x for x in await self.lane(run_id) if isinstance(x, e.AgentRestore)]


# ── runs that kill their process ─────────────────────────────────────────────────────────────


def _killing_model(name: str, lives: Lives, seconds: float) -> list[AgentDefinition]:
    class Killing:
        name = "killing"

        async def call(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
            await lives.die(seconds)
            raise AssertionError

    return [model_agent(Killing(), name=name)]


def _killing_tool(name: str, lives: Lives, seconds: float) -> list[AgentDefinition]:
    @tool(idempotent=True, timeout=None)
    async def bomb() -> None:
        await lives.die(seconds)

    return [model_agent(Recorder(call("bomb"), "alive"), bomb, name=name)]


def _killing_code(name: str, lives: Lives, seconds: float) -> list[AgentDefinition]:
    @agent(name, on_restart="resume")
    async def killer(input: Any, ctx: RunContext) -> None:
        await lives.die(seconds)

    return [killer]


def _killing_child(name: str, lives: Lives, seconds: float) -> list[AgentDefinition]:
    @tool(idempotent=True, timeout=None)
    async def bomb() -> None:
        await lives.die(seconds)

    boss = parent(Recorder(call(f"{name}-child", message="x"), "I see."), config(f"{name}-child"),
                  name=name)  # fmt: skip
    return [boss, child(Recorder(call("bomb")), bomb, name=f"{name}-child")]


Killer = Callable[[str, Lives, float], list[AgentDefinition]]
KILLERS: dict[str, Killer] = {
    "model": _killing_model, "tool": _killing_tool, "code": _killing_code, "child": _killing_child,
}  # fmt: skip


# ── runs that wait ───────────────────────────────────────────────────────────────────────────


@agent("asks", on_restart="resume")
async def _asks(input: Any, ctx: RunContext) -> str:
    return await ctx.ask("Well?")


@agent("asks_through_its_hub", on_restart="resume")
async def _asks_hub(input: Any, ctx: RunContext) -> str:
    return str(await ctx.hub.ask("user", "Well?", timeout=LONG * 100))


@agent("reads", on_restart="resume")
async def _reads(input: Any, ctx: RunContext) -> None:
    async for _ in ctx.messages():
        pass


@agent("reads_for_a_while", on_restart="resume")
async def _reads_timed(input: Any, ctx: RunContext) -> None:
    async for _ in ctx.messages(idle_timeout=LONG * 100):
        pass


@agent("listens", on_restart="resume")
async def _listens(input: Any, ctx: RunContext) -> None:
    async with ctx.hub.subscribe("agent:text") as events:
        async for _ in events:
            pass


@agent("waits_for_a_child", on_restart="resume")
async def _awaits(input: Any, ctx: RunContext) -> None:
    await ctx.spawn("asks").result()


@tool(idempotent=True, timeout=None)
async def confirm(state: RunState) -> str:
    return str(await state.hub.ask("user", "Sure?"))


@tool(idempotent=True, timeout=None)
async def hire(state: RunState) -> str:
    child = state.kv.get("child")
    if child is None:
        child = state.spawn("asks").run_id
        await state.kv.set("child", child)
    return str((await state.hub.ask(child, "Done?")).content)


def _paused() -> AgentDefinition:
    definition = model_agent(Recorder(call("interrupt", prompt="Well?"), "ok"), name="pauses")
    return AgentDefinition(name="pauses", supports_checkpointing=True, side_a=definition.side_a)


WAITERS: dict[str, Callable[[], list[AgentDefinition]]] = {
    "asks": lambda: [_asks],
    "asks_through_its_hub": lambda: [_asks_hub],
    "reads": lambda: [_reads],
    "reads_for_a_while": lambda: [_reads_timed],
    "listens": lambda: [_listens],
    "waits_for_a_child": lambda: [_awaits, _asks],
    "its_tool_asks": lambda: [
        model_agent(Recorder(call("confirm"), "ok"), confirm, name="its_tool_asks")
    ],
    "its_tool_waits_for_a_child": lambda: [
        model_agent(Recorder(call("hire"), "ok"), hire, name="its_tool_waits_for_a_child"), _asks
    ],
    "pauses": lambda: [_paused()],
    "waits_to_try_again": lambda: [
        model_agent(
            ScriptedModel([Fault("rate_limit", None, retry_after=100.0), "ok"], repeat=True),
            name="waits_to_try_again",
        )
    ],
}  # fmt: skip
"""What each does is in its name; each keeps at it for longer than any test takes."""


# ── runs that are at work ────────────────────────────────────────────────────────────────────


@tool(idempotent=True, timeout=None)
async def dig() -> str:
    await anyio.sleep(LONG * 100)
    return "gold"


@agent("sleeps", on_restart="resume")
async def _sleeps(input: Any, ctx: RunContext) -> None:
    await anyio.sleep(LONG * 100)


WORKERS: dict[str, Callable[[], list[AgentDefinition]]] = {
    "thinks": lambda: [
        model_agent(FunctionModel(lambda _: "so", latency=LONG * 100), name="thinks")
    ],
    "digs": lambda: [model_agent(Recorder(call("dig"), "ok"), dig, name="digs")],
    "sleeps": lambda: [_sleeps],
}
"""At work, for as long, and harmless."""
