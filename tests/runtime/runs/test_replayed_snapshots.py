"""What holds of code agents that are executed again holds of those that come back from a snapshot.

They are the same tests, collected again: a snapshot is taken after every record, and what is on
record before it is read event by event.
"""

from collections.abc import Iterator

import pytest
import test_concurrent_code
import test_durable_steps
from support.snapshots import every

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture(autouse=True)
def _of_every_record() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        every(patch, 1)
        yield


for _module in (test_durable_steps, test_concurrent_code):
    globals().update({name: x for name, x in vars(_module).items() if name.startswith("test_")})
