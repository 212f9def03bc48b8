"""MCP servers over streamable HTTP: real ones, in a process of their own."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp_servers import Results, mcp_agent

from hubbub import Runtime, ScriptedModel, Secret, mcp
from hubbub.hub.events import SessionPrompt
from hubbub.runtime.models.scripted import call

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("L-09"),
    # Trio says so of generators of httpx2, which the SDK's client leaves to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PROGRAM = Path(__file__).parents[2] / "support" / "mcp_http.py"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Other processes live in the machine's own time."""
    found: str = request.param
    return found


LONG = pytest.mark.long
PROTOCOLS = ["auto", pytest.param("2025", marks=LONG), pytest.param("2026", marks=LONG)]


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


class Service:
    """The server's process, which may be killed and started again at its address."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/mcp"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        fd = self._socket.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), str(fd)], pass_fds=[fd]
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self._socket.close()


@contextmanager
def service() -> Iterator[Service]:
    with closing(Service()) as made:
        made.start()
        yield made


async def test_tools_are_called_over_http_with_the_given_headers(protocol: Any) -> None:
    model = ScriptedModel([call("shop_echo", word="hello"), call("shop_token"), "Done."])
    with service() as shop:
        headers = {"Authorization": Secret("Bearer abc")}
        server = mcp(shop.url, name="shop", headers=headers, protocol=protocol)
        async with Runtime([mcp_agent(model, server)], store="memory") as rt:
            results = Results(rt.hub)
            await rt.run("helper", "Go.")
            assert results.outputs == ["hello", "Bearer abc"]
            assert rt.mcp_servers[0].protocol[:4] == {"auto": "2025"}.get(protocol, protocol)


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["auto", "2025"])
async def test_a_server_at_an_address_asks_in_the_middle_of_a_call(protocol: Any) -> None:
    model = ScriptedModel([call("shop_order"), "Done."])
    with service() as shop:
        server = mcp(shop.url, name="shop", protocol=protocol)
        async with Runtime([mcp_agent(model, server)], store="memory") as rt:
            results = Results(rt.hub)
            rt.hub.subscribe(SessionPrompt, lambda asked: rt.hub.reply(asked.prompt_id, "large"))
            await rt.run("helper", "Go.")
            assert results.outputs == ["accept large"]


@pytest.mark.long
async def test_a_changed_list_is_heard_of_over_http(protocol: Any) -> None:
    model = ScriptedModel([call("shop_unlock"), "Done."])
    with service() as shop:
        server = mcp(shop.url, name="shop", protocol=protocol)
        async with Runtime([mcp_agent(model, server)], store="memory") as rt:
            await rt.run("helper", "Go.")
            with anyio.fail_after(20):
                while "shop_opened" not in rt.mcp_servers[0].tools:  # noqa: ASYNC110
                    await anyio.sleep(0.01)


async def test_nobody_at_an_address_stops_no_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}/mcp"
    model = ScriptedModel(["Without it."])
    async with Runtime([mcp_agent(model, mcp(url))], store="memory") as rt:
        assert (await rt.run("helper", "Go.")).output == "Without it."
        assert rt.mcp_servers[0].problem


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["2026", pytest.param("auto", marks=pytest.mark.long)])
async def test_a_server_that_dies_and_comes_back_is_called_again(protocol: Any) -> None:
    model = ScriptedModel([call("shop_wait"), "It is gone."])
    again = ScriptedModel([call("other_echo", word="back"), "Done."])
    with service() as shop:
        server = mcp(shop.url, name="shop", protocol=protocol, timeout=3)
        other = mcp(shop.url, name="other", prefix="other_", protocol=protocol)
        agents = [mcp_agent(model, server), mcp_agent(again, other, name="again")]
        async with Runtime(agents, store="memory") as rt:
            results = Results(rt.hub)
            await rt.run("again", "Go.")
            begun = anyio.Event()
            rt.hub.subscribe("agent:tool:start", lambda event: begun.set())
            run = await rt.start("helper", "Go.")
            await begun.wait()
            await anyio.sleep(0.2)
            shop.kill()
            with anyio.fail_after(30):
                await run.result()
            # By the older protocol the client tries to hear the rest of the answer.
            texts = ("it may or may not have had its effect", "timed out")
            assert any(text in results.outputs[1] for text in texts)
            shop.start()
            await rt.run("again", "Go.")
            assert results.outputs[::2] == ["back", "back"]
