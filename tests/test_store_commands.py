"""The commands over a store, as their users meet them."""

import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub.__main__ import main
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import ScriptedModel
from hubbub.runtime.schedules.schedules import Cron
from hubbub.runtime.stores.open import sqlite_store

sys.path.append(str(Path(__file__).parent))

import anyio.lowlevel
from support.frames import Talk, complete, frame, use
from support.frames import open_runtime as frames_runtime
from support.stores import SECRET, Filled, fill, open_runtime

COMMANDS = (
    "conversations", "runs", "show", "tail", "export", "import", "replay", "diff", "fork", "fsck",
    "backup", "schedules", "prune", "vacuum",
)  # fmt: skip


class Store:
    """A filled store, and the command line on it."""

    def __init__(self, folder: Path, runs: Filled, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.runs = runs
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--store", f"sqlite:{self.folder}"])
        told = self._capsys.readouterr()
        return code, told.out, told.err

    def out(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.out(*arguments, "--json"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Filled]:
    folder = tmp_path_factory.mktemp("made") / "store"
    return folder, anyio.run(fill, folder)


@pytest.fixture
def store(made: tuple[Path, Filled], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Store:
    return Store(shutil.copytree(made[0], tmp_path / "store"), made[1], capsys)


def is_one_line(text: str) -> bool:
    return text.startswith("hubbub: ") and text.count("\n") == 1 and text[:-1].isprintable()


# ── the commands themselves ──────────────────────────────────────────────────────────────────


def test_help_names_every_command_and_its_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    top = capsys.readouterr().out
    for command in COMMANDS:
        assert f"{command} " in top
        assert main([command, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--store" in text and "sqlite:.hubbub" in text
        assert all(len(line) <= 80 for line in text.splitlines())
    assert main(["backup", "--help"]) == 0
    assert "SECRETS" in capsys.readouterr().out


def test_help_of_migrate_says_what_comes_along(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--help"]) == 0
    text = capsys.readouterr().out
    assert "SECRETS" in text and "postgresql://" in text and "FROM" in text
    assert all(len(line) <= 80 for line in text.splitlines())


WRONG = [
    (["runs", "--store", "sqlite:missing"], "missing/hubbub.db: no such store; give the folder"),
    (["runs"], ".hubbub/hubbub.db: no such store"),
    (["runs", "--store", "nats://x"], 'expected "sqlite:PATH", "postgresql://…" or "memory"'),
    (["runs", "--store", "memory"], "a store in memory ends with its program"),
    (["runs", "--limit", "0"], "--limit 0: expected a number of at least 1"),
    (["runs", "--limit", "many"], "many"),
    (["show"], "RUN"),
    (["show", "abc"], "has at least 4 characters"),
    (["show", "zzzz"], "no such run in this store; hubbub runs --all lists them"),
    (["tail", "-n", "-1"], "--lines -1: expected a number of at least 0"),
    (["tail", "--types", "a*b"], "pattern 'a*b'"),
    (["tail", "--run", "zzzz"], "no such run"),
    (["export", "zzzz"], "no such run"),
    (["import", "missing.jsonl"], "missing.jsonl: No such file or directory; name a file"),
    (["import", "noise.txt"], "noise.txt line 1: JSON is malformed"),
    (["import", "empty.txt"], "empty.txt line 0: the end of the export is missing"),
    (["import", "/dev/zero"], "/dev/zero line 1: it is longer than 128 MiB"),
    (["import", "other.jsonl"], "other.jsonl line 1: Invalid value"),
    (["backup", "store"], "store: is not empty; name a new folder"),
    (["backup", "noise.txt"], "noise.txt: Not a directory"),
    (["backup", "some.db"], "some.db: a backup is a folder"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_cannot_be_done_is_one_line_with_the_remedy(
    arguments: list[str], message: str, store: Store, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(store.folder.parent)
    Path("noise.txt").write_text("noise\n")
    Path("empty.txt").write_text("")
    Path("other.jsonl").write_text('{"line":"something"}\n')
    if "--store" not in arguments and arguments != ["runs"]:
        arguments = [*arguments, "--store", f"sqlite:{store.folder}"]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert is_one_line(told.err) and told.out == ""
    assert message in told.err


def test_the_commands_start_without_what_they_do_not_need() -> None:
    code = (
        "import sys; from hubbub.__main__ import _app; _app(); "
        "print({'hubbub.runtime.inspection.check', 'hubbub.runtime.inspection.imports', "
        "'hubbub.runtime.inspection.views'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "set()"


# ── runs, show ───────────────────────────────────────────────────────────────────────────────


def test_runs_shows_live_runs_and_with_all_every_run_under_its_parent(store: Store) -> None:
    lines = store.out("runs").splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["run", store.runs.parent, store.runs.chat]
    assert lines[3] == "schedules that have not fired:" and len(lines) == 5
    assert "at work" in lines[1] and " 2" in lines[1]
    assert "parked" in lines[2] and lines[2].endswith("chat_1_2")
    every = store.out("runs", "--all").splitlines()[1:]
    assert every[0].startswith(store.runs.done) and "ended (completed)" in every[0]
    assert every[1].startswith(store.runs.parent)
    assert every[2].startswith(f"└─ {store.runs.child}") and "ended (completed)" in every[2]


@pytest.mark.spec("U-06")
def test_conversations_are_listed_with_what_they_wait_for(store: Store) -> None:
    header, *lines = store.out("conversations").splitlines()
    assert header.split() == ["key", "agent", "status", "waits", "for", "last", "run", "title"]
    told = store.json("conversations")
    assert told["next"] == "" and len(told["conversations"]) == len(lines) >= 2
    chat = next(x for x in told["conversations"] if x["run_id"] == store.runs.chat)
    assert chat["title"] and any(chat["title"][:20] in line for line in lines)
    first = store.json("conversations", "--limit", "1")
    rest = store.json("conversations", "--before", first["next"])
    assert first["conversations"] + rest["conversations"] == told["conversations"]
    assert store.out("conversations", "--limit", "1").splitlines()[-1].endswith(" goes on")
    assert store.out("conversations", "--agent", "nobody") == "no conversations\n"
    code, _, err = store("conversations", "--status", "idle")
    assert code == 2 and is_one_line(err) and "active, waiting, parked, ended" in err


def test_runs_says_how_many_trees_it_leaves_out(store: Store) -> None:
    lines = store.out("runs", "--all", "--limit", "1").splitlines()
    assert lines[2] == "… and 2 more trees; --limit N shows more"
    told = store.json("runs", "--all", "--limit", "2")
    assert told["more"] == 1
    assert [(run["run_id"], run["depth"]) for run in told["runs"]] == [
        (store.runs.done, 0), (store.runs.parent, 0), (store.runs.child, 1),
    ]  # fmt: skip


def test_a_live_child_is_shown_below_its_parent_that_has_ended(store: Store) -> None:
    change(store, "UPDATE run SET status = 'ended' WHERE agent = 'parent'")
    change(store, "UPDATE run SET status = 'parked' WHERE agent = 'child'")
    told = [(run["run_id"], run["status"]) for run in store.json("runs")["runs"]]
    assert told[:2] == [(store.runs.parent, "ended"), (store.runs.child, "parked")]


def test_show_tells_everything_about_a_run_but_its_secrets(store: Store) -> None:
    text = store.out("show", store.runs.chat)
    for part in (
        "bot", "parked", "session key: chat_1_2", '"channelId":"1"', "notes/note.txt  11 B",
        'last = "heard again"', "input: hello", "bot: Let me see.", "note: noted",
        "bot: It is noted.", "user: again", "tokens: 40 in, 8 out",
    ):  # fmt: skip
        assert part in text, part
    told = store.json("show", store.runs.parent)
    assert [item["text"] for item in told["waiting"]] == ["are you there?", "hello?"]
    assert [child["run_id"] for child in told["children"]] == [store.runs.child]
    assert store.json("show", store.runs.child)["ancestors"] == [store.runs.parent]
    for run_id in (store.runs.chat, store.runs.parent):
        assert SECRET not in store.out("show", run_id, "--full", "--json")


@pytest.mark.spec("I-11", "I-16")
def test_show_tells_who_took_a_conversation_over_and_what_was_said_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(*lines: str) -> Talk:
        agents = (
            frame(ScriptedModel([use("writer", "A page."), "Done."]), agents=("writer",)),
            frame(
                ScriptedModel([use("research", "Find it."), "Is this right?"]),
                name="writer", agents=("research",),
            ),
            frame(ScriptedModel(["Which\x1b one?", complete("two pages")]), name="research"),
        )  # fmt: skip
        store = sqlite_store(tmp_path, mirror=False)
        async with frames_runtime(*agents, journal=store, ports=Ports()) as runtime:
            talk = Talk(runtime)
            for line in lines:
                await talk.say(line)
            return talk

    talk = anyio.run(work, "go")
    ((writer,), (research,)) = talk.frames("writer"), talk.frames("research")
    store = Store(tmp_path, None, capsys)  # type: ignore[arg-type]
    text = store.out("show", talk.root)
    assert "\nstack: main › writer › research\n" in text
    assert store.json("show", talk.root)["stack"] == ["main", "writer", "research"]
    assert "stack: " not in store.out("show", writer)
    anyio.run(work, "this", "/stop")
    text = store.out("show", talk.root)
    assert "stack: " not in text
    # How the frame that was taken away ends may not be on record yet.
    assert text[text.index("conversation:") :].splitlines()[1:17] == [
        "  input: go",
        '  main: → use_agent({"name":"writer","message":"A page."})',
        f"  ▸ writer: takes over as {writer}: A page.",
        '    writer: → use_agent({"name":"research","message":"Find it."})',
        f"    ▸ research: takes over as {research}: Find it.",
        "      research: Which\\x1b one?",
        "      user: this",
        '      research: → complete({"result":"two pages"})',
        "      complete: Completed.",
        "    ↩ research: gives the conversation back",
        "    use_agent: two pages",
        "    writer: Is this right?",
        "  user: /stop",
        "  interrupted: cancelled by the user",
        "  ↩ writer: gives the conversation back, without a result",
        "  use_agent: failed: interrupted: cancelled by the user",
    ]
    said = store.json("show", talk.root)["conversation"]
    assert {x["depth"] for x in said} == {0, 1, 2}
    assert [x["who"] for x in store.json("show", research)["conversation"]] == [
        "input", "research", "user", "research", "complete",
    ]  # fmt: skip


def test_long_texts_are_shortened_unless_all_is_asked_for(tmp_path: Path) -> None:
    from hubbub.runtime.cli.text import report_lines
    from hubbub.runtime.inspection.views import report
    from hubbub.runtime.stores.open import open_reader

    async def work() -> str:
        async with open_runtime(tmp_path / "store") as rt:
            run = await rt.start("bot", "long " * 1000 + "end", session_key="a")
            await run.result()
            for number in range(20):
                await rt.hub.send_to_run(run.run_id, f"message {number}\x1b[31m")
                await run.result()
            return run.run_id

    run_id = anyio.run(work)
    with open_reader(f"sqlite:{tmp_path / 'store'}") as opened:
        short = list(report_lines(report(opened, run_id), 0, full=False))
        full = list(report_lines(report(opened, run_id, full=True), 0, full=True))
    assert all(len(line) < 400 and line.isprintable() for line in short)
    assert any("earlier lines; --full shows all" in line for line in short)
    assert any(line.endswith("long end") for line in full)
    assert len(full) > len(short)


def test_a_part_of_a_run_id_is_enough_if_it_is_one_runs(store: Store) -> None:
    end = store.runs.chat[-8:]
    assert store.json("show", end)["run"]["run_id"] == store.runs.chat
    begin = store.runs.chat[:8]
    code, out, err = store("show", begin)
    assert (code, out) == (2, "") and is_one_line(err)
    assert store.runs.chat in err and store.runs.done in err and "write more of it" in err
    longer = store.runs.chat[: len(store.runs.chat) - 1]
    assert store.json("show", longer)["run"]["run_id"] == store.runs.chat


# ── tail ─────────────────────────────────────────────────────────────────────────────────────


def test_tail_prints_the_last_events_in_order(store: Store) -> None:
    lines = store.out("tail").splitlines()
    assert len(lines) == 20 and lines[-1].endswith("agent:complete  output=It is noted. " + COSTS)
    positions = [int(line.split()[0]) for line in lines]
    assert positions == sorted(positions)
    told = [json.loads(line) for line in store.out("tail", "-n", "5", "--json").splitlines()]
    assert [one["position"] for one in told] == positions[-5:]
    assert told[-1]["event"]["type"] == "agent:complete"


COSTS = 'usage={"input_tokens":20,"output_tokens":4}'


def test_tail_shows_what_is_asked_for(store: Store) -> None:
    lines = store.out("tail", "--types", "agent:text", "--types", "session:*", "-n", "1000")
    types = {line.split()[4] for line in lines.splitlines()}
    assert "agent:text" in types and "session:taken" in types
    assert all(type_ == "agent:text" or type_.startswith("session:") for type_ in types)
    of_child = store.out("tail", "--run", store.runs.child, "-n", "1000").splitlines()
    assert {line.split()[2] for line in of_child} == {store.runs.child}
    assert store.out("tail", "-n", "0") == ""


def wait_until(condition: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < 30
        time.sleep(0.02)


def test_tail_follows_until_it_is_interrupted(store: Store) -> None:
    """Beside a runtime at work, in a process of its own."""
    out = store.folder.parent / "out.txt"
    command = [sys.executable, "-m", "hubbub", "tail", "-f", "-n", "1", "--types", "agent:text"]
    with out.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--store", f"sqlite:{store.folder}"], stdout=file, stderr=subprocess.PIPE
        )
    try:
        wait_until(lambda: out.read_text().count("\n") == 1)

        async def work() -> None:
            async with open_runtime(store.folder) as rt:
                await rt.run("bot", "one more")

        anyio.run(work)
        wait_until(lambda: out.read_text().count("\n") == 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None and process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.spec("G-05")
@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_tail_says_so_and_ends_when_its_store_is_gone(how: str, store: Store) -> None:
    command = [sys.executable, "-m", "hubbub", "tail", "-f", "-n", "1"]
    process = subprocess.Popen(
        [*command, "--store", f"sqlite:{store.folder}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline()
        if how == "removed":
            shutil.rmtree(store.folder)
        else:
            store.folder.rename(store.folder.with_name("elsewhere"))
        if how == "replaced":
            shutil.copytree(store.folder.with_name("elsewhere"), store.folder)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (2, "")
    assert is_one_line(err) and "hubbub.db: was removed or replaced" in err


def test_a_closed_pipe_ends_tail_quietly(store: Store) -> None:
    """At the next event that nobody reads."""
    command = f"{sys.executable} -m hubbub tail -f -n 5 --store sqlite:{store.folder} | head -1"
    process = subprocess.Popen(
        ["timeout", "30", "sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    line = process.stdout.readline()

    async def work() -> None:
        async with open_runtime(store.folder) as rt:
            await rt.run("bot", "one more")

    anyio.run(work)
    out, err = process.communicate()
    assert line and (process.returncode, out, err) == (0, b"", b"")


# ── replay, schedules ────────────────────────────────────────────────────────────────────────


def test_replay_shows_a_run_as_it_was(store: Store) -> None:
    end = store.json("replay", store.runs.chat)
    assert (end["kind"], end["phase"], end["session"]) == ("model", "live", 2)
    assert end["files"][0]["path"] == "notes/note.txt"
    first = store.json("replay", store.runs.chat, "--until", "6")
    assert first["seq"] == 6 and first["session"] == 1 and first["in_session"]
    assert first["calls"][0]["name"] == "note" and not first["keys"]
    text = store.out("replay", store.runs.chat, "--until", "6")
    assert "after record 6" in text and "note(" in text
    code, _, err = store("replay", store.runs.chat, "--until", "1000")
    assert code == 2 and is_one_line(err) and f"from 1 to {end['seq']}" in err


def test_schedules_are_shown_without_what_defines_them(store: Store) -> None:
    header, line = store.out("schedules").splitlines()
    assert header.split() == ["schedule", "kind", "agent", "next", "last", "outcome", "run"]
    assert line.split()[:3] == ["heartbeat", "heartbeat", "bot"]
    (told,) = store.json("schedules")["schedules"]
    assert told["uid"] == "heartbeat" and told["next_at"] > 0


# ── export, import, backup, fsck ─────────────────────────────────────────────────────────────


def test_a_run_goes_from_store_to_store_by_a_file(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    said = store.out("export", store.runs.parent, "--out", str(file))
    assert said.startswith(f"wrote {file}: ")
    assert store.out("export", store.runs.parent) == file.read_text()
    other = Store(tmp_path / "other", store.runs, store._capsys)
    assert other.out("import", str(file)).startswith(f"imported run {store.runs.parent}: 2 runs,")
    assert other.out("export", store.runs.parent) == file.read_text()
    assert other.out("fsck").startswith("all is well: 2 runs, ")
    code, _, err = other("import", str(file))
    assert code == 2 and is_one_line(err) and "import with --replace" in err
    assert other.json("import", str(file), "--replace")["replaced"] == 2


def test_an_export_that_cannot_be_written_leaves_nothing(store: Store, tmp_path: Path) -> None:
    code, _, err = store("export", store.runs.chat, "--out", str(tmp_path / "no" / "x.jsonl"))
    assert code == 2 and is_one_line(err) and "name a file to write: --out FILE" in err
    shutil.rmtree(store.folder / "blobs")
    code, _, err = store("export", store.runs.chat, "--out", str(tmp_path / "x.jsonl"))
    assert code == 2 and is_one_line(err) and "--no-files" in err
    assert list(tmp_path.glob("x.jsonl*")) == []
    assert store.out("export", store.runs.chat, "--no-files")


def test_a_backup_opens_as_a_store(store: Store, tmp_path: Path) -> None:
    copy = Store(tmp_path / "copy", store.runs, store._capsys)
    assert "values of secrets" in store.out("backup", str(copy.folder))
    assert copy.out("runs", "--all", "--json") == store.out("runs", "--all", "--json")
    assert copy.out("fsck", "--thorough").startswith("all is well: 4 runs, ")
    assert copy.folder.stat().st_mode & 0o777 == 0o700
    assert (copy.folder / "hubbub.db").stat().st_mode & 0o777 == 0o600
    told = store.json("backup", str(tmp_path / "again"))
    assert told["runs"] == 4 and told["size"] > 0 and told["seconds"] >= 0


def change(store: Store, statement: str) -> None:
    db = sqlite3.connect(store.folder / "hubbub.db")
    db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.spec("G-08")
def test_fsck_of_a_store_whose_folders_are_behind_says_so_and_succeeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    store = Store(folder, anyio.run(partial(fill, folder, mirror=True)), capsys)
    (folder / "agents" / store.runs.chat / "state.json").unlink()
    code, out, err = store("fsck")
    assert (code, err) == (0, "")
    told, summary = out.splitlines()
    assert "state.json: missing; it is brought in line when a runtime opens the store" in told
    assert summary.endswith("; 1 places in agents/ are behind, to be updated automatically")
    assert store.json("fsck")["ok"] is True
    (folder / "agents" / store.runs.chat / "state.json").write_text("{")
    assert store("fsck")[0] == 1


def test_a_schedule_that_has_not_fired_yet_is_shown_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"

    async def work() -> None:
        async with open_runtime(folder, schedules=[Cron("yearly", "0 0 1 1 *", "bot", "hi")]):
            await anyio.lowlevel.checkpoint()

    anyio.run(work)
    anyio.run(work)  # And goes on being shown.
    assert main(["schedules", "--json", "--store", f"sqlite:{folder}"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["schedules"]
    assert (told["uid"], told["agent"], told["last_fired_at"]) == ("yearly", "bot", 0)
    assert told["next_at"] > 0
    assert main(["schedules", "--store", f"sqlite:{folder}"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert line.split()[:3] == ["yearly", "cron", "bot"]
    assert line[header.index("next") :].startswith(f"{datetime.now(UTC).year + 1}-01-01")


def test_fsck_tells_each_problem_in_a_line_and_fails(store: Store) -> None:
    assert store("fsck")[0] == 0
    change(store, "UPDATE event SET body = replace(body, 'Let me see', 'Let me sea')")
    change(store, "UPDATE run SET messages = 7 WHERE agent = 'parent'")
    code, out, err = store("fsck")
    lines = out.splitlines()
    assert code == 1 and is_one_line(err)
    assert err.startswith(f"hubbub: {len(lines)} problems in 4 runs, ")
    assert all(line.startswith(str(store.folder)) and line.isprintable() for line in lines)
    code, out, err = store("fsck", "--json")
    told = json.loads(out)
    assert (code, err, told["ok"]) == (1, "", False)
    assert [problem["text"] for problem in told["problems"]] == lines


def test_every_command_on_a_damaged_store_ends_with_a_line(store: Store, tmp_path: Path) -> None:
    """Never with a traceback, nor with words about a defect of hubbub's."""
    file = store.folder / "hubbub.db"
    db = sqlite3.connect(file)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute("PRAGMA journal_mode=DELETE")
    db.close()
    sound = file.read_bytes()
    draw = random.Random(7)
    for round_ in range(25):
        data = bytearray(sound)
        for _ in range(draw.choice([1, 3, 200])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(data)
        for arguments in (
            ["runs", "--all"], ["show", store.runs.chat], ["tail", "-n", "100"],
            ["export", store.runs.parent], ["replay", store.runs.chat], ["schedules"],
            ["backup", str(tmp_path / f"copy{round_}")], ["fsck"],
        ):  # fmt: skip
            code, _, err = store(*arguments)
            assert code in (0, 1, 2), arguments
            assert (err == "") == (code == 0), (arguments, err)
            assert not err or (is_one_line(err) and "unexpected" not in err), (arguments, err)
