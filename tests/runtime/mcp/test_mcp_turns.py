"""A server that gets one call at a time, as it does not say for which it asks, serves all users
also while one of them does not answer."""

from typing import Any

import anyio
import pytest
from support.mcp_raw import RawServer
from support.mcp_servers import Results, mcp_agent

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.hub.ports import Ports
from hubbub.runtime.mcp.server_call import QUESTION_SECONDS, QUIET_SECONDS
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]

TOOLS = ("ask", "ask twice", "hold", "plain")


class Shop:
    """A server, and users each of whom makes the calls that are named."""

    def __init__(self, **calls: list[str]) -> None:
        self.raw = RawServer(page=self._page, result=self._result)
        self.held = anyio.Event()
        self.users = calls

    def _page(self, cursor: str | None) -> Any:
        return {"tools": [{"name": x, "inputSchema": {"type": "object"}} for x in TOOLS]}

    async def _result(self, name: str) -> Any:
        text = name
        if name.startswith("ask"):
            text = str(await self.raw.ask("First?"))
        if name == "ask twice":
            text += str(await self.raw.ask("Second?"))
        if name == "hold":
            await self.held.wait()
        return {"content": [{"type": "text", "text": text}]}

    def agents(self, **options: Any) -> list[Any]:
        server = mcp(self.raw, name="it", protocol="2025", **options)
        return [
            mcp_agent(
                ScriptedModel([*(call(f"it_{x.replace(' ', '_')}") for x in made), "Done."]),
                server,
                name=name,
            )
            for name, made in self.users.items()
        ]

    def release(self) -> None:
        held, self.held = self.held, anyio.Event()
        held.set()


class Life:
    """The runtime of a shop whose server has asked while it worked for two users."""

    def __init__(self, shop: Shop, rt: Runtime, eventually: Any) -> None:
        self.shop = shop
        self.rt = rt
        self.eventually = eventually
        self.prompts: list[Any] = []
        self.letters: list[Any] = []
        rt.hub.subscribe("session:prompt", self.prompts.append)
        rt.hub.subscribe("hub:dead_letter", self.letters.append)
        self.results = Results(rt.hub)
        self.runs: dict[str, Any] = {}

    async def start(self, *names: str) -> None:
        for name in names:
            self.runs[name] = await self.rt.start(name, "Go.", session_key=name)

    def of(self, name: str) -> list[str]:
        run = self.runs[name]
        return [x.output for x in self.results.all if x.run_id == run.run_id]

    async def clash(self) -> None:
        """The users ``cyd`` and ``dan`` are at the server at once, and it asks."""
        await self.start("cyd")
        await self.eventually(lambda: "hold" in self.shop.raw.calls)
        await self.start("dan")
        await self.eventually(lambda: bool(self.of("dan")))
        assert "one call at a time" in self.of("dan")[0]
        self.shop.release()
        await self.eventually(lambda: bool(self.of("cyd")))
        assert not self.prompts
        self.shop.raw.calls.clear()


async def test_who_does_not_answer_keeps_others_out_for_a_moment_only(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop(cyd=["hold"], dan=["ask"], ann=["ask"], bob=["plain"], eve=["plain"])
    agents = shop.agents(timeout=5)
    async with Runtime(agents, store="memory", ports=ports) as rt:
        life = Life(shop, rt, eventually)
        await life.clash()
        await life.start("ann")
        await eventually(lambda: len(life.prompts) == 1)
        await life.start("bob")
        await ports.clock.sleep(QUESTION_SECONDS - 2)
        assert not shop.raw.calls.count("plain"), "she may be about to answer"
        await ports.clock.sleep(3)
        assert life.of("bob") == ["plain"]
        await life.start("eve")
        await ports.clock.sleep(1)
        assert life.of("eve") == ["plain"], "it waits for nobody"
        await rt.hub.reply(life.prompts[0].prompt_id, "yes")
        await eventually(lambda: bool(life.of("ann")))
        assert "yes" in life.of("ann")[0]


async def test_who_answers_soon_is_asked_everything_before_others_have_their_turn(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop(cyd=["hold"], dan=["ask"], ann=["ask twice"], bob=["ask twice"])
    async with Runtime(shop.agents(), store="memory", ports=ports) as rt:
        life = Life(shop, rt, eventually)
        await life.clash()
        await life.start("ann")
        await eventually(lambda: len(life.prompts) == 1)
        await life.start("bob")
        for number in range(1, 5):
            await eventually(lambda number=number: len(life.prompts) == number)
            asked = life.prompts[-1]
            assert asked.run_id == life.runs["ann" if number < 3 else "bob"].run_id
            await ports.clock.sleep(QUESTION_SECONDS - 1)
            await rt.hub.reply(asked.prompt_id, f"answer {number}")
        await eventually(lambda: bool(life.of("bob")))
        assert "answer 2" in life.of("ann")[0]
        assert "answer 3" in life.of("bob")[0]
        assert not any(life.results.failures[2:])


async def test_a_question_beside_that_of_a_silent_user_is_refused_and_says_so(
    ports: Ports, eventually: Any
) -> None:
    """It might be hers: nobody else is asked it."""
    shop = Shop(cyd=["hold"], dan=["ask"], ann=["ask"], bob=["ask"])
    async with Runtime(shop.agents(timeout=5), store="memory", ports=ports) as rt:
        life = Life(shop, rt, eventually)
        await life.clash()
        await life.start("ann")
        await eventually(lambda: len(life.prompts) == 1)
        await ports.clock.sleep(QUESTION_SECONDS)
        await life.start("bob")
        await eventually(lambda: bool(life.of("bob")))
        assert "a call of somebody else; it may ask again" in life.of("bob")[0]
        assert len(life.prompts) == 1


async def test_an_answer_goes_to_the_server_at_once_also_beside_the_call_of_another(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop(cyd=["hold"], dan=["ask"], ann=["ask"], bob=["hold"])
    async with Runtime(shop.agents(), store="memory", ports=ports) as rt:
        life = Life(shop, rt, eventually)
        await life.clash()
        await life.start("ann")
        await eventually(lambda: len(life.prompts) == 1)
        await ports.clock.sleep(QUESTION_SECONDS)
        await life.start("bob")
        await eventually(lambda: "hold" in shop.raw.calls)
        await rt.hub.reply(life.prompts[0].prompt_id, "yes")
        await eventually(lambda: bool(life.of("ann")))
        assert "yes" in life.of("ann")[0]
        assert not life.letters


async def test_a_call_that_waits_in_vain_for_its_turn_says_that_it_was_not_made(
    ports: Ports, eventually: Any
) -> None:
    slow = [f"slow{number}" for number in range(8)]
    shop = Shop(cyd=["hold"], dan=["ask"], bob=["plain"], **{name: ["hold"] for name in slow})
    async with Runtime(shop.agents(timeout=5), store="memory", ports=ports) as rt:
        life = Life(shop, rt, eventually)
        await life.clash()
        await life.start(*slow[:-1])
        await ports.clock.sleep(1)
        await life.start(slow[-1])
        await ports.clock.sleep(1)
        await life.start("bob")
        await eventually(lambda: bool(life.of("bob")))
        (refused,) = life.of("bob")
        assert "it was not made" in refused
        assert f"those before this one took {5 + QUESTION_SECONDS:g} s" in refused
        assert "\n" not in refused
        assert "plain" not in shop.raw.calls


async def test_who_no_longer_waits_for_a_turn_keeps_nobody_out(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop(cyd=["hold"], dan=["ask"], ann=["hold"], bob=["plain"], eve=["plain"])
    async with Runtime(shop.agents(timeout=None), store="memory", ports=ports) as rt:
        life = Life(shop, rt, eventually)
        await life.clash()
        await life.start("ann")
        await eventually(lambda: "hold" in shop.raw.calls)
        await life.start("bob", "eve")
        await ports.clock.sleep(1)
        life.runs["bob"].interrupt()
        await ports.clock.sleep(1)
        assert shop.raw.calls == ["hold"]
        shop.release()
        await eventually(lambda: bool(life.of("eve")))
        assert shop.raw.calls == ["hold", "plain"]


async def test_a_server_that_asks_nothing_any_more_gets_several_calls_at_a_time_again(
    ports: Ports, eventually: Any
) -> None:
    shop = Shop(cyd=["hold"], dan=["ask"], ann=["hold"], bob=["plain"])
    async with Runtime(shop.agents(timeout=None), store="memory", ports=ports) as rt:
        life = Life(shop, rt, eventually)
        await life.clash()
        await life.start("ann")
        await eventually(lambda: "hold" in shop.raw.calls)
        await life.start("bob")
        await ports.clock.sleep(QUIET_SECONDS - 10)
        assert shop.raw.calls == ["hold"]
        await ports.clock.sleep(20)
        assert life.of("bob") == ["plain"]
