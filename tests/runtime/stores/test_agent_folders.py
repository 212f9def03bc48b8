"""``agents/<id>/``: a faithful projection of the store, and the way back (AT, P-01 … P-04)."""

import hashlib
import json
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.agents import echo_model, model_agent
from support.families import Recorder, child, config, parent
from support.profiles import examples

from hubbub import AgentDefinition, Message, RunContext, RunState, Runtime, SideConfig, agent, tool
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.folders.history import follow
from hubbub.agents.folders.history_lines import write_line
from hubbub.agents.folders.read_back import ReadBack, read_back
from hubbub.agents.folders.state_file import begin, read_state, write_state
from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.descriptors import SubagentDescriptor, UserDescriptor, encode_descriptor
from hubbub.hub.store.journal import Commit, RunInfo, Selection
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.values import Secret
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, ScriptedModel, call, reply
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.lines import read_history
from hubbub.runtime.stores.folders.read import Adopted, Broken
from hubbub.runtime.stores.folders.write import AgentFolders, Projected, folder_name, run_id_of

pytestmark = pytest.mark.anyio


def now(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine of the memory journal returns, which never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


class Watched:
    """A memory journal whose commits are handed on, in order, before anybody is told of them."""

    def __init__(self, project: Callable[[list[Projected]], None] = lambda _: None) -> None:
        self.inner = MemoryJournal()
        self.project = project
        self.commits: dict[str, list[list[Event]]] = defaultdict(list)

    def submit(self, commit: Commit) -> None:
        done = commit.done

        def finished(commit: Commit) -> None:
            self._written(commit)
            if done is not None:
                done(commit)

        commit.done = finished
        self.inner.submit(commit)

    def _written(self, commit: Commit) -> None:
        by_run: dict[str, list[Event]] = {}
        for event in commit.written:
            if event.lane in ("own", "in"):
                by_run.setdefault(event.run_id, []).append(event)
        for run_id, events in by_run.items():
            self.commits[run_id].append(events)
        self.project([Projected(self.of(run_id), events) for run_id, events in by_run.items()])

    def of(self, run_id: str) -> RunInfo:
        info = now(self.inner.info(run_id))
        local = UserDescriptor(connector="local", user_id="local", channel_id=run_id)
        return structs.replace(info, descriptor=info.descriptor or local)

    def events(self, run_id: str) -> list[Event]:
        found, _ = now(self.inner.read(Selection(run_id=run_id), limit=10**9))
        return [event for event in found if event.lane in ("own", "in")]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


# ── worlds ───────────────────────────────────────────────────────────────────────────────────


@tool(idempotent=True)
async def look(number: int) -> str:
    """Look."""
    await anyio.sleep(number % 3)
    return f"seen {number}"


@tool
async def keep(name: str, text: str, state: RunState) -> str:
    """Keep a file and a value."""
    await state.files.write(name, text)
    await state.kv.set(name, {"text": text})
    if text == "3":
        await state.files.delete(name)
    state.hub.emit(e.AgentText(text="said on the way"))
    return "kept"


def a_script(draw: random.Random) -> list[Any]:
    script: list[Any] = []
    for number in range(12):
        calls = [
            call("look", number=number) if draw.random() < 0.6
            else call("keep", name=f"f{draw.randint(0, 2)}.txt", text=str(draw.randint(0, 3)))
            for _ in range(draw.randint(0, 3))
        ]  # fmt: skip
        if draw.random() < 0.2:
            script.append(Fault("server", times=1))
        script.append(reply(f"text {number}" if draw.random() < 0.8 else "", *calls)
                      if calls else f"answer {number}")  # fmt: skip
    return [*script, *["and so on"] * 60]


async def conversation(store: Any, seed: int) -> None:
    """One side: tools, files, values, interruptions, resets, silent messages, an end."""
    draw = random.Random(seed)
    model = ScriptedModel(a_script(draw), latency=1)
    definition = model_agent(model, look, keep, parallel_tool_calls=bool(seed % 2), max_steps=6)
    ports = virtual_ports()
    async with Runtime([definition], store=store, ports=ports, grace=0) as runtime:
        hub = runtime.hub
        run_id = ports.ids.run_id(ports.clock.now())
        await hub.open("assistant", "hello", run_id=run_id, session_key="web_1_2")
        for number in range(draw.randint(2, 6)):
            match draw.randint(0, 6):
                case 0:
                    hub.send(Message("psst", silent=True), session_key="web_1_2")
                case 1:
                    hub.emit(e.SessionReset(run_id=run_id, message=draw.choice(["", "afresh"])))
                case 2:
                    hub.emit(e.SessionAbort(run_id=run_id, reason="enough"))
                case _:
                    hub.send_to_run(run_id, Message(f"message {number}", key=f"k{number}"))
            await anyio.sleep(draw.choice([0.3, 2, 20]))
        if draw.random() < 0.3:
            hub.emit(e.SessionTerminate(run_id=run_id, reason="over"))
            await anyio.sleep(1)


async def family(store: Any, seed: int) -> None:
    """Children in every mode, two-sided, some of whose results come while others are awaited."""
    draw = random.Random(seed)
    stays, blocking, at_once = draw.random() < 0.6, draw.random() < 0.5, draw.random() < 0.4
    worker = ScriptedModel(
        [
            x for n in range(40) for x in (
                f"thinking {n}",
                reply("", call("write_file", path="out.txt", text=str(n))),
                reply("", call("finish", result=f"result {n}", files=["out.txt"]))
                if n % 3 else reply("", call("give_up", reason="no luck")),
            )
        ], latency=1,
    )  # fmt: skip

    def begin_with(name: str) -> Any:
        if stays:
            return call("subagent_create", agent="helper", name=name, arguments={"message": name})
        return call("helper", message=name)

    def again(request: ModelRequest) -> Any:
        found = [m.content for m in request.messages if isinstance(m, UserMessage)]
        found += [c.output for m in request.messages if isinstance(m, AssistantMessage)
                  for c in m.calls]  # fmt: skip
        found += list(request.system_notes)
        ids = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", " ".join(found))
        if not ids or not stays:
            return "Nobody is there."
        return call("subagent_message", reference=ids[-1], message="Again.")

    steps = [
        begin_with("one") if draw.random() < 0.5 else reply("Two.", begin_with("two")),
        reply("", begin_with("three"), call("look", number=2)), again, "So far.", again,
    ]  # fmt: skip
    more = {"immediate": True} if at_once else {}
    lead = parent(Recorder(*steps, latency=1), config(blocking=blocking, stays=stays, **more), look)
    agents, ports = [lead, child(worker)], virtual_ports()
    async with Runtime(agents, store=store, ports=ports, grace=0) as runtime:
        run_id = ports.ids.run_id(ports.clock.now())
        await runtime.hub.open("main", "lead", run_id=run_id, session_key="a_b_c")
        for _ in range(draw.randint(1, 3)):
            await anyio.sleep(draw.choice([0.5, 2.5, 4, 7, 60]))
            if draw.random() < 0.5:
                runtime.hub.emit(e.SessionAbort(run_id=run_id, reason="stop it"))
            runtime.hub.send_to_run(run_id, "and now?")
        await anyio.sleep(draw.choice([3, 60]))


async def code(store: Any, seed: int) -> None:
    """A code agent that reads messages and starts another."""

    @agent("little")
    async def little(input: int, ctx: RunContext) -> int:
        return input + 1

    @agent("coder")
    async def coder(input: dict[str, int], ctx: RunContext) -> str:
        ctx.say("at work")
        run = ctx.spawn("little", input["n"])
        await run
        heard = []
        async for message in ctx.messages():
            heard.append(message.content)
            ctx.say(f"heard {message.content}")
        return ", ".join(heard)

    ports = virtual_ports()
    async with Runtime([coder, little], store=store, ports=ports, grace=0) as runtime:
        run_id = ports.ids.run_id(ports.clock.now())
        await runtime.hub.open("coder", {"n": seed}, run_id=run_id)
        for number in range(seed % 4):
            await runtime.hub.send_to_run(run_id, f"m{number}")
        if seed % 2:
            await runtime.hub.close_run(run_id)
        await anyio.sleep(5)


async def handoff(store: Any, seed: int) -> None:
    """One agent hands the conversation over to another."""
    first = PromptDefinition(
        name="first", prompt="You greet.", tools=("expert",),
        model=ScriptedModel([reply("One moment.", call("expert"))] * 3, latency=1),
    )  # fmt: skip
    second = PromptDefinition(
        name="second", prompt="You know.", tools=(look,),
        model=ScriptedModel([reply("", call("look", number=1)), *["Here I am."] * 9], latency=1),
    )  # fmt: skip
    agents = [
        AgentDefinition(name="greeter", side_a=SideConfig(prompt=first)),
        AgentDefinition(
            name="expert", side_a=SideConfig(prompt=second), expose_as_tool=True,
            tool_description="knows",
        ),
    ]  # fmt: skip
    ports = virtual_ports()
    async with Runtime(agents, store=store, ports=ports, grace=0) as runtime:
        run_id = ports.ids.run_id(ports.clock.now())
        await runtime.hub.open("greeter", "help", run_id=run_id)
        await anyio.sleep(30)
        await runtime.hub.send_to_run(run_id, "thanks")
        await anyio.sleep(30)


WORLDS = {"conversation": conversation, "family": family, "code": code, "handoff": handoff}


# ── what must be the same ────────────────────────────────────────────────────────────────────


def plain(thread: Thread) -> dict[str, Any]:
    """What counts of a thread, reasoning aside."""
    transcripts = [
        [structs.replace(m, thinking=()) if isinstance(m, AssistantMessage) else m for m in t]
        for t in (thread.transcript, thread.transcript_b)
    ]
    step, family = thread.open, thread.family
    return {
        "transcripts": transcripts,
        "agent": thread.agent, "phase": thread.phase, "status": thread.status,
        "session": (thread.session, thread.in_session, thread.in_session and thread.side,
                    thread.once),
        "closing": (thread.closing, thread.terminated, thread.parked, thread.two_sided),
        "open": None if step is None else [
            (c.index, c.name, c.arguments, c.status, c.output,
             (c.child, c.key) if c.status == "waiting" else ())
            for c in step.calls
        ],
        "answering": (thread.answering, set(thread.unseen)), "origin": thread.origin,
        "children": family.children, "deferred": family.deferred,
        "starts": [(s.name, s.status, s.message, s.child * (s.status == "waiting"))
                   for s in family.starts],
        "given_up": set(family.given_up), "activated": set(family.activated),
        "usage": thread.total_usage, "files": dict(thread.area.files),
        "kv": {key: bytes(value) for key, value in thread.area.keys.items()},
        "outcome": None if thread.in_session or thread.outcome is None else structs.replace(
            thread.outcome, output_json=json.loads(bytes(thread.outcome.output_json)),
        ),
    }  # fmt: skip


def assert_read_back(info: RunInfo, commits: Sequence[Sequence[Event]], every: int = 1) -> None:
    """After each commit the folder says enough to go on from there."""
    record, lines, events = begin(info), [], []
    for number, commit in enumerate(commits):
        record, more = follow(record, commit)
        lines += more
        events += commit
        if number % every and number != len(commits) - 1:
            continue
        own = [event for event in events if event.lane == "own"]
        text = b"".join(write_line(line) for line in lines)
        back = read_back(read_state(write_state(record, 0)).record, read_history(text).lines)
        thread = fold_all(EMPTY, own)
        one, two = plain(back.thread), plain(thread)
        for key, value in two.items():
            assert one[key] == value, (
                number,
                key,
                one[key],
                value,
                [type(x).__name__ for x in commit],
            )
        assert plain(fold_all(EMPTY, back.events)) == one
        assert [getattr(x, "content", 0) for x in back.pending] == [
            getattr(x, "content", 0) for x in waiting(events)
        ]
        assert_stable(info, back, text)


def waiting(events: Sequence[Event]) -> list[Event]:
    left = {event.seq: event for event in events if event.lane == "in"}
    for event in events:
        if isinstance(event, e.SessionTaken):
            for item in event.items:
                left.pop(item.seq, None)
        elif isinstance(event, e.AgentComplete):
            left.clear()
    return list(left.values())


def assert_stable(info: RunInfo, back: ReadBack, text: bytes) -> None:
    """Written down again, what was read back is the same history."""
    taken = [x for x in back.items if x not in back.pending]
    _, lines = follow(begin(info), [*taken, *back.events])
    assert [kind(x) for x in lines] == [kind(x) for x in read_history(text).lines]


def kind(line: Any) -> Any:
    text = getattr(line, "text", None) or getattr(line, "output", None)
    return type(line).__name__, text, getattr(line, "side", ""), getattr(line, "session", 0)


@pytest.mark.spec("P-01", "P-03")
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("seed", range(10))
async def test_after_every_commit_the_folder_says_enough_to_go_on(world: str, seed: int) -> None:
    store = Watched()
    await WORLDS[world](store, seed)
    assert store.commits
    for run_id, commits in store.commits.items():
        assert_read_back(store.of(run_id), commits)


# ── folders ──────────────────────────────────────────────────────────────────────────────────


class Home:
    """A folder of agents beside a store."""

    def __init__(self, root: Path, *, blobs: bool = False) -> None:
        self.disk = RealDisk()
        self.root = root / "agents"
        self.blobs = root / "blobs" if blobs else None
        self.store = Watched(self._project)
        self.folders = self.again()

    def again(self) -> AgentFolders:
        """As after a restart: nothing is remembered."""
        return AgentFolders(self.root, self.disk, self.store.events, self.blobs)

    def _project(self, batch: list[Projected]) -> None:
        self.folders.project(batch)

    def file(self, run_id: str, name: str = "history.jsonl") -> Path:
        return self.root / run_id / name

    def run_ids(self) -> list[str]:
        return list(self.store.commits)

    def problems(self) -> list[str]:
        return [x for run_id in self.run_ids() for x in self.folders.check(self.store.of(run_id))]

    def adopted(self) -> dict[str, Adopted]:
        found = self.again().foreign(lambda _: None)
        assert all(isinstance(each, Adopted) for each in found), found
        return {each.info.run_id: each for each in found if isinstance(each, Adopted)}


@pytest.mark.spec("P-01", "P-02")
@pytest.mark.parametrize("world", WORLDS)
async def test_a_projected_world_is_sound_and_can_be_adopted(world: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    await WORLDS[world](home.store, 3)
    assert home.folders.failures == 0
    assert home.problems() == []
    for run_id, adopted in home.adopted().items():
        own = [event for event in home.store.events(run_id) if event.lane == "own"]
        info = home.store.of(run_id)
        assert plain(fold_all(EMPTY, adopted.events)) == plain(fold_all(EMPTY, own))
        assert (adopted.info.inbox, adopted.info.waiting) == (info.inbox, info.waiting)
        assert (adopted.info.status == "ended") == (info.status == "ended")
        assert adopted.info.descriptor == info.descriptor
        assert len(adopted.pending) == info.waiting


@pytest.mark.spec("P-02", "P-12")
@pytest.mark.parametrize("world", WORLDS)
async def test_an_adopted_folder_goes_on_in_its_new_store(world: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    await WORLDS[world](home.store, 6)
    for run_id, adopted in home.adopted().items():
        with home.file(run_id).open("ab") as file:
            file.write(b'{"type":"of_later"}\n')
        before = [kind(x) for x in read_history(home.file(run_id).read_bytes()).lines]
        events = [*[x for x in adopted.items if x not in adopted.pending], *adopted.events,
                  *adopted.pending]  # fmt: skip
        folders = AgentFolders(home.root, home.disk, lambda _, found=events: found, None)
        folders.renew(adopted.info)
        assert folders.check(adopted.info) == []
        after = read_history(home.file(run_id).read_bytes())
        assert [kind(x) for x in after.lines] == before
        assert [x.data for x in after.foreign] == [b'{"type":"of_later"}']
        assert not list(home.file(run_id).parent.glob("*corrupt*"))
        seq = 1 + sum(x.lane == "own" for x in events)
        said = e.AgentStatus(status="busy", run_id=run_id, lane="own", seq=seq, at=9)
        events.append(said)
        folders.project([Projected(adopted.info, [said])])
        assert folders.check(adopted.info) == []


@pytest.mark.spec("P-04")
async def test_a_folder_that_was_changed_is_found_and_healed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await conversation(home.store, 1)
    (run_id,) = home.run_ids()
    info, whole = home.store.of(run_id), home.file(run_id).read_bytes()
    state = home.file(run_id, "state.json").read_bytes()
    lines = whole.splitlines(keepends=True)
    damages: dict[str, tuple[str, bytes | None]] = {
        "missing history": ("history.jsonl", None),
        "torn": ("history.jsonl", whole[:-7]),
        "behind": ("history.jsonl", b"".join(lines[:3])),
        "corrupt": ("history.jsonl", b"".join([*lines[:2], b"{nonsense\n", *lines[3:]])),
        "edited": ("history.jsonl", whole.replace(b"hello", b"hullo")),
        "missing state": ("state.json", None),
        "torn state": ("state.json", state[:30]),
        "edited state": ("state.json", state.replace(b'"title":""', b'"title":"other"')),
        "no descriptor": ("descriptor.json", None),
        "other descriptor": ("descriptor.json", b'{"type":"heartbeat"}'),
    }
    for what, (name, data) in damages.items():
        path = home.file(run_id, name)
        sound = path.read_bytes()
        path.unlink() if data is None else path.write_bytes(data)
        folders = home.again()
        problems = folders.check(info)
        assert problems and all(name in problem for problem in problems if "bytes" not in problem)
        if what == "corrupt":
            assert any(f"{path}:3: " in problem for problem in problems)
        assert path.exists() == (data is not None)  # Nothing was changed so far.
        assert folders.heal(info), what
        assert path.read_bytes() == sound, what
        assert home.again().check(info) == [], what
    kept = sorted(x.name for x in home.file(run_id).parent.glob("*corrupt*"))
    assert kept == ["history.jsonl.corrupt-1", "history.jsonl.corrupt-2"]


@pytest.mark.spec("P-04", "P-12")
async def test_what_follows_a_torn_line_is_written_after_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await conversation(home.store, 2)
    (run_id,) = home.run_ids()
    commits, info = home.store.commits[run_id], home.store.of(run_id)
    home.root.joinpath(run_id).rename(tmp_path / "before")
    seen: list[Event] = []

    def read(run_id: str) -> list[Event]:
        return seen

    folders = AgentFolders(home.root, home.disk, read, None)
    for number, commit in enumerate(commits):
        seen += commit
        folders.project([Projected(info, commit)])
        if number == len(commits) // 2:  # Killed, with a torn line and lines of a later version.
            with home.file(run_id).open("ab") as file:
                file.write(b'{"type":"of_later","at":1,"seq":1}\n{"type":"user_mess')
            state = json.loads(home.file(run_id, "state.json").read_bytes())
            home.file(run_id, "state.json").write_text(json.dumps(state | {"colour": "red"}))
            folders = AgentFolders(home.root, home.disk, read, None)
    lines = home.file(run_id).read_bytes().splitlines()
    assert lines.count(b'{"type":"of_later","at":1,"seq":1}') == 1
    lines.remove(b'{"type":"of_later","at":1,"seq":1}')
    assert lines == (tmp_path / "before" / "history.jsonl").read_bytes().splitlines()
    assert json.loads(home.file(run_id, "state.json").read_bytes())["colour"] == "red"
    assert folders.check(info) == []


@pytest.mark.spec("P-02", "P-03", "P-04")
async def test_a_history_cut_anywhere_is_adopted_or_reported(tmp_path: Path) -> None:
    home = Home(tmp_path)
    await handoff(home.store, 0)
    run_id = home.run_ids()[0]
    whole = home.file(run_id).read_bytes()
    state = home.file(run_id, "state.json").read_bytes()
    for name, data in (("history.jsonl", whole), ("state.json", state)):
        for cut in range(len(data)):
            home.file(run_id, name).write_bytes(data[:cut])
            (found,) = home.again().foreign(lambda _: None)
            if name == "history.jsonl":
                assert isinstance(found, Adopted)
                assert found.warnings
            elif isinstance(found, Broken):
                assert found.file.endswith("state.json") and found.remedy
        home.file(run_id, name).write_bytes(data)


@settings(
    max_examples=examples(150), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(data=st.data())
def test_whatever_is_in_a_folder_nothing_is_raised(tmp_path_factory: Any, data: Any) -> None:
    root = tmp_path_factory.mktemp("agents")
    home = Home(root)
    anyio.run(family, home.store, 5, backend="trio", backend_options=_clock())
    run_id = home.run_ids()[0]
    name = data.draw(st.sampled_from(["history.jsonl", "state.json", "descriptor.json"]))
    content = bytearray(home.file(run_id, name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    home.file(run_id, name).write_bytes(bytes(content))
    found = home.again().foreign(lambda _: None)
    assert len(found) == len(home.run_ids())
    folders = home.again()
    folders.check(home.store.of(run_id))
    folders.heal(home.store.of(run_id))
    assert folders.check(home.store.of(run_id)) == []


def _clock() -> dict[str, Any]:
    return {"clock": trio.testing.MockClock(autojump_threshold=0)}


@pytest.mark.parametrize(
    "value", [None, True, 7, -1, 1.5, "x", [], [7], {}, {"x": []}, 10**30, "side_a"]
)
async def test_a_state_with_any_value_anywhere_is_adopted_or_reported(
    value: Any, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    await family(home.store, 5)
    run_id = home.run_ids()[0]
    file = home.file(run_id, "state.json")
    state = json.loads(file.read_bytes())
    for key in state:
        file.write_text(json.dumps(state | {key: value}))
        assert len(home.again().foreign(lambda _: None)) == len(home.run_ids())
    for key in state["run"]:
        file.write_text(json.dumps(state | {"run": state["run"] | {key: value}}))
        assert len(home.again().foreign(lambda _: None)) == len(home.run_ids())


@pytest.mark.spec("P-02")
def test_a_half_created_agent_is_repaired_and_an_unreadable_one_reported(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made_by_us = "019b76da-a800-7000-a3b8-9af8ed993d2a"
    new, bad, bare = (home.root / name for name in ("new", "bad", made_by_us))
    for folder in (new, bad, bare):
        folder.mkdir(parents=True)
    of_new = SubagentDescriptor(id="new", parent_agent_id="boss", name="helper")
    (new / "descriptor.json").write_bytes(bytes(encode_descriptor(of_new)))
    (bad / "descriptor.json").write_text('{"type": "robot"}')
    found = home.folders.foreign(lambda _: None, default_agent="assistant")
    broken_bare, broken_bad, adopted = found
    assert isinstance(broken_bad, Broken) and broken_bad.line == 1
    assert isinstance(broken_bare, Broken) and "missing" in str(broken_bare)
    assert isinstance(adopted, Adopted)
    # Its parent is nowhere.
    assert (adopted.info.parent_run_id, adopted.info.name) == (None, "helper")
    assert any("its parent boss is not here" in text for text in adopted.warnings)
    assert (adopted.info.agent, adopted.info.status) == ("assistant", "parked")
    assert fold_all(EMPTY, adopted.events).transcript == ()
    assert sorted(x.name for x in home.root.iterdir()) == [made_by_us, "bad", "new"]
    assert home.folders.foreign(lambda run_id: run_id) == []


@pytest.mark.parametrize(
    "run_id",
    ["a", "A", "../../etc", "..", ".", "con.txt", "ä/b", "a" * 65, "\x00", "%41", "\udc80"],
)
def test_a_folders_name_leads_nowhere_else_and_back(run_id: str) -> None:
    name = folder_name(run_id)
    assert name == name.lower()
    assert not set(name) & set("/\\.:\x00")
    assert run_id_of(name) == run_id


class FullDisk(RealDisk):
    """Refuses to write while it is full; an append leaves half of what it was given."""

    is_full = False

    def append(self, path: str, data: bytes) -> None:
        if self.is_full:
            super().append(path, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        super().append(path, data)

    def replace(self, path: str, data: bytes) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().replace(path, data)


@pytest.mark.spec("P-04")
@pytest.mark.parametrize("full", [(0, 5), (3, 4), (6, 12), (1, 15)])
async def test_a_full_disk_fails_no_commit_and_is_made_up_for(
    full: tuple[int, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path)
    await conversation(home.store, 4)
    (run_id,) = home.run_ids()
    info, seen = home.store.of(run_id), []
    whole = {x.name: x.read_bytes() for x in (home.root / run_id).iterdir()}
    disk = FullDisk()
    folders = AgentFolders(tmp_path / "other", disk, lambda _: seen, None)
    caplog.clear()
    for number, commit in enumerate(home.store.commits[run_id]):
        disk.is_full = full[0] <= number < full[1]
        seen = [*seen, *commit]
        folders.project([Projected(info, commit)])
    assert folders.failures == full[1] - full[0]
    assert [x.message for x in caplog.records if "not_written" in x.message and run_id in x.message]
    assert caplog.text.count("agent_folder.not_written") == 1
    assert {x.name: x.read_bytes() for x in (tmp_path / "other" / run_id).iterdir()} == whole


@pytest.mark.spec("V-03")
async def test_a_secret_stands_nowhere_in_a_folder(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ports, planted = virtual_ports(), "s3cr3t-p1ant3d"
    agents = [model_agent(echo_model())]
    async with Runtime(agents, store=home.store, ports=ports, grace=0) as runtime:
        opening = e.SessionOpen(
            open_agent="assistant", run_id=ports.ids.run_id(1),
            variables=(e.Variable(name="TOKEN", value=Secret(planted), scoped=True),),
        )  # fmt: skip
        runtime.hub.emit(opening)
        await anyio.sleep(10)
    assert home.run_ids()
    for run_id in home.run_ids():
        home.folders.heal(home.store.of(run_id))
    assert_nowhere(planted, tmp_path)


def assert_nowhere(text: str, root: Path) -> None:
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) >= 2
    assert not [path for path in files if text.encode() in path.read_bytes()]


# ── files/ ───────────────────────────────────────────────────────────────────────────────────


def with_files(home: Home, *changes: Event) -> RunInfo:
    """A run whose own lane holds these changes of its files, projected one by one."""
    local = UserDescriptor(connector="local", user_id="local", channel_id="r")
    info = RunInfo(
        run_id="r", root_run_id="r", parent_run_id=None, agent="a", name="", session_key="",
        status="active", inbox="open", waiting=0, created_at=1, descriptor=local,
    )  # fmt: skip
    events = [structs.replace(x, run_id="r", lane="own", seq=n) for n, x in enumerate(changes, 1)]
    home.folders = AgentFolders(home.root, home.disk, lambda _: events, home.blobs)
    for event in events:
        home.folders.project([Projected(info, [event])])
    return info


def blob(home: Home, content: bytes, path: str) -> e.FileRef:
    digest = hashlib.sha256(content).hexdigest()
    assert home.blobs is not None
    place = home.blobs / digest[:2] / digest
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return e.FileRef(path=path, digest=digest, size=len(content))


@pytest.mark.spec("P-01", "T-07")
def test_files_stand_under_their_names_with_their_contents(tmp_path: Path) -> None:
    home = Home(tmp_path, blobs=True)
    one, two = blob(home, b"one", "a/b/one.txt"), blob(home, b"two", "two.txt")
    new = blob(home, b"new", "two.txt")
    info = with_files(
        home, e.AgentFile(files=(one, two)), e.AgentFile(files=(new,)),
        e.AgentFile(deleted=("a/b/one.txt",)),
    )  # fmt: skip
    files = home.root / "r" / "files"
    assert [x.relative_to(files).as_posix() for x in files.rglob("*")] == ["two.txt"]
    assert (files / "two.txt").read_bytes() == b"new"
    assert home.folders.check(info) == []
    (found,) = home.folders.foreign(lambda _: None)
    assert isinstance(found, Adopted)
    assert found.files == {new.digest: str(files / "two.txt")}
    (files / "two.txt").unlink()
    (files / "two.txt").write_bytes(b"meddled with")
    assert "content has changed" in home.folders.check(info)[0]
    home.folders.heal(info)
    assert (files / "two.txt").read_bytes() == b"new"


def test_a_file_whose_name_leads_out_is_not_shown(tmp_path: Path) -> None:
    home = Home(tmp_path, blobs=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (home.root / "r" / "files").mkdir(parents=True)
    os.symlink(outside, home.root / "r" / "files" / "link")
    refs = [blob(home, b"x", path) for path in ("../x", "/x", "link/x", "a/../../x", "fine")]
    with_files(home, e.AgentFile(files=tuple(refs)))
    assert list(outside.iterdir()) == []
    assert sorted(x.name for x in tmp_path.iterdir()) == ["agents", "blobs", "outside"]
    assert sorted(x.name for x in (home.root / "r" / "files").iterdir()) == ["fine", "link"]
    assert home.folders.failures == 4
