"""The inbox of a run: in order, one at a time, never stranded (R-07, R-17, T-03)."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import Observer, assert_one_life, echo_model, heard, model_agent

from hubbub import CustomEvent, RunContext, Runtime, agent
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.hub.errors import InboxInUse
from hubbub.hub.events import Event, SessionMessage, SessionTaken
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import FunctionModel, call, reply

pytestmark = pytest.mark.anyio


def taken(events: list[Event]) -> list[str]:
    """The messages that a run has consumed, in the order in which it did."""
    return [
        item.content
        for event in events
        if isinstance(event, SessionTaken)
        for item in event.items
        if isinstance(item, SessionMessage)
    ]


# ── R-07: code agents ────────────────────────────────────────────────────────────────────────


def reader(log: list[str], *, seconds: float = 1) -> AgentDefinition:
    @agent("reader")
    async def by_messages(input: Any, ctx: RunContext) -> str:
        async for message in ctx.messages():
            log.append(f"+{message.content}")
            await anyio.sleep(seconds)
            log.append(f"-{message.content}")
            if message.content == "last":
                break
        return "done"

    return by_messages


Named = Callable[[RunContext], tuple[Any, dict[str, Any]]]
"""How a run's code names its own messages: the pattern and the options."""

SPELLINGS: dict[str, Named] = {
    "exact": lambda ctx: ("session:message", {}),
    "list": lambda ctx: (["session:message"], {}),
    "generator": lambda ctx: ((x for x in ("session:message", "shop:order")), {}),
    "list of more": lambda ctx: (("shop:*", "session:message", "agent:*"), {}),
    "run": lambda ctx: ("session:message", {"run_id": ctx.run_id}),
    "tree": lambda ctx: ("session:message", {"root_run_id": ctx.root_run_id}),
    "run in list": lambda ctx: (
        ["session:message"], {"run_id": ctx.run_id, "root_run_id": ctx.root_run_id},
    ),
    "after": lambda ctx: ("session:message", {"after": "start"}),
    "lossless": lambda ctx: ("session:message", {"lossless": True, "run_id": ctx.run_id}),
    "one at a time": lambda ctx: (["session:message", "*"], {"buffer": 1}),
}  # fmt: skip
HANDLERS = ("async", "plain", "stream")


def subscriber(
    log: list[str], named: Named = SPELLINGS["exact"], *, seconds: float = 1, how: str = "async"
) -> AgentDefinition:
    @agent("reader")
    async def by_subscription(input: Any, ctx: RunContext) -> str:
        done = anyio.Event()
        pattern, options = named(ctx)

        def is_own(event: Any) -> bool:
            return isinstance(event, SessionMessage) and event.run_id == ctx.run_id

        def finish(event: Any) -> None:
            log.append(f"-{event.content}")
            if event.content == "last":
                done.set()

        async def hear(event: Any) -> None:
            if is_own(event):
                log.append(f"+{event.content}")
                await anyio.sleep(seconds)
                finish(event)

        def hear_at_once(event: Any) -> None:
            if is_own(event):
                log.append(f"+{event.content}")
                finish(event)

        if how == "stream":
            async with ctx.hub.subscribe(pattern, **options) as events:
                async for event in events:
                    await hear(event)
                    if done.is_set():
                        break
            return "done"
        handler = hear if how == "async" else hear_at_once
        unsubscribe = ctx.hub.subscribe(pattern, handler, **options)
        await done.wait()
        unsubscribe()
        unsubscribe()
        return "done"

    return by_subscription


READERS: dict[str, Callable[[list[str]], AgentDefinition]] = {
    "messages": reader,
    **{
        f"{spelling}, {how}": partial(subscriber, named=named, how=how)
        for spelling, named in SPELLINGS.items()
        for how in HANDLERS
    },
}


@pytest.mark.spec("R-07")
@pytest.mark.parametrize("way", READERS)
async def test_messages_come_in_order_one_at_a_time_earlier_ones_first(
    way: str, journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    async with Runtime([READERS[way](log)], store=journal, ports=ports) as runtime:
        # The opener mints the id and sends at once: nobody listens yet.
        run_id = ports.ids.run_id(ports.clock.now())
        runtime.hub.open("reader", run_id=run_id)
        for text in ("a", "b"):
            runtime.hub.send_to_run(run_id, text)
        await anyio.sleep(0.5)
        runtime.hub.send_to_run(run_id, "c")
        await anyio.sleep(10)
        runtime.hub.send_to_run(run_id, "last")
        outcome = await runtime.finished(run_id)
        recorded = await runtime.hub.read(run_id)
    expected = ["a", "b", "c", "last"]
    assert log == [f"{sign}{text}" for text in expected for sign in "+-"]
    assert taken(recorded) == expected
    assert outcome.output == "done"


@pytest.mark.spec("R-07", "T-09")
@pytest.mark.parametrize("way", READERS)
async def test_what_was_read_is_no_dead_letter(way: str, journal: Journal, ports: Ports) -> None:
    log: list[str] = []
    async with Runtime([READERS[way](log)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("reader")
        for text in ("a", "last", "unread"):
            await run.send(text)
        assert (await run.finished()).outcome == "completed"
        read = [line[1:] for line in log if line[0] == "-"]
        assert taken(await run.read()) == read
    assert read in (["a", "last"], ["a", "last", "unread"])
    letters = [x.message.content for x in observer.all("hub:dead_letter")]
    assert [*read, *letters] == ["a", "last", "unread"]


@pytest.mark.spec("R-07", "R-17")
@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_stream_of_messages_ends_when_the_run_is_closed(
    spelling: str, journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    agents = [subscriber(log, SPELLINGS[spelling], how="stream")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("reader")
        await run.send("a")
        await run.send("b")
        await run.close()
        assert (await run.finished()).output == "done"
        assert taken(await run.read()) == ["a", "b"]


@pytest.mark.spec("R-07")
async def test_many_messages_neither_push_out_nor_put_off_what_is_observed_besides(
    journal: Journal, ports: Ports
) -> None:
    heard: list[str] = []

    @agent("nosy")
    async def nosy(input: Any, ctx: RunContext) -> None:
        async with ctx.hub.subscribe(["session:message", "shop:order"], buffer=5) as events:
            await anyio.sleep(5)
            async for event in events:
                heard.append(getattr(event, "content", event.type))
                if len(heard) == 60:
                    return

    async with Runtime([nosy], store=journal, ports=ports) as runtime:
        run = await runtime.start("nosy")
        await anyio.sleep(1)
        for number in range(57):
            await run.send(f"{number}")
        for _ in range(3):
            runtime.hub.emit(CustomEvent.of("shop:order"))
        assert (await run.finished()).outcome == "completed"
    assert [x for x in heard if x.isdigit()] == [f"{number}" for number in range(57)]
    assert [x for x in heard if not x.isdigit()] == ["shop:order"] * 3
    assert "shop:order" in heard[:2]


@pytest.mark.spec("R-07")
async def test_what_a_run_takes_of_its_own_messages_is_one_at_a_time(
    journal: Journal, ports: Ports
) -> None:
    """One is done with when the next is asked for: several at once would be lost in a crash."""
    found: list[str] = []

    @agent("taker")
    async def taker(input: Any, ctx: RunContext) -> None:
        async with ctx.hub.subscribe(["session:message", "shop:order"]) as events:
            await anyio.sleep(5)
            while len(found) < 4:
                (event,) = await events.take()
                found.append(getattr(event, "content", event.type))

    async with Runtime([taker], store=journal, ports=ports) as runtime:
        run = await runtime.start("taker")
        await anyio.sleep(1)
        for number in range(3):
            await run.send(f"{number}")
        runtime.hub.emit(CustomEvent.of("shop:order"))
        assert (await run.finished()).outcome == "completed"
        (taken_ones,) = [taken(list(await run.read()))]
    assert sorted(found) == ["0", "1", "2", "shop:order"]
    assert taken_ones == ["0", "1", "2"]


@pytest.mark.spec("R-07")
@pytest.mark.parametrize("how", HANDLERS)
async def test_a_wildcard_or_another_run_is_only_observed(
    how: str, journal: Journal, ports: Ports
) -> None:
    seen: list[str] = []

    def watchers(ctx: RunContext, other: str) -> list[tuple[Any, dict[str, Any]]]:
        return [
            ("*", {}),
            (["session:*"], {"run_id": ctx.run_id}),
            ("session:message", {"run_id": other}),
            ("session:message", {"run_id": ctx.run_id, "root_run_id": other}),
        ]

    @agent("nosy")
    async def nosy(other: str, ctx: RunContext) -> list[str]:
        for pattern, options in watchers(ctx, other):
            await _observe(ctx, how, pattern, options, seen)
        return [message.content async for message in ctx.messages(idle_timeout=5)]

    async with Runtime([nosy, reader([])], store=journal, ports=ports) as runtime:
        other = await runtime.start("reader")
        run = await runtime.start("nosy", other.run_id)
        await anyio.sleep(1)
        await run.send("own")
        await other.send("last")
        assert (await run.finished()).output == ["own"]
    if how != "stream":
        assert (seen.count("own"), seen.count("last")) == (2, 2)


async def _observe(
    ctx: RunContext, how: str, pattern: Any, options: dict[str, Any], seen: list[str]
) -> None:
    def note(event: Any) -> None:
        if isinstance(event, SessionMessage):
            seen.append(event.content)

    async def note_later(event: Any) -> None:
        note(event)

    if how == "stream":
        ctx.hub.subscribe(pattern, **options)
    else:
        ctx.hub.subscribe(pattern, note if how == "plain" else note_later, **options)


@pytest.mark.spec("R-07")
async def test_a_message_counts_as_consumed_when_the_next_is_asked_for(
    journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    async with Runtime([reader(log, seconds=10)], store=journal, ports=ports) as runtime:
        run = await runtime.start("reader")
        for text in ("a", "b"):
            await run.send(text)
        await anyio.sleep(5)
        assert (log, taken(await run.read())) == (["+a"], [])
        await anyio.sleep(10)
        assert (log, taken(await run.read())) == (["+a", "-a", "+b"], ["a"])
        await run.terminate()


@pytest.mark.spec("R-07")
async def test_a_handlers_message_counts_as_consumed_when_it_returns(
    journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    async with Runtime([subscriber(log, seconds=10)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("reader")
        await run.send("a")
        await run.send("b")
        await anyio.sleep(5)
        assert taken(await run.read()) == []
        await anyio.sleep(10)
        assert taken(await run.read()) == ["a"]
        await run.terminate("enough")
        await run.finished()
        await anyio.sleep(20)
    # The handler at work was the run's: it ended with it, and what it held is a dead letter.
    assert log == ["+a", "-a", "+b"]
    assert [x.message.content for x in observer.all("hub:dead_letter")] == ["b"]


@pytest.mark.spec("R-07")
async def test_only_one_reader_at_a_time(journal: Journal, ports: Ports) -> None:
    problems: list[str] = []

    @agent("greedy")
    async def greedy(input: str, ctx: RunContext) -> str:
        async def hear(event: Any) -> None: ...

        def refuse(read: Callable[[], Any]) -> None:
            with pytest.raises(InboxInUse):
                read()
            problems.append("refused")

        if input == "handler first":
            unsubscribe = ctx.hub.subscribe("session:message", hear)
            refuse(ctx.messages)
            refuse(lambda: ctx.hub.subscribe("session:message", hear))
            unsubscribe()
            ctx.messages()
            return "fine"
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                async for _ in ctx.messages():
                    return

            group.start_soon(wait)
            await anyio.sleep(1)
            refuse(lambda: ctx.hub.subscribe("session:message", hear))
            refuse(ctx.messages)
            group.cancel_scope.cancel()
        return "fine"

    async with Runtime([greedy], store=journal, ports=ports) as runtime:
        for first in ("handler first", "messages first"):
            outcome = await runtime.run("greedy", first)
            assert outcome.output == "fine", outcome.reason
    assert problems == ["refused"] * 4


@pytest.mark.spec("R-07", "T-08")
@pytest.mark.parametrize("how", HANDLERS)
@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_one_who_reads_by_any_spelling_is_the_one_reader(
    spelling: str, how: str, journal: Journal, ports: Ports
) -> None:
    @agent("greedy")
    async def greedy(input: Any, ctx: RunContext) -> list[str]:
        pattern, options = SPELLINGS[spelling](ctx)
        handler = {"async": _hear, "plain": print, "stream": None}[how]
        first = ctx.hub.subscribe(pattern, handler, **options)
        for named, other in product(SPELLINGS.values(), (_hear, print, None)):
            again, more = named(ctx)
            with pytest.raises(InboxInUse):
                ctx.hub.subscribe(again, other, **more)
        with pytest.raises(InboxInUse):
            ctx.messages()
        first.close()
        return [message.content async for message in ctx.messages(idle_timeout=5)]

    async with Runtime([greedy], store=journal, ports=ports) as runtime:
        run = await runtime.start("greedy")
        await anyio.sleep(1)
        await run.send("a")
        outcome = await run.finished()
    assert outcome.output == ["a"], outcome.reason


async def _hear(event: Any) -> None: ...


@pytest.mark.spec("R-07")
async def test_a_later_reader_goes_on_where_the_one_before_it_stood(
    journal: Journal, ports: Ports
) -> None:
    @agent("two")
    async def two(input: Any, ctx: RunContext) -> list[str]:
        first = ctx.messages()
        heard = [(await anext(first)).content]
        heard += [message.content async for message in ctx.messages(idle_timeout=5)]
        with pytest.raises(InboxInUse):
            await anext(first)
        return heard

    async with Runtime([two], store=journal, ports=ports) as runtime:
        run = await runtime.start("two")
        for text in ("a", "b", "c"):
            await run.send(text)
        outcome = await run.result()
        assert outcome.output == ["a", "b", "c"], outcome.reason
        assert taken(await run.read()) == ["a", "b", "c"]


@pytest.mark.spec("R-07")
async def test_messages_of_other_runs_are_only_observed(journal: Journal, ports: Ports) -> None:
    log: list[str] = []
    seen: list[tuple[str, str]] = []

    @agent("nosy")
    async def nosy(input: Any, ctx: RunContext) -> None:
        async def hear(event: Any) -> None:
            seen.append(("own" if event.run_id == ctx.run_id else "other", event.content))

        ctx.hub.subscribe("session:message", hear)
        await anyio.sleep(5)

    async with Runtime([nosy, reader(log)], store=journal, ports=ports) as runtime:
        one, two = await runtime.start("nosy"), await runtime.start("reader")
        await anyio.sleep(1)
        await two.send("to two")
        await one.send("to one")
        await two.send("last")
        await two.finished()
        assert taken(await two.read()) == ["to two", "last"]
        assert taken(await one.read()) == ["to one"]
        await one.finished()
        late = await runtime.start("reader")
        await late.send("last")
        await late.finished()
    assert sorted(seen) == [("other", "last"), ("other", "to two"), ("own", "to one")]


@pytest.mark.spec("R-07")
async def test_subscriptions_end_with_the_run(journal: Journal, ports: Ports) -> None:
    seen: list[str] = []

    @agent("listener")
    async def listener(input: Any, ctx: RunContext) -> None:
        async def hear(event: Any) -> None:
            seen.append(event.content)

        ctx.hub.subscribe("session:message", hear)
        ctx.hub.subscribe("shop:*", lambda event: seen.append(event.type))
        ctx.hub.subscribe("shop:*", lambda event: seen.append("again"), after="start")
        ctx.hub.subscribe("*")
        await anyio.sleep(5)

    async with Runtime([listener], store=journal, ports=ports) as runtime:
        before = runtime.hub.statistics().subscribers
        run = await runtime.start("listener")
        await anyio.sleep(1)
        runtime.hub.emit(CustomEvent.of("shop:open"))
        await anyio.sleep(1)
        assert sorted(seen) == ["again", "shop:open"]
        await run.finished()
        runtime.hub.emit(CustomEvent.of("shop:closed"))
        await run.send("too late")
        await anyio.sleep(5)
        assert runtime.hub.statistics().subscribers == before
    assert sorted(seen) == ["again", "shop:open"]


# ── R-17 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("R-17")
async def test_a_closed_run_handles_what_waits_and_accepts_nothing_more(
    journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    async with Runtime([reader(log)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("reader")
        for text in ("a", "b", "c"):
            run.send(text)
        await anyio.sleep(0.5)
        closed = await run.close("enough")
        late = await run.send("d")
        outcome = await run.finished()
    assert closed.accepted
    assert (late.status, late.reason) == ("rejected", "ended")
    assert log == [f"{sign}{text}" for text in "abc" for sign in "+-"]
    assert (outcome.outcome, outcome.output) == ("completed", "done")
    assert_one_life(observer.events, run.run_id)


@pytest.mark.spec("R-17")
async def test_a_closed_model_run_handles_what_waits_and_completes(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "a")
        await anyio.sleep(0.5)
        run.send("b")
        await runtime.hub.close_run(run.run_id)
        late = await run.send("c")
        outcome = await run.finished()
        idle = await runtime.start("assistant", "x")
        await idle.result()
        await idle.close()
        assert (await idle.finished()).output == "echo: x"
        fresh = await runtime.start("assistant")
        await fresh.result()
        await fresh.close()
        assert (await fresh.finished()).outcome == "completed"
    assert (late.status, late.reason) == ("rejected", "ended")
    assert [x.text for x in observer.all("agent:text")][:2] == ["echo: a", "echo: b"]
    assert (outcome.outcome, outcome.output) == ("completed", "echo: b")
    for one in (run, idle, fresh):
        assert_one_life(observer.events, one.run_id)


@pytest.mark.spec("R-17")
async def test_messages_end_after_a_silence(journal: Journal, ports: Ports) -> None:
    @agent("impatient")
    async def impatient(input: Any, ctx: RunContext) -> list[str]:
        return [message.content async for message in ctx.messages(idle_timeout=60)]

    async with Runtime([impatient], store=journal, ports=ports) as runtime:
        run = await runtime.start("impatient")
        start = ports.clock.monotonic()
        for text in ("a", "b"):
            await anyio.sleep(50)
            run.send(text)
        assert (await run.finished()).output == ["a", "b"]
        assert 160 <= ports.clock.monotonic() - start < 161


# ── T-03: model runs ─────────────────────────────────────────────────────────────────────────


def _two_steps(request: ModelRequest) -> Any:
    """Looks once at everything it is told, then says what that was."""
    fresh: list[str] = []
    looked = False
    for message in request.messages:
        if isinstance(message, UserMessage):
            fresh.append(message.content)
            looked = False
        elif message.calls:
            looked = True
        else:
            fresh, looked = [], False
    return f"read {', '.join(fresh)}" if looked else reply("", call("look"))


@tool
async def look() -> str:
    await anyio.sleep(1)
    return "seen"


async def _assert_all_answered(runtime: Runtime, run_id: str, sent: list[str]) -> None:
    """Each message was read by the model, answered once, and the run idles with no mail."""
    with anyio.fail_after(1000):
        await runtime.result(run_id)
    info = await runtime.hub.journal.info(run_id)
    assert info is not None
    assert (info.status, info.waiting) == ("parked", 0)
    recorded = await runtime.hub.read(run_id)
    assert sorted(taken(recorded)) == sorted(sent)
    texts = [x.text for x in recorded if x.type == "agent:text"]
    words = [word for text in texts for word in text.removeprefix("read ").split(", ")]
    assert sorted(words) == sorted(["first", *sent]), (texts, sent)


@pytest.mark.spec("T-03")
@pytest.mark.parametrize("turns", [0, 1, 3, 6])
async def test_a_message_is_answered_whenever_it_is_sent(
    turns: int, journal: Journal, ports: Ports
) -> None:
    """At every quarter of a second of a turn, and a few turns of the loop later."""
    model = FunctionModel(_two_steps, latency=1)
    async with Runtime([model_agent(model, look)], store=journal, ports=ports) as runtime:
        for quarters in range(15):
            run = await runtime.start("assistant", "first")
            await anyio.sleep(quarters / 4)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            assert (await run.send("second")).accepted
            await _assert_all_answered(runtime, run.run_id, ["second"])


MOMENTS = (
    "session:open", "agent:start", "session:start", "session:taken", "agent:step",
    "agent:tool:start", "agent:tool:complete", "agent:text", "session:end", "agent:park",
)  # fmt: skip


@pytest.mark.spec("T-03")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", ["plain", "async"])
async def test_a_message_sent_by_a_listener_is_answered(
    moment: str, how: str, journal: Journal, ports: Ports
) -> None:
    model = FunctionModel(_two_steps, latency=1)
    sent: list[str] = []
    async with Runtime([model_agent(model, look)], store=journal, ports=ports) as runtime:

        def answer(event: Event) -> None:
            if len(sent) < 3:
                sent.append(f"{moment} {len(sent)}")
                runtime.hub.send_to_run(event.run_id, sent[-1])

        async def answer_later(event: Event) -> None:
            answer(event)

        runtime.hub.subscribe(moment, answer if how == "plain" else answer_later)
        run = await runtime.start("assistant", "first")
        while len(sent) < 3:
            await anyio.sleep(20)
            await _assert_all_answered(runtime, run.run_id, sent)
            if len(sent) < 3:
                sent.append(f"more {len(sent)}")
                await run.send(sent[-1])
        await anyio.sleep(20)
        await _assert_all_answered(runtime, run.run_id, sent)


@pytest.mark.spec("T-03")
async def test_a_message_sent_by_a_tool_or_a_model_is_answered(
    journal: Journal, ports: Ports
) -> None:
    sent: list[str] = []

    def send(text: str) -> None:
        if text not in sent:
            sent.append(text)
            runtime.hub.send_to_run(run_id, text)

    @tool(name="look")
    async def look_and_send() -> str:
        send("by the tool")
        await anyio.lowlevel.checkpoint()
        return "seen"

    def model(request: ModelRequest) -> Any:
        send("by the model")
        if len(heard(request)) > 2:
            send("by the model again")
        return _two_steps(request)

    agents = [model_agent(FunctionModel(model), look_and_send)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run_id = ports.ids.run_id(ports.clock.now())
        await runtime.start("assistant", "first", run_id=run_id)
        await _assert_all_answered(runtime, run_id, sent)
    assert len(sent) == 3


@pytest.mark.spec("T-03")
async def test_a_parked_run_wakes_for_every_message(journal: Journal, ports: Ports) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant")
        for number in range(5):
            await run.result()
            assert runtime.runs.get(run.run_id) is None, "a parked run is not in memory"
            await run.send(f"{number}")
            assert (await run.result()).output == f"echo: {number}"


@pytest.mark.spec("T-03")
async def test_an_untriggering_item_leaves_the_run_idle_and_loses_nothing(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant")
        await run.result()
        runtime.hub.emit(SessionMessage(run_id=run.run_id, content="for later", triggers=False))
        await run.result()
        await run.send("now")
        assert (await run.result()).output == "echo: for later, now"


@pytest.mark.spec("T-03")
@pytest.mark.parametrize(("senders", "pause"), list(product([1, 3], [0, 0.4])))
async def test_every_message_of_every_sender_is_answered_in_the_senders_order(
    senders: int, pause: float, journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant")

        async def send(name: str) -> None:
            for number in range(10):
                run.send(f"{name}{number}")
                await anyio.sleep(pause)

        async with anyio.create_task_group() as group:
            for sender in range(senders):
                group.start_soon(send, "abc"[sender])
        await run.result()
        texts = [x.text for x in await run.read() if x.type == "agent:text"]
    words = [word for text in texts for word in text.removeprefix("echo: ").split(", ")]
    for sender in "abc"[:senders]:
        assert [word for word in words if word[0] == sender] == [f"{sender}{n}" for n in range(10)]
    assert len(words) == senders * 10


@pytest.mark.spec("T-03")
@pytest.mark.parametrize("active", [False, True])
async def test_a_listener_to_messages_that_sends_another_one_keeps_the_order(
    active: bool, journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:

        def add(event: Any) -> None:
            if event.content == "a":
                runtime.hub.send_to_run(event.run_id, "b")

        runtime.hub.subscribe("session:message", add)
        run = await runtime.start("assistant", "first" if active else None)
        await anyio.sleep(0.5)
        run.send("a")
        with anyio.fail_after(100):
            await run.result()
        assert taken(await run.read()) == ["a", "b"]
