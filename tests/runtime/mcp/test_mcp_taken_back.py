"""A question that a server takes back ends at once: nobody answers it, or waits behind it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

import anyio
import pytest
from support.mcp_http import server as sdk_server
from support.mcp_raw import RawServer
from support.mcp_servers import Results, mcp_agent, mcp_in

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.hub.ports import Ports
from hubbub.runtime.mcp.watching import MAX_QUESTIONS
from hubbub.runtime.models.scripted import call

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("H-10", "L-09"),
    # Trio says so of generators of httpx2, which the SDK's client leaves to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PROGRAM = Path(__file__).parents[2] / "support" / "mcp_http.py"


class Shop:
    """A server whose tool does what it is told to."""

    def __init__(self, does: Any) -> None:
        self.raw = RawServer(page=self._page, result=self._result)
        self._does = does

    def _page(self, cursor: str | None) -> Any:
        return {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}

    async def _result(self, name: str) -> Any:
        text = str(await self._does(self.raw))
        return {"content": [{"type": "text", "text": text}]}

    def agent(self, **options: Any) -> Any:
        server = mcp(self.raw, name="it", protocol="2025", **options)
        return mcp_agent(ScriptedModel([call("it_act"), "Done."]), server)


class Heard:
    """What is asked, how that ends, and what becomes of calls and replies."""

    def __init__(self, rt: Runtime) -> None:
        self.prompts: list[Any] = []
        self.ends: list[Any] = []
        self.letters: list[Any] = []
        rt.hub.subscribe("session:prompt", self.prompts.append)
        rt.hub.subscribe("session:prompt:end", self.ends.append)
        rt.hub.subscribe("hub:dead_letter", self.letters.append)
        self.results = Results(rt.hub)

    @property
    def words(self) -> list[str]:
        return [x.question.splitlines()[0].removeprefix("it asks: ") for x in self.prompts]


async def test_a_question_that_is_taken_back_ends_and_the_next_is_asked(
    ports: Ports, eventually: Any
) -> None:
    async def does(raw: RawServer) -> Any:
        first = await raw.put("First?")
        await ports.clock.sleep(1)
        await raw.take_back(first)
        return await raw.ask("Second?")

    async with Runtime([Shop(does).agent()], store="memory", ports=ports) as rt:
        heard = Heard(rt)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: len(heard.prompts) == 2)
        assert heard.words == ["First?", "Second?"]
        first, second = heard.prompts
        await eventually(lambda: bool(heard.ends))
        assert [(x.prompt_id, x.reason) for x in heard.ends] == [(first.prompt_id, "closed")]
        assert (await rt.hub.reply(first.prompt_id, "red")).rejected
        await rt.hub.reply(second.prompt_id, "blue")
        await eventually(lambda: bool(heard.results.all))
        (output,) = heard.results.outputs
        assert "blue" in output
        assert len(heard.ends) == 2
        # Who replied to the first one was told at once, and by no letter besides.
        assert not heard.letters


async def test_what_is_taken_back_before_it_was_asked_is_asked_of_nobody(
    ports: Ports, eventually: Any
) -> None:
    async def does(raw: RawServer) -> Any:
        await raw.put("First?")
        second = await raw.put("Second?")
        third = await raw.put("Third?")
        await ports.clock.sleep(1)
        await raw.take_back(second)
        # In the breath in which it is asked.
        fourth = await raw.put("Fourth?")
        await raw.take_back(fourth)
        await raw.take_back("nobody knows")
        await ports.clock.sleep(5)
        return third

    async with Runtime([Shop(does).agent()], store="memory", ports=ports) as rt:
        heard = Heard(rt)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(heard.prompts))
        await ports.clock.sleep(3)
        await rt.hub.reply(heard.prompts[0].prompt_id, "red")
        await eventually(lambda: len(heard.prompts) == 2)
        await rt.hub.reply(heard.prompts[1].prompt_id, "red")
        await eventually(lambda: bool(heard.results.all))
        assert heard.words == ["First?", "Third?"]


async def test_the_time_of_a_call_goes_on_once_its_question_is_taken_back(
    ports: Ports, eventually: Any
) -> None:
    async def does(raw: RawServer) -> Any:
        first = await raw.put("First?")
        await ports.clock.sleep(20)
        await raw.take_back(first)
        await anyio.sleep_forever()

    async with Runtime([Shop(does).agent(timeout=5)], store="memory", ports=ports) as rt:
        heard = Heard(rt)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(heard.results.all))
        assert "timed out" in heard.results.outputs[0]
        assert [x.reason for x in heard.ends] == ["closed"]


async def test_questions_that_are_taken_back_wait_for_no_answer(
    ports: Ports, eventually: Any
) -> None:
    """They counted among those that a server that does not listen leaves unanswered."""
    count = MAX_QUESTIONS + 100

    async def does(raw: RawServer) -> Any:
        for _ in range(count):
            await raw.take_back(await raw.put("Nothing?"))
        return await raw.ask("Something?")

    shop = Shop(does)
    async with Runtime([shop.agent()], store="memory", ports=ports) as rt:
        heard = Heard(rt)
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: "Something?" in heard.words)
        await rt.hub.reply(heard.prompts[-1].prompt_id, "yes")
        await eventually(lambda: bool(heard.results.all))
        assert shop.raw.lives == 1
        assert "yes" in heard.results.outputs[0]


async def hurried(rt: Runtime) -> None:
    """The tool asks A, takes that back, and asks B."""
    heard = Heard(rt)
    run = await rt.start("helper", "Go.", session_key="one")
    with anyio.fail_after(30):
        while len(heard.prompts) < 2:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        first, second = heard.prompts
        assert "Then B?" in second.question
        assert (await rt.hub.reply(first.prompt_id, "yes to A")).rejected
        await rt.hub.reply(second.prompt_id, "yes to B")
        await run.result()
    assert heard.results.outputs == ["B yes to B"]
    assert [x.prompt_id for x in heard.ends] == [first.prompt_id, second.prompt_id]


def hurried_agent(server: Any) -> Any:
    return mcp_agent(ScriptedModel([call("it_hurry"), "Done."]), server)


@pytest.mark.parametrize("where", ["in this process", "by a transport"])
async def test_a_server_object_may_ask_with_a_time_limit(ports: Ports, where: str) -> None:
    made = sdk_server()
    is_direct = where == "in this process"
    server = mcp(made, name="it") if is_direct else mcp_in("2025", made)
    async with Runtime([hurried_agent(server)], store="memory", ports=ports) as rt:
        await hurried(rt)


@contextmanager
def at_an_address() -> Iterator[str]:
    with create_server(("127.0.0.1", 0)) as listening:
        fd = listening.fileno()
        words = [sys.executable, "-P", str(PROGRAM), str(fd)]
        with subprocess.Popen(words, pass_fds=[fd]) as process:
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
            finally:
                process.kill()


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_server_that_is_a_command_may_ask_with_a_time_limit() -> None:
    server = mcp([sys.executable, "-P", str(PROGRAM), "stdio"], name="it")
    async with Runtime([hurried_agent(server)], store="memory") as rt:
        await hurried(rt)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_server_at_an_address_may_ask_with_a_time_limit() -> None:
    with at_an_address() as url:
        async with Runtime([hurried_agent(mcp(url, name="it"))], store="memory") as rt:
            await hurried(rt)
