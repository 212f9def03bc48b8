"""The command line as its users meet it, through pipes and a terminal; in processes of its own
where a process is what it is about."""

import importlib.metadata
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hubbub.__main__ import main
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.activities.call_tool import call_tool
from hubbub.runtime.demo.chat.agents import ChatModels, chat_agents
from hubbub.runtime.demo.chat.tools import clock_tool, file_tools
from hubbub.runtime.loading.agents import CannotLoad, load_agents, with_model
from hubbub.runtime.runtime import Runtime

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL")
SECRET = "sk-test-5e6c2e74d1"

AGENTS = '''
from hubbub import AgentDefinition, PromptDefinition, SideConfig, FunctionModel, agent, tool

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

def answer(request):
    from hubbub.runtime.models.scripted import call
    last = request.messages[-1]
    if last.__class__.__name__ == "AssistantMessage":
        return f"The sum is {last.calls[0].output}."
    return call("add", a=19, b=23)

adder = AgentDefinition(name="adder", side_a=SideConfig(prompt="adding"))
adding = PromptDefinition(name="adding", prompt="Add.", model=FunctionModel(answer), tools=["add"])

@agent("shout")
async def shout(input: str, ctx) -> str:
    ctx.say(input.upper())
    async for message in ctx.messages():
        ctx.say(message.content.upper())

both = [shout, adder]
number = 7
'''


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No keys, and an empty current folder: what commands keep is kept below it."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
    for name in (*KEYS, "HUBBUB_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, with modules of its own."""
    monkeypatch.chdir(tmp_path)
    before = dict(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - set(before[0]):
        if name.startswith("my_"):
            del sys.modules[name]
    sys.path[:] = before[1]


def hubbub(
    *arguments: str | bytes, say: str = "", cwd: Path | None = None, **environ: str
) -> tuple[int, str, str]:
    """Run the command; returns its exit code, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "hubbub", *arguments],
        input=say.encode(), capture_output=True, cwd=cwd, env={**os.environ, **environ}, timeout=60,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def hubbub_here(*arguments: str, say: str = "", cwd: Path | None = None) -> tuple[int, str, str]:
    """The same in this process: its descriptors, streams, folder and modules are as they were."""
    before = dict(sys.modules), list(sys.path), (sys.stdin, sys.stdout, sys.stderr), Path.cwd()
    kept = [os.dup(fd) for fd in range(3)]
    outside, inside = os.pipe()
    os.write(inside, say.encode())
    os.close(inside)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        for fd, stream in enumerate((outside, out.fileno(), err.fileno())):
            os.dup2(stream, fd)
        os.close(outside)
        sys.stdin, sys.stdout, sys.stderr = (
            open(fd, mode, closefd=False)  # noqa: SIM115
            for fd, mode in enumerate(("r", "w", "w"))
        )
        try:
            os.chdir(cwd or before[3])
            code = main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            for name in set(sys.modules) - set(before[0]):
                if name.startswith("my_"):
                    del sys.modules[name]
            sys.path[:] = before[1]
            sys.stdin, sys.stdout, sys.stderr = before[2]
            os.chdir(before[3])
            for fd, stream in enumerate(kept):
                os.dup2(stream, fd)
                os.close(stream)
        texts = [os.pread(file.fileno(), 1 << 24, 0).decode() for file in (out, err)]
    return code, texts[0], texts[1]


def is_one_line(text: str) -> bool:
    return text.startswith("hubbub: ") and text.count("\n") == 1 and text.endswith("\n")


# ── the command itself ───────────────────────────────────────────────────────────────────────


def test_help_names_the_commands_their_options_and_the_exit_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = []
    for arguments in ([], ["--help"], ["demo", "--help"], ["chat", "--help"]):
        assert main(arguments) == 0
        texts.append(capsys.readouterr().out)
        assert all(len(line) <= 80 for line in texts[-1].splitlines())
    texts = [" ".join(text.split()) for text in texts]
    top, same, demo, chat = texts
    assert top == same
    assert "demo" in top and "chat" in top and "130 interrupted" in top
    assert "--json" in demo and "FOLDER" in demo and "--record" not in demo
    assert "MODULE:AGENT" in chat and "--model" in chat and "ANTHROPIC_API_KEY" in chat


@pytest.mark.parametrize(
    "command",
    [
        "chat",
        pytest.param("demo --json", marks=pytest.mark.long),
        pytest.param("runs --all", marks=pytest.mark.long),
        "--version",
    ],
)
def test_streams_that_are_closed_are_no_surprise(command: str, tmp_path: Path) -> None:
    """Without an output nothing is begun; without the other two, all is done in silence."""
    environ = {name: value for name, value in os.environ.items() if name not in KEYS}

    def run(closed: str) -> tuple[int, str, str]:
        line = f"exec {sys.executable} -m hubbub {command} {closed}"
        done = subprocess.run(
            ["sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            cwd=tmp_path, env=environ, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    code, out, err = run(">&-")
    assert (code, out) == (2, "") and is_one_line(err) and "output is closed" in err
    assert run("<&- >&- 2>&-") == (2, "", "")
    assert not any(tmp_path.iterdir())
    code, _, err = run("")
    unread = run("<&-")
    assert (unread[0], unread[2]) == (code, err)
    unheard = run("2>&-")
    assert (unheard[0], unheard[2]) == (code, "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hubbub {importlib.metadata.version('hubbub')}\n"


def test_the_installed_command_is_this_one() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="hubbub")
    assert script.load() is main


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nope"], 2, 'Unknown command "nope"'),
        (["approve", "12ab"], 2, "hubbub reply PROMPT --approve"),
        (["deny", "12ab", "no"], 2, "hubbub reply PROMPT --deny REASON"),
        (["export", "12ab", "--json"], 2, "An export is JSON lines"),
        (["demo", "--nope"], 2, "Unknown option"),
        (["demo", "--backend", "curio"], 2, "asyncio"),
        (["demo", "a", "b"], 2, "b"),
        (["demo", "missing"], 2, "missing: does not exist; name a folder"),
        (["demo", "file.txt"], 2, "file.txt: is not a folder; name a folder"),
        (["demo", "with\0nul"], 2, "with\\x00nul"),
        (["demo", "with\x1b[31mred"], 2, "with\\x1b[31mred: does not exist"),
        (["demo", "empty"], 1, "no document was read in empty; name a folder"),
        (["demo", "pictures"], 1, "no document was read in pictures; name a folder"),
        (["demo", "texts", "--record", "missing/a.svg"], 2, "missing/a.svg: No such file"),
        (["chat", "--model", "nobody:x"], 2, "anthropic:NAME, openai:NAME"),
        (["chat", "--model", "openai:"], 2, "the name is missing"),
        (["chat", "--model", "openai:x@nowhere"], 2, "http://"),
        (["chat", "--model", "openai:x"], 2, "set OPENAI_API_KEY in the environment"),
        (["chat", "--model", "anthropic:x"], 2, "set ANTHROPIC_API_KEY in the environment"),
        (["chat", "--folder", "missing"], 2, "missing: does not exist"),
        (["chat", "my_nothing:x"], 2, "there is no module 'my_nothing'"),
        (["chat", "my_agents:nobody"], 2, "my_agents has no 'nobody'; write my_agents:adder or"),
        (["chat", "my_agents:number"], 2, "a int is not an agent; write my_agents:adder or"),
        (["chat", "my_agents"], 2, "write my_agents:adder or my_agents:shout"),
        (["chat", "my_agents:"], 2, "write MODULE:AGENT"),
        (["chat", "my_agents.py:adder"], 2, "write my_agents:adder"),
        (["chat", "my_broken:x"], 2, "ZeroDivisionError: division by zero (my_broken.py, line 2)"),
        (["chat", "my_syntax:x"], 2, "SyntaxError"),
        (["chat", "my_exit:x"], 2, "importing my_exit failed: SystemExit"),
        (["chat", "my_import:x"], 2, "importing my_import failed: ModuleNotFoundError"),
        (["chat", "my_wrong:agent"], 2, "no prompt named 'lost'"),
        (["chat", "my_agents:shout", "--model", "openai:x"], 2, "leave --model out"),
        (["chat", "my_agents:adder", "--model", "openai:x"], 2, "OPENAI_API_KEY"),
        (["chat", "my_agents:adder", "--system", "x"], 2, "--system, --folder and --skills are"),
        (["chat", "my_agents:adder", "--skills", "texts"], 2, "--skills are for the assistant"),
        (["chat", "--skills", "file.txt"], 2, "file.txt: is not a folder; name the folder of your"),
        (["chat", "--skills", "wrong"], 2, "the skills of wrong cannot be used - a.md: no front"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_with_the_remedy(
    arguments: list[str], code: int, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("empty", "pictures", "texts", "wrong"):
        (here / folder).mkdir()
    (here / "wrong" / "a.md").write_text("no skill")
    (here / "file.txt").write_text("x")
    (here / "texts" / "a.txt").write_text("x")
    (here / "pictures" / "a.png").write_bytes(b"\0")
    (here / "my_agents.py").write_text(AGENTS)
    (here / "my_broken.py").write_text("\n1 / 0\n")
    (here / "my_syntax.py").write_text("def\n")
    (here / "my_exit.py").write_text("raise SystemExit(3)\n")
    (here / "my_import.py").write_text("import my_lost_dependency\n")
    (here / "my_wrong.py").write_text(
        "from hubbub import *\n"
        "agent = AgentDefinition(name='a', side_a=SideConfig(prompt='lost'))\n"
    )
    assert main(arguments) == code
    complaint = capsys.readouterr().err
    assert is_one_line(complaint)
    assert message in complaint
    assert complaint[:-1].isprintable()


def test_without_the_extra_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    assert main(["demo"]) == 2
    complaint = capsys.readouterr().err
    assert is_one_line(complaint)
    assert "uv sync --extra cli, or pip install '.[cli]'" in complaint


def test_the_unexpected_is_one_line_too_and_a_traceback_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def burst(*_: object, **__: object) -> None:
        raise RuntimeError("pipes\nburst")

    monkeypatch.setattr("cyclopts.App.__call__", burst)
    assert main(["demo"]) == 1
    complaint = capsys.readouterr().err
    assert is_one_line(complaint)
    assert "unexpected RuntimeError: pipes burst; HUBBUB_DEBUG=1" in complaint
    monkeypatch.setenv("HUBBUB_DEBUG", "1")
    with pytest.raises(RuntimeError, match="burst"):
        main(["demo"])


def test_importing_hubbub_imports_no_part_of_the_command_line() -> None:
    code = "import hubbub, sys; print({'rich', 'cyclopts', 'markdown_it'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "set()"


# ── demo ─────────────────────────────────────────────────────────────────────────────────────


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_demo_of_200_files_costs_little_and_tells_machines_everything(tmp_path: Path) -> None:
    """Beside its floor, the demo of one file: this is not about how fast the machine is."""
    (tmp_path / "floor").mkdir()
    (tmp_path / "floor" / "one.md").write_text("# Title\n")
    before = cpu_of_children()
    hubbub("demo", str(tmp_path / "floor"), "--json")
    floor = cpu_of_children() - before
    (tmp_path / "floor" / "one.md").unlink()
    words = 0
    for number in range(200):
        words += number + 3
        (tmp_path / f"{number}.md").write_text(f"# Title\n{'word ' * number}\n[x](gone)\n")
    before = cpu_of_children()
    code, out, err = hubbub("demo", str(tmp_path), "--json")
    took = cpu_of_children() - before
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert took < 4 * floor
    assert told["outcome"] == "completed"
    assert told["runs"] == 201
    assert told["totals"]["documents"] == told["totals"]["headings"] == 200
    assert told["totals"]["broken_links"] == 200
    assert told["totals"]["words"] == words
    assert told["steering"]["after_documents"] == 100
    assert told["steering"]["answer"]["path"] == "199.md"
    assert "line 2 of 199.md" in told["report"]


def test_the_demo_into_a_pipe_is_plain_lines_whatever_the_files_are_called(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    for name in (b"caf\xe9.md", b"\x1b[31mred.txt", b"two\nlines.md", b"plain.md"):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(b"# One\n\nsome words\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0")
    code, out, err = hubbub(b"demo", folder, "--backend", "trio", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    lines = out.splitlines()
    assert "reader    caf\\xe9.md: 4 words, 3 lines, 1 heading" in lines
    assert any(line.startswith("message   to run ") for line in lines)
    assert f"4 documents in {tmp_path}: 16 words in 12 lines." in lines
    assert any(line.startswith("Skipped 3 files: image.png (binary)") for line in lines)
    assert any(re.fullmatch(r"5 runs, \d+ events, [\d.]+ s; steered by .*", x) for x in lines)
    assert lines[-1].startswith("director   A 32")


def test_the_demo_reads_hubbubs_own_documents_unless_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    paths = [file["path"] for file in told["files"]]
    assert "README.md" in paths and "LICENSE" in paths
    assert not [path for path in paths if path.endswith(".py")]


def test_the_demo_can_be_recorded_as_a_picture(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a.md").write_text("# Title\n")
    assert main(["demo", ".", "--record", "demo.svg"]) == 0
    assert capsys.readouterr().out == "wrote demo.svg\n"
    picture = (here / "demo.svg").read_text()
    assert picture.startswith("<svg")
    assert "$&#160;hubbub&#160;demo&#160;." in picture


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self._end, inside = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hubbub", *arguments],
            stdin=inside, stdout=inside, stderr=inside, cwd=cwd, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "90", "LINES": "30"},
        )  # fmt: skip
        os.close(inside)
        self.shown = ""

    def read_until(self, text: str, seconds: float = 30) -> bool:
        """Read until ``text`` is shown; false when the program ends first."""
        until = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < until, self.shown
            if select.select([self._end], [], [], 0.2)[0]:
                try:
                    chunk = os.read(self._end, 65536)
                except OSError:
                    return False
                if not chunk:
                    return False
                self.shown += chunk.decode(errors="replace")
        return True

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def wait(self) -> int:
        self.read_until("\0no such text")
        os.close(self._end)
        return self.process.wait(30)


def test_in_a_terminal_the_demo_draws_itself_and_ends_with_the_report(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02}.md").write_text("# Title\n\nwords\n")
    terminal = Terminal("demo", ".", cwd=tmp_path)
    assert terminal.wait() == 0
    assert terminal.shown.count("\x1b[2K") > 20, "drawn again and again"
    end = terminal.shown[terminal.shown.rindex("\x1b[2K") :]
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", end)
    assert "✓ surveyor" in plain and "✓ read_documents(first=1, last=10)" in plain
    assert "✉ “Also tell me which file has the longest line.”" in plain
    assert "40/40" in plain
    assert "40 documents in .: 120 words in 120 lines." in plain
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l"), "cursor is back"


def test_ctrl_c_ends_the_demo_quietly(tmp_path: Path) -> None:
    for number in range(1000):  # More than it has read when the signal comes.
        (tmp_path / f"{number}.txt").write_text("x")
    terminal = Terminal("demo", ".", cwd=tmp_path)
    terminal.read_until("list_documents")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == 130
    assert "Traceback" not in terminal.shown and "hubbub:" not in terminal.shown


INTERRUPTED_AT = """
import os, runpy, signal, sys

def look(event, args):
    if event == "import" and args[0] == module:
        os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop()
sys.addaudithook(look)
runpy.run_module("hubbub", run_name="__main__", alter_sys=True)
"""


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("module", ["anyio", "hubbub.runtime.cli.store_commands", "cyclopts"])
def test_ctrl_c_while_the_command_is_being_loaded_ends_it_like_any_other(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT, "--version", module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}.txt").write_text("x")
    process = subprocess.Popen(
        [sys.executable, "-m", "hubbub", "demo", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(30) == 1


# ── chat ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("K-03")
def test_chat_through_a_pipe_answers_on_stdout_and_says_on_stderr_that_it_is_offline(
    tmp_path: Path,
) -> None:
    code, out, err = hubbub("chat", say="hi\n", cwd=tmp_path)
    assert code == 0
    assert out == 'You said “hi”: 1 word. Say "help" to hear what I am.\n'
    assert is_one_line(err)
    assert "no API key in the environment, so this is the offline model" in err


@pytest.mark.spec("K-03")
@pytest.mark.parametrize("wrong", [("--store", "X"), ("--session", "a b"), ("--model", "x:y")])
def test_chat_that_is_refused_says_why_and_nothing_else(
    wrong: tuple[str, str], tmp_path: Path
) -> None:
    code, out, err = hubbub_here("chat", "--skills", "none", *wrong, say="hi\n", cwd=tmp_path)
    assert (code, out) == (2, "") and is_one_line(err)


def test_chat_reads_the_folder_it_was_given_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.md").write_text("# Title\n\nfour little words here\n")
    (tmp_path / "secret.txt").write_text("nobody may read this")
    say = "list files\nread a.md\nread ../secret.txt\ndone\nwhat time is it?\n"
    code, out, _ = hubbub_here(
        "chat", "--folder", "folder", "--backend", "trio", say=say, cwd=tmp_path
    )
    assert code == 0
    assert "I see these text files:\n  a.md\n" in out
    assert "6 words in 3 lines. It begins:\n  # Title\n" in out
    assert "'../secret.txt' lies outside of the folder" in out
    assert "nobody may read this" not in out
    assert re.search(r"It is \w+day, 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\.", out)


@pytest.mark.spec("I-14")
def test_chat_writes_a_skill_and_the_next_chat_offers_it(tmp_path: Path) -> None:
    say = "make a skill that greets people\nno\nwrite it\n"
    code, out, err = hubbub_here("chat", say=say, cwd=tmp_path)
    assert (code, is_one_line(err)) == (0, True)
    assert "wrote skills/greets-people.md; the next `hubbub chat` offers" in out
    code, out, _ = hubbub_here("chat", say="use greets-people\n", cwd=tmp_path)
    assert code == 0
    assert "Your task: greets people." in out
    code, out, _ = hubbub_here("chat", "--skills", ".", say="use greets-people\n", cwd=tmp_path)
    assert "You said “use greets-people”" in out, "another folder, other skills"


def test_a_usual_folder_that_holds_no_skills_is_told_of_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "README.md").write_text("What we are good at.")
    code, out, err = hubbub_here("chat", say="hi\n", cwd=tmp_path)
    assert code == 0
    assert "You said “hi”" in out
    assert "README.md: no front matter" in err and "--skills FOLDER names another" in err


def test_chat_with_an_agent_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(AGENTS)
    code, out, err = hubbub_here("chat", "my_agents:adder", say="19 and 23?\n", cwd=tmp_path)
    assert (code, out, err) == (0, "The sum is 42.\n", "")
    code, out, err = hubbub_here("chat", "my_agents:both", say="hello\nyou\n", cwd=tmp_path)
    assert (code, out, err) == (0, "HELLO\nYOU\n", "")


@pytest.mark.spec("K-03")
def test_chat_in_a_terminal_shows_tools_at_work_and_ends_with_the_input(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    terminal = Terminal("chat", cwd=tmp_path)
    terminal.read_until("offline model")
    terminal.type("list files\r")
    assert terminal.read_until("list_files()")
    assert terminal.read_until("I see these text files:")
    terminal.type("\x04")
    assert terminal.wait() == 0
    assert "Traceback" not in terminal.shown


class Refusing(BaseHTTPRequestHandler):
    """A provider that knows no key, and repeats the one it was given."""

    def do_POST(self) -> None:
        body = json.dumps({"error": {"message": f"Incorrect API key provided: {SECRET}"}}).encode()
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def refusing_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.spec("M-04")
@pytest.mark.parametrize("debug", ["", "1"])
def test_a_refused_key_is_one_line_a_turn_and_shows_nowhere(
    refusing_server: str, tmp_path: Path, debug: str
) -> None:
    code, out, err = hubbub(
        "chat", "--model", f"openai:any@{refusing_server}", say="one\ntwo\n", cwd=tmp_path,
        OPENAI_API_KEY=SECRET, HUBBUB_DEBUG=debug,
    )  # fmt: skip
    assert code == 1
    assert out == ""
    assert len(err.splitlines()) == 2, "a line for each turn: the conversation goes on"
    assert all("401" in line for line in err.splitlines())
    assert SECRET not in out + err


def test_a_key_in_the_environment_chooses_a_model_and_says_which(
    refusing_server: str, tmp_path: Path
) -> None:
    code, _, err = hubbub(
        "chat", say="hi\n", cwd=tmp_path, ANTHROPIC_API_KEY=SECRET,
        ANTHROPIC_BASE_URL=refusing_server.removesuffix("/v1"),
    )  # fmt: skip
    assert code == 1
    first, second = err.splitlines()
    assert re.fullmatch(r"hubbub: talking to anthropic:\S+; see --model", first)
    assert "401" in second
    assert SECRET not in err


# ── loading agents ───────────────────────────────────────────────────────────────────────────


def test_an_agent_comes_with_the_prompts_and_tools_of_its_module(here: Path) -> None:
    (here / "my_agents.py").write_text(AGENTS)
    loaded = load_agents("my_agents:adder")
    assert loaded.agent.name == "adder"
    assert {each.name for each in loaded.agents} == {"adder", "shout"}
    runtime = Runtime(loaded.agents, loaded.prompts, loaded.tools, store="memory")
    assert set(runtime.definitions.side("adder").tools) == {"add"}
    assert load_agents("my_agents:both").agent.name == "shout", "the first of a list"


def test_a_module_with_one_agent_needs_no_name(here: Path) -> None:
    (here / "my_one.py").write_text(
        "from hubbub import agent\n@agent('only')\nasync def only(input, ctx): ...\n"
    )
    assert load_agents("my_one").agent.name == "only"


def test_another_model_replaces_that_of_the_agent(here: Path) -> None:
    (here / "my_agents.py").write_text(AGENTS)
    loaded = with_model(load_agents("my_agents:adder"), "openai:other")
    runtime = Runtime(loaded.agents, loaded.prompts, loaded.tools, store="memory")
    assert runtime.definitions.side("adder").prompt.model == "openai:other"
    with pytest.raises(CannotLoad, match="leave --model out"):
        with_model(load_agents("my_agents:shout"), "openai:other")


@pytest.mark.spec("I-14")
def test_an_agent_comes_with_the_skills_of_its_module_also_those_of_a_folder(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "sing.md").write_text("---\ndescription: Sings.\n---\nSing.\n")
    (here / "my_skills.py").write_text(
        "from hubbub import *\n"
        "dance = Skill(name='dance', description='Dances.', instructions='Dance.')\n"
        "of_folder = load_skills('mine')\n"
        "prompt = PromptDefinition(name='p', prompt='', model=FunctionModel(lambda _: 'hi'),\n"
        "    skills=['sing', dance])\n"
        "bot = AgentDefinition(name='bot', side_a=SideConfig(prompt=prompt))\n"
    )
    loaded = load_agents("my_skills:bot")
    assert sorted(each.name for each in loaded.skills) == ["dance", "sing"]
    runtime = Runtime(
        loaded.agents, loaded.prompts, loaded.tools, skills=loaded.skills, store="memory"
    )
    assert set(runtime.definitions.side("bot").skills) == {"dance", "sing"}


# ── the assistant ────────────────────────────────────────────────────────────────────────────


async def used(
    tools: tuple[Tool[..., object], ...], name: str, /, **arguments: str
) -> tuple[str, bool]:
    (wanted,) = (each for each in tools if each.name == name)
    result = await call_tool(wanted, json.dumps(arguments), None, virtual_ports().offload)  # type: ignore[arg-type]
    return result.content, result.is_error


@pytest.mark.anyio
async def test_no_name_leads_out_of_the_folder(tmp_path: Path, ports: Ports) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.txt").write_text("inside")
    (folder / ".env").write_text("KEY=hidden")
    (folder / "binary").write_bytes(b"\0")
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "folder2").mkdir()
    (tmp_path / "folder2" / "x.txt").write_text("outside")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    tools = file_tools(ports, folder)
    assert await used(tools, "read_file", name="sub/a.txt") == ("inside", False)
    assert await used(tools, "read_file", name="sub/../sub/a.txt") == ("inside", False)
    for name in (
        "../secret.txt", str(tmp_path / "secret.txt"), "link.txt", "up/secret.txt", ".env",
        "sub/../../secret.txt", "../folder2/x.txt", "/etc/passwd", "~/.ssh/id_rsa", "missing",
        "sub", "binary", "pipe", "", ".", "..", "a\0b", "x" * 5000,
    ):  # fmt: skip
        content, is_error = await used(tools, "read_file", name=name)
        assert is_error, name
        assert "outside\n" not in content and "hidden\n" not in content
        assert content != "outside" and "KEY=" not in content


@pytest.mark.anyio
async def test_without_a_folder_there_are_no_file_tools(ports: Ports) -> None:
    assert file_tools(ports, None) == ()
    assert await used((clock_tool(ports),), "current_time") == (
        "Thursday, 2026-01-01 00:00:00 UTC",
        False,
    )


@pytest.mark.anyio
async def test_long_files_are_cut_with_a_note(tmp_path: Path, ports: Ports) -> None:
    (tmp_path / "long.txt").write_text("x" * 100_000)
    content, _ = await used(file_tools(ports, tmp_path), "read_file", name="long.txt")
    assert content.endswith("\n[cut: only the first 65,536 bytes are shown]")


@pytest.mark.spec("I-14")
def test_who_may_give_the_conversation_to_whom(ports: Ports, tmp_path: Path) -> None:
    given = skill_of_ones_own("greet"), skill_of_ones_own("other")
    runtime = assistants(ports, tmp_path, given)
    side = runtime.definitions.side("main")
    assert (set(side.tools), set(side.agents)) == ({"current_time"}, {"research"})
    assert set(side.skills) == {"skill-writer", "greet", "other"}
    writer = runtime.definitions.side("skill:skill-writer")
    assert (set(writer.tools), set(writer.agents)) == ({"write_skill"}, {"research"})
    assert writer.prompt.model == "openai:c"
    research = runtime.definitions.side("research")
    assert set(research.tools) == {"list_files", "read_file"}
    assert not research.agents and not research.skills


def test_a_skill_of_ones_own_takes_the_place_of_the_one_that_comes_along(
    ports: Ports, tmp_path: Path
) -> None:
    runtime = assistants(ports, tmp_path, [skill_of_ones_own("skill-writer")])
    assert runtime.definitions.side("skill:skill-writer").prompt.prompt == "Do it."
    assert set(runtime.definitions.side("main").skills) == {"skill-writer"}


def test_system_is_what_main_is_told_to_be(ports: Ports, tmp_path: Path) -> None:
    runtime = assistants(ports, tmp_path, [], system="You are a pirate.")
    assert runtime.definitions.side("main").prompt.prompt == "You are a pirate."
    assert "pirate" not in runtime.definitions.side("research").prompt.prompt


def assistants(ports: Ports, folder: Path, skills: Sequence[Skill], system: str = "") -> Runtime:
    models = ChatModels("openai:a", "openai:b", "openai:c")
    made = chat_agents(models, ports, folder=folder, skills=skills, system=system)
    return Runtime(made.agents, made.prompts, made.tools, skills=made.skills, store="memory")


def skill_of_ones_own(name: str) -> Skill:
    return Skill(name=name, description="Mine.", instructions="Do it.")


# ── assets ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_assets_are_drawn_sent_back_once_approved_and_copied(tmp_path: Path, backend: str) -> None:
    arguments = ("assets", "--json", "--out", str(tmp_path), "--backend", backend)
    code, out, err = hubbub(*arguments)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["outcome"], told["rejections"], list(told["files"])) == (
        "completed", 1, ["tree.svg"],
    )  # fmt: skip
    assert (tmp_path / "tree.svg").read_text() == told["files"]["tree.svg"]


def test_assets_into_a_pipe_are_plain_lines() -> None:
    code, out, err = hubbub("assets", PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    lines = out.splitlines()
    assert any(line.startswith("Worker     gets: It is 24") for line in lines)
    assert lines[-1].startswith("director   A 32")


def test_what_assets_cannot_do_is_one_line(tmp_path: Path) -> None:
    for arguments in (
        ("--model", ""), ("--model", "nobody:x"), ("--out", str(tmp_path / "none")),
    ):  # fmt: skip
        code, _, err = hubbub("assets", *arguments)
        assert is_one_line(err), err
        assert code in (1, 2) and "Traceback" not in err


def test_the_demo_tells_of_the_delegation_as_json_too(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n")
    code, out, _ = hubbub("demo", str(tmp_path), "--json")
    assert code == 0
    assert json.loads(out)["delegation"]["rejections"] == 1


COUNTING = """
from hubbub import AgentDefinition, PromptDefinition, SideConfig, FunctionModel

def count(request):
    said = sum(m.__class__.__name__ == "UserMessage" for m in request.messages)
    return f"{said} so far"

counts = AgentDefinition(name="counts", side_a=SideConfig(prompt="counting"))
counting = PromptDefinition(name="counting", prompt="Count.", model=FunctionModel(count))
"""


# ── a demo that is killed ────────────────────────────────────────────────────────────────────


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(60):
        text = f"# Document {number}\n" + "word " * (number * 37 % 400) + "\n"
        (folder / f"document-{number:02}.md").write_text(text * 20)
    return folder


@pytest.mark.spec("P-10", "P-15")
@pytest.mark.parametrize(
    ("lines", "backend"),
    [
        (12, "trio"), (40, "asyncio"),
        pytest.param(1, "asyncio", marks=pytest.mark.long),
        pytest.param(75, "trio", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_a_demo_killed_in_the_middle_goes_on_and_reads_no_file_twice(
    lines: int, backend: str, documents: Path, tmp_path: Path
) -> None:
    whole = json.loads(hubbub_here("demo", str(documents), "--json")[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "hubbub", "demo", str(documents), "--backend", backend],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    shutil.copytree(tmp_path_of_demo(), tmp_path / "other" / ".hubbub" / "demo")
    code, out, _ = hubbub_here("demo", "--resume", "--backend", backend, cwd=tmp_path / "other")
    assert code == 0
    assert out.startswith(f"Going on with the demo of {documents}: "), "it says what is resumed"
    assert "on record" in out.splitlines()[0]
    code, out, err = hubbub_here("demo", "--resume", "--json", "--backend", backend)
    assert (code, err) == (0, "")
    resumed = json.loads(out)
    assert resumed["report"] == whole["report"]
    assert resumed["totals"] == whole["totals"]
    database = sqlite3.connect(tmp_path_of_demo() / "hubbub.db")
    counted = "SELECT count(*), count(DISTINCT run) FROM event WHERE type = ?"
    for type_ in ("agent:record", "agent:child", "agent:complete"):
        total, runs = database.execute(counted, (type_,)).fetchone()
        if type_ != "agent:child":
            assert total == runs == (60 if type_ == "agent:record" else 61)
        else:
            assert total == 60
    readings = "SELECT count(*) FROM event WHERE type = 'agent:status' AND body LIKE '%reading %'"
    assert database.execute(readings).fetchone() == (60,)
    database.close()
    again = json.loads(hubbub_here("demo", "--resume", "--json")[1])
    assert again["report"] == whole["report"], "a demo that is over tells its story again"


def tmp_path_of_demo() -> Path:
    return Path.cwd() / ".hubbub" / "demo"


def test_there_is_nothing_to_resume_where_no_demo_was_begun(tmp_path: Path) -> None:
    code, _, err = hubbub_here("demo", "--resume", cwd=tmp_path)
    assert code == 2 and is_one_line(err) and "hubbub demo" in err
    code, _, err = hubbub_here("demo", ".", "--resume", cwd=tmp_path)
    assert code == 2 and is_one_line(err) and "leave FOLDER out" in err


# ── conversations that are kept ──────────────────────────────────────────────────────────────


@pytest.mark.spec("P-06", "P-17", "T-04")
def test_a_chat_with_a_name_is_gone_on_with(here: Path) -> None:
    (here / "my_agents.py").write_text(COUNTING)
    name = "my_agents:counts"
    for expected in ("1 so far", "2 so far", "3 so far"):
        code, out, err = hubbub_here("chat", name, "--session", "daily", say="hello\n", cwd=here)
        assert (code, err) == (0, "")
        assert expected in out
    code, out, _ = hubbub_here("chat", name, say="hello\n", cwd=here)
    assert "1 so far" in out, "without a name it is a new conversation"
    code, _, err = hubbub_here("chat", name, "--session", "a/b", say="hello\n", cwd=here)
    assert code == 2 and is_one_line(err)


ADDRESS = "postgresql://u:pl4nted@127.0.0.1:1/d"


@pytest.mark.parametrize(
    "arguments",
    [
        ["worker", ADDRESS], ["serve", ADDRESS], ["chat", ADDRESS], ["demo", ADDRESS],
        ["runs", ADDRESS], ["import", ADDRESS], ["reply", ADDRESS], [ADDRESS],
        ["compact", ADDRESS], ["show", ADDRESS], ["serve", "--host", ADDRESS],
        ["worker", "x", "--capacity", ADDRESS], ["worker", "x", "--backend", ADDRESS],
        ["runs", "--store", f"sqlite:{ADDRESS}"], ["migrate", f"sqlite:{ADDRESS}", "sqlite:x"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_address_in_the_wrong_place_shows_no_password(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBBUB_DEBUG", raising=False)
    assert main(arguments) != 0
    shown = capsys.readouterr()
    assert "pl4nted" not in shown.out + shown.err and shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
