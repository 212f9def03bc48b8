"""Streams and async handlers: live, in order, bounded (H-03, H-05, H-18)."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub import CustomEvent, Hub
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.events import HubGap
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports

pytestmark = pytest.mark.anyio


def tick(n, *, durable=True):
    return CustomEvent.of("test:tick", durable=durable, n=n)


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


def numbers(events):
    return [event.data["n"] if event.type == "test:tick" else event.type for event in events]


async def rest_of(stream):
    """Everything the stream still yields once it is closed."""
    stream.close()
    return numbers([event async for event in stream])


# ── as a stream (H-03) ───────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-03")
async def test_stream_is_live_from_the_moment_subscribe_returns(hub):
    stream = hub.subscribe("test:tick")
    hub.emit(tick(1))
    async with stream as events:
        assert (await anext(events)).data["n"] == 1


@pytest.mark.spec("H-03")
async def test_stream_yields_in_order_what_is_emitted_while_it_waits(hub):
    got = []

    async def emit():
        for n in range(10):
            await anyio.sleep(1)
            hub.emit(tick(n, durable=n % 3 > 0))

    async with anyio.create_task_group() as group, hub.subscribe("test:*") as events:
        group.start_soon(emit)
        async for event in events:
            got.append(event.data["n"])
            if len(got) == 10:
                break
    assert got == list(range(10))
    assert hub.statistics().subscribers == 0


@pytest.mark.spec("H-03")
async def test_stream_ends_when_the_hub_closes_after_what_is_buffered(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        waiting, full = hub.subscribe("test:tick"), hub.subscribe("test:tick")
        got = []

        async def read():
            got.extend([event async for event in waiting])

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await hub.publish(tick(1))
            await anyio.sleep(1)
            await hub.publish(tick(2))
            hub.close()
    assert numbers(got) == [1, 2]
    assert numbers([event async for event in full]) == [1, 2]


@pytest.mark.spec("H-03")
@pytest.mark.parametrize("way", ["exit", "break", "raise", "cancel", "cancel while waiting"])
async def test_stream_unsubscribes_however_it_is_left(hub, way):
    async def listen(scope):
        async with hub.subscribe("test:tick") as events:
            hub.emit(tick(1))
            async for _ in events:
                assert hub.statistics().subscribers == 1
                if way == "break":
                    break
                if way == "raise":
                    raise ValueError("left")
                if way == "exit":
                    events.close()
                if way == "cancel":
                    scope.cancel()
                    await anyio.sleep_forever()

    with anyio.move_on_after(10) as scope:
        if way == "raise":
            with pytest.raises(ValueError, match="left"):
                await listen(scope)
        else:
            await listen(scope)
    assert scope.cancelled_caught == way.startswith("cancel")
    assert hub.statistics().subscribers == 0
    assert hub.statistics().buffered == 0


@pytest.mark.spec("H-03")
async def test_cancelled_reader_loses_nothing(hub):
    """An event that comes as the reader gives up is the next reader's."""
    async with hub.subscribe("test:tick") as events:
        with anyio.move_on_after(1) as scope:
            await anext(events)
        assert scope.cancelled_caught
        for n in range(3):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def emit_and_cancel(n=n, scope=scope):
                        await anyio.sleep(1)
                        hub.emit(tick(n))
                        scope.cancel()

                    group.start_soon(emit_and_cancel)
                    await anyio.sleep_forever()
        assert [(await anext(events)).data["n"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.spec("H-03")
async def test_stream_that_ends_after_an_event_ends_there(hub):
    """Also when it has fallen behind, and so has something left to say."""
    for lossless in (False, True):
        stream = hub.subscribe_until("test:tick", lambda e: e.data["n"] == 1, lossless=lossless)
        for n in range(3000):
            await hub.publish(tick(n))
        assert numbers([event async for event in stream]) == [0, 1]


@pytest.mark.spec("H-03")
@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_stream_ends_behind_its_gap_where_its_last_event_was_among_the_missed(
    hub, is_durable
):
    stream = hub.subscribe_until("test:tick", lambda e: e.data["n"] == 2000)
    for n in range(3000):
        await hub.publish(tick(n, durable=is_durable))
    with anyio.fail_after(60):
        heard = numbers([event async for event in stream])
    assert heard == [*range(1024), "hub:gap"]


@pytest.mark.spec("H-03")
async def test_all_that_is_buffered_is_taken_with_one_wait(hub):
    async with hub.subscribe("test:tick") as events:
        for n in range(3):
            await hub.publish(tick(n))
        assert numbers(await events.take()) == [0, 1, 2]
        assert await hub.read(after=events.cursor) == []
        with anyio.move_on_after(1) as scope:
            await events.take()
        assert scope.cancelled_caught
        await hub.publish(tick(3))
        hub.close()
        assert [numbers(await events.take()) for _ in range(3)] == [[3], [], []]


@pytest.mark.spec("H-03")
async def test_what_is_taken_ends_where_the_stream_does(hub):
    stream = hub.subscribe_until("test:tick", lambda e: e.data["n"] == 1)
    for n in range(3):
        await hub.publish(tick(n))
    assert [numbers(await stream.take()) for _ in range(2)] == [[0, 1], []]


@pytest.mark.spec("H-03")
async def test_callback_unsubscribes_by_close_by_call_and_as_context(hub):
    got = []
    one, two = hub.subscribe("test:*", got.append), hub.subscribe("test:*", got.append)
    with hub.subscribe("test:*", got.append) as three:
        await hub.publish(tick(1))
    assert len(got) == 3
    one.close()
    two()
    await hub.publish(tick(2))
    assert len(got) == 3
    for subscription in (one, two, three):
        subscription.close()
        subscription()
    assert hub.statistics().subscribers == 0


@pytest.mark.spec("H-03")
async def test_unsubscribing_twice_takes_nobody_else_away(hub):
    got = []
    one = hub.subscribe("test:tick", got.append)
    hub.subscribe("test:tick", got.append)
    stream, other = hub.subscribe("test:tick"), hub.subscribe("test:tick")
    for _ in range(3):
        one.close()
        stream.close()
    await hub.publish(tick(1))
    assert numbers(got) == [1]
    assert await rest_of(other) == [1]
    assert await rest_of(stream) == []


@pytest.mark.spec("H-03")
async def test_unsubscribing_after_the_hub_has_closed_is_a_no_op(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        subscription, stream = hub.subscribe("*", print), hub.subscribe("*", run_id="r")
    subscription.close()
    stream.close()
    async with stream:
        pass


# ── bounded (H-05) ───────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-05")
async def test_every_stream_is_bounded_by_default(journal, ports):
    async with Hub(journal=journal, ports=ports, buffer=8) as hub:
        stream, small = hub.subscribe("test:tick"), hub.subscribe("test:tick", buffer=2)
        for n in range(100):
            hub.emit(tick(n))
        await journal.flush()
        assert (stream.buffered, small.buffered) == (8, 2)
        assert (stream.dropped, small.dropped) == (92, 98)


@pytest.mark.spec("H-05")
@pytest.mark.parametrize("buffer", [0, -1])
async def test_buffer_must_hold_something(hub, ports, buffer):
    with pytest.raises(BadValue, match="at least 1"):
        hub.subscribe("*", buffer=buffer)
    with pytest.raises(BadValue, match="at least 1"):
        Hub(ports=ports, buffer=buffer)


@pytest.mark.spec("H-05")
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "ephemeral"])
async def test_lagging_stream_gets_a_gap_in_the_place_of_what_it_missed(hub, durable):
    prompt, got = [], hub.subscribe("test:tick", buffer=3)
    hub.subscribe("test:tick", prompt.append)
    for n in range(10):
        await hub.publish(tick(n, durable=durable))
    assert numbers(prompt) == list(range(10)), "nobody else is slowed"
    first = [await anext(got) for _ in range(4)]
    assert numbers(first) == [0, 1, 2, "hub:gap"]
    assert first[3].dropped == 7
    await hub.publish(tick(10, durable=durable))
    assert await rest_of(got) == [10]


@pytest.mark.spec("H-05", "H-06")
async def test_gap_has_a_cursor_to_resume_from(hub):
    for n in range(3):
        await hub.publish(tick(n))
    stream = hub.subscribe("test:tick", buffer=2)
    for n in range(3, 9):
        await hub.publish(tick(n))
    assert numbers([await anext(stream) for _ in range(2)]) == [3, 4]
    gap = await anext(stream)
    await hub.publish(tick(9))
    assert numbers(await hub.read(after=gap.cursor)) == [5, 6, 7, 8, 9]
    async with hub.subscribe("test:tick", after=gap.cursor) as resumed:
        assert numbers([await anext(resumed) for _ in range(5)]) == [5, 6, 7, 8, 9]


@pytest.mark.spec("H-05")
async def test_gap_before_anything_was_yielded_resumes_at_the_subscription(hub):
    await hub.publish(tick(0))
    stream = hub.subscribe("test:tick", buffer=1)
    await hub.publish(tick(1, durable=False))
    await hub.publish(tick(2))
    assert numbers([await anext(stream)]) == [1]
    gap = await anext(stream)
    assert gap.dropped == 1
    assert numbers(await hub.read(after=gap.cursor)) == [2]


@pytest.mark.spec("H-05", "H-12")
async def test_gaps_have_ids_of_their_own(hub):
    streams = [hub.subscribe("test:tick", buffer=1) for _ in range(3)]
    for n in range(3):
        await hub.publish(tick(n))
    gaps = [[await anext(stream), await anext(stream)][1] for stream in streams]
    assert {gap.type for gap in gaps} == {"hub:gap"}
    assert len({gap.id for gap in gaps}) == 3


@pytest.mark.spec("H-05")
async def test_lossless_stream_reads_what_it_missed_from_the_journal(hub):
    for n in range(3):
        await hub.publish(tick(n))
    stream = hub.subscribe("test:tick", lossless=True, buffer=2)
    for n in range(3, 50):
        await hub.publish(tick(n))
    got = [await anext(stream) for _ in range(20)]
    for n in range(50, 60):
        await hub.publish(tick(n))
    got += [await anext(stream) for _ in range(37)]
    assert numbers(got) == list(range(3, 60))
    assert stream.dropped == hub.statistics().dropped == 0
    await hub.publish(tick(60, durable=False))
    assert await rest_of(stream) == [60], "live again"


@pytest.mark.spec("H-05")
async def test_lossless_stream_needs_no_cursor_that_is_still_kept(ports):
    """What it has yielded may be dropped by the store meanwhile; it still repeats nothing."""
    journal = MemoryJournal(keep_hub_events=10)
    async with Hub(journal=journal, ports=ports) as hub:
        stream = hub.subscribe("test:tick", lossless=True, buffer=12)
        for n in range(12):
            hub.emit(tick(n))
        for n in range(12, 20):
            hub.emit(tick(n))
        assert numbers([await anext(stream) for _ in range(20)]) == list(range(20))


async def test_lossless_stream_reads_on_while_one_tree_after_the_other_goes(hub, monkeypatch):
    read = hub.journal.read

    async def read_while_a_tree_goes(*arguments, **options):
        page = await read(*arguments, **options)
        hub.dispatcher.removed("tree", ["tree"], hub.journal.tip)
        return page

    monkeypatch.setattr(hub.journal, "read", read_while_a_tree_goes)
    stream = hub.subscribe("test:tick", lossless=True, buffer=2)
    for n in range(1_200):
        await hub.publish(tick(n))
    got = numbers([await anext(stream) for _ in range(1_203)])
    assert [n for n in got if n != "hub:gap"] == list(range(1_200)), "three pages"
    assert got[2] == "hub:gap" and got.count("hub:gap") == 3, "one a page, ahead of it"


@pytest.mark.spec("H-05")
async def test_lossless_stream_that_ends_early_says_so(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        stream = hub.subscribe("test:tick", lossless=True, buffer=2)
        for n in range(5):
            await hub.publish(tick(n))
    got = [event async for event in stream]
    assert numbers(got) == [0, 1, "hub:gap"]
    assert got[2].reason == "closed"


@pytest.mark.spec("H-05", "H-18")
@settings(max_examples=examples(100), deadline=None)
@given(
    acts=st.lists(st.sampled_from(["emit", "emit", "emit ephemeral", "read", "take"]), max_size=40),
    buffer=st.integers(1, 4),
    lossless=st.booleans(),
)
@pytest.mark.parametrize("kind", ["at once", "late"])
async def test_whatever_a_stream_misses_it_says(acts, buffer, lossless, kind):
    """Events come once and in order; what is missing stands in a gap, nothing is left out else."""
    inner = MemoryJournal()
    journal = inner if kind == "at once" else LateJournal(inner)
    async with Hub(journal=journal, ports=virtual_ports()) as hub:
        emitted, got = [], []
        stream = hub.subscribe("test:tick", buffer=buffer, lossless=lossless)
        for act in acts:
            if act == "read":
                with anyio.move_on_after(1):
                    got.append(await anext(stream))
            elif act == "take":
                with anyio.move_on_after(1):
                    got += await stream.take()
                    assert stream.buffered == 0
            else:
                event = tick(len(emitted), durable=act == "emit")
                emitted.append(event)
                await hub.publish(event)
            assert stream.buffered <= buffer or lossless
        with anyio.move_on_after(1):
            while True:
                got.append(await anext(stream))
        stream.close()
        missed = 0
        seen = [event.data["n"] for event in got if not isinstance(event, HubGap)]
        assert seen == sorted(set(seen))
        expected = iter(range(len(emitted)))
        for event in got:
            if isinstance(event, HubGap):
                assert not lossless
                missed += event.dropped
                for _ in range(event.dropped):
                    next(expected)
            elif not lossless:
                assert event.data["n"] == next(expected)
        if lossless:
            durable = {n for n, event in enumerate(emitted) if event.durable}
            assert durable <= set(seen)
        else:
            assert missed + len(seen) == len(emitted)
            assert stream.dropped == missed


# ── async callbacks (H-18) ───────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-18", "H-14")
async def test_async_handler_gets_one_event_at_a_time_in_order(hub):
    got, at_work = [], []

    async def handler(event):
        assert not at_work, "one at a time"
        at_work.append(event)
        await anyio.sleep(5 - event.data["n"] % 5)
        at_work.clear()
        got.append(event.data["n"])

    hub.subscribe("test:tick", handler)
    for n in range(10):
        hub.emit(tick(n, durable=n % 2 == 0))
    await anyio.sleep(100)
    assert got == list(range(10))


@pytest.mark.spec("H-18")
async def test_emit_never_waits_for_an_async_handler(hub):
    async def never(event):
        await anyio.sleep_forever()

    hub.subscribe("test:tick", never)
    before = anyio.current_time()
    for n in range(100):
        await hub.publish(tick(n))
    assert anyio.current_time() == before


@pytest.mark.spec("H-18", "H-05")
async def test_slow_async_handler_is_told_of_the_gap(hub, eventually):
    got = []

    async def slow(event):
        await anyio.sleep(1)
        got.append(event)

    hub.subscribe("test:tick", slow, buffer=2)
    hub.emit(tick(0))
    await anyio.sleep(0.5)
    for n in range(1, 8):
        hub.emit(tick(n))
    await eventually(lambda: len(got) == 4)
    assert numbers(got) == [0, 1, 2, "hub:gap"]
    assert got[3].dropped == 5
    assert numbers(await hub.read(after=got[3].cursor)) == [3, 4, 5, 6, 7]


@pytest.mark.spec("H-18", "H-05")
async def test_lossless_async_handler_gets_everything(hub):
    got = []

    async def slow(event):
        await anyio.sleep(1)
        got.append(event)

    hub.subscribe("test:tick", slow, buffer=2, lossless=True)
    for n in range(30):
        await hub.publish(tick(n))
    await anyio.sleep(100)
    assert numbers(got) == list(range(30))


@pytest.mark.spec("H-18", "H-04")
async def test_async_handler_is_not_called_once_it_is_unsubscribed(hub):
    got = []

    async def slow(event):
        await anyio.sleep(1)
        got.append(event.data["n"])

    subscription = hub.subscribe("test:tick", slow)
    for n in range(5):
        hub.emit(tick(n))
    await anyio.sleep(1.5)
    subscription.close()
    subscription.close()
    await anyio.sleep(10)
    assert got == [0, 1], "the one at work is finished, what is buffered is not begun"
    assert hub.statistics().subscribers == hub.statistics().buffered == 0


@pytest.mark.spec("H-18", "H-15")
async def test_async_handler_is_cancelled_with_the_hub(journal, ports):
    ended = []

    async def never(event):
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(event.data["n"])

    async with Hub(journal=journal, ports=ports) as hub:
        hub.subscribe("test:tick", never)
        for n in range(3):
            await hub.publish(tick(n))
        await anyio.sleep(1)
    assert ended == [0]


@pytest.mark.spec("H-18")
async def test_async_handler_needs_an_open_hub(ports):
    async def handler(event):
        pass

    hub = Hub(ports=ports)
    with pytest.raises(CallerError, match=r"not open.*async with Hub"):
        hub.subscribe("*", handler)
    async with hub:
        assert hub.statistics().subscribers == 0


@pytest.mark.spec("H-18", "H-17")
async def test_async_handler_may_publish_and_await_receipts(hub, eventually):
    got = []

    async def handler(event):
        await hub.publish(CustomEvent.of("test:echo", n=event.data["n"]))
        receipt = await hub.send_to_run("r" * 36, str(event.data["n"]))
        got.append(receipt.status)

    await hub.open("agent", run_id="r" * 36)
    hub.subscribe("test:tick", handler)
    for n in range(3):
        hub.emit(tick(n))
    await eventually(lambda: len(got) == 3)
    assert got == ["accepted"] * 3
