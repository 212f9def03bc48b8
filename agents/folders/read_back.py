"""``read_back``: a run's own lane, made again from what its folder says.

    Record, lines → ReadBack         own events; items of the inbox; warnings

Rules
-----
* Folded, the events give the conversation that the history tells, and everything else that the
  record says: children, status, files, values, what waits, how it ended.
* Reasoning, retries and restarts are not in a folder, so they are not made again.  The end of a
  session that is not the latest says that it was read back, as nobody knows any more.
* What becomes of calls without a result: see read_back_calls.py.
* A record that is behind the history counts for what the history does not tell.
* A takeover does not survive: a frame is over, and what waited in its inbox is lost.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from hubbub.agents.folders.history_lines import (
    AssistantLine,
    File,
    Line,
    OfResult,
    RecordLine,
    ResetLine,
    StartLine,
    SystemLine,
    ToolResultLine,
    UserLine,
)
from hubbub.agents.folders.read_back_calls import ReadBackCalls
from hubbub.agents.folders.read_back_family import register, restore_family
from hubbub.agents.folders.rewritten_lane import RewrittenLane
from hubbub.agents.folders.state_file import Record
from hubbub.agents.state.family import OPENING, Child
from hubbub.agents.state.thread import Thread
from hubbub.agents.state.transcript import other_side
from hubbub.hub import events as e
from hubbub.hub.events import Event, FileRef, InLane, ToolCall
from hubbub.hub.values import NULL, Json, encode_value

__all__ = ["ReadBack", "read_back"]

UNKNOWN_END: Final = "read back from files"
FRAME_LOST: Final = "its conversation was read back from files"
MAX_MISSING: Final = 1_000
"""Sessions or turns without any line that are filled in, one by one."""


class ReadBack(Struct, frozen=True, kw_only=True):
    """What a folder comes to.  ``items`` are all of the inbox, taken or not, in order."""

    events: tuple[Event, ...]
    items: tuple[InLane, ...]
    pending: tuple[InLane, ...]
    thread: Thread
    warnings: tuple[str, ...]


def read_back(
    record: Record,
    lines: Sequence[Line],
    *,
    is_there: Callable[[str], bool] = lambda _: True,
    descriptor: Json = NULL,
) -> ReadBack:
    """The events of a run whose folder says this; ``is_there`` knows which runs exist."""
    reader = _Reader(record, lines, is_there, descriptor)
    reader.read()
    return ReadBack(
        events=tuple(reader.lane.events),
        items=(*reader.lane.items, *reader.pending),
        pending=tuple(reader.pending),
        thread=reader.lane.thread,
        warnings=tuple(reader.warnings),
    )


class _Reader:
    def __init__(
        self,
        record: Record,
        lines: Sequence[Line],
        is_there: Callable[[str], bool],
        descriptor: Json,
    ) -> None:
        self.record = record
        self.descriptor = descriptor
        self.goal = record.thread
        self.lines = lines
        self.lane = RewrittenLane(record)
        self.pending: list[InLane] = []
        self.warnings: list[str] = []
        self.answered = {(x.step, x.index) for x in lines if isinstance(x, ToolResultLine)}
        self.calls = ReadBackCalls(self.lane, self.warnings, is_there)
        self.fits = not lines or record.seq >= lines[-1].seq
        """Whether the record has come as far as the history."""

    def read(self) -> None:
        start = next((x for x in self.lines if isinstance(x, StartLine)), None)
        if start is None and self.lines:
            self.warnings.append("history.jsonl has no start; it is read without one")
        if start is not None or self.lines or self.goal.phase != "new" or not self.record.pending:
            self._begin(start)
            for line in self.lines:
                self.lane.at = line.at
                self._line(line)
            self.lane.at = max(self.lane.at, self.record.updated_at)
            self._finish()
        if self.goal.origin.frame:
            if self.record.pending:
                count = len(self.record.pending)
                self.warnings.append(f"{count} messages to a takeover frame that is over are lost")
            return
        for item in self.record.pending:
            self.pending.append(
                self.lane.numbered(item, len(self.lane.items) + len(self.pending) + 1)
            )

    # ── the beginning ────────────────────────────────────────────────────────────────────────

    def _begin(self, start: StartLine | None) -> None:
        goal, record = self.goal, self.record
        opening = next((x for x in self.lines if isinstance(x, UserLine) and x.opening), None)
        said: Json = NULL
        if opening is not None:
            text = opening.input is NULL
            said = encode_value("input", opening.text) if text else opening.input.copy()
        if start is None:
            start = StartLine(
                at=record.created_at, seq=1, agent=goal.agent or record.agent,
                two_sided=goal.two_sided, once=goal.once, session_key=record.session_key,
                tags=record.tags,
            )  # fmt: skip
        self.lane.at = start.at
        self.lane.put(
            e.AgentStart(
                agent=start.agent,
                input_json=said if start.input is NULL else start.input.copy(),
                correlation_id=start.correlation_id, session_key=start.session_key,
                name=start.name, tags=start.tags, two_sided=start.two_sided, once=start.once,
            )
        )  # fmt: skip
        if opening is not None:
            self._advance(opening)
        self.lane.take(
            e.SessionOpen(
                open_agent=start.agent, input_json=said, session_key=start.session_key,
                correlation_id=start.correlation_id, name=goal.origin.name or start.name,
                once=start.once and not goal.origin.is_conversation,
                tags=start.tags, receives=goal.origin.receives, descriptor_json=self.descriptor,
                reports=goal.origin.reports, depth=goal.origin.depth, frame=goal.origin.frame,
                files=_refs(opening.files) if opening is not None else (),
            )
        )  # fmt: skip
        starting = {start.child for start in goal.family.starts if start.child}
        given_up = {child for child, key in goal.family.given_up if key == OPENING}
        waited = {x.waited.child for x in self.lines if isinstance(x, ToolResultLine) and x.waited}
        late = (starting | given_up) - waited
        for child in goal.family.children:
            if child.run_id in late:
                break  # They are made again with what they are waited for.
            register(self.lane, child)

    # ── sessions and turns ───────────────────────────────────────────────────────────────────

    def _advance(self, line: Line) -> None:
        """Advance to the session, turn and side of a line."""
        self._to_session(line.session, line.turn, line.side or "side_a")
        if line.side:
            self._to_turn(line.turn, line.side)

    def _to_session(self, session: int, turn: int, side: str) -> None:
        if session - self.lane.thread.session > MAX_MISSING:
            self._start_session(session, side)
        while self.lane.thread.session < session:
            ahead = turn - self.lane.thread.turn - 1
            is_last = self.lane.thread.session + 1 == session
            first = other_side(side) if is_last and ahead > 0 and ahead % 2 else side
            self._start_session(self.lane.thread.session + 1, first)

    def _start_session(self, session: int, side: str) -> None:
        if self.lane.thread.in_session:
            self.lane.put(self._session_end())
        self.lane.put(e.SessionStart(session=session, side=side))

    def _to_turn(self, turn: int, side: str) -> None:
        if turn - self.lane.thread.turn > MAX_MISSING:
            turn = self.lane.thread.turn
        while self.lane.thread.turn < turn:
            after = other_side(self.lane.thread.side)
            self.lane.put(
                e.SessionTurn(side=after, turn=self.lane.thread.turn + 1, reason="response")
            )
        if self.lane.thread.side != side:
            self.lane.put(
                e.SessionTurn(side=side, turn=self.lane.thread.turn + 1, reason="response")
            )

    def _session_end(self) -> Event:
        thread, last = self.lane.thread, self.goal.outcome
        if last is None or last.session != thread.session:
            return e.SessionEnd(
                session=thread.session, reason=UNKNOWN_END, usage=thread.usage, turn=thread.turn
            )
        return e.SessionEnd(
            session=last.session, success=last.success, outcome=last.outcome, reason=last.reason,
            output_json=last.output_json, usage=last.usage, turn=thread.turn,
        )  # fmt: skip

    # ── lines ────────────────────────────────────────────────────────────────────────────────

    def _line(self, line: Line) -> None:
        match line:
            case StartLine():
                pass
            case UserLine(opening=True):
                pass
            case UserLine() | SystemLine(is_turn=False, result=None, failed_start=""):
                self._advance(line)
                self._message(line)
            case SystemLine():
                self._told(line)
            case ResetLine():
                self._advance(line)
                self.calls.unanswered.clear()
                self.lane.take(e.SessionReset(message=line.message))
            case AssistantLine():
                self._advance(line)
                self._said(line)
            case ToolResultLine():
                self._answer(line)
            case RecordLine():
                value = line.value.copy()
                self.lane.put(e.AgentRecord(name=line.name, index=line.index, value_json=value))

    def _message(self, line: UserLine | SystemLine) -> None:
        is_user = isinstance(line, UserLine)
        self._make_room(line.files)
        self.lane.take(
            e.SessionMessage(
                content=line.text, role="user" if isinstance(line, UserLine) else line.role,
                source=line.source if isinstance(line, UserLine) else line.origin, key=line.key,
                attachments=tuple(file.path for file in line.files if not file.digest),
                files=_refs(line.files),
                silent=False if is_user else line.silent,  # type: ignore[union-attr]
                triggers=line.triggers, prompt_id=line.prompt_id, redelivered=line.redelivered,
                metadata_json=line.metadata.copy() if line.metadata is not NULL else NULL,
            )
        )  # fmt: skip

    def _told(self, line: SystemLine) -> None:
        if line.is_turn:
            self._to_session(line.session, line.turn - 1, other_side(line.to or "side_a"))
            self._to_turn(line.turn - 1, other_side(line.to or "side_a"))
            self.lane.put(
                e.SessionTurn(content=line.text, reason=line.reason, side=line.to, turn=line.turn)
            )
            return
        self._advance(line)
        if line.result is None:
            reference = line.origin if line.origin != line.failed_start else ""
            self.lane.put(
                e.AgentChild(
                    child_run_id=reference, child_agent=line.failed_start, error=line.reason,
                    side=line.to,
                )
            )  # fmt: skip
            return
        self._result(line, line.result)

    def _result(self, line: SystemLine, result: OfResult) -> None:
        if self.lane.thread.family.find(line.origin) is None:
            child = self.goal.family.find(line.origin) or Child(
                run_id=line.origin, agent=result.agent, name=result.name,
                side=line.to or "side_a", reports=True,
            )  # fmt: skip
            register(self.lane, child)
        content = result.content
        if content is None:
            _, gap, content = line.text.partition("\n\n")
            content = content if gap else line.text
        self._make_room(line.files)
        self.lane.take(
            e.SessionResult(
                child_run_id=line.origin, child_agent=result.agent, name=result.name,
                session=result.session, success=result.success, outcome=result.outcome,
                reason=result.reason, content=content, files=_refs(line.files),
                answers=result.answers, final=result.final,
            )
        )  # fmt: skip

    def _make_room(self, files: tuple[File, ...]) -> None:
        """Names that were free when these files came, as what stood there was deleted."""
        taken = self.lane.thread.area.files
        gone = tuple(file.path for file in files if file.digest and file.path in taken)
        if gone:
            self.lane.put(e.AgentFile(deleted=gone))

    def _said(self, line: AssistantLine) -> None:
        place: dict[str, Any] = {
            "turn": self.lane.thread.turn, "side": line.side or "side_a", "label": line.label,
        }  # fmt: skip
        if not line.step:
            self.lane.put(e.AgentText(text=line.text, call_id=line.call, **place))
            return
        for step, index in list(self.calls.unanswered):
            if (step, index) not in self.answered:
                self.warnings.append(f"call {index} of step {step} has no result in the history")
                self.calls.lose(step, index)
        if line.text:
            self.lane.put(e.AgentText(step=line.step, text=line.text, **place))
        calls = tuple(
            ToolCall(name=call.name, arguments=call.arguments) for call in line.tool_calls
        )
        self.lane.put(
            e.AgentStep(
                step=line.step, calls=calls, usage=line.usage, stop_reason=line.stop_reason,
                model=line.model, parallel=line.parallel, **place,
            )
        )  # fmt: skip
        self.calls.unanswered |= {(line.step, index): call for index, call in enumerate(calls)}

    def _answer(self, line: ToolResultLine) -> None:
        if line.waited is not None:
            self.calls.wait(line.step, line.index, line.waited.child, line.waited.key)
        self.calls.unanswered.pop((line.step, line.index), None)
        self.lane.put(
            e.AgentToolComplete(
                step=line.step, index=line.index, name=line.name, output=line.output,
                is_error=line.is_error, attachments=line.attachments, ran=line.ran,
                notes=line.notes, side=line.side or "side_a", turn=self.lane.thread.turn,
                call_id=f"{line.step}.{line.index}",
            )
        )  # fmt: skip

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> None:
        goal = self.goal
        self.calls.go_on(goal.open if self.fits else None)
        if goal.agent and goal.agent != self.lane.thread.agent:
            self.lane.put(e.AgentHandoff(to=goal.agent))
        restore_family(self.lane)
        for child in goal.family.children:
            if child.takeover and not child.ended:
                self.lane.take(e.SessionResult(child_run_id=child.run_id, session=0, final=True))
        self._area()
        if not self.fits:
            self.warnings.append(
                "state.json is missing or older than history.jsonl: files, values, children "
                "and waiting messages may be out of date"
            )
            if self._has_answered():
                self.lane.put(self._session_end())
        else:
            self._session()
        if goal.closing:
            self.lane.take(e.SessionClose())
        if goal.terminated is not None:
            self.lane.take(e.SessionTerminate(at=goal.terminated))
        self._status()

    def _has_answered(self) -> bool:
        """Whether a model's answer is the last that is known of a session with a person."""
        last = self.lines[-1]
        answered = isinstance(last, AssistantLine) and bool(last.step) and not last.tool_calls
        return answered and self.lane.thread.in_session and not self.lane.thread.two_sided

    def _session(self) -> None:
        goal = self.goal
        self._to_session(goal.session, goal.turn, goal.side)
        if goal.two_sided and goal.in_session:
            self._to_turn(goal.turn, goal.side)
        if self.lane.thread.in_session and not goal.in_session:
            self.lane.put(self._session_end())

    def _status(self) -> None:
        goal = self.goal
        if goal.origin.frame and goal.phase != "ended":
            self._end_frame()
            return
        if goal.phase == "ended" or goal.terminated is not None:
            last = goal.outcome
            if last is None:
                ended = e.AgentComplete(success=False, outcome="terminated", reason=UNKNOWN_END)
            else:
                ended = e.AgentComplete(
                    success=last.success, outcome=last.outcome, reason=last.reason,
                    output_json=last.output_json, usage=last.usage,
                )  # fmt: skip
            self.lane.put(ended)
            return
        if self.fits and goal.phase != "new" and goal.status != self.lane.thread.status:
            self.lane.put(e.AgentStatus(status=goal.status))
        is_guess = not self.fits or goal.phase == "new"
        if goal.parked or (is_guess and not self.lane.thread.in_session):
            self.lane.put(e.AgentPark())

    def _end_frame(self) -> None:
        """Its caller learns that it may have run, and waits no longer."""
        thread = self.lane.thread
        fields: dict[str, Any] = {
            "success": False, "outcome": "terminated", "reason": FRAME_LOST, "usage": thread.usage,
        }  # fmt: skip
        if thread.in_session:
            self.lane.put(e.SessionEnd(session=thread.session, turn=thread.turn, **fields))
        self.lane.put(e.AgentComplete(**fields))

    def _area(self) -> None:
        goal, area = self.goal.area, self.lane.thread.area
        files = tuple(ref for path, ref in goal.files.items() if area.files.get(path) != ref)
        gone = tuple(path for path in area.files if path not in goal.files)
        if not self.fits:
            gone = ()
        if files or gone:
            self.lane.put(e.AgentFile(files=files, deleted=gone))
        for key, value in goal.keys.items():
            self.lane.put(e.AgentKey(key=key, value_json=value))


def _refs(files: tuple[File, ...]) -> tuple[FileRef, ...]:
    return tuple(
        FileRef(path=file.path, digest=file.digest, size=file.size) for file in files if file.digest
    )
