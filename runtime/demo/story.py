"""The demo as its events tell it: a fold over the stream of one tree of runs, and two readings.

    event ──► Story.take ──► Story ──► line_for      plain lines, as things happen
                                  └──► as_json       one object, for machines

Nothing is known here but what the hub carried; ``demo_picture`` draws the same story.
"""

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from hubbub.hub import events as e
from hubbub.hub.events import CustomEvent, Event
from hubbub.runtime.demo.documents import DocumentFacts
from hubbub.runtime.demo.survey_model import Extreme, Totals, many
from hubbub.runtime.text import printable

__all__ = [
    "Call",
    "Entry",
    "Reading",
    "Story",
    "SurveyorHeard",
    "SurveyorSaid",
    "as_json",
    "found",
    "line_for",
    "summary",
]

_PARTS: Final = (
    ("headings", "heading"),
    ("links", "link"),
    ("images", "image"),
    ("broken_links", "broken link"),
)


@dataclass(slots=True)
class SurveyorSaid:
    """The surveyor said something."""

    text: str


@dataclass(slots=True)
class SurveyorHeard:
    """The surveyor was sent a message; ``seen_before`` is the step that saw it first."""

    text: str
    after_documents: int
    seen_before: int = 0


@dataclass(slots=True)
class Reading:
    """One reader's run; ``outcome`` is empty while it works."""

    run_id: str
    path: str
    status: str = "waiting"
    outcome: str = ""
    reason: str = ""
    facts: DocumentFacts | None = None


@dataclass(slots=True)
class Call:
    """A tool call of the surveyor with the runs it started."""

    name: str
    arguments: dict[str, Any]
    output: str = ""
    is_done: bool = False
    is_error: bool = False
    readings: list[Reading] = field(default_factory=list)


Entry: TypeAlias = SurveyorSaid | SurveyorHeard | Call


class Story:
    """What has happened so far."""

    def __init__(self) -> None:
        self.run_id = ""
        self.folder = ""
        self.documents = 0
        self.skipped: list[dict[str, str]] = []
        self.skipped_count = 0
        self.notes: list[str] = []
        self.entries: list[Entry] = []
        self.readings: dict[str, Reading] = {}
        self.read = 0
        self.steps = 0
        self.typing = ""
        self.ending: e.AgentComplete | None = None
        self.events = 0
        self._said = ""
        self._first = self._last = 0

    @property
    def runs(self) -> int:
        return len(self.readings) + bool(self.run_id)

    @property
    def seconds(self) -> float:
        return (self._last - self._first) / 1_000_000

    @property
    def report(self) -> str:
        return str(self.ending.output or self.ending.reason) if self.ending else ""

    @property
    def calls(self) -> list[Call]:
        return [entry for entry in self.entries if isinstance(entry, Call)]

    @property
    def heard(self) -> SurveyorHeard | None:
        return next((entry for entry in self.entries if isinstance(entry, SurveyorHeard)), None)

    @property
    def answer(self) -> Extreme | None:
        """The surveyor's answer to the message that steered it."""
        for call in self.calls:
            if call.name == "compare_documents" and call.is_done and not call.is_error:
                return msgspec.json.decode(call.output, type=Extreme)
        return None

    @property
    def totals(self) -> Totals:
        """The sum of the results that the surveyor got from ``read_documents``."""
        outputs = [
            call.output
            for call in self.calls
            if call.name == "read_documents" and call.is_done and not call.is_error
        ]
        return sum((msgspec.json.decode(text, type=Totals) for text in outputs), Totals())

    def take(self, event: Event) -> None:
        """Go on with the next event of the tree."""
        self.events += 1
        self._first = self._first or event.at
        self._last = max(self._last, event.at)
        if event.parent_run_id is None:
            self.run_id = self.run_id or event.run_id
            self._take_surveyor(event)
        elif (reading := self.readings.get(event.run_id)) is not None:
            self._take_reader(reading, event)

    def _take_surveyor(self, event: Event) -> None:
        match event:
            case e.AgentTextDelta():
                self.typing += event.text
            case e.AgentText():
                self._said = event.text
            case e.AgentStep():
                self.steps, self.typing = event.step, ""
                if event.calls:  # What is said without a call is the report.
                    self.entries.append(SurveyorSaid(self._said))
            case e.AgentToolStart():
                self.entries.append(Call(event.name, msgspec.json.decode(event.arguments)))
            case e.AgentToolComplete():
                call = self.calls[-1]
                call.output, call.is_done, call.is_error = event.output, True, event.is_error
            case e.AgentChild():
                reading = Reading(event.child_run_id, event.name)
                self.readings[reading.run_id] = reading
                self.calls[-1].readings.append(reading)
            case e.SessionMessage():
                self.entries.append(SurveyorHeard(event.content, self.read))
            case e.SessionTaken() if self.heard is not None and not self.heard.seen_before:
                self.heard.seen_before = self.steps + 1
            case e.AgentComplete():
                self.ending = event
            case CustomEvent(name="demo:listing"):
                listing = event.data
                self.folder, self.documents = listing["folder"], listing["documents"]
                self.skipped, self.notes = listing["skipped"], listing["notes"]
                self.skipped_count = listing["skipped_count"]

    def _take_reader(self, reading: Reading, event: Event) -> None:
        match event:
            case e.AgentStatus():
                reading.status = event.status
            case CustomEvent(name="demo:facts"):
                reading.facts = msgspec.convert(event.data, DocumentFacts)
            case e.AgentComplete():
                self.read += 1
                reading.outcome, reading.reason = event.outcome, event.reason


# ── readings ─────────────────────────────────────────────────────────────────────────────────


def line_for(story: Story, event: Event) -> str:
    """What to print for ``event``, just taken by ``story``; empty for nothing."""
    reading = story.readings.get(event.run_id)
    match event:
        case e.AgentStart() if reading is None:
            return f"surveyor  run {event.run_id} begins"
        case e.AgentComplete() if reading is not None:
            return f"reader    {reading.path}: {found(reading)}"
        case e.AgentStep() if event.calls and isinstance(said := story.entries[-1], SurveyorSaid):
            return f"surveyor  {printable(said.text)}"
        case e.AgentToolComplete():
            mark = "failed: " + printable(event.output) if event.is_error else "done"
            return f"tool      {event.name} {mark}"
        case e.SessionMessage():
            return (
                f"message   to run {event.run_id}, {story.read} of {story.documents} read: "
                f"“{printable(event.content)}”"
            )
        case _:
            return ""


def found(reading: Reading) -> str:
    """One reader's result, or what it is busy with, in a few words."""
    if reading.outcome and reading.outcome != "completed":
        return f"{reading.outcome}: {printable(reading.reason)}"
    facts = reading.facts
    if facts is None:
        return printable(reading.status)
    counts = [many(facts.words, "word"), many(facts.lines, "line")]
    counts += [many(count, noun) for part, noun in _PARTS if (count := getattr(facts, part))]
    if facts.truncated:
        counts.append(f"only the first {facts.bytes_read:,} of {facts.size:,} bytes read")
    return ", ".join(counts)


def summary(story: Story) -> str:
    """What it took, on one line."""
    heard = story.heard
    told = (
        f"; steered by one message to its run after {many(heard.after_documents, 'document')}"
        if heard is not None and heard.seen_before
        else ""
    )
    runs, events = many(story.runs, "run"), many(story.events, "event")
    return f"{runs}, {events}, {story.seconds:.2f} s{told}."


def as_json(story: Story) -> dict[str, Any]:
    """The whole story as plain data (``hubbub demo --json``)."""
    ending, heard = story.ending, story.heard
    files = [
        {**msgspec.to_builtins(reading.facts), "run_id": reading.run_id}
        for reading in story.readings.values()
        if reading.facts is not None
    ]
    failed = [
        {"path": reading.path, "reason": reading.reason, "run_id": reading.run_id}
        for reading in story.readings.values()
        if reading.facts is None
    ]
    steering = None
    if heard is not None:
        steering = {
            "message": heard.text,
            "after_documents": heard.after_documents,
            "seen_before_step": heard.seen_before,
            "answer": msgspec.to_builtins(story.answer),
        }
    return {
        "outcome": ending.outcome if ending else "",
        "report": story.report,
        "folder": story.folder,
        "totals": msgspec.to_builtins(story.totals),
        "files": files,
        "failed": failed,
        "skipped": story.skipped,
        "skipped_count": story.skipped_count,
        "notes": story.notes,
        "steering": steering,
        "run_id": story.run_id,
        "runs": story.runs,
        "events": story.events,
        "seconds": round(story.seconds, 3),
    }
