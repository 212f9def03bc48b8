"""``hubbub chat`` in a real terminal, killed three deep and gone on with (I-09).

What its user sees in both lives is kept in ``tests/recordings``; after a wanted change of what is
shown: ``HUBBUB_RECORD=1 uv run pytest tests/runtime/demo/test_chat_recording.py``.
"""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hubbub.__main__ import main
from hubbub.runtime.loading.skills import load_skills

RECORDING = Path(__file__).parents[2] / "recordings" / "chat_killed_three_deep.txt"
STORE = ("--store", "sqlite:store")
CHAT = ("chat", "--folder", "notes", "--skills", "skills", "--session", "demo", *STORE)
PATIENCE = 60.0
"""Seconds after which a machine is not slow any more, and the program hangs."""

TOP = "\n> "
WRITER = "main › skill-writer › "
RESEARCH = "main › skill-writer › research › "

BEFORE = (
    (TOP, "write a skill"),
    (WRITER, "reviews texts, based on the notes"),
    (RESEARCH, ""),
)
AFTER = (
    (RESEARCH, "style"),
    (WRITER, "write it"),
    (TOP, "hi"),
    (TOP, ""),
)
"""Prompts, and what is typed there."""


class Terminal:
    """A pseudo-terminal with the chat in it."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.end, inside = pty.openpty()
        keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HUBBUB_DEBUG")
        kept = {name: value for name, value in os.environ.items() if name not in keys}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hubbub", *CHAT, "--backend", backend],
            stdin=inside, stdout=inside, stderr=inside, cwd=folder, start_new_session=True,
            env={**kept, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
        )  # fmt: skip
        os.close(inside)
        self._written = b""

    def play(self, *typed: tuple[str, str]) -> None:
        """Wait for each prompt, below what was there before, and type."""
        lines = 0
        for prompt, text in typed:
            self._wait(prompt, lines)
            lines = self.screen.count("\n") + 1
            if text:
                os.write(self.end, f"{text}\n".encode())

    @property
    def screen(self) -> str:
        """What is to be seen: carriage returns, erased lines and colours carried out."""
        lines = [""]
        text = self._written.decode(errors="ignore").replace("\r\n", "\n")
        for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", text):
            if piece == "\n":
                lines.append("")
            elif piece == "\r":  # The console erases whole lines, and ends of lines.
                lines[-1] = ""
            elif place := re.fullmatch(r"\x1b\[(\d+)G", piece):
                lines[-1] = lines[-1][: int(place[1]) - 1]
            elif not piece.startswith("\x1b"):
                lines[-1] += piece
        return "\n".join(lines)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def leave(self) -> int:
        """End the input."""
        os.write(self.end, b"\x04")
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < until, self.screen
            self._read()
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self.end)

    def _wait(self, prompt: str, lines: int) -> None:
        until = time.monotonic() + PATIENCE
        while not (self.screen.endswith(prompt) and self.screen.count("\n") >= lines):
            assert time.monotonic() < until, f"no {prompt!r} at the end of {self.screen}"
            assert self.process.poll() is None, self.screen
            self._read()

    def _read(self) -> None:
        if select.select([self.end], [], [], 0.05)[0]:
            try:
                self._written += os.read(self.end, 65536)
            except OSError:  # The other end is closed.
                time.sleep(0.01)


@contextmanager
def chat(folder: Path, backend: str) -> Iterator[Terminal]:
    terminal = Terminal(folder, backend)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.long
@pytest.mark.spec("I-09", "I-17")
def test_killed_three_deep_a_chat_goes_on_three_deep_and_nothing_is_said_or_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skills").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "style.md").write_text("# Style\n\nUse short sentences.\n")
    (tmp_path / "notes" / "hubs.txt").write_text("Hubs carry events.\n")
    with chat(tmp_path, "asyncio") as first:
        first.play(*BEFORE)
        first.kill()
    with chat(tmp_path, "trio") as second:
        second.play(*AFTER)
        shown = second.screen
        assert second.leave() == 0
    (skill,) = load_skills(tmp_path / "skills")
    assert skill.name == "reviews-texts"
    assert "Use short sentences." in skill.instructions
    _everything_once(_exported(capsys))
    assert _recorded(f"{first.screen}\n[kill -9]\n{shown}\n") == RECORDING.read_text()


def _everything_once(events: list[dict[str, Any]]) -> None:
    """Each line was heard once, each thing said and done once, and both frames are gone."""
    of = Counter(x["type"] for x in events)
    assert (of["session:push"], of["session:pop"], of["agent:child"]) == (2, 2, 2)
    depths = [x["depth"] for x in events if x["type"] in ("session:push", "session:pop")]
    assert depths == [2, 3, 2, 1]
    taken = [item for x in events if x["type"] == "session:taken" for item in x["items"]]
    heard = [x["content"] for x in taken if x["type"] == "session:message"]
    assert heard == [text for _, text in (*BEFORE, *AFTER) if text][1:], "the first one opened it"
    said = Counter((x["agent"], x["text"]) for x in events if x["type"] == "agent:text")
    assert set(said.values()) == {1}
    assert {speaker for speaker, _ in said} == {"main", "skill:skill-writer", "research"}
    began = Counter(x["name"] for x in events if x["type"] == "agent:tool:start")
    calls = ("use_skill", "use_agent", "list_files", "read_file", "write_skill")
    assert {name: began[name] for name in calls} == dict.fromkeys(calls, 1)
    completed = [x for x in events if x["type"] == "agent:tool:complete"]
    ended = Counter((x["run_id"], x["call_id"]) for x in completed)
    assert set(ended.values()) == {1}
    assert not [x for x in events if x["type"] in ("hub:dead_letter", "hub:error", "agent:retry")]


def _exported(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The events of the conversation, in the order in which they were written."""
    assert main(["runs", "--all", "--json", *STORE]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    (root,) = [each["run_id"] for each in runs if each["parent_run_id"] is None]
    assert main(["export", root, *STORE]) == 0
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return [each["event"] for each in lines if each["line"] == "event"]


def _recorded(shown: str) -> str:
    """What was shown; it becomes the recording when that is asked for."""
    text = "".join(f"{line.rstrip()}\n" for line in shown.splitlines())
    if os.environ.get("HUBBUB_RECORD"):
        RECORDING.write_text(text)
    return text
