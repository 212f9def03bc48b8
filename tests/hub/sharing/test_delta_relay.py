"""Two hubs on one store: who wants what, what is sent then, and that all of it is bounded."""

import json

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.profiles import examples
from support.shared_stores import SharedPlace

from hubbub import CustomEvent, Event, Hub
from hubbub.hub.bus.bus import MAX_FRAME
from hubbub.hub.delivery import answers
from hubbub.hub.events import AgentStatus, AgentTextDelta, AgentThinkingDelta
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.relay import delta_relay, interest, outgoing_deltas
from hubbub.hub.relay.delta_relay import BEAT, HOLDS, PERIOD
from hubbub.hub.relay.frames import (
    DeltaFrame,
    DeltaWant,
    delta_frames,
    read_frame,
    want_frame,
)
from hubbub.hub.relay.outgoing_deltas import OutgoingDeltas
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports

pytestmark = pytest.mark.anyio


class Maker:
    """A hub whose runs say something, piece by piece; ``sent``: what it has sent of that."""

    def __init__(self, hub):
        self.hub = hub
        self.lanes = {}
        self.sent = []
        publish = hub._relay._bus.publish

        def spy(topic, frame):
            if topic == "deltas":
                self.sent.append(read_frame(topic, frame))
            publish(topic, frame)

        hub._relay._bus.publish = spy

    async def run(self):
        receipt = await self.hub.open("speaker", "go")
        run_id = receipt.run_id
        self.lanes[run_id] = OwnLane(
            self.hub.pipeline, run_id=run_id, root_run_id=run_id, parent_run_id=None,
            agent="speaker",
        )  # fmt: skip
        await self.record(run_id)
        await settled()
        return run_id

    async def record(self, run_id):
        self.lanes[run_id].append([AgentStatus()])
        await self.hub.journal.flush()

    def makes(self, run_id, kind=AgentTextDelta):
        return self.hub.has(kind.type, run_id=run_id, root_run_id=run_id)

    def piece(self, run_id, text, offset, kind=AgentTextDelta, **fields):
        event = kind(text=text, offset=offset, after_seq=self.lanes[run_id].seq, **fields)
        self.emit(run_id, event)

    def emit(self, run_id, event):
        now = self.hub.ports.clock.now()
        event = structs.replace(event, run_id=run_id, root_run_id=run_id, at=now, agent="speaker")
        self.hub.pipeline.emit_ephemeral(event)


class Pair:
    """Two processes on one store."""

    def __init__(self, place):
        self.place = place

    async def __aenter__(self):
        hub = Hub(journal=self.place.journal(), ports=virtual_ports(1))
        self.there = Hub(journal=self.place.journal(is_worker=False), ports=virtual_ports(2))
        hub.share.offer(["speaker"], None)
        await hub.__aenter__()
        await self.there.__aenter__()
        self.maker = Maker(hub)
        self.heard = []
        return self

    async def __aexit__(self, *exc):
        await self.there.__aexit__(*exc)
        await self.maker.hub.__aexit__(*exc)

    def listen(self, pattern="*", **how):
        return self.there.subscribe(pattern, self.heard.append, **how)

    @property
    def texts(self):
        return [(x.offset, x.text) for x in self.heard if not x.lane and hasattr(x, "offset")]


@pytest.fixture
async def pair():
    async with Pair(SharedPlace()) as pair:
        yield pair


async def settled():
    await anyio.sleep(4 * PERIOD)


# ── who wants what ───────────────────────────────────────────────────────────────────────────


async def test_nothing_is_made_or_sent_while_nobody_listens(pair):
    run = await pair.maker.run()
    pair.there.subscribe(["agent:text", "session:*", "hub:*"], pair.heard.append)
    await anyio.sleep(10)
    assert not pair.maker.makes(run)
    pair.maker.piece(run, "lost", 0)
    await settled()
    assert not pair.maker.sent


@pytest.mark.parametrize(
    ("pattern", "wants_text", "wants_thinking"),
    [("*", True, True), ("agent:*", True, True), ("agent:text:*", True, False),
     (AgentThinkingDelta, False, True), (["agent:text", "agent:thinking:delta"], False, True)],
)  # fmt: skip
async def test_what_is_listened_to_anywhere_is_made(pair, pattern, wants_text, wants_thinking):
    run = await pair.maker.run()
    pair.listen(pattern)
    await settled()
    assert pair.maker.makes(run) is wants_text
    assert pair.maker.makes(run, AgentThinkingDelta) is wants_thinking


async def test_listener_elsewhere_makes_nothing_else_worth_making(pair):
    pair.listen("*")
    await settled()
    assert not pair.maker.hub.has("agent:text")
    assert not pair.maker.hub.has("shop:order")
    assert pair.maker.hub.has("shop:progress:delta")


@pytest.mark.parametrize("scope", ["run_id", "root_run_id"])
async def test_only_the_runs_that_are_named_are_wanted(pair, scope):
    wanted, other = await pair.maker.run(), await pair.maker.run()
    pair.listen(**{scope: wanted})
    await settled()
    assert pair.maker.makes(wanted)
    assert not pair.maker.makes(other)
    pair.maker.piece(wanted, "heard", 0)
    pair.maker.piece(other, "not heard", 0)
    await settled()
    assert pair.texts == [(0, "heard")]


async def test_stream_that_reads_the_past_first_wants_pieces_once_it_is_live(pair):
    run = await pair.maker.run()
    async with pair.there.subscribe("agent:*", run_id=run, after="start") as stream:
        assert (await anext(stream)).type == "agent:status"
        with anyio.move_on_after(1):
            await anext(stream)
        assert pair.maker.makes(run)
        pair.maker.piece(run, "piece", 0)
        assert (await anext(stream)).text == "piece"


async def test_nothing_is_made_any_more_once_nobody_listens(pair):
    run = await pair.maker.run()
    listening = pair.listen()
    await settled()
    listening.close()
    await anyio.sleep(2 * BEAT)
    assert not pair.maker.makes(run)
    carried = pair.place.memory.bus.carried
    await anyio.sleep(100)
    assert pair.place.memory.bus.carried == carried


async def test_listener_that_comes_back_in_a_moment_has_missed_nothing_for_it(pair):
    run = await pair.maker.run()
    listening = pair.listen()
    await settled()
    listening.close()
    await settled()
    assert pair.maker.makes(run)
    pair.listen()
    pair.maker.piece(run, "at once", 0)
    await settled()
    assert pair.texts == [(0, "at once")]


async def test_word_of_a_process_that_is_gone_holds_for_a_while_only(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    pair.place.links[1].cut()
    await anyio.sleep(HOLDS + BEAT)
    pair.maker.piece(run, "to nobody", 0)
    await settled()
    assert not pair.maker.makes(run)
    assert not pair.maker.sent
    pair.place.links[1].mend()
    await anyio.sleep(2 * BEAT)
    assert pair.maker.makes(run)


async def test_maker_that_begins_later_learns_at_once_what_is_wanted(pair):
    pair.listen()
    await settled()
    async with Hub(journal=pair.place.journal(), ports=virtual_ports(3)) as hub:
        await settled()
        assert hub.has("agent:text:delta")


async def test_who_listens_before_the_hub_is_entered_is_listened_for(pair):
    run = await pair.maker.run()
    hub = Hub(journal=pair.place.journal(), ports=virtual_ports(3))
    heard = []
    hub.subscribe("agent:text:delta", heard.append)
    async with hub:
        await settled()
        pair.maker.piece(run, "piece", 0)
        await settled()
    assert [x.text for x in heard] == ["piece"]


async def test_so_many_runs_that_no_frame_holds_them_are_everything(pair):
    for number in range(150):
        pair.listen("agent:text:*", run_id=f"run {number} {'x' * 80}")
    await settled()
    assert pair.maker.makes("any run")
    assert not pair.maker.makes("any run", AgentThinkingDelta)


async def test_number_of_runs_that_are_told_apart_is_bounded(pair):
    for number in range(interest.MAX_SCOPES + 1):
        pair.listen("agent:text:*", run_id=f"r{number}")
    await settled()
    assert pair.maker.makes("any run")
    assert len(pair.maker.hub.dispatcher._runs) == 0


async def test_number_of_processes_that_are_known_is_bounded(pair, monkeypatch):
    monkeypatch.setattr(delta_relay, "MAX_OTHERS", 3)
    relay = pair.maker.hub._relay
    for process in range(1, 10):
        relay._hear("wants", want_frame(process, 1, [DeltaWant(("*",), f"run {process}")]))
    assert len(relay._others) <= 3
    assert len(pair.maker.hub.dispatcher._runs) <= 3


async def test_pattern_that_is_none_here_costs_nobody_else_anything(pair):
    relay = pair.maker.hub._relay
    relay._hear("wants", want_frame(1, 1, [DeltaWant(("", "**", "agent:text:delta"))]))
    relay._hear("wants", want_frame(2, 1, [DeltaWant(("agent:thinking:delta", "a b"))]))
    assert pair.maker.makes("a run")
    assert pair.maker.makes("a run", AgentThinkingDelta)
    for process in range(3, 10):
        many = tuple(f"shop:{process}:{number}:delta" for number in range(200))
        relay._hear("wants", want_frame(process, 1, [DeltaWant(many)]))
    assert pair.maker.hub.has("shop:9:199:delta")


@given(st.lists(st.text(), max_size=300))
def test_frame_of_wants_is_never_too_large(run_ids):
    frame = want_frame(1, 1, [DeltaWant(("agent:*",), x) for x in run_ids], asks=True)
    assert len(frame) <= MAX_FRAME
    assert "agent:*" in {p for x in read_frame("wants", frame).wants for p in x.patterns} | (
        set() if run_ids else {"agent:*"}
    )


# ── what is sent ─────────────────────────────────────────────────────────────────────────────


async def test_pieces_that_follow_each_other_are_sent_as_one(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    pair.maker.piece(run, "a", 0)
    await anyio.sleep(PERIOD / 10)
    for place, text in enumerate("bcd", 1):
        pair.maker.piece(run, text, place)
    await settled()
    assert pair.texts == [(0, "a"), (1, "bcd")]
    assert len(pair.maker.sent) == 2


async def test_a_frame_is_sent_each_period_at_most_however_many_speak(pair):
    runs = [await pair.maker.run() for _ in range(10)]
    pair.listen()
    await settled()
    for place in range(100):
        for run in runs:
            pair.maker.piece(run, "x", place)
        await anyio.sleep(0.01)
    await settled()
    assert len(pair.maker.sent) <= 1 / PERIOD + 2
    for run in runs:
        assert "".join(x.text for x in pair.heard if not x.lane and x.run_id == run) == "x" * 100


async def test_what_is_no_continuation_stays_in_its_place(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    pair.maker.piece(run, "0", 0)
    await anyio.sleep(PERIOD / 10)
    pair.maker.piece(run, "thought", 0, AgentThinkingDelta)
    pair.maker.piece(run, "1", 1)
    pair.maker.piece(run, "more", 7, AgentThinkingDelta)
    pair.maker.emit(run, CustomEvent.of("shop:progress:delta", done=3))
    pair.maker.piece(run, "2", 2, label="aside")
    await settled()
    kinds = [(x.type, getattr(x, "text", None)) for x in pair.heard if not x.lane]
    assert kinds == [
        ("agent:text:delta", "0"), ("agent:thinking:delta", "thought"), ("agent:text:delta", "1"),
        ("agent:thinking:delta", "more"), ("shop:progress:delta", None), ("agent:text:delta", "2"),
    ]  # fmt: skip
    assert pair.heard[-2].data == {"done": 3}
    assert pair.heard[-1].label == "aside"


async def test_event_of_an_agent_s_own_class_arrives_as_that_class(pair):
    class Progress(Event, tag="shop:share:delta"):
        done: int = 0

    run = await pair.maker.run()
    pair.listen(Progress)
    await settled()
    pair.maker.emit(run, Progress(done=7))
    await settled()
    assert [(type(x), x.done) for x in pair.heard] == [(Progress, 7)]


async def test_what_is_overtaken_before_it_is_sent_is_not_sent(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    pair.maker.piece(run, "a", 0)
    await anyio.sleep(PERIOD / 10)
    pair.maker.piece(run, "b", 1)
    await pair.maker.record(run)
    await settled()
    assert pair.texts == [(0, "a")]


async def test_only_the_owner_of_a_tree_sends_its_pieces(pair):
    pair.listen()
    await settled()
    pair.maker.lanes["nobody's"] = OwnLane(
        pair.maker.hub.pipeline, run_id="nobody's", root_run_id="nobody's", parent_run_id=None,
        agent="a",
    )  # fmt: skip
    pair.maker.piece("nobody's", "a", 0)
    await settled()
    assert not pair.maker.sent


async def test_too_much_at_once_is_dropped_and_the_offset_shows_it(pair, monkeypatch):
    monkeypatch.setattr(outgoing_deltas, "ROOM", 1000)
    run = await pair.maker.run()
    pair.listen()
    await settled()
    pair.maker.piece(run, "a", 0)
    await anyio.sleep(PERIOD / 10)
    for place in range(1, 2001):
        pair.maker.piece(run, "x", place)
    await settled()
    pair.maker.piece(run, "end", 2001)
    await settled()
    (_, first), (second_at, second), (end_at, end) = pair.texts
    assert (first, end_at, end) == ("a", 2001, "end")
    assert second_at == 1
    assert len(second) < 1000
    assert pair.maker.hub.statistics().dropped == 2000 - len(second)


@given(
    st.lists(st.tuples(st.text(max_size=40), st.integers(0, 2)), max_size=30),
    st.integers(1, 3000),
)  # fmt: skip
def test_frames_hold_every_text_in_order_and_are_never_too_large(texts, times):
    events, ends = [], [0, 0, 0]
    for text, run in texts:
        long = text * times
        events.append(AgentTextDelta(
            run_id=f"run {run}", root_run_id=f"run {run}", text=long, offset=ends[run], at=5,
            after_seq=3, agent="ägent",
        ))  # fmt: skip
        ends[run] += len(long)
    frames = delta_frames(events, 7, 100, 12, 1_000_000)
    assert all(len(frame) <= MAX_FRAME for frame in frames)
    read = [read_frame("deltas", frame) for frame in frames]
    assert [x.number for x in read] == list(range(100, 100 + len(frames)))
    reached = ["", "", ""]
    for piece in (event for frame in read for event in frame.events()):
        run = int(piece.run_id[-1])
        assert (piece.offset, piece.at, piece.root_run_id) == (len(reached[run]), 5, piece.run_id)
        reached[run] += piece.text
    assert reached == ["".join(t * times for t, run in texts if run == each) for each in range(3)]


@given(st.binary(max_size=200))
def test_frame_that_cannot_be_read_is_none(frame):
    for topic in ("deltas", "wants"):
        found = read_frame(topic, frame)
        assert found is None or not found.process


def test_event_that_no_frame_holds_is_left_out():
    large = CustomEvent.of("shop:progress:delta", data="x" * MAX_FRAME)
    assert delta_frames([large], 1, 1, 1, 1) == []
    small = AgentTextDelta(run_id="r" * 255, root_run_id="o" * 255, text="y" * MAX_FRAME)
    assert len(delta_frames([large, small, large], 1, 1, 1, 1)) == 2


# ── what is heard ────────────────────────────────────────────────────────────────────────────


def _frame(maker, number, position, *events):
    return delta_frames(events, 99, number, position, 10)[0]


async def test_piece_waits_for_the_record_that_it_follows(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    relay, position = pair.there._relay, pair.there.dispatcher.dispatched
    piece = AgentTextDelta(run_id=run, root_run_id=run, after_seq=2, text="a")
    relay._hear("deltas", _frame(pair.maker, 1, position + 1, piece))
    await settled()
    assert not pair.texts
    await pair.maker.record(run)
    await settled()
    assert [x.type for x in pair.heard] == ["agent:status", "agent:text:delta"]


async def test_pieces_that_wait_are_bounded_and_the_last_ones_are_kept(pair, monkeypatch):
    monkeypatch.setattr(delta_relay, "MAX_EARLY", 5)
    run = await pair.maker.run()
    pair.listen()
    await settled()
    relay, position = pair.there._relay, pair.there.dispatcher.dispatched
    for number in range(1, 20):
        piece = AgentTextDelta(run_id=run, root_run_id=run, after_seq=2, text="a", offset=number)
        relay._hear("deltas", _frame(pair.maker, number, position + 1, piece))
    assert len(relay._early) == 5
    await pair.maker.record(run)
    await settled()
    assert [offset for offset, _ in pair.texts] == [15, 16, 17, 18, 19]


async def test_piece_that_was_overtaken_too_long_ago_to_know_is_dropped(pair, monkeypatch):
    monkeypatch.setattr(delta_relay, "KEPT", 1)
    pair.listen()
    await settled()
    early = pair.there.dispatcher.dispatched
    one, _, _ = [await pair.maker.run() for _ in range(3)]
    await settled()
    piece = AgentTextDelta(run_id=one, root_run_id=one, after_seq=1, text="a")
    pair.there._relay._hear("deltas", _frame(pair.maker, 1, early, piece))
    assert not pair.texts


async def test_durable_event_does_not_come_by_the_bus(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    forged = AgentStatus(run_id=run, root_run_id=run, lane="own", seq=9)
    ended = CustomEvent(name="shop:x:delta", run_id=run, root_run_id=run, lane="own", seq=9)
    other = CustomEvent.of("shop:order")
    position = pair.there.dispatcher.dispatched
    for number, event in enumerate((forged, ended, other), 1):
        pair.there._relay._hear("deltas", _frame(pair.maker, number, position, event))
    assert not pair.heard


ODD_TEXTS = st.sampled_from(
    ["", "*", "agent:*", "**", "a b", "\0", "\ud800", "x" * 300, ":delta", "é"]
)
ODD_NUMBERS = st.sampled_from([-(2**63), -1, 0, 1, 7, 2**62, 2**64])
ODD_VALUES = st.recursive(
    st.none() | st.booleans() | ODD_NUMBERS | ODD_TEXTS | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([*"ropgksabqfdlntcxe", "type", "patterns", "run_id", "root_run_id"]), inner,
        max_size=6,
    ),
    max_leaves=20,
)  # fmt: skip
ODD_FRAMES = st.fixed_dictionaries(
    {"process": ODD_NUMBERS, "number": ODD_NUMBERS},
    optional={
        "position": ODD_NUMBERS, "at": ODD_NUMBERS, "pieces": st.lists(ODD_VALUES, max_size=3),
        "wants": st.lists(ODD_VALUES, max_size=3), "asks": ODD_VALUES,
    },
)  # fmt: skip


PIECES = st.fixed_dictionaries({}, optional={
    **dict.fromkeys("kbsaqfnt", ODD_NUMBERS), **dict.fromkeys("ropgdlcx", ODD_TEXTS),
    "e": st.fixed_dictionaries({"type": ODD_TEXTS | st.just("a:delta")}, optional={
        "run_id": ODD_TEXTS, "lane": ODD_TEXTS, "at": ODD_NUMBERS, "data": ODD_VALUES,
    }),
})  # fmt: skip
WANTS = st.fixed_dictionaries(
    {"patterns": st.lists(ODD_TEXTS, max_size=3)}, optional={"run_id": ODD_TEXTS},
)  # fmt: skip
NEARLY_FRAMES = st.fixed_dictionaries({
    "process": st.integers(5, 7), "number": st.integers(1, 9), "at": st.just(1000),
    "position": st.integers(0, 30), "pieces": st.lists(PIECES, max_size=3),
    "wants": st.lists(WANTS, max_size=3), "asks": st.booleans(),
})  # fmt: skip


SAID = st.tuples(st.sampled_from(["deltas", "wants"]), ODD_FRAMES | NEARLY_FRAMES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(
    st.lists(
        st.tuples(st.sampled_from(["deltas", "wants"]), ODD_FRAMES | NEARLY_FRAMES), max_size=8
    )
)
async def test_nothing_that_is_said_on_the_bus_fails_a_hub(frames):
    async with Pair(SharedPlace()) as pair:
        run = await pair.maker.run()
        pair.listen()
        await settled()
        for hub in (pair.there, pair.maker.hub):
            for topic, frame in frames:
                hub._relay._hear(topic, json.dumps(frame).encode("utf-8", "replace"))
        await settled()
        pair.heard.clear()
        pair.maker.piece(run, "still at work", 0)
        await settled()
        assert (0, "still at work") in pair.texts
        assert not [x for x in pair.heard if x.type == "hub:error"]


async def test_listener_that_stalls_has_a_gap_and_nobody_else_does(pair):
    run = await pair.maker.run()
    pair.listen()
    slow = pair.there.subscribe("agent:text:delta", buffer=3)
    await settled()
    for place in range(20):
        pair.maker.piece(run, "x", place)
        await anyio.sleep(PERIOD)
    await settled()
    assert len(pair.texts) >= 19
    types = [(await anext(slow)).type for _ in range(4)]
    assert types == ["agent:text:delta"] * 3 + ["hub:gap"]
    slow.close()


async def test_listener_that_emits_a_piece_for_what_it_hears_does_not_echo(pair):
    run = await pair.maker.run()
    echoed = []

    def echo(event):
        if event.type == "agent:text:delta":
            pair.there.emit(CustomEvent.of("shop:echo:delta"))

    pair.there.subscribe("*", echo)
    pair.maker.hub.subscribe("*", echoed.append)
    await settled()
    pair.maker.piece(run, "a", 0)
    await settled()
    assert [x.type for x in echoed if not x.lane] == ["agent:text:delta"]


# ── answers under way ────────────────────────────────────────────────────────────────────────


async def said_so_far(pair, run, count=1):
    """What a stream that begins now gets of an answer, piece by piece."""
    async with pair.there.subscribe("agent:*", run_id=run, partial=True) as stream:
        with anyio.move_on_after(1):
            return [(x.offset, x.text) for x in [await anext(stream) for _ in range(count)]]
    return []


async def test_page_that_is_loaded_again_gets_the_text_so_far(pair):
    run = await pair.maker.run()
    async with pair.there.subscribe("agent:*", run_id=run, partial=True) as first:
        await settled()
        pair.maker.piece(run, "one ", 0)
        await settled()
        pair.maker.piece(run, "two ", 4)
        assert [(await anext(first)).text for _ in range(2)] == ["one ", "two "]
    pair.maker.piece(run, "three ", 8)
    await settled()
    assert await said_so_far(pair, run) == [(0, "one two three ")]


async def test_piece_that_was_lost_is_missing_in_the_text_so_far_and_seen_to_be(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    pair.maker.piece(run, "one ", 0)
    await settled()
    pair.maker.piece(run, "three ", 8)
    await settled()
    assert await said_so_far(pair, run) == [(8, "three ")]


async def test_text_so_far_is_given_once_whatever_the_stream_has_had(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    got = []
    pair.maker.piece(run, "one ", 0)
    await settled()
    async with pair.there.subscribe("agent:*", run_id=run, partial=True, buffer=1) as stream:
        for place, text in enumerate(("two ", "six ", "ten "), 1):
            pair.maker.piece(run, text, 4 * place)
            await settled()
        pair.maker.piece(run, "end", 16)
        while sum(len(x.text) for x in got) < 19:
            event = await anext(stream)
            if event.type != "hub:gap":
                got.append(event)
            else:
                pair.maker.piece(run, "", 19)
                pair.maker.piece(run, "!", 19)
                await settled()
    assert "".join(x.text for x in got).startswith("one two six ten end")
    assert [x.offset for x in got] == sorted({x.offset for x in got})


async def test_answer_of_another_process_is_under_way_until_the_next_record_of_its_run(pair):
    run = await pair.maker.run()
    pair.listen()
    await settled()
    pair.maker.piece(run, "one ", 0)
    await settled()
    assert pair.there.dispatcher.answers.by_run
    await pair.maker.record(run)
    await settled()
    assert not pair.there.dispatcher.answers.by_run
    assert await said_so_far(pair, run) == []


async def test_so_much_of_an_answer_of_another_process_is_kept(pair, monkeypatch):
    monkeypatch.setattr(answers, "MAX_KEPT", 50)
    run = await pair.maker.run()
    pair.listen()
    await settled()
    for place in range(20):
        pair.maker.piece(run, "x" * 10, 10 * place)
        await settled()
    ((offset, text),) = await said_so_far(pair, run)
    assert offset + len(text) == 200
    assert len(text) <= 50


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


async def test_store_that_is_one_process_s_has_no_bus():
    async with Hub(journal=MemoryJournal(), ports=virtual_ports()) as hub:
        hub.subscribe("*", print)
        assert hub.dispatcher.relay is None
        assert hub.dispatcher.hearing is None


async def test_outgoing_pieces_hold_no_more_than_they_may(monkeypatch):
    monkeypatch.setattr(outgoing_deltas, "ROOM", 5000)
    waiting = OutgoingDeltas()
    for number in range(1000):
        waiting.add(AgentTextDelta(run_id=str(number % 7), text="x" * (number % 50), offset=number))
    taken = waiting.take(lambda event: False)
    assert len(msgspec.json.encode(taken)) < 3 * 5000
    assert not waiting
    assert waiting.take(lambda event: False) == []


def test_frames_of_another_version_are_read_as_far_as_they_are_known():
    frame = DeltaFrame(1, 2, 3, 4, (msgspec.Raw(b'{"r":"a","x":"t","new":[1]}'),))
    (event,) = read_frame("deltas", msgspec.json.encode(frame)[:-1] + b',"more":{}}').events()
    assert (event.run_id, event.text) == ("a", "t")
