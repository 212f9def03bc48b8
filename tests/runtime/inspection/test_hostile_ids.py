"""What is typed as a run's id may be any bytes."""

from typing import Any

import pytest

from hubbub.hub.errors import BadValue
from hubbub.runtime.inspection.find import find_run


def test_bytes_that_are_no_text_are_refused_before_the_store_is_asked() -> None:
    unasked: Any = None
    with pytest.raises(BadValue, match="half of a surrogate pair"):
        find_run(unasked, b"\xff".decode(errors="surrogateescape"))
