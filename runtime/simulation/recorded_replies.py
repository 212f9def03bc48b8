"""Recorded replies: a model and tools that answer as those of a recording did.

    Replies          which answer is next, run by run, and when
    RecordedModel    a model that gives them back
    recorded_tool    a tool that is not called: its recorded result is given back

An answer comes at the time at which it came, in virtual time, so whatever was said meanwhile is
said meanwhile again.  What was never answered (a call that was interrupted, or cut off by the end
of the recording) is not answered either.  Calls that failed and were tried again are left out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import anyio
from msgspec import Struct

from hubbub.agents.model import ModelReply, ModelRequest, OnDelta, TextDelta, Thinking
from hubbub.agents.run_state import RunState
from hubbub.agents.tools import Tool, ToolError, ToolResult
from hubbub.hub import events as e
from hubbub.hub.errors import ModelRefused
from hubbub.hub.events import Event
from hubbub.hub.ports import Clock
from hubbub.runtime.current_run import CURRENT_RUN
from hubbub.runtime.simulation.recording import Placed, RecordedRun, Recording

__all__ = ["RecordedModel", "Replies", "recorded_tool", "recorded_tools"]

STATE: Final = "__hubbub_state"
"""The argument that brings a recorded tool its run; no parameter of a tool's own."""


class _Answer(Struct, frozen=True):
    """What a model call came to: a reply, or the words in which it failed."""

    place: int
    at: int
    reply: ModelReply | None = None
    problem: str = ""


class _Result(Struct):
    """What a tool call came to, with what it wrote on the way."""

    place: int
    event: e.AgentToolComplete
    written: list[e.AgentFile | e.AgentKey]
    is_cut_off: bool = False
    """Whether it was interrupted: it came to nothing by itself."""
    is_given: bool = False


class Replies:
    """The answers of a recording, each given once, to the run that corresponds to its own.

    ``reach(place)`` is called before an answer is given: what stands before it in the recording
    has happened by then.  ``runs`` says which run of the recording a run of now is; who plays the
    recording fills it in.
    """

    def __init__(
        self, recording: Recording, clock: Clock, reach: Callable[[int], None] = lambda _: None
    ) -> None:
        self.runs: dict[str, str] = {}
        self._contents = recording.contents
        self._clock = clock
        self._reach = reach
        self._answers = {run.run_id: list(_answers(run)) for run in recording.runs.values()}
        self._results = {run.run_id: list(_results(run)) for run in recording.runs.values()}
        self._waits = {run.run_id for run in recording.runs.values() if _waits_for_more(run)}
        self._given: dict[str, int] = defaultdict(int)

    # ── models ───────────────────────────────────────────────────────────────────────────────

    async def reply(self, model: str) -> ModelReply:
        """The next answer of the run at work; raises ``ModelRefused`` where there is none."""
        run_id = self._recorded(model)
        number, answers = self._given[run_id], self._answers[run_id]
        if number >= len(answers):
            if run_id in self._waits:
                await anyio.sleep_forever()
            problem = f"call {number + 1} of this run, and the recording has {len(answers)}"
            raise ModelRefused(model, "script", problem)
        answer = answers[number]
        await self.wait_until(answer.at, answer.place)
        # Counted only now: one that is interrupted meanwhile was not given.
        self._given[run_id] = number + 1
        if answer.reply is None:
            name, _, problem = answer.problem.rpartition(": ")
            raise ModelRefused(name or model, "script", problem)
        return answer.reply

    def _recorded(self, model: str) -> str:
        run_id = self.runs.get(CURRENT_RUN.get(), "")
        if not run_id:
            raise ModelRefused(model, "script", "there is no such run in the recording")
        return run_id

    # ── tools ────────────────────────────────────────────────────────────────────────────────

    async def result(self, name: str, state: RunState) -> ToolResult:
        """What the call of a tool came to; what it wrote is written again.

        Raises ``ToolError`` for a call that is not in the recording.
        """
        results = self._results.get(self.runs.get(state.run_id, ""), [])
        left = [x for x in results if not x.is_given]
        found = next((x for x in left if x.event.call_id == state.call_id), None)
        if found is None or not _is_of(found.event, name):
            found = next((x for x in left if _is_of(x.event, name)), None)
        if found is None:
            if self.runs.get(state.run_id) in self._waits:
                await anyio.sleep_forever()
            raise ToolError(f"the recording has no further call of {name} in this run")
        found.is_given = True
        if found.is_cut_off:
            await anyio.sleep_forever()
        await self.wait_until(found.event.at, found.place)
        for each in found.written:
            await self.write(each, state)
        event = found.event
        return ToolResult(event.output, event.is_error, event.attachments)

    async def write(self, written: e.AgentFile | e.AgentKey, state: RunState) -> None:
        """Change a run's files or values as the recording says."""
        if isinstance(written, e.AgentKey):
            if written.deleted:
                await state.kv.delete(written.key)
            else:
                await state.kv.set(written.key, written.value)
            return
        for ref in written.files:
            # Without contents (``--no-files``) a file is there, and empty.
            await state.files.write(ref.path, self._contents.get(ref.digest, b""))
        for path in written.deleted:
            if path in state.files.list():
                await state.files.delete(path)

    async def wait_until(self, at: int, place: int) -> None:
        """Return when this place of the recording is reached, and what stands before it is done."""
        left = at - self._clock.now()
        if left > 0:
            await self._clock.sleep(left / 1_000_000)
        self._reach(place)


class RecordedModel:
    """A model that says what the recorded ones said, whoever asks."""

    name = "recorded"

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        reply = await self._replies.reply(self.name)
        if on_delta is not None and reply.text:
            on_delta(TextDelta(reply.text))
        return reply


def recorded_tool(tool: Tool[..., Any], replies: Replies) -> Tool[..., Any]:
    """``tool`` with its schema, whose calls come to what they came to; it is never called."""

    async def give_back(**arguments: Any) -> ToolResult:
        return await replies.result(tool.name, arguments[STATE])

    return replace(tool, fn=give_back, is_async=True, state_parameter=STATE, timeout=None)


def recorded_tools(tools: Iterable[Tool[..., Any]], replies: Replies) -> tuple[Tool[..., Any], ...]:
    """``recorded_tool`` of each."""
    return tuple(recorded_tool(tool, replies) for tool in tools)


# ── what a lane says ─────────────────────────────────────────────────────────────────────────


def _answers(run: RecordedRun) -> Iterator[_Answer]:
    """What each model call of the run came to, in order; those that came to nothing left out."""
    words: list[Event] = []
    last: e.AgentStep | None = None
    for placed in run.own:
        event = placed.event
        if isinstance(event, e.AgentText | e.AgentThinking):
            words.append(event)
        elif isinstance(event, e.AgentStep):
            yield _Answer(placed.place, event.at, _reply(event, words))
            words, last = [], event
        elif isinstance(event, e.SessionEnd) and _is_of_model(event, last):
            yield _Answer(placed.place, event.at, problem=event.reason)


def _reply(step: e.AgentStep, words: list[Event]) -> ModelReply:
    mine = [x for x in words if isinstance(x, e.AgentText | e.AgentThinking) and x.step]
    return ModelReply(
        text="".join(x.text for x in mine if isinstance(x, e.AgentText)),
        thinking=tuple(
            Thinking(text=x.text, signature=x.signature, redacted=x.redacted)
            for x in mine
            if isinstance(x, e.AgentThinking)
        ),
        calls=step.calls,
        usage=step.usage,
        stop_reason=step.stop_reason,
        model=step.model,
    )


def _is_of_model(end: e.SessionEnd, last: e.AgentStep | None) -> bool:
    """Whether a session failed because its model did, and not by a call that says so."""
    if end.outcome != "failed" or not end.reason:
        return False
    called = last.calls if last is not None else ()
    return not any(end.reason in call.arguments for call in called)


def _results(run: RecordedRun) -> Iterator[_Result]:
    """What each call of a tool came to that was carried out."""
    written: list[e.AgentFile | e.AgentKey] = []
    interrupted: set[int] = set()
    for placed in run.own:
        event = placed.event
        if isinstance(event, e.AgentFile | e.AgentKey):
            written.append(event)
        elif isinstance(event, e.AgentInterrupted):
            interrupted.add(event.turn)
        elif isinstance(event, e.AgentToolComplete):
            cut_off = event.turn in interrupted and event.is_error
            # Of calls side by side, whichever ends first has written it: the area is the run's.
            yield _Result(placed.place, event, written, cut_off)
            written = []


def _is_of(event: e.AgentToolComplete, name: str) -> bool:
    """Whether a call was one of the tool: ``use_skill`` may call any (a passthrough skill)."""
    return event.name in (name, "use_skill")


def _waits_for_more(run: RecordedRun) -> bool:
    """Whether a call was under way that the recording has no answer to."""
    return (
        any(_cuts_off(placed) for placed in run.own)
        or not run.own
        or not isinstance(run.own[-1].event, e.SessionEnd | e.AgentPark | e.AgentComplete)
    )


def _cuts_off(placed: Placed) -> bool:
    event = placed.event
    if isinstance(event, e.AgentInterrupted):
        return True
    return isinstance(event, e.Ending) and event.outcome not in ("completed", "failed", "limit")
