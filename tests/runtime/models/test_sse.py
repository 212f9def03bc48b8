"""``SseDecoder``: events out of bytes, however they are cut up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.runtime.models.http.sse import EventTooLarge, SseDecoder

pytestmark = pytest.mark.spec("M-02")

ends = st.sampled_from(["\n", "\r\n", "\r"])
data = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=6)


def decoded(*chunks: bytes, limit: int = 1000) -> list[bytes]:
    decoder = SseDecoder(limit)
    return [each for chunk in chunks for each in decoder.feed(chunk)] + decoder.flush()


@given(st.lists(st.lists(data, min_size=1, max_size=3), max_size=4), ends, st.data())
def test_events_survive_any_line_ending_and_any_cut(
    events: list[list[str]], end: str, cuts: st.DataObject
) -> None:
    text = "".join(
        f": comment{end}event: x{end}"
        + "".join(f"data: {line}{end}" for line in lines)
        + f"id: 7{end}{end}"
        for lines in events
    )
    stream = text.encode()
    places = sorted(cuts.draw(st.sets(st.integers(0, len(stream)))))
    chunks = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert decoded(*chunks) == ["\n".join(lines).encode() for lines in events]


def test_the_oddities_of_the_definition() -> None:
    assert decoded(b"\xef\xbb\xbfdata:no space\n\n") == [b"no space"]
    assert decoded(b"data:  two spaces\n\n") == [b" two spaces"]
    assert decoded(b"data\n\n") == [b""]
    assert decoded(b"event: ping\n\n: nothing\n\n\n\n") == []
    assert decoded(b"dataset: 1\n\n") == []
    assert decoded(b"data: a\r", b"\ndata: b\r\n", b"\r", b"\n") == [b"a\nb"]


def test_an_unfinished_last_event_counts() -> None:
    assert decoded(b"data: [DONE]") == [b"[DONE]"]
    assert decoded(b"data: [DONE]\n") == [b"[DONE]"]


@pytest.mark.parametrize("chunk", [b"data: 1234567\n", b"data: 12345678901", b"xxxxxxx"])
def test_a_large_event_is_refused_before_it_is_held(chunk: bytes) -> None:
    with pytest.raises(EventTooLarge):
        decoded(*[chunk] * 3, limit=20)
    assert decoded(*[b"data: 123456\n\n"] * 9, limit=20) == [b"123456"] * 9
