"""What waits for one run."""

from hubbub.hub.events import SessionMessage, SessionResult
from hubbub.runtime.kernel.mailbox import Mailbox


def test_noting_an_item_copies_none_of_those_that_wait() -> None:
    """Else a hundred thousand of them held the loop for many seconds."""
    mail = Mailbox()
    for seq in (1, 3):
        mail.put(SessionMessage(seq=seq, content="hi"))
        mail.put(SessionResult(seq=seq + 1, child_run_id="child"))
    messages, results = mail.messages, mail.results
    mail.put(SessionMessage(seq=5, content="hi"))
    mail.put(SessionResult(seq=6, child_run_id="child"))
    assert mail.messages is messages and mail.results is results
    assert [each.seq for each in mail.take("message")] == [1, 3, 5]
    assert [each.seq for each in mail.take("result")] == [2, 4, 6]
    assert not (mail.messages or mail.results)
    assert [each.seq for each in messages] == [1, 3, 5], "what was taken is not written on"
    mail.put(SessionMessage(seq=7, content="hi"))
    assert [each.seq for each in mail.waiting("message")] == [7]
