"""A connection pooler in between may lose LISTEN: what others write is found by polling then."""

import logging
from typing import Any

import anyio
import pytest
from support.postgres import Server

from hubbub import AgentDefinition, Event, Runtime
from hubbub.runtime.stores.postgres import hearing
from hubbub.runtime.stores.postgres.store import PostgresStore
from hubbub.runtime.stores.postgres.tail import Tail

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Notifications take the machine's own time."""
    return str(request.param)


async def echo(text: Any, _ctx: Any) -> str:
    return f"heard: {text}"


@pytest.mark.parametrize("loses_listen", [False, True])
async def test_where_no_notification_comes_all_is_heard_by_polling_and_that_is_said_once(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    loses_listen: bool,
) -> None:
    connect = Tail.connect

    def lose(self: Tail) -> None:
        connect(self)
        self._db.execute("UNLISTEN *")

    if loses_listen:
        monkeypatch.setattr(Tail, "connect", lose)
        monkeypatch.setattr(hearing, "UNNOTIFIED", 0.5)
    address = server.dsn()
    agents = [AgentDefinition(name="echo", execute=echo)]
    ended: list[str] = []

    def note(event: Event) -> None:
        ended.append(event.run_id)

    with caplog.at_level(logging.WARNING):
        async with (
            Runtime(agents, store=PostgresStore(address)) as one,
            Runtime(agents, store=PostgresStore(address)) as other,
        ):
            other.hub.subscribe("agent:complete", note)
            for number in range(8):
                run = await one.start("echo", number)
                await run.result()
                with anyio.fail_after(30):
                    while run.run_id not in ended:  # noqa: ASYNC110
                        await anyio.sleep(0.01)
    said = [each for each in caplog.messages if "store.unnotified" in each]
    assert len(said) == (1 if loses_listen else 0), said
