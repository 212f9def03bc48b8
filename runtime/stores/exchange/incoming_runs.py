"""``IncomingRuns``: the lines of an export, put into a store one after another and then checked.

    line ──► decoded ──► put in, in a transaction ──► after the last one: everything checked

Rules
-----
* What ``hubbub fsck`` would report of a run afterwards is refused here: events as they come
  (``lanes.py``), rows, inboxes and families when all are there (``run_check.py``).
* Beyond that an export is whole: one header, every run with its parent except for the first, which
  may have its own elsewhere; every content that events name, and none that they do not.
* A run that is put in the place of one keeps its place in the family.  One whose parent is in the
  store already must be a child that this parent knows of.
* Runs of the tree that stay as they are still fit to what came in (``tree_check.py``).
"""

import hashlib
from base64 import b64decode
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.agents.state.lasting_prompts import LastingPrompt, note_of
from hubbub.agents.state.prompts import LASTING, with_prompt
from hubbub.hub.addressing import is_run_id
from hubbub.hub.delivery.ended_prompts import asker_of
from hubbub.hub.errors import BadValue, OperatorError
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.events import AgentBase, SessionPrompt, SessionPromptEnd
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.descriptors import encode_descriptor, kind_of_descriptor, read_descriptor
from hubbub.hub.events.identities import can_be_known_by
from hubbub.hub.store.inbox_rules import MAX_NUMBER
from hubbub.hub.store.intake import RunIntake
from hubbub.hub.store.journal import Addressing
from hubbub.hub.store.reader import IMPORTED, RunRow, own_lane
from hubbub.hub.values import NULL
from hubbub.runtime.stores.exchange.export import (
    FORMAT,
    AcceptedLine,
    ContentLine,
    EndLine,
    EventLine,
    ExportLine,
    HeaderLine,
    RunLine,
)
from hubbub.runtime.stores.exchange.lanes import Lane, Lanes, may_have_started
from hubbub.runtime.stores.exchange.run_check import RunCheck
from hubbub.runtime.stores.exchange.tree_check import TreeCheck

__all__ = ["LINE_ERRORS", "ImportProblem", "Imported", "IncomingRuns", "row_of"]

LINE_ERRORS: Final = (
    msgspec.DecodeError, BadValue, ValueError, OverflowError, RecursionError, TypeError
)  # fmt: skip
"""What reading an invalid line raises."""

MAX_LINE_BYTES: Final = 128 * 1024 * 1024
"""Longer lines are refused: a content of the largest size takes less."""

_decoder: Final = msgspec.json.Decoder(ExportLine)

_INBOXES: Final = (("open", "closing", "terminated"), ("terminated", "ended"))
"""What the inbox of a run can be: of a live one, of one that has ended."""


class Imported(Struct, frozen=True, kw_only=True):
    """What came in."""

    run_id: str
    runs: int
    events: int
    contents: int
    replaced: int


class ImportProblem(CopiedWhole, Exception):
    """A line contradicts the lines before it; ``line`` is its number, 0 for the latest."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.line = line


class _Incoming:
    """A run on its way in."""

    __slots__ = ("asked", "at", "items", "line")

    def __init__(self, at: int, line: RunLine) -> None:
        self.at = at
        """The number of its line."""
        self.line = line
        self.items = 0
        """How many items of its in lane have come."""
        self.asked: dict[str, SessionPrompt] = {}
        """The prompts that its calls wait for."""

    def check(self, seq: int, lane: Lane | None) -> None:
        """Raise ``ImportProblem`` for the number of no item that has come, or one that has gone."""
        gone = () if lane is None else lane.gone
        last = self.items + sum(map(len, gone))
        if not 0 < seq <= last or any(seq in each for each in gone):
            raise ImportProblem(f"run {self.line.run_id} has no item {seq} in its inbox")


class IncomingRuns:
    """Takes one line after another, inside of ``RunIntake.all_or_nothing``."""

    def __init__(self, intake: RunIntake, replace: bool) -> None:
        self._intake = intake
        self._reader = intake.reader
        self._replace = replace
        self._runs: dict[str, _Incoming] = {}
        self._lanes = Lanes("")
        self._header: HeaderLine | None = None
        self._is_over = False
        """Whether the last line ends an export."""
        self._lines = 0
        self._contents: set[str] = set()
        self._replaced = 0
        self._tree: TreeCheck | None = None
        self._claimed: dict[tuple[str, Addressing], str] = {}

    @property
    def run_id(self) -> str:
        return self._header.run_id if self._header is not None else ""

    def take(self, number: int, data: bytes) -> None:
        """Take line ``number``.  Raises ``ImportProblem`` or one of ``LINE_ERRORS``."""
        if len(data) > MAX_LINE_BYTES:
            raise ImportProblem(f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
        line = _decoder.decode(data)
        is_open = self._header is not None and self._header.is_open
        if self._is_over and not is_open:
            raise ImportProblem("there is data after the end of the export")
        self._is_over = is_open and isinstance(line, RunLine)
        if self._header is None and not isinstance(line, HeaderLine):
            raise ImportProblem("this is not a hubbub export")
        self._lines += not isinstance(line, EndLine)
        match line:
            case HeaderLine():
                self._begin(line)
            case RunLine():
                self._take_run(number, line)
            case EventLine():
                self._take_event(bytes(line.event))
            case AcceptedLine():
                self._take_key(line)
            case ContentLine():
                # On disk before what names it is committed.
                self._intake.put_content(line.digest, self._content(line))
            case EndLine():
                self._is_over = True
                if line.lines != self._lines:
                    raise ImportProblem(f"{line.lines} lines were exported, {self._lines} came")

    # ── lines ────────────────────────────────────────────────────────────────────────────────

    def _begin(self, line: HeaderLine) -> None:
        if self._header is not None:
            raise ImportProblem("a second export begins; give one file for each")
        if line.format > FORMAT:
            known = f"this hubbub knows {FORMAT}, upgrade it"
            raise ImportProblem(f"written in format {line.format}; {known}")
        if line.format < 1 or not is_run_id(line.run_id):
            raise ImportProblem(f"format {line.format}, run {line.run_id!r}: not a hubbub export")
        self._header = line

    def _take_run(self, number: int, line: RunLine) -> None:
        for run_id in (line.run_id, line.root_run_id, line.parent_run_id):
            if run_id is not None and not is_run_id(run_id):
                raise ImportProblem(f"{run_id!r} is not a run id")
        if line.inbox not in _INBOXES[line.status == "ended"]:
            raise ImportProblem(f"run {line.run_id}: status {line.status}, inbox {line.inbox!r}")
        known = self._runs.get(line.run_id)
        if known is not None:
            self._renew(known, number, line)
            return
        if self._tree is None:
            self._tree = TreeCheck(self._reader, line.root_run_id)
        before = self._reader.row(line.run_id)
        if before is not None:
            if not self._replace:
                raise OperatorError(
                    f"run {line.run_id} is in this store already; import with --replace to put "
                    "the export in its place, or give another --store"
                )
            if (before.root_run_id, before.parent_run_id) != (line.root_run_id, line.parent_run_id):
                raise ImportProblem(
                    f"run {line.run_id} has the parent {before.parent_run_id} and the root "
                    f"{before.root_run_id} in this store"
                )
            self._intake.remove(line.run_id)
            self._replaced += 1
        self._runs[line.run_id] = _Incoming(number, line)

    def _renew(self, known: _Incoming, number: int, line: RunLine) -> None:
        """A run as it was later: in an open export the last one counts."""
        if self._header is None or not self._header.is_open:
            raise ImportProblem(f"run {line.run_id} comes twice")
        before = known.line
        if (before.root_run_id, before.parent_run_id) != (line.root_run_id, line.parent_run_id):
            raise ImportProblem(f"run {line.run_id} has another parent later: {line.parent_run_id}")
        known.line, known.at = line, number

    def _take_event(self, body: bytes) -> None:
        event = decode_event(body)
        run = self._runs.get(event.run_id)
        if run is None or event.root_run_id != run.line.root_run_id:
            raise ImportProblem(f"an event of run {event.run_id!r}, which is not in the export")
        if event.lane not in ("own", "in"):
            raise ImportProblem(f"{event.id}: it belongs to no lane of a run")
        for problem in self._lanes.take(self._intake.put_event(event, body)):
            raise ImportProblem(f"{event.id}: {problem.what}")
        run.items += event.lane == "in"
        if isinstance(event, SessionPrompt) and event.pauses and _is_own(event):
            run.asked[event.prompt_id] = event
        elif isinstance(event, SessionPromptEnd):
            run.asked.pop(event.prompt_id, None)
        elif isinstance(event, AgentBase):  # Nothing is asked then; its end may have gone.
            run.asked.clear()

    def _take_key(self, line: AcceptedLine) -> None:
        run = self._runs.get(line.run_id)
        if run is None:
            raise ImportProblem(f"a key of run {line.run_id!r}, which is not in the export")
        lane = self._lanes.runs.get(line.run_id)
        if line.number:
            if not (lane is not None and lane.gone and 0 < line.number <= MAX_NUMBER):
                raise ImportProblem(f"run {line.run_id}: key {line.key!r} is of no item that went")
        else:
            run.check(line.seq, lane)
            item = self._reader.item(line.run_id, line.seq)
            if item is None or not can_be_known_by(item, line.source, line.key):
                raise ImportProblem(f"run {line.run_id}: in {line.seq} has another key in its body")
        if not self._intake.put_key(line.run_id, line.source, line.key, line.seq, line.number):
            raise ImportProblem(f"run {line.run_id}: key {line.key!r} comes twice")

    def _content(self, line: ContentLine) -> bytes:
        named = self._lanes.digests.get(line.digest)
        if named is None:
            raise ImportProblem(f"content {line.digest!r}, which no event before it names")
        if line.digest in self._contents:
            raise ImportProblem(f"content {line.digest} comes twice")
        content = b64decode(line.content, validate=True)
        if hashlib.sha256(content).hexdigest() != line.digest or len(content) != named[1]:
            raise ImportProblem(f"content {line.digest} has changed")
        self._contents.add(line.digest)
        return content

    # ── when all are there ───────────────────────────────────────────────────────────────────

    def finish(self) -> Imported:
        """Write the rows of the runs, whose events are all there now, and check them."""
        if self._header is None or not self._is_over:
            raise ImportProblem("the end of the export is missing")
        if self.run_id not in self._runs:
            raise ImportProblem(f"run {self.run_id} itself is missing")
        if self._header.has_contents and (lost := self._lanes.digests.keys() - self._contents):
            raise ImportProblem(f"content {min(lost)} is missing")
        conflicts: dict[str, str] = {}
        for step in (partial(self._note_conflict, conflicts), self._put_run):
            for run in self._runs.values():
                try:
                    step(run)
                except LINE_ERRORS as error:
                    raise ImportProblem(f"run {run.line.run_id}: {error}", run.at) from error
        self._intake.put_note(f"{IMPORTED}{self.run_id}", self._header.store)
        self._check_families()
        check = RunCheck(self._reader, self._lanes.runs)
        for run_id, run in self._runs.items():
            if run_id in conflicts:
                raise OperatorError(conflicts[run_id])
            row = self._reader.row(run_id)
            assert row is not None  # It was just put there.
            for what in check.problems(row, self._lanes.runs[run_id]):
                raise ImportProblem(f"run {run_id}: {what}", run.at)
        for run_id, what in check.problems_below(self._runs):
            raise ImportProblem(f"run {run_id}, which is in this store already: {what}")
        assert self._tree is not None  # Its first run has come.
        for run_id, what in self._tree.new_problems(self._runs):
            raise OperatorError(
                f"run {run_id} is in this store, and not in the export, which does not fit it: "
                f"{what}; import an export of the tree as a whole that has it, too, or give "
                "another --store"
            )
        for run in self._runs.values():
            try:
                self._note_prompts(run)
            except LINE_ERRORS as error:
                raise ImportProblem(f"run {run.line.run_id}: {error}", run.at) from error
        return Imported(
            run_id=self.run_id, runs=len(self._runs), events=self._lanes.events,
            contents=len(self._contents), replaced=self._replaced,
        )  # fmt: skip

    def _put_run(self, run: _Incoming) -> None:
        line = run.line
        lane = self._lanes.runs.get(line.run_id)
        if lane is None or not run.items:
            raise ImportProblem(f"run {line.run_id} has no opening", run.at)
        if line.waiting and line.status == "ended":
            raise ImportProblem(f"run {line.run_id} has ended, but something waits for it", run.at)
        if len(set(line.waiting)) < len(line.waiting):
            raise ImportProblem(f"run {line.run_id}: an item waits twice", run.at)
        for seq in line.waiting:
            run.check(seq, lane)
        self._intake.put_run(row_of(line, lane), line.waiting)

    def _note_prompts(self, run: _Incoming) -> None:
        """Have the store know what the run waits for people to answer, and nothing else of it."""
        line = run.line
        for key in self._reader.notes(f"{LASTING}{line.run_id}."):
            self._intake.put_note(key, "")
        opened = self._lanes.runs[line.run_id].opened
        side = "frame" if opened is not None and opened.frame else ""
        for event in run.asked.values() if line.status != "ended" else ():
            prompt = with_prompt((), event)[0]
            kept = LastingPrompt(
                prompt.prompt_id, prompt.kind, self._above(line.parent_run_id), prompt.since,
                prompt.expires_at, line.agent, side or event.side, prompt.tool,
            )  # fmt: skip
            self._intake.put_note(LASTING + prompt.prompt_id, note_of(kept))

    def _above(self, parent: str | None) -> tuple[str, ...]:
        """A run's parent and those above it, as far as they are here."""
        found: dict[str, None] = {}
        while parent is not None and parent not in found:
            found[parent] = None
            row = self._reader.row(parent)
            parent = row.parent_run_id if row is not None else None
        return tuple(found)

    def _check_families(self) -> None:
        """Every run but the first has its parent here, which knows of it."""
        for run in self._runs.values():
            run_id, parent = run.line.run_id, run.line.parent_run_id
            above = self._runs.get(parent or "")
            if above is None and run_id != self.run_id:
                raise ImportProblem(f"run {run_id}: its parent is not in the export", run.at)
            opened = self._lanes.runs[run_id].opened
            if opened is not None and opened.descriptor_json is not NULL:
                known = True  # It was not its parent that opened it.
            elif above is not None:
                known = self._lanes.runs[above.line.run_id].may_have_started(run_id)
            else:
                known = parent is None or self._is_known_here(parent, run_id)
            if not known:
                what = f"its parent {parent} knows of no such child"
                raise ImportProblem(f"run {run_id}: {what}", run.at)

    def _is_known_here(self, parent: str, run_id: str) -> bool:
        """Whether a run of the store, if it is there, has a child on record, or may have had."""
        if self._reader.row(parent) is None:
            return True
        return may_have_started(own_lane(self._reader, parent), run_id)

    def _note_conflict(self, conflicts: dict[str, str], run: _Incoming) -> None:
        """A conversation has one open run, and so has a user, a cron task, the heartbeat."""
        line = run.line
        text, kind = _descriptor_of(line)
        if line.inbox != "open":
            return
        names: list[tuple[str, str, Addressing]] = []
        if line.session_key and kind not in ("cron", "heartbeat"):
            names.append((f"conversation {line.session_key!r} is that of", line.session_key, "key"))
        if text is not None and kind in ("user", "cron", "heartbeat"):
            names.append((f"agent {text} is", text, "descriptor"))
        for what, to, by in names:
            other = self._holder(to, by) or self._claimed.setdefault((to, by), line.run_id)
            if other != line.run_id:
                conflicts.setdefault(line.run_id, (
                    f"run {line.run_id}: the {what} run {other} here; end that run "
                    "first, or give another --store"
                ))  # fmt: skip

    def _holder(self, to: str, by: Addressing) -> str:
        """The open run of the store that has a session key, or stands for a descriptor."""
        for run_id in self._reader.find(to, by):
            row = self._reader.row(run_id)
            if row is not None and (by == "descriptor" or row.session_key == to):
                return run_id
        return ""


def _is_own(event: SessionPrompt) -> bool:
    """Whether the prompt is known by an id of the run that asks, as any that a runtime writes."""
    return asker_of(event.prompt_id) == event.run_id


def row_of(line: RunLine, lane: Lane) -> RunRow:
    """The row of a run whose events have come to ``lane``."""
    descriptor, kind = _descriptor_of(line)
    is_ready = line.status == "active" or (line.status != "ended" and bool(line.waiting))
    return RunRow(
        address=line.run_id, run_id=line.run_id, root_run_id=line.root_run_id,
        parent_run_id=line.parent_run_id, agent=line.agent, name=line.name,
        session_key=line.session_key, kind=kind, descriptor=descriptor, status=line.status,
        inbox=line.inbox, ready=is_ready, seq=lane.seq, in_seq=lane.in_seq, chain=None,
        waiting=len(line.waiting), messages=sum(lane.untaken.get(x, False) for x in line.waiting),
        born=lane.born, created_at=line.created_at, wake_at=line.wake_at, recent=line.recent,
    )  # fmt: skip


def _descriptor_of(line: RunLine) -> tuple[str | None, str]:
    """A run's descriptor as every store writes it, and its kind."""
    if bytes(line.descriptor) == b"null":
        return None, ""
    found = read_descriptor(line.descriptor)
    return bytes(encode_descriptor(found)).decode(), kind_of_descriptor(found)
