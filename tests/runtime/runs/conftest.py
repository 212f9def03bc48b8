"""Makes the tests of this folder importable by name, for those that collect them again."""

import sys
from pathlib import Path

# Not ``runtime.runs``: where the current folder comes first, that is what is tested.
sys.path.append(str(Path(__file__).parent))
