"""Old turns of a long run go step by step: wherever that stops, the run is one whose beginning is
longer for a while, and everything that can be asked of it is answered as before or after."""

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.killed_steps import killed_before, steps_of
from support.profiles import portion
from support.pruned_stores import problems
from support.stores import agents
from support.virtual_time import VirtualTimeLoop

from hubbub import Message, Retention, Runtime
from hubbub.__main__ import main
from hubbub.agents.state.bases import base_behind_gap
from hubbub.agents.state.thread import Thread
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.events import AgentBase, Event, HubGap, SessionMessage
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.hub.virtual import EPOCH, InlineOffload, InlineWorker, LoopClock, virtual_ports
from hubbub.runtime.inspection.replay import GoneRecord
from hubbub.runtime.remembered.snapshots import thread_of
from hubbub.runtime.removal import old_turns
from hubbub.runtime.stores.open import sqlite_store

KEPT = Retention(keep_turns=3)
TURNS = 16
LOOP = {"loop_factory": VirtualTimeLoop}


async def talk(rt: Runtime, first: int, last: int) -> str:
    run = await rt.start("bot", session_key="chat")
    for turn in range(first, last):
        await run.ask(Message(f"number {turn}", key=f"k{turn}"))
    return run.run_id


async def grow(store: Any, ports: Ports) -> str:
    """A run that was never cut, and that is to be cut at its first base and at its second one:
    the passes of its last life come too late."""
    async with Runtime(agents(), store=store, ports=ports) as rt:
        await talk(rt, 0, TURNS)
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        run_id = await talk(rt, TURNS, TURNS + 10)
        assert rt._passes is not None
        rt._passes.stop()
        return await talk(rt, TURNS + 10, TURNS + 20)
    return run_id


async def events_of(rt: Runtime, run_id: str) -> list[Event]:
    def look(reader: StoreReader) -> list[Event]:
        return [x.event for x in events_in(reader, run_id) if x.event.lane != "hub"]

    return await rt.hub.journal.inspect(look)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_turns, "STEP", 15)


@pytest.fixture
def tiny_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of turns."""
    monkeypatch.setattr(old_turns, "STEP", 13)
    monkeypatch.setattr(old_turns, "MAX_STEP", 1)


class Stopped(Exception):
    """The process is gone."""


class StopsAt:
    """A store that takes only so many commits that cut."""

    def __init__(self, inner: Any, cuts: int) -> None:
        self._inner, self._left = inner, cuts

    def submit(self, commit: Commit) -> None:
        if commit.cut is not None:
            self._left -= 1
            if self._left < 0:
                commit.error = "conflict"
                if commit.done is not None:
                    commit.done(commit)
                return
        self._inner.submit(commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def journal() -> Any:
        if request.param == "memory":
            return memory
        return sqlite_store(tmp_path / "store", ports=virtual_ports())

    memory = MemoryJournal()
    return journal


async def cut_so_often(journal: Any, ports: Ports, cuts: int, more: int = 0) -> bool:
    """A life in which a cut goes so far, and no further, and then so many turns are taken; whether
    it was done."""
    stopping = StopsAt(journal, cuts)
    async with Runtime(agents(), store=stopping, ports=ports, retention=KEPT) as rt:
        await anyio.sleep(120)
        assert rt._passes is not None
        rt._passes.stop()
        for turn in range(more):
            await (await rt.start("bot", session_key="chat")).ask(f"between {turn}")
    return stopping._left >= 0


async def check_half_cut(
    rt: Runtime, run_id: str, whole: list[Event], known: dict[int, Any], thread: Thread | None
) -> None:
    left = await events_of(rt, run_id)
    base = base_behind_gap(left)
    if base:
        place = next(at for at, x in enumerate(left) if x.lane == "own" and x.seq == base)
        assert isinstance(left[place], AgentBase)
        assert left[place:] == whole[len(whole) - len(left) + place :]
    assert await thread_of(rt.hub.journal, run_id) == thread
    there = {x.seq for x in left if x.lane == "own"}
    for seq, state in known.items():
        if seq in there:
            assert await rt.state_at(run_id, seq) == state, seq
        else:
            with pytest.raises(GoneRecord):
                await rt.state_at(run_id, seq)
        if seq not in there or 0 < seq < base:
            is_left = "what belongs to " * (seq in there)
            said = f": {is_left}record {seq} has gone with its old turns; .* from {base} on"
            with pytest.raises(CallerError, match=said):
                await rt.fork(run_id, seq)
    for event in (left[1], left[len(left) // 2], whole[len(whole) // 4]):
        cursor = rt.hub.cursor(event)
        own = base and event.seq < base if event.lane == "own" else None
        async with rt.hub.subscribe("*", run_id=run_id, after=cursor) as stream:
            first = await anext(stream)
        if event not in left or own:
            assert isinstance(first, HubGap)
        if event in left:
            assert await rt.hub.read(run_id, after=cursor) == left[left.index(event) + 1 :]
        else:
            with pytest.raises(BadValue):
                await rt.hub.read(run_id, after=cursor)
    run = await rt.start("bot", session_key="chat")
    items = {x.key: x for x in left if isinstance(x, SessionMessage)}
    for turn in range(0, TURNS, 7):
        said = Message(f"number {turn}", key=f"k{turn}")
        assert (await rt.hub.send_to_run(run_id, said)).duplicate
        other = await rt.hub.send_to_run(run_id, Message("else", key=f"k{turn}"))
        assert "key reused" in other.reason
        if base and (said.key not in items or items[said.key].seq < left[place - 1].seq):
            with pytest.raises(CallerError, match="has gone with the run's old turns"):
                await run.ask(said)


@pytest.mark.anyio
@pytest.mark.parametrize("steps", ["small_steps", "tiny_steps"])
async def test_wherever_a_cut_stops_the_run_is_what_it_was(
    make: Any, steps: str, ports: Ports, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(steps)
    journal = make()
    run_id = await grow(journal, ports)
    async with Runtime(agents(), store=make(), ports=ports) as rt:
        whole = await events_of(rt, run_id)
        thread = await thread_of(rt.hub.journal, run_id)
        every = [x.seq for x in whole if x.lane == "own"]
        known = {seq: await rt.state_at(run_id, seq) for seq in every[::9]}
    is_done, lives = False, 0
    while not is_done:
        is_done = await cut_so_often(make(), ports, 2)
        lives += 1
        async with Runtime(agents(), store=make(), ports=ports) as rt:
            await check_half_cut(rt, run_id, whole, known, thread)
    assert lives > 4
    async with Runtime(agents(), store=make(), ports=ports) as rt:
        left = await events_of(rt, run_id)
        assert [(x.lane, x.seq) for x in left[:2]] == [("in", 1), ("own", 1)]
        assert left[2].seq == base_behind_gap(left)
        assert (await rt.fork(run_id)).run_id
        run = await rt.start("bot", session_key="chat")
        assert (await run.ask("and now?")).output == "It is noted."


@pytest.mark.anyio
@pytest.mark.parametrize("steps", ["small_steps", "tiny_steps"])
async def test_what_is_half_cut_is_exported_imported_shown_and_forked(
    tmp_path: Path, steps: str, ports: Ports, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(steps)
    place = tmp_path / "store"
    one = f"sqlite:{place}"
    run_id = await grow(sqlite_store(place, ports=ports), ports)
    for lives in range(6):  # Before one cut is done the next one begins.
        store = sqlite_store(place, ports=ports)
        is_done = await cut_so_often(store, ports, 2 if lives < 5 else 1_000, more=4)
        assert is_done == (lives == 5)
        assert problems(one) == []
        two, export, again = (tmp_path / f"{name}{lives}" for name in ("two", "export", "again"))
        assert main(["export", run_id, "--out", str(export), "--store", one]) == 0
        assert main(["import", str(export), "--store", f"sqlite:{two}"]) == 0
        assert main(["export", run_id, "--out", str(again), "--store", f"sqlite:{two}"]) == 0
        assert again.read_bytes() == export.read_bytes()
        assert problems(f"sqlite:{two}") == []
        assert main(["show", run_id, "--store", one]) == 0
        async with Runtime(agents(), store=f"sqlite:{two}", ports=ports, retention=KEPT) as rt:
            fork = await rt.fork(run_id)
            assert (await fork.ask("number 3")).output == "It is noted."
            await anyio.sleep(120)
            left = await events_of(rt, run_id)
            assert left[2].seq == base_behind_gap(left)
        assert problems(f"sqlite:{two}") == []


@pytest.mark.anyio
async def test_folders_keep_what_goes_step_by_step(
    tmp_path: Path, small_steps: None, ports: Ports
) -> None:
    place = tmp_path / "store"
    run_id = await grow(sqlite_store(place, ports=ports), ports)
    for _ in range(4):
        await cut_so_often(sqlite_store(place, ports=ports), ports, 2, more=4)
        assert problems(f"sqlite:{place}") == []
        said = (place / "agents" / run_id / "history.jsonl").read_text().splitlines()
        texts = {json.loads(line).get("text") for line in said}
        assert {f"number {turn}" for turn in range(TURNS + 20)} <= texts
    assert not [*(place / "agents").rglob("*.corrupt*")]


@pytest.mark.anyio
async def test_who_reads_while_a_cut_goes_on_is_told_and_gets_what_is_left(
    make: Any, small_steps: None, ports: Ports
) -> None:
    run_id = await grow(make(), ports)
    async with Runtime(agents(), store=make(), ports=ports, retention=KEPT) as rt:
        heard: list[Event] = []
        async with rt.hub.subscribe("*", run_id=run_id, after="start", lossless=True) as stream:
            heard.append(await anext(stream))  # A page is read; the rest of it goes meanwhile.
            await anyio.sleep(120)
            await talk(rt, TURNS + 20, TURNS + 21)
            async for event in stream:
                heard.append(event)
                if isinstance(event, SessionMessage) and event.content == f"number {TURNS + 20}":
                    break
        own = [x.seq for x in heard if x.lane == "own"]
        told = any(isinstance(x, HubGap) and x.reason == "removed" for x in heard)
        assert told or own == [*range(1, own[-1] + 1)]
        assert rt.hub.removed is not None and rt.hub.removed.cuts == 1


def live(folder: Path) -> None:
    """A life in which one pass is made."""

    async def pass_by() -> None:
        clock = LoopClock(EPOCH + (3 * 86_400 * 1_000_000))
        ports = Ports(clock=clock, offload=InlineOffload(), make_worker=InlineWorker)
        async with Runtime(agents(), store=f"sqlite:{folder}", ports=ports, retention=KEPT):
            await anyio.sleep(1)

    anyio.run(pass_by, backend="asyncio", backend_options=LOOP)


@pytest.mark.long
def test_killed_before_any_step_of_a_cut_the_next_life_goes_on(
    tmp_path: Path, small_steps: None
) -> None:
    made = tmp_path / "made"

    async def make() -> str:
        ports = virtual_ports()
        return await grow(sqlite_store(made, ports=ports), ports)

    run_id = anyio.run(make, backend="asyncio", backend_options=LOOP)
    shutil.copytree(made, tmp_path / "all")
    steps = steps_of(lambda: live(tmp_path / "all"), tmp_path)
    at_end = exported(tmp_path / "all", run_id)
    there = tmp_path / "killed"
    for step in portion(range(1, steps + 1)[::4]):
        shutil.copytree(made, there)
        assert killed_before(step, lambda: live(there))
        assert problems(f"sqlite:{there}") == [], f"killed before step {step}"
        live(there)
        assert exported(there, run_id) == at_end, f"killed before step {step}"
        assert problems(f"sqlite:{there}") == [], f"killed before step {step}"
        shutil.rmtree(there)


def exported(folder: Path, run_id: str) -> list[str]:
    """What a store has of a run, but for what each life adds."""
    out = folder.parent / "exported.jsonl"
    out.unlink(missing_ok=True)
    store = f"sqlite:{folder}"
    assert main(["export", run_id, "--out", str(out), "--store", store]) == 0
    return out.read_text().splitlines()


class Counting(MemoryJournal):
    """Counts what goes with each commit that cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def submit(self, commit: Commit) -> None:
        if commit.cut is not None:
            self.sizes.append(0)
        super().submit(commit)

    def _forget(self, position: int) -> None:
        self.sizes[-1] += 1
        super()._forget(position)


@pytest.mark.anyio
async def test_no_step_of_a_long_run_is_larger_than_another(ports: Ports) -> None:
    """In memory, where each is done in the loop."""
    journal = Counting()
    async with Runtime(agents(), store=journal, ports=ports) as rt:
        await talk(rt, 0, 300)
    async with Runtime(agents(), store=journal, ports=ports, retention=KEPT) as rt:
        await talk(rt, 300, 400)
        await anyio.sleep(120)
    sizes = journal.sizes
    assert len(sizes) > 3 and sum(sizes) > 2_000
    assert max(sizes) < 550
