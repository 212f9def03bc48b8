"""Who hears what, and when: listeners that raise, come, go and emit (H-01, H-04, H-17)."""

import logging

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub import CustomEvent, Hub
from hubbub.hub import pipeline as pipeline_module
from hubbub.hub.masking import Masker
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports

pytestmark = pytest.mark.anyio

durabilities = pytest.mark.parametrize("durable", [True, False], ids=["durable", "ephemeral"])


def tick(n, *, durable=True, **fields):
    event = CustomEvent.of("test:tick", durable=durable, n=n)
    return CustomEvent(name=event.name, data_json=event.data_json, durable=durable, **fields)


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


# ── listeners that raise (H-01) ──────────────────────────────────────────────────────────────


@pytest.mark.spec("H-01")
async def test_every_matching_listener_gets_the_event(hub):
    got = []
    for n in range(5):
        hub.subscribe("test:tick", lambda event, n=n: got.append(n))
    hub.subscribe("test:other", lambda event: got.append("other"))
    await hub.publish(tick(1))
    assert got == [0, 1, 2, 3, 4]


@pytest.mark.spec("H-01")
@durabilities
async def test_listener_that_raises_is_logged_reported_once_and_disturbs_nobody(
    hub, caplog, durable
):
    got, errors = [], []

    def broken(event):
        raise ValueError("no such thing")

    hub.subscribe("test:tick", got.append)
    hub.subscribe("test:tick", broken)
    hub.subscribe("test:tick", got.append)
    hub.subscribe("hub:error", errors.append)
    with caplog.at_level(logging.ERROR):
        await hub.publish(tick(1, durable=durable, run_id="r", agent="a"))
    assert [event.data["n"] for event in got] == [1, 1]
    (error,) = errors
    assert (error.error, error.error_type, error.during) == (
        "no such thing", "ValueError", "test:tick",
    )  # fmt: skip
    assert "broken" in error.listener
    assert (error.run_id, error.agent) == ("r", "a")
    (record,) = caplog.records
    assert "listener.failed" in record.getMessage()
    assert record.exc_info[1].args == ("no such thing",)


@pytest.mark.spec("H-01")
async def test_async_listener_that_raises_is_reported_and_goes_on(hub, eventually, caplog):
    got, errors = [], []

    async def broken(event):
        got.append(event.data["n"])
        raise RuntimeError(f"at {event.data['n']}")

    hub.subscribe("test:tick", broken)
    hub.subscribe("hub:error", errors.append)
    with caplog.at_level(logging.ERROR):
        for n in range(3):
            hub.emit(tick(n))
        await eventually(lambda: len(errors) == 3)
    assert got == [0, 1, 2]
    assert [error.error for error in errors] == ["at 0", "at 1", "at 2"]
    assert sum("listener.failed" in record.getMessage() for record in caplog.records) == 3


@pytest.mark.spec("H-01")
async def test_failing_listener_of_hub_error_does_not_recurse(hub, caplog, eventually):
    calls = []

    def broken(event):
        calls.append(event.type)
        raise ValueError(event.type)

    async def broken_too(event):
        calls.append("async")
        raise ValueError(event.type)

    hub.subscribe("*", broken)
    hub.subscribe("hub:error", broken_too)
    with caplog.at_level(logging.ERROR):
        await hub.publish(tick(1))
        await eventually(lambda: "async" in calls)
    assert calls == ["test:tick", "hub:error", "async"]
    assert len(caplog.records) == 3, "each failure is logged all the same"


@pytest.mark.spec("H-01")
async def test_exception_that_cannot_be_shown_does_not_reach_the_emitter(hub, caplog):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    class Listener:
        def __call__(self, event):
            raise Mute

        __repr__ = Mute.__str__

    got, errors = [], []
    hub.subscribe("test:tick", Listener())
    hub.subscribe("test:tick", got.append)
    hub.subscribe("hub:error", errors.append)
    await hub.publish(tick(1))
    assert len(got) == 1
    assert [error.error_type for error in errors] == ["Mute"]


@pytest.mark.spec("H-01")
async def test_listener_that_is_a_bound_method_or_partial_is_called(hub, eventually):
    from functools import partial

    class Channel:
        def __init__(self):
            self.got = []

        def heard(self, event):
            self.got.append(event)

        async def __call__(self, event):
            self.got.append(event)

    async def heard_late(got, event):
        got.append(event)

    plain, called, got = Channel(), Channel(), []
    hub.subscribe("test:tick", plain.heard)
    hub.subscribe("test:tick", called)
    hub.subscribe("test:tick", partial(heard_late, got))
    await hub.publish(tick(1))
    await eventually(lambda: len(plain.got) == len(called.got) == len(got) == 1)


# ── listeners that come and go during a dispatch (H-04) ──────────────────────────────────────


AUDIENCES = [
    ({}, {}),
    ({}, {"run_id": "r"}),
    ({}, {"root_run_id": "t"}),
    ({"root_run_id": "t"}, {"run_id": "r"}),
    ({"run_id": "r"}, {"run_id": "r"}),
    ({"root_run_id": "t"}, {"root_run_id": "t"}),
]


@pytest.mark.spec("H-04")
@durabilities
@pytest.mark.parametrize(("where", "added_where"), AUDIENCES)
async def test_listener_added_during_a_dispatch_does_not_get_that_event(
    hub, durable, where, added_where
):
    late, streams = [], []

    def adder(event):
        if not streams:
            hub.subscribe("test:tick", late.append, **added_where)
            streams.append(hub.subscribe("test:tick", **added_where))

    hub.subscribe("test:tick", lambda event: None, **added_where)
    hub.subscribe("test:tick", adder, **where)
    for n in range(2):
        await hub.publish(tick(n, durable=durable, run_id="r", root_run_id="t"))
    streams[0].close()
    assert [event.data["n"] for event in late] == [1]
    assert [event.data["n"] async for event in streams[0]] == [1]


@pytest.mark.spec("H-04")
@durabilities
@pytest.mark.parametrize(("where", "removed_where"), AUDIENCES)
async def test_listener_removed_before_its_turn_is_not_called(hub, durable, where, removed_where):
    got = []
    hub.subscribe("test:tick", lambda event: victims.close(), **where)
    victim = hub.subscribe("test:tick", lambda event: got.append("victim"), **removed_where)
    stream = hub.subscribe("test:tick", **removed_where)
    hub.subscribe("test:tick", lambda event: got.append("next"), **removed_where)

    class victims:  # noqa: N801
        @staticmethod
        def close():
            victim.close()
            stream.close()

    await hub.publish(tick(1, durable=durable, run_id="r", root_run_id="t"))
    assert got == ["next"]
    assert [event async for event in stream] == []


@pytest.mark.spec("H-04")
async def test_listener_may_remove_itself_and_those_before_it(hub):
    got = []
    first = hub.subscribe("test:tick", lambda event: got.append("first"))

    def once(event):
        got.append("once")
        first.close()
        own.close()
        own.close()

    own = hub.subscribe("test:tick", once)
    hub.subscribe("test:tick", lambda event: got.append("last"))
    for n in range(2):
        await hub.publish(tick(n))
    assert got == ["first", "once", "last", "last"]


@st.composite
def comings_and_goings(draw):
    """Where each listener listens, who stays, and what each does at its first event."""
    number = draw(st.integers(2, 6))
    places = st.sampled_from([{}, {"run_id": "r"}, {"root_run_id": "t"}])
    where = draw(st.lists(places, min_size=number, max_size=number))
    bystanders = draw(st.sets(st.integers(0, number - 1), min_size=1))
    act = st.tuples(
        st.integers(0, number - 1), st.sampled_from(["add", "remove"]), st.integers(0, 9)
    )
    return number, where, bystanders, draw(st.lists(act, max_size=8))


@pytest.mark.spec("H-04")
@settings(max_examples=examples(60), deadline=None)
@given(plan=comings_and_goings())
@pytest.mark.parametrize("kind", ["at once", "late"])
async def test_coming_and_going_makes_nobody_else_miss_or_repeat(plan, kind):
    """Any number of listeners that add and remove others: bystanders get each event once."""
    number, where, bystanders, acts = plan
    inner = MemoryJournal()
    journal = inner if kind == "at once" else LateJournal(inner)
    async with Hub(journal=journal, ports=virtual_ports()) as hub:
        got = {n: [] for n in range(number)}
        others = []

        def listener(n):
            def hear(event):
                got[n].append(event.data["n"])
                for who, act, which in acts:
                    if who != n or event.data["n"] != 0:
                        continue
                    if act == "add":
                        others.append(
                            hub.subscribe("test:tick", lambda event: None, **where[which % number])
                        )
                    elif others and which % 2:
                        others[which % len(others)].close()
                    elif (victim := which % number) not in bystanders:
                        subscriptions[victim].close()

            return hear

        subscriptions = [hub.subscribe("test:tick", listener(n), **where[n]) for n in range(number)]
        for n in range(3):
            await hub.publish(tick(n, run_id="r", root_run_id="t"))
        for n in bystanders:
            assert got[n] == [0, 1, 2]
        for n in range(number):
            assert got[n] == list(range(len(got[n])))


# ── events that listeners emit (H-04, H-17) ──────────────────────────────────────────────────


@pytest.mark.spec("H-04", "H-17")
@pytest.mark.parametrize("outer", [True, False], ids=["outer durable", "outer ephemeral"])
@pytest.mark.parametrize("inner", [True, False], ids=["inner durable", "inner ephemeral"])
async def test_nested_emit_is_seen_after_the_outer_event_by_everybody(hub, outer, inner):
    before, after, by_stream = [], [], hub.subscribe("test:*")
    hub.subscribe("test:*", lambda event: before.append(event.data["n"]))

    def echo(event):
        n = event.data["n"]
        if n < 10:
            hub.emit(tick(n * 10 + 10, durable=inner))
            hub.emit(tick(n * 10 + 11, durable=inner))

    hub.subscribe("test:tick", echo)
    hub.subscribe("test:*", lambda event: after.append(event.data["n"]))
    hub.subscribe("test:*", lambda event: after.append(event.data["n"]), run_id="")
    for n in range(3):
        await hub.publish(tick(n, durable=outer))
    await hub.publish(tick(99))
    order = [0, 10, 11, 1, 20, 21, 2, 30, 31, 99]
    assert before == order
    assert after == [n for n in order for _ in range(2)]
    by_stream.close()
    assert [event.data["n"] async for event in by_stream] == order


@pytest.mark.spec("H-04")
@settings(max_examples=examples(80), deadline=None)
@given(
    replies=st.dictionaries(
        st.integers(0, 7),
        st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=3),
        max_size=5,
    ),
    emitted=st.lists(st.tuples(st.integers(0, 7), st.booleans()), min_size=1, max_size=5),
)
@pytest.mark.parametrize("kind", ["at once", "late"])
async def test_all_subscribers_see_one_order_and_the_journal_has_the_same(replies, emitted, kind):
    """Listeners answer events with events, to a depth of three; everybody sees one order."""
    inner = MemoryJournal()
    journal = inner if kind == "at once" else LateJournal(inner)
    async with Hub(journal=journal, ports=virtual_ports()) as hub:
        orders = [[] for _ in range(3)]
        stream = hub.subscribe("test:tick", buffer=10_000)

        def answer(event):
            depth, word = event.turn, event.data["n"]
            if depth < 3:
                for reply, durable in replies.get(word, ()):
                    hub.emit(tick(reply, durable=durable, turn=depth + 1))

        hub.subscribe("test:tick", orders[0].append)
        hub.subscribe("test:tick", answer)
        hub.subscribe("test:tick", orders[1].append)
        hub.subscribe("test:tick", answer)
        hub.subscribe("test:tick", orders[2].append, root_run_id="")
        for word, durable in emitted:
            hub.emit(tick(word, durable=durable))
        while hub.statistics().uncommitted:
            await journal.flush()
        stream.close()
        assert orders[0] == orders[1] == orders[2] == [event async for event in stream]
        assert await hub.read(types="test:tick") == [e for e in orders[0] if e.is_durable]
        assert len({event.id for event in orders[0]}) == len(orders[0])


@pytest.mark.spec("H-04")
async def test_commit_of_several_events_is_dispatched_whole_before_what_listeners_emit(hub):
    """Otherwise live order and journal order would differ, and a catch-up would miss or repeat."""
    got = []
    receipt = await hub.open("agent", run_id="r" * 36)
    hub.subscribe("*", lambda event: got.append(event))

    def answer(event):
        if event.type == "agent:status" and event.lane == "own":
            hub.emit(tick(event.status))
            hub.send_to_run(receipt.run_id, event.status)

    hub.subscribe("agent:status", answer)
    lane = own_lane(hub, receipt.run_id)
    await write(lane, *(status(text) for text in ("one", "two", "three")))
    while hub.statistics().uncommitted:
        await hub.journal.flush()
    assert [event.type for event in got][:3] == ["agent:status"] * 3
    assert len(got) == 9
    assert await hub.read(after=receipt.cursor) == got


@pytest.mark.spec("H-04", "H-17")
async def test_ephemeral_event_never_overtakes_a_durable_one_of_its_run(hub):
    got = []
    hub.subscribe("test:tick", lambda event: got.append(event.data["n"]), run_id="r")
    for n in range(6):
        hub.emit(tick(n, durable=n % 2 == 0, run_id="r"))
    await hub.publish(tick(6, durable=False, run_id="r"))
    assert got == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.spec("H-17")
async def test_event_of_a_sync_listener_takes_its_place_at_the_call(hub):
    got = []
    hub.subscribe("*", lambda event: got.append(event.type))
    receipts = []

    def listener(event):
        hub.emit(CustomEvent.of("test:one"))
        receipts.append(hub.send_to_run("r" * 36, "two"))
        hub.emit(CustomEvent.of("test:three"))

    await hub.open("agent", run_id="r" * 36)
    hub.subscribe("test:tick", listener)
    await hub.publish(tick(0))
    await receipts[0]
    await hub.publish(CustomEvent.of("test:last"))
    order = ["session:open", "test:tick", "test:one", "session:message", "test:three", "test:last"]
    assert got == order
    assert [event.type for event in await hub.read()] == order


@pytest.mark.spec("H-01", "H-04")
async def test_listener_that_feeds_itself_is_stopped(hub, monkeypatch, caplog):
    monkeypatch.setattr(pipeline_module, "MAX_NESTED", 100)
    errors, got = [], []

    def feed(event):
        hub.emit(tick(event.data["n"] + 1, durable=False))
        hub.emit(tick(event.data["n"] + 1, durable=False))

    hub.subscribe("test:tick", feed)
    hub.subscribe("test:tick", got.append)
    hub.subscribe("hub:error", errors.append)
    hub.emit(tick(0, durable=False))
    assert 100 <= len(got) <= 102
    assert {error.error_type for error in errors} == {"LimitExceeded"}
    del got[:]
    await hub.publish(tick(0, durable=False))
    assert got, "the hub goes on"


@pytest.mark.spec("H-04")
async def test_what_nobody_has_got_when_a_dispatch_is_broken_off_comes_first_in_the_next(
    hub, monkeypatch
):
    got = []

    def exits(event):
        got.append(event.data["n"])
        if event.data["n"] == 0:
            hub.emit(tick(2, durable=False))
            raise KeyboardInterrupt

    hub.subscribe("test:tick", exits)
    # As before there is a task that could end the program.
    monkeypatch.setattr(type(hub.tasks), "end_program", lambda self, error: False)
    with pytest.raises(KeyboardInterrupt):
        hub.dispatcher.dispatch((tick(0, durable=False), tick(1, durable=False)))
    assert got == [0]
    hub.dispatcher.dispatch((tick(3, durable=False),))
    assert got == [0, 1, 2, 3]


@pytest.mark.spec("H-01")
async def test_commit_is_finished_whatever_its_listeners_do(hub, monkeypatch, caplog):
    """A listener over its limit must not keep a receipt or the run's owner from hearing."""
    monkeypatch.setattr(pipeline_module, "MAX_NESTED", 3)
    woken = []
    told = {
        "wake": staticmethod(woken.append), "refusal_of": staticmethod(lambda run_id: ""),
        "masker": staticmethod(lambda *run_ids: Masker(())),
    }  # fmt: skip
    hub.set_owner(type("Owner", (), told)())
    await hub.open("agent", run_id="r" * 36)
    receipts = []

    def flood(event):
        receipts.extend(hub.send_to_run("r" * 36, f"{n}") for n in range(10))

    subscription = hub.subscribe("test:tick", flood)
    await hub.publish(tick(1))
    subscription.close()
    for receipt in receipts:
        assert (await receipt).accepted
    sent = await hub.send_to_run("r" * 36, "last")
    assert sent.accepted
    said = [e.content for e in await hub.read(types="session:message")]
    assert said == [item.content for item in woken[1:]]
    assert said[-1] == "last"
    hub.set_owner(None)


@pytest.mark.spec("H-01", "H-15")
async def test_no_listener_is_called_after_close_even_inside_a_dispatch(journal, ports):
    got = []
    hub = Hub(journal=journal, ports=ports)
    async with hub:
        hub.subscribe("test:tick", lambda event: hub.close())
        hub.subscribe("test:tick", got.append)
        hub.subscribe("test:tick", got.append, run_id="")
        hub.emit(tick(1))
        hub.emit(tick(2)) if not hub.is_closed else None
        await journal.flush()
    assert got == []


# ── the pen of a run's owner ─────────────────────────────────────────────────────────────────


def own_lane(hub, run_id):
    from hubbub.hub.own_lane import OwnLane

    return OwnLane(
        hub.pipeline, run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="agent"
    )


def status(text):
    from hubbub.hub.events import AgentStatus

    return AgentStatus(status=text)


async def write(lane, *events):
    done = anyio.Event()
    lane.append(events, after=lambda commit: done.set())
    await done.wait()
