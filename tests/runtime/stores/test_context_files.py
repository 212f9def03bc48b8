"""``context.jsonl`` and ``active_stack``: in a conversation's folder, and from a store alone."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.conversations import (
    MAIN,
    RESEARCH,
    WRITER,
    Book,
    end,
    nested,
    pop,
    said,
    skill,
    step,
    wants,
)
from support.frames import Talk, complete, frame, open_runtime, use

from hubbub import AgentDefinition
from hubbub.__main__ import main
from hubbub.agents.folders.conversation import begin_context, follow_context
from hubbub.agents.folders.conversation_lines import write_entry
from hubbub.agents.folders.stack_view import stack_of
from hubbub.agents.folders.state_file import read_state
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.descriptors import CronDescriptor, Descriptor
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import info_of
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import ScriptedModel
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.projection import agent_folders
from hubbub.runtime.stores.folders.write import AgentFolders, Projected
from hubbub.runtime.stores.open import open_reader, sqlite_store
from hubbub.runtime.stores.sqlite.folder import DataFolder

pytestmark = pytest.mark.anyio

Script = Callable[[Book], None]


def unwound(book: Book) -> None:
    """A conversation from its first takeover to the end of its last, in every way."""
    skill(book)
    book.tell(MAIN, said("and now write"))
    book.commit(MAIN, e.SessionStart(session=2, side="side_a"), take=1)
    book.commit(MAIN, *step(3, "", wants("use_agent")))
    call = e.AgentChild(
        child_run_id=WRITER, child_agent="writer", takeover=True, waits=True, step=3, index=0,
        call_id="3.0",
    )  # fmt: skip
    pushed = e.SessionPush(frame_run_id=WRITER, frame_agent="writer", depth=2, call_id="3.0")
    book.commit(
        MAIN,
        call,
        pushed,
        mail=((WRITER, e.SessionOpen(open_agent="writer", name="writer", frame=2)),),
    )
    book.tell(MAIN, said("a haiku"))
    book.commit(WRITER, e.AgentStart(), e.SessionStart(side="side_a"), take=1, borrow=1)
    book.commit(WRITER, *step(1, "Words, words."), e.SessionEnd(), e.AgentPark())
    pop(book, MAIN, WRITER, "writer", "3.0", "cancelled", depth=1, is_error=True, take=0)
    end(book, WRITER, MAIN, "writer", "", success=False, outcome="interrupted")


SCRIPTS: dict[str, Script] = {"skill": skill, "nested": nested, "unwound": unwound}


class Home:
    """Folders beside a book, which is as far as ``upto`` says."""

    def __init__(self, root: Path, book: Book, disk: RealDisk | None = None) -> None:
        self.root = root / "agents"
        self.book = book
        self.disk = disk or RealDisk()
        self.seen: list[Event] = []
        self.reads = 0
        self.folders = self.again()

    def again(self) -> AgentFolders:
        """As after a restart: nothing is remembered."""
        return AgentFolders(
            self.root, self.disk, lambda run: [x for x in self.seen if x.run_id == run],
            conversations=self,
        )  # fmt: skip

    def info(self, run_id: str) -> Any:
        return self.book.info(run_id)

    def read(self, run_ids: Any, after: int) -> tuple[list[Event], int]:
        self.reads += 1
        events, _ = self.book.read(run_ids, after)
        return [x for x in events if x in self.seen], len(self.seen)

    def project(self, events: list[Event]) -> None:
        """A commit, or several, merged by run as the projection gives them."""
        self.seen += events
        by_run: dict[str, list[Event]] = {}
        for event in events:
            by_run.setdefault(event.run_id, []).append(event)
        self.folders.project([Projected(self.info(run), found) for run, found in by_run.items()])

    def project_all(self) -> None:
        for commit in self.book.commits:
            self.project(list(commit.events))

    def file(self, name: str = "context.jsonl", run_id: str = MAIN) -> Path:
        return self.root / run_id / name

    def state(self, run_id: str = MAIN) -> Any:
        return json.loads(self.file("state.json", run_id).read_bytes())

    def assert_sound(self) -> None:
        for run_id in {event.run_id for event in self.seen}:
            assert self.again().check(self.info(run_id)) == []
        has_push = any(isinstance(x, e.SessionPush) for x in self.seen)
        assert self.file().exists() == has_push
        if has_push:
            assert self.file().read_bytes() == context_of(self.seen)
        stack = stack_of(self.seen, MAIN)
        assert [x["agent_name"] for x in self.state()["active_stack"]] == [
            x.agent_name for x in stack
        ]


def context_of(events: list[Event]) -> bytes:
    _, entries = follow_context(begin_context(MAIN), events)
    return b"".join(map(write_entry, entries))


def booked(script: Script, descriptor: Descriptor | None = None) -> Book:
    book = Book(descriptor)
    script(book)
    return book


# ── after each commit ────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-11", "P-01")
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("restarts", [False, True])
def test_after_every_commit_the_roots_folder_shows_its_frames(
    script: str, restarts: bool, tmp_path: Path
) -> None:
    home = Home(tmp_path, booked(SCRIPTS[script]))
    for commit in home.book.commits:
        if restarts:
            home.folders = home.again()
        home.project(list(commit.events))
        home.assert_sound()
    assert home.folders.failures == 0
    assert not list(home.root.rglob("*corrupt*"))


@pytest.mark.parametrize("seed", range(8))
def test_how_commits_were_gathered_changes_nothing(seed: int, tmp_path: Path) -> None:
    home, draw = Home(tmp_path, booked(unwound)), random.Random(seed)
    left = [list(commit.events) for commit in home.book.commits]
    while left:
        count = draw.randint(1, 6)
        home.project([event for commit in left[:count] for event in commit])
        left = left[count:]
        home.assert_sound()


@pytest.mark.spec("I-11")
def test_a_state_shows_the_stack_as_ia_has_it(tmp_path: Path) -> None:
    home = Home(tmp_path, booked(nested))
    home.project_all()
    one, two, three = home.state()["active_stack"]
    assert one == {
        "frame_id": MAIN, "agent_session_id": MAIN, "agent_name": "main", "agent_type": "main",
        "model": "small", "iteration": 1, "max_iterations": 25, "parent_tool_use_id": None,
        "effective_tools": [], "is_skill_agent": False, "environment": {},
    }  # fmt: skip
    assert (two["environment"], two["max_iterations"]) == ({"TOKEN": "***"}, 25)
    assert (three["agent_type"], three["parent_tool_use_id"]) == ("skill", "call_1_0")
    assert home.state(WRITER)["active_stack"] == []
    assert not home.file(run_id=WRITER).exists()


@pytest.mark.spec("I-13")
def test_what_frames_take_leaves_the_inbox_that_the_roots_folder_shows(tmp_path: Path) -> None:
    home = Home(tmp_path, booked(unwound))
    home.project_all()
    assert [item["type"] for item in home.state()["pending"]] == ["session:result"]
    assert home.state()["updatedAt"] == max(event.at for event in home.seen)


def test_a_conversation_without_a_takeover_has_no_file(tmp_path: Path) -> None:
    book = Book()
    book.begin("hello")
    book.commit(MAIN, *step(1, "Hello."), e.SessionEnd(), e.AgentPark())
    home = Home(tmp_path, book)
    home.project_all()
    assert home.folders.check(home.info(MAIN)) == []
    assert sorted(x.name for x in (home.root / MAIN).iterdir()) == [
        "descriptor.json", "history.jsonl", "state.json",
    ]  # fmt: skip
    assert home.reads == 0  # Nor does it cost anything.


def test_a_root_of_another_kind_has_a_stack_and_no_file(tmp_path: Path) -> None:
    home = Home(tmp_path, booked(nested, CronDescriptor(id="daily")))
    home.project_all()
    assert len(home.state()["active_stack"]) == 3
    assert not home.file().exists()
    assert home.again().check(home.info(MAIN)) == []


# ── damage ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-04", "I-11")
@pytest.mark.parametrize("what", ["missing", "behind", "torn", "corrupt", "edited", "other"])
@pytest.mark.parametrize("found_by", ["repair", "the frame's next commit"])
def test_a_damaged_context_is_found_and_brought_in_line(
    what: str, found_by: str, tmp_path: Path
) -> None:
    home = Home(tmp_path, booked(unwound))
    *before, last = [list(commit.events) for commit in home.book.commits]
    for events in before:
        home.project(events)
    whole = home.file().read_bytes()
    lines = whole.splitlines(keepends=True)
    home.file().unlink()
    damaged = {
        "behind": b"".join(lines[:3]), "torn": whole[:-7],
        "edited": whole.replace(b"found", b"bound"),
        "corrupt": b"".join([*lines[:2], b"{nonsense\n", *lines[3:]]), "other": b'{"type":3}\n',
    }  # fmt: skip
    if what != "missing":
        home.file().write_bytes(damaged[what])
    home.folders = home.again()
    problems = home.folders.check(home.info(MAIN))
    assert problems and all(str(home.file()) in problem for problem in problems)
    if what == "corrupt":
        assert any(problem.startswith(f"{home.file()}:3: ") for problem in problems)
    if found_by == "repair":
        assert home.folders.repair(home.info(MAIN))[: len(problems)] == problems
        assert home.file().read_bytes() == whole
    home.project(last)
    home.assert_sound()
    kept = list(home.file().parent.glob("context.jsonl.corrupt-*"))
    assert len(kept) == (what in ("corrupt", "edited"))


@pytest.mark.spec("P-12")
def test_lines_of_later_versions_stay(tmp_path: Path) -> None:
    home = Home(tmp_path, booked(skill))
    *before, last = [list(commit.events) for commit in home.book.commits]
    for events in before:
        home.project(events)
    with home.file().open("ab") as file:
        file.write(b'{"type":"of_later"}\n')
    home.folders = home.again()
    home.project(last)
    lines = home.file().read_bytes().splitlines(keepends=True)
    lines.remove(b'{"type":"of_later"}\n')
    assert b"".join(lines) == context_of(home.seen)
    assert home.again().check(home.info(MAIN)) == []


class FullDisk(RealDisk):
    """Refuses to write what ends in ``name`` while it is full, but for the first half."""

    name = ""

    def append(self, path: str, data: bytes) -> None:
        if self.name and path.endswith(self.name):
            super().append(path, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        super().append(path, data)

    def replace(self, path: str, data: bytes) -> None:
        if self.name and path.endswith(self.name):
            raise OSError(28, "No space left on device")
        super().replace(path, data)


@pytest.mark.spec("P-04")
@pytest.mark.parametrize("name", ["context.jsonl", "state.json", ".json", "history.jsonl"])
@pytest.mark.parametrize("full", [(0, 6), (6, 9), (9, 15), (3, 30)])
def test_a_full_disk_is_made_up_for(name: str, full: tuple[int, int], tmp_path: Path) -> None:
    disk = FullDisk()
    home = Home(tmp_path, booked(unwound), disk)
    for number, commit in enumerate(home.book.commits):
        disk.name = name if full[0] <= number < full[1] else ""
        home.project(list(commit.events))
    disk.name = ""
    assert home.folders.failures
    for run_id in (MAIN, RESEARCH, WRITER):
        home.folders.repair(home.info(run_id))
    home.assert_sound()


@pytest.mark.parametrize("cut", range(1, 16))
def test_healing_a_frame_heals_its_root(cut: int, tmp_path: Path) -> None:
    """After a crash the runs of which something was written are healed, parents first or not."""
    home = Home(tmp_path, booked(nested))
    for commit in home.book.commits[:cut]:
        home.project(list(commit.events))
    left = [list(commit.events) for commit in home.book.commits[cut:]]
    home.seen += [event for events in left for event in events]
    home.folders = home.again()
    for run_id in {event.run_id for events in left for event in events}:
        home.folders.repair(home.info(run_id))
    home.assert_sound()


# ── in a real store ──────────────────────────────────────────────────────────────────────────


async def stored(folder: Path, ports: Ports, script: Script, *, mirror: bool = True) -> Book:
    book = booked(script)
    store = sqlite_store(folder, ports=ports, mirror=mirror)
    await store.open()
    try:
        await book.put(store)
        await store.projected()
    finally:
        await store.aclose()
    return book


@pytest.mark.spec("I-11", "P-01")
@pytest.mark.parametrize("script", SCRIPTS)
async def test_a_store_shows_its_conversations(script: str, tmp_path: Path, ports: Ports) -> None:
    book = await stored(tmp_path, ports, SCRIPTS[script])
    folder = tmp_path / "agents" / MAIN
    assert (folder / "context.jsonl").read_bytes() == context_of(book.events)
    state = json.loads((folder / "state.json").read_bytes())
    assert len(state["active_stack"]) == len(stack_of(book.events, MAIN))
    assert len(state["pending"]) == len(book.waiting[MAIN])


@pytest.mark.spec("I-11", "P-02")
async def test_after_a_crash_the_folder_is_made_up_for(tmp_path: Path, ports: Ports) -> None:
    """What only a frame has written since shows in the root's folder, too."""
    book = booked(nested)
    store = sqlite_store(tmp_path, ports=ports)
    await store.open()
    await book.put(store, book.commits[:-1])
    await store.aclose()
    folder = tmp_path / "agents" / MAIN
    before = folder.joinpath("context.jsonl").read_bytes()
    blind = sqlite_store(tmp_path, ports=ports, mirror=False)
    await blind.open()
    await book.put(blind, book.commits[-1:])
    await blind.aclose()
    assert folder.joinpath("context.jsonl").read_bytes() == before
    store = sqlite_store(tmp_path, ports=ports)
    await store.open()
    await store.projected()
    await store.aclose()
    assert folder.joinpath("context.jsonl").read_bytes() == context_of(book.events)
    assert context_of(book.events) != before


@pytest.mark.spec("I-11", "P-01", "I-08")
async def test_a_live_conversation_is_shown_at_every_rest(tmp_path: Path, ports: Ports) -> None:
    models = [
        ScriptedModel([use("writer"), "Main: done.", use("writer")]),
        ScriptedModel([use("research"), "Is this right?", complete("written")]),
        ScriptedModel(["Which?", complete("found")]),
    ]
    agents = (
        frame(models[0], agents=("writer",), env={"TOKEN": "s3cr3t"}),
        frame(models[1], name="writer", agents=("research",)), frame(models[2], name="research"),
    )  # fmt: skip
    stacks, told = [], []
    store = sqlite_store(tmp_path, ports=ports)
    async with open_runtime(*agents, journal=store, ports=ports) as runtime:
        talk = Talk(runtime)
        for line in ("write", "that one", "yes", "again", "cancel"):
            await talk.say(line)
            while await store.ready():  # Its caller takes what a frame has come to.
                await anyio.lowlevel.checkpoint()
            await store.projected()
            folder = tmp_path / "agents" / talk.root
            state = json.loads((folder / "state.json").read_bytes())
            stacks.append([x["agent_name"] for x in state["active_stack"]])
            assert state["pending"] == []
        events = [x for x in talk.events if x.lane == "own"]
        told = (folder / "context.jsonl").read_bytes().splitlines(keepends=True)
    _, entries = follow_context(begin_context(talk.root), events)
    assert told == [write_entry(entry) for entry in entries]
    assert stacks == [
        ["main", "writer", "research"], ["main", "writer"], [], ["main", "writer", "research"], [],
    ]  # fmt: skip
    found = [json.loads(line) for line in told]
    ends = [x["is_error"] for x in found if x["type"] == "agent_session_complete"]
    assert ends == [False, False, True, True]
    assert b"s3cr3t" not in b"".join(told)
    assert not list((tmp_path / "agents" / talk.root).glob("*corrupt*"))
    with open_reader(f"sqlite:{tmp_path}") as reader:
        folders = agent_folders(DataFolder(tmp_path), RealDisk(), reader)
        infos = map(info_of, reader.rows())
        assert [problem for info in infos for problem in folders.check(info)] == []


@pytest.mark.spec("P-02", "P-03")
async def test_without_its_database_a_conversation_goes_on_with_its_takeover(
    tmp_path: Path, ports: Ports
) -> None:
    def agents(*writer: Any) -> tuple[AgentDefinition, ...]:
        main = ScriptedModel([use("writer"), "Main: done."])
        return (
            frame(main, agents=("writer",)), frame(ScriptedModel([*writer]), name="writer"),
        )  # fmt: skip

    async with open_runtime(
        *agents("Writer: hm?"), journal=sqlite_store(tmp_path, ports=ports), ports=ports
    ) as rt:
        talk = Talk(rt)
        assert await talk.say("write") == [("writer", "Writer: hm?")]
        root = talk.root
    folder = tmp_path / "agents" / root
    before = (folder / "context.jsonl").read_bytes()
    for file in tmp_path.glob("hubbub.db*"):  # noqa: ASYNC240
        file.unlink()
    store = sqlite_store(tmp_path, ports=ports)
    async with open_runtime(*agents("", "Writer: here."), journal=store, ports=ports) as rt:
        talk = Talk(rt)
        assert (await talk.say("are you there?"))[-1] == ("writer", "Writer: here.")
        await store.projected()
        assert talk.root == root and store.problems == ()
        assert (folder / "context.jsonl").read_bytes().startswith(before)
        assert len(json.loads((folder / "state.json").read_bytes())["active_stack"]) == 2
    assert [x.text for x in StoreCheck(f"sqlite:{tmp_path}").problems()] == []


@pytest.mark.spec("I-11", "P-04")
async def test_fsck_looks_at_conversations_too(tmp_path: Path, ports: Ports) -> None:
    await stored(tmp_path, ports, unwound)
    assert list(StoreCheck(f"sqlite:{tmp_path}").problems()) == []
    file = tmp_path / "agents" / MAIN / "context.jsonl"
    file.write_bytes(file.read_bytes().replace(b"found", b"bound"))
    (problem,) = StoreCheck(f"sqlite:{tmp_path}").problems()
    assert problem.text.startswith(f"{file}:10: says something else than the database")


# ── exports ──────────────────────────────────────────────────────────────────────────────────


def same(option: str, text: str) -> Any:
    """A state's defaults may be written or left out."""
    return text if option == "--context" else read_state(text.encode())


@pytest.mark.spec("I-11")
@pytest.mark.parametrize("script", SCRIPTS)
async def test_context_and_state_are_exported_from_the_store_alone(
    script: str, tmp_path: Path, ports: Ports, capsys: pytest.CaptureFixture[str]
) -> None:
    with_folders, without = tmp_path / "with", tmp_path / "without"
    book = await stored(with_folders, ports, SCRIPTS[script])
    await stored(without, ports, SCRIPTS[script], mirror=False)
    for run_id, option, name in (
        (MAIN, "--context", "context.jsonl"), (MAIN, "--state", "state.json"),
        (RESEARCH, "--state", "state.json"),
    ):  # fmt: skip
        wanted = same(option, (with_folders / "agents" / run_id / name).read_text())
        assert main(["export", run_id, option, "--store", f"sqlite:{without}"]) == 0
        told = capsys.readouterr()
        assert (same(option, told.out), told.err) == (wanted, "")
        out = tmp_path / "out"
        command = ["export", run_id, option, "--out", str(out), "--store", f"sqlite:{without}"]
        assert main(command) == 0
        capsys.readouterr()
        assert same(option, out.read_text()) == wanted
    assert len(json.loads(out.read_text())["active_stack"]) == 0
    assert book.events


async def test_what_cannot_be_exported_is_one_line(
    tmp_path: Path, ports: Ports, capsys: pytest.CaptureFixture[str]
) -> None:
    await stored(tmp_path, ports, nested, mirror=False)
    for arguments, words in (
        ([RESEARCH, "--context"], f"is no conversation: it is a child; ask for its root, {MAIN}"),
        ([MAIN, "--context", "--state"], "are two exports; give one of them"),
    ):
        assert main(["export", *arguments, "--store", f"sqlite:{tmp_path}"]) == 2
        told = capsys.readouterr()
        assert words in told.err
        assert told.err.startswith("hubbub: ") and told.err.count("\n") == 1 and not told.out


async def test_a_conversation_that_was_never_taken_over_is_exported_too(
    tmp_path: Path, ports: Ports, capsys: pytest.CaptureFixture[str]
) -> None:
    def plain(book: Book) -> None:
        book.begin("hello")
        book.commit(MAIN, *step(1, "Hello."), e.SessionEnd(), e.AgentPark())

    await stored(tmp_path, ports, plain)
    assert main(["export", MAIN, "--context", "--store", f"sqlite:{tmp_path}"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(x["type"], x["content"]) for x in lines] == [
        ("user_message", "hello"), ("assistant_message", "Hello."),
    ]  # fmt: skip
