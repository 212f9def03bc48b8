"""Over HTTP a question belongs to the call in whose answer it comes, and to no other."""

import json
import threading
from typing import Any

import anyio
import pytest
from anyio import to_thread
from support.mcp_addresses import answering, at_calls
from support.mcp_servers import Results, mcp_agent

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.runtime.models.scripted import call

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("L-09"),
    # Trio says so of generators of httpx2, which the SDK's client leaves to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUESTION = {
    "jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
    "params": {
        "message": "Ann's card: which address?",
        "requestedSchema": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}  # fmt: skip


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Threads live in the machine's own time."""
    found: str = request.param
    return found


class Shop:
    """The service: Ann's call is cancelled, which it does not care for, and Bob's waits."""

    def __init__(self) -> None:
        self.under_way = {"ann": threading.Event(), "bob": threading.Event()}
        self.asks = threading.Event()
        self.said = threading.Event()
        self.answers: list[Any] = []

    def answer(self, handler: Any, asked: Any) -> None:
        if "method" not in asked:
            self.answers.append(asked)
            self.said.set()
            handler.put(202, b"", "text/plain")
        else:
            at_calls(self._called)(handler, asked)

    def _called(self, handler: Any, asked: Any) -> None:
        who = asked["params"]["arguments"]["who"]
        self.under_way[who].set()
        if who == "ann":
            self.asks.wait(20)
            body = f"event: message\ndata: {json.dumps(QUESTION)}\n\n".encode()
            handler.put(200, body, "text/event-stream")
        else:
            self.said.wait(20)
            handler.say(asked["id"], result={"content": [{"type": "text", "text": "bought"}]})


async def test_a_question_in_the_answer_to_a_call_that_was_given_up_on_is_asked_of_nobody() -> None:
    shop = Shop()
    with answering(shop.answer) as (url, _):
        server = mcp(url, name="it", protocol="2025")
        agents = [
            mcp_agent(ScriptedModel([call("it_act", who=who), "Done."]), server, name=who)
            for who in ("ann", "bob")
        ]
        async with Runtime(agents, store="memory") as rt:
            prompts: list[Any] = []
            rt.hub.subscribe("session:prompt", prompts.append)
            results = Results(rt.hub)
            with anyio.fail_after(30):
                ann = await rt.start("ann", "Go.", session_key="ann")
                await to_thread.run_sync(shop.under_way["ann"].wait, 20)
                ann.interrupt()
                await ann.result()
                bob = await rt.start("bob", "Go.", session_key="bob")
                await to_thread.run_sync(shop.under_way["bob"].wait, 20)
                shop.asks.set()
                assert (await bob.result()).output == "Done."
        assert not prompts
        assert results.outputs[-1] == "bought"
        (answer,) = shop.answers
        assert "the call that this question is for is over" in answer["error"]["message"]
