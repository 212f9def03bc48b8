"""The attacks, long, one command:

    uv run python -m tests.attacks.run [arguments of pytest]

Exits as pytest does.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from attacks.scale import LONG

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    os.environ[LONG] = "1"
    extra = sys.argv[1:] if arguments is None else arguments
    return int(pytest.main(["-q", "-m", "", str(Path(__file__).parent), *extra]))


if __name__ == "__main__":
    sys.exit(main())
