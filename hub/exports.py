"""What a package offers, loaded when it is first used (PEP 562).

    _EXPORTS = {"hubbub.hub.hub": ("Handler", "Hub"), "hubbub.hub.values": ("Secret",)}

    if TYPE_CHECKING:
        from hubbub.hub.hub import Handler, Hub
        …
    else:
        __getattr__, __dir__ = exports_of(__name__, _EXPORTS)

Importing a package is then importing next to nothing: pytest and Hypothesis do that in every
program that has hubbub installed.  Type checkers read the other branch, where a name that is not
there is an error.  ``tests/test_exports.py`` compares table, imports and ``__all__``.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["exports_of"]


def exports_of(
    package: str, exports: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package that offers names of these modules.

    A name that was looked up once is an ordinary attribute from then on.  Modules and packages
    within are attributes too, whether or not somebody has imported them.
    """
    homes = {name: module for module, names in exports.items() for name in names}
    space = sys.modules[package]

    def find(name: str) -> Any:
        if name in homes:
            found = getattr(import_module(homes[name]), name)
            setattr(space, name, found)
            return found
        if not name.startswith("_"):
            try:
                return import_module(f"{package}.{name}")
            except ModuleNotFoundError as missing:
                if missing.name != f"{package}.{name}":
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(space), *homes})

    return find, names
