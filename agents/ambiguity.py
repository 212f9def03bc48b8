"""What it takes to try a regular expression: ``ambiguity_of`` a pattern, ``Effort`` on a text.

    ``^(a+)+$``     on 40 letters: hours.  An ``a`` is the inner loop's or begins the outer one anew
    ``^a(-a+)*$``   at once: after an ``a`` one can go on in one way alone

Python tries one way after the other.  Where a loop can read the same text in two ways, each round
doubles their number.  This is looked for in the automaton of the pattern's places (Glushkov's):

    twice the same step      from one place of a loop to another, by the inner loop and the outer
    two ways round           from a place, by the same text, back to it, apart on the way

What is looked at is a bound on what Python does: a pattern that is no danger, since it gives its
ways up early, may be refused, one that doubles its ways is not accepted.  Of a pattern that is
accepted, the ways that there are through one text are counted before Python tries them: their
number may still grow with a power of the text's length (``\\s*\\w+\\s*\\w*``), or double for some
rounds.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, product
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, TypeAlias

__all__ = ["MAX_MATCHED_CHARS", "Effort", "ambiguity_of"]

MAX_MATCHED_CHARS: Final = 10_000
"""A longer text is not tried."""

MAX_EFFORT: Final = 5_000_000
"""Steps on a text, of which Python tries ten millions and more in a second; with more the text is
not tried."""

MAX_PLACES: Final = 400
MAX_ROUNDS: Final = 64
MAX_GROUP_ROUNDS: Final = 8
"""Rounds of a loop that is gone through round by round; of one place, and of anything else."""

MAX_KNOWN_CHARS: Final = 1_000
MAX_STEPS: Final = 20_000
"""What is looked at of a pattern; one that has more is refused, if it has loops in loops."""

_SAMPLES: Final = "aAzZ_09 \t\n-.,:;/@#é٣ \x00\U0001f600"
_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip

_PLACES: Final = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)

_Places: TypeAlias = frozenset[int]


class _TooLarge(Exception):
    """More than is looked at."""


class _Part:
    """A piece of a pattern: where it begins and ends, and whether it may be empty."""

    __slots__ = ("first", "is_empty", "last")

    def __init__(self, first: _Places, last: _Places, *, is_empty: bool) -> None:
        self.first, self.last, self.is_empty = first, last, is_empty


_BEGINNINGS: Final = ((op.AT, op.AT_BEGINNING), (op.AT, op.AT_BEGINNING_STRING))
_NOTHING: Final = _Part(frozenset(), frozenset(), is_empty=True)


class _Automaton:
    """The places of a pattern, each a set of characters, and the steps between them."""

    def __init__(self, pattern: str) -> None:
        tree = parser.parse(pattern)
        self._ignores_case = bool(tree.state.flags & re.IGNORECASE)
        letters = {chr(code) for code in _codes(tree)}
        near = {chr(max(0, ord(each) + step) % 0x110000) for each in letters for step in (-1, 1)}
        self._alphabet = sorted({*letters, *near, *_SAMPLES})
        self.chars: list[frozenset[str]] = []
        self.steps: dict[int, set[int]] = {}
        self.doubled: set[tuple[int, int]] = set()
        self.is_empty_twice = False
        """Whether a piece can be empty in several ways."""
        self.takes: list[tuple[Any, Any]] = []
        """What each place takes, as the parser says it."""
        self.apart: set[int] = set()
        """Where that begins which is tried apart, at any place."""
        self.looks_apart = False
        """Whether there is such a piece of any length, or one that repeats what was read before."""
        self._repeats = 0
        self.is_anchored = bool(tree.data) and tree.data[0] in _BEGINNINGS
        self.first = self._sequence(tree).first

    def _sequence(self, items: Iterable[Any]) -> _Part:
        whole = _NOTHING
        for code, argument in items:
            whole = self._joined(whole, self._item(code, argument))
        return whole

    def _joined(self, one: _Part, other: _Part) -> _Part:
        self._link(one.last, other.first)
        return _Part(
            one.first | (other.first if one.is_empty else frozenset()),
            other.last | (one.last if other.is_empty else frozenset()),
            is_empty=one.is_empty and other.is_empty,
        )

    def _link(self, before: _Places, after: _Places) -> None:
        for step in product(before, after):
            known = self.steps.setdefault(step[0], set())
            if step[1] in known:
                self.doubled.add(step)
            known.add(step[1])

    def _item(self, code: Any, argument: Any) -> _Part:
        if code in _PLACES:
            return self._place(code, argument)
        if code is op.BRANCH:
            parts = [self._sequence(each) for each in argument[1]]
            if sum(each.is_empty for each in parts) > 1:
                self.is_empty_twice = True
            return _Part(
                frozenset(chain.from_iterable(each.first for each in parts)),
                frozenset(chain.from_iterable(each.last for each in parts)),
                is_empty=any(each.is_empty for each in parts),
            )
        if code is op.SUBPATTERN:
            return self._sequence(argument[-1])
        if code is op.ATOMIC_GROUP:
            return self._sequence(argument)
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._repeat(*argument)
        if code in (op.ASSERT, op.ASSERT_NOT):
            # It is tried apart, and nothing of the text is used up.
            known = self._repeats
            self.apart |= self._sequence(argument[1]).first
            self.looks_apart = self.looks_apart or self._repeats > known
        if code is op.GROUPREF:
            self.looks_apart = True
        if code is op.GROUPREF_EXISTS:
            return self._item(op.BRANCH, (None, [argument[1], argument[2] or []]))
        return _NOTHING

    def _repeat(self, least: int, most: int, items: Any) -> _Part:
        """So many in a row.  A loop without end leads from its last round back into it; one with
        many rounds is taken for such a loop."""
        self._repeats += 1
        is_one = len(items) == 1 and items[0][0] in _PLACES
        is_endless = most > (MAX_ROUNDS if is_one else MAX_GROUP_ROUNDS)
        least = min(least, MAX_ROUNDS)
        parts = [self._sequence(items)]
        if parts[0].is_empty:
            least = 0
            self.is_empty_twice = self.is_empty_twice or 1 < most < op.MAXREPEAT
        rounds = max(least, 1) if is_endless else most
        for _ in range(rounds - 1):
            parts.append(self._sequence(items))
            self._link(parts[-2].last, parts[-1].first)
        if is_endless:
            self._link(parts[-1].last, parts[-1].first)
        ends = parts[max(least, 1) - 1 :]
        last = frozenset(chain.from_iterable(each.last for each in ends))
        return _Part(parts[0].first, last, is_empty=least == 0)

    def _place(self, code: Any, argument: Any) -> _Part:
        if len(self.chars) >= MAX_PLACES:
            raise _TooLarge
        self.chars.append(frozenset(c for c in self._alphabet if self._has(code, argument, c)))
        self.takes.append((code, argument))
        here = frozenset((len(self.chars) - 1,))
        return _Part(here, here, is_empty=False)

    def _has(self, code: Any, argument: Any, char: str) -> bool:
        spelled = {char, char.lower(), char.upper()} if self._ignores_case else {char}
        return any(_matches(code, argument, each) for each in spelled if len(each) == 1)


def _matches(code: Any, argument: Any, char: str) -> bool:
    """Whether one place takes this character."""
    if code is op.ANY:
        return char != "\n"
    if code is op.LITERAL:
        return chr(argument) == char
    if code is op.NOT_LITERAL:
        return chr(argument) != char
    if code is op.RANGE:
        return bool(argument[0] <= ord(char) <= argument[1])
    if code is op.CATEGORY:
        return re.fullmatch(_CATEGORIES[argument], char) is not None
    negated, *others = argument if argument[0][0] is op.NEGATE else (None, *argument)
    return any(_matches(code, each, char) for code, each in others) is (negated is None)


def _codes(items: Any) -> Iterator[int]:
    """The characters that a pattern names."""
    for code, argument in items:
        if code in (op.LITERAL, op.NOT_LITERAL):
            yield argument
        elif code is op.RANGE:
            yield from argument
        elif code is op.BRANCH:
            yield from chain.from_iterable(map(_codes, argument[1]))
        elif code in (op.IN, op.ATOMIC_GROUP):
            yield from _codes(argument)
        elif code in (op.ASSERT, op.ASSERT_NOT):
            yield from _codes(argument[1])
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT, op.SUBPATTERN):
            yield from _codes(argument[-1])


def ambiguity_of(pattern: str) -> str:
    """Why a pattern that Python can read is not tried; empty where it may be."""
    try:
        automaton = _Automaton(pattern)
        is_ambiguous = automaton.is_empty_twice or any(
            _doubles(automaton, loop) for loop in _loops(automaton)
        )
    except (_TooLarge, RecursionError, OverflowError):
        return "the pattern is too large to be tried on a text; make it shorter"
    if not is_ambiguous:
        return ""
    return (
        "a loop in the pattern can read the same text in several ways, so that trying it may take "
        "without end; write it with one way, such as 'a+' for '(a+)+'"
    )


class Effort:
    """How much Python may have to try to match one pattern with a text, at most."""

    __slots__ = ("_automaton", "_known")

    def __init__(self, pattern: str) -> None:
        """Raises ``ValueError`` for a pattern that ``ambiguity_of`` refuses."""
        if problem := ambiguity_of(pattern):
            raise ValueError(problem)
        self._automaton = _Automaton(pattern)
        self._known: dict[str, _Places] = {}

    def is_too_much(self, text: str) -> bool:
        """Whether the steps on all ways through ``text`` are more than are tried."""
        automaton, at, total = self._automaton, dict[int, int](), 0
        starts = automaton.apart if automaton.is_anchored else automaton.apart | automaton.first
        factor = len(text) if automaton.looks_apart else 1
        for number, char in enumerate(text):
            taken, after = self._taken(char), dict[int, int]()
            for place, ways in at.items():
                for to in automaton.steps.get(place, ()):
                    if to in taken:
                        after[to] = after.get(to, 0) + ways
            for place in starts if number else automaton.apart | automaton.first:
                if place in taken:
                    after[place] = after.get(place, 0) + 1
            total += sum(after.values())
            if total * factor > MAX_EFFORT:
                return True
            if not (after or starts):
                break
            at = after
        return False

    def _taken(self, char: str) -> _Places:
        """The places that take a character, in any case and across lines: it may be told so."""
        known = self._known.get(char)
        if known is None:
            spelled = {char, char.lower(), char.upper()}
            known = frozenset(
                place
                for place, (code, argument) in enumerate(self._automaton.takes)
                if code is op.ANY
                or any(_matches(code, argument, each) for each in spelled if len(each) == 1)
            )
            if len(self._known) >= MAX_KNOWN_CHARS:
                self._known.clear()
            self._known[char] = known
        return known


def _loops(automaton: _Automaton) -> Iterator[frozenset[int]]:
    """The groups of places from each of which there is a way to each."""
    reached = {place: _reached(automaton, place) for place in automaton.steps}
    seen: set[int] = set()
    for place, others in reached.items():
        if place in others and place not in seen:
            loop = frozenset(x for x in others if place in reached.get(x, ()))
            seen |= loop
            yield loop


def _reached(automaton: _Automaton, place: int) -> frozenset[int]:
    found: set[int] = set()
    left = [place]
    while left:
        for each in automaton.steps.get(left.pop(), ()):
            if each not in found:
                found.add(each)
                left.append(each)
    return frozenset(found)


def _doubles(automaton: _Automaton, loop: frozenset[int]) -> bool:
    """Whether one text leads round in two ways: apart from one place, and together again."""
    if any(one in loop and other in loop for one, other in automaton.doubled):
        return True
    steps = {place: automaton.steps[place] & loop for place in loop}
    left = [(place, place) for place in loop]
    seen: set[tuple[int, int]] = set()
    tried = 0
    while left:
        pair = left.pop()
        for one, other in product(steps[pair[0]], steps[pair[1]]):
            tried += 1
            if tried > MAX_STEPS:
                raise _TooLarge
            if not automaton.chars[one] & automaton.chars[other]:
                continue
            if one == other:
                if pair[0] != pair[1]:
                    return True
                continue
            apart = min(one, other), max(one, other)
            if apart not in seen:
                seen.add(apart)
                left.append(apart)
    return False
