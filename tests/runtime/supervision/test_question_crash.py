"""Killed after any commit between question, answer and what follows (U-05, U-03 below a root).

Tools that may be called again and code that is executed again ask on with the same prompts, and no
acknowledged answer is lost; what a user says to a conversation denies what runs below it ask, once.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.crash_journal import CrashJournal
from support.families import Recorder, child, config, parent
from support.profiles import portion

from hubbub import AgentDefinition, Hub, Message, RunContext, RunState, Runtime, agent, tool
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

ROOT = "root-1"
Answer = Callable[[Hub, e.SessionPrompt], Awaitable[Any]]


class Lives:
    """Lives of one store, in each of which a person answers what is open."""

    def __init__(self, kind: str, folder: Path, agents: Sequence[AgentDefinition], answer: Answer):
        self.kind = kind
        self.folder = folder
        self.agents = agents
        self.answer = answer
        self.ports: Ports = virtual_ports()
        self.acknowledged: set[str] = set()
        self._memory = MemoryJournal()

    def journal(self) -> Journal:
        if self.kind == "sqlite":
            return sqlite_store(self.folder, ports=self.ports, mirror=False)
        return self._memory

    async def live(self, after: int | None = None) -> bool:
        """One process, until its root is done, or it is dead.  Was it done?"""
        over = False
        crashing = CrashJournal(self.journal(), after)
        store: Any = LateJournal(crashing) if self.kind == "late" else crashing
        async with Runtime(self.agents, store=store, ports=self.ports, grace=0) as rt:
            async with anyio.create_task_group() as group:

                async def go() -> None:
                    nonlocal over
                    rt.hub.subscribe("session:prompt", lambda x: group.start_soon(self._see, rt, x))
                    for prompt in await self.open(rt.hub):
                        group.start_soon(self._see, rt, prompt)
                    await rt.hub.open("main", Message("Go.", key="m"), run_id=ROOT, source="web")
                    await rt.result(ROOT)
                    over = True
                    group.cancel_scope.cancel()

                group.start_soon(go)
                with anyio.fail_after(10_000):
                    await crashing.crashed.wait()
                group.cancel_scope.cancel()
            self.commits = crashing.commits
        return over

    async def open(self, hub: Hub) -> list[e.SessionPrompt]:
        """The prompts that are open, as the journal has them."""
        found: dict[str, e.SessionPrompt] = {}
        for event in await hub.read(types=["session:prompt", "session:prompt:end"]):
            if isinstance(event, e.SessionPrompt):
                found[event.prompt_id] = event
            elif isinstance(event, e.SessionPromptEnd):
                found.pop(event.prompt_id, None)
        return list(found.values())

    async def _see(self, rt: Runtime, prompt: e.SessionPrompt) -> None:
        await anyio.sleep(3)
        if prompt.prompt_id not in self.acknowledged:
            await self.answer(rt.hub, prompt)
            self.acknowledged.add(prompt.prompt_id)

    async def events(self) -> list[e.Event]:
        async with Hub(journal=self.journal(), ports=self.ports) as hub:
            return await hub.read()


async def killed_everywhere(
    kind: str, folder: Path, make: Callable[[], tuple[Sequence[AgentDefinition], Answer]],
    check: Callable[[list[e.Event]], None],
) -> None:  # fmt: skip
    whole = Lives(kind, folder / "whole", *make())
    assert await whole.live()
    check(await whole.events())
    for after in portion(range(whole.commits)):
        lives = Lives(kind, folder / str(after), *make())
        try:
            if not await lives.live(after):
                assert await lives.live()
            check(await lives.events())
        except BaseException as error:
            error.add_note(f"killed after {after} of {whole.commits} commits")
            raise


def prompt_ids(events: list[e.Event]) -> list[str]:
    """The prompts that were opened, each as often as it was; none is left open."""
    opened = [x.prompt_id for x in events if isinstance(x, e.SessionPrompt)]
    ended = [x.prompt_id for x in events if isinstance(x, e.SessionPromptEnd)]
    assert sorted(ended) == sorted(opened), "each has ended once"
    return sorted(opened)


def outputs(events: list[e.Event], name: str) -> list[str]:
    return [x.output for x in events if isinstance(x, e.AgentToolComplete) and x.name == name]


@tool(idempotent=True, timeout=5)
async def plan(state: RunState) -> str:
    where = await state.ask("Where to?")
    days = await state.ask("How many days?", schema=int)
    return f"{where} {days!r}"


@pytest.mark.spec("U-05", "P-10")
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
async def test_an_idempotent_tool_is_answered_once(store: str, tmp_path: Path) -> None:
    async def answer(hub: Hub, prompt: e.SessionPrompt) -> None:
        await hub.reply(prompt.prompt_id, "Rome" if prompt.question == "Where to?" else "3")

    def make() -> tuple[Sequence[AgentDefinition], Answer]:
        return [
            model_agent(Recorder(call("plan"), "Done.", latency=1.0), plan, name="main")
        ], answer

    def check(events: list[e.Event]) -> None:
        assert prompt_ids(events) == [f"{ROOT}.ask_1_0_1", f"{ROOT}.ask_1_0_2"]
        assert outputs(events, "plan") == ["Rome 3"]

    await killed_everywhere(store, tmp_path, make, check)


@agent("main", on_restart="resume")
async def coder(input: str, ctx: RunContext) -> list[Any]:
    first = await ctx.ask("Where to?")
    await ctx.step("think", anyio.sleep, 1)
    second = await ctx.step("allowed", ctx.ask, "Sure?")
    return [first, second, await ctx.ask("How many?", schema=int)]


@pytest.mark.spec("U-05", "P-15")
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
async def test_code_is_answered_once(store: str, tmp_path: Path) -> None:
    said = {"Where to?": "Rome", "Sure?": "yes", "How many?": "3"}

    async def answer(hub: Hub, prompt: e.SessionPrompt) -> None:
        await hub.reply(prompt.prompt_id, said[prompt.question])

    def check(events: list[e.Event]) -> None:
        ids = [f"{ROOT}.ask_1", f"{ROOT}.ask_2", f"{ROOT}.ask_allowed_1_1"]
        assert prompt_ids(events) == ids
        (end,) = [x for x in events if isinstance(x, e.AgentComplete)]
        assert end.output == ["Rome", "yes", 3]

    await killed_everywhere(store, tmp_path, lambda: ([coder], answer), check)


@pytest.mark.spec("U-03", "P-10", "C-10")
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
async def test_what_is_said_to_a_conversation_denies_below_it_once(
    store: str, tmp_path: Path
) -> None:
    paid: list[int] = []

    @tool(approval=True)
    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    async def answer(hub: Hub, prompt: e.SessionPrompt) -> None:
        if prompt.arguments == {"amount": 1}:
            await hub.send_to_run(ROOT, Message("Too much.", key="no"), source="web")
        else:
            await hub.approve(prompt.prompt_id)

    def make() -> tuple[Sequence[AgentDefinition], Answer]:
        paid.clear()
        below = Recorder(
            call("pay", amount=1), call("pay", amount=2), call("finish", result="it is done"),
            latency=1.0,
        )  # fmt: skip
        main = Recorder(call("helper", message="Pay."), "All done.", latency=1.0)
        return [parent(main, config()), child(below, pay)], answer

    def check(events: list[e.Event]) -> None:
        assert len(prompt_ids(events)) == 2
        first, second = outputs(events, "pay")
        assert first == "not run: denied: Too much."
        assert second == "paid 2" or "may or may not" in second
        assert 1 not in paid
        assert paid.count(2) <= 1
        texts = [x.text for x in events if isinstance(x, e.AgentText)]
        assert texts[-1] == "All done."

    await killed_everywhere(store, tmp_path, make, check)
