"""Replay, then live: no gap, no duplicate (H-06)."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub import START, CustomEvent, Hub
from hubbub.hub.delivery import stream as stream_module
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.events import AgentTextDelta
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports

pytestmark = pytest.mark.anyio


def tick(n, *, durable=True, run_id=""):
    event = CustomEvent.of("test:tick", durable=durable, n=n)
    return CustomEvent(
        name=event.name, data_json=event.data_json, durable=durable, run_id=run_id,
        root_run_id=run_id,
    )  # fmt: skip


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


def numbers(events):
    return [event.data["n"] if event.type == "test:tick" else event.type for event in events]


async def take(stream, number):
    with anyio.fail_after(1000):
        return [await anext(stream) for _ in range(number)]


async def is_silent(stream):
    with anyio.move_on_after(1) as scope:
        await anext(stream)
    return scope.cancelled_caught


# ── what is journaled ────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-06", "H-17")
async def test_durable_event_is_journaled_before_it_is_dispatched(hub):
    places = []
    hub.subscribe("test:tick", lambda event: places.append((hub.journal.tip, event.seq)))
    first = None
    for n in range(3):
        await hub.publish(tick(n))
        first = first or (await hub.read())[0].seq
    assert places == [(1, first), (2, first + 1), (3, first + 2)]


@pytest.mark.spec("H-06")
async def test_ephemeral_event_is_dispatched_and_not_journaled(hub):
    got = []
    hub.subscribe("*", got.append)
    events = [
        AgentTextDelta(text="a"), CustomEvent.of("my:delta"), CustomEvent.of("channel:web:seen"),
        tick(1, durable=False),
    ]  # fmt: skip
    for event in events:
        await hub.publish(event)
    assert [event.type for event in got] == [event.type for event in events]
    assert not any(event.is_durable for event in got)
    assert await hub.read() == []
    await hub.publish(CustomEvent.of("channel:web:seen", durable=True))
    assert [event.type for event in await hub.read()] == ["channel:web:seen"]


# ── replay, then live ────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-06")
async def test_subscription_after_a_cursor_replays_then_goes_live(hub):
    for n in range(5):
        await hub.publish(tick(n))
    cursor = hub.cursor((await hub.read())[1])
    async with hub.subscribe("test:tick", after=cursor) as events:
        assert numbers(await take(events, 3)) == [2, 3, 4]
        assert await is_silent(events)
        await hub.publish(tick(5))
        await hub.publish(tick(6, durable=False))
        assert numbers(await take(events, 2)) == [5, 6]
        assert await is_silent(events)


@pytest.mark.spec("H-06")
async def test_start_replays_everything_kept(hub):
    for n in range(3):
        await hub.publish(tick(n))
    async with hub.subscribe("*", after=START) as events:
        assert numbers(await take(events, 3)) == [0, 1, 2]
        assert await is_silent(events)


@pytest.mark.spec("H-06")
async def test_replay_obeys_pattern_and_filters(hub):
    for n, run_id in enumerate("abab"):
        await hub.publish(tick(n, run_id=run_id))
        await hub.publish(CustomEvent.of("test:other"))
    async with (
        hub.subscribe("test:tick", run_id="a", after=START) as of_run,
        hub.subscribe("test:tick", root_run_id="b", after=START) as of_tree,
    ):
        assert numbers(await take(of_run, 2)) == [0, 2]
        assert numbers(await take(of_tree, 2)) == [1, 3]
        await hub.publish(tick(4, run_id="a"))
        await hub.publish(tick(5, run_id="b"))
        assert numbers(await take(of_run, 1)) == [4]
        assert numbers(await take(of_tree, 1)) == [5]
        assert await is_silent(of_run)
        assert await is_silent(of_tree)


@pytest.mark.spec("H-06", "H-18")
async def test_handler_with_a_cursor_is_fed_the_past_first(hub, eventually):
    got, late = [], []

    async def handler(event):
        late.append(event)

    for n in range(3):
        await hub.publish(tick(n))
    hub.subscribe("test:tick", got.append, after=START)
    hub.subscribe("test:tick", handler, after=START)
    await hub.publish(tick(3))
    await eventually(lambda: len(got) == len(late) == 4)
    await hub.publish(tick(4))
    await eventually(lambda: len(got) == len(late) == 5)
    assert numbers(got) == numbers(late) == [0, 1, 2, 3, 4]


@pytest.mark.spec("H-06")
async def test_history_longer_than_a_page_and_than_the_buffer_is_replayed_whole(hub, monkeypatch):
    monkeypatch.setattr(stream_module, "PAGE", 7)
    for n in range(100):
        hub.emit(tick(n))
    await hub.journal.flush()
    async with hub.subscribe("test:tick", after=START, buffer=3) as events:
        got = await take(events, 50)
        for n in range(100, 110):
            await hub.publish(tick(n))
        got += await take(events, 60)
        assert numbers(got) == list(range(110))
        assert await is_silent(events)


@pytest.mark.spec("H-06", "H-05")
async def test_what_is_replayed_takes_no_place_from_what_is_live(hub):
    for n in range(5):
        await hub.publish(tick(n))
    async with hub.subscribe("test:tick", after=START, buffer=2) as events:
        got = await take(events, 1)
        for n in (5, 6):
            await hub.publish(tick(n, durable=n == 5))
        got += await take(events, 6)
        assert numbers(got) == [0, 1, 2, 3, 4, 5, 6]


emits = st.sampled_from(["emit", "emit to a", "ephemeral", "ephemeral to a"])
acts = st.lists(st.one_of(emits, st.sampled_from(["read", "wait", "cancelled read"])), max_size=30)


@pytest.mark.spec("H-06")
@settings(max_examples=examples(150), deadline=None)
@given(
    before=st.lists(emits, max_size=12),
    during=acts,
    cursor=st.integers(0, 12),
    page=st.integers(1, 4),
    turns=st.integers(0, 3),
    run_id=st.sampled_from([None, "a"]),
)
async def test_no_interleaving_of_emits_and_reads_makes_a_gap_or_a_duplicate(
    before, during, cursor, page, turns, run_id
):
    """``turns`` is how late the store commits; emits and reads alternate in any way."""
    journal = LateJournal(MemoryJournal(), turns=turns) if turns else MemoryJournal()
    whole_page, stream_module.PAGE = stream_module.PAGE, page
    emitted, got = [], []

    async def emit(act):
        place = "a" if act.endswith("to a") else "b"
        event = tick(len(emitted), durable=act.startswith("emit"), run_id=place)
        emitted.append(event)
        hub.emit(event)

    try:
        async with Hub(journal=journal, ports=virtual_ports()) as hub:
            for act in before:
                await emit(act)
            await journal.flush()
            past = await hub.read()
            cursor = min(cursor, len(past))
            after = hub.cursor(past[cursor - 1]) if cursor else START
            begin = past[cursor - 1].data["n"] + 1 if cursor else 0
            stream = hub.subscribe("test:tick", run_id=run_id, after=after, buffer=1000)
            for act in during:
                if act == "wait":
                    await anyio.lowlevel.checkpoint()
                elif act == "read":
                    # One turn of the loop: a read that is cut off must lose nothing either.
                    with anyio.move_on_after(0.001):
                        got.append(await anext(stream))
                elif act == "cancelled read":
                    with anyio.CancelScope() as scope:
                        scope.cancel()
                        got.append(await anext(stream))
                else:
                    await emit(act)
            await journal.flush()
            with anyio.move_on_after(1):
                while True:
                    got.append(await anext(stream))
            durable = [e for e in got if e.is_durable]
            wanted = [e for e in await hub.read(run_id, types="test:tick") if e.data["n"] >= begin]
            assert durable == wanted
            assert numbers(durable) == [
                n for n, e in enumerate(emitted)
                if e.durable and n >= begin and run_id in (None, e.run_id)
            ]  # fmt: skip
            for place in "ab":  # Between runs, an ephemeral event may overtake.
                seen = numbers([e for e in got if e.run_id == place])
                assert seen == sorted(set(seen))
            stream.close()
    finally:
        stream_module.PAGE = whole_page


@pytest.mark.spec("H-06")
async def test_subscribing_inside_a_dispatch_misses_and_repeats_nothing(hub):
    """The worst moment: some events are committed and not yet dispatched."""
    streams, live = [], []

    def subscribe_late(event):
        if event.data["n"] == 3:
            for n in (100, 101):
                hub.emit(tick(n))
            streams.append(hub.subscribe("test:tick", after=START))
            streams.append(hub.subscribe("test:tick"))
            for n in (102, 103):
                hub.emit(tick(n))

    hub.subscribe("test:tick", subscribe_late)
    hub.subscribe("test:tick", live.append)
    for n in range(6):
        await hub.publish(tick(n))
    while hub.statistics().uncommitted:
        await hub.journal.flush()
    order = numbers(live)
    replayed, attached = streams
    assert numbers(await take(replayed, len(order))) == order
    assert numbers(await take(attached, len(order) - 4)) == order[4:]
    for stream in streams:
        assert await is_silent(stream)
        stream.close()


@pytest.mark.spec("H-06")
async def test_a_new_hub_on_the_same_journal_goes_on_where_the_old_one_ended(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        for n in range(3):
            await hub.publish(tick(n))
        stream = hub.subscribe("test:tick", after=START)
        await take(stream, 2)
        cursor = stream.cursor
    async with (
        Hub(journal=journal, ports=ports) as hub,
        hub.subscribe("test:tick", after=cursor) as events,
        hub.subscribe("test:tick") as live,
    ):
        await hub.publish(tick(3))
        assert numbers(await take(events, 2)) == [2, 3]
        assert numbers(await take(live, 1)) == [3]
        assert await is_silent(events)


# ── cursors ──────────────────────────────────────────────────────────────────────────────────

BAD_CURSORS = [
    "", "nonsense", "other-store@3", "other-store|r/own/1", "{name}", "{name}@", "{name}@x",
    "{name}@-1", "{name}@999", "{name}|/hub/999999", "{name}|r/own", "{name}|r/own/one",
]  # fmt: skip


@pytest.mark.spec("H-06")
@pytest.mark.parametrize("cursor", BAD_CURSORS)
async def test_foreign_or_malformed_cursor_yields_a_gap_first(hub, cursor):
    for n in range(3):
        await hub.publish(tick(n))
    after = cursor.format(name=hub.journal.name)
    async with hub.subscribe("test:tick", after=after) as events:
        gap, *rest = await take(events, 4)
        assert (gap.type, gap.reason, gap.dropped) == ("hub:gap", "unknown cursor", 0)
        assert numbers(rest) == [0, 1, 2]
        await hub.publish(tick(3))
        assert numbers(await take(events, 1)) == [3]
    assert numbers(await hub.read(after=gap.cursor)) == [0, 1, 2, 3]


@pytest.mark.spec("H-06")
@pytest.mark.parametrize("cursor", BAD_CURSORS)
async def test_reading_after_a_cursor_that_cannot_be_placed_is_refused(hub, cursor):
    await hub.publish(tick(0))
    with pytest.raises(BadValue, match="cursor of another store, or of events no longer kept"):
        await hub.read(after=cursor.format(name=hub.journal.name))


@pytest.mark.spec("H-06")
@pytest.mark.parametrize("late", [False, True])
async def test_pruned_cursor_yields_a_gap_first(ports, late):
    inner = MemoryJournal(keep_hub_events=3)
    async with Hub(journal=LateJournal(inner) if late else inner, ports=ports) as hub:
        await hub.publish(tick(0))
        (event,) = await hub.read()
        for n in range(1, 10):
            await hub.publish(tick(n))
        async with hub.subscribe("test:tick", after=hub.cursor(event)) as events:
            gap, *rest = await take(events, 4)
            assert (gap.type, numbers(rest)) == ("hub:gap", [7, 8, 9])
            assert await is_silent(events)


@pytest.mark.spec("H-06")
async def test_cursor_is_text_of_the_subscription_and_no_field_of_an_event(hub):
    stream = hub.subscribe("test:tick")
    begin = stream.cursor
    for n in range(3):
        await hub.publish(tick(n))
    event = (await take(stream, 1))[0]
    assert isinstance(stream.cursor, str)
    assert "cursor" not in event.__struct_fields__
    assert numbers(await hub.read(after=begin)) == [0, 1, 2]
    assert numbers(await hub.read(after=stream.cursor)) == [1, 2]
    stream.close()


@pytest.mark.spec("H-06")
async def test_cursor_is_not_moved_by_ephemeral_events(hub):
    await hub.publish(tick(0))
    async with hub.subscribe("test:tick", after=START) as events:
        await take(events, 1)
        for n in range(1, 4):
            await hub.publish(tick(n, durable=n == 2))
        await take(events, 3)
        assert await hub.read(after=events.cursor) == []


# ── reading ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-06")
async def test_read_is_the_finite_form(hub):
    await hub.open("agent", run_id="r" * 36)
    for n in range(3):
        await hub.publish(tick(n))
        await hub.send_to_run("r" * 36, f"message {n}")
    whole = await hub.read()
    assert [event.type for event in whole][:3] == ["session:open", "test:tick", "session:message"]
    assert len(whole) == 7
    of_run = await hub.read("r" * 36)
    assert of_run == [event for event in whole if event.run_id == "r" * 36]
    messages = await hub.read("r" * 36, types="session:message")
    assert [event.content for event in messages] == ["message 0", "message 1", "message 2"]
    assert await hub.read(root_run_id="r" * 36) == of_run
    assert await hub.read(types=["test:*", "session:open"]) == [
        event for event in whole if event.type in ("test:tick", "session:open")
    ]
    for index, event in enumerate(whole):
        assert await hub.read(after=hub.cursor(event)) == whole[index + 1 :]
        assert await hub.read(after=hub.cursor(event), limit=2) == whole[index + 1 : index + 3]
    assert await hub.read("nobody") == []


@pytest.mark.spec("H-06")
async def test_read_sees_what_was_emitted_before_it(hub):
    for n in range(2500):
        hub.emit(tick(n))
    assert numbers(await hub.read()) == list(range(2500))


@pytest.mark.spec("H-06", "R-11")
async def test_custom_delta_does_not_make_a_run_s_text_void(hub):
    """Deltas without a place in a run's lane say nothing about those that have one."""
    stream = hub.subscribe("*", run_id="r")
    await hub.publish(AgentTextDelta(run_id="r", after_seq=4, text="Hel"))
    with hub.scoped(run_id="r"):
        await hub.publish(CustomEvent.of("my:delta"))
    await hub.publish(AgentTextDelta(run_id="r", after_seq=4, text="lo"))
    stream.close()
    assert [event.type for event in [e async for e in stream]] == [
        "agent:text:delta", "my:delta", "agent:text:delta",
    ]  # fmt: skip


@pytest.mark.spec("H-06")
@pytest.mark.parametrize("after", [None, START])
async def test_of_two_tasks_that_read_one_stream_one_is_told_and_the_other_gets_each_event_once(
    hub, after
):
    for n in range(3):
        await hub.publish(tick(n))
    got, refused = [], []

    async def read(stream):
        try:
            got.extend([event async for event in stream])
        except CallerError as error:
            refused.append(str(error))

    async with (
        hub.subscribe("test:tick", after=after) as stream,
        anyio.create_task_group() as group,
    ):
        group.start_soon(read, stream)
        group.start_soon(read, stream)
        await anyio.sleep(1)
        for n in range(3, 6):
            await hub.publish(tick(n))
        await anyio.sleep(1)
        stream.close()
    assert numbers(got) == list(range(3 if after is None else 0, 6))
    assert refused == ["another task reads this stream; subscribe once for each of them"]


@pytest.mark.spec("H-06")
async def test_a_stream_that_a_task_has_given_up_reading_is_another_ones(hub):
    async with hub.subscribe("test:tick", after=START) as stream:
        for _ in range(3):
            assert await is_silent(stream)
        async with anyio.create_task_group() as group:
            group.start_soon(take, stream, 1)
            await anyio.sleep(1)
            group.cancel_scope.cancel()
        await hub.publish(tick(1))
        assert numbers(await take(stream, 1)) == [1]
