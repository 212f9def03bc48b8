"""Makes the modules of this folder importable by name: tests are no package."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
