"""A stream of events that ends is asked for again, and not without a pause."""

import threading
import time
from typing import Any

import anyio
import pytest
from anyio import to_thread
from support.mcp_addresses import answering, at_calls
from support.mcp_servers import mcp_agent

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.runtime.mcp.http import MIN_RETRY
from hubbub.runtime.models.scripted import call

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("L-09"),
    # Trio says so of generators of httpx2, which the SDK's client leaves to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Threads live in the machine's own time."""
    found: str = request.param
    return found


class Service:
    """Its streams end at once, with a wish for a pause."""

    def __init__(self, retry: str) -> None:
        self._body = f"retry: {retry}\nid: 1\ndata:\n\n".encode()
        self.times: list[float] = []
        self.asked_again = threading.Event()

    def get(self, handler: Any) -> None:
        self.times.append(time.monotonic())
        handler.put(200, self._body, "text/event-stream")
        if len(self.times) == 3:
            self.asked_again.set()

    def called(self, handler: Any, asked: Any) -> None:
        handler.put(200, self._body, "text/event-stream")


@pytest.mark.long
@pytest.mark.parametrize("is_of_a_call", [False, True])
async def test_a_stream_that_ends_at_once_is_asked_for_again_after_a_pause(
    is_of_a_call: bool,
) -> None:
    service = Service("0")

    def refuse(handler: Any) -> None:
        # Of the connection's own stream; that of a call says what it had last.
        if is_of_a_call and "last-event-id" not in handler.headers:
            handler.put(405, b"", "text/plain")
        else:
            service.get(handler)

    with answering(at_calls(service.called), refuse) as (url, _):
        model = ScriptedModel([call("it_act"), "Done."] if is_of_a_call else ["Done."])
        agent = mcp_agent(model, mcp(url, name="it", timeout=20))
        async with Runtime([agent], store="memory") as rt:
            await rt.start("helper", "Go.")
            with anyio.fail_after(30):
                await to_thread.run_sync(service.asked_again.wait, 20)
    first, second, third = service.times[:3]
    assert min(second - first, third - second) > 0.9 * MIN_RETRY / 1_000


async def test_no_server_can_have_its_stream_asked_for_never_again() -> None:
    """Nor end its connection by a number that no clock takes."""
    service = Service("9" * 400)
    with answering(at_calls(service.called), service.get) as (url, _):
        agent = mcp_agent(ScriptedModel(["Done."]), mcp(url, name="it"))
        async with Runtime([agent], store="memory") as rt:
            await rt.run("helper", "Go.")
            with anyio.fail_after(30):
                while not service.times:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            with anyio.move_on_after(1):
                while rt.mcp_servers[0].state == "open":  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            assert rt.mcp_servers[0].state == "open"
