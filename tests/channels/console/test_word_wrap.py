"""Streamed text breaks between words, whatever pieces it comes in."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.channels.console.word_wrap import WordWrap

WORDS = st.text("abcdefé日ö", min_size=1, max_size=12)
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from([" ", " ", " ", "\n", "  ", ". "])), max_size=40)


def shown(pieces: list[str], columns: int) -> list[str]:
    """The lines of a terminal that never breaks one by itself."""
    wrap, lines = WordWrap(), [""]
    for written in (wrap.fit(piece, columns) for piece in pieces):
        for part in re.findall(r"\x1b\[\d+G\x1b\[K|\n|[^\x1b\n]+", written):
            if part == "\n":
                lines.append("")
            elif part.startswith("\x1b"):
                # The lines of these tests are of narrow letters where a half word is erased.
                lines[-1] = cut_to(lines[-1], int(part[2 : part.index("G")]) - 1)
            else:
                lines[-1] += part
    return lines


def columns_of(line: str) -> int:
    return sum(2 if letter == "日" else 1 for letter in line)


def cut_to(line: str, columns: int) -> str:
    while columns_of(line) > columns:
        line = line[:-1]
    return line


def in_pieces(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


@given(TEXTS, st.lists(st.integers(0, 1000), max_size=60), st.integers(30, 60))
def test_no_word_is_broken_and_none_is_lost(parts, cuts, columns):
    text = "".join(word + blank for word, blank in parts)
    lines = shown(in_pieces(text, cuts), columns)
    assert " ".join(lines).split() == text.split()
    assert all(columns_of(line) <= columns for line in lines)


@given(TEXTS, st.lists(st.integers(0, 1000), max_size=60))
def test_the_pieces_make_no_difference(parts, cuts):
    text = "".join(word + blank for word, blank in parts)
    assert shown(in_pieces(text, cuts), 40) == shown([text], 40)


def test_half_a_word_is_shown_at_once_and_moves_when_it_does_not_fit():
    wrap = WordWrap()
    assert wrap.fit("eighteen letters won", 24) == "eighteen letters won"
    assert wrap.fit("derful", 24) == "der\x1b[18G\x1b[K\nwonderful"


@pytest.mark.parametrize("columns", [2, 10, 16])
def test_a_narrow_terminal_breaks_lines_itself(columns):
    assert WordWrap().fit("some words that are long", columns) == "some words that are long"


def test_a_word_longer_than_a_line_fills_lines():
    assert shown(["see " + "x" * 70], 31) == ["see ", "x" * 30, "x" * 30, "x" * 10]
