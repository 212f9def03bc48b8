"""Compiled modules are kept for the processes that tests start, and for the next session."""

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["keep_bytecode"]

FOLDER: Final = Path(__file__).parents[2] / ".pytest_cache" / "bytecode"


def keep_bytecode() -> None:
    """Where the environment forbids bytecode beside the source, keep it in pytest's own cache.

    Otherwise each of the hundred processes that tests start would compile the library and all that
    it imports, which takes three times as long as to import it.
    """
    if sys.dont_write_bytecode and sys.pycache_prefix is None:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(FOLDER)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(FOLDER)
