"""What an exception says, read without asking its class more than it must, and what is shown.

A user's exception may answer for its attributes with code of its own, which raises, lies or never
ends; its class may do so for its name.  Here they are read where Python itself keeps them.  The one
thing that is asked for is ``str``, which is why ``words_of`` never raises.

A traceback asks for much more, of causes, contexts, notes and members as well.  ``shown`` makes an
exception to be logged in place of one that must not be asked: each with the name, the words and the
traceback of its own, at most ``MAX_CHAIN`` of them.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from hubbub.hub.tasks.cancelling import is_cancellation
from hubbub.hub.tasks.raised import exit_in, is_of, members_of
from hubbub.hub.texts import readable

__all__ = ["MAX_CHAIN", "class_name_of", "shown", "words_of"]

MAX_CHAIN: Final = 100
"""Exceptions behind one another that are shown."""

MAX_NOTES: Final = 100
"""Notes of one exception that are shown."""

_Mask: TypeAlias = Callable[[str], str]

UNREADABLE: Final = "(its message cannot be read)"


def words_of(thing: object) -> str:
    """What an exception, say, has to say, even if it cannot say it."""
    return _words(str, thing)


def _words(say: Callable[[Any], str], thing: object) -> str:
    try:
        words = readable(str.__str__(say(thing)))
    except BaseException as another:
        if exit_in(another) is not None:
            raise
        return UNREADABLE
    if not words and issubclass(type(thing), BaseException) and is_cancellation(thing):  # type: ignore[arg-type]
        return "it awaited something that was cancelled elsewhere"
    return words


def class_name_of(thing: object) -> str:
    """The name of its class."""
    return readable(str.__str__(_NAME.__get__(type(thing))))


def shown(error: BaseException, mask: _Mask) -> BaseException:
    """``error`` as it may be shown with its traceback: itself, unless a traceback of it would hold
    what ``mask`` takes out or what no log could write, or could not be made.
    """
    related = list(_related(error))
    is_whole = len(related) < MAX_CHAIN
    if is_whole and _is_tree(related) and all(_is_harmless(each, mask) for each in related):
        return error
    return _StandIns(related, mask).of(error)


# ── reading ──────────────────────────────────────────────────────────────────────────────────

_KEPT: Final[dict[str, Any]] = {**vars(BaseException)}
_NAME: Final[Any] = vars(type)["__name__"]
_QUALNAME: Final[Any] = vars(type)["__qualname__"]
_MODULE: Final[Any] = vars(type)["__module__"]
_FLAGS: Final[Any] = vars(type)["__flags__"]
_MRO: Final[Any] = vars(type)["__mro__"]
_OWN: Final[Any] = vars(type)["__dict__"]
_MESSAGE: Final[Any] = vars(BaseExceptionGroup)["message"]

_MADE_IN_PYTHON: Final = 1 << 9
"""Of a class's flags (``Py_TPFLAGS_HEAPTYPE``)."""

_ASKED: Final = {
    "__bool__", "__cause__", "__class__", "__context__", "__getattr__", "__getattribute__",
    "__len__", "__name__", "__notes__", "__suppress_context__", "__traceback__",
}  # fmt: skip
"""What tracebacks and loggers ask every exception, and its class, for."""

_ASKED_OF_OTHERS: Final = {
    "end_lineno", "end_offset", "exceptions", "filename", "lineno", "message", "msg", "name",
    "name_from", "obj", "offset", "print_file_and_line", "text",
}  # fmt: skip
"""What some of Python's own are asked for besides."""

_SYNTAX: Final = ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset")
_NAMES: Final = (
    (SyntaxError, _SYNTAX), (ImportError, ("name",)), (NameError, ("name",)),
    (AttributeError, ("name",)),
)  # fmt: skip
"""What a traceback shows, or looks at, of exceptions of Python's own."""


def _cause(error: BaseException) -> BaseException | None:
    return _KEPT["__cause__"].__get__(error)  # type: ignore[no-any-return]


def _context(error: BaseException) -> BaseException | None:
    return _KEPT["__context__"].__get__(error)  # type: ignore[no-any-return]


def _related(error: BaseException) -> Iterator[BaseException]:
    """An exception and all that its traceback shows besides it, ``MAX_CHAIN`` at the most."""
    seen: set[int] = set()
    waiting = [error]
    while waiting and len(seen) < MAX_CHAIN:
        at = waiting.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        yield at
        behind = (_cause(at), _context(at), *members_of(at)[:MAX_CHAIN])
        waiting += [each for each in behind if each is not None]


def _is_harmless(error: BaseException, mask: _Mask) -> bool:
    """Whether its part of a traceback can be made, and shows nothing that must not be shown."""
    kind = type(error)
    if not (_is_plain(kind) and _is_plain(type(kind))) or len(members_of(error)) > MAX_CHAIN:
        return False
    notes = _given(error, "__notes__")
    if notes is not None and (type(notes) is not list or len(notes) > MAX_NOTES):
        return False
    texts: list[object] = [*(notes or ()), _QUALNAME.__get__(kind), *_details(error)]
    if any(type(text) is not str for text in texts):
        return False
    said = _said(error)
    return said is not None and all(
        readable(text) == text == mask(text) for text in (said, *map(str, texts))
    )


def _is_tree(related: Sequence[BaseException]) -> bool:
    """Whether no exception is in groups more than once: a traceback shows it each time."""
    inside = [id(member) for each in related for member in members_of(each)[:MAX_CHAIN]]
    return len(inside) == len({*inside})


def _is_plain(kind: type) -> bool:
    """Whether no class made in Python answers for what a traceback asks."""
    asked = _ASKED
    if issubclass(kind, (BaseExceptionGroup, *(each for each, _ in _NAMES))):
        asked = asked | _ASKED_OF_OTHERS
    for each in _MRO.__get__(kind):
        if _FLAGS.__get__(each) & _MADE_IN_PYTHON:
            own = _OWN.__get__(each)
            if not asked.isdisjoint(own) or type(own.get("__module__")) is not str:
                return False
    return True


def _said(error: BaseException) -> str | None:
    """Its own words as they are; ``None`` if it cannot say them, or not as a text."""
    try:
        words = str(error)
    except BaseException as another:
        if exit_in(another) is not None:
            raise
        return None
    return words if type(words) is str else None


def _details(error: BaseException) -> Iterator[object]:
    """What a traceback reads of exceptions of Python's own besides their words."""
    for kind, names in _NAMES:
        if is_of(error, kind):
            found = (vars(kind)[name].__get__(error) for name in names)
            yield from (each for each in found if each is not None and type(each) is not int)


def _given(error: BaseException, name: str) -> Any:
    """What was put on the exception itself under this name."""
    return _KEPT["__dict__"].__get__(error).get(name)


def _notes(error: BaseException) -> list[str]:
    """What a traceback would show of them, whatever was put in their place."""
    notes = _given(error, "__notes__")
    if notes is None:
        return []
    try:
        if issubclass(type(notes), Sequence) and not issubclass(type(notes), str | bytes):
            return [*map(words_of, islice(notes, MAX_NOTES))]
    except BaseException as another:  # A sequence of somebody's own, which cannot be read.
        if exit_in(another) is not None:
            raise
    return [_words(repr, notes)]


# ── stand-ins ────────────────────────────────────────────────────────────────────────────────


class _StandIns:
    """Exceptions to be shown in the place of others, each with what is masked of its own."""

    def __init__(self, related: Sequence[BaseException], mask: _Mask) -> None:
        self._mask = mask
        self._shown: Final = {id(each): each for each in related}
        self._made: dict[int, BaseException] = {}
        self._inside: set[int] = set()

    def of(self, error: BaseException) -> BaseException:
        for each in self._shown.values():
            self._make(each)
        for key, each in self._shown.items():
            self._join(self._made[key], each)
        return self._made[id(error)]

    def _make(self, error: BaseException) -> BaseException:
        """One, and what is in it: so deep as there are exceptions that are shown."""
        made = self._made.get(id(error))
        if made is not None:
            return made
        if id(error) not in self._shown:
            return Exception("what lies behind this is not shown")
        members = members_of(error)
        bases: tuple[type[BaseException], ...] = (Exception,)
        given: tuple[Any, ...] = (self._mask(words_of(error)),)
        if members:
            inside = [self._member(each) for each in members[:MAX_CHAIN]]
            is_plain = is_of(error, Exception)
            bases = (ExceptionGroup if is_plain else BaseExceptionGroup,)
            given = (self._mask(readable(str.__str__(_MESSAGE.__get__(error)))), inside)
        made = self._class_of(error, bases)(*given)
        self._made[id(error)] = made
        return made

    def _member(self, error: BaseException) -> BaseException:
        if id(error) in self._inside:
            return Exception("what is shown in another group is not shown again")
        self._inside.add(id(error))
        return self._make(error)

    def _class_of(self, error: BaseException, bases: tuple[type, ...]) -> type[BaseException]:
        kind = type(error)
        module = _MODULE.__get__(kind)
        names = {
            "__module__": self._mask(readable(module)) if type(module) is str else "?",
            "__qualname__": self._mask(readable(str.__str__(_QUALNAME.__get__(kind)))),
        }
        made: type[BaseException] = type(self._mask(class_name_of(error)), bases, names)
        return made

    def _join(self, made: BaseException, error: BaseException) -> None:
        """Give a stand-in what its exception has besides its words."""
        made.__traceback__ = _KEPT["__traceback__"].__get__(error)
        cause, context = _cause(error), _context(error)
        if cause is not None:
            made.__cause__ = self._make(cause)
        if context is not None:
            made.__context__ = self._make(context)
        made.__suppress_context__ = _KEPT["__suppress_context__"].__get__(error)
        for note in _notes(error):
            made.add_note(self._mask(note))
