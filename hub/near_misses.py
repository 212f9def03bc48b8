"""What a message says of what was given instead: the value itself, and what was probably meant."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import StructMeta

__all__ = ["ToldAttributes", "did_you_mean", "kind_of", "nearest", "shown", "told_fields", "unmade"]

MAX_NAME: Final = 200
"""Longer texts are compared with nothing: that would take long, and they are no names."""

MAX_SHOWN: Final = 200
"""Characters of a value that a message shows."""


def shown(value: object) -> str:
    """The ``repr`` of what somebody gave, cut; its class where it has none, as a value may raise,
    or be nested too deeply."""
    if isinstance(value, type):
        return kind_of(value)
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def kind_of(value: object) -> str:
    """The class of what somebody gave.  A class given for one of its instances, which is easily
    done by leaving the parentheses out, is named together with the remedy."""
    if not isinstance(value, type):
        return type(value).__name__
    return f"the class {value.__name__}{unmade(value)}"


def unmade(value: object) -> str:
    """The end of a sentence: ``; give an instance: Tool(…)`` for a class, or nothing."""
    if not isinstance(value, type) or value.__module__ == "builtins":
        return ""
    return f"; give an instance: {value.__name__}(…)"


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known name that ``name`` is most like, whatever its case; ``None`` where none is."""
    if len(name) > MAX_NAME:
        return None
    by_lower = {each.lower(): each for each in known if len(each) <= MAX_NAME}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=likeness)
    return by_lower[found[0]] if found else None


class told_fields(StructMeta):  # noqa: N801  # It stands among the arguments of a class.
    """A struct whose maker is told which field was probably meant, which is missing, and to give
    them by name, instead of msgspec's bare words: ``class Hook(Struct, metaclass=told_fields)``."""

    def __call__(cls, *args: Any, **given: Any) -> Any:  # noqa: N805
        try:
            return super().__call__(*args, **given)
        except TypeError as error:
            problem = _field_problem(cls, str(error), given)
            if not problem:  # Of what is done with the values.
                raise
        raise TypeError(problem)


def _field_problem(cls: Any, said: str, given: Mapping[str, object]) -> str:
    """What is wrong with the arguments of a struct, in words with the remedy."""
    name, fields = cls.__name__, cls.__struct_fields__
    if said.startswith("Unexpected keyword argument"):
        wrong = next(each for each in given if each not in fields)
        meant = did_you_mean(wrong, fields) or f"; it has {', '.join(fields)}"
        return f"{name} has no field {wrong!r}{meant}"
    if said.startswith("Missing required argument"):
        missing = said.partition("'")[2].rstrip("'")
        return f"{name}: give {missing}=…"
    if said.startswith("Extra positional arguments"):
        return (
            f"{name}: give its fields by name: {', '.join(f'{each}=…' for each in fields[:3])}, …"
        )
    return ""


class ToldAttributes:
    """A class whose instances say, of an attribute that they lack, where it is to be found.

    Type checkers see what there is, and nothing of this.  It costs nothing but where one is
    missing."""

    __slots__ = ()

    _elsewhere: ClassVar[Mapping[str, str]] = {}
    """What stands in the place of an attribute that people look for here."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if found := kind._elsewhere.get(name):
                meant = f"; write {found}"
            else:
                meant = "" if name.startswith("_") else did_you_mean(name, _public(kind))
            problem = f"{kind.__name__!r} object has no attribute {name!r}{meant}"
            raise AttributeError(problem, name=name, obj=self)


def _public(kind: type) -> Iterable[str]:
    return (each for each in dir(kind) if not each.startswith("_"))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence: ``; did you mean 'weather'?``, or nothing."""
    found = nearest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"
