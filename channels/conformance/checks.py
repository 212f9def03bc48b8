"""What every channel must do, as checks that any channel can run.

A channel's own tests run all of them, each on a fresh hub:

    kit = ChannelKit(open_hub, attach)

    @pytest.mark.parametrize("check", CHANNEL_CHECKS, ids=lambda check: check.__name__)
    async def test_conforms(check):
        await check(kit)

``open_hub`` opens a runtime with ``partner`` (``agent(PARTNER)(partner)``), ``attach`` attaches the
channel and gives its far end, a ``ChannelDriver``.  A check raises ``AssertionError``.
"""

from typing import Final

from hubbub.channels.conformance.conversations import CONVERSATION_CHECKS
from hubbub.channels.conformance.driver import ChannelCheck
from hubbub.channels.conformance.faults import FAULT_CHECKS
from hubbub.channels.conformance.questions import QUESTION_CHECKS

__all__ = ["CHANNEL_CHECKS"]

CHANNEL_CHECKS: Final[tuple[ChannelCheck, ...]] = (
    *CONVERSATION_CHECKS, *QUESTION_CHECKS, *FAULT_CHECKS,
)  # fmt: skip
"""Every check that concerns every channel; see also ``REDELIVERY_CHECKS`` and ``CROWD_CHECKS``."""
