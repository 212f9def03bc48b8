"""Ids of then and now change places wherever they stand, and nothing else changes."""

from hypothesis import given
from hypothesis import strategies as st

from hubbub.agents.model import ModelReply, ToolCall
from hubbub.hub import events as e
from hubbub.hub.ports import SystemIds
from hubbub.runtime.simulation.playback.counterparts import Counterparts

texts = st.text(st.characters(codec="utf-8"))


def pairs(count: int) -> list[tuple[str, str]]:
    then, now = SystemIds(1), SystemIds(2)
    return [(then.run_id(at), now.run_id(at)) for at in range(count)]


@given(st.lists(st.integers(0, 4) | texts, max_size=9))
def test_what_is_said_is_the_same_but_for_ids(parts: list[int | str]) -> None:
    counterparts, known = Counterparts(), pairs(5)
    for then, now in known:
        counterparts.meet(then, now)

    def said(which: int) -> str:
        return "".join(known[x][which] if isinstance(x, int) else x for x in parts)

    before, after = said(0), said(1)
    assert counterparts.as_now(before) == after
    assert counterparts.as_now(before.encode()) == after.encode()
    called = ModelReply(text=before, calls=(ToolCall(name="x", arguments=before, id="1"),))
    assert counterparts.as_now(called) == ModelReply(
        text=after, calls=(ToolCall(name="x", arguments=after, id="1"),)
    )
    event = e.SessionMessage(content=before, source=known[0][0], key="k", lane="in", seq=3)
    assert counterparts.as_now(event) == e.SessionMessage(
        content=after, source=known[0][1], key="k", lane="in", seq=3
    )


@given(st.binary())
def test_contents_that_are_no_text_stay_what_they_are(content: bytes) -> None:
    counterparts = Counterparts()
    for then, now in pairs(2):
        counterparts.meet(then, now)
    assert counterparts.as_now(content) == content


def test_a_question_of_a_run_is_another_id_than_the_run() -> None:
    counterparts = Counterparts()
    counterparts.meet("run", "laufen")
    counterparts.meet("run?1.1", "laufen?9.1")
    assert counterparts.as_now("run?1.1 of run") == "laufen?9.1 of laufen"
    assert counterparts.then_of("laufen?9.1") == "run?1.1"
    assert counterparts.now_of("nobody") is None
