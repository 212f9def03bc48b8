"""What stands in ``history.jsonl`` and ``state.json``, and reading it back (AT, P-01, P-12)."""

import json
from typing import Any

import pytest
from msgspec import structs

from hubbub.agents.folders.history import follow
from hubbub.agents.folders.history_lines import read_line, write_line
from hubbub.agents.folders.state_file import begin, read_state, write_state
from hubbub.agents.model import UserMessage
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, FileRef, ToolCall
from hubbub.hub.events.descriptors import UserDescriptor
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.values import encode_value

RUN = "01900000-0000-7000-8000-000000000001"
CHILD = "01900000-0000-7000-8000-000000000002"
INFO = RunInfo(
    run_id=RUN, root_run_id=RUN, parent_run_id=None, agent="assistant", name="", session_key="k",
    status="active", inbox="open", waiting=0, created_at=5,
    descriptor=UserDescriptor(connector="local", user_id="local", channel_id=RUN),
)  # fmt: skip


def stamped(*events: Event) -> list[Event]:
    """Events of both lanes with places and times; items that are taken come first."""
    found: list[Event] = []
    came = 0
    for own, event in enumerate(events, 1):
        place: dict[str, Any] = {
            "at": 10 + own,
            "run_id": RUN,
            "root_run_id": RUN,
            "agent": "assistant",
        }
        if isinstance(event, e.SessionTaken):
            items = []
            for item in event.items:
                came += 1
                items.append(structs.replace(item, lane="in", seq=came, **place))
            found += items
            event = e.SessionTaken(items=tuple(items))
        found.append(structs.replace(event, lane="own", seq=own, **place))
    return found


def taken(*items: Any) -> Event:
    return e.SessionTaken(items=items)


def opened(text: str = "hello", **more: Any) -> tuple[Event, ...]:
    item = e.SessionOpen(open_agent="assistant", input_json=encode_value("input", text), **more)
    start = e.AgentStart(input_json=item.input_json, session_key="k", tags=("a",))
    return start, e.SessionStart(session=1), taken(item)


def step(number: int, text: str, *calls: ToolCall, **more: Any) -> tuple[Event, ...]:
    said = (e.AgentText(step=number, text=text),) if text else ()
    return (*said, e.AgentStep(step=number, calls=calls, **more))


CONVERSATION: tuple[Event, ...] = (
    *opened(),
    e.AgentThinking(step=1, text="hm"),
    *step(1, "Let me look.", ToolCall(name="look", arguments='{"at": 1}', id="provider's")),
    e.AgentToolStart(step=1, index=0, name="look", arguments='{"at": 1}'),
    e.AgentToolComplete(step=1, index=0, name="look", output="seen", notes=("a note",)),
    *step(2, "There."),
    e.SessionEnd(session=1, output_json=encode_value("output", "There.")),
    e.AgentPark(),
    e.SessionStart(session=2),
    taken(
        e.SessionMessage(
            content="and this?", key="m1", source="console", attachments=("here.txt",),
            files=(FileRef(path="a.txt", digest="d" * 64, size=3),),
        ),
        e.SessionMessage(content="psst", source=CHILD, silent=True),
    ),
    e.AgentMessage(to="other", content="left out"),
    e.AgentKey(key="colour", value_json=encode_value("value", ["red"])),
)  # fmt: skip


def lines_of(events: list[Event]) -> list[dict[str, Any]]:
    _, lines = follow(begin(INFO), events)
    return [json.loads(write_line(line)) for line in lines]


@pytest.mark.spec("P-01")
def test_a_history_has_the_lines_of_the_agent_types() -> None:
    lines = lines_of(stamped(*CONVERSATION))
    assert [line["type"] for line in lines] == [
        "start", "user_message", "assistant_message", "tool_result", "assistant_message",
        "user_message", "system_message",
    ]  # fmt: skip
    assert all(isinstance(line["at"], int) and line["seq"] for line in lines)
    assert (lines[1]["text"], lines[1]["files"]) == ("hello", [])
    call = {"id": "call_1_0", "name": "look", "arguments": '{"at": 1}'}
    assert (lines[2]["text"], lines[2]["toolCalls"], lines[2]["files"]) == (
        "Let me look.", [call], [],
    )  # fmt: skip
    assert (lines[3]["toolCallId"], lines[3]["output"], lines[3]["isError"]) == (
        "call_1_0", "seen", False,
    )  # fmt: skip
    assert [file["path"] for file in lines[5]["files"]] == ["here.txt", "a.txt"]
    assert (lines[6]["text"], lines[6]["origin"], lines[6]["silent"]) == ("psst", CHILD, True)
    assert "hm" not in [line.get("text") for line in lines]


@pytest.mark.spec("P-01")
def test_a_reset_is_a_marker_with_its_message() -> None:
    events = stamped(*opened(), taken(e.SessionReset(message="afresh")), taken(e.SessionReset()))
    *_, one, two = lines_of(events)
    assert (one["type"], one["message"]) == ("reset", "afresh")
    assert (two["type"], "message" in two) == ("reset", False)


@pytest.mark.spec("P-01", "C-09")
def test_a_childs_result_stands_in_the_history_as_its_parent_reads_it() -> None:
    child = e.AgentChild(
        child_run_id=CHILD, child_agent="helper", reports=True, resumable=True, name="h"
    )
    result = e.SessionResult(
        child_run_id=CHILD, child_agent="helper", content="42", answers=("open",)
    )
    failure = e.SessionResult(
        child_run_id=CHILD, child_agent="helper", content="", outcome="failed", reason="no luck",
        session=2, success=False,
    )  # fmt: skip
    events = stamped(*opened(), child, taken(result), taken(failure))
    thread = fold_all(EMPTY, [x for x in events if x.lane == "own"])
    told = [line["text"] for line in lines_of(events) if line["type"] == "system_message"]
    assert told == [m.content for m in thread.transcript[1:] if isinstance(m, UserMessage)]
    assert CHILD in told[0] and "no luck" in told[1]
    record, _ = follow(begin(INFO), events)
    assert json.loads(write_state(record, 0))["children"][0] == {
        "reference": CHILD, "agent": "helper", "name": "h", "status": "idle", "resumable": True,
        "reports": True,
    }  # fmt: skip


@pytest.mark.spec("P-01")
def test_a_state_has_the_keys_of_the_agent_types() -> None:
    record, _ = follow(begin(INFO), stamped(*CONVERSATION))
    state = json.loads(write_state(record, 7))
    assert list(state)[:9] == [
        "agent", "status", "title", "tags", "children", "active_stack", "terminated", "createdAt",
        "updatedAt",
    ]  # fmt: skip
    assert (state["agent"], state["status"], state["tags"]) == ("assistant", "running", ["a"])
    assert (state["terminated"], state["active_stack"], state["createdAt"]) == (None, [], 5)
    assert state["kv"] == {"colour": ["red"]}
    assert state["files"] == {"a.txt": {"digest": "d" * 64, "size": 3}}


def test_how_events_were_committed_changes_nothing() -> None:
    events = stamped(*CONVERSATION)
    record, lines = follow(begin(INFO), events)
    one, found = begin(INFO), []
    for event in events:
        one, more = follow(read_state(write_state(one, 0)).record, [event])
        found += more
    assert found == list(lines)
    assert write_state(one, 0) == write_state(record, 0)


@pytest.mark.spec("P-12")
def test_unknown_keys_and_kinds_survive() -> None:
    record, _ = follow(begin(INFO), stamped(*CONVERSATION))
    text = json.loads(write_state(record, 0)) | {"colour": {"of": "later"}}
    state = read_state(json.dumps(text).encode())
    again = json.loads(write_state(state.record, 0, state.unknown))
    assert again == text
    assert read_line(b'{"type": "later", "at": 1}') is None


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b'"x"', b"null", b'{"type": "start"}', b'{"type": 3}', b"{}",
     b'{"type": "user_message", "at": "x", "seq": 1, "text": "", "files": []}', b"\xff"],
)  # fmt: skip
def test_what_is_no_line_is_refused(line: bytes) -> None:
    with pytest.raises(BadValue, match="history"):
        read_line(line)


@pytest.mark.parametrize("key", ["status", "children", "kv", "pending", "run", "seq", "createdAt"])
def test_a_state_with_a_value_of_another_type_is_refused(key: str) -> None:
    record, _ = follow(begin(INFO), stamped(*CONVERSATION))
    text = json.loads(write_state(record, 0))
    for value in (7.5, None, ["x"], {"y": 1}):
        if type(text[key]) is type(value):
            continue
        with pytest.raises(BadValue, match=r"state\.json"):
            read_state(json.dumps(text | {key: value}).encode())


@pytest.mark.spec("L-03")
def test_what_a_model_is_told_of_an_answer_that_does_not_fit_is_a_line() -> None:
    events = stamped(
        *opened(),
        e.AgentText(step=1, text="warm"),
        e.AgentStep(step=1),
        e.AgentRetry(step=2, kind="output", error="no JSON"),
        e.AgentStep(step=2, calls=(ToolCall(name="final_answer", arguments="{}"),)),
        e.AgentToolComplete(step=2, name="final_answer", output="bad", is_error=True),
        e.AgentRetry(step=3, kind="output", error="bad", call_id="2.0"),
    )
    _, lines = follow(begin(INFO), events)
    told = [line.text for line in lines if line.__class__.__name__ == "SystemLine"]  # type: ignore[attr-defined]
    assert told == ["no JSON"]
    assert all(read_line(write_line(line)) == line for line in lines)
