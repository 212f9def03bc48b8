"""Which message was an answer, and could overtake others, where the order in which it was accepted
and its time say two things."""

from collections.abc import Sequence

import pytest

from hubbub.hub import events as e
from hubbub.hub.events import Event, SessionMessage
from hubbub.runtime.simulation.invariants.messages import order_kept
from hubbub.runtime.simulation.story.history import History

RUN = "a-run"


def said(seq: int, at: int) -> SessionMessage:
    return SessionMessage(
        content=f"{seq}", source="ann", run_id=RUN, root_run_id=RUN, lane="in", seq=seq, at=at
    )


def own(event: Event, seq: int, at: int = 9) -> Event:
    values = {x: getattr(event, x) for x in event.__struct_fields__}
    values |= {"run_id": RUN, "root_run_id": RUN, "lane": "own", "seq": seq, "at": at}
    return type(event)(**values)


def problems(*in_store: Event, takes: Sequence[SessionMessage], leases: Sequence[int]) -> int:
    taken = [own(e.SessionTaken(items=(item,)), seq) for seq, item in enumerate(takes, 2)]
    writers = [(RUN, 1, lease) for lease in leases]
    return len([*order_kept(History(seed=1, events=[*in_store, *taken], writers=writers))])


FIRST, SECOND = said(1, at=1), said(2, at=6)


def prompt(at: int) -> Event:
    return own(e.SessionPrompt(prompt_id=f"{RUN}.1", question="Sure?"), 1, at)


@pytest.mark.parametrize(("leases", "expected"), [((), 1), ((1, 1), 1), ((1, 2), 0)])
def test_what_the_store_has_before_a_question_overtakes_others_by_its_time_after_a_takeover_alone(
    leases: Sequence[int], expected: int
) -> None:
    story = FIRST, SECOND, prompt(at=5)
    assert problems(*story, takes=(SECOND, FIRST), leases=leases) == expected
    later = FIRST, SECOND, prompt(at=7)
    assert problems(*later, takes=(SECOND, FIRST), leases=leases) == 1
    behind = FIRST, prompt(at=5), SECOND
    assert problems(*behind, takes=(SECOND, FIRST), leases=leases) == 0


def test_what_is_said_in_the_moment_of_a_question_may_be_overtaken_by_its_answer() -> None:
    first, second, third = said(1, at=5), said(2, at=5), said(3, at=5)
    story = first, prompt(at=5), second, third
    assert problems(*story, takes=(second, first), leases=()) == 0
    assert problems(*story, takes=(third, second), leases=()) == 1
