"""``Recording``: a run and everything below it, as ``hubbub export`` has written it.

Read for playing it again (``playback``): which run said and did what, in the store's one order.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from hubbub.agents.state.bases import base_behind_gap
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, OperatorError
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event
from hubbub.runtime.simulation.playback.actions import RunLane, names_of
from hubbub.runtime.stores.exchange.export import (
    FORMAT,
    ContentLine,
    EndLine,
    EventLine,
    ExportLine,
    HeaderLine,
    RunLine,
)

__all__ = ["BadRecording", "Placed", "RecordedRun", "Recording", "is_spawned", "read_recording"]

_decoder: Final = msgspec.json.Decoder(ExportLine)


class BadRecording(OperatorError):
    """A file is no export, or not a whole one."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}; write it again: hubbub export RUN --as-test")


class Placed(Struct, frozen=True):
    """An event, and its place in the recording: an even number, so that there is room between."""

    place: int
    event: Event


class RecordedRun(Struct, kw_only=True):
    """A run, with the events of its lanes in order."""

    run_id: str
    parent_run_id: str | None = None
    """``None`` for the run that was exported, even if it had a parent."""
    agent: str
    """Its agent at the end: a run may be handed over."""
    own: list[Placed] = field(default_factory=list)
    inbox: list[Placed] = field(default_factory=list)
    taken: dict[int, Placed] = field(default_factory=dict)
    """What took the items of the inbox, by their numbers: this run, or a frame that they were lent
    to."""

    @property
    def has_mail(self) -> bool:
        """Whether something waits in its inbox at the end."""
        return any(placed.event.seq not in self.taken for placed in self.inbox)

    @property
    def is_code(self) -> bool:
        """Whether code is the agent: a session of a model is one of its sides'."""
        started = any(isinstance(x.event, e.AgentStart) for x in self.own)
        begun = (x.event for x in self.own if isinstance(x.event, e.SessionStart))
        return started and not any(event.side for event in begun)

    @property
    def opening(self) -> e.SessionOpen:
        """The event that opened it."""
        return next(x.event for x in self.inbox if isinstance(x.event, e.SessionOpen))

    @property
    def lane(self) -> RunLane:
        """Its own lane."""
        own = [placed.event for placed in self.own]
        agent = self.opening.open_agent
        return RunLane(self.run_id, self.parent_run_id, agent, own, self.has_mail)


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

    def lanes(self) -> list[RunLane]:
        """What each run wrote, in the order in which they began."""
        return [run.lane for run in self.runs.values()]

    def as_heard(self, said: Placed) -> Placed:
        """An item at the place where it reached its run.

        It may stand before what the run did in the same moment without knowing of it: it was still
        on its way through the store.  What was there in time was taken in that moment, or the run
        had to finish something first, which is later.  Code takes it when it is done with it.
        """
        run, at = self.runs[said.event.run_id], said.event.at
        taken = run.taken.get(said.event.seq)
        if taken is not None:
            if taken.event.at == at:
                return said
            run = self.runs[taken.event.run_id]
        if run.is_code:
            return said
        meanwhile = [x.place for x in run.own if x.place > said.place and x.event.at == at]
        return Placed(meanwhile[-1] + 1, said.event) if meanwhile else said

    def transcript(self) -> list[str]:
        """The conversation of each run, one line per message."""
        lanes = self.lanes()
        names = names_of(lanes)
        return [
            f"{names[lane.run_id]}: {event.text}"
            for lane in lanes
            for event in lane.events
            if isinstance(event, e.AgentText)
        ]


def is_spawned(event: Event) -> bool:
    """Whether code has started a child: a tool, or a code agent."""
    return isinstance(event, e.AgentChild) and not (event.tool or event.takeover or event.immediate)


def read_recording(path: Path) -> Recording:
    """Read what ``hubbub export`` has written; raises ``BadRecording`` for anything else."""
    runs: dict[str, RecordedRun] = {}
    contents: dict[str, bytes] = {}
    taken: list[tuple[e.InLane, Placed]] = []
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
                case EventLine() as found:
                    event = decode_event(bytes(found.event))
                    lanes = runs[event.run_id]
                    lane = lanes.own if event.lane == "own" else lanes.inbox
                    lane.append(placed := Placed(2 * count, event))
                    if isinstance(event, e.SessionTaken | e.SessionDropped):
                        taken += ((item, placed) for item in event.items)
                case ContentLine() as content:
                    contents[content.digest] = b64decode(content.content)
                case EndLine() as end:
                    is_whole = end.lines == count
                case _:
                    pass
    except (msgspec.DecodeError, KeyError, ValueError, BadValue) as error:
        raise BadRecording(f"{path} line {count + 1}", str(error)) from error
    if not is_whole or root not in runs or not runs[root].inbox:
        raise BadRecording(str(path), "the export is incomplete")
    for run_id, lanes in runs.items():
        if base_behind_gap(x.event for x in lanes.own):
            raise BadRecording(
                str(path), f"old turns of run {run_id} have gone; nothing plays them"
            )
    for item, placed in taken:
        if item.run_id in runs:
            runs[item.run_id].taken[item.seq] = placed
    return Recording(name=path.name, root=root, runs=runs, contents=contents)
