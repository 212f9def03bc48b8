"""Exceptions that cannot be looked at, each in its own way."""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, Final

__all__ = ["HOSTILE", "uninspectable"]


def answering(**members: Any) -> Callable[[], BaseException]:
    """One whose class answers with code of its own, which raises."""

    def make() -> BaseException:
        return type("Answering", (Exception,), members)("bad")

    return make


def refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError("not to be looked at")


def lies(kind: type) -> Callable[[], BaseException]:
    return answering(__class__=property(lambda self: kind))


class Endless(Sequence[Any]):
    """Notes without an end."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return "note"

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield "note"


class OddText(str):
    """A text that cannot be used."""

    __len__ = __getitem__ = encode = isascii = __str__ = __eq__ = refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class OddClass(type):
    """A class of classes that answers nothing."""

    __name__ = __module__ = property(refuse)  # type: ignore[assignment]

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class OfOddClass(Exception, metaclass=OddClass):
    pass


class OddGroup(ExceptionGroup[Exception]):
    """A group that says that it is in itself."""

    @property
    def exceptions(self) -> Any:  # type: ignore[override]
        return (self,)

    split = subgroup = derive = refuse  # type: ignore[assignment]


def with_notes(notes: Any) -> Callable[[], BaseException]:
    def make() -> BaseException:
        error = ValueError("bad")
        error.__notes__ = notes
        return error

    return make


def nested(depth: int) -> Callable[[], BaseException]:
    return lambda: reduce(
        lambda inner, _: ExceptionGroup("g", [inner]), range(depth), ValueError("v")
    )


def doubled() -> BaseException:
    """A group that holds one exception by very many ways."""
    return reduce(lambda x, _: ExceptionGroup("g", [x, x]), range(200), ValueError("v"))


def chained(link: str, depth: int) -> Callable[[], BaseException]:
    def make() -> BaseException:
        last = ValueError("v")
        for _ in range(depth):
            new = ValueError("again")
            setattr(new, link, last)
            last = new
        return last

    return make


def cyclic() -> BaseException:
    one, two = ValueError("one"), KeyError("two")
    group = ExceptionGroup("g", [one, two])
    one.__cause__, two.__context__, group.__context__ = two, group, one
    return group


def odd_syntax() -> BaseException:
    error = SyntaxError("no", ("file.py", 1, 1, "x"))
    error.filename = error.text = error.msg = type("Odd", (), {"__str__": refuse})()  # type: ignore[assignment]
    return error


ASKED: Final = (
    "text", "args", "__notes__", "__cause__", "__context__", "__traceback__", "__class__",
    "__suppress_context__", "__dict__", "exceptions", "message", "response", "status", "errno",
    "kind", "code", "retryable", "__doc__", "__module__",
)  # fmt: skip

HOSTILE: Final[dict[str, Callable[[], BaseException]]] = {
    **{f"{name} raises": answering(**{name: property(refuse)}) for name in ASKED},
    **{
        f"{name} raises": answering(**{name: refuse})
        for name in ("__str__", "__repr__", "__getattr__", "__getattribute__", "__eq__", "__dir__",
                     "__setattr__", "__format__", "__reduce__", "__bool__", "__hash__")
    },
    "__str__ is no text": answering(__str__=lambda self: 5),
    "__str__ is an odd text": answering(__str__=lambda self: OddText("odd")),
    "neither __str__ nor __repr__": answering(__str__=refuse, __repr__=refuse),
    "says that it is a number": lies(int),
    "says that it is an exit": lies(SystemExit),
    "says that it is a group": lies(BaseExceptionGroup),
    "says that it is cancelled": lies(GeneratorExit),
    "of an odd class": lambda: OfOddClass("bad"),
    "notes without end": with_notes(Endless()),
    "notes that are a number": with_notes(5),
    "notes that are odd texts": with_notes([OddText("x")]),
    "very many notes": with_notes(["x"] * 1_000_000),
    "a group in itself": lambda: OddGroup("g", [ValueError("v")]),
    "groups 600 deep": nested(600),
    "groups 5000 deep": nested(5000),
    "a group of many ways": doubled,
    "a wide group": lambda: ExceptionGroup("g", [ValueError("v")] * 100_000),
    "causes 20000 deep": chained("__cause__", 20_000),
    "contexts 20000 deep": chained("__context__", 20_000),
    "a circle": cyclic,
    "an odd SyntaxError": odd_syntax,
    "an odd NameError": lambda: NameError("n", name=OddText("x")),
    "an odd AttributeError": lambda: AttributeError("n", name="x", obj=OddText("x")),
}  # fmt: skip


class Uninspectable(Exception):
    """All of it at once."""

    text = args = __notes__ = __cause__ = property(refuse)  # type: ignore[assignment]
    __str__ = __repr__ = __getattr__ = refuse  # type: ignore[assignment]


def uninspectable() -> BaseException:
    return Uninspectable("bad")
