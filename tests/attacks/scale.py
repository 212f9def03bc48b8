"""How many rounds an attack lasts: few in CI, many by ``python -m tests.attacks.run``."""

import os
from typing import Final

__all__ = ["LONG", "scale"]

LONG: Final = "HUBBUB_LONG_ATTACKS"
"""The environment variable that makes attacks long."""


def scale(short: int, long: int) -> int:
    """``short`` in an ordinary run of the tests, ``long`` in a long one."""
    return long if os.environ.get(LONG) else short
