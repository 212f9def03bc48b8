"""Lines of a descriptor, and a screen in words (K-03)."""

import io
import os
from contextlib import suppress
from unicodedata import bidirectional

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub.channels.console.screen import Screen, neutralise, shorten
from hubbub.channels.console.terminal import TerminalReader, TerminalWriter

pytestmark = pytest.mark.spec("K-03")

DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = "\u061c\u200e\u200f\u2028\u2029\u206a\u206b\u206c\u206d\u206e\u206f\ufff9\ufffa\ufffb"


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    os.close(read)
    with suppress(OSError):  # Most tests have closed it.
        os.close(write)


async def all_lines(reader):
    lines = []
    while (line := await reader.read_line()) is not None:
        lines.append(line)
    return lines


# ── reading ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize("threaded", [False, True])
async def test_lines_are_read_as_they_come_until_the_end(pipe, threaded):
    read, write = pipe
    reader = TerminalReader(read, threaded=threaded)
    assert not reader.is_terminal
    os.write(write, b"one\ntwo\r\n\nthr")
    assert [await reader.read_line() for _ in range(3)] == ["one", "two", ""]
    os.write(write, "ee äö".encode()[:-1])
    os.write(write, "äö".encode()[-1:] + b" \xff")
    os.close(write)
    assert await all_lines(reader) == ["three äö �"]
    assert await reader.read_line() is None


@pytest.mark.anyio
@pytest.mark.parametrize("threaded", [False, True])
async def test_waiting_for_a_line_is_no_obstacle_to_anything_else(pipe, threaded):
    read, write = pipe
    reader = TerminalReader(read, threaded=threaded)
    got = []

    async def read_one():
        got.append(await reader.read_line())

    async with anyio.create_task_group() as group:
        group.start_soon(read_one)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        assert got == []
        os.write(write, b"here\n")
    assert got == ["here"]


@pytest.mark.anyio
@pytest.mark.parametrize("threaded", [False, True])
async def test_reading_can_be_cancelled_and_nothing_is_lost_by_it(pipe, threaded):
    read, write = pipe
    reader = TerminalReader(read, threaded=threaded)
    with anyio.move_on_after(1) as scope:
        await reader.read_line()
    assert scope.cancelled_caught
    os.write(write, b"here\nand there\n")
    os.close(write)
    assert await all_lines(reader) == ["here", "and there"]


@pytest.mark.anyio
async def test_a_regular_file_is_read_like_a_pipe(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text("one\ntwo\n" * 20_000 + "last")
    with path.open() as file:
        lines = await all_lines(TerminalReader(file.fileno()))
    assert len(lines) == 40_001
    assert lines[-1] == "last"


@pytest.mark.anyio
async def test_a_descriptor_that_was_closed_is_an_empty_input(pipe):
    copy = os.dup(pipe[0])
    os.close(copy)
    reader = TerminalReader(copy)
    assert not reader.is_terminal
    assert await reader.read_line() is None


@pytest.mark.anyio
async def test_a_line_without_end_takes_bounded_memory(pipe, monkeypatch):
    from hubbub.channels.console import terminal

    monkeypatch.setattr(terminal, "MAX_LINE", 10)
    read, write = pipe
    reader = TerminalReader(read)
    os.write(write, b"x" * 1000)
    os.write(write, b"x" * 1000 + b"\nshort\n")
    os.close(write)
    assert await all_lines(reader) == ["x" * 10, "short"]


# ── writing ──────────────────────────────────────────────────────────────────────────────────


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environ", "has_escapes", "has_colour"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_a_terminal_has_colour_unless_the_environment_says_no(environ, has_escapes, has_colour):
    writer = TerminalWriter(Tty(), Tty(), environ=environ)
    assert (writer.is_terminal, writer.has_escapes) == (True, has_escapes)
    assert writer.has_colour == has_colour


def test_a_pipe_has_neither_escapes_nor_colour():
    writer = TerminalWriter(io.StringIO(), io.StringIO(), environ={})
    assert not (writer.is_terminal or writer.has_escapes or writer.has_colour)


def test_what_the_encoding_cannot_say_is_written_as_question_marks():
    raw = io.BytesIO()
    writer = TerminalWriter(io.TextIOWrapper(raw, encoding="ascii"), io.StringIO(), environ={})
    writer.write("→ a\ud800b\n")
    assert raw.getvalue() == b"? a?b\n"


def test_when_nobody_reads_any_more_the_writer_says_so_once_and_then_is_silent():
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as out:
        writer = TerminalWriter(out, io.StringIO(), environ={})
        with pytest.raises(BrokenPipeError):
            writer.write("one")
        writer.write("two")  # Nor does closing it raise, as the interpreter does at its end.


# ── a screen ─────────────────────────────────────────────────────────────────────────────────


@given(st.text())
def test_neutral_text_controls_no_terminal(text):
    neutral = neutralise(text)
    assert not [c for c in neutral if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    assert not [c for c in neutral if bidirectional(c) in DIRECTIONS or c in MARKS]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"], include_characters="\n\t")))
@example("\U0001f468\u200d\U0001f469 \u0645\u06cc\u200c\u062e \u05e9\u05dc\u05d5\u05dd co\xadop")
def test_text_is_unchanged_where_it_is_neutral_already(text):
    neutral = "".join(c for c in text if bidirectional(c) not in DIRECTIONS and c not in MARKS)
    assert neutralise(neutral) == neutral


@pytest.mark.parametrize("letter", ["\u202e", "\u2066", "\u200f", "\u061c", "\u2028", "\ufff9"])
def test_what_turns_or_breaks_a_line_is_seen(letter):
    assert neutralise(f"txt.{letter}exe") == "txt.\ufffdexe"


@given(st.text(max_size=400), st.integers(20, 100))
def test_shortened_text_is_one_line_of_the_width(text, width):
    line = shorten(text, width)
    whole = " ".join(text.split())
    assert len(line) <= width
    assert "\n" not in line
    assert line == whole or line.endswith("…")
    assert line == whole or len(whole) > width


class Paper:
    """A terminal without escapes."""

    is_terminal = True
    has_escapes = has_colour = False
    width = 40

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def write_aside(self, text):
        raise AssertionError("a terminal has no aside")


def test_without_escapes_a_new_line_takes_the_place_of_erasing():
    paper = Paper()
    screen = Screen(paper, is_plain=False)
    screen.show_prompt()
    screen.show_prompt()
    screen.line("something happens")
    screen.show_prompt()
    screen.line_entered()
    screen.say("answer")
    screen.end_saying()
    assert paper.text == "> \nsomething happens\n> answer\n"


def test_too_many_waiting_lines_break_a_sentence():
    paper = Paper()
    screen = Screen(paper, is_plain=False)
    screen.say("a sentence without end ")
    for number in range(100):
        screen.line(f"line {number}")
    assert paper.text == "a sentence without end "
    screen.line("line 100")
    screen.end_saying()
    assert len(paper.text.splitlines()) == 102
