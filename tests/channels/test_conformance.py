"""hubbub's own channels pass the kit that it ships, and the kit finds what is wrong."""

from typing import Any

import pytest
from support.channel_drivers import attach_console, attach_http, open_partner

from hubbub.channels.conformance import (
    CHANNEL_CHECKS,
    CROWD_CHECKS,
    REDELIVERY_CHECKS,
    ChannelCheck,
    ChannelKit,
)
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-08")]


def _named(check: ChannelCheck) -> str:
    return getattr(check, "__name__", "")


@pytest.fixture(params=["at once", "late"])
def store(request: pytest.FixtureRequest) -> Any:
    if request.param == "at once":
        return MemoryJournal
    return lambda: LateJournal(MemoryJournal())


@pytest.mark.parametrize("check", CHANNEL_CHECKS, ids=_named)
async def test_the_console_conforms(check: ChannelCheck, store: Any, ports: Ports) -> None:
    await check(ChannelKit(open_partner(store, ports), attach_console))


@pytest.mark.parametrize("check", [*CHANNEL_CHECKS, *REDELIVERY_CHECKS, *CROWD_CHECKS], ids=_named)
async def test_http_conforms(check: ChannelCheck, store: Any, ports: Ports) -> None:
    await check(ChannelKit(open_partner(store, ports), attach_http))
