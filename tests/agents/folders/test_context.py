"""A conversation with its takeover frames, as ``context.jsonl`` and ``active_stack`` tell it."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

sys.path.append(str(Path(__file__).parents[2]))

from support.conversations import (
    MAIN,
    RESEARCH,
    START,
    WRITER,
    Book,
    end,
    nested,
    pop,
    push,
    said,
    skill,
    step,
    wants,
)
from support.histories import STORIES, lived

from hubbub.agents.folders.conversation import begin_context, follow_context, seen_with
from hubbub.agents.folders.conversation_lines import (
    AgentSessionCompleteEntry,
    AgentSessionEntry,
    Entry,
    read_entry,
    timestamp,
    write_entry,
)
from hubbub.agents.folders.history import follow
from hubbub.agents.folders.stack_frame_meta import StackFrameMeta
from hubbub.agents.folders.stack_view import stack_of
from hubbub.agents.folders.state_file import begin, read_state, write_state
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue


def told(book: Book) -> list[dict[str, Any]]:
    _, entries = follow_context(begin_context(MAIN), book.events)
    return [json.loads(write_entry(entry)) for entry in entries]


def stack(book: Book) -> list[str]:
    return [frame.agent_name for frame in stack_of(book.events, MAIN)]


# ── entries ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-11")
def test_a_takeover_is_told_in_order_tagged_with_its_speakers() -> None:
    book = Book()
    skill(book)
    lines = told(book)
    shown = [
        (x["type"], x.get("agent_session_id", x.get("id")), x.get("content", x.get("output")))
        for x in lines
    ]
    assert shown == [
        ("user_message", MAIN, "research Python async APIs"),
        ("assistant_message", MAIN, "Let me ask."),
        ("tool_use", MAIN, None),
        ("agent_session", RESEARCH, None),
        ("user_message", RESEARCH, "Python async APIs"),
        ("assistant_message", RESEARCH, "I'll search for Python async APIs."),
        ("user_message", RESEARCH, "focus on 3.13"),
        ("tool_use", RESEARCH, None),
        ("tool_result", RESEARCH, "three"),
        ("tool_use", RESEARCH, None),
        ("tool_result", RESEARCH, "Completed."),
        ("agent_session_complete", RESEARCH, None),
        ("tool_result", MAIN, "found 3 APIs"),
        ("assistant_message", MAIN, "There are three."),
    ]
    assert [x["created_at"] for x in lines] == sorted(x["created_at"] for x in lines)
    assert lines[0]["created_at"] == "2026-01-01T00:00:02.000002Z"


@pytest.mark.spec("I-11")
def test_push_and_pop_are_entries_with_the_fields_of_ia() -> None:
    book = Book()
    skill(book)
    lines = told(book)
    pushed, popped = lines[3], lines[11]
    assert list(pushed.items())[:-1] == [
        ("type", "agent_session"), ("id", RESEARCH), ("agent_name", "skill:research"),
        ("agent_type", "skill"), ("parent_tool_use_id", "call_1_0"),
        ("parent_agent_session_id", MAIN), ("model", "large"),
    ]  # fmt: skip
    assert list(popped.items())[:-1] == [
        ("type", "agent_session_complete"), ("agent_session_id", RESEARCH),
        ("result", "found 3 APIs"), ("is_error", False),
    ]  # fmt: skip
    use, result = lines[2], lines[12]
    assert use["id"] == result["tool_use_id"] == pushed["parent_tool_use_id"]
    assert use["input"] == {"name": "research", "message": "Python async APIs"}
    assert list(use) == ["type", "id", "name", "input", "agent_session_id", "created_at"]
    assert list(result) == [
        "type", "tool_use_id", "output", "is_error", "agent_session_id", "created_at",
    ]  # fmt: skip
    assert list(lines[0]) == ["type", "content", "agent_session_id", "created_at"]


@pytest.mark.spec("I-11")
@pytest.mark.parametrize("take", [0, 1])
def test_every_pop_is_told_with_its_error(take: int) -> None:
    """Over a limit (its result was taken), or cancelled (nothing was)."""
    book = Book()
    skill(book, complete=False)
    if take:
        ending = {"success": False, "outcome": "limit", "reason": "limit"}
        end(book, RESEARCH, MAIN, "skill:research", "", **ending)
    pop(book, MAIN, RESEARCH, "skill:research", "1.0", "no luck", depth=1, is_error=True, take=take)
    *_, popped, result = told(book)
    assert (popped["type"], popped["result"], popped["is_error"]) == (
        "agent_session_complete", "no luck", True,
    )  # fmt: skip
    assert (result["type"], result["agent_session_id"]) == ("tool_result", MAIN)
    assert stack(book) == []


def test_an_answer_ahead_of_its_pop_is_the_same_pop() -> None:
    book = Book()
    skill(book, complete=False)
    book.commit(
        MAIN,
        e.AgentToolComplete(step=1, index=0, output="stopped", is_error=True, call_id="1.0"),
        e.SessionPop(frame_run_id=RESEARCH, depth=1, is_error=True, call_id="1.0"),
    )
    assert [x["type"] for x in told(book)][-2:] == ["tool_result", "agent_session_complete"]
    assert stack(book) == []


def test_a_frame_that_is_popped_at_work_is_heard_until_its_run_is_over() -> None:
    book = Book()
    skill(book, complete=False)
    pop(book, MAIN, RESEARCH, "skill:research", "1.0", "cancelled", depth=1, is_error=True, take=0)
    book.commit(RESEARCH, *step(3, "One more thing."))
    end(book, RESEARCH, MAIN, "skill:research", "", success=False, outcome="interrupted")
    context, entries = follow_context(begin_context(MAIN), book.events)
    assert [getattr(x, "content", "") for x in entries][-1] == "One more thing."
    assert list(context.speakers) == [MAIN]


def test_what_others_say_is_told_with_its_origin_and_who_is_isolated_is_not_heard() -> None:
    book = Book()
    book.begin("hello")
    opening = e.SessionOpen(open_agent="helper", name="helper", reports=True)
    child = e.AgentChild(child_run_id=WRITER, child_agent="helper", reports=True)
    book.commit(MAIN, *step(1, "Wait."), child, mail=((WRITER, opening),))
    book.commit(WRITER, e.AgentStart(), take=1)
    book.commit(WRITER, *step(1, "nobody hears this"))
    end(book, WRITER, MAIN, "helper", "42")
    book.tell(MAIN, e.SessionMessage(content="psst", source="cron", silent=True))
    book.commit(MAIN, take=2)
    lines = told(book)
    assert {x["agent_session_id"] for x in lines} == {MAIN}
    assert [x.get("origin") for x in lines] == [None, None, WRITER, "cron"]
    assert "42" in lines[2]["content"]


def test_a_reset_is_an_entry_of_its_own() -> None:
    book = Book()
    book.begin("hello")
    book.tell(MAIN, e.SessionReset(message="afresh"))
    book.commit(MAIN, take=1)
    assert told(book)[-1] == {
        "type": "reset", "message": "afresh", "agent_session_id": MAIN,
        "created_at": timestamp(START + 4 * 1_000_001),
    }  # fmt: skip


def test_a_word_that_is_acted_upon_is_not_told() -> None:
    book = Book()
    skill(book, complete=False)
    book.tell(MAIN, said(" STOP "))
    before = len(told(book))
    book.commit(MAIN, take=1)
    assert len(told(book)) == before


def test_what_is_no_json_is_told_as_text() -> None:
    book = Book()
    book.begin("hello")
    book.commit(MAIN, *step(1, "", wants("look", '{"at": \ud800'), wants("look", '{"a":1}')))
    assert [x["input"] for x in told(book)[1:]] == ['{"at": \ufffd', {"a": 1}]


def test_how_events_were_read_changes_nothing() -> None:
    book = Book()
    nested(book)
    end(book, RESEARCH, WRITER, "skill:research", "three")
    pop(book, WRITER, RESEARCH, "skill:research", "1.0", "three", depth=2)
    whole, entries = follow_context(begin_context(MAIN), book.events)
    for seed in range(20):
        draw = random.Random(seed)
        found: list[Entry] = []
        context, at = begin_context(MAIN), 0
        while at < len(book.events):
            size = draw.randint(1, 9)
            context, more = follow_context(context, book.events[at : at + size])
            found += more
            at += size
        assert tuple(found) == entries
        assert context == whole


def test_other_runs_and_lanes_change_nothing() -> None:
    book = Book()
    nested(book)
    alone = [x for x in book.events if x.lane == "own"]
    other = structs.replace(e.AgentText(text="x"), run_id="other", lane="own", seq=1)
    mixed = [y for x in alone for y in (x, other)]
    one, two = (follow_context(begin_context(MAIN), x) for x in (alone, mixed))
    assert one == two


# ── the stack ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-11")
def test_the_stack_goes_from_main_to_the_top() -> None:
    book = Book()
    nested(book)
    main, writer, research = stack_of(book.events, MAIN)
    assert main == StackFrameMeta(
        frame_id=MAIN, agent_session_id=MAIN, agent_name="main", agent_type="main", model="small",
        iteration=1,
    )  # fmt: skip
    assert writer == StackFrameMeta(
        frame_id=WRITER, agent_session_id=WRITER, agent_name="writer", agent_type="agent",
        model="large", iteration=1, max_iterations=25, parent_tool_use_id="call_1_1",
        effective_tools=("complete", "search"), environment={"TOKEN": "***"},
    )  # fmt: skip
    assert (research.agent_name, research.agent_type, research.is_skill_agent) == (
        "skill:research", "skill", True,
    )  # fmt: skip
    assert research.parent_tool_use_id == "call_1_0"


@pytest.mark.spec("I-11", "I-05")
def test_iterations_are_those_of_the_activation_at_work() -> None:
    book = Book()
    skill(book, complete=False)
    assert stack_of(book.events, MAIN)[1].iteration == 1  # Of the session of the user's message.
    book.commit(RESEARCH, *step(3, "Hm.", wants("search", "{}")))
    assert stack_of(book.events, MAIN)[1].iteration == 2


def test_each_pop_takes_one_frame_off_the_stack() -> None:
    book = Book()
    assert stack_of([], MAIN) == ()
    nested(book)
    assert stack(book) == ["main", "writer", "skill:research"]
    end(book, RESEARCH, WRITER, "skill:research", "three")
    assert stack(book) == ["main", "writer", "skill:research"]  # Until the call is answered.
    pop(book, WRITER, RESEARCH, "skill:research", "1.0", "three", depth=2)
    assert stack(book) == ["main", "writer"]
    end(book, WRITER, MAIN, "writer", "done")
    pop(book, MAIN, WRITER, "writer", "1.1", "done", depth=1)
    assert stack(book) == []


def test_a_pop_below_the_top_takes_what_is_above_with_it() -> None:
    book = Book()
    nested(book)
    pop(book, MAIN, WRITER, "writer", "1.1", "stopped", depth=1, is_error=True, take=0)
    assert stack(book) == []


def test_a_root_that_is_over_has_no_stack() -> None:
    book = Book()
    nested(book)
    book.commit(MAIN, e.SessionEnd(), e.AgentComplete(outcome="terminated", success=False))
    assert stack(book) == []


def test_a_second_takeover_of_the_same_step_is_told_beside_the_first() -> None:
    book = Book()
    book.begin("both")
    calls = wants("use_agent", "{}"), wants("use_skill", "{}")
    book.commit(MAIN, *step(1, "", *calls))
    push(book, MAIN, WRITER, "writer", "1.0", "one", depth=2)
    end(book, WRITER, MAIN, "writer", "first")
    pop(book, MAIN, WRITER, "writer", "1.0", "first", depth=1)
    push(book, MAIN, RESEARCH, "skill:research", "1.1", "two", depth=2)
    assert stack(book) == ["main", "skill:research"]
    end(book, RESEARCH, MAIN, "skill:research", "second")
    pop(book, MAIN, RESEARCH, "skill:research", "1.1", "second", depth=1)
    ends = [x for x in told(book) if x["type"] == "agent_session_complete"]
    assert [(x["agent_session_id"], x["result"]) for x in ends] == [
        (WRITER, "first"), (RESEARCH, "second"),
    ]  # fmt: skip


@pytest.mark.spec("I-11")
def test_of_frames_beside_each_other_the_stack_shows_the_one_that_has_the_conversation() -> None:
    events = [x for x in lived(STORIES["beside"]).events if x.lane == "own"]
    root, threads = events[0].root_run_id, dict[str, Thread]()
    shown = set()
    for number, event in enumerate(events):
        threads[event.run_id] = fold(threads.get(event.run_id, EMPTY), event)
        if not isinstance(event, e.AgentPark):
            continue
        expected, at = [root], threads[root].frame
        while at is not None:
            expected.append(at.child)
            at = threads[at.child].frame
        found = [frame.frame_id for frame in stack_of(events[: number + 1], root)]
        assert found == (expected if len(expected) > 1 else []), event.id
        shown.update(found)
    assert len(shown) > 5


# ── state.json ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-11", "P-01")
def test_a_stack_is_written_into_the_state_and_read_again() -> None:
    book = Book()
    nested(book)
    info = book.info(MAIN)
    assert info is not None
    record, _ = follow(begin(info), book.of(MAIN))
    frames = stack_of(book.events, MAIN)
    text = write_state(record, 7, {}, frames)
    assert [list(x)[:4] for x in json.loads(text)["active_stack"]] == [
        ["frame_id", "agent_session_id", "agent_name", "agent_type"]
    ] * 3
    again = read_state(text)
    assert (again.stack, again.record.took_over) == (frames, True)
    assert again.record.thread == record.thread


@pytest.mark.spec("I-13")
def test_what_a_frame_has_taken_no_longer_waits_for_the_root() -> None:
    book = Book()
    skill(book, complete=False)
    book.tell(MAIN, said("and 3.14"))
    info = book.info(MAIN)
    assert info is not None
    record, _ = follow(begin(info), book.of(MAIN))
    assert [getattr(x, "content", "") for x in record.pending] == ["focus on 3.13", "and 3.14"]
    context, _ = follow_context(begin_context(MAIN), book.events)
    shown = seen_with(record, context)
    assert [getattr(x, "content", "") for x in shown.pending] == ["and 3.14"]
    frame = book.info(RESEARCH)
    assert frame is not None
    of_frame, _ = follow(begin(frame), book.of(RESEARCH))
    assert of_frame.pending == ()


# ── lines ────────────────────────────────────────────────────────────────────────────────────


def test_an_entry_is_read_as_it_was_written() -> None:
    book = Book()
    nested(book)
    _, entries = follow_context(begin_context(MAIN), book.events)
    odd: list[Entry] = [
        AgentSessionEntry(
            id="x", agent_name="\ud800", agent_type="agent", parent_tool_use_id="",
            parent_agent_session_id="", model=None, created_at=timestamp(10**30),
        ),
        AgentSessionCompleteEntry(
            agent_session_id="x", result="a\nb", is_error=True, created_at=timestamp(-5)
        ),
    ]  # fmt: skip
    for entry in (*entries, *odd):
        data = write_entry(entry)
        assert data.count(b"\n") == 1
        found = read_entry(data)
        assert found is not None and write_entry(found) == data
    assert read_entry(b'{"type":"of_later"}') is None
    for bad in (b"{}", b"[]", b'{"type":"tool_use"}', b'{"type":"user_message","content":3}'):
        with pytest.raises(BadValue, match="context"):
            read_entry(bad)


def test_times_have_microseconds_and_a_z() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00.000000Z"
    assert timestamp(1_767_225_600_000_001) == "2026-01-01T00:00:00.000001Z"
