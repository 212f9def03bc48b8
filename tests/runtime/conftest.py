"""Makes ``tests/support`` importable by name, for the tests that want providers' wires."""

import sys
from pathlib import Path

# Tests are no package; and the wires import the official clients, which takes a second that the
# other tests of this folder should not pay, so they are not loaded here.
sys.path.append(str(Path(__file__).parent.parent))
