"""``Trial``: a value tried by a JSON schema that somebody else has written, within so many steps.

A step is one keyword of a schema that is looked at for one value.  What takes longer, such as the
comparison with a long list, counts as more of them, and a problem is put into words only where
somebody reads it: so neither the schema nor the value makes a trial long or large.  After
``MAX_STEPS`` it is ``GivenUp``, and so it is where the schema cannot be followed.

What a keyword demands may be left to the server.  Then it is not known whether the value fits, and
it stays so through all that is made of it: what is not known under ``not`` is not known either.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from hubbub.runtime.mcp.schemas.dialect import SchemaDialect, dialect_of

__all__ = [
    "GivenUp",
    "Keyword",
    "Problem",
    "SchemaMisfit",
    "SchemaParts",
    "SchemaPlace",
    "Trial",
    "TrialOutcome",
    "part_at",
]

MAX_STEPS: Final = 50_000
MAX_DEPTH: Final = 200
MAX_CHARS: Final = 450
"""What is shown of the values of a problem, and of what the schema says."""
MAX_SHOWN: Final = 150
"""What is shown of each but the last, and of the way there."""


class GivenUp(Exception):
    """It cannot be told whether the value fits: it takes too long, or the schema is none."""


class SchemaPlace(NamedTuple):
    """Where a trial is: a part of the value, and how deep in the schema."""

    depth: int = 0
    above: "SchemaPlace | None" = None
    key: str | int | None = None

    def inside(self, key: str | int | None = None) -> "SchemaPlace":
        """The place of a part; without a key that of the same value in a schema further inside."""
        if self.depth >= MAX_DEPTH:
            raise GivenUp
        return SchemaPlace(self.depth + 1, self, key)

    def path(self) -> str:
        """The keys that lead there."""
        keys: list[str] = []
        place: SchemaPlace | None = self
        while place is not None:
            if place.key is not None:
                keys.append(str(place.key)[:MAX_SHOWN])
            place = place.above
        return _cut(".".join(reversed(keys)), MAX_SHOWN)


class SchemaMisfit(NamedTuple):
    """Why a part of a value does not fit."""

    place: SchemaPlace
    template: str
    shown: tuple[Any, ...]
    """The values that the template has places for; a tuple is a list of several."""

    def __str__(self) -> str:
        where = self.place.path()
        left, texts = MAX_CHARS, list[str]()
        for at, value in enumerate(self.shown, 1):
            texts.append(_brief(value, left if at == len(self.shown) else MAX_SHOWN))
            left -= len(texts[-1])
        words = self.template.format(*texts)
        return f"`{where}`: {words}" if where else words


Problem = SchemaMisfit | None
"""Why a value does not fit; ``None`` where something is left to the server."""


class TrialOutcome(Enum):
    """What is known of a value and a schema."""

    FITS = auto()
    MISFIT = auto()
    UNKNOWN = auto()


class SchemaParts:
    """A schema, and the parts of it that it refers to; each is looked up once."""

    __slots__ = ("_anchors", "_known", "dialect", "whole")

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.dialect = dialect_of(whole)
        self._known: dict[str, Any] = {}
        self._anchors: dict[str, Any] | None = None

    def at(self, reference: str) -> Any:
        """The part that is referred to; raises ``GivenUp``."""
        if reference not in self._known:
            if self._anchors is None:
                self._anchors = _anchors_in(self.whole, self.dialect)
            try:
                if reference.startswith("#/") or reference == "#":
                    self._known[reference] = part_at(self.whole, reference)
                else:
                    self._known[reference] = self._anchors[reference]
            except LookupError:
                raise GivenUp from None
        return self._known[reference]


class Trial:
    """One trial of one value."""

    __slots__ = ("_keywords", "_left", "_parts", "dialect")

    def __init__(
        self, parts: SchemaParts, keywords: Mapping[SchemaDialect, Mapping[str, "Keyword"]]
    ) -> None:
        self.dialect = parts.dialect
        self._parts = parts
        self._keywords = keywords[parts.dialect]
        self._left = MAX_STEPS

    def spend(self, steps: int) -> None:
        """Count steps; raises ``GivenUp`` after too many."""
        self._left -= steps
        if self._left < 0:
            raise GivenUp

    def problems(self, schema: Any, value: Any, place: SchemaPlace) -> Iterator[Problem]:
        """Why a value does not fit, and what is not known of it; raises ``GivenUp``."""
        if schema is True or schema is False:
            self.spend(1)
            if schema is False:
                yield SchemaMisfit(place, "False schema does not allow {}", (value,))
            return
        if not isinstance(schema, dict):
            raise GivenUp
        self.spend(1 + len(schema))
        if self.is_foreign(schema):
            yield None
            return
        # Up to draft 7 a reference stands alone, and some implementations read on nonetheless.
        is_alone = "$ref" in schema and self.dialect <= SchemaDialect.DRAFT_7
        for word, given in schema.items():
            if (keyword := self._keywords.get(word)) is None:
                continue
            if is_alone and word != "$ref":
                yield None
            else:
                yield from keyword(self, given, value, schema, place)

    def outcome(self, schema: Any, value: Any, place: SchemaPlace) -> TrialOutcome:
        """What is known of a value and a schema further inside; raises ``GivenUp``."""
        found = TrialOutcome.FITS
        for problem in self.problems(schema, value, place.inside()):
            if problem is not None:
                return TrialOutcome.MISFIT
            found = TrialOutcome.UNKNOWN
        return found

    def is_foreign(self, schema: Mapping[str, Any]) -> bool:
        """Whether a part is in another dialect than the whole, so that nothing is told by it."""
        return "$schema" in schema and dialect_of(schema) is not self.dialect

    def referred(self, reference: str) -> Any:
        """The part of the schema that is referred to."""
        return self._parts.at(reference)


Keyword = Callable[[Trial, Any, Any, dict[str, Any], SchemaPlace], Iterator[Problem]]
"""What a keyword demands: of its own value in a schema, a value, the schema, and where that is."""


def part_at(schema: Any, reference: str) -> Any:
    """The part at a pointer such as ``#/$defs/x``; raises ``LookupError`` where there is none."""
    part = schema
    for key in unquote(reference[2:]).split("/") if reference != "#" else ():
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(part, dict) and key in part:
            part = part[key]
        elif isinstance(part, list) and len(key) < 10 and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        else:
            raise LookupError(reference)
    return part


def _anchors_in(schema: Any, dialect: SchemaDialect) -> dict[str, Any]:
    """The parts that have a name to refer to; raises ``GivenUp`` where a part is a schema of its
    own, in which references mean something else."""
    own = "id" if dialect is SchemaDialect.DRAFT_4 else "$id"
    found: dict[str, Any] = {}
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left.extend(part)
        elif isinstance(part, dict):
            if part is not schema and isinstance(part.get(own), str):
                raise GivenUp
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := part.get(word), str):
                    found.setdefault(f"#{name}", part)
            left.extend(part.values())
    return found


def _brief(value: Any, most: int) -> str:
    """A value as Python writes it, without its end where it is long."""
    found: list[str] = []
    count = 0
    for piece in _pieces(value, most):
        found.append(piece)
        count += len(piece)
        if count > most:
            break
    return _cut("".join(found), most)


def _pieces(value: Any, most: int) -> Iterator[str]:
    match value:
        case str():
            yield repr(value[:most])
        case dict():
            yield "{"
            for at, (key, each) in enumerate(value.items()):
                yield (", " if at else "") + repr(key[:most]) + ": "
                yield from _pieces(each, most)
            yield "}"
        case list():
            yield "["
            yield from _row(value, most)
            yield "]"
        case tuple():
            yield from _row(value, most)
        case _:
            yield repr(value)


def _row(values: Any, most: int) -> Iterator[str]:
    for at, each in enumerate(values):
        if at:
            yield ", "
        yield from _pieces(each, most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
