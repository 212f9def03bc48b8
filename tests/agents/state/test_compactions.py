"""Where a summary may end, and when one is due."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hubbub.agents.compaction import Compaction
from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelMessage, UserMessage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.compactions import (
    NO_COMPACTIONS,
    boundary_of,
    is_own,
    length_of,
    tokens_shown,
)
from hubbub.agents.state.context_limit import NO_LIMIT, ContextLimit, Summarize, summary_due
from hubbub.agents.state.fold import fold
from hubbub.agents.state.steps import summary_problem
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.decide import (
    SUMMARIZING,
    CallHooks,
    CallModel,
    Do,
    Park,
    Receive,
    Take,
    decide,
)
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import Summarized
from hubbub.hub import events as e
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import ContentPart, Usage

pytestmark = pytest.mark.spec("L-04")

NOTHING: Any = frozenset()
LIMIT = ContextLimit(over=100, keep=0.3)


def user(text: str = "u" * 10) -> UserMessage:
    return UserMessage(content=text)


def own(text: str = "a" * 10, *outputs: str, given: bool = False) -> AssistantMessage:
    calls = [
        AnsweredCall(id=f"c{n}", name="look", arguments="{}", output=each)
        for n, each in enumerate(outputs)
    ]
    return AssistantMessage(text=text, calls=tuple(calls), is_given=given)


def usage(tokens: int) -> Usage:
    return Usage(input_tokens=tokens)


LONG: tuple[ModelMessage, ...] = (*[x for _ in range(6) for x in (user(), own())], user())


def at_work(tokens: int = 200, **changes: Any) -> Thread:
    thread = Thread(
        agent="a", phase="live", session=1, in_session=True, turn=3, step=6, transcript=LONG,
        seen=usage(tokens), total_usage=usage(tokens),
    )  # fmt: skip
    return replace(thread, **changes)


# ── the boundary ─────────────────────────────────────────────────────────────────────────────


messages = st.lists(
    st.one_of(
        st.builds(user, st.text(max_size=9)),
        st.builds(own, st.text(max_size=9), st.text(max_size=9), given=st.booleans()),
        st.builds(own, st.text(max_size=9), given=st.booleans()),
    ),
    max_size=12,
)


@given(view=messages, keep=st.sampled_from([0.01, 0.25, 0.5, 0.99]), more=messages)
def test_what_is_not_answered_and_the_last_answer_always_stay(
    view: list[Any], keep: float, more: list[Any]
) -> None:
    covers = boundary_of(view, keep)
    assert covers == 0 or (covers >= 2 and any(map(is_own, view[covers:])))
    # It stands still, whatever arrives, until the model says something.
    arrived = [each for each in more if not is_own(each)]
    assert boundary_of([*view, *arrived], keep) == covers


@given(view=messages, keep=st.sampled_from([0.01, 0.25, 0.5, 0.99]))
def test_where_two_messages_are_answered_there_is_something_to_summarise(
    view: list[Any], keep: float
) -> None:
    """Whichever of them is the long one; and what stays is the most that ``keep`` allows."""
    last = max((n for n, each in enumerate(view) if is_own(each)), default=0)
    whole = sum(map(length_of, view[: last + 1]))
    covers = boundary_of(view, keep)
    assert (covers > 0) == (last >= 2 and whole > 0)
    if covers == 0:
        return

    def is_kept(start: int) -> bool:
        return start == last or sum(map(length_of, view[start : last + 1])) <= keep * whole

    fitting = [place for place in range(2, last + 1) if is_kept(place)]
    asked = [place for place in fitting if place < last and isinstance(view[place], UserMessage)]
    assert covers == min(asked or fitting)


@pytest.mark.parametrize(
    "view",
    [
        (user("u" * 9_000), *[own("", "x" * 30) for _ in range(9)]),  # One long turn.
        (user("s" * 9_000), user(), user(), own(), own(), user()),  # A summary, and more.
        (own("g" * 9_000, given=True), user(), own(), user()),  # A history that was given.
        (UserMessage(content="", parts=(ContentPart(kind="image"),) * 3), user(), own(), user()),
    ],
    ids=["a turn", "a summary", "a history", "pictures"],
)
def test_a_first_message_that_outweighs_the_rest_is_summarised(view: tuple[Any, ...]) -> None:
    assert boundary_of(view, 0.25) == 2


def test_pictures_count_for_what_stays() -> None:
    picture = UserMessage(content="", parts=(ContentPart(kind="image"),))
    view = (user("u" * 4_000), own("a" * 4_000), picture, own(), user(), own())
    assert boundary_of(view, 0.3) == 4  # A third of it.
    assert boundary_of(view, 0.4) == 2


def test_the_newest_part_stays_from_a_message_of_the_users_on() -> None:
    assert boundary_of(LONG, 0.3) == 10
    assert boundary_of(LONG, 0.6) == 6
    # Within one long turn there is none.
    loop = (user(), *[own("", "x" * 30) for _ in range(9)])
    assert boundary_of(loop, 0.3) == 8
    assert boundary_of((user(), own(), user()), 0.3) == 0
    assert boundary_of((), 0.3) == 0


@pytest.mark.parametrize(
    ("used", "tokens"),
    [
        (Usage(input_tokens=50, output_tokens=7), 57),
        (Usage(input_tokens=5, cache_read_tokens=40, cache_write_tokens=6), 51),  # Anthropic's.
        (Usage(input_tokens=50, cache_read_tokens=40), 50),  # OpenAI's.
    ],
)
def test_the_window_is_filled_by_all_that_was_read_once(used: Usage, tokens: int) -> None:
    assert tokens_shown(used) == tokens


# ── when ─────────────────────────────────────────────────────────────────────────────────────


def test_it_comes_before_the_next_step_where_the_last_one_was_over_the_limit() -> None:
    due = Summarize("side_a", 6, 10)
    assert decide(at_work(), NOTHING, limit=LIMIT) == Do((due,))
    assert decide(at_work(tokens=100), NOTHING, limit=LIMIT) == Do((CallModel(3, 7, 1, 0.0),))
    assert decide(at_work(), NOTHING, limit=NO_LIMIT) == Do((CallModel(3, 7, 1, 0.0),))
    # Messages are taken first, and wait while it is made; a model that is asked is not cut short.
    waiting: Any = frozenset(("message",))
    assert decide(at_work(), waiting, limit=LIMIT) == Take("message")
    assert decide(at_work(), waiting, SUMMARIZING, limit=LIMIT) == Do((due,))
    hooked: Any = frozenset(("message",))
    assert decide(at_work(), waiting, limit=LIMIT, hooked=hooked) == Do((Receive("message"),))
    assert decide(at_work(), waiting, SUMMARIZING, limit=LIMIT, hooked=hooked) == Do((due,))
    hooks = decide(at_work(), NOTHING, SUMMARIZING, limit=LIMIT, hook_events=True)
    assert hooks == Do((CallHooks(), due))
    assert decide(at_work(), NOTHING, 3, limit=LIMIT) == Do((CallModel(3, 7, 1, 0.0),))
    assert decide(at_work(), frozenset(("control",)), SUMMARIZING, limit=LIMIT) == Take("control")


def test_outside_of_a_session_only_a_wish_makes_it_due() -> None:
    idle = at_work(in_session=False)
    assert decide(idle, NOTHING, limit=LIMIT) == Park()
    wished = fold(idle, e.SessionTaken(items=(e.SessionCompact(),)))
    assert decide(wished, NOTHING, limit=LIMIT) == Do((Summarize("side_a", 6, 10),))
    short = replace(wished, transcript=(user(), own()))
    assert decide(short, NOTHING, limit=LIMIT) == Do((Summarize("side_a", 6, 0),))
    both = replace(idle, two_sided=True, transcript_b=LONG)
    wished = fold(both, e.SessionTaken(items=(e.SessionCompact(),)))
    assert wished.compactions.wanted == ("side_a", "side_b")


def after(thread: Thread, **fields: Any) -> Thread:
    return fold(thread, e.SessionCompaction(**{"side": "side_a", "step": thread.step, **fields}))


def stepped(thread: Thread, tokens: int) -> Thread:
    """After one more step of the model's that only speaks, and another message."""
    step = e.AgentStep(step=thread.step + 1, usage=usage(tokens))
    return replace(fold(thread, step), transcript=(*thread.transcript, own(), user()))


def is_due(thread: Thread) -> bool:
    return summary_due(thread, LIMIT) is not None


def test_a_summary_takes_the_place_of_what_it_covers() -> None:
    thread = after(at_work(), summary="In short.", covers=10, own=5, usage=usage(9))
    assert [x.content for x in thread.transcript[:1]] == [
        "Summary of the conversation so far, in place of its older messages:\n\nIn short."
    ]
    assert thread.transcript[1:] == LONG[10:]
    assert thread.total_usage == usage(209)
    assert (thread.compactions.side_a.number, thread.compactions.side_a.own) == (1, 5)
    assert not is_due(thread)
    assert not is_due(stepped(thread, 90))
    again = stepped(stepped(thread, 90), 150)
    assert is_due(again)


def test_one_that_did_not_help_is_not_tried_at_every_step() -> None:
    """A window that is smaller than the system prompt is over its limit for ever."""
    thread = after(at_work(), summary="In short.", covers=10, own=5)
    tried = 0
    for _ in range(40):
        thread = stepped(thread, 500)
        if is_due(thread):
            tried += 1
            thread = after(thread, summary="Shorter.", covers=2, own=1)
    assert tried == 4


def test_a_failure_changes_nothing_and_is_tried_again_later() -> None:
    before = at_work()
    thread = after(before, error="refused", covers=10, usage=usage(9))
    assert thread.transcript == before.transcript
    assert thread.seen == before.seen
    assert thread.total_usage == usage(209)
    assert decide(thread, NOTHING, limit=LIMIT) == Do((CallModel(3, 7, 1, 0.0),))
    waited = 0
    while not is_due(thread):
        thread, waited = stepped(thread, 200), waited + 1
    assert waited == 10
    # Where there was nothing to summarise, nothing has failed.
    assert is_due(after(before, error="nothing", covers=0))


def test_a_summary_is_shorter_than_what_it_covers() -> None:
    covered = (user("u" * 60), own("a" * 10, "o" * 20))
    room = 60 + 10 + len("look{}") + 20
    assert summary_problem("s" * (room - 1), covered) == ""
    assert summary_problem("s" * room, covered) == (
        "the model's summary is no shorter than what it covers: 96 characters in place of 96"
    )
    assert summary_problem("", covered) == "the model's summary was empty"
    picture = ContentPart(kind="image")
    shown = (user(""), UserMessage(content="", parts=(picture,)))
    assert summary_problem("s" * 500, shown) == ""
    call = AnsweredCall(id="c", name="look", arguments="{}", output="", parts=(picture,))
    assert summary_problem("s" * 500, (AssistantMessage(calls=(call,)),)) == ""


def test_a_reset_forgets_the_summary_and_the_wish() -> None:
    thread = after(at_work(), summary="In short.", covers=10, own=5)
    thread = fold(thread, e.SessionTaken(items=(e.SessionCompact(),)))
    thread = fold(thread, e.SessionTaken(items=(e.SessionReset(message="Anew."),)))
    assert thread.compactions is NO_COMPACTIONS
    assert [x.content for x in thread.transcript] == ["Anew."]
    assert thread.seen == Usage()


def test_a_summary_of_what_has_begun_anew_means_nothing() -> None:
    done = Summarized(side="side_a", step=6, covers=10, summary="In short.")
    nobody = Definitions([])
    assert interpret(replace(at_work(), transcript=(user(),)), done, nobody).events == ()
    assert interpret(replace(at_work(), step=7), done, nobody).events == ()
    (event,) = interpret(at_work(), done, nobody).events
    assert isinstance(event, e.SessionCompaction)
    assert (event.covers, event.own, event.summary) == (10, 5, "In short.")


# ── what is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"at": 0.0}, "at: expected a share, above 0 and below 1, not 0.0"),
        ({"at": 80}, "at: expected a share, above 0 and below 1, not 80"),
        ({"at": float("nan")}, "at: expected a share, above 0 and below 1, not nan"),
        ({"keep": 1.0}, "keep: expected a share, above 0 and below 1, not 1.0"),
        ({"keep": "0.2"}, "keep: expected a share, above 0 and below 1, not '0.2'"),
        ({"window": 0}, "window: expected tokens, at least 1, not 0"),
        ({"window": True}, "window: expected tokens, at least 1, not True"),
        ({"window": 2**63}, "window: expected tokens, at least 1, not 9223372036854775808"),
        ({"instructions": None}, "instructions: expected a text"),
        ({"instructions": "a\ud800"}, "instructions: "),
    ],
)
def test_settings_that_mean_nothing_are_refused(fields: Any, problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Compaction(**fields)
    assert problem in str(caught.value)
