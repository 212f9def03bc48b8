"""What is blamed where a model's provider refuses a request, and what stands in its place."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelMessage, UserMessage
from hubbub.agents.retry import refused_by
from hubbub.agents.state.compactions import NO_COMPACTIONS, Compacted, is_own
from hubbub.agents.state.refusals import blamed_by, summary_helps, without
from hubbub.hub.events import ContentPart, LeftOut

pytestmark = pytest.mark.spec("T-12")

PICTURE = ContentPart(kind="image", media_type="image/png", name="a.png", digest="d", size=12_345)


def user(text: str, *parts: ContentPart, role: str = "user") -> UserMessage:
    return UserMessage(content=text, role=role, parts=parts)


def own(*outputs: str, text: str = "Yes.", parts: tuple[ContentPart, ...] = ()) -> AssistantMessage:
    calls = [
        AnsweredCall(id=f"c{n}", name="look", arguments="{}", output=each, parts=parts)
        for n, each in enumerate(outputs)
    ]
    return AssistantMessage(text=text, calls=tuple(calls))


def places(found: Sequence[LeftOut]) -> list[tuple[int, int | None]]:
    return [(each.place, each.call) for each in found]


def test_what_an_answer_has_followed_is_never_blamed() -> None:
    assert places(blamed_by((user("a" * 999), own(), user("b")), "length")) == [(2, None)]


def test_where_nothing_is_new_nobody_is_blamed() -> None:
    assert blamed_by((user("a"), own()), "request") == ()
    assert blamed_by((), "request") == ()


def test_words_that_are_much_shorter_than_the_longest_stay() -> None:
    view = (user("Hi."), user("x" * 100_000), user("Are you there?"))
    (found,) = blamed_by(view, "length")
    assert (found.place, found.what) == (1, "a message, 100,000 characters")


def test_of_words_that_are_refused_for_what_they_say_all_are_blamed() -> None:
    view = (user("Hi."), own(), user("x" * 100_000), user("A poison."))
    assert [each.place for each in blamed_by(view, "request")] == [2, 3]


def test_a_refused_picture_is_left_out_and_its_words_stay() -> None:
    view = (user("Look.", PICTURE), user("Well?"))
    found = blamed_by(view, "request")
    assert found == (
        LeftOut(
            place=0, only_parts=True, what="image a.png (image/png, 12.3 kB), of a message"
        ),
    )  # fmt: skip
    shown, second = without(view, found)
    assert isinstance(shown, UserMessage)
    assert (shown.content, shown.parts, second) == ("Look.", (), view[1])
    assert "Left out here: image a.png" in shown.notes[-1]


def test_words_longer_than_any_picture_are_blamed_for_the_length_before_it() -> None:
    view = (user("x" * 50_000, PICTURE),)
    assert not blamed_by(view, "length")[0].only_parts
    assert blamed_by(view, "request")[0].only_parts


def test_the_long_result_of_a_call_is_left_out_and_the_call_stays() -> None:
    view = (user("Read it."), own("x" * 9000, "short"))
    found = blamed_by(view, "length")
    assert places(found) == [(1, 0)]
    asked = without(view, found)[1]
    assert isinstance(asked, AssistantMessage)
    assert [call.id for call in asked.calls] == ["c0", "c1"]
    assert "the result of 'look', 9,000 characters" in asked.calls[0].output
    assert asked.calls[1].output == "short"


def test_a_refused_picture_of_a_result_is_left_out_alone() -> None:
    view = (user("Look."), own("here it is", parts=(PICTURE,)))
    asked = without(view, blamed_by(view, "request"))[1]
    assert isinstance(asked, AssistantMessage)
    assert (asked.calls[0].output, asked.calls[0].parts) == ("here it is", ())
    assert "Left out here" in asked.calls[0].notes[-1]


def test_what_was_said_before_the_run_began_is_new_to_its_model() -> None:
    given_words = AssistantMessage(text="y" * 5000, is_given=True)
    view = (user("Hi."), given_words, user("Go on."))
    found = blamed_by(view, "length")
    assert places(found) == [(1, None)]
    changed = without(view, found)[1]
    assert isinstance(changed, AssistantMessage)
    assert changed.is_given
    assert changed.is_left_out


_messages = st.one_of(
    st.builds(user, st.text(max_size=30)),
    st.builds(user, st.text(max_size=30), st.just(PICTURE)),
    st.builds(own, st.text(max_size=30), st.text(max_size=3)),
    st.builds(own),
    st.builds(AssistantMessage, text=st.text(max_size=20), is_given=st.just(True)),
)


@given(st.lists(_messages, max_size=8).map(tuple), st.sampled_from(["request", "length"]))
def test_each_refusal_leaves_less_to_be_blamed_until_nothing_is_new(
    view: tuple[ModelMessage, ...], refused: str
) -> None:
    last = max([at for at, each in enumerate(view) if is_own(each)], default=-1)
    before = view
    for _ in range(4 * len(view) + 1):
        found = blamed_by(view, refused)  # type: ignore[arg-type]
        if not found:
            break
        after = without(view, found)
        assert [type(each) for each in after] == [type(each) for each in view]
        changed = {at for at in range(len(view)) if after[at] != view[at]}
        assert changed == {each.place for each in found}
        view = after
    else:
        pytest.fail("the same is blamed again and again")
    for at, (old, new) in enumerate(zip(before, view, strict=True)):
        assert at > last or at == last or old == new
        if isinstance(old, AssistantMessage) and isinstance(new, AssistantMessage):
            assert [call.id for call in new.calls if is_own(old)] == [
                call.id for call in old.calls if is_own(old)
            ]


def test_a_summary_comes_first_where_most_was_accepted_before() -> None:
    old: tuple[ModelMessage, ...] = tuple(
        x for n in range(6) for x in (user(f"{n}" * 100), own(text="a" * 100))
    )
    never = NO_COMPACTIONS
    assert summary_helps((*old, user("b")), "side_a", 6, never, 0.25)
    assert not summary_helps((*old, user("b" * 9999)), "side_a", 6, never, 0.25)
    assert not summary_helps((user("a"), own(), user("b")), "side_a", 6, never, 0.25)


def test_a_summary_that_has_not_helped_is_not_asked_for_again() -> None:
    old: tuple[ModelMessage, ...] = tuple(x for _ in range(6) for x in (user("q" * 99), own()))
    for last in (Compacted(number=1, tried=6), Compacted(has_failed=True, tried=6)):
        tried = NO_COMPACTIONS.with_side("side_a", last)
        assert not summary_helps((*old, user("b")), "side_a", 6, tried, 0.25)
        assert summary_helps((*old, user("b")), "side_a", 7, tried, 0.25)


@pytest.mark.parametrize(
    ("kind", "status", "words", "expected"),
    [
        ("request", 400, "m: invalid image", "request"),
        ("request", 422, "m: unprocessable", "request"),
        ("request", 413, "m: no", "length"),
        ("request", 400, "m: This model's maximum context length is 8192 tokens", "length"),
        ("request", 400, "m: prompt is too long: 210000 tokens > 200000 maximum", "length"),
        ("request", 400, "m: Your input exceeds the context window of this model", "length"),
        ("request", 400, "exceeds the maximum number of tokens allowed (1048576)", "length"),
        ("request", 404, "m: no such model", ""),
        ("request", 301, "m: redirected", ""),
        ("request", None, "m: its options are not JSON", ""),
        ("auth", 401, "m: prompt is too long", ""),
        ("rate_limit", 429, "m: too many tokens a minute", ""),
        ("server", 500, "m: no", ""),
    ],
)
def test_only_what_a_provider_says_of_the_request_itself_is_a_refusal(
    kind: str, status: int | None, words: str, expected: str
) -> None:
    assert refused_by(kind, status, words) == expected
