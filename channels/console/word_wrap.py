"""``WordWrap``: breaks text between words that comes in pieces, where a terminal would not.

A piece is shown at once, also half a word.  When the rest of that word turns out not to fit, the
half is erased and the whole word begins the next line.  The last column stays free: terminals
disagree about where the cursor is once it has been written to.
"""

from typing import Final
from unicodedata import combining, east_asian_width

__all__ = ["WordWrap"]

LEAST_WIDTH: Final = 16
"""In a narrower terminal lines break where the terminal breaks them."""

TAB: Final = 8


class WordWrap:
    """Where the cursor is in a line, and which word it is in."""

    __slots__ = ("_column", "_word", "_word_begins")

    def __init__(self) -> None:
        self.begin_line()

    def begin_line(self) -> None:
        """The cursor is at the beginning of a line."""
        self._column = 0
        self._word: list[str] = []
        self._word_begins = 0

    def fit(self, piece: str, columns: int) -> str:
        """What to write so that ``piece`` fits a terminal of so many ``columns``."""
        width = columns - 1
        if width < LEAST_WIDTH:
            return piece
        written: list[str] = []
        for character in piece:
            if character == "\n":
                self.begin_line()
                written.append(character)
            elif character in " \t":
                written.append(self._blank(character, width))
            else:
                written.append(self._letter(character, width))
        return "".join(written)

    def _blank(self, blank: str, width: int) -> str:
        size = TAB - self._column % TAB if blank == "\t" else 1
        self._word.clear()
        if self._column + size > width:  # The line ends here; the next word will begin another.
            self._column = self._word_begins = width
            return ""
        self._column += size
        self._word_begins = self._column
        return blank

    def _letter(self, letter: str, width: int) -> str:
        size = _columns_of(letter)
        if self._column + size <= width:
            self._column += size
            if self._word_begins:
                self._word.append(letter)
            return letter
        if self._word_begins == 0:  # A word longer than a line.
            self._column = size
            return "\n" + letter
        erased = f"\x1b[{self._word_begins + 1}G\x1b[K" if self._word else ""
        word = "".join(self._word) + letter
        self._word.clear()
        self._word_begins = 0
        self._column = sum(map(_columns_of, word))
        return erased + "\n" + word


def _columns_of(letter: str) -> int:
    if letter.isascii():
        return 1
    if combining(letter) or letter in "\u200b\u200d\ufe0f":
        return 0
    return 2 if east_asian_width(letter) in "WF" else 1
