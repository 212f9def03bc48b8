"""``ambiguity_of``: whether a regular expression may take without end to be tried.

    ``^(a+)+$``     on 40 letters: hours.  An ``a`` is the inner loop's or begins the outer one anew
    ``^a(-a+)*$``   at once: after an ``a`` one can go on in one way alone

Python tries one way after the other.  Where a loop can read the same text in two ways, each round
doubles their number.  This is looked for in the automaton of the pattern's places (Glushkov's):

    twice the same step      from one place of a loop to another, by the inner loop and the outer
    two ways round           from a place, by the same text, back to it, apart on the way

What is looked at is a bound on what Python does: a pattern that is no danger, since it gives its
ways up early, may be refused, one that doubles its ways is not accepted.  Ways whose number only
grows with a power of the text's length are accepted: texts that are tried have an end
(``MAX_MATCHED_CHARS``).
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, product
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, TypeAlias

__all__ = ["MAX_MATCHED_CHARS", "ambiguity_of"]

MAX_MATCHED_CHARS: Final = 10_000
"""A longer text is not tried."""

MAX_PLACES: Final = 400
MAX_ROUNDS: Final = 64
MAX_STEPS: Final = 20_000
"""What is looked at of a pattern; one that has more is refused, if it has loops in loops."""

_SAMPLES: Final = "aAzZ_09 \t\n-.,:;/@#é٣ \x00\U0001f600"
_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip

_Places: TypeAlias = frozenset[int]


class _TooLarge(Exception):
    """More than is looked at."""


class _Part:
    """A piece of a pattern: where it begins and ends, and whether it may be empty."""

    __slots__ = ("first", "is_empty", "last")

    def __init__(self, first: _Places, last: _Places, *, is_empty: bool) -> None:
        self.first, self.last, self.is_empty = first, last, is_empty


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
        """Whether a loop has a piece that can be empty in two ways."""
        self._depth = 0
        self._sequence(tree)

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
        if code in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY):
            return self._place(code, argument)
        if code is op.BRANCH:
            parts = [self._sequence(each) for each in argument[1]]
            if self._depth and sum(each.is_empty for each in parts) > 1:
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
            self._sequence(argument[1])  # It is tried apart, and nothing of the text is used up.
        if code is op.GROUPREF_EXISTS:
            return self._item(op.BRANCH, (None, [argument[1], argument[2] or []]))
        return _NOTHING

    def _repeat(self, least: int, most: int, items: Any) -> _Part:
        """So many in a row.  A loop without end leads from its last round back into it; one with
        many rounds is taken for such a loop."""
        is_endless = most > MAX_ROUNDS
        least = min(least, MAX_ROUNDS)
        self._depth += is_endless
        parts = [self._sequence(items)]
        if parts[0].is_empty:
            least = 0
            self.is_empty_twice = self.is_empty_twice or (self._depth > 0 and not is_endless)
        rounds = max(least, 1) if is_endless else most
        for _ in range(rounds - 1):
            parts.append(self._sequence(items))
            self._link(parts[-2].last, parts[-1].first)
        self._depth -= is_endless
        if is_endless:
            self._link(parts[-1].last, parts[-1].first)
        ends = parts[max(least, 1) - 1 :]
        last = frozenset(chain.from_iterable(each.last for each in ends))
        return _Part(parts[0].first, last, is_empty=least == 0)

    def _place(self, code: Any, argument: Any) -> _Part:
        if len(self.chars) >= MAX_PLACES:
            raise _TooLarge
        self.chars.append(frozenset(c for c in self._alphabet if self._has(code, argument, c)))
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
