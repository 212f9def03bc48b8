"""What becomes of runs when a runtime opens on what another has left (P-03, P-10, T-05, T-09)."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life, echo_model, model_agent
from support.crash_journal import CrashJournal
from support.families import Recorder, child, config, parent

from hubbub import Agent, AgentDefinition, FunctionModel, Hub, RestorePolicy, Runtime
from hubbub.agents.definitions.tools import tool
from hubbub.agents.turn.calls import LOST
from hubbub.agents.turn.crash_limit import CONTEXT_ONLY, LEFT, crash_limit_failure
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, OperatorError
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal, LoadedRun, RunInfo
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import ScriptedModel, call, reply
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.supervision.restore import Boot

pytestmark = pytest.mark.anyio


async def own_lane(journal: Any, run_id: str) -> list[Event]:
    loaded = await journal.load(run_id)
    assert loaded is not None
    return list(loaded.events)


def slow(seconds: float = 10_000) -> AgentDefinition:
    """An agent whose model takes its time."""
    return model_agent(ScriptedModel(["at last", "more"], latency=seconds))


async def kill(
    agents: Sequence[AgentDefinition], journal: Any, ports: Ports, *, commits: int = 1
) -> None:
    """One process that goes on with what is there, and is killed after so many commits.

    What it does on its way out is never heard of.
    """
    store = CrashJournal(journal, commits)
    async with Runtime(agents, store=store, ports=ports, grace=0):  # type: ignore[arg-type]
        await anyio.sleep(5)
    assert store.commits == commits


# ── P-10, T-12: deaths in a row ──────────────────────────────────────────────────────────────


@pytest.mark.spec("P-10", "T-12")
@pytest.mark.parametrize(
    ("causes", "beginning"),
    [
        (("", ""), ""),
        (("", "", ""), "crash_loop: the process died 3 times in a row"),
        (("E",) * 3, ""),
        (("E",) * 4, "it died 4 times in a row"),
        (("", "E", "", "E", "E"), ""),
        (("", "E", "E", "", ""), "crash_loop"),
        ((LEFT,) * 50, ""),
        (("", LEFT, "", LEFT), ""),
        (("", LEFT, "", LEFT, ""), "crash_loop"),
    ],
)
def test_how_often_a_run_comes_back_depends_on_why(causes: tuple[str, ...], beginning: str) -> None:
    failure = crash_limit_failure(causes)
    assert failure.startswith(beginning) and bool(failure) == bool(beginning)


@pytest.mark.spec("P-10")
async def test_a_run_that_kills_its_process_three_times_fails_as_a_crash_loop(
    journal: Journal, ports: Ports
) -> None:
    agents = [slow()]
    async with Runtime(agents, store=CrashJournal(journal, 2), ports=ports, grace=0) as rt:  # type: ignore[arg-type]
        run_id = rt.hub.open("assistant", "hello").run_id
        await anyio.sleep(5)
    for _ in range(2):
        await kill(agents, journal, ports)
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        outcome = await rt.finished(run_id)
    assert outcome.outcome == "failed"
    assert outcome.reason.startswith("crash_loop: the process died 3 times in a row")
    assert seen.first("agent:failed").error_type == "CrashLoop"
    lane = await own_lane(journal, run_id)
    assert_one_life(lane, run_id)
    restores = [x for x in lane if isinstance(x, e.AgentRestore)]
    assert [(x.attempt, x.reason) for x in restores] == [(2, ""), (3, "")]


@pytest.mark.spec("P-10", "C-10")
async def test_the_parent_of_a_child_in_a_crash_loop_is_told(ports: Ports) -> None:
    journal = MemoryJournal()
    boss = Recorder(call("helper", message="x"), "I see.")
    agents = (parent(boss, config()), child(Recorder("never", latency=10_000)))
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("main", "Please.")
        await anyio.sleep(5)
        rt.hub.journal.submit = lambda commit: None  # type: ignore[method-assign]
    del journal.submit
    for _ in range(2):
        await kill(agents, journal, ports)
    async with Runtime(agents, store=journal, ports=ports) as rt:
        assert (await run_result(rt, run.run_id)).output == "I see."
    (told,) = [x for x in await own_lane(journal, run.run_id) if isinstance(x, e.AgentToolComplete)]
    assert told.is_error and "crash_loop" in told.output


async def run_result(rt: Runtime, run_id: str) -> Any:
    with anyio.fail_after(100_000):
        return await rt.result(run_id)


@pytest.mark.spec("P-10")
async def test_a_finished_step_between_crashes_starts_the_count_again(ports: Ports) -> None:
    journal = MemoryJournal()

    @tool(idempotent=True)
    async def look() -> str:
        return "seen"

    def agents() -> list[AgentDefinition]:
        return [model_agent(FunctionModel(answer, latency=1), look)]

    def answer(request: Any) -> Any:
        return call("look") if len(request.messages) < 12 else "done"

    run_id = ports.ids.run_id(0)
    crashes = 0
    for _ in range(50):
        store = CrashJournal(journal, 6)
        async with Runtime(agents(), store=store, ports=ports, grace=0) as rt:  # type: ignore[arg-type]
            rt.hub.open("assistant", "hello", run_id=run_id)
            with anyio.move_on_after(1000):
                await store.crashed.wait()
        if not store.crashed.is_set():
            break
        crashes += 1
    assert crashes > 3
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        assert (await rt.result(run_id)).output == "done"


# ── R-16: leaving in order is no crash ───────────────────────────────────────────────────────


@pytest.mark.spec("P-10", "R-16")
@pytest.mark.parametrize("grace", [0, 2])
async def test_deploys_during_a_long_model_call_never_fail_the_run(
    grace: float, journal: Journal, ports: Ports
) -> None:
    agents = [slow(300)]
    async with Runtime(agents, store=journal, ports=ports, grace=grace) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
    for _ in range(6):
        async with Runtime(agents, store=journal, ports=ports, grace=grace):
            await anyio.sleep(5)
    async with Runtime(agents, store=journal, ports=ports, grace=grace) as rt:
        outcome = await run_result(rt, run.run_id)
    assert outcome.output == "at last"
    restores = [x for x in await own_lane(journal, run.run_id) if isinstance(x, e.AgentRestore)]
    assert [x.reason for x in restores] == [LEFT] * 7


@pytest.mark.spec("P-10", "R-16")
async def test_leaving_in_order_is_neither_a_crash_nor_progress(ports: Ports) -> None:
    journal, agents = MemoryJournal(), [slow()]

    async def deploy() -> None:
        async with Runtime(agents, store=journal, ports=ports, grace=0):
            await anyio.sleep(5)

    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
    await kill(agents, journal, ports)
    await deploy()
    await kill(agents, journal, ports)
    await kill(agents, journal, ports)
    async with Runtime(agents, store=journal, ports=ports) as rt:
        outcome = await rt.finished(run.run_id)
    assert outcome.reason.startswith("crash_loop: the process died 3 times")


@pytest.mark.spec("R-16")
async def test_leaving_an_idle_runtime_writes_nothing(ports: Ports) -> None:
    journal = CrashJournal(MemoryJournal())
    agents = [model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports) as rt:  # type: ignore[arg-type]
        run = await rt.start("assistant", "hello")
        await run.result()
        before = journal.commits
    assert journal.commits == before


# ── P-03: cheap, in order, and one does not stop the others ──────────────────────────────────


class Counting:
    """A journal that counts what is read of it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.loaded: list[str] = []

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        self.loaded.append(run_id)
        found: LoadedRun | None = await self._inner.load(run_id, after=after)
        return found

    async def load_kept(self, run_id: str, version: str) -> LoadedRun | None:
        return await self.load(run_id)

    async def runs(self, **which: Any) -> Sequence[RunInfo]:
        assert which.get("root_run_id"), "every run there is, at once"
        found: Sequence[RunInfo] = await self._inner.runs(**which)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.spec("P-03")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
async def test_a_boot_reads_the_unfinished_runs_and_no_others(late: bool, ports: Ports) -> None:
    journal = MemoryJournal()
    agents = [model_agent(echo_model(latency=0)), model_agent(echo_model(latency=100), name="slow")]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        for number in range(1000):
            await rt.start("assistant", f"hello {number}")
        unfinished = {(await rt.start("slow", "hello")).run_id for _ in range(10)}
        await anyio.sleep(10)
    counting = Counting(journal)
    store: Any = LateJournal(counting) if late else counting  # type: ignore[arg-type]
    async with Runtime(agents, store=store, ports=ports) as rt:
        for run_id in unfinished:
            assert (await run_result(rt, run_id)).output == "echo: hello"
    assert sorted(counting.loaded) == sorted(unfinished)


@pytest.mark.spec("P-03")
async def test_a_restore_is_handled_before_anything_in_the_inbox(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([slow()], store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
        await run.send("are you there?")
    length = len(await own_lane(journal, run.run_id))
    async with Runtime([slow(1)], store=journal, ports=ports) as rt:
        await run_result(rt, run.run_id)
    after = (await own_lane(journal, run.run_id))[length:]
    assert isinstance(after[0], e.AgentRestore)
    assert "session:taken" in [x.type for x in after[1:]]


class Torn(Counting):
    """A journal in which some runs cannot be read."""

    broken: tuple[str, ...] = ()

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        if run_id in self.broken:
            raise BadValue("event", "JSON is malformed: unexpected end of data")
        return await super().load(run_id, after=after)


@pytest.mark.spec("P-03")
async def test_a_run_that_cannot_be_read_stops_no_other_and_is_told_of_once(
    journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(echo_model(latency=100))]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        bad, good = await rt.start("assistant", "a"), await rt.start("assistant", "b")
        await anyio.sleep(5)
    before = await own_lane(journal, bad.run_id)
    torn: Any = Torn(journal)
    torn.broken = (bad.run_id,)
    async with Runtime(agents, store=torn, ports=ports) as rt:
        seen = Observer(rt.hub)
        assert (await run_result(rt, good.run_id)).output == "echo: b"
        with pytest.raises(OperatorError, match="hubbub fsck"):
            await rt.result(bad.run_id)
        await rt.hub.interrupt(bad.run_id)
        await rt.hub.terminate(bad.run_id)
        await anyio.sleep(100)
        (report,) = seen.all("hub:error")
        assert report.run_id == bad.run_id and report.error_type == "unreadable"
        assert "fsck" in report.error and "unexpected end" in report.error
        assert (await rt.hub.send_to_run(bad.run_id, "x")).reason == "unreadable"
        assert not rt.runs.refusal_of(good.run_id)
    assert await own_lane(journal, bad.run_id) == before, "its record stays as it is"


@pytest.mark.spec("P-03")
async def test_a_child_that_cannot_be_read_does_not_stop_its_parent(ports: Ports) -> None:
    journal = MemoryJournal()
    create = call("subagent_create", agent="helper", name="h", arguments={"message": "x"})
    agents = (parent(Recorder(create, "Started.", "Yes."), config(stays=True, blocking=False)),
              child(Recorder("never", latency=10_000)))  # fmt: skip
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
    (below,) = await journal.find(run.run_id, "below")
    torn: Any = Torn(journal)
    torn.broken = (below,)
    async with Runtime(agents, store=torn, ports=ports) as rt:
        await rt.hub.send_to_run(run.run_id, "still there?")
        assert (await run_result(rt, run.run_id)).success


# ── T-05: whoever is below ends in the same commit ───────────────────────────────────────────


@pytest.mark.spec("T-05", "P-10")
async def test_whoever_is_below_is_told_in_the_commit_that_ends_a_terminated_run(
    ports: Ports,
) -> None:
    journal = MemoryJournal()
    hang = Recorder("never", latency=10_000)
    middle = child(
        Recorder(call("leaf", message="x"), call("finish", result="m")),
        config("leaf", blocking=False), name="middle",
    )  # fmt: skip
    boss = Recorder(call("middle", message="x"), "Waiting.")
    agents = (parent(boss, config("middle")), middle, child(hang, name="leaf"))
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
        infos = {info.agent: info for info in await journal.runs(live=False)}
        assert infos["middle"].status == "ended", "what lies between them is over already"
        inboxes: list[str] = []

        async def look() -> None:
            info = await journal.info(infos["leaf"].run_id)
            inboxes.append(info.inbox if info is not None else "")

        rt.hub.subscribe("agent:complete", lambda _: rt.hub.tasks.start(look()), run_id=run.run_id)
        receipt = await run.terminate()
        assert receipt.run_ids == (run.run_id, infos["leaf"].run_id)
        await rt.finished(infos["leaf"].run_id)
    assert inboxes == ["terminated"]


# ── decision 7, T-09: CONTEXT_ONLY ───────────────────────────────────────────────────────────


def digger(log: list[str]) -> AgentDefinition:
    @tool(timeout=None)
    async def dig() -> str:
        log.append("+")
        await anyio.sleep(50)
        return "gold"

    return model_agent(ScriptedModel(["hello", call("dig"), "anew"], latency=1), dig)


@pytest.mark.spec("T-09", "P-03")
async def test_context_only_keeps_the_context_and_retries_nothing(
    journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    agents = [digger(log)]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "first")
        await run.result()
        await run.send("second")
        await anyio.sleep(5)
        await run.send("third")
        await run.send("fourth")
    assert log == ["+"]
    length = len(await own_lane(journal, run.run_id))
    async with Runtime(
        agents, store=journal, ports=ports, restore=RestorePolicy.CONTEXT_ONLY
    ) as rt:
        seen = Observer(rt.hub)
        outcome = await run_result(rt, run.run_id)
        await anyio.sleep(100)
        letters = seen.all("hub:dead_letter")
        assert (outcome.outcome, outcome.reason) == ("interrupted", CONTEXT_ONLY)
        await run_result(rt, run.run_id)
        await rt.hub.send_to_run(run.run_id, "fifth")
        assert (await run_result(rt, run.run_id)).output == "anew"
    assert [(x.reason, x.message.content) for x in letters] == [
        ("restored without pending messages", "third"),
        ("restored without pending messages", "fourth"),
    ]
    assert log == ["+"], "nothing is run again"
    after = (await own_lane(journal, run.run_id))[length:]
    types = [x.type for x in after]
    assert types[0] == "agent:restore"
    assert types[: types.index("agent:park") + 1] == [
        "agent:restore", "agent:interrupted", "agent:tool:complete", "session:end", "agent:park"
    ]  # fmt: skip
    (lost,) = [x for x in after if isinstance(x, e.AgentToolComplete)]
    assert (lost.output, lost.is_error) == (LOST, True)
    taken = [i.content for x in after if isinstance(x, e.SessionTaken) for i in x.items]  # type: ignore[union-attr]
    assert taken == ["fifth"]


@pytest.mark.spec("T-09")
async def test_context_only_leaves_no_parent_at_work_behind_its_child(ports: Ports) -> None:
    journal = MemoryJournal()
    boss = Recorder(call("helper", message="x"), "Never said.")
    agents = (parent(boss, config()), child(Recorder("never", latency=10_000)))
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("main", "Please.")
        await anyio.sleep(5)
    asked = len(boss.requests)
    async with Runtime(
        agents, store=journal, ports=ports, restore=RestorePolicy.CONTEXT_ONLY
    ) as rt:
        outcome = await run_result(rt, run.run_id)
        await anyio.sleep(100)
    assert outcome.outcome == "interrupted"
    assert len(boss.requests) == asked, "the model is not asked"
    assert [info.status for info in await journal.runs()] == ["parked"]


@pytest.mark.spec("T-09", "P-03")
async def test_what_comes_after_a_context_only_boot_is_handled(
    journal: Journal, ports: Ports
) -> None:
    """Also what comes before the run has been read."""
    agents = [model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello")
        await run.result()
        rt.runs.stop()
        rt.phase.is_leaving = True
        await run.send("before")
    async with Runtime(
        agents, store=journal, ports=ports, restore=RestorePolicy.CONTEXT_ONLY
    ) as rt:
        seen = Observer(rt.hub)
        rt.hub.send_to_run(run.run_id, "after")
        assert (await run_result(rt, run.run_id)).output == "echo: after"
        await anyio.sleep(10)
        assert [x.message.content for x in seen.all("hub:dead_letter")] == ["before"]


async def test_a_policy_that_is_none_is_refused(ports: Ports) -> None:
    with pytest.raises(BadValue, match="restore"):
        Runtime(store="memory", ports=ports, restore="context")  # type: ignore[arg-type]


# ── the same over the store that ships ───────────────────────────────────────────────────────


@pytest.mark.spec("P-03", "P-10", "T-09")
@pytest.mark.parametrize("policy", list(RestorePolicy))
async def test_a_conversation_goes_on_over_the_disk(policy: RestorePolicy, tmp_path: Path) -> None:
    ports = virtual_ports()
    agents = [model_agent(echo_model(latency=100))]
    async with Runtime(
        agents, store=sqlite_store(tmp_path, ports=ports), ports=ports, grace=0
    ) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
        await run.send("more")
    hub = Hub(journal=sqlite_store(tmp_path, ports=ports), ports=ports)
    async with hub:
        seen = Observer(hub)
        async with Runtime(agents, hub=hub, restore=policy) as rt:
            outcome = await run_result(rt, run.run_id)
            await anyio.sleep(10)
    restore = seen.first("agent:restore")
    letters = [x.message.content for x in seen.all("hub:dead_letter")]
    if policy is RestorePolicy.EVERYTHING:
        assert outcome.output == "echo: more" or "more" in outcome.output
        assert (restore.reason, letters) == (LEFT, [])
    else:
        assert outcome.outcome == "interrupted"
        assert (restore.reason, letters) == (CONTEXT_ONLY, ["more"])
    assert list(StoreCheck(f"sqlite:{tmp_path}", thorough=True).problems()) == []


class Forgetful(Counting):
    """A journal that knows nothing of some runs any more."""

    gone: tuple[str, ...] = ()

    async def info(self, run_id: str) -> RunInfo | None:
        return None if run_id in self.gone else await self._inner.info(run_id)


@pytest.mark.spec("P-03", "T-09")
@pytest.mark.parametrize("above", ["waiting", "parked", "ended", "missing"])
async def test_context_only_goes_on_with_the_runs_above_only_where_they_wait(
    above: str, ports: Ports
) -> None:
    journal = MemoryJournal()
    boss = Recorder(call("helper", message="x"), "Waiting for it.")
    agents = (parent(boss, config(blocking=above == "waiting")),
              child(Recorder("never", latency=10_000)))  # fmt: skip
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("main", "Please.", once=above == "ended")
        await anyio.sleep(50)
    (below,) = await journal.find(run.run_id, "below")
    info = await journal.info(run.run_id)
    assert info is not None and info.status == ("parked" if above == "missing" else above)
    store: Any = Forgetful(journal)
    store.gone = (run.run_id,) if above == "missing" else ()
    boot = Boot(RestorePolicy.CONTEXT_ONLY)
    found = tuple(await boot.unfinished(store))
    assert found == ((run.run_id, below) if above == "waiting" else (below,))
    assert boot.cause(below, 0) == CONTEXT_ONLY
    assert (boot.cause(run.run_id, 0) == CONTEXT_ONLY) == (above == "waiting")


# ── I-15: a pause goes on while nothing runs ─────────────────────────────────────────────────


@pytest.mark.spec("I-15", "P-10")
@pytest.mark.parametrize("is_killed", [False, True], ids=["left", "killed"])
@pytest.mark.parametrize("downtime", [0, 1_000, 5_000])
async def test_a_pause_that_nobody_answers_expires_in_its_time_whoever_was_there(
    downtime: float, is_killed: bool, journal: Journal, ports: Ports
) -> None:
    definition = model_agent(Recorder(call("interrupt", prompt="Well?"), "So be it.", "Again."))
    agents = [
        AgentDefinition(name="assistant", supports_checkpointing=True, side_a=definition.side_a)
    ]
    paused = 0
    for life in range(3):
        store: Any = CrashJournal(journal)
        async with Runtime(agents, store=store, ports=ports, grace=0) as rt:
            if not life:
                run_id = (await rt.start("assistant", "hello")).run_id
                await anyio.sleep(1)
                paused = ports.clock.now()
            await anyio.sleep(100)
            if is_killed:
                store._after = store.commits
        await anyio.sleep(downtime)
    async with Runtime(agents, store=journal, ports=ports) as rt:
        left = paused / 1e6 + 3_600 - ports.clock.now() / 1e6
        if left > 0:
            await anyio.sleep(left - 5)
            assert not [x for x in await own_lane(journal, run_id)
                        if isinstance(x, e.AgentToolComplete)]  # fmt: skip
        await anyio.sleep(30)
        assert (await run_result(rt, run_id)).output == "So be it."
    (done,) = [x for x in await own_lane(journal, run_id) if isinstance(x, e.AgentToolComplete)]
    assert done.is_error and done.output.startswith("no answer came within 3600 s")
    waited = (done.at - paused) / 1e6
    # Where nothing ran when it was over, as soon as something did.
    assert waited == pytest.approx(3_599 if downtime < 5_000 else 5_100, abs=3)
    ended = [x for x in await own_lane(journal, run_id) if isinstance(x, e.SessionPromptEnd)]
    assert [x.reason for x in ended] == ["expired"]


@pytest.mark.spec("T-05", "S-07")
@pytest.mark.parametrize("end", ["terminate", "interrupt", "reset"])
async def test_a_run_that_was_ended_while_nothing_ran_begins_nothing_when_it_is_restored(
    end: str, journal: Journal, ports: Ports
) -> None:
    @tool(timeout=None)
    async def look(number: int) -> str:
        """Look."""
        await anyio.sleep_forever()
        return ""

    steps = reply("", call("look", number=1), call("look", number=2))
    worker = Agent("worker", "x", model=ScriptedModel([steps], repeat=True), tools=[look])
    below = worker.as_tool()
    lead = Agent(
        "lead", "x", model=ScriptedModel([call(below.name, message="go"), "Well."]), tools=[below]
    )
    agents = [worker, lead]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        for name in ("worker", "lead"):
            await rt.start(name, "go")
        await anyio.sleep(5)
    workers = [info.run_id for info in await journal.runs() if info.agent == "worker"]
    assert len(workers) == 2
    async with Hub(journal=journal, ports=ports) as hub:
        for run_id in workers:
            await getattr(hub, end)(run_id)
    async with Runtime(agents, store=journal, ports=ports, grace=0):
        await anyio.sleep(5)
    for run_id in workers:
        types = [event.type for event in await own_lane(journal, run_id)]
        assert "agent:tool:start" not in types[types.index("agent:restore") :]


# ── what comes while a runtime is being opened ───────────────────────────────────────────────


class Interrupted:
    """A journal at each of whose reads somebody else has his turn, before it and after it."""

    def __init__(self, inner: Any, meanwhile: Callable[[], None]) -> None:
        self._inner = inner
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def read(*args: Any, **options: Any) -> Any:
            self._meanwhile()
            await anyio.lowlevel.checkpoint()
            result = await found(*args, **options)
            self._meanwhile()
            await anyio.lowlevel.checkpoint()
            return result

        return read


@pytest.mark.spec("P-03", "R-06")
@pytest.mark.parametrize("runs", [1, 3, 60])
async def test_what_comes_while_a_runtime_is_opened_is_taken_by_runs_that_are_resumed_once(
    runs: int,
) -> None:
    agents = [model_agent(FunctionModel(lambda request: request.messages[-1].content))]
    journal, ports = MemoryJournal(), virtual_ports()
    names = [f"r{number}" for number in range(runs)]
    async with Runtime([slow()], store=journal, ports=ports, grace=0) as first:
        for name in names:
            await first.start("assistant", "go", run_id=name)
    accepted: dict[str, list[str]] = {name: [] for name in names}
    entered: list[bool] = []

    def send() -> None:
        if not entered and runtime.hub.tasks.is_open:
            for name in names:
                content = f"{name} {len(accepted[name])}"
                runtime.hub.send_to_run(name, content)
                accepted[name].append(content)

    runtime = Runtime(agents, store=Interrupted(journal, send), ports=virtual_ports())  # type: ignore[arg-type]
    seen = Observer(runtime.hub)
    async with runtime:
        entered.append(True)
        for name in names:
            assert accepted[name]
            outcome = await (await runtime.handle(name)).result()
            assert outcome.outcome == "completed"
            lane = await own_lane(journal, name)
            taken = [x.content for each in lane if isinstance(each, e.SessionTaken)
                     for x in each.items if isinstance(x, e.SessionMessage)]  # fmt: skip
            assert taken == accepted[name]
            assert [x.type for x in lane].count("agent:start") == 1
        assert not seen.all("hub:error")
