"""schemathesis as a library: Hypothesis is for other tests as if it had never been loaded."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Final

__all__ = ["schemathesis"]

# Loaded before schemathesis replaces parts of them, for what they hold then to be known.
NEEDED: Final = ("hypothesis.core", "hypothesis.strategies", "hypothesis.stateful")
Names = dict[tuple[str, str], Any]


@contextmanager
def schemathesis() -> Iterator[ModuleType]:
    """The library, and what it puts into Hypothesis for as long as this lasts.

    With that, Hypothesis prints no example that fails, and draws larger ones: for the tests after
    it, what fails and what it says would depend on which tests ran in the process before.
    """
    library, before, with_it = _loaded()
    _put(with_it)
    try:
        yield library
    finally:
        _put(before)


@cache
def _loaded() -> tuple[ModuleType, Names, Names]:
    """The library, and what it replaces: before, and with it.  Only now, for it takes its time."""
    for name in NEEDED:
        __import__(name)
    before = _names()
    import schemathesis as library
    from schemathesis.generation.hypothesis import setup

    setup()  # Once in a process: what calls it later finds that it has been.
    with_it = {at: now for at, now in _names().items() if before.get(at, now) is not now}
    return library, {at: before[at] for at in with_it}, with_it


def _names() -> Names:
    return {
        (module, name): value
        for module, loaded in list(sys.modules.items())
        if module.partition(".")[0] == "hypothesis"
        for name, value in vars(loaded).items()
        if callable(value) or type(value) is int
    }


def _put(names: Names) -> None:
    for (module, name), value in names.items():
        setattr(sys.modules[module], name, value)
