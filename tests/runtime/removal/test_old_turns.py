"""``Retention(keep_turns=…)``: old turns of a run that lives go, and it goes on as though they were
there."""

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from support.crash_journal import CrashJournal
from support.profiles import portion
from support.pruned_stores import problems
from support.stores import agents

from hubbub import Hub, Limits, Message, Retention, Runtime
from hubbub.__main__ import main
from hubbub.agents.model import UserMessage
from hubbub.agents.state import bases
from hubbub.agents.state.bases import base_behind_gap
from hubbub.agents.state.thread import Thread
from hubbub.hub.errors import BadValue, CallerError, OperatorError
from hubbub.hub.events import AgentBase, Event, HubGap, SessionMessage, SessionStart
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.runtime.inspection.as_test import recorded_test
from hubbub.runtime.inspection.replay import GoneRecord
from hubbub.runtime.remembered.snapshots import thread_of
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

KEEP = 3
KEPT = Retention(keep_turns=KEEP)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store'}"


async def talk(rt: Runtime, first: int, last: int) -> str:
    """A conversation of some turns, with a key for each message; its run."""
    run = await rt.start("bot", session_key="chat")
    for turn in range(first, last):
        await run.ask(Message(f"number {turn}", key=f"k{turn}"))
    return run.run_id


async def events_of(rt: Runtime, run_id: str) -> list[Event]:
    def look(reader: StoreReader) -> list[Event]:
        return [x.event for x in events_in(reader, run_id) if x.event.lane != "hub"]

    return await rt.hub.journal.inspect(look)


async def pass_over(rt: Runtime) -> int:
    """Have go what may go; how often turns have gone."""
    await anyio.sleep(120)
    assert rt._passes is not None
    return rt._passes.removed.cuts


def unbased(thread: Thread | None) -> Thread:
    """What a run has come to, whether or not it has bases."""
    assert thread is not None
    origin = replace(thread.origin, run_id="", root_run_id="")
    return replace(thread, based=(0, 0), origin=origin)


async def test_old_turns_go_and_the_last_ones_stay(store: str, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        assert await pass_over(rt) > 0
        events = await events_of(rt, run_id)
        assert [(x.lane, x.seq) for x in events[:2]] == [("in", 1), ("own", 1)]
        assert isinstance(events[2], AgentBase) and events[2].seq > 3
        turns = [x.turn for x in events if isinstance(x, SessionStart)]
        assert KEEP <= len(turns) < 15
        size = len(events)
        await talk(rt, 20, 40)
        await pass_over(rt)
        assert len(await events_of(rt, run_id)) < 2 * size
    if store != "memory":
        assert problems(store) == []


async def test_without_it_no_base_is_written_and_nothing_goes(store: str, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=Retention(ended="1d")) as rt:
        run_id = await talk(rt, 0, 20)
        assert await pass_over(rt) == 0
        events = await events_of(rt, run_id)
        assert not any(isinstance(x, AgentBase) for x in events)
        assert len([x for x in events if isinstance(x, SessionStart)]) == 20


async def test_a_run_comes_to_the_same_with_and_without_its_old_turns(
    tmp_path: Path, ports: Ports
) -> None:
    """After each turn and each restart, whether old turns have gone by then or not."""
    kept: list[Thread] = []
    for name, retention in (("whole", None), ("cut", Retention(keep_turns=1))):
        store = f"sqlite:{tmp_path / name}"
        for life in range(6):
            async with Runtime(agents(), store=store, ports=ports, retention=retention) as rt:
                run_id = await talk(rt, 3 * life, 3 * life + 3)
                before = unbased(await thread_of(rt.hub.journal, run_id))
                if retention is not None:
                    await pass_over(rt)
                after = unbased(await thread_of(rt.hub.journal, run_id))
                assert after == before
                used = await (await rt.start("bot", session_key="chat")).result()
                if retention is None:
                    kept.append(after)
                    total = used.tree
                else:
                    assert after == kept[life]
            assert problems(store) == []
        if retention is not None:
            assert used.tree == total
            async with Runtime(agents(), store=store, ports=ports) as rt:
                assert base_behind_gap(await events_of(rt, run_id)) > 0


async def test_a_key_counts_as_long_as_its_run_and_a_turn_that_has_gone_is_said_to(
    store: str, ports: Ports
) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        await pass_over(rt)
        run = await rt.start("bot", session_key="chat")
        for turn in (1, 19):
            again = await rt.hub.send_to_run(run_id, Message(f"number {turn}", key=f"k{turn}"))
            assert again.duplicate
        other = await rt.hub.send_to_run(run_id, Message("something else", key="k1"))
        assert not other.accepted and "key reused" in other.reason
        with pytest.raises(CallerError, match="has gone with the run's old turns; ask again with"):
            await run.ask(Message("number 1", key="k1"))
        assert (await run.ask(Message("number 19", key="k19"))).output == "It is noted."


@pytest.mark.parametrize("scope", ["run", "tree", "all"])
async def test_who_resumes_before_what_has_gone_is_told_and_who_resumes_behind_it_is_not(
    store: str, ports: Ports, scope: str
) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        others = await rt.start("bot", "hello", session_key="others")
        await others.result()
        assert await pass_over(rt) > 0
        events = await events_of(rt, run_id)
        base = next(at for at, x in enumerate(events) if isinstance(x, AgentBase))
        selected = {"run": {"run_id": run_id}, "tree": {"root_run_id": run_id}, "all": {}}[scope]
        for event, is_told in ((events[1], True), (events[base], False), (events[-3], False)):
            stream = rt.hub.subscribe("agent:*", after=rt.hub.cursor(event), **selected)
            async with stream:
                first = await anext(stream)
            assert isinstance(first, HubGap) == is_told, event
            assert not is_told or first.reason == "removed"  # type: ignore[attr-defined]


async def test_a_cursor_into_what_has_gone_yields_a_gap(store: str, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        events = await events_of(rt, run_id)
        old, young = (rt.hub.cursor(x) for x in (events[10], events[-5]))
        await pass_over(rt)
        with pytest.raises(BadValue):
            await rt.hub.read(run_id, after=old)
        assert len(await rt.hub.read(run_id, after=young)) == 4
        async with rt.hub.subscribe("*", run_id=run_id, after=old) as stream:
            async for event in stream:
                assert isinstance(event, HubGap)
                break
        left, found = await rt.hub.read(run_id), []
        async with rt.hub.subscribe("*", run_id=run_id, after="start") as stream:
            async for event in stream:
                found.append(event)
                if len(found) == len(left):
                    break
        assert found == left


async def test_a_subscriber_that_has_yet_to_read_what_goes_is_told(
    store: str, ports: Ports
) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 1)
        async with rt.hub.subscribe("*", run_id=run_id, lossless=True, buffer=1) as stream:
            await talk(rt, 1, 20)
            assert await pass_over(rt) > 0
            await talk(rt, 20, 21)
            heard: list[Event] = []
            async for event in stream:
                heard.append(event)
                if isinstance(event, SessionMessage) and event.content == "number 20":
                    break
        gaps = [x.reason for x in heard if isinstance(x, HubGap)]
        assert gaps == ["removed"]
        place = next(at for at, x in enumerate(heard) if isinstance(x, HubGap))
        assert base_behind_gap(heard[place + 1 :]) or isinstance(heard[place + 1], AgentBase)


async def test_what_it_was_is_known_from_its_base_on(store: str, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        records = [x.seq for x in await events_of(rt, run_id) if x.lane == "own"]
        known = {seq: await rt.state_at(run_id, seq) for seq in records}
        await pass_over(rt)
        first = base_behind_gap(await events_of(rt, run_id))
        for seq in records:
            if 1 < seq < first:
                with pytest.raises(GoneRecord, match=f"record {seq} has gone with its old turns"):
                    await rt.state_at(run_id, seq)
                with pytest.raises(CallerError, match="has gone with its old turns"):
                    await rt.fork(run_id, seq)
            else:
                assert await rt.state_at(run_id, seq) == known[seq]
        assert await rt.state_at(run_id) == known[records[-1]]


async def test_how_it_began_is_known_and_a_fork_begins_anew_or_where_all_is_there(
    store: str, ports: Ports
) -> None:
    """What was said to it before its first record's turn, and the rest of that, have gone."""
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        await pass_over(rt)
        first = base_behind_gap(await events_of(rt, run_id))
        assert (await rt.state_at(run_id, 1)).phase == "live"
        said = f"what belongs to record 1 has gone .* after record 0, or after one from {first} on"
        with pytest.raises(CallerError, match=said):
            await rt.fork(run_id, 1)
        for seq in (0, first):
            await rt.fork(run_id, seq)


async def test_a_run_without_its_old_turns_is_made_no_test_of(store: str, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        whole = await rt.hub.journal.inspect(lambda reader: recorded_test(reader, run_id))
        assert whole.path.suffix == ".py"
        await pass_over(rt)
        with pytest.raises(OperatorError, match="its old turns have gone"):
            await rt.hub.journal.inspect(lambda reader: recorded_test(reader, run_id))


async def test_a_fork_goes_on_from_what_is_left(store: str, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        await pass_over(rt)
        first = base_behind_gap(await events_of(rt, run_id))
        wanted: list[Any] = [(None, ""), (first, ""), (first + 1, "chosen"), (0, "")]
        for seq, new in wanted:
            fork = await rt.fork(run_id, seq, new_run_id=new)
            state, was = await rt.state_at(fork.run_id), await rt.state_at(run_id, seq)
            assert (state.conversation, state.files) == (was.conversation, was.files)
            assert (await fork.ask("and now?")).output == "It is noted."
            assert (await fork.ask("number 3")).output == "It is noted."
            thread = await thread_of(rt.hub.journal, fork.run_id)
            assert thread is not None and thread.origin.run_id == fork.run_id
            assert thread.origin.is_conversation
    if store != "memory":
        assert problems(store) == []


async def test_a_fork_knows_what_was_accepted_in_turns_that_have_gone(
    store: str, ports: Ports
) -> None:
    """And a fork of that one does; one of how the run began does not."""
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        await pass_over(rt)
        first = base_behind_gap(await events_of(rt, run_id))
        fork = await rt.fork(run_id, first)
        for of in (fork, await rt.fork(fork.run_id)):
            again = await rt.hub.send_to_run(of.run_id, Message("number 1", key="k1"))
            assert again.duplicate
            other = await rt.hub.send_to_run(of.run_id, Message("something else", key="k1"))
            assert not other.accepted and "key reused" in other.reason
            assert (await of.ask(Message("number 19", key="k20"))).output == "It is noted."
        with pytest.raises(CallerError, match="has gone with the run's old turns"):
            await fork.ask(Message("number 1", key="k1"))
        anew = await rt.fork(run_id, 0)
        assert (await anew.ask(Message("number 1", key="k1"))).output == "It is noted."
    if store != "memory":
        assert problems(store) == []


async def test_an_export_has_what_is_left_and_another_store_takes_it(
    tmp_path: Path, ports: Ports
) -> None:
    one, two = (f"sqlite:{tmp_path / name}" for name in ("one", "two"))
    async with Runtime(agents(), store=one, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        await pass_over(rt)
        events = await events_of(rt, run_id)
        thread = await thread_of(rt.hub.journal, run_id)
    export, again = tmp_path / "run.jsonl", tmp_path / "again.jsonl"
    assert main(["export", run_id, "--out", str(export), "--store", one]) == 0
    assert main(["import", str(export), "--store", two]) == 0
    assert main(["export", run_id, "--out", str(again), "--store", two]) == 0
    assert again.read_bytes() == export.read_bytes()
    assert problems(two) == []
    async with Runtime(agents(), store=two, ports=ports, retention=KEPT) as rt:
        assert await events_of(rt, run_id) == events
        assert await thread_of(rt.hub.journal, run_id) == thread
        assert (await rt.hub.send_to_run(run_id, Message("number 1", key="k1"))).duplicate
        other = await rt.hub.send_to_run(run_id, Message("something else", key="k1"))
        assert "key reused" in other.reason
        await talk(rt, 20, 40)
        assert await pass_over(rt) > 0
    assert problems(two) == []


async def test_an_import_refuses_a_key_of_nothing(tmp_path: Path, ports: Ports) -> None:
    store = f"sqlite:{tmp_path / 'one'}"
    async with Runtime(agents(), store=store, ports=ports) as rt:
        run_id = await talk(rt, 0, 2)
    export = tmp_path / "run.jsonl"
    assert main(["export", run_id, "--out", str(export), "--store", store]) == 0
    lines = export.read_bytes().splitlines()
    key = json.loads(next(x for x in lines if x.startswith(b'{"line":"accepted"')))
    key |= {"key": "forged", "number": 5}
    end = json.loads(lines[-1])
    end["lines"] += 1
    lines[-1:] = [json.dumps(key).encode(), json.dumps(end).encode()]
    export.write_bytes(b"\n".join(lines) + b"\n")
    other = f"sqlite:{tmp_path / 'two'}"
    assert main(["import", str(export), "--store", other]) != 0


async def test_what_came_before_a_run_began_stays(tmp_path: Path, ports: Ports) -> None:
    """There was no runtime at first: four items waited in its inbox when it started."""
    one, two = (f"sqlite:{tmp_path / name}" for name in ("one", "two"))
    async with Hub(journal=sqlite_store(tmp_path / "one", ports=ports), ports=ports) as hub:
        receipt = await hub.open("bot", Message("first", key="a"), session_key="chat")
        run_id = receipt.run_id
        for number in range(3):
            await hub.send_to_run(run_id, Message(f"early {number}", key=f"e{number}"))
    async with Runtime(agents(), store=one, ports=ports, retention=KEPT) as rt:
        await rt.result(run_id)
        await talk(rt, 0, 20)
        assert await pass_over(rt) > 0
        events = await events_of(rt, run_id)
        assert [(x.lane, x.seq) for x in events[:5]] == [
            ("in", 1), ("in", 2), ("in", 3), ("in", 4), ("own", 1)
        ]  # fmt: skip
        assert base_behind_gap(events) == events[5].seq
        fork = await rt.fork(run_id)
        assert (await fork.ask("and now?")).output == "It is noted."
    assert problems(one) == []
    export = tmp_path / "run.jsonl"
    assert main(["export", run_id, "--out", str(export), "--store", one]) == 0
    assert main(["import", str(export), "--store", two]) == 0
    assert problems(two) == []
    async with Runtime(agents(), store=two, ports=ports) as rt:
        for key, said in (("e1", "early 1"), ("k1", "number 1"), ("k19", "number 19")):
            assert (await rt.hub.send_to_run(run_id, Message(said, key=key))).duplicate


async def test_folders_keep_what_has_gone_and_bring_it_back(tmp_path: Path, ports: Ports) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        folder = tmp_path / "store" / "agents" / run_id
        await pass_over(rt)
        thread = await thread_of(rt.hub.journal, run_id)
    for _ in range(2):
        assert problems(store) == []
        lines = (folder / "history.jsonl").read_text().splitlines()
        said = [json.loads(line).get("text") for line in lines]
        assert {f"number {turn}" for turn in range(20)} <= {*said}
        async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
            await anyio.sleep(1)
        assert not [*folder.glob("*.corrupt*")]
    (tmp_path / "store" / "hubbub.db").unlink()  # The folder brings all of it back.
    async with Runtime(agents(), store=store, ports=ports) as rt:
        assert base_behind_gap(await events_of(rt, run_id)) == 0
        assert await thread_of(rt.hub.journal, run_id) == thread
    assert problems(store) == []


async def test_a_folder_that_is_written_again_has_what_is_left(
    tmp_path: Path, ports: Ports
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        await pass_over(rt)
        thread = await thread_of(rt.hub.journal, run_id)
    shutil.rmtree(tmp_path / "store" / "agents")
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        await anyio.sleep(1)
    assert problems(store) == []
    (tmp_path / "store" / "hubbub.db").unlink()
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        assert base_behind_gap(await events_of(rt, run_id)) > 0
        assert await thread_of(rt.hub.journal, run_id) == thread
        await talk(rt, 20, 30)
    assert problems(store) == []


async def test_a_base_of_a_later_version_has_its_run_left_alone(
    store: str, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal: Any = MemoryJournal() if store == "memory" else store
    with monkeypatch.context() as later:
        later.setattr(bases, "VERSION", 2)
        async with Runtime(agents(), store=journal, ports=ports, retention=KEPT) as rt:
            run_id = await talk(rt, 0, 12)  # Too short for a snapshot.
            other = (await rt.start("bot", "hello", session_key="other")).run_id
            await pass_over(rt)
            events = await events_of(rt, run_id)
    async with Runtime(agents(), store=journal, ports=ports, retention=KEPT) as rt:
        receipt = await rt.hub.send_to_run(run_id, "are you there?")
        await anyio.sleep(1)
        with pytest.raises(OperatorError, match="its base is of version 2, this hubbub reads 1"):
            await rt.result(run_id)
        assert (await events_of(rt, run_id))[: len(events)] == events
        run = await rt.start("bot", session_key="other")
        assert run.run_id == other and (await run.ask("and you?")).output == "It is noted."
        assert receipt.accepted


async def test_whenever_the_process_dies_nothing_is_lost(ports: Ports) -> None:
    """After each commit of a story in which old turns go, its base and its cut among them."""

    async def tell(journal: Any, crash: anyio.Event) -> str:
        async with (
            anyio.create_task_group() as tasks,
            Runtime(agents(), store=journal, ports=ports, retention=Retention(keep_turns=1)) as rt,
        ):

            async def die() -> None:
                await crash.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(die)
            for turn in range(6):
                run = await rt.start("bot", session_key="chat")
                said = Message(f"number {turn}", key=f"k{turn}")  # It may have been said before.
                (await rt.hub.send_to_run(run.run_id, said)).raise_if_rejected()
                await run.result()
                await pass_over(rt)
            run_id = run.run_id
            tasks.cancel_scope.cancel()
        return run_id if not crash.is_set() else ""

    whole = CrashJournal(MemoryJournal())
    run_id = await tell(whole, anyio.Event())
    wanted = unbased(await thread_of(whole, run_id))
    for commits in portion(range(3, whole.commits)):
        inner = MemoryJournal()
        dying = CrashJournal(inner, after=commits)
        await tell(dying, dying.crashed)
        run_id = await tell(CrashJournal(inner), anyio.Event())
        found = unbased(await thread_of(inner, run_id))
        assert found.turn >= wanted.turn and found.transcript[0] == wanted.transcript[0], commits
        said = [x.content for x in found.transcript if isinstance(x, UserMessage)]
        for turn in range(6):
            assert said.count(f"number {turn}") == 1, (commits, said)


async def test_what_a_tree_may_use_counts_the_turns_that_have_gone(
    tmp_path: Path, ports: Ports
) -> None:
    """A step of 40 model calls at most: 20 turns of two calls have used them up."""
    store, limits = f"sqlite:{tmp_path / 'store'}", Limits(model_calls=40)
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT, limits=limits) as rt:
        await talk(rt, 0, 19)
        await pass_over(rt)
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT, limits=limits) as rt:
        run = await rt.start("bot", session_key="chat")
        assert (await run.ask("the last one")).outcome == "completed"
        assert (await run.ask("one too many")).outcome == "limit"


class KeepsAll(MemoryJournal):
    cuts_lanes = False


@pytest.mark.parametrize("turns", [0, -1, 1.5, True, "3"])
async def test_what_is_no_number_of_turns_is_refused(turns: Any) -> None:
    with pytest.raises(BadValue, match="keep_turns: expected a whole number of at least 1"):
        Retention(keep_turns=turns)


async def test_a_store_from_which_no_turns_go_refuses_in_one_line(ports: Ports) -> None:
    with pytest.raises(BadValue, match="keep_turns: old turns of runs at work do not go from"):
        Runtime(agents(), store=KeepsAll(), ports=ports, retention=KEPT)


def test_what_is_done_at_rest_refuses_it(tmp_path: Path, ports: Ports) -> None:
    from hubbub.runtime.stores.retention.pruning import prune_store

    with pytest.raises(BadValue, match="only a runtime lets turns go"):
        prune_store(f"sqlite:{tmp_path}", KEPT, ports=ports)


async def test_what_has_gone_is_shown_as_gone(
    tmp_path: Path, ports: Ports, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, 0, 20)
        fork = (await rt.fork(run_id)).run_id
        used = (await (await rt.start("bot", session_key="chat")).result()).tree
        await pass_over(rt)
        assert rt.hub.removed is not None and rt.hub.removed.cuts > 0
        assert (await (await rt.start("bot", session_key="chat")).result()).tree == used
    assert main(["show", run_id, "--full", "--store", store]) == 0
    shown = capsys.readouterr().out
    assert "have gone" in shown and "number 19" in shown and "number 3" not in shown
    assert main(["diff", run_id, fork, "--store", store, "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert found["left"]["steps"] == found["right"]["steps"] == 40
    assert main(["tail", "--store", store, "--lines", "500", "--run", run_id]) == 0
    assert "all that came of turns 1 to" in capsys.readouterr().out


async def test_contents_of_turns_that_have_gone_stay_with_their_run_also_when_a_store_is_pruned(
    tmp_path: Path, ports: Ports
) -> None:
    """Its folder, which has them, may bring the run back."""
    from hubbub.runtime.stores.retention.pruning import prune_store

    place = tmp_path / "store"
    async with Runtime(agents(), store=f"sqlite:{place}", ports=ports, retention=KEPT) as rt:
        await talk(rt, 0, 20)
        assert await pass_over(rt) > 0
        its_own = {x.name for x in (place / "blobs").rglob("*") if x.is_file()}
        old = await rt.start("bot", "no more of this", session_key="old")
        await old.result()
        await rt.terminate(old.run_id)
        await anyio.sleep(60)
        await talk(rt, 20, 21)
    pruned = prune_store(f"sqlite:{place}", Retention(ended=1), ports=ports)
    assert len(pruned.trees) == 1 and len(its_own) > 15
    assert {x.name for x in (place / "blobs").rglob("*") if x.is_file()} >= its_own
