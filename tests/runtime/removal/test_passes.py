"""``Runtime(retention=…)``: what is not kept goes beside runs at work, and nothing else changes."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support.agents import model_agent
from support.pruned_stores import DAY, counted_calls, problems
from support.stores import agents

from hubbub import Message, Retention, RunContext, RunState, Runtime, agent, tool
from hubbub.hub.errors import BadValue, UnknownRun
from hubbub.hub.events import AgentComplete, Event, HubGap, SessionMessage
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.cli.text import process_lines
from hubbub.runtime.inspection.at_work import list_processes
from hubbub.runtime.models.scripted import ScriptedModel, call
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store'}"


async def roots_of(rt: Runtime) -> set[str]:
    return await rt.hub.journal.inspect(lambda reader: {*reader.roots().values()})


async def rows_of(rt: Runtime, run_id: str) -> int:
    """How many rows name a run, wherever they are, but for the note that it has gone."""

    def look(reader: StoreReader) -> int:
        found: list[Any] = [row for row in reader.event_rows([run_id]) if row.lane != "hub"]
        found += [*reader.accepted(run_id), *reader.waiting(run_id), *reader.tree(run_id)]
        notes = {key: x for key, x in reader.notes().items() if not key.startswith("gone/")}
        found += [key for key, note in notes.items() if run_id in key or run_id in note]
        return len(found)

    return await rt.hub.journal.inspect(look)


async def test_what_ended_long_ago_goes_and_all_else_stays(
    store: str, ports: Ports, tmp_path: Path
) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="2d")) as rt:
        old = await rt.run("bot", "alone")
        family = await rt.start("parent", "go", session_key="family")
        await anyio.sleep(1)
        await rt.hub.terminate(family.run_id)
        await rt.finished(family.run_id)
        chat = await rt.start("bot", Message("hello", key="k"), session_key="chat")
        await chat.result()
        await anyio.sleep(DAY)
        young = await rt.run("bot", "young")
        await anyio.sleep(1.5 * DAY)
        assert await roots_of(rt) == {chat.run_id, young.run_id}
        for gone in (old.run_id, family.run_id):
            assert await rows_of(rt, gone) == 0
            receipt = await rt.hub.send_to_run(gone, "are you there?")
            assert (receipt.accepted, receipt.reason) == (False, "unknown")
            with pytest.raises(UnknownRun):
                await rt.result(gone)
        again = await rt.start("parent", "go", session_key="family")
        assert again.run_id != family.run_id
        await rt.hub.terminate(again.run_id)
        if (tmp_path / "store").exists():
            names = {place.name for place in (tmp_path / "store" / "agents").iterdir()}
            assert chat.run_id in names and family.run_id not in names
    if store != "memory":
        assert problems(store) == []


async def test_the_last_that_ended_stay_however_old_they_are(store: str, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(keep_last=3)) as rt:
        runs = [(await rt.run("bot", f"number {number}")).run_id for number in range(70)]
        await anyio.sleep(DAY)
        assert await roots_of(rt) == {*runs[-3:]}


async def test_many_small_trees_go_in_few_transactions(tmp_path: Path, ports: Ports) -> None:
    """Each in its commit: a busy store has them go as fast as others come."""
    store = sqlite_store(tmp_path / "store", ports=ports)
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="2d")) as rt:
        for number in range(90):
            await rt.run("bot", f"number {number}")
        chat = await rt.start("bot", "hello", session_key="chat")
        await chat.result()
        await anyio.sleep(1.9 * DAY)
        assert len(await roots_of(rt)) == 91
        apply, batches = store._writer.apply, 0

        def counted(batch: Any) -> Any:
            nonlocal batches
            batches += 1
            return apply(batch)

        store._writer.apply = counted  # type: ignore[method-assign]
        await anyio.sleep(DAY / 2)
        assert await roots_of(rt) == {chat.run_id}
        assert batches < 20


async def test_beyond_a_size_the_oldest_go(store: str, ports: Ports) -> None:
    retention = Retention(max_bytes="20kB", ended="30d")
    async with Runtime(agents(), store=store, ports=ports, retention=retention) as rt:
        runs = [(await rt.run("bot", f"number {number}")).run_id for number in range(60)]
        await anyio.sleep(DAY)
        kept = await roots_of(rt)
        assert kept == {*runs[-len(kept) :]} and 1 < len(kept) < 60

        def size(reader: StoreReader) -> int:
            return sum(len(row.body) for row in reader.event_rows())

        total = await rt.hub.journal.inspect(size)
        assert 20_000 - 2 * total // len(kept) < total <= 20_000


async def test_events_are_measured_once_also_where_a_store_forgets_runs_by_itself(
    ports: Ports,
) -> None:
    journal = MemoryJournal(keep=50, keep_hub_events=5)
    retention = Retention(max_bytes="1GB", silent=9 * DAY)  # A pass takes place every hour.
    async with Runtime(agents(), store=journal, ports=ports, retention=retention) as rt:
        assert rt._passes is not None
        calls: list[int] = []
        for _ in range(3):
            for number in range(100):
                await rt.run("bot", f"number {number}")
                await rt.hub.send_to_run("nobody", "a letter that is dead")
            for _ in range(2):
                with counted_calls() as counted:
                    await rt._passes.make_pass()
                calls.append(counted[0])
            size = sum(len(row.body) for row in journal.reader().event_rows())
            assert rt._passes._measured.size == size
        assert all(later < first / 3 for first, later in zip(calls[::2], calls[1::2], strict=True))


async def test_a_tree_of_which_nothing_is_heard_is_ended_and_goes_after_that(
    store: str, ports: Ports
) -> None:
    retention = Retention(silent="10d", ended="2d")
    async with Runtime(agents(), store=store, ports=ports, retention=retention) as rt:
        quiet = await rt.start("bot", "hello", session_key="quiet")
        lively = await rt.start("bot", "hello", session_key="lively")
        await quiet.result()
        endings: list[AgentComplete] = []
        with rt.hub.subscribe("agent:complete", endings.append):
            for day in range(11):
                await rt.hub.send_to_run(lively.run_id, f"day {day}")
                await anyio.sleep(DAY)
        assert [(x.run_id, x.outcome) for x in endings] == [(quiet.run_id, "terminated")]
        assert "silent for 864,000 seconds" in (endings[0].reason or "")
        assert await roots_of(rt) == {quiet.run_id, lively.run_id}
        await rt.hub.send_to_run(lively.run_id, "once more")
        await anyio.sleep(3 * DAY)
        assert await roots_of(rt) == {lively.run_id}


async def test_what_waits_for_somebody_is_never_silent(store: str, ports: Ports) -> None:
    retention = Retention(silent="1d")
    async with Runtime(agents(), store=store, ports=ports, retention=retention) as rt:
        family = await rt.start("parent", "go", session_key="family")
        timed = await rt.start("bot", "hello", session_key="timed", timeout=30 * DAY)
        await anyio.sleep(10 * DAY)
        live = await rt.hub.journal.runs()
        assert {family.run_id, timed.run_id} <= {info.run_id for info in live}
        await rt.hub.terminate(family.run_id)


async def test_a_tree_in_which_a_child_has_ended_lately_is_not_silent(
    store: str, ports: Ports
) -> None:
    """Though the runs that live have said nothing for long."""

    @agent("worker")
    async def worker(input: Any, ctx: Any) -> str:
        await anyio.sleep(8 * DAY)
        return "done"

    @tool
    async def hire(state: RunState) -> str:
        """Have somebody work who reports to nobody."""
        state.spawn("worker", "go", result="ignore")
        return "hired"

    answers = ScriptedModel([call("hire"), "Hired."])
    desk = model_agent(answers, hire, name="desk")
    retention = Retention(silent="10d")
    async with Runtime([desk, worker], store=store, ports=ports, retention=retention) as rt:
        run = await rt.start("desk", "hello", session_key="chat")
        await run.result()
        await anyio.sleep(14 * DAY)
        assert {info.run_id for info in await rt.hub.journal.runs()} == {run.run_id}
        await anyio.sleep(6 * DAY)
        assert await rt.hub.journal.runs() == []


async def test_a_cursor_into_what_is_gone_yields_a_gap(store: str, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="1d")) as rt:
        await rt.run("bot", "old")
        async with rt.hub.subscribe("*", after="start") as events:
            async for _ in events:
                cursor = events.cursor
                break
        await anyio.sleep(DAY)
        await rt.run("bot", "young")
        await anyio.sleep(0.5 * DAY)
        async with rt.hub.subscribe("*", after=cursor) as events:
            async for event in events:
                assert isinstance(event, HubGap)
                break
        with pytest.raises(BadValue, match="no longer kept"):
            await rt.hub.read(after=cursor)


async def test_who_resumes_before_what_has_gone_is_told(store: str, ports: Ports) -> None:
    """Of everything; a run or a tree that is there has all that it had."""
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="1d")) as rt:
        chat = await rt.start("bot", "hello", session_key="chat")
        await chat.result()
        (*_, last) = await rt.hub.read(chat.run_id)
        cursor = rt.hub.cursor(last)
        await rt.run("bot", "old")
        await anyio.sleep(DAY)
        await chat.ask("still there?")
        await anyio.sleep(0.5 * DAY)
        for selected, is_told in (({}, True), ({"run_id": chat.run_id}, False)):
            for after, is_gap in ((cursor, is_told), ("start", False)):
                async with rt.hub.subscribe("*", after=after, **selected) as events:
                    event = await anext(events)
                assert isinstance(event, HubGap) == is_gap, (selected, after)


@pytest.mark.parametrize("scope", ["all", "gone", "kept"])
async def test_a_subscriber_that_is_behind_is_told_of_what_went_before_it_was_read(
    store: str, ports: Ports, scope: str
) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="1d")) as rt:
        chat = await rt.start("bot", "hello", session_key="chat")
        await chat.result()
        old = await rt.start("bot", "old")
        run_id = {"all": None, "gone": old.run_id, "kept": chat.run_id}[scope]
        async with rt.hub.subscribe("*", run_id=run_id, lossless=True, buffer=1) as events:
            await rt.hub.terminate(old.run_id)
            await rt.finished(old.run_id)
            await rt.hub.send_to_run(chat.run_id, "and?")
            await anyio.sleep(2 * DAY)
            await rt.hub.send_to_run(chat.run_id, "still there?")
            assert await rows_of(rt, old.run_id) == 0
            heard: list[Event] = []
            async for event in events:
                heard.append(event)
                is_last = isinstance(event, SessionMessage) and event.content == "still there?"
                if is_last or (scope == "gone" and isinstance(event, HubGap)):
                    break
        gaps = [x.reason for x in heard if isinstance(x, HubGap)]
        assert gaps == ([] if scope == "kept" else ["removed"])
        if scope != "gone":
            place = heard.index(next(x for x in heard if isinstance(x, HubGap))) if gaps else 0
            said = [x.content for x in heard[place:] if isinstance(x, SessionMessage)]
            assert said == ["and?", "still there?"]


@agent("teller")
async def teller(input: int, ctx: RunContext) -> str:
    for number in range(input):
        ctx.say(f"line {number}")
    return "told"


@pytest.mark.parametrize("read", [0, 1, 700])
async def test_the_events_of_a_run_end_behind_a_gap_where_it_went_before_they_were_read(
    store: str, ports: Ports, read: int
) -> None:
    keeping = Retention(ended="1d")
    async with Runtime([*agents(), teller], store=store, ports=ports, retention=keeping) as rt:
        run = await rt.start("teller", 2_000)
        assert (await run.result()).output == "told"
        heard: list[Event] = []
        async with run.events() as events:
            while len(heard) < read:
                heard.append(await anext(events))
            await rt.run("bot", "the last event of the store is another run's")
            await anyio.sleep(2 * DAY)
            assert await rows_of(rt, run.run_id) == 0
            with anyio.fail_after(DAY):
                heard += [event async for event in events]
        assert [type(x) for x in heard[-1:]] == [HubGap]
        assert not any(isinstance(event, AgentComplete) for event in heard)


async def test_the_events_of_a_run_that_memory_keeps_no_longer_end_behind_a_gap(
    ports: Ports,
) -> None:
    async with Runtime([teller], store=MemoryJournal(keep=2), ports=ports) as rt:
        run = await rt.start("teller", 2_000)
        await run.result()
        async with run.events() as events:
            heard = [await anext(events)]
            for _ in range(5):
                await rt.run("teller", 1)
            with anyio.fail_after(60):
                heard += [event async for event in events]
        assert isinstance(heard[-1], HubGap) and heard[-1].reason == "removed"
        assert not any(isinstance(event, HubGap) for event in heard[:-1])


async def test_the_last_event_of_the_store_stays_so_that_no_position_is_used_twice(
    tmp_path: Path, ports: Ports
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    for round_ in range(3):
        async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended=60)) as rt:
            tip = rt.hub.journal.tip
            run = await rt.run("bot", f"round {round_}")
            assert rt.hub.journal.tip > tip
            await anyio.sleep(DAY)
            assert await roots_of(rt) == {run.run_id}
            tip = rt.hub.journal.tip
    assert problems(store) == []


async def test_a_message_that_comes_before_an_end_by_silence_keeps_the_tree(
    store: str, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubbub.runtime.removal import passes

    async with Runtime(agents(), store=store, ports=ports, retention=Retention(silent="1d")) as rt:
        chat = await rt.start("bot", "hello", session_key="chat")
        await chat.result()
        look = passes.RetentionPasses._look

        async def spoken_to_meanwhile(self: Any, at: Any) -> Any:
            page = await look(self, at)
            if page.trees:
                await rt.hub.send_to_run(chat.run_id, "still there?")
            return page

        monkeypatch.setattr(passes.RetentionPasses, "_look", spoken_to_meanwhile)
        await anyio.sleep(1.05 * DAY)
        (info,) = await rt.hub.journal.runs()
        assert info.run_id == chat.run_id and info.inbox == "open"


async def test_what_has_gone_and_when_is_told_in_the_process_and_to_who_reads_the_store(
    store: str, ports: Ports
) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="2d")) as rt:
        began = rt.hub.ports.clock.now()
        await rt.run("bot", "old")
        await rt.run("bot", "young")
        await anyio.sleep(3 * DAY + 60)
        told = await rt.hub.ask("runtime", "statistics")
        removed = rt.hub.statistics().removed
        assert removed is not None and told["removed"] == msgspec.to_builtins(removed)
        assert (removed.since, removed.trees, removed.runs) == (began, 1, 1)
        assert removed.events > 5 and removed.problems == 0
        now = rt.hub.ports.clock.now()
        assert removed.passed is not None and now - removed.passed < 3_600_000_000
        assert (await rt.hub.ask("runtime", "workers"))["removed"] == told["removed"]
    if store != "memory":
        with open_reader(store) as reader:
            kept = list_processes(reader, now)
        assert kept.removed == removed
        *_, line = process_lines(kept, now)
        assert line.startswith("retention: removed in the last 3 d: 1 trees (1 runs, ")
        assert ", 1 contents of files (9 bytes); last pass " in line and line.endswith(" ago")
    async with Runtime(agents(), ports=ports) as rt:
        assert rt.hub.statistics().removed is None


class Foreign(MemoryJournal):
    """A store from which nothing goes."""

    prepare_removals = property()  # type: ignore[assignment]


def test_what_is_no_retention_or_no_store_for_one_is_refused_in_one_line() -> None:
    with pytest.raises(BadValue, match="retention: expected a Retention, not str"):
        Runtime(store="memory", retention="30d")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="use hubbub prune at rest"):
        Runtime(store=Foreign(), retention=Retention(ended=1))
