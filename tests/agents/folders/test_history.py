"""What stands in ``history.jsonl`` and ``state.json``, and reading it back (AT, P-01, P-12)."""

import json
from typing import Any

import pytest
from msgspec import structs

from hubbub.agents.code.durable_steps import recall
from hubbub.agents.folders.history import follow
from hubbub.agents.folders.history_lines import read_line, write_line
from hubbub.agents.folders.read_back import read_back
from hubbub.agents.folders.state_file import begin, read_state, write_state
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.agents.state.area import Area
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.events import NO_USAGE, Event, FileRef, ToolCall
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
    record, lines = follow(begin(INFO), events)
    assert json.loads(write_state(record, 0))["children"][0] == {
        "reference": CHILD, "agent": "helper", "name": "h", "status": "idle", "resumable": True,
        "reports": True,
    }  # fmt: skip
    assert read_back(record, lines).thread.transcript == thread.transcript


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


def test_a_history_read_back_is_the_same_conversation() -> None:
    events = stamped(*CONVERSATION)
    thread = fold_all(EMPTY, [x for x in events if x.lane == "own"])
    record, lines = follow(begin(INFO), events)
    record = read_state(write_state(record, 0)).record
    back = read_back(record, [x for x in map(read_line, map(write_line, lines)) if x is not None])
    without = [
        structs.replace(m, thinking=()) if isinstance(m, AssistantMessage) else m
        for m in thread.transcript
    ]
    assert list(back.thread.transcript) == without
    assert back.thread.area == thread.area
    assert fold_all(EMPTY, back.events) == back.thread
    assert [x.seq for x in back.events] == list(range(1, len(back.events) + 1))
    assert back.warnings == ()


def test_a_call_that_was_running_is_read_back_as_started() -> None:
    for start in ((), (e.AgentToolStart(step=1, index=0, name="look"),)):
        events = stamped(*opened(), *step(1, "", ToolCall(name="look")), *start)
        record, lines = follow(begin(INFO), events)
        back = read_back(structs.replace(record, seq=0), lines)  # As if there were no state.
        assert back.thread.open is not None
        assert [call.status for call in back.thread.open.calls] == ["started"]


def test_a_call_that_waits_for_a_child_that_is_gone_is_answered() -> None:
    child = e.AgentChild(child_run_id=CHILD, child_agent="helper", waits=True, step=1, index=0)
    begun = e.AgentToolStart(step=1, index=0, name="helper")
    events = stamped(*opened(), *step(1, "", ToolCall(name="helper")), begun, child)
    record, lines = follow(begin(INFO), events)
    there = read_back(record, lines)
    assert there.thread.open is not None and there.thread.open.calls[0].child == CHILD
    assert there.thread.waits
    gone = read_back(record, lines, is_there=lambda _: False)
    last = gone.thread.transcript[-1]
    assert isinstance(last, AssistantMessage) and last.calls[0].output == LOST
    assert CHILD in gone.warnings[0]


def test_what_waits_in_the_inbox_comes_back() -> None:
    events = stamped(*opened())
    message = e.SessionMessage(content="later", key="x", lane="in", seq=2, run_id=RUN, at=99)
    record, lines = follow(begin(INFO), [*events, message])
    back = read_back(read_state(write_state(record, 0)).record, lines)
    assert [(x.seq, getattr(x, "content", None)) for x in back.pending] == [(2, "later")]
    assert len(back.items) == 2


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


def child(run_id: str = CHILD, **more: Any) -> e.AgentChild:
    return e.AgentChild(child_run_id=run_id, child_agent="helper", reports=True, **more)


def two_sided(*events: Event) -> tuple[Event, ...]:
    start, *rest = opened(once=True)
    return structs.replace(start, two_sided=True, once=True), *rest, *events


UNUSUAL: dict[str, tuple[Event, ...]] = {
    "a turn handed over with words": two_sided(
        *step(1, "Done so far."),
        e.SessionTurn(content="See here.", reason="response", side="side_b"),
        *step(2, "Go on.", side="side_b"), e.SessionTurn(side="side_a"), *step(3, "Better."),
    ),
    "a result told to side B": two_sided(
        *step(1, "x"), e.SessionTurn(side="side_b"), child(side="side_b", resumable=True),
        taken(e.SessionResult(child_run_id=CHILD, child_agent="helper", content="r\n\nr")),
        *step(2, "y", side="side_b"),
    ),
    "a start that failed": (
        *opened(),
        e.AgentChild(child_agent="helper", error="too many", side="side_a"),
        e.AgentChild(child_run_id=CHILD, child_agent="helper", error="too deep", side="side_a"),
    ),
    "subagents that start with the prompt": (
        *opened(), e.AgentImmediate(names=("helper", "other"), message="m", side="side_a"),
        child(immediate=True, waits=True, index=0, resumable=True),
        e.AgentChild(child_agent="other", immediate=True, index=1),
    ),
    "one of them, given up": (
        *opened(), e.AgentImmediate(names=("helper", "other"), message="m", side="side_a"),
        child(immediate=True, waits=True, index=0), e.AgentInterrupted(reason="stop"),
        e.SessionEnd(session=1, success=False, outcome="interrupted"),
    ),
    "variables that are waited for": (
        *opened(), e.SessionVariables(
            request_id="r1", names=("A",), required=("A",), child_agent="helper", owner="assistant",
            message="m", side="side_a", expires_at=9,
        ),
        e.SessionVariables(request_id="r2", child_agent="helper", side="side_a"),
        taken(e.SessionVariables(request_id="r2")),
    ),
    "a child that has ended": (
        *opened(), child(resumable=True), child("other", resumable=True),
        taken(e.SessionResult(child_run_id=CHILD, session=0, final=True)),
    ),
    "a name that was deleted and came again": (
        *opened(files=(FileRef(path="a.txt", digest="1", size=1),)),
        e.AgentFile(deleted=("a.txt",)),
        taken(
            e.SessionMessage(content="again", files=(FileRef(path="a.txt", digest="2", size=1),))
        ),
        e.AgentFile(files=(FileRef(path="b.txt", digest="3", size=1),)),
    ),
    "closing": (*opened(), *step(1, "x"), e.SessionEnd(session=1), taken(e.SessionClose())),
    "terminated": (
        *opened(), taken(e.SessionTerminate(reason="enough")),
        e.SessionEnd(session=1, success=False, outcome="terminated", reason="enough"),
        e.AgentComplete(success=False, outcome="terminated", reason="enough"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNUSUAL)
def test_what_is_unusual_is_read_back_too(what: str) -> None:
    events = stamped(*UNUSUAL[what])
    for end in range(1, len(events) + 1):
        own = [x for x in events[:end] if x.lane == "own"]
        record, lines = follow(begin(INFO), events[:end])
        if (
            not record.thread.origin.run_id
            or record.pending
            or record.drafts
            or (record.thread.terminated is not None and record.thread.phase != "ended")
        ):
            continue  # In the middle of a commit.
        back = read_back(read_state(write_state(record, 0)).record, lines)
        one, two = (
            without_passing(x) for x in (fold_all(EMPTY, back.events), fold_all(EMPTY, own))
        )
        for field in two.__struct_fields__:
            assert getattr(one, field) == getattr(two, field), (field, end)


def without_passing(thread: Thread) -> Thread:
    """The thread without what a folder does not tell: numbers of turns, the last step's own."""
    return structs.replace(
        thread, turn=0, session_turns=0, turn_steps=0, closed=None, restarts=0, draft_text="",
        usage=NO_USAGE, has_spoken=False, side=thread.side if thread.in_session else "",
        area=Area(thread.area.files, {k: v.copy() for k, v in thread.area.keys.items()}),
        outcome=None if thread.outcome is None else structs.replace(
            thread.outcome, output_json=thread.outcome.output_json.copy()
        ),
    )  # fmt: skip


def test_what_steps_of_a_code_agent_have_come_to_is_kept() -> None:
    spawned = e.AgentChild(child_run_id=CHILD, child_agent="little", index=1)
    done = e.AgentRecord(name="fetch", index=1, value_json=encode_value("value", {"n": 1}))
    events = stamped(*opened(), done, spawned, *step(2, "b"), *step(1, "a", ToolCall(name="t")))
    record, lines = follow(begin(INFO), events)
    back = recall(read_back(read_state(write_state(record, 0)).record, lines).events)
    was = recall([x for x in events if x.lane == "own"])
    assert {key: bytes(value) for key, value in back.steps.items()} == {
        key: bytes(value) for key, value in was.steps.items()
    }
    assert {number: x.child_run_id for number, x in back.children.items()} == {1: CHILD}
    assert [(x.step, x.index) for x in back.lost] == [(x.step, x.index) for x in was.lost]
