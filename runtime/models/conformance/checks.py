"""What every provider's model must do, as checks that any provider can run.

The tests of a provider run all of them, with sockets and in real time:

    @pytest.mark.parametrize("check", PROVIDER_CHECKS, ids=lambda check: check.__name__)
    async def test_conforms(check):
        await check(MyWire())

``MyWire`` is the provider's side of the wire (``ProviderWire``).  A check raises
``AssertionError``; those that generate histories need the extra ``testing``.
"""

from typing import Final

from hubbub.runtime.models.conformance.failures import FAILURE_CHECKS
from hubbub.runtime.models.conformance.replies import REPLY_CHECKS
from hubbub.runtime.models.conformance.requests import REQUEST_CHECKS
from hubbub.runtime.models.conformance.wire import ProviderCheck

__all__ = ["PROVIDER_CHECKS"]

PROVIDER_CHECKS: Final[tuple[ProviderCheck, ...]] = (
    *REPLY_CHECKS,
    *REQUEST_CHECKS,
    *FAILURE_CHECKS,
)
"""All of them."""
