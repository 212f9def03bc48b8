"""Events as bytes: once for everybody, in one line, under positions that come back as they were."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.asgi_clients import SseParser

from hubbub import CustomEvent, Event, Hub
from hubbub.channels.http.streams.frames import (
    MAX_KEPT,
    MAX_WRITE,
    Frames,
    batches,
    item_of,
    sse_of,
)
from hubbub.channels.http.streams.positions import UNREADABLE, cursor_of_position, position_of
from hubbub.hub.events import HubGap
from hubbub.hub.store.cursor import cursor_of
from hubbub.hub.values import Json


class Cursors:
    """What of a hub that has been entered is asked for frames."""

    def cursor(self, event):
        return cursor_of("memory-07", event)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.mark.spec("W-03")
@given(texts)
def test_a_position_is_one_word_of_ascii_and_comes_back_as_the_cursor(cursor):
    position = position_of(cursor)
    assert position.isascii() and position.split() == ([position] if position else [])
    assert position.isprintable()
    assert cursor_of_position(position) == cursor


@pytest.mark.parametrize("cursor", ["sqlite-07|01a2-7b/own/7", "memory-0b@12", "start"])
def test_the_usual_cursors_are_positions_as_they_are(cursor):
    assert position_of(cursor) == cursor


@given(st.text())
def test_whatever_a_client_sends_as_a_position_is_a_cursor(text):
    cursor = cursor_of_position(text)
    cursor.encode()
    assert "\0" not in cursor


def test_what_is_no_text_stands_for_no_place():
    assert cursor_of_position("%00") == UNREADABLE


@pytest.mark.spec("W-03")
@given(type_=texts, run_id=texts, said=st.text(st.characters(exclude_categories=["Cs"])))
def test_nothing_that_an_event_says_breaks_its_frame(type_, run_id, said):
    event = CustomEvent(
        name=f"x:{type_}", run_id=run_id, lane="hub", seq=1, data_json=Json(json.dumps(said))
    )
    parser, hub = SseParser(), Cursors()
    (frame,) = parser.feed(sse_of(hub, event))
    assert json.loads(frame.data)["data"] == said
    assert cursor_of_position(frame.id) == hub.cursor(event)
    item = json.loads(item_of(hub, event))
    assert item["event"]["data"] == said
    assert item["position"] == frame.id


def test_json_of_several_lines_is_sent_in_one():
    event = CustomEvent(name="x:y", lane="hub", seq=1, data_json=Json(b'{\n "a":\r\n 1}'))
    (frame,) = SseParser().feed(sse_of(Cursors(), event))
    assert frame.json["data"] == {"a": 1}


def test_an_event_is_encoded_once_for_all_who_get_it():
    encoded = []

    def encode(hub, event):
        encoded.append(event)
        return b"x" * 1000

    frames = Frames(Hub(), encode)
    events = [CustomEvent.of("x:y", n=n) for n in range(100)]
    for _ in range(50):
        assert [frames.of(event) for event in events] == [b"x" * 1000] * 100
    assert encoded == events


@given(st.lists(st.integers(0, 20), max_size=300), st.integers(1, 400_000))
def test_frames_are_those_of_their_events_and_few_are_kept(numbers, size):
    """Also where an event takes the place in memory of one that is gone."""
    frames = Frames(Hub(), lambda hub, event: str(event.data["n"]).encode().ljust(size))
    for n in numbers:
        assert int(frames.of(CustomEvent.of("x:y", n=n))) == n
    kept = sum(len(data) for data, _ in (*frames._young.values(), *frames._old.values()))
    assert kept <= 2 * (MAX_KEPT + size)


@given(
    st.lists(st.binary(min_size=1, max_size=MAX_WRITE + 10), max_size=8),
    st.sampled_from([b"", b","]),
)
def test_batches_are_all_frames_in_order_and_no_longer_than_they_need_be(frames, joint):
    found = list(batches(frames, joint))
    assert joint.join(found) == joint.join(frames)
    assert all(len(each) <= MAX_WRITE or each in frames for each in found)
    assert all(len(a) + len(b) + 2 * len(joint) > MAX_WRITE for a, b in itertools.pairwise(found))


def test_an_event_that_cannot_be_encoded_is_a_gap():
    class Odd(Event, tag="x:odd"):
        what: object = None

    (frame,) = SseParser().feed(Frames(Hub(), sse_of).of(Odd(what=object())))
    assert (frame.type, frame.json["dropped"]) == ("hub:gap", 1)
    assert "x:odd" in frame.json["reason"]


def test_a_gap_says_where_the_stream_goes_on():
    gap = HubGap(cursor="memory-0b@12", reason="unknown cursor")
    (frame,) = SseParser().feed(sse_of(Hub(), gap))
    assert (frame.id, frame.json["cursor"]) == ("memory-0b@12", "memory-0b@12")
