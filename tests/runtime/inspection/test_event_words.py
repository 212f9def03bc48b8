"""What a run's conversation says of an answer, in a line that is never empty."""

import pytest

from hubbub.hub import events as e
from hubbub.hub.values import encode_value
from hubbub.runtime.inspection.event_words import conversation_of


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (e.SessionReply(content="the blue one"), "the blue one"),
        (e.SessionReply(decision="approve"), "approve"),
        (
            e.SessionReply(decision="approve", arguments_json=encode_value("a", {"amount": 20})),
            'approve, with {"amount":20}',
        ),
        (e.SessionReply(decision="deny", content="too much"), "deny: too much"),
    ],
)
def test_an_answer_says_what_was_decided(reply: e.SessionReply, shown: str) -> None:
    (said,) = conversation_of([e.SessionTaken(items=(reply,))])
    assert said.text == shown
