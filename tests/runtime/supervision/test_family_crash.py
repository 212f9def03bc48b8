"""Killed after any commit, parents and children come to the same end (C-10, C-14, T-03, T-05).

A further runtime on the same journal and the same ports is the next life of the process.
"""

import random
from typing import Any

import anyio
import pytest
from support.agents import assert_one_life
from support.crash_journal import CrashJournal
from support.families import Recorder, answers, child, config, heard, parent
from support.profiles import portion

from hubbub import Runtime, SideConfig
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.model import ModelRequest
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import call, reply

pytestmark = pytest.mark.anyio


def reference_in(request: ModelRequest) -> str:
    (note,) = request.system_notes
    return note.splitlines()[1].removeprefix("- ").partition(":")[0]


def create(message: str) -> Any:
    return call("subagent_create", agent="helper", name="Bob", arguments={"message": message})


def again(message: str) -> Any:
    return lambda request: call(
        "subagent_message", reference=reference_in(request), message=message
    )


class Story:
    """A way of delegating, its models, and the texts it must end with."""

    def __init__(self, mode: str) -> None:
        blocking, stays = "wait" in mode, "stay" in mode
        first = create("First.") if stays else call("helper", message="First.")
        second = again("Second.") if stays else call("helper", message="Second.")
        asides = ["On it.", "Noted."] if not blocking else []
        if blocking:
            self.boss = Recorder(first, second, "The end.", latency=1)
        else:
            self.boss = Recorder(first, asides[0], second, asides[1], "The end.", latency=1)
        inner = child(
            Recorder(
                call("write_file", path="a.txt", text="x"), call("finish", result="leaf"),
                call("finish", result="leaf again"), latency=1,
            ),
            name="leaf",
        )  # fmt: skip
        work = Recorder(
            call("leaf", message="Go."),
            lambda request: call("finish", result=f"{heard(request)[0]} {_output(request)}"),
            call("leaf", message="Go again."),
            lambda request: call("finish", result=f"{heard(request)[-1]} {_output(request)}"),
            latency=1,
        )
        self.agents = (
            parent(self.boss, config(blocking=blocking, stays=stays)),
            child(work, config("leaf")),
            inner,
        )
        self.is_blocking = blocking


def _output(request: ModelRequest) -> str:
    return answers(request)[-1].output


class Late(LateJournal):
    def __init__(self, inner: CrashJournal) -> None:
        super().__init__(inner)  # type: ignore[arg-type]
        self.crashed = inner.crashed


async def live(story: Story, store: Any, ports: Ports, run_id: str) -> bool:
    """One life of the process, until all is over or the journal is dead.  Was it over?"""
    over = False
    async with Runtime(story.agents, store=store, ports=ports, grace=0) as rt:

        async def go() -> None:
            nonlocal over
            await rt.hub.open("main", "Please.", run_id=run_id)
            while not await _is_over(rt, run_id):  # noqa: ASYNC110
                await anyio.sleep(5)
            over = True
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(go)
            with anyio.fail_after(3000):
                await store.crashed.wait()
            group.cancel_scope.cancel()
    return over


async def _is_over(rt: Runtime, run_id: str) -> bool:
    loaded = await rt.hub.journal.load(run_id)
    if loaded is None:
        return False
    thread = fold_all(EMPTY, loaded.events)
    return thread.last_text == "The end." and not thread.in_session and not loaded.waiting


async def history(journal: Journal) -> dict[str, list[Event]]:
    """The own lanes of all runs, by run id, in the order of their creation."""
    found = {}
    for info in await journal.runs(live=False):
        loaded = await journal.load(info.run_id)
        assert loaded is not None
        found[info.run_id] = list(loaded.events)
    return found


def told(events: list[Event]) -> list[str]:
    thread = fold_all(EMPTY, events)
    texts = [getattr(m, "content", "") for m in thread.transcript]
    calls = [c.output for m in thread.transcript for c in getattr(m, "calls", ())]
    return [t.partition("\n\n")[2] for t in texts if t.startswith("Subagent (")] + [
        output for output in calls if "reference" not in output
    ]


@pytest.mark.spec("C-10", "C-14", "R-02", "T-03")
@pytest.mark.parametrize("mode", ["wait", "wait, stay", "stay", "go on"])
@pytest.mark.parametrize("late", [False, True])
async def test_killed_after_any_commit_the_same_is_told_once(mode: str, late: bool) -> None:
    async def told_after(after: int | None) -> tuple[list[str], int, int]:
        """What was told, in how many runs, and the commits of the first life."""
        journal, ports, story = MemoryJournal(), virtual_ports(), Story(mode)
        run_id = ports.ids.run_id(0)
        store = first = CrashJournal(journal, after)
        over = await live(story, Late(store) if late else store, ports, run_id)
        assert over == (after is None)
        while not over:
            store = CrashJournal(journal)
            over = await live(story, Late(store) if late else store, ports, run_id)
        lanes = await history(journal)
        for lane in lanes.values():
            keys = [(x.step, x.index) for x in lane if isinstance(x, e.AgentToolComplete)]
            assert len(keys) == len(set(keys))
            over_now = [x for x in lane if isinstance(x, e.AgentComplete)]
            if over_now:
                assert_one_life(lane, lane[0].run_id)
            thread = fold_all(EMPTY, lane)
            assert thread.status != "running"
        return told(lanes[run_id]), len(lanes), first.commits

    expected, runs, commits = await told_after(None)
    assert len(expected) == 2 and "leaf" in "".join(expected)
    assert commits >= 20
    for after in portion(range(commits)):
        texts, found, _ = await told_after(after)
        assert texts == expected, f"killed after commit {after}"
        assert found == runs, "no child is doubled or lost"


@pytest.mark.spec("T-05")
async def test_what_a_crash_leaves_below_a_terminated_run_ends_at_the_next_start() -> None:
    journal, ports = MemoryJournal(), virtual_ports()
    hang = Recorder(call("finish", result="late"), latency=10_000)
    middle = child(
        Recorder(call("leaf", message="x"), call("finish", result="m")),
        config("leaf", blocking=False), name="middle",
    )  # fmt: skip
    boss = Recorder(call("middle", message="x"), "Waiting.")
    agents = (parent(boss, config("middle")), middle, child(hang, name="leaf"))
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
        rt.runs.stop()
        rt.phase.is_leaving = (
            True  # The process dies in the moment it has written the end of the run.
        )
        rt.hub.terminate(run.run_id)
    infos = {info.agent: info for info in await journal.runs(live=False)}
    assert infos["leaf"].status == "active"
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        with anyio.fail_after(60):
            outcome = await rt.finished(infos["leaf"].run_id)
        assert outcome.outcome == "terminated"


@pytest.mark.spec("C-10", "C-07")
async def test_budgets_and_caps_are_counted_over_a_restart() -> None:
    journal, ports = MemoryJournal(), virtual_ports()
    both = reply("", create("a"), create("b"))
    boss = Recorder(both, "One.", both, "Two.")
    stays = config(stays=True, max_instances=3, blocking=False)
    prompt = PromptDefinition(name="p", prompt="", model=boss, tools=(stays,))
    main = AgentDefinition(name="main", side_a=SideConfig(prompt=prompt))
    work = child(Recorder(call("finish", result="x"), latency=10_000))
    async with Runtime([main, work], store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
    async with Runtime([main, work], store=journal, ports=ports, grace=0) as rt:
        await rt.hub.send_to_run(run.run_id, "Two more.")
        await rt.result(run.run_id)
        assert [a.is_error for a in answers(boss.requests[-1])][-2:] == [False, True]
        assert rt.services.budgets.of(run.run_id).live == 3
        assert rt.services.budgets.of(run.run_id).spawned == 3


@pytest.mark.spec("C-10", "C-11", "C-18")
@pytest.mark.parametrize("seed", range(40))
async def test_whatever_the_schedule_each_invocation_is_told_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many children at once, ends and messages at chance times; on Trio the scheduler's own
    order is drawn from the seed as well."""
    import trio._core._run as core

    draw = random.Random(seed)
    monkeypatch.setattr(core, "_ALLOW_DETERMINISTIC_SCHEDULING", False)
    monkeypatch.setattr(core, "_r", random.Random(seed))
    count = 6
    boss = Recorder(
        reply("", *(create(f"job {number}") for number in range(count))), latency=draw.random()
    )

    work = Recorder(*[lambda request: call("finish", result=heard(request)[-1])] * 9)
    journal = LateJournal(MemoryJournal()) if seed % 2 else MemoryJournal()
    agents = (parent(boss, config(blocking=False, stays=True)), child(work))
    async with Runtime(agents, store=journal, ports=virtual_ports()) as rt:
        sent: list[str] = []
        children: list[str] = []
        results: list[e.SessionResult] = []
        rt.hub.subscribe("agent:child", lambda x: children.append(x.child_run_id))
        rt.hub.subscribe("session:result", results.append)
        run = await rt.start("main", "Please.")

        async def disturb() -> None:
            for number in range(8):
                await anyio.sleep(draw.random() * 2)
                if children:
                    text = f"extra {number}"
                    sent.append(text)
                    await rt.hub.send_to_run(draw.choice(children), text)

        async with anyio.create_task_group() as group:
            group.start_soon(disturb)
        await anyio.sleep(100)
        await run.result()
        texts = heard(boss.requests[-1])
        told_texts = [t.partition("\n\n")[2] for t in texts if t.startswith("Subagent (")]
        assert sorted(told_texts) == sorted(result.content for result in results)
        assert len({(r.child_run_id, r.session) for r in results}) == len(results)
        assert set(told_texts) <= {f"job {n}" for n in range(count)} | set(sent)
        assert all(info.status == "parked" for info in await rt.hub.journal.runs())


@pytest.mark.spec("C-07", "C-10", "T-05", "T-10")
@pytest.mark.parametrize("seed", range(40))
async def test_whatever_races_with_an_end_there_is_one_end_and_one_result(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends, terminations, interruptions and creations that meet, in orders drawn from the seed."""
    import trio._core._run as core

    draw = random.Random(1000 + seed)
    monkeypatch.setattr(core, "_ALLOW_DETERMINISTIC_SCHEDULING", False)
    monkeypatch.setattr(core, "_r", random.Random(seed))
    blocking = bool(seed % 3)
    boss = Recorder(
        *[reply("", *(create(f"job {step}.{at}") for at in range(3))) for step in range(3)],
        latency=1,
    )
    work = Recorder(*[call("finish", result="done")] * 9, latency=2)
    journal = LateJournal(MemoryJournal()) if seed % 2 else MemoryJournal()
    stays = config(blocking=blocking, stays=True, max_instances=2)
    agents = (parent(boss, stays, parallel_tool_calls=bool(seed % 5)), child(work))
    async with Runtime(agents, store=journal, ports=virtual_ports()) as rt:
        children: list[str] = []
        events: list[Event] = []
        rt.hub.subscribe("*", events.append)
        rt.hub.subscribe("agent:child", lambda x: children.append(x.child_run_id))
        run = await rt.start("main", "Please.")

        async def disturb() -> None:
            for _ in range(8):
                await anyio.sleep(draw.choice([0, 1, 2, 2, 3]))
                if not children:
                    continue
                other = draw.choice(children)
                match draw.randrange(4):
                    case 0:
                        await rt.terminate(other)
                    case 1:
                        rt.hub.interrupt(other)
                    case 2:
                        rt.hub.interrupt(run.run_id)
                    case _:
                        rt.hub.send_to_run(other, "And?")

        async with anyio.create_task_group() as group:
            group.start_soon(disturb)
        await anyio.sleep(100)
        with anyio.fail_after(1000):
            await run.result()
        lanes = await history(rt.hub.journal)
        ends = sorted(
            (run_id, x.session)
            for run_id, lane in lanes.items()
            if run_id != run.run_id
            for x in lane
            if isinstance(x, e.SessionEnd)
        )
        results = [x for x in events if isinstance(x, e.SessionResult) and x.session]
        letters = [x.message for x in events if isinstance(x, e.HubDeadLetter)]
        lost = [x for x in letters if isinstance(x, e.SessionResult) and x.session]
        assert sorted((x.child_run_id, x.session) for x in [*results, *lost]) == ends
        for lane in lanes.values():
            assert sum(isinstance(x, e.AgentComplete) for x in lane) <= 1
            answered = [(x.step, x.index) for x in lane if isinstance(x, e.AgentToolComplete)]
            assert len(answered) == len(set(answered))
        live = [info for info in await rt.hub.journal.runs() if info.parent_run_id]
        assert len(live) <= 2
        assert all(info.status == "parked" for info in await rt.hub.journal.runs())
