"""``conversation``: whatever the history holds becomes turns that every provider accepts."""

import msgspec
import pytest
from hypothesis import given

from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelMessage,
    UserMessage,
    parse_arguments,
)
from hubbub.runtime.models.conformance import HISTORIES
from hubbub.runtime.models.http.messages import BEGIN, CONTINUE, Turn, UserTurn, conversation

pytestmark = pytest.mark.spec("M-03")


def said(turn: Turn) -> str:
    if isinstance(turn, UserTurn):
        return "U:" + "|".join(message.content for message in turn.messages)
    return f"A:{turn.text}" + "".join(f"[{call.id}]" for call in turn.calls)


def turned(*messages: ModelMessage) -> list[str]:
    return [said(turn) for turn in conversation(messages)]


def texts_of(message: UserMessage) -> tuple[str, ...]:
    return (message.content, *message.notes)


def user(text: str) -> UserMessage:
    return UserMessage(content=text)


def answered(id_: str = "a", arguments: str = "{}", name: str = "look") -> AnsweredCall:
    return AnsweredCall(id=id_, name=name, arguments=arguments, output="ok")


def test_neighbours_become_one_user_turn_and_blanks_vanish() -> None:
    assert turned(user("a"), user(" "), user("b"), AssistantMessage(text="\n"), user("c")) == [
        "U:a|b|c"
    ]


def test_the_user_begins_and_the_model_never_has_the_last_word() -> None:
    assert turned() == [f"U:{BEGIN}"]
    assert turned(AssistantMessage(text="hi")) == [f"U:{BEGIN}", "A:hi", f"U:{CONTINUE}"]
    note = UserMessage(content="note", role="system")
    assert turned(note, AssistantMessage(text="hi"))[0] == f"U:note|{BEGIN}"
    assert turned(AssistantMessage(calls=(answered(),))) == [f"U:{BEGIN}", "A:[a]"]


def test_a_model_that_went_on_is_shown_what_it_was_shown_then() -> None:
    history = (user("a"), AssistantMessage(text="one"))
    longer = (*history, AssistantMessage(text="two"))
    assert turned(*history) == ["U:a", "A:one", f"U:{CONTINUE}"]
    assert turned(*longer)[:3] == turned(*history), "so the provider's prompt cache holds"


def test_words_the_model_was_given_open_and_go_on_like_its_own() -> None:
    first, second = (AssistantMessage(text=text, is_given=True) for text in ("one", "two"))
    opened = [f"U:{BEGIN}", "A:one", f"U:{CONTINUE}"]
    assert turned(first) == opened
    assert turned(first, second, AssistantMessage(text="three")) == [
        *opened,
        "A:two",
        f"U:{CONTINUE}",
        "A:three",
        f"U:{CONTINUE}",
    ]
    assert turned(first, user("a"), AssistantMessage(calls=(answered(),)), second)[2:] == [
        "U:a",
        "A:[a]",
        "A:two",
        f"U:{CONTINUE}",
    ]


def test_blank_notes_vanish_and_the_others_stay_with_their_message_and_call() -> None:
    noted = msgspec.structs.replace(answered(), notes=("", "c", "\n"))
    asked, reply = conversation(
        [
            UserMessage(content="a", notes=("b", " ", "c")),
            UserMessage(content=" ", notes=("", "only"), role="system"),
            UserMessage(content="", notes=(" ",)),
            AssistantMessage(calls=(noted,), is_given=True),
        ]
    )
    assert asked == UserTurn(
        (
            UserMessage(content="a", notes=("b", "c")),
            UserMessage(content="only", role="system"),
        )
    )
    assert reply == AssistantMessage(
        calls=(msgspec.structs.replace(noted, notes=("c",)),), is_given=True
    )


def test_ids_are_made_unique_and_lawful() -> None:
    calls = tuple(map(answered, ["a", "a", "", "", "a b", "a_b", "x" * 60, "x" * 60]))
    (_, turn) = conversation([AssistantMessage(calls=calls)])
    assert isinstance(turn, AssistantMessage)
    ids = [call.id for call in turn.calls]
    assert ids[:6] == ["a", "a_2", "call", "call_2", "a_b", "a_b_2"]
    assert ids[6:] == ["x" * 40, "x" * 38 + "_2"]


@pytest.mark.parametrize("text", ['{"city":', "[1]", "null", "NaN", '"text"', '{"a": "\ud83d"}'])
def test_malformed_arguments_stay_visible(text: str) -> None:
    (_, turn) = conversation([AssistantMessage(calls=(answered(arguments=text),))])
    assert isinstance(turn, AssistantMessage)
    assert parse_arguments(turn.calls[0].arguments) == {"_malformed": text.replace("\ud83d", "?")}


@given(HISTORIES)
def test_the_rules_hold_for_every_history(history: tuple[ModelMessage, ...]) -> None:
    turns = conversation(history)
    assert isinstance(turns[0], UserTurn)
    ids: list[str] = []
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        if isinstance(turn, UserTurn):
            assert turn.messages
            for message in turn.messages:
                texts = texts_of(message)[1 if message.parts else 0 :]
                assert all(text.strip() for text in texts)
            assert not isinstance(following, UserTurn)
        else:
            assert turn.text.strip() or turn.calls
            assert turn.calls or isinstance(following, UserTurn)
            ids += [call.id for call in turn.calls]
            for call in turn.calls:
                assert isinstance(msgspec.json.decode(call.arguments.encode()), dict)
                assert all(note.strip() for note in call.notes)
    assert len(set(ids)) == len(ids)
    asked = [text for m in history if isinstance(m, UserMessage) for text in texts_of(m)]
    told = [m for turn in turns if isinstance(turn, UserTurn) for m in turn.messages]
    kept = [text for message in told for text in texts_of(message) if text]
    shown = [part for m in history if isinstance(m, UserMessage) for part in m.parts]
    assert [part for message in told for part in message.parts] == shown
    assert [text for text in kept if text not in (BEGIN, CONTINUE)] == list(
        filter(str.strip, asked)
    )
