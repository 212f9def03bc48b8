"""Each prompt ends exactly once, and each accepted reply has one outcome (H-10, G-09).

Lives of one store, drawn by a number: code, tools, a paused model and programs ask; people reply
in time, late and twice; runs are interrupted, closed and terminated, also in the same breath; time
passes; runtimes are left and killed.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.crash_journal import CrashJournal
from support.restarts import left_by_kill

from attacks.scale import scale
from hubbub import AgentDefinition, Hub, PromptDefinition, RunState, Runtime, SideConfig, agent
from hubbub.agents.definitions.tools import tool
from hubbub.hub import events as e
from hubbub.hub.delivery.ended_prompts import asker_of
from hubbub.hub.errors import CallerError, HubbubError, PromptTimeout
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.tasks.cancelling import is_on_asyncio
from hubbub.runtime.models.scripted import ScriptedModel, call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-10", "G-09")]

STORES = ("memory", "late", "sqlite")


# ── who asks ─────────────────────────────────────────────────────────────────────────────────


async def _ask(ctx: Any) -> str:
    try:
        return str(await ctx.ask("Which?", timeout=9))
    except PromptTimeout:
        return "nobody answers"


@agent("stubborn", on_restart="resume")
async def stubborn(input: Any, ctx: Any) -> list[str]:
    return [await _ask(ctx) for _ in range(3)]


@agent("fragile")
async def fragile(input: Any, ctx: Any) -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(_ask, ctx)
        answer = await _ask(ctx)
        group.cancel_scope.cancel()
    return answer


Way = Callable[[Any], Any]


async def _in_a_group(ask: Way) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(ask, None)


async def _in_a_limit(ask: Way) -> None:
    with anyio.fail_after(1000):
        await ask(None)


WAYS: dict[str, Callable[[Way], Any]] = {
    "plainly": lambda ask: ask(None),
    "in a task group": _in_a_group,
    "in a limit": _in_a_limit,
    "in a task of asyncio": lambda ask: asyncio.gather(ask(None)),
    "in a timeout of asyncio": lambda ask: asyncio.wait_for(ask(None), 1000),
}
"""How code asks: what is cancelled is a scope of anyio's, or a task of asyncio's."""


def way_here(way: str) -> str:
    """The way, or where it is asyncio's and the loop is not, the nearest that the loop has."""
    if "asyncio" not in way or is_on_asyncio():
        return way
    return "in a limit" if "timeout" in way else "in a task group"


@tool(timeout=6)
async def confirm(state: RunState) -> str:
    return str(await state.hub.ask("user", "Sure?"))


@tool(timeout=None, idempotent=True)
async def insist(state: RunState) -> str:
    return str(await state.hub.ask("user", "Really?", timeout=8))


def agents() -> list[AgentDefinition]:
    script = [call("confirm"), call("insist"), "Done.", call("confirm"), "Done again."]
    tooler = model_agent(ScriptedModel(script, repeat=True), confirm, insist, name="tooler")
    pauses = ScriptedModel([call("interrupt", prompt="Which plan?"), "Planned."], repeat=True)
    prompt = PromptDefinition(name="planner", prompt="You plan.", model=pauses)
    planner = AgentDefinition(
        name="planner", side_a=SideConfig(prompt=prompt), supports_checkpointing=True
    )
    return [stubborn, fragile, tooler, planner]


# ── what happens ─────────────────────────────────────────────────────────────────────────────


class World:
    """One store, lived in again and again, and what was heard of it."""

    def __init__(self, kind: str, folder: Path, ports: Ports, seed: int) -> None:
        self.draw = random.Random(seed)
        self.ports = ports
        self._kind = kind
        self._folder, self._place = folder / "0", folder
        self._memory = MemoryJournal()
        self._number = 0
        self.runs: list[str] = []
        self.prompts: list[str] = []
        self.ended: set[str] = set()
        self.accepted: list[str] = []
        self.letters: Counter[str] = Counter()
        self.killed = False
        """Whether a process has died, which may have had a letter to tell."""

    def store(self) -> Journal:
        if self._kind == "sqlite":
            self._kept = sqlite_store(self._folder, ports=self.ports)
            return self._kept
        self._crashing: Any = CrashJournal(self._memory)
        return self._crashing if self._kind == "memory" else LateJournal(self._crashing)

    def kill(self) -> None:
        """What is written from here on is not there for whoever comes next."""
        self.killed = True
        if self._kind == "sqlite":
            self._number += 1
            self._folder = left_by_kill(self._kept, self._folder, self._place / f"{self._number}")
        else:
            self._crashing._after = self._crashing.commits

    def hear(self, event: e.Event) -> None:
        match event:
            case e.SessionPrompt():
                self.prompts.append(event.prompt_id)
            case e.SessionPromptEnd():
                self.ended.add(event.prompt_id)
            case e.HubDeadLetter(message=e.SessionReply() as reply):
                assert event.reason
                self.letters[reply.prompt_id] += 1

    async def live(self, *, is_last: bool = False) -> None:
        async with Hub(journal=self.store(), ports=self.ports) as hub:
            hub.subscribe("*", self.hear)
            async with (
                anyio.create_task_group() as group,
                Runtime(agents(), hub=hub, grace=0) as rt,
            ):
                for _ in range(self.draw.randrange(6, 14)):
                    await self._do_something(rt, group)
                if is_last:
                    await anyio.sleep(5000)
                    for run_id in self.runs:
                        await hub.terminate(run_id)
                    await anyio.sleep(1)
                elif self.draw.random() < 0.6:
                    self.kill()
                    group.cancel_scope.cancel()  # Nobody hears of what was on its way.

    async def _do_something(self, rt: Runtime, group: Any) -> None:
        hub, draw = rt.hub, self.draw
        run_id = draw.choice(self.runs) if self.runs else ""
        prompt_id = draw.choice(self.prompts[-5:]) if self.prompts else ""
        stop = draw.choice([hub.interrupt, hub.interrupt, hub.terminate, hub.close_run])
        match draw.randrange(8):
            case 0 | 1:
                name = draw.choice(["stubborn", "fragile", "tooler", "planner"])
                self.runs.append((await hub.open(name, "go")).run_id)
            case 2 | 3 if prompt_id:
                await self._reply(hub, prompt_id, group)
            case 4 if run_id:
                stop(run_id)
            case 5 if prompt_id:
                asker = asker_of(prompt_id)
                asker = run_id if asker == "hub" else asker
                if draw.random() < 0.5:
                    hub.reply(prompt_id, "first")
                stop(asker)
                await self._reply(hub, prompt_id, group)
            case 6:
                group.start_soon(_ask_nobodys_run, hub)
            case _:
                await anyio.sleep(draw.choice([0, 0.5, 1, 3, 7]))
        if draw.random() < 0.5:
            await anyio.sleep(draw.choice([0, 0.01, 1]))

    async def _reply(self, hub: Hub, prompt_id: str, group: Any) -> None:
        was_over = prompt_id in self.ended
        receipt = hub.reply(prompt_id, "yes")

        async def note() -> None:
            await receipt
            assert not (receipt.accepted and was_over), f"{prompt_id} took a reply after its end"
            if receipt.accepted:
                self.accepted.append(prompt_id)

        group.start_soon(note)


async def _ask_nobodys_run(hub: Hub) -> None:
    with contextlib.suppress(HubbubError):
        await hub.ask("user", "Anybody?", timeout=7)


def used(events: list[e.Event]) -> Counter[str]:
    """How often each prompt was answered."""
    ends = (x for x in events if isinstance(x, e.SessionPromptEnd))
    return Counter(x.prompt_id for x in ends if x.reason == "answered")


def refused(events: list[e.Event]) -> set[str]:
    """The prompts of replies that are on record as nobody's: dropped, or left over."""
    taken = {
        (item.run_id, item.seq) for x in events if isinstance(x, e.SessionTaken) for item in x.items
    }
    ended = {x.run_id for x in events if isinstance(x, e.AgentComplete)}
    replies = [x for x in events if isinstance(x, e.SessionReply)]
    return {
        x.prompt_id for x in replies if (x.run_id, x.seq) not in taken and x.run_id in ended
    } | {
        item.prompt_id
        for x in events
        if isinstance(x, e.SessionDropped)
        for item in x.items
        if isinstance(item, e.SessionReply)
    }


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("seed", range(scale(6, 300)))
async def test_each_prompt_ends_once_and_each_accepted_reply_has_one_outcome(
    seed: int, kind: str, tmp_path: Path, ports: Ports
) -> None:
    world = World(kind, tmp_path, ports, seed)
    for _ in range(world.draw.randrange(1, 4)):
        await world.live()
    await world.live(is_last=True)
    async with Hub(journal=world.store(), ports=ports) as hub:
        events = await hub.read()
    opened = Counter(x.prompt_id for x in events if isinstance(x, e.SessionPrompt))
    ended = Counter(x.prompt_id for x in events if isinstance(x, e.SessionPromptEnd))
    assert set(opened.values()) <= {1}
    assert opened == ended
    assert all(x.reason for x in events if isinstance(x, e.SessionPromptEnd))
    answered, dropped = used(events), refused(events)
    replies = {x.prompt_id for x in events if isinstance(x, e.SessionReply)}
    for prompt_id in {*replies, *world.accepted}:
        if prompt_id in answered:
            assert not world.letters[prompt_id], f"{prompt_id} was answered and told of as lost"
        elif prompt_id in dropped:
            told = world.letters[prompt_id]
            assert told == 1 or (world.killed and told == 0), f"{prompt_id}: {told} letters"
        else:
            assert world.killed, f"the accepted reply to {prompt_id} has no outcome"
            assert prompt_id not in replies


Stop = Callable[[Hub, str], Any]


BOTH = "interrupted: first"
"""Interrupted, and terminated in the same breath."""

STOPS: list[tuple[Stop, str]] = [
    (lambda hub, run_id: hub.interrupt(run_id), "interrupted"),
    (lambda hub, run_id: hub.interrupt(run_id, "we do not need it"),
     "interrupted: we do not need it"),
    (lambda hub, run_id: hub.terminate(run_id), "terminated"),
    (lambda hub, run_id: hub.terminate(run_id, "enough"), "terminated: enough"),
    (lambda hub, run_id: (hub.interrupt(run_id, "first"), hub.terminate(run_id)),
     BOTH),
]  # fmt: skip


@pytest.mark.parametrize("name", ["stubborn", "fragile", "tooler", "planner"])
@pytest.mark.parametrize(("stop", "words"), STOPS)
@pytest.mark.parametrize("kind", STORES)
async def test_a_reply_in_the_same_breath_as_the_stop_of_its_asker_is_rejected_with_its_words(
    name: str, stop: Stop, words: str, kind: str, tmp_path: Path, ports: Ports
) -> None:
    """Whenever it comes: at once, after the stop is on record, after the next restart."""
    world = World(kind, tmp_path, ports, 0)
    reasons = []

    async def reply(hub: Hub) -> None:
        receipt = await hub.reply(prompt_id, "yes")
        assert receipt.rejected
        reasons.append(receipt.reason)

    async with Runtime(agents(), store=world.store(), ports=ports) as rt:
        rt.hub.subscribe("*", world.hear)
        run = await rt.start(name, "go")
        await anyio.sleep(1)
        (prompt_id, *_) = world.prompts
        stop(rt.hub, run.run_id)
        await reply(rt.hub)
        await anyio.sleep(1)
        await reply(rt.hub)
        ends = [x for x in await run.read() if isinstance(x, e.SessionPromptEnd)]
        await rt.terminate(run.run_id)
    async with Hub(journal=world.store(), ports=ports) as hub:
        await reply(hub)
    assert reasons[:2] == [words] * 2
    (recorded,) = [x.reason for x in ends if x.prompt_id == prompt_id]
    assert reasons[2] == recorded
    # A termination that the store has accepted counts before an interruption's end that it has
    # yet to write: the run then ends by that, with its prompts.
    assert recorded in ({words, "terminated"} if words == BOTH else {words})
    assert not world.letters


ENDS: dict[str, Callable[[Hub, str, str], Any]] = {
    "interrupted": lambda hub, run_id, parent: hub.interrupt(run_id),
    "all interrupted": lambda hub, run_id, parent: hub.interrupt(),
    "terminated": lambda hub, run_id, parent: hub.terminate(run_id),
    "closed": lambda hub, run_id, parent: hub.close_run(run_id),
    "parent terminated": lambda hub, run_id, parent: hub.terminate(parent),
}


@pytest.mark.parametrize("is_awaited", [False, True], ids=["in the same breath", "once accepted"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", [*WAYS, "tool"])
async def test_an_accepted_reply_reaches_its_asker_or_is_one_dead_letter_when_a_stop_follows_it(
    way: str, end: str, is_awaited: bool, store: Journal, ports: Ports
) -> None:
    """And the prompt's end says which."""
    way = way_here(way)
    got: list[str] = []

    async def ask(ctx: Any) -> None:
        got.append(await ctx.hub.ask("user", "Which?"))
        await anyio.sleep_forever()

    @agent("code")
    async def code(input: Any, ctx: Any) -> None:
        await WAYS[way](lambda _: ask(ctx))

    @tool(timeout=None)
    async def asks(state: RunState) -> str:
        await ask(state)
        return "never"

    @agent("parent")
    async def parent(input: Any, ctx: Any) -> None:
        await ctx.spawn("tooler" if way == "tool" else "code", "go").result()

    tooler = model_agent(ScriptedModel([call("asks"), "Done."]), asks, name="tooler")
    letters: list[Any] = []
    prompts: list[e.Event] = []
    async with Runtime([code, parent, tooler], store=store, ports=ports, grace=0) as rt:
        rt.hub.subscribe("hub:dead_letter", letters.append)
        rt.hub.subscribe("session:prompt", prompts.append)
        above = await rt.start("parent", "go")
        await anyio.sleep(1)
        (prompt,) = prompts
        assert isinstance(prompt, e.SessionPrompt)
        receipt = rt.hub.reply(prompt.prompt_id, "yes")
        if is_awaited:
            await receipt
        ENDS[end](rt.hub, prompt.run_id, above.run_id)
        await receipt
        await anyio.sleep(1)
        read = await rt.hub.read(prompt.run_id)
        await rt.terminate(above.run_id)
    ends = [x.reason for x in read if isinstance(x, e.SessionPromptEnd)]
    assert receipt.accepted
    if got:
        assert (got, ends, letters) == (["yes"], ["answered"], [])
    else:
        assert [x.message.prompt_id for x in letters] == [prompt.prompt_id]
        assert len(ends) == 1 and ends != ["answered"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_reply_that_comes_as_the_asker_gives_up_reaches_it_or_is_one_dead_letter(
    way: str, store: Journal, ports: Ports
) -> None:
    """The asker's own time is over at the moment at which somebody replies."""
    way = way_here(way)
    got: list[str] = []
    scopes: list[anyio.CancelScope] = []

    @agent("code")
    async def code(input: Any, ctx: Any) -> None:
        async def ask(_: Any) -> None:
            got.append(await ctx.hub.ask("user", "Which?"))

        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await WAYS[way](ask)
        await anyio.sleep(3)

    letters: list[Any] = []
    prompts: list[Any] = []
    async with Runtime([code], store=store, ports=ports, grace=0) as rt:
        rt.hub.subscribe("hub:dead_letter", letters.append)
        rt.hub.subscribe("session:prompt", prompts.append)
        run = await rt.start("code", "go")
        await anyio.sleep(1)
        scopes[0].cancel()
        receipt = await rt.hub.reply(prompts[0].prompt_id, "yes")
        outcome = await run.result()
        ends = [x.reason for x in await run.read() if isinstance(x, e.SessionPromptEnd)]
    assert outcome.outcome == "completed", "what has been given up is not given up again"
    if receipt.rejected:
        assert (got, ends, letters) == ([], ["closed"], [])
    elif got:
        assert (got, ends, letters) == (["yes"], ["answered"], [])
    else:
        assert ([x.message.prompt_id for x in letters], ends) == (
            [prompts[0].prompt_id],
            ["closed"],
        )


AWAY = "the process that asked has stopped, and its run has not come back yet"


@pytest.mark.parametrize("name", ["stubborn", "fragile", "tooler", "planner"])
@pytest.mark.parametrize("kind", STORES)
async def test_a_reply_to_a_prompt_of_a_process_that_died_is_answered_with_what_became_of_it(
    name: str, kind: str, tmp_path: Path, ports: Ports
) -> None:
    world = World(kind, tmp_path, ports, 0)
    async with Hub(journal=world.store(), ports=ports) as hub:
        hub.subscribe("*", world.hear)
        async with Runtime(agents(), hub=hub, grace=0) as rt:
            run = await rt.start(name, "go")
            await anyio.sleep(1)
            world.kill()
    (prompt_id, *_) = world.prompts
    async with Hub(journal=world.store(), ports=ports) as hub:
        dead: list[e.Event] = []
        hub.subscribe("hub:dead_letter", dead.append)
        before = await hub.reply(prompt_id, "yes")
        with pytest.raises(CallerError, match=AWAY):
            await hub.publish(e.SessionReply(prompt_id=prompt_id, content="published"))
        other = await hub.reply(f"{run.run_id}.7.7", "yes")
        async with Runtime(agents(), hub=hub, grace=0):
            await anyio.sleep(1)
            after = await hub.reply(prompt_id, "yes")
        ends = [x for x in await hub.read(run.run_id) if isinstance(x, e.SessionPromptEnd)]
        cut = hub.reply(f"{run.run_id}.8.8", "yes")
    assert (before.status, before.reason) == ("rejected", AWAY)
    assert [getattr(x, "reason", "") for x in dead] == [AWAY]
    assert (other.status, other.reason) == ("rejected", "unknown")
    assert (await cut).rejected, "nobody waits for a hub that is closed"
    if name in ("planner", "stubborn"):  # It waits on, and its prompt is open again.
        assert after.accepted
    else:
        assert [x.reason for x in ends if x.prompt_id == prompt_id] == [after.reason]
        assert after.rejected


@pytest.mark.parametrize("name", ["stubborn", "tooler", "planner"])
@pytest.mark.parametrize("kind", ["late", "sqlite"])
async def test_a_reply_that_an_interrupt_overtakes_is_one_dead_letter_after_a_restart_alike(
    name: str, kind: str, tmp_path: Path, ports: Ports
) -> None:
    """The process dies with both in the inbox: control comes first (H-14)."""
    world = World(kind, tmp_path, ports, 0)
    async with Hub(journal=world.store(), ports=ports) as hub:
        hub.subscribe("*", world.hear)
        async with Runtime(agents(), hub=hub, grace=0) as rt:
            run = await rt.start(name, "go")
            await anyio.sleep(1)
    prompt_id = world.prompts[0]
    # Both were accepted by the store, and the process died before the run heard of them.
    store = world.store()
    async with Hub(journal=store, ports=ports) as hub:
        await hub.pipeline.deliver(
            e.SessionReply(prompt_id=prompt_id, content="yes"), to=run.run_id
        )
        await hub.interrupt(run.run_id)
    async with Hub(journal=world.store(), ports=ports) as hub:
        hub.subscribe("*", world.hear)
        async with Runtime(agents(), hub=hub, grace=0) as rt:
            await anyio.sleep(1)
            ends = [x for x in await rt.hub.read(run.run_id) if isinstance(x, e.SessionPromptEnd)]
            await rt.hub.terminate(run.run_id)
            await anyio.sleep(1)
    assert [x.prompt_id for x in ends].count(prompt_id) == 1
    assert world.letters == {prompt_id: 1}
