"""Makes ``tests/support/provider_servers.py`` importable by name, for the tests that want it."""

import sys
from pathlib import Path

# Tests are no package; and the module imports both official clients, which takes a second that
# the other tests of this folder should not pay, so it is not loaded here.
sys.path.append(str(Path(__file__).parent.parent))
