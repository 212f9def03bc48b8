"""What processes were told is so, and whether it is."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from torture.audit import Run, twice
from torture.heard import HeardEvent

from hubbub.hub.events import (
    AgentComplete,
    AgentRecord,
    AgentToolComplete,
    SessionAbort,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
    SessionReply,
    SessionTaken,
    SessionTerminate,
)
from hubbub.hub.values import decode_value

__all__ = ["Said", "promise_problems"]


class Said(Struct):
    """What processes were told is so, and what they did."""

    opened: set[str] = field(default_factory=set)
    """Runs."""
    accepted: set[tuple[str, str]] = field(default_factory=set)
    """Messages: the run and the key."""
    replied: list[tuple[str, str, str]] = field(default_factory=list)
    """Replies that were accepted: the run, the prompt and the text."""
    interrupted: set[tuple[str, str]] = field(default_factory=set)
    """Interruptions: the run and the reason, which is another one each time."""
    terminated: set[str] = field(default_factory=set)
    """Runs; of conversations."""
    finished: dict[str, str] = field(default_factory=dict)
    """How runs have ended."""
    steps: set[tuple[str, str, str]] = field(default_factory=set)
    """What code has done: the run, the step and its result."""
    secrets: set[tuple[str, str]] = field(default_factory=set)
    """The run and the value."""
    effects: Counter[str] = field(default_factory=Counter)
    """How often each thing was done that must not be done twice."""
    heard: dict[str, list[HeardEvent]] = field(default_factory=dict)
    """What subscribers saw, in their order."""


def promise_problems(
    runs: Mapping[str, Run], said: Said, *, is_quiet: bool
) -> list[str]:  # fmt: skip
    """Everything that is not as it was said, each in one line."""
    problems = [*_messages(runs, said), *_replies(runs, said), *_endings(runs, said, is_quiet)]
    problems += _steps(runs, said)
    problems += [f"effect {x}: {count} times" for x, count in said.effects.items() if count > 1]
    for run in runs.values():
        problems += _answers(run, said) + _done_twice(run)
    return problems


def _messages(runs: Mapping[str, Run], said: Said) -> Iterator[str]:
    for run_id in said.opened - {*runs}:
        yield f"lost: run {run_id}"
    for run_id, key in said.accepted:
        there = [x for x in runs[run_id].inbox if _key(x) == key] if run_id in runs else []
        if len(there) != 1:
            yield f"lost: message {key} of {run_id}, {len(there)} times there"
    for run_id, reason in said.interrupted:
        aborts = [x for x in _inbox(runs, run_id, SessionAbort) if x.reason == reason]
        if len(aborts) != 1:
            yield f"lost: interruption {reason} of {run_id}, {len(aborts)} times there"
    keys = [(item.run_id, key) for run in runs.values() for item in _taken(run)
            if (key := _key(item))]  # fmt: skip
    yield from twice(keys, "taken")


def _replies(runs: Mapping[str, Run], said: Said) -> Iterator[str]:
    """Each prompt has one, and it is the one of which this was said."""
    yield from twice([(run_id, prompt_id) for run_id, prompt_id, _ in said.replied], "reply")
    for run_id, prompt_id, text in said.replied:
        there = [
            x.content or x.decision
            for x in _inbox(runs, run_id, SessionReply) if x.prompt_id == prompt_id
        ]  # fmt: skip
        if there.count(text) != 1:
            yield f"lost: reply {text!r} to {prompt_id}: {there}"
    replies = [(x.run_id, x.prompt_id) for run in runs.values() for x in _taken(run)
               if isinstance(x, SessionReply)]  # fmt: skip
    yield from twice(replies, "reply taken")


def _answers(run: Run, said: Said) -> list[str]:
    """What a run made of replies: its tools heard those that there were, and did what they may."""
    replies = {x.prompt_id: x for x in _taken(run) if isinstance(x, SessionReply)}
    denied = [
        x.arguments["name"]
        for x in run.own
        if isinstance(x, SessionPrompt) and x.kind == "approval"
        if x.prompt_id in replies and replies[x.prompt_id].decision == "deny"
    ]
    problems = [f"doubled: {name} was done, and denied" for name in denied
                if said.effects[f"risky {name}"]]  # fmt: skip
    heard = {f"heard {x.content}" for x in replies.values()}
    for done in run.own:
        if isinstance(done, AgentToolComplete):
            if done.output.startswith("heard ") and done.output not in heard:
                problems.append(f"lost: {run.run_id} {done.output!r}, and was told {heard}")
            if done.output.startswith("lacks "):
                problems.append(f"lost: a secret of {run.run_id}, {done.output!r}")
    return problems


def _endings(runs: Mapping[str, Run], said: Said, is_quiet: bool) -> Iterator[str]:
    for run_id, outcome in said.finished.items():
        if (ends := _ends(runs, run_id)) != [outcome]:
            yield f"lost: the end of {run_id}, {outcome}: {ends}"
    for run_id in said.terminated & {*runs}:
        if is_quiet and (ends := _ends(runs, run_id)) != ["terminated"]:
            yield f"lost: the termination of {run_id}: {ends}"
    for run in runs.values():
        places = [at for at, x in enumerate(run.inbox) if isinstance(x, SessionTerminate)]
        late = [x for x in run.inbox[places[0] :] if _key(x)] if places else []
        if late:
            yield f"{run.run_id} has accepted messages after its termination"


def _steps(runs: Mapping[str, Run], said: Said) -> Iterator[str]:
    done: dict[str, set[tuple[str, Any]]] = defaultdict(set)
    for run in runs.values():
        records = [x for x in run.own if isinstance(x, AgentRecord)]
        yield from twice([(x.name, x.index) for x in records], f"step of {run.run_id}")
        done[run.run_id] = {(x.name, str(decode_value(x.value_json))) for x in records}
    for run_id, name, value in said.steps:
        if (name, value) not in done[run_id]:
            yield f"lost: step {name} of {run_id}"


def _done_twice(run: Run) -> list[str]:
    calls = [(x.step, x.index) for x in run.own if isinstance(x, AgentToolComplete)]
    return twice(calls, f"result in {run.run_id}")


def _ends(runs: Mapping[str, Run], run_id: str) -> list[str]:
    own = runs[run_id].own if run_id in runs else []
    return [x.outcome for x in own if isinstance(x, AgentComplete)]


def _inbox(runs: Mapping[str, Run], run_id: str, kind: Any) -> list[Any]:
    return [x for x in runs[run_id].inbox if isinstance(x, kind)] if run_id in runs else []


def _taken(run: Run) -> list[Any]:
    return [item for x in run.own if isinstance(x, SessionTaken) for item in x.items]


def _key(item: Any) -> str:
    said = item.message if isinstance(item, SessionOpen) else item
    return said.key if isinstance(said, SessionMessage) else ""
