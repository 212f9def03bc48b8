"""What exceptions take, and what they refuse."""

from http import HTTPStatus
from typing import Any

import pytest

from hubbub.hub.errors import ModelGarbled, ModelRefused, ModelUnavailable

KINDS = (ModelRefused, ModelUnavailable, ModelGarbled)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", ["400", True, 400.0, b"400", [400]])
def test_a_status_is_a_number(kind: Any, status: Any) -> None:
    with pytest.raises(TypeError, match="status: expected a number such as 400"):
        kind("m", "request", "no", status=status)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [-1, 1_000, 2**70])
def test_a_status_has_three_digits(kind: Any, status: int) -> None:
    with pytest.raises(ValueError, match="status: expected three digits"):
        kind("m", "request", "no", status=status)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [None, 0, 400, HTTPStatus.BAD_REQUEST, 999])
def test_a_status_is_kept_as_a_plain_number(kind: Any, status: Any) -> None:
    kept = kind("m", "request", "no", status=status).status
    assert kept == status and type(kept) in (int, type(None))
