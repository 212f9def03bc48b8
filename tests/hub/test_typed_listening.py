"""Subscriptions by class: what comes is of these classes, and what was missed is said."""

from typing import Any

import anyio
import pytest
from support.agents import Observer

from hubbub import Agent, CustomEvent, Event, Hub, RunContext, Runtime, ScriptedModel, agent
from hubbub.hub import events as e
from hubbub.hub.errors import BadPattern, BadValue, EventsMissed
from hubbub.hub.events import AgentStep, AgentText, HubGap, SessionMessage
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import call

pytestmark = pytest.mark.anyio


class OrderPlaced(Event, tag="shop:order"):
    order_id: str = ""
    amount: int = 0


@pytest.mark.spec("U-10", "H-02", "H-03")
async def test_a_class_stands_for_its_type(journal: Journal, ports: Ports) -> None:
    async with Hub(journal=journal, ports=ports) as hub:  # type: ignore[arg-type]
        one: list[AgentText] = []
        several: list[AgentText | AgentStep] = []
        everything: list[Event] = []
        hub.subscribe(AgentText, one.append)
        hub.subscribe((AgentText, AgentStep), several.append)
        hub.subscribe(Event, everything.append)
        async with hub.subscribe(AgentText) as stream:
            for event in (AgentText(text="a"), AgentStep(step=1), OrderPlaced(order_id="7")):
                await hub.publish(event)
            assert [x.text for x in one] == ["a"]
            assert [x.type for x in several] == ["agent:text", "agent:step"]
            assert len(everything) == 3
            assert (await stream.__anext__()).text == "a"
            assert stream.buffered == 0


@pytest.mark.spec("U-10")
@pytest.mark.parametrize("wrong", [int, (AgentText, "agent:step"), (CustomEvent,), CustomEvent])
async def test_what_is_no_class_of_events_is_refused(wrong: Any, ports: Ports) -> None:
    async with Hub(ports=ports) as hub:
        with pytest.raises(BadPattern):
            hub.subscribe(wrong)


@pytest.mark.spec("U-10", "H-05")
async def test_a_stream_of_a_class_raises_in_the_place_of_what_it_has_missed(ports: Ports) -> None:
    async with Hub(ports=ports) as hub:
        texts, both = (
            hub.subscribe(AgentText, buffer=1),
            hub.subscribe((AgentText, HubGap), buffer=1),
        )
        async with texts, both:
            for text in "abc":
                hub.emit(AgentText(text=text))
            assert (await texts.__anext__()).text == "a"
            with pytest.raises(EventsMissed, match="missed 2 events") as caught:
                await texts.__anext__()
            hub.emit(AgentText(text="d"))
            assert (await texts.__anext__()).text == "d", "it can be read on"
            found = [await both.__anext__(), await both.__anext__()]
            assert [type(each) for each in found] == [AgentText, HubGap]
        async with hub.subscribe(AgentText, after=caught.value.cursor) as again:
            assert [(await again.__anext__()).text for _ in range(3)] == ["b", "c", "d"]


@pytest.mark.spec("U-10", "H-05")
async def test_a_cursor_of_nowhere_is_raised_to_a_stream_and_reported_of_a_handler(
    ports: Ports,
) -> None:
    async with Hub(ports=ports) as hub:
        seen = Observer(hub, "hub:error")
        async with hub.subscribe(AgentText, after="nowhere") as texts:
            with pytest.raises(EventsMissed, match=r"unknown cursor.*begin at START") as caught:
                await texts.__anext__()
            assert "lossless" not in str(caught.value), "it would not help"
        heard: list[AgentText] = []

        async def hear(event: AgentText) -> None:
            heard.append(event)

        hub.subscribe(AgentText, hear, after="nowhere")
        await hub.publish(AgentText(text="a"))
        async with hub.subscribe(AgentText, after="start") as texts:
            await texts.__anext__()
        while not heard:  # noqa: ASYNC110
            await anyio.sleep(1)
        assert [x.text for x in heard] == ["a"]
        assert [x.error_type for x in seen.events if isinstance(x, e.HubErrorEvent)] == [
            "EventsMissed"
        ]


@pytest.mark.spec("U-10", "H-13")
async def test_a_class_of_one_s_own_is_read_back_as_that_class(
    journal: Journal, ports: Ports
) -> None:
    async with Hub(journal=journal, ports=ports) as hub:  # type: ignore[arg-type]
        await hub.publish(OrderPlaced(order_id="7", amount=3))
        await hub.publish(CustomEvent.of("shop:order", durable=True))
        async with hub.subscribe(OrderPlaced, after="start") as orders:
            first = await orders.__anext__()
            assert isinstance(first, OrderPlaced) and (first.order_id, first.amount) == ("7", 3)
            assert isinstance(await orders.__anext__(), OrderPlaced)
        got: list[OrderPlaced] = []
        hub.subscribe(OrderPlaced, got.append)
        await hub.publish(CustomEvent.of("shop:order", durable=True))
        assert [type(x) for x in got] == [OrderPlaced]


@pytest.mark.spec("U-10", "H-13")
async def test_what_cannot_be_read_as_the_class_is_said(ports: Ports) -> None:
    class Priced(Event, tag="shop:price"):
        price: int

    async with Hub(ports=ports) as hub, hub.subscribe(Priced) as prices:
        hub.emit(CustomEvent.of("shop:price"))
        with pytest.raises(BadValue, match="no Priced: "):
            await prices.__anext__()


@pytest.mark.spec("U-10", "R-07")
@pytest.mark.parametrize("form", ["stream", "plain", "async"])
async def test_a_run_reads_its_inbox_by_the_class_of_messages(
    form: str, journal: Journal, ports: Ports
) -> None:
    @agent("listener")
    async def listener(input: None, ctx: RunContext) -> list[str]:
        words: list[str] = []
        if form == "stream":
            async with ctx.hub.subscribe(SessionMessage) as messages:
                async for message in messages:
                    words.append(message.content)
                    if len(words) == 2:
                        break
            return words

        async def hear(message: SessionMessage) -> None:
            words.append(message.content)

        if form == "async":
            ctx.hub.subscribe(SessionMessage, hear)
        else:
            ctx.hub.subscribe(SessionMessage, lambda message: words.append(message.content))
        while len(words) < 2:  # noqa: ASYNC110
            await anyio.sleep(1)
        return words

    async with Runtime([listener], store=journal, ports=ports) as rt:  # type: ignore[arg-type]
        run = await rt.start("listener")
        run.send("one")
        run.send("two")
        assert (await run.result()).output == ["one", "two"]


@pytest.mark.spec("U-10")
async def test_a_run_s_events_are_those_of_a_class_and_end_with_the_run(
    journal: Journal, ports: Ports
) -> None:
    helper = Agent("helper", "You work.", model=ScriptedModel(["one"], repeat=True))
    model = ScriptedModel([call("helper", message="Go."), "two"])
    main = Agent("main", "You lead.", model=model, tools=[helper.as_tool()])
    async with Runtime([main], store=journal, ports=ports) as rt:  # type: ignore[arg-type]
        run = await rt.start("main", "Please.", once=True)
        async with run.events(AgentText) as texts:
            assert [event.text async for event in texts] == ["one", "two"]
        async with run.events((AgentText, e.AgentComplete)) as events:
            found = [event async for event in events]
        kinds = [type(each).__name__ for each in found if each.run_id == run.run_id]
        assert kinds == ["AgentText", "AgentComplete"]
        async with run.events("agent:text") as some:
            assert [event.type async for event in some] == ["agent:text", "agent:text"]
