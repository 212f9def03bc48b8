"""``Screen``: a terminal, or a pipe, as lines.

What an agent says is written as it comes; everything else is written on lines of its own, and the
prompt is the last line whenever there is one.

Rules
-----
* Nothing that comes from outside reaches a terminal as it is: every control character but tab
  and newline is made visible, so no text can move the cursor, change colours or retitle the
  window; and so is what turns the direction of writing or breaks a line otherwise.  A pipe gets
  the same: behind ``| tee`` there is a terminal.  Escape codes are written here only.
* What is said breaks between words where a line is full.
* A line that comes while a sentence is being written waits for the end of that line.
* Before anything is written the prompt is erased; the owner of the screen shows it again.
* A *plain* screen (a pipe on either end) is written answers and nothing else; trouble goes to its
  ``write_aside``, and the rest nowhere.
"""

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

from hubbub.channels.console.word_wrap import WordWrap

__all__ = ["PROMPT", "Screen", "Style", "Writer", "neutralise", "prompt_of", "shorten"]

PROMPT: Final = "> "

NEXT: Final = " › "
"""Follows each name in a prompt that shows whom the user talks with."""

MAX_HELD: Final = 100
"""Lines that wait for the end of a sentence; with more, the sentence is broken."""

Style: TypeAlias = Literal["", "dim", "error", "warning", "question"]

_CODES: Final[dict[str, str]] = {
    "dim": "\x1b[2m",
    "error": "\x1b[31m",
    "warning": "\x1b[33m",
    "question": "\x1b[1;36m",
}
_RESET: Final = "\x1b[0m"
_ERASE: Final = "\r\x1b[K"

# C0 and DEL become their control pictures, C1 (the 8-bit escapes) and what acts on the layout the
# replacement character, but for what joins letters and emoji; a carriage return goes without a
# trace, so that the halves of "\r\n" may come apart.
_VISIBLE: Final[dict[int, int | None]] = {
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F)), 0xFFFD),
    **dict.fromkeys((*range(0x2066, 0x2070), *range(0xFFF9, 0xFFFC)), 0xFFFD),
    ord("\r"): None,
    ord("\n"): ord("\n"),
    ord("\t"): ord("\t"),
}


class Writer(Protocol):
    """Where a screen is written to."""

    @property
    def is_terminal(self) -> bool: ...

    @property
    def has_escapes(self) -> bool:
        """Whether escape codes move its cursor."""
        ...

    @property
    def has_colour(self) -> bool: ...

    @property
    def width(self) -> int:
        """Columns."""
        ...

    def write(self, text: str) -> None:
        """Write to standard output, at once; raises ``OSError`` when nobody reads any more."""
        ...

    def write_aside(self, text: str) -> None:
        """Write to standard error."""
        ...


def neutralise(text: str) -> str:
    """``text`` without power over a terminal: control characters, and what acts on the layout, made
    visible; tabs and newlines kept."""
    return text.translate(_VISIBLE)


def shorten(text: str, width: int) -> str:
    """``text`` on one line of at most ``width`` characters."""
    # What is cut away anyway need not be looked at: tool output may have a million characters.
    line = " ".join(text[: 4 * width + 100].split())
    cut = len(line) > width or len(text) > 4 * width + 100
    return line[: max(1, width - 1)].rstrip() + "…" if cut else line


def prompt_of(names: Sequence[str], width: int) -> str:
    """The prompt for a stack of names: on at most half a screen, the last name in any case."""
    if len(names) < 2:
        return PROMPT
    *above, last = map(neutralise, names)
    # One that reached the next line could not be erased.
    last = shorten(last, max(1, width - len(NEXT) - 8))
    is_cut = False
    while above and len(NEXT.join((*above, last, ""))) + 4 * is_cut > width // 2:
        del above[0]
        is_cut = True
    return NEXT.join((*(["…"] if is_cut else []), *above, last, ""))


class Screen:
    """Writes what is said, what happens, and the prompt, and keeps the three apart."""

    __slots__ = (
        "_at_start", "_held", "_is_prompting", "_is_speaking", "_prompt", "_wrap", "_writer",
        "is_plain",
    )  # fmt: skip

    def __init__(self, writer: Writer, *, is_plain: bool) -> None:
        self.is_plain = is_plain
        self._writer = writer
        self._at_start = True
        self._is_speaking = False
        self._is_prompting = False
        self._prompt = PROMPT
        self._held: list[tuple[str, Style, bool]] = []
        self._wrap = WordWrap()

    def say(self, text: str) -> None:
        """Write a piece of what is said; ``end_saying`` ends it."""
        text = neutralise(text)
        if not text:
            return
        self._hide_prompt()
        self._is_speaking = True
        if self._at_start:
            self._wrap.begin_line()
        shown = self._wrap.fit(text, self._writer.width) if self._writer.has_escapes else text
        self._writer.write(shown)
        self._at_start = text.endswith("\n")
        if self._at_start:
            self._release()

    def end_saying(self) -> None:
        """What comes next begins a line of its own."""
        if not self._is_prompting:
            self._is_speaking = False
            self._begin_line()
            self._release()

    def line(self, text: str, style: Style = "", *, indent: int = 0) -> None:
        """Write one line about what happens; a long one is cut to the width of the screen."""
        room = self._writer.width - 1 - indent
        line = " " * indent + shorten(neutralise(text), max(20, room))
        self._put(line, style, False)

    def attached(self, words: str) -> None:
        """Say which files go with what was typed; nothing where none do."""
        if words:
            self.line(f"attached {words}", "dim")

    def trouble(self, text: str, style: Style = "error", *, indent: int = 0) -> None:
        """Write what must not be missed: whole, and to standard error if the screen is plain."""
        self._put(" " * indent + " ".join(neutralise(text[:4000]).split()), style, True)

    def exact(self, text: str, style: Style = "", *, indent: int = 0) -> None:
        """Write what must not be missed as it stands, blanks included: one line."""
        shown = neutralise(text[:4000]).replace("\n", " ").replace("\t", " ")
        self._put(" " * indent + shown, style, True)

    def show_prompt(self, names: Sequence[str] = ()) -> None:
        """Ask for a line, with the names of the stack if there are several.

        Nothing happens on a plain screen, or if that prompt is there.
        """
        prompt = prompt_of(names, self._writer.width)
        if self.is_plain or (self._is_prompting and self._prompt == prompt):
            return
        self._hide_prompt()
        self.end_saying()
        self._writer.write(prompt)
        self._prompt = prompt
        self._is_prompting = True
        self._at_start = False

    def line_entered(self) -> None:
        """The user has ended a line: the cursor is at the beginning of the next one."""
        if not self.is_plain:
            if self._is_prompting and self._writer.has_escapes:
                # Unless the line had been typed ahead: then the prompt is still here.
                self._writer.write(_ERASE)
            self._is_prompting = False
            self._at_start = True

    def begin_line(self) -> None:
        """Go to the beginning of a line, leaving what the user has typed where it is."""
        self._is_prompting = False
        self._begin_line()

    def interrupted(self) -> None:
        """The terminal has written ``^C`` at the cursor."""
        if not self.is_plain:
            self._is_prompting = False
            self._at_start = False
            self._begin_line()

    # ── the cursor ───────────────────────────────────────────────────────────────────────────

    def _put(self, line: str, style: Style, is_trouble: bool) -> None:
        if self.is_plain:
            if is_trouble:
                self._writer.write_aside(line + "\n")
            return
        if self._is_speaking and not self._at_start and len(self._held) < MAX_HELD:
            self._held.append((line, style, is_trouble))
            return
        self._hide_prompt()
        self._begin_line()
        self._write_line(line, style)

    def _release(self) -> None:
        held, self._held = self._held, []
        for line, style, _ in held:
            self._write_line(line, style)

    def _write_line(self, line: str, style: Style) -> None:
        if style and self._writer.has_colour:
            line = f"{_CODES[style]}{line}{_RESET}"
        self._writer.write(line + "\n")
        self._at_start = True

    def _begin_line(self) -> None:
        if not self._at_start:
            self._writer.write("\n")
            self._at_start = True

    def _hide_prompt(self) -> None:
        if self._is_prompting:
            self._is_prompting = False
            if self._writer.has_escapes:
                self._writer.write(_ERASE)
                self._at_start = True
            else:
                self._begin_line()
