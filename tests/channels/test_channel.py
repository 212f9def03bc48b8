"""Channels: attachment, isolation of what fails, conversations by key (K-01, K-02, K-04)."""

import ast
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from hubbub import CustomEvent, Hub, Runtime, agent
from hubbub.channels import Channel, Channels
from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.events import AgentStart, ChannelError

pytestmark = pytest.mark.anyio


def said(number):
    return CustomEvent.of("shop:said", number=number)


def collector(name="collector", pattern="shop:*", **options):
    """A channel that keeps what it gets, and the list it keeps it in."""
    got = []
    return Channel(name, {pattern: lambda event, context: got.append(event)}, **options), got


def numbers(events):
    return [event.data["number"] for event in events]


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


@pytest.fixture
def errors(hub):
    """Every ``channel:error`` of the hub."""
    got = []
    hub.subscribe("channel:error", got.append)
    return got


# ── what a channel is ────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("K-01")
async def test_handlers_sync_and_async_get_the_events_of_their_patterns_in_order(hub, eventually):
    got = []

    async def later(event, context):
        await anyio.sleep(1)
        got.append(("later", event.type, event.data["number"]))

    def at_once(event, context):
        got.append(("at once", event.type, event.data["number"]))

    channel = Channel("shop", {"shop:*": later, ("shop:said", "other:said"): at_once})
    async with Channels(hub, channel):
        hub.emit(said(1))
        hub.emit(CustomEvent.of("other:said", number=2))
        hub.emit(CustomEvent.of("else:said", number=3))
        hub.emit(CustomEvent.of("shop:sold", number=4))
        await eventually(lambda: len(got) == 4)
    assert got == [
        ("later", "shop:said", 1),
        ("at once", "shop:said", 1),
        ("at once", "other:said", 2),
        ("later", "shop:sold", 4),
    ]


@pytest.mark.spec("K-01")
async def test_on_start_and_on_complete_are_called_once_around_the_handlers(hub):
    got = []
    hub.subscribe(["channel:start", "channel:complete"], lambda e: got.append((e.type, e.channel)))
    channel = Channel(
        "a",
        {"shop:*": lambda event, context: got.append("event")},
        on_start=lambda context: got.append("on_start"),
        on_complete=lambda context: got.append("on_complete"),
    )
    channels = Channels(hub, channel)
    assert got == []
    await channels.start()
    await channels.start()
    await hub.publish(said(1))
    await channels.stop()
    await channels.stop()
    await hub.publish(said(2))
    await anyio.sleep(1)
    assert got == ["on_start", ("channel:start", "a"), "event", "on_complete",
                   ("channel:complete", "a")]  # fmt: skip


@pytest.mark.spec("K-01")
async def test_starting_twice_at_once_waits_for_the_one_start(hub):
    starts = []

    async def on_start(context):
        await anyio.sleep(1)
        starts.append(context.name)

    channels = Channels(hub, Channel("a", on_start=on_start))
    async with anyio.create_task_group() as group:
        group.start_soon(channels.start)
        group.start_soon(channels.start)
    assert starts == ["a"]
    assert channels.attached["a"].status == "running"
    await channels.stop()


@pytest.mark.spec("K-01")
async def test_each_attachment_has_a_state_of_its_own(hub):
    counts = []

    def count(event, context):
        context.state.count += 1

    def channel(name):
        return Channel(
            name,
            {"shop:*": count},
            on_complete=lambda context: counts.append((context.name, context.state.count)),
            state=lambda: SimpleNamespace(count=0),
        )

    channels = Channels(hub, channel("a"), channel("b"))
    for events in (2, 3):
        await channels.start()
        for number in range(events):
            await hub.publish(said(number))
        await channels.stop()
    assert sorted(counts) == [("a", 2), ("a", 3), ("b", 2), ("b", 3)]


@pytest.mark.spec("K-01")
async def test_a_name_is_taken_once_on_a_hub(hub):
    one, got = collector("one")
    with pytest.raises(BadValue, match="a channel 'one' already"):
        Channels(hub, one, one)
    async with Channels(hub, one) as channels:
        with pytest.raises(BadValue, match="a channel 'one' already"):
            await channels.add(Channel("one"))
        elsewhere = Channels(hub, Channel("other"), Channel("one"))
        with pytest.raises(BadValue, match="the hub has a channel 'one' already"):
            await elsewhere.start()
        assert not elsewhere.attached
        await hub.publish(said(1))
    assert numbers(got) == [1]
    # Both names are free again: nothing of the refused start is left.
    async with Channels(hub, Channel("other"), Channel("one")) as channels:
        assert all(each.status == "running" for each in channels.attached.values())


@pytest.mark.spec("K-01")
async def test_a_channel_registered_late_starts_at_once(hub):
    channels = Channels(hub)
    early, early_got = collector("early")
    await channels.add(early)
    assert not channels.attached
    await channels.start()
    late, late_got = collector("late")
    await channels.add(late)
    assert channels.attached["late"].status == "running"
    await hub.publish(said(1))
    await channels.remove("late")
    await hub.publish(said(2))
    await channels.stop()
    assert (numbers(early_got), numbers(late_got)) == ([1, 2], [1])


@pytest.mark.spec("K-01")
async def test_events_during_an_async_on_start_wait_for_it(hub):
    got = []
    ready = anyio.Event()

    async def on_start(context):
        await ready.wait()
        got.append("ready")

    channel = Channel(
        "slow", {"shop:*": lambda e, c: got.append(e.data["number"])}, on_start=on_start
    )
    quick, quick_got = collector("quick")
    channels = Channels(hub, channel, quick)
    async with anyio.create_task_group() as group:
        group.start_soon(channels.start)
        await anyio.sleep(1)
        for number in range(3):
            hub.emit(said(number))
        await anyio.sleep(1)
        assert got == []
        assert numbers(quick_got) == [0, 1, 2]  # The other channel does not wait.
        ready.set()
    await channels.stop()
    assert got == ["ready", 0, 1, 2]


async def test_a_definition_names_all_its_problems():
    with pytest.raises(DefinitionError) as caught:
        Channel(" ", {"shop*": print, "shop:*": 7}, on_start=3, buffer=0)
    problems = " | ".join(caught.value.problems)
    for part in ("name:", "'shop*'", "handlers['shop:*']", "on_start:", "buffer:"):
        assert part in problems


# ── what fails ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("K-01")
async def test_an_error_of_a_handler_is_told_to_all_but_its_own_channel(hub, errors):
    own = []

    def fail(event, context):
        if event.type == "shop:said":
            raise ValueError(f"no {event.data['number']}")
        own.append(event)

    other, told = collector("other", "channel:error")
    async with Channels(hub, Channel("bad", {"*": fail}), other):
        await hub.publish(said(1))
        await hub.publish(CustomEvent.of("shop:sold", number=2))
    assert [(e.channel, e.error, e.error_type, e.during) for e in errors] == [
        ("bad", "no 1", "ValueError", "shop:said")
    ]
    assert [e.channel for e in told] == ["bad"]
    assert not [e for e in own if isinstance(e, ChannelError)]
    assert [e.data["number"] for e in own if e.type == "shop:sold"] == [2]  # It goes on.


@pytest.mark.spec("K-01")
async def test_two_channels_that_fail_over_everything_do_not_feed_each_other(hub, errors):
    def fail(event, context):
        raise RuntimeError(context.name)

    async with Channels(hub, Channel("a", {"*": fail}), Channel("b", {"*": fail})):
        await anyio.sleep(1)
        errors.clear()
        hub.emit(said(1))
        await anyio.sleep(1)
    assert sorted(e.channel for e in errors if e.during == "shop:said") == ["a", "b"]
    assert not [e for e in errors if e.during == "channel:error"]


@pytest.mark.spec("K-01")
async def test_a_handler_that_raises_keeps_no_other_handler_from_its_call(hub, errors):
    def fail(event, context):
        raise RuntimeError("first")

    got = []
    channel = Channel("a", {"shop:*": fail, "shop:said": lambda event, context: got.append(event)})
    async with Channels(hub, channel):
        await hub.publish(said(1))
    assert numbers(got) == [1]
    assert len(errors) == 1


@pytest.mark.spec("K-01")
@pytest.mark.parametrize("where", ["on_start", "state", "on_complete", "handler", "beside"])
async def test_a_failing_channel_takes_down_neither_hub_nor_other_channel(hub, errors, where):
    def fail(*args):
        raise OSError(f"no {where}")

    async def fail_beside():
        fail()

    options = {"on_start": fail} if where == "on_start" else {}
    if where == "state":
        options["state"] = fail
    if where == "on_complete":
        options["on_complete"] = fail
    if where == "beside":
        options["on_start"] = lambda context: context.start(fail_beside)
    bad = Channel("bad", {"shop:*": fail if where == "handler" else lambda *args: None}, **options)
    good, got = collector("good")
    async with Channels(hub, bad, good) as channels:
        failed_to_start = where in ("on_start", "state")
        assert channels.attached["bad"].status == ("failed" if failed_to_start else "running")
        assert (channels.attached["bad"].error is not None) == failed_to_start
        for number in range(2):
            hub.emit(said(number))
        await anyio.sleep(1)
    assert numbers(got) == [0, 1]
    assert {(e.channel, e.error_type, e.error) for e in errors} == {
        ("bad", "OSError", f"no {where}")
    }
    assert len(errors) == (2 if where == "handler" else 1)
    hub.emit(said(2))


@pytest.mark.spec("K-01")
async def test_a_handler_that_never_returns_holds_up_its_own_channel_only(hub):
    ended = []

    async def hang(event, context):
        await anyio.sleep_forever()

    stuck = Channel(
        "stuck", {"shop:*": hang}, on_complete=lambda context: ended.append(context.name)
    )
    good, got = collector("good")
    async with Channels(hub, stuck, good, grace=2):
        for number in range(3):
            hub.emit(said(number))
        await anyio.sleep(1)
        assert numbers(got) == [0, 1, 2]
        before = hub.ports.clock.monotonic()
    assert hub.ports.clock.monotonic() - before == pytest.approx(2)
    assert ended == ["stuck"]


@pytest.mark.spec("K-01")
async def test_on_complete_is_called_when_the_hub_closes_first(journal, ports):
    ended = []

    async def tidy(context):
        await anyio.sleep(1)
        ended.append(context.name)

    async with Hub(journal=journal, ports=ports) as hub:
        channels = Channels(hub, Channel("a", {"*": lambda *args: None}, on_complete=tidy))
        await channels.start()
    assert ended == ["a"]
    await channels.stop()
    assert ended == ["a"]


async def test_on_complete_is_called_when_the_program_is_cancelled(hub):
    ended = []

    async def tidy(context):
        await anyio.sleep(1)
        ended.append(context.name)

    with anyio.move_on_after(1):
        async with Channels(hub, Channel("a", {"*": lambda *args: None}, on_complete=tidy)):
            await anyio.sleep_forever()
    assert ended == ["a"]


@pytest.mark.parametrize("has_hook", [False, True], ids=["at once", "in on_start"])
async def test_cancelled_while_it_is_being_attached_a_channel_is_detached(hub, has_hook):
    async def begin(context):
        if has_hook:
            await anyio.sleep_forever()

    channel = Channel("shop", {"shop:*": print}, on_start=begin)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with Channels(hub, channel):
            pytest.fail("it was attached")
    assert hub.statistics().subscribers == 0
    async with Channels(hub, Channel("shop")):
        pass


async def test_an_on_complete_that_never_returns_is_given_up(hub, errors):
    async def hang(context):
        await anyio.sleep_forever()

    async with Channels(hub, Channel("a", on_complete=hang)):
        pass
    assert [(e.channel, e.during) for e in errors] == [("a", "on_complete")]


async def test_a_channel_may_remove_itself(hub, eventually):
    ended = []
    channels = Channels(hub)

    async def leave(event, context):
        await channels.remove("a")
        ended.append("removed")

    channel = Channel(
        "a", {"shop:*": leave}, on_complete=lambda context: ended.append("on_complete")
    )
    await channels.add(channel)
    await channels.start()
    hub.emit(said(1))
    await eventually(lambda: len(ended) == 2)
    assert ended == ["removed", "on_complete"]
    await channels.stop()


async def test_what_runs_beside_the_handlers_ends_with_the_channel(hub):
    ticks = []

    async def tick(every):
        while True:
            await anyio.sleep(every)
            ticks.append(every)

    async with Channels(hub, Channel("a", on_start=lambda context: context.start(tick, 10))):
        await anyio.sleep(35)
    await anyio.sleep(100)
    assert ticks == [10, 10, 10]


@pytest.mark.parametrize("lossless", [False, True])
async def test_a_channel_that_falls_behind_gets_a_gap_or_reads_the_journal(hub, lossless):
    got = []

    async def slow(event, context):
        await anyio.sleep(1)
        got.append(event)

    channel = Channel("slow", {("shop:*", "hub:gap"): slow}, lossless=lossless, buffer=4)
    async with Channels(hub, channel, grace=60):
        for number in range(10):
            hub.emit(said(number))
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(30)
    if lossless:
        assert numbers(got) == list(range(10))
    else:
        assert "hub:gap" in [event.type for event in got]
        assert len(got) < 10


# ── the hub is all a channel needs ───────────────────────────────────────────────────────────


@pytest.mark.spec("K-02")
def test_channels_import_nothing_but_the_hub():
    folder = Path(__file__).parents[2] / "channels"
    modules = sorted(folder.glob("**/*.py"))
    assert modules
    for module in modules:
        for name in _imported(module):
            if name.split(".")[0] == "hubbub":
                assert name.startswith(("hubbub.hub", "hubbub.channels")), f"{module.name}: {name}"


def _imported(module):
    """The full names of everything a module imports, also inside functions."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module.name}: a relative import"
            # `from hubbub import runtime` names its module only with what it takes from it.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@agent("clerk")
async def clerk(input, ctx):
    """Answers every message, and leaves on ``bye``."""
    ctx.say(f"hello {input}")
    async for message in ctx.messages():
        if message.content == "bye":
            break
        ctx.say(f"noted {message.content}")


def desk(inbox):
    """A channel as an adapter of a chat service would be: users write, and are answered.

    It has no map: the key of a user's conversation is made from the user's name.
    """
    answers = []

    async def poll(context):
        async for user, text in inbox:
            await context.hub.open("clerk", text, session_key=f"desk:{user}")

    async def answer(event, context):
        info = await context.hub.ask("runtime", f"run {event.root_run_id}")
        answers.append((info["session_key"].removeprefix("desk:"), event.text))

    return Channel(
        "desk", {"agent:text": answer}, on_start=lambda context: context.start(poll, context)
    ), answers


@pytest.mark.spec("K-04", "K-02")
async def test_conversations_are_found_by_key_without_a_map(journal, ports, eventually):
    post, inbox = anyio.create_memory_object_stream[tuple[str, str]](100)
    channel, answers = desk(inbox)
    async with Runtime(agents=[clerk], store=journal, ports=ports) as rt, post, inbox:
        starts = []
        rt.hub.subscribe("agent:start", starts.append)
        async with Channels(rt.hub, channel):
            for user, text in [("ann", "a1"), ("bob", "b1"), ("ann", "a2"), ("bob", "b2")]:
                await post.send((user, text))
            await eventually(lambda: len(answers) == 4)
            assert [text for user, text in answers if user == "ann"] == ["hello a1", "noted a2"]
            assert [text for user, text in answers if user == "bob"] == ["hello b1", "noted b2"]
            assert [e.session_key for e in starts] == ["desk:ann", "desk:bob"]
            # A message to the key alone reaches the same conversation.
            receipt = await rt.hub.send("a3", session_key="desk:ann", source="desk")
            assert receipt.run_id == starts[0].run_id
            await eventually(lambda: ("ann", "noted a3") in answers)


@pytest.mark.spec("K-04")
async def test_a_key_is_dropped_with_the_terminal_event(journal, ports):
    async with Runtime(agents=[clerk], store=journal, ports=ports) as rt:
        first = await rt.hub.open("clerk", "one", session_key="desk:ann")
        again = await rt.hub.open("clerk", "two", session_key="desk:ann")
        assert again.run_id == first.run_id
        await rt.hub.send("bye", session_key="desk:ann")
        await rt.finished(first.run_id)
        late = await rt.hub.send("anybody?", session_key="desk:ann")
        assert (late.status, late.reason) == ("rejected", "unknown")
        third = await rt.hub.open("clerk", "three", session_key="desk:ann")
        assert third.accepted
        assert third.run_id != first.run_id


@pytest.mark.spec("K-04")
async def test_the_address_book_is_the_stores_and_outlives_channel_and_runtime(
    journal, ports, eventually
):
    waiter = agent("waiter", on_restart="resume")(clerk.execute)
    async with Runtime(agents=[waiter], store=journal, ports=ports, grace=0) as rt:
        first = await rt.hub.open("waiter", "one", session_key="desk:ann")
    async with Runtime(agents=[waiter], store=journal, ports=ports, grace=0) as rt:
        found = await rt.hub.open("waiter", "two", session_key="desk:ann")
        assert found.run_id == first.run_id
        starts = [e for e in await rt.hub.read(types="agent:start") if isinstance(e, AgentStart)]
        assert [(e.run_id, e.session_key) for e in starts] == [(first.run_id, "desk:ann")]


async def test_a_run_is_recognised_by_what_its_opener_gave_it(journal, ports, eventually):
    """The key and the correlation id stand in ``agent:start``: nothing need be remembered."""
    async with Runtime(agents=[clerk], store=journal, ports=ports) as rt:
        seen = []
        listen = Channel("a", {"agent:start": lambda event, context: seen.append(event)})
        async with Channels(rt.hub, listen):
            await rt.hub.open("clerk", "x", session_key="desk:ann", correlation_id="mail 7")
            await eventually(lambda: bool(seen))
        assert (seen[0].session_key, seen[0].correlation_id) == ("desk:ann", "mail 7")
