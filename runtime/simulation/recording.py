"""``Recording``: a run and everything below it, as ``hubbub export`` has written it.

Read for playing it again (``playback``): which run said and did what, in the store's one order.
"""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from hubbub.hub import events as e
from hubbub.hub.codec import decode_event
from hubbub.hub.errors import BadValue, OperatorError
from hubbub.hub.events import Event
from hubbub.hub.values import decode_value
from hubbub.runtime.run_export import (
    FORMAT,
    ContentLine,
    EndLine,
    EventLine,
    ExportLine,
    HeaderLine,
    RunLine,
)

__all__ = ["BadRecording", "Placed", "RecordedRun", "Recording", "read_recording", "transcript"]

_decoder: Final = msgspec.json.Decoder(ExportLine)


class BadRecording(OperatorError):
    """A file is no export, or not a whole one."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}; write it again: hubbub export RUN --as-test")


class Placed(Struct, frozen=True):
    """An event, and how many stand before it in the recording."""

    place: int
    event: Event


class RecordedRun(Struct, kw_only=True):
    """A run, with the events of its lanes in order."""

    run_id: str
    parent_run_id: str | None = None
    """``None`` for the one that was exported, whoever began it."""
    agent: str
    """Its agent at the end: a run may be handed over."""
    own: list[Placed] = field(default_factory=list)
    inbox: list[Placed] = field(default_factory=list)

    @property
    def is_code(self) -> bool:
        """Whether code is the agent: a session of a model is one of its sides'."""
        started = any(isinstance(x.event, e.AgentStart) for x in self.own)
        begun = (x.event for x in self.own if isinstance(x.event, e.SessionStart))
        return started and not any(event.side for event in begun)

    @property
    def opening(self) -> e.SessionOpen:
        """How it was begun."""
        return next(x.event for x in self.inbox if isinstance(x.event, e.SessionOpen))


class Recording(Struct, kw_only=True):
    """What was exported.  ``runs`` are in the order in which they began, the root first."""

    name: str
    root: str
    runs: Mapping[str, RecordedRun]
    contents: Mapping[str, bytes]
    """Of files, by digest; empty for an export without them."""

    @property
    def began(self) -> int:
        """When it began (µs)."""
        return self.runs[self.root].opening.at

    @property
    def ended(self) -> int:
        """When the last thing happened (µs)."""
        return max(x.event.at for run in self.runs.values() for x in (*run.own, *run.inbox))

    def owned(self) -> Iterator[Placed]:
        """The own events of all runs, in order."""
        found = (x for run in self.runs.values() for x in run.own)
        return iter(sorted(found, key=lambda x: x.place))

    def transcript(self) -> list[str]:
        """What each run said; see ``transcript``."""
        return transcript(
            (run.run_id, run.parent_run_id, run.opening.open_agent, [x.event for x in run.own])
            for run in self.runs.values()
        )


def read_recording(path: Path) -> Recording:
    """Read what ``hubbub export`` has written; raises ``BadRecording`` for anything else."""
    runs: dict[str, RecordedRun] = {}
    contents: dict[str, bytes] = {}
    root, count, is_whole = "", 0, False
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise BadRecording(str(path), error.strerror or str(error)) from error
    try:
        for count, line in enumerate(lines):
            match _decoder.decode(line):
                case HeaderLine() as header:
                    root = header.run_id
                    if header.format != FORMAT:
                        problem = f"format {header.format}, and this version reads {FORMAT}"
                        raise BadRecording(str(path), problem)
                case RunLine() as run:
                    parent = run.parent_run_id if run.run_id != root else None
                    runs[run.run_id] = RecordedRun(
                        run_id=run.run_id, parent_run_id=parent, agent=run.agent
                    )
                case EventLine() as placed:
                    event = decode_event(bytes(placed.event))
                    lanes = runs[event.run_id]
                    lane = lanes.own if event.lane == "own" else lanes.inbox
                    lane.append(Placed(count, event))
                case ContentLine() as content:
                    contents[content.digest] = b64decode(content.content)
                case EndLine() as end:
                    is_whole = end.lines == count
                case _:
                    pass
    except (msgspec.DecodeError, KeyError, ValueError, BadValue) as error:
        raise BadRecording(f"{path} line {count + 1}", str(error)) from error
    if not is_whole or root not in runs or not runs[root].inbox:
        raise BadRecording(str(path), "the export is not whole")
    return Recording(name=path.name, root=root, runs=runs, contents=contents)


def transcript(runs: Iterable[tuple[str, str | None, str, Iterable[Event]]]) -> list[str]:
    """What runs said and came to, a line each, run by run, those above first.

    A run is its id, its parent's, its agent and its own events.  It is named by the agents that
    lead to it (``main/writer``, and ``main/writer 2`` for the second): ids are made anew.
    """
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    lines: list[str] = []
    for run_id, parent, agent, own in runs:
        name = f"{names[parent]}/{agent}" if parent in names else agent
        counts[name] = counts.get(name, 0) + 1
        names[run_id] = name if counts[name] == 1 else f"{name} {counts[name]}"
        lines += (f"{names[run_id]}: {line}" for line in _said(own))
    return lines


def _said(own: Iterable[Event]) -> Iterator[str]:
    last: object = None
    for event in own:
        if isinstance(event, e.AgentText):
            last = event.text
            yield event.text
        elif isinstance(event, e.Ending):
            output = decode_value(event.output_json)
            if not event.success:
                yield f"({event.outcome}) {event.reason}".rstrip()
            elif output is not None and output != last:
                last = output
                yield f"({event.outcome}) {output if isinstance(output, str) else repr(output)}"
