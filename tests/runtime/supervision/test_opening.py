"""Runs are started and talked to through the hub alone (R-08, R-09)."""

from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life, echo_model, model_agent

from hubbub import Hub, RunContext, Runtime, agent
from hubbub.hub.events import Event, SessionOpen
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.values import encode_value

pytestmark = pytest.mark.anyio


@agent("listener")
async def listener(input: Any, ctx: RunContext) -> list[str]:
    heard = [] if input is None else [input]
    async for message in ctx.messages():
        heard.append(message.content)
        ctx.say(f"heard {message.content}")
        if message.content == "bye":
            break
    return heard


class Channel:
    """Listens for ``agent:start`` and answers what it hears, ``words`` one after the other."""

    def __init__(self, hub: Hub, words: list[str], *, at_once: bool) -> None:
        self._hub = hub
        self._words = {"": list(words)}
        self._at_once = at_once
        hub.subscribe("agent:start", self.started)
        hub.subscribe("agent:text", self.speak)

    def started(self, event: Event) -> None:
        self._words[event.run_id] = list(self._words[""])
        if self._at_once:
            self.speak(event)

    def speak(self, event: Event) -> None:
        if words := self._words[event.run_id]:
            self._hub.send_to_run(event.run_id, words.pop(0))


@pytest.mark.spec("R-08")
@pytest.mark.parametrize("at_once", [True, False], ids=["in the listener", "later"])
async def test_a_channel_converses_knowing_only_agent_start(
    at_once: bool, journal: Journal, ports: Ports
) -> None:
    agents = [listener, model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        channel = Channel(runtime.hub, ["one", "two", "bye"], at_once=at_once)
        observer = Observer(runtime.hub)
        runs = [await runtime.start(name) for name in ("listener", "assistant", "listener")]
        if not at_once:
            await anyio.sleep(10)
            for start in observer.all("agent:start"):
                channel.speak(start)
        code, model, other = [await run.result() for run in runs]
        await anyio.sleep(20)
    assert code.output == other.output == ["one", "two", "bye"]
    assert model.success
    texts = [x.text for x in observer.of(runs[1].run_id) if x.type == "agent:text"]
    assert texts == ["echo: one", "echo: two", "echo: bye"]


@pytest.mark.spec("R-09")
async def test_opening_through_the_hub_starts_a_run_with_the_openers_correlation_id(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([listener], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        runtime.hub.open("listener", "by method", correlation_id="c1", session_key="k1")
        await anyio.sleep(1)
        (start,) = observer.all("agent:start")
        assert (start.agent, start.input, start.correlation_id, start.session_key) == (
            "listener", "by method", "c1", "k1",
        )  # fmt: skip
        await runtime.hub.send_to_run(start.run_id, "bye")
        assert (await runtime.finished(start.run_id)).output == ["by method", "bye"]


@pytest.mark.spec("R-09")
async def test_the_event_itself_opens_a_run(journal: Journal, ports: Ports) -> None:
    async with Runtime([listener], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        who = {"type": "user", "connector": "chat", "channelId": "1", "userId": "7"}
        descriptor = encode_value("descriptor", who)
        opening = SessionOpen(
            open_agent="listener", correlation_id="c", name="by event", descriptor_json=descriptor
        )
        await runtime.hub.publish(opening)
        await anyio.sleep(1)
        assert observer.first("session:open").descriptor == who
        (start,) = observer.all("agent:start")
        assert (start.correlation_id, start.name) == ("c", "by event")
        await runtime.terminate(start.run_id)


@pytest.mark.spec("R-09")
async def test_the_opener_mints_the_id_and_opening_is_idempotent_by_it(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([listener], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run_id = ports.ids.run_id(ports.clock.now())
        opened = runtime.hub.open("listener", "a", run_id=run_id)
        sent = [runtime.hub.send_to_run(run_id, text) for text in ("b", "bye")]
        again = runtime.hub.open("listener", "c", run_id=run_id)
        assert ((await opened).status, opened.run_id) == ("accepted", run_id)
        assert [(await receipt).status for receipt in sent] == ["accepted"] * 2
        assert (await again).status == "duplicate"
        outcome = await runtime.finished(run_id)
        assert (await runtime.hub.open("listener", "d", run_id=run_id)).status == "duplicate"
        await anyio.sleep(1)
    assert outcome.output == ["a", "b", "bye"]
    assert_one_life(observer.events, run_id)
    assert len(observer.all("agent:start")) == 1


@pytest.mark.spec("R-09")
async def test_a_session_key_finds_the_live_run_or_makes_one(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([listener], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        # All at once: one write each decides, so there is one run and nothing is lost.
        receipts = [
            runtime.hub.open("listener", f"m{number}", session_key="chat 7") for number in range(5)
        ]
        other = runtime.hub.open("listener", "else", session_key="chat 8")
        for receipt in (*receipts, other):
            await receipt
        run_ids = {receipt.run_id for receipt in receipts}
        assert len(run_ids) == 1
        assert other.run_id not in run_ids
        found = await runtime.start("listener", "m5", session_key="chat 7")
        assert {found.run_id} == run_ids
        await found.send("bye")
        outcome = await found.finished()
        # With its terminal event the key is free again: the next opening makes a new run.
        fresh = await runtime.start("listener", "bye", session_key="chat 7")
        assert fresh.run_id not in run_ids
        for run_id in (fresh.run_id, other.run_id):
            await runtime.terminate(run_id)
    assert outcome.output == ["m0", "m1", "m2", "m3", "m4", "m5", "bye"]
    assert len(observer.all("agent:start")) == 3


@pytest.mark.spec("R-09")
async def test_opening_inside_a_listener_works(journal: Journal, ports: Ports) -> None:
    async with Runtime([listener], store=journal, ports=ports) as runtime:
        opened: list[str] = []

        def follow(event: Event) -> None:
            if len(opened) < 3:
                receipt = runtime.hub.open("listener", f"after {len(opened)}")
                opened.append(receipt.run_id)
                runtime.hub.send_to_run(receipt.run_id, "bye")

        runtime.hub.subscribe("agent:complete", follow)
        run = await runtime.start("listener")
        await run.terminate()
        await anyio.sleep(1)
        outputs = [(await runtime.finished(run_id)).output for run_id in opened]
    assert outputs == [[f"after {number}", "bye"] for number in range(3)]


@pytest.mark.spec("R-09")
async def test_a_key_that_finds_a_parked_model_run_wakes_it(journal: Journal, ports: Ports) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        first = await runtime.start("assistant", "one", session_key="k")
        await first.result()
        second = await runtime.start("assistant", "two", session_key="k")
        assert second.run_id == first.run_id
        assert (await second.result()).output == "echo: two"


async def test_a_handle_found_by_its_key_names_the_agent_that_runs(
    journal: Journal, ports: Ports
) -> None:
    @agent("first")
    async def first(input: str, ctx: RunContext) -> None:
        async for _ in ctx.messages():
            pass

    @agent("second")
    async def second(input: str, ctx: RunContext) -> None: ...

    async with Runtime([first, second], store=journal, ports=ports) as runtime:
        run = await runtime.start("first", "x", session_key="k")
        found = await runtime.start("second", "y", session_key="k")
        assert (found.run_id, found.agent) == (run.run_id, "first")
