"""``agents/<id>/``: a faithful projection of the store, and the way back (AT, P-01 … P-04)."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.agents import echo_model, model_agent
from support.folder_worlds import WORLDS, conversation, family
from support.profiles import examples

from hubbub import Runtime
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.descriptors import UserDescriptor
from hubbub.hub.store.journal import Commit, RunInfo, Selection
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.values import Secret
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.stores.folders.disk import RealDisk
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


@pytest.mark.spec("P-01")
@pytest.mark.parametrize("world", WORLDS)
async def test_a_projected_world_is_sound(world: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    await WORLDS[world](home.store, 3)
    assert home.folders.failures == 0
    assert home.problems() == []


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
        assert folders.repair(info), what
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
    folders = home.again()
    folders.check(home.store.of(run_id))
    folders.repair(home.store.of(run_id))
    assert folders.check(home.store.of(run_id)) == []


def _clock() -> dict[str, Any]:
    return {"clock": trio.testing.MockClock(autojump_threshold=0)}


@pytest.mark.parametrize(
    "value", [None, True, 7, -1, 1.5, "x", [], [7], {}, {"x": []}, 10**30, "side_a"]
)
async def test_a_state_with_any_value_anywhere_is_found_and_rewritten(
    value: Any, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    await family(home.store, 5)
    run_id = home.run_ids()[0]
    file, info = home.file(run_id, "state.json"), home.store.of(run_id)
    state = json.loads(file.read_bytes())
    meddled = [state | {key: value} for key in state]
    meddled += [state | {"run": state["run"] | {key: value}} for key in state["run"]]
    for each in meddled:
        file.write_text(json.dumps(each))
        folders = home.again()
        folders.check(info)
        folders.repair(info)
        assert folders.check(info) == [], each


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


def test_what_cannot_be_put_in_its_place_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, source, folder = RealDisk(), tmp_path / "source", tmp_path / "q"
    source.write_bytes(b"content")
    (folder / "r").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    for take_its_place in (
        partial(disk.replace, str(folder), b"content"),
        partial(disk.link_or_copy, str(source), str(folder)),
    ):
        with pytest.raises(OSError, match="directory"):
            take_its_place()
        assert sorted(tmp_path.rglob("*")) == before

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", fails)
    monkeypatch.setattr("os.link", fails)
    with pytest.raises(OSError, match="No space"):
        disk.link_or_copy(str(source), str(tmp_path / "new"))
    assert sorted(tmp_path.rglob("*")) == before


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
        home.folders.repair(home.store.of(run_id))
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
    (files / "two.txt").unlink()
    (files / "two.txt").write_bytes(b"meddled with")
    assert "content has changed" in home.folders.check(info)[0]
    home.folders.repair(info)
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
