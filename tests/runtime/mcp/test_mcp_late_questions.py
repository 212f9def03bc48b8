"""What a server asks for a call that nobody waits for any more is asked of nobody else."""

from typing import Any

import anyio
import pytest
from support.mcp_raw import RawServer
from support.mcp_servers import Results, mcp_agent

from hubbub import McpServer, Runtime, ScriptedModel, mcp
from hubbub.hub.ports import Ports
from hubbub.runtime.mcp.server_call import ANY, ASKER, MAX_AT_WORK, ServerCall, ServerCalls
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]

ANN = "Ann's card: which address?"
TOOLS = ("wait", "ask", "hold", "plain")


class Shop:
    """A server that goes on with calls that it was told to cancel, and asks for them."""

    def __init__(self) -> None:
        self.raw = RawServer(page=self._page, result=self._result)
        self.late = anyio.Event()
        """Set where a call that waits is to be answered at last."""
        self.held = anyio.Event()
        """Set where a call that holds may go on."""
        self.asks_last = False
        """Whether it then asks, and answers before anybody else has."""

    def _page(self, cursor: str | None) -> Any:
        return {"tools": [{"name": x, "inputSchema": {"type": "object"}} for x in TOOLS]}

    async def _result(self, name: str) -> Any:
        text = name
        if name == "wait":
            await self.late.wait()
            if self.asks_last:
                await self.raw.put(ANN)
        elif name == "ask":
            text = str(await self.raw.ask(ANN))
        elif name == "hold":
            await self.held.wait()
        return {"content": [{"type": "text", "text": text}]}

    def server(self, **options: Any) -> McpServer:
        return mcp(self.raw, name="it", protocol="2025", **options)


def users(server: McpServer, **calls: list[str]) -> list[Any]:
    """An agent for each user, which makes these calls."""
    return [
        mcp_agent(ScriptedModel([*(call(f"it_{x}") for x in made), "Done."]), server, name=name)
        for name, made in calls.items()
    ]


class Heard:
    """What users are asked, and what their calls come to."""

    def __init__(self, rt: Runtime) -> None:
        self.prompts: list[Any] = []
        rt.hub.subscribe("session:prompt", self.prompts.append)
        self.results = Results(rt.hub)

    def of(self, run: Any) -> list[str]:
        return [x.output for x in self.results.all if x.run_id == run.run_id]


async def given_up(shop: Shop, rt: Runtime, how: str, eventually: Any) -> Any:
    """Ann's run, whose call was given up on while the server goes on with it."""
    ann = await rt.start("ann", "Go.", session_key="ann")
    await eventually(lambda: shop.raw.calls == ["wait"])
    if how == "interrupt":
        ann.interrupt()
    await eventually(lambda: len(shop.raw.cancelled) == 1)
    return ann


@pytest.mark.parametrize("how", ["interrupt", "timeout"])
async def test_a_question_for_a_call_that_was_given_up_on_is_refused_and_then_users_are_asked_again(
    ports: Ports, eventually: Any, how: str
) -> None:
    shop = Shop()
    agents = users(shop.server(timeout=5), ann=["wait"], bob=["ask", "ask"])
    async with Runtime(agents, store="memory", ports=ports) as rt:
        heard = Heard(rt)
        await given_up(shop, rt, how, eventually)
        bob = await rt.start("bob", "Go.", session_key="bob")
        await eventually(lambda: bool(heard.prompts))
        (refused,) = heard.of(bob)
        assert "it cannot be told whose call this question is for" in refused
        assert "that was cancelled" in refused
        (prompt,) = heard.prompts
        assert prompt.run_id == bob.run_id
        assert shop.raw.lives == 2, "only the end of a connection ends what was given up on"
        assert not heard.results.errors
        await rt.hub.reply(prompt.prompt_id, "Elm")
        await eventually(lambda: len(heard.of(bob)) == 2)
        assert "{'word': 'Elm'}" in heard.of(bob)[1]


async def test_a_call_that_was_given_up_on_is_over_for_its_server_with_a_late_answer(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop()
    agents = users(shop.server(), ann=["wait"], bob=["hold", "ask"])
    async with Runtime(agents, store="memory", ports=ports) as rt:
        heard = Heard(rt)
        await given_up(shop, rt, "interrupt", eventually)
        bob = await rt.start("bob", "Go.", session_key="bob")
        await eventually(lambda: "hold" in shop.raw.calls)
        assert "that was cancelled" in (await shop.raw.ask(ANN)).message
        shop.late.set()
        await ports.clock.sleep(1)
        shop.held.set()
        await eventually(lambda: bool(heard.prompts))
        assert heard.prompts[0].run_id == bob.run_id
        assert shop.raw.lives == 1, "it need not be connected to again"


async def test_a_question_that_is_said_before_the_late_answer_to_its_call_is_that_calls(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop()
    agents = users(shop.server(), ann=["wait"], bob=["hold"])
    async with Runtime(agents, store="memory", ports=ports) as rt:
        heard = Heard(rt)
        await given_up(shop, rt, "interrupt", eventually)
        bob = await rt.start("bob", "Go.", session_key="bob")
        await eventually(lambda: "hold" in shop.raw.calls)
        shop.asks_last = True
        shop.late.set()
        await ports.clock.sleep(1)
        shop.held.set()
        await eventually(lambda: bool(heard.of(bob)))
        assert not heard.prompts


async def test_a_question_between_two_calls_is_asked_of_nobody(
    ports: Ports, eventually: Any
) -> None:
    """Neither of who comes next, nor does it change how calls are made."""
    shop = Shop()
    agents = users(shop.server(), ann=["wait"], bob=["hold"], eve=["plain"])
    async with Runtime(agents, store="memory", ports=ports) as rt:
        heard = Heard(rt)
        assert (await rt.run("eve", "Go.")).output == "Done."
        assert "the server has no call" in (await shop.raw.ask("Anybody there?")).message
        shop.raw.calls.clear()
        await given_up(shop, rt, "interrupt", eventually)
        assert "the server has no call" in (await shop.raw.ask(ANN)).message
        await rt.start("bob", "Go.", session_key="bob")
        await eventually(lambda: "hold" in shop.raw.calls)
        await rt.run("eve", "Again.")
        assert not heard.prompts
        assert shop.raw.lives == 1


async def test_of_an_own_call_that_was_given_up_on_its_user_may_be_asked_in_the_next(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop()
    agents = users(shop.server(timeout=5), ann=["wait", "ask"])
    async with Runtime(agents, store="memory", ports=ports) as rt:
        heard = Heard(rt)
        ann = await given_up(shop, rt, "timeout", eventually)
        await eventually(lambda: bool(heard.prompts))
        assert heard.prompts[0].run_id == ann.run_id
        assert shop.raw.lives == 1


async def test_a_server_need_not_wait_for_what_it_asked_for_a_call_that_is_given_up_on(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop()
    said: list[Any] = []

    async def result(name: str) -> Any:
        async def one() -> None:
            said.append(await shop.raw.ask(ANN))

        async with anyio.create_task_group() as group:
            group.start_soon(one)
            group.start_soon(one)
        return {"content": []}

    shop.raw = RawServer(page=shop._page, result=result)
    async with Runtime(users(shop.server(), ann=["ask"]), store="memory", ports=ports) as rt:
        heard = Heard(rt)
        ann = await rt.start("ann", "Go.", session_key="ann")
        await eventually(lambda: bool(heard.prompts))
        ann.interrupt()
        await eventually(lambda: len(said) == 2)
        assert said == [{"action": "cancel"}, {"action": "cancel"}]


async def test_calls_that_wait_their_turn_are_made_once_by_the_next_connection(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop()
    agents = users(
        shop.server(), ann=["ask", "wait"], bob=["hold", "hold"], carol=["plain"]
    )  # fmt: skip
    async with Runtime(agents, store="memory", ports=ports) as rt:
        heard = Heard(rt)
        bob = await rt.start("bob", "Go.", session_key="bob")
        await eventually(lambda: shop.raw.calls == ["hold"])
        ann = await rt.start("ann", "Go.", session_key="ann")
        await eventually(lambda: bool(heard.of(ann)))
        assert "from now on the server gets one call at a time" in heard.of(ann)[0]
        await ports.clock.sleep(1)
        assert "wait" not in shop.raw.calls, "it waits for the call that is under way"
        held, shop.held = shop.held, anyio.Event()
        held.set()
        await eventually(lambda: "wait" in shop.raw.calls)
        await ports.clock.sleep(1)
        assert shop.raw.calls.count("hold") == 1
        ann.interrupt()
        await eventually(lambda: len(shop.raw.cancelled) == 1)
        await eventually(lambda: shop.raw.calls.count("hold") == 2)
        carol = await rt.start("carol", "Go.", session_key="carol")
        await ports.clock.sleep(1)
        assert "that was cancelled" in (await shop.raw.ask(ANN)).message
        assert "plain" not in shop.raw.calls, "it waits for its turn"
        shop.held.set()
        await eventually(lambda: bool(heard.of(carol)))
        assert heard.of(carol) == ["plain"]
        assert shop.raw.calls.count("plain") == 1
        assert shop.raw.lives == 2
        assert heard.of(bob) == ["hold", "hold"]
        assert not heard.prompts


async def test_an_error_for_nobody_knows_which_call_is_not_given_to_another_call(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop()
    agents = users(shop.server(), ann=["wait"], bob=["hold"])
    async with Runtime(agents, store="memory", ports=ports) as rt:
        heard = Heard(rt)
        await given_up(shop, rt, "interrupt", eventually)
        bob = await rt.start("bob", "Go.", session_key="bob")
        await eventually(lambda: "hold" in shop.raw.calls)
        await shop.raw.fail("Ann's card is no number")
        shop.held.set()
        await eventually(lambda: bool(heard.of(bob)))
        assert heard.of(bob) == ["hold"]


async def test_beyond_so_many_calls_that_were_given_up_on_nobody_is_asked() -> None:
    """Up to the next connection."""
    calls = ServerCalls(lambda: 0.0)

    def sent(run: str, request: str) -> ServerCall:
        made = ServerCall("buy", {}, run)
        before = ASKER.set(made)
        calls.sent(request)
        ASKER.reset(before)
        made.is_sent = True
        return made

    for number in range(MAX_AT_WORK + 1):
        sent("ann", f"a{number}")
    for number in range(MAX_AT_WORK + 1):
        calls.answered(f"a{number}")
    bob = sent("bob", "b")
    calls.waited_for.append(bob)
    assert ASKER.get() == ANY
    assert "that was cancelled" in str(calls.asker())
    assert not calls.is_to_be_renewed, "a call is under way"
    calls.waited_for.clear()
    assert calls.is_to_be_renewed
    calls.begin()
    bob = sent("bob", "b")
    calls.waited_for.append(bob)
    assert calls.asker() is bob
