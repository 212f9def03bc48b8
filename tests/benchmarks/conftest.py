"""Makes the modules of the benchmarks importable by name, for the guards: tests are no package."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
