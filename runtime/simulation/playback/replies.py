"""Recorded replies: a model and tools that answer as those of a recording did.

    Replies          which answer is next, run by run, and when
    RecordedModel    a model that gives them back
    RecordedPrice    what it cost then
    recorded_tool    a tool that is not called: its recorded result is given back

An answer comes at the time at which it came, in virtual time, so whatever was said meanwhile is
said meanwhile again.  What was never answered (a call that was interrupted, or cut off by the end
of the recording) is not answered either.  Calls that failed and were tried again fail again.
Ids in what is said are those of now (``counterparts``).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NoReturn

import anyio
from msgspec import Struct

from hubbub.agents.built_in import USE_AGENT, USE_SKILL
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.skills import SKILL_PREFIX
from hubbub.agents.definitions.tools import Tool, ToolError, ToolResult
from hubbub.agents.model import ModelReply, ModelRequest, OnDelta, TextDelta, Thinking
from hubbub.agents.prices import Price
from hubbub.agents.retry import REQUEST
from hubbub.agents.state.steps import MISFIT
from hubbub.agents.turn.endings import what_follows
from hubbub.agents.turn.stop import is_of_answer
from hubbub.hub import events as e
from hubbub.hub.errors import ModelRefused, ModelUnavailable, PromptClosed, PromptTimeout
from hubbub.hub.events import Event, Usage
from hubbub.hub.ports import Clock
from hubbub.hub.values import decode_value
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.simulation.playback.counterparts import Counterparts
from hubbub.runtime.simulation.playback.recording import Placed, RecordedRun, Recording, is_spawned

__all__ = ["RecordedModel", "RecordedPrice", "Replies", "recorded_tool"]

MOMENT: Final = 0.000_000_005
"""Between two places of a recording, in seconds: what comes of one is over before the next."""

STATE: Final = "__hubbub_state"
"""The argument that brings a recorded tool its run; no parameter of a tool's own."""


class _Answer(Struct, frozen=True):
    """The outcome of a model call: a reply, or the error message."""

    place: int
    at: int
    reply: ModelReply | None = None
    problem: str = ""
    status: int = 0
    """Of the refusal that the error was, if something followed from that."""
    retry: e.AgentRetry | None = None
    """It was tried again."""
    cost: int | None = None
    """In billionths."""


class _Result(Struct):
    """The result of a tool call, with the files, values and children it made, and questions."""

    at: Placed
    """Its result, or that it gave the conversation away."""
    name: str
    call_id: str
    written: list[Placed]
    is_cut_off: bool = False
    """Whether it was interrupted: it came to nothing by itself."""
    is_given: bool = False


class Replies:
    """The answers of a recording, each given once, to the run that corresponds to its own.

    ``reach(place)`` is called before an answer is given: what stands before it in the recording
    has happened by then.  ``counterparts`` says which run of the recording a run of now is; who
    plays the recording fills it in.
    """

    def __init__(
        self, recording: Recording, clock: Clock, reach: Callable[[int], None] = lambda _: None
    ) -> None:
        self.counterparts = Counterparts()
        self._began = recording.began
        self._runs = recording.runs
        self._contents = recording.contents
        self._clock = clock
        self._reach = reach
        runs = recording.runs.values()
        self._answers = {
            **{(run.run_id, "step"): list(_answers(run)) for run in runs},
            **{(run.run_id, "summary"): list(_summaries(run)) for run in runs},
        }
        self._results = {run.run_id: list(_results(run)) for run in recording.runs.values()}
        self._waits = {run.run_id for run in recording.runs.values() if _waits_for_more(run)}
        self._given: dict[tuple[str, str], int] = defaultdict(int)
        self._costs: dict[str, int | None] = {}
        """What the last answer of each run had cost."""
        self._children: dict[str, Run] = {}
        """The children that code has started again, by their ids in the recording."""

    # ── models ───────────────────────────────────────────────────────────────────────────────

    async def reply(self, model: str, purpose: str) -> ModelReply:
        """The next answer of the run at work, or its next summary; raises ``ModelRefused`` where
        there is none."""
        run_id = self._recorded(model)
        calls = run_id, purpose
        number, answers = self._given[calls], self._answers[calls]
        if number >= len(answers):
            if run_id in self._waits and purpose == "step":
                await anyio.sleep_forever()
            what = "call" if purpose == "step" else purpose
            problem = f"{what} {number + 1} of this run, and the recording has {len(answers)}"
            raise ModelRefused(model, "script", problem)
        answer = answers[number]
        await self.wait_until(answer.at, answer.place)
        # Counted only now: one that is interrupted meanwhile was not given.
        self._given[calls] = number + 1
        self._costs[run_id] = answer.cost
        if (retry := answer.retry) is not None:
            problem = retry.error.removeprefix(f"{model}: ")
            if retry.model:  # It failed for good, and another was asked.
                raise ModelRefused(model, retry.kind, problem)
            raise ModelUnavailable(model, retry.kind, problem, retry_after=retry.delay)
        if answer.reply is None:
            name, _, problem = answer.problem.rpartition(": ")
            kind = REQUEST if answer.status else "script"
            problem = self.counterparts.as_now(problem)
            raise ModelRefused(name or model, kind, problem, status=answer.status or None)
        return self.counterparts.as_now(answer.reply)

    def cost(self) -> int | None:
        """What the last answer that the run at work was given had cost, in billionths."""
        return self._costs.get(self.counterparts.then_of(CURRENT_RUN.get()) or "")

    def _recorded(self, model: str) -> str:
        run_id = self.counterparts.then_of(CURRENT_RUN.get())
        if run_id is None:
            raise ModelRefused(model, "script", "there is no such run in the recording")
        return run_id

    # ── tools ────────────────────────────────────────────────────────────────────────────────

    async def result(self, name: str, state: RunState) -> ToolResult:
        """What the call of a tool came to; what it wrote is written again.

        Raises ``ToolError`` for a call that is not in the recording.
        """
        run_id = self.counterparts.then_of(state.run_id)
        left = [x for x in self._results.get(run_id or "", ()) if not x.is_given]
        found = next((x for x in left if x.call_id == state.call_id), None)
        if found is None or not _is_of(found, name):
            found = next((x for x in left if _is_of(x, name)), None)
        if found is None:
            if run_id in self._waits:
                await anyio.sleep_forever()
            raise ToolError(f"the recording has no further call of {name} in this run")
        found.is_given = True
        for placed in found.written:
            await self.wait_until(placed.event.at, placed.place)
            await self.write(placed.event, state)
        if found.is_cut_off:
            await anyio.sleep_forever()
        await self.wait_until(found.at.event.at, found.at.place)
        event = self.counterparts.as_now(found.at.event)
        if isinstance(event, e.SessionPush):
            _give_away(event, state)
        assert isinstance(event, e.AgentToolComplete)
        return ToolResult(event.output, event.is_error, event.attachments, event.parts)

    async def write(self, written: Event, state: RunState) -> None:
        """Change a run's files or values, start a child of it or ask, as the recording says."""
        match self.counterparts.as_now(written):
            case e.AgentKey(deleted=True, key=key):
                await state.kv.delete(key)
            case e.AgentKey() as kept:
                await state.kv.set(kept.key, kept.value)
            case e.AgentFile() as file:
                for ref in file.files:
                    # Without contents (``--no-files``) a file is there, and empty.
                    content = self._contents.get(ref.digest, b"")
                    await state.files.write(ref.path, self.counterparts.as_now(content))
                for path in file.deleted:
                    if path in state.files.list():
                        await state.files.delete(path)
            case e.AgentChild():
                # By its id in the recording: its counterpart is yet to begin.
                assert isinstance(written, e.AgentChild)
                self.spawn(written, state)
            case e.AgentRead():
                assert isinstance(written, e.AgentRead)
                if (child := self._children.get(written.child_run_id)) is not None:
                    child.has_read(False) if written.left else child.will_read()
            case e.SessionPrompt() as asked:
                await _ask(asked, state)
            case _:
                pass

    def spawn(self, then: e.AgentChild, state: Any) -> None:
        """Start a child that code has started, with the same input."""
        if (run := self._runs.get(then.child_run_id)) is not None:
            opening = self.counterparts.as_now(run.opening)
            name = then.name if then.name != then.child_agent else None
            fate = {"": "handle", "call": None}.get(then.result, then.result)
            self._children[then.child_run_id] = state.spawn(
                then.child_agent, opening.input, name=name, result=fate
            )

    async def wait_until(self, at: int, place: int) -> None:
        """Return when this place of the recording is reached, and what stands before it is done."""
        await self.sleep_until(at, place)
        self._reach(place)

    async def sleep_until(self, at: int, place: int) -> None:
        """Return when it is time; of what happened at one time, what comes first goes first."""
        moment = (at - self._began) / 1_000_000 + place * MOMENT
        left = moment - self._clock.monotonic()
        if left > 0:
            await self._clock.sleep(left)


class RecordedModel:
    """A model that gives the recorded replies, to every caller."""

    name = "recorded"

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        reply = await self._replies.reply(self.name, request.purpose)
        if on_delta is not None and reply.text:
            on_delta(TextDelta(reply.text))
        return reply


class RecordedPrice(Price, frozen=True, kw_only=True):
    """The price of every model: what its call cost then.  The prices of then are not on record."""

    replies: Replies
    input: float = 0
    output: float = 0

    def nanos(self, usage: Usage, *, cached_apart: bool) -> int | None:
        return self.replies.cost()


def recorded_tool(tool: Tool[..., Any], replies: Replies) -> Tool[..., Any]:
    """``tool`` with its schema and its recorded results; its function is never called.

    Who must approve it is asked again, and what it asked is asked again.
    """

    async def give_back(**arguments: Any) -> ToolResult:
        return await replies.result(tool.name, arguments[STATE])

    return replace(tool, fn=give_back, is_async=True, state_parameter=STATE, timeout=None)


# ── what a lane says ─────────────────────────────────────────────────────────────────────────


def _answers(run: RecordedRun) -> Iterator[_Answer]:
    """The outcomes of the run's model calls, in order, without calls that had none."""
    words: list[Event] = []
    last: e.AgentStep | None = None
    for placed in run.own:
        event = placed.event
        if isinstance(event, e.AgentText | e.AgentThinking):
            words.append(event)
        elif isinstance(event, e.AgentStep):
            yield _Answer(placed.place, event.at, _reply(event, words), cost=event.cost_nanos)
            words, last = [], event
        elif isinstance(event, e.AgentRetry) and event.kind != MISFIT:
            yield _Answer(placed.place, event.at, retry=event)
        elif isinstance(event, e.SessionEnd) and _is_of_model(event, last):
            yield _refusal(placed.place, event)


def _refusal(place: int, end: e.SessionEnd) -> _Answer:
    """The error that has ended a session, without what was done about it."""
    problem, status = end.reason, 0
    if follows := what_follows(end):
        problem, status = problem.removesuffix(follows), 413 if end.refused == "length" else 400
    return _Answer(place, end.at, problem=problem, status=status)


def _summaries(run: RecordedRun) -> Iterator[_Answer]:
    """The outcomes of the calls for summaries; what a failed one said is not on record."""
    for placed in run.own:
        event = placed.event
        if isinstance(event, e.SessionCompaction) and event.covers:
            said = ModelReply(text=event.summary, usage=event.usage, model=event.model)
            reply = said if event.summary else None
            yield _Answer(placed.place, event.at, reply, problem=event.error, cost=event.cost_nanos)


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
    if end.outcome != "failed" or not end.reason or is_of_answer(end.reason):
        return False
    called = last.calls if last is not None else ()
    return not any(end.reason in call.arguments for call in called)


def _results(run: RecordedRun) -> Iterator[_Result]:
    """The results of the tool calls that were carried out."""
    written: list[Placed] = []
    interrupted: set[int] = set()
    names: dict[str, str] = {}
    """The calls under way: what code has done by itself, it does again by itself."""
    given_away: set[str] = set()
    for placed in run.own:
        event = placed.event
        if names and _is_written(event):
            written.append(placed)
        elif isinstance(event, e.AgentInterrupted):
            interrupted.add(event.turn)
        elif isinstance(event, e.AgentToolStart):
            names[event.call_id] = event.name
        elif isinstance(event, e.SessionPush):
            name = names.get(event.call_id, USE_AGENT)
            if name not in (USE_AGENT, USE_SKILL):
                given_away.add(event.call_id)
                yield _Result(placed, name, event.call_id, written)
                written = []
        elif isinstance(event, e.AgentToolComplete):
            names.pop(event.call_id, None)
            if event.call_id in given_away:
                continue
            cut_off = event.turn in interrupted and event.is_error
            # Of calls side by side, whichever ends first has written it: the area is the run's.
            yield _Result(placed, event.name, event.call_id, written, cut_off)
            written = []
    for call_id, name in names.items():  # At work when the recording ended.
        if call_id not in given_away:
            yield _Result(run.own[-1], name, call_id, written, is_cut_off=True)
            written = []


def _is_written(event: Event) -> bool:
    """Whether a tool may have written it; the children of code itself are numbered from 1."""
    if isinstance(event, e.AgentChild):
        return is_spawned(event) and not event.index
    if isinstance(event, e.SessionPrompt):
        return event.kind == "question" and not event.pauses
    return isinstance(event, e.AgentFile | e.AgentKey | e.AgentRead)


def _is_of(result: _Result, name: str) -> bool:
    """Whether a call was one of the tool: ``use_skill`` may call any (a passthrough skill)."""
    return result.name in (name, USE_SKILL)


async def _ask(asked: e.SessionPrompt, state: RunState) -> None:
    """Ask what a tool has asked, and wait for the answer; what it made of that is recorded."""
    options, timeout = asked.options, asked.timeout
    schema = decode_value(asked.schema_json)
    with suppress(PromptTimeout, PromptClosed):
        if asked.ordinal:
            await state.ask(asked.question, options=options, schema=schema, timeout=timeout)
        else:
            await state.hub.ask(asked.to, asked.question, options=options, timeout=timeout)


def _give_away(push: e.SessionPush, state: RunState) -> NoReturn:
    """Give the conversation away, as a tool did."""
    if push.frame_agent.startswith(SKILL_PREFIX):
        state.use_skill(push.frame_agent.removeprefix(SKILL_PREFIX), push.message)
    state.use_agent(push.frame_agent, push.message)


def _waits_for_more(run: RecordedRun) -> bool:
    """Whether a call was under way that the recording has no answer to."""
    return (
        any(_cuts_off(placed) for placed in run.own)
        or not run.own
        or run.has_mail
        or not isinstance(run.own[-1].event, e.SessionEnd | e.AgentPark | e.AgentComplete)
    )


def _cuts_off(placed: Placed) -> bool:
    event = placed.event
    if isinstance(event, e.AgentInterrupted):
        return True
    return isinstance(event, e.Ending) and event.outcome not in ("completed", "failed", "limit")
