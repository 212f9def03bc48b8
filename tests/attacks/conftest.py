"""Attacks find what the other tests share, and how long they are to last."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
