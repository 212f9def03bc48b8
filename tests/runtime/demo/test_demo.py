"""The demo: real files, one run each, a surveyor steered while it works, and a correct report."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from rich.console import Console

from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelRequest, UserMessage
from hubbub.hub import events as e
from hubbub.hub.events import CustomEvent, Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.virtual import InlineOffload, virtual_ports
from hubbub.runtime.demo.picture import as_svg, draw_end, draw_story
from hubbub.runtime.demo.story import Story, as_json, line_for
from hubbub.runtime.demo.survey import READERS, STEER, Demo, run_demo
from hubbub.runtime.demo.survey_model import surveyor_model
from hubbub.runtime.kernel.outcome import RunOutcome

pytestmark = pytest.mark.anyio

T = TypeVar("T")


def make_folder(folder: Path, count: int) -> dict[str, Any]:
    """Write ``count`` files whose facts are known by construction, and return the totals."""
    total = {"documents": count, "markdown": 0, "words": 0, "lines": 0, "headings": 0, "links": 0}
    total["broken_links"] = 0
    for number in range(count):
        name = folder / f"part{number % 3}" / f"{number:04}{'.md' if number % 2 else '.txt'}"
        name.parent.mkdir(exist_ok=True)
        text = f"# Title {number}\n\n" + "word " * number + "\n[x](gone.md) `[y](no.md)`\n"
        name.write_text(text)
        total["words"] += 3 + number + 2
        total["lines"] += 4
        if number % 2:
            total["markdown"] += 1
            total["headings"] += 1
            total["links"] += 1
            total["broken_links"] += 1
    return total


class Seen:
    """What a spectator of the demo has seen."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.story = Story()
        self.lines: list[str] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self.story.take(event)
        self.lines.append(line_for(self.story, event))

    def of(self, type_: str) -> list[Event]:
        return [event for event in self.events if event.type == type_]


async def watch(
    demo: Demo, ports: Ports, journal: Journal | None = None
) -> tuple[Seen, RunOutcome]:
    seen = Seen()
    with anyio.fail_after(3600):
        outcome = await run_demo(demo, seen, ports=ports, journal=journal)
    return seen, outcome


# ── the report ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 7, 40])
async def test_the_report_and_the_totals_are_correct(
    tmp_path: Path, count: int, ports: Ports, journal: Journal
) -> None:
    total = make_folder(tmp_path, count)
    seen, outcome = await watch(Demo(folder=tmp_path), ports, journal)
    assert outcome.outcome == "completed"
    told = as_json(seen.story)
    assert {name: told["totals"][name] for name in total} == total
    report = outcome.output
    assert report == told["report"]
    assert f"{total['words']:,} word" in report
    assert f"{total['lines']:,} lines" in report
    if total["markdown"]:
        assert f"Broken relative links: {total['broken_links']}.\n  part" in report
        assert report.count(" → gone.md\n") == min(5, total["broken_links"])
    words = sum(file["words"] for file in told["files"])
    assert (words, len(told["files"])) == (total["words"], count)


async def test_each_document_is_one_run_below_the_surveyor(
    tmp_path: Path, ports: Ports, journal: Journal
) -> None:
    make_folder(tmp_path, 9)
    seen, _ = await watch(Demo(folder=tmp_path), ports, journal)
    root = seen.story.run_id
    for type_ in ("agent:start", "agent:complete", "demo:facts"):
        readers = [event for event in seen.of(type_) if event.agent == "reader"]
        assert len({event.run_id for event in readers}) == len(readers) == 9
        assert {event.parent_run_id for event in readers} == {root}
        assert {event.root_run_id for event in readers} == {root}
    statuses = [event for event in seen.of("agent:status") if isinstance(event, e.AgentStatus)]
    assert {event.run_id for event in statuses} == set(seen.story.readings)
    outputs = {
        x.run_id: x.output for x in seen.of("agent:complete") if isinstance(x, e.AgentComplete)
    }
    for event in seen.of("demo:facts"):
        assert isinstance(event, CustomEvent)
        assert event.data == outputs[event.run_id]
    assert seen.events[-1].type == "agent:complete"
    assert seen.events[-1].run_id == root


async def test_only_so_many_readers_work_at_once(tmp_path: Path, ports: Ports) -> None:
    make_folder(tmp_path, 100)
    seen, _ = await watch(Demo(folder=tmp_path), ports)
    now = most = 0
    for event in seen.events:
        if event.agent == "reader" and event.type in ("agent:start", "agent:complete"):
            now += 1 if event.type == "agent:start" else -1
            most = max(most, now)
    assert 1 < most <= READERS


class CountingOffload:
    """Runs on the loop like ``InlineOffload``, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    async def run(self, fn: Callable[[], T]) -> T:
        self.calls += 1
        return await InlineOffload().run(fn)


async def test_files_are_touched_off_the_loop_only(tmp_path: Path) -> None:
    make_folder(tmp_path, 5)
    plain = virtual_ports()
    offload = CountingOffload()
    ports = Ports(clock=plain.clock, ids=plain.ids, offload=offload)
    await watch(Demo(folder=tmp_path), ports)
    assert offload.calls == 1 + 5, "one listing, five documents"


# ── steering ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 2, 9, 30])
async def test_a_message_to_its_run_steers_the_surveyor_at_its_next_step(
    tmp_path: Path, count: int, ports: Ports, journal: Journal
) -> None:
    make_folder(tmp_path, count)
    (tmp_path / "long.txt").write_text("short\n" + "x" * 9999 + "\n")
    seen, outcome = await watch(Demo(folder=tmp_path), ports, journal)
    assert outcome.output.endswith("the longest line: line 2 of long.txt, 9,999 characters.")

    (said,) = seen.of("session:message")
    assert isinstance(said, e.SessionMessage)
    assert (said.run_id, said.source, said.content) == (seen.story.run_id, "bystander", STEER)
    taken = next(
        event for event in seen.events if isinstance(event, e.SessionTaken) and said in event.items
    )
    after = seen.events[seen.events.index(taken) :]
    before = seen.events[: seen.events.index(taken)]
    read = sum(event.type == "agent:complete" for event in before)
    assert read >= (count + 2) // 2, "half of the documents were read by then"
    open_calls = [type_ for event in before if (type_ := event.type).startswith("agent:tool:")]
    assert open_calls[-1] == "agent:tool:complete", "a step boundary"
    text = next(event for event in after if isinstance(event, e.AgentText))
    assert text.text.startswith(f"Noted: “{STEER}”"), "the very next step knows"
    steering = as_json(seen.story)["steering"]
    assert steering["seen_before_step"] == text.step
    assert steering["answer"] == {"path": "long.txt", "line": 2, "length": 9999}


async def test_without_a_message_nobody_asks_for_the_longest_line(
    tmp_path: Path, ports: Ports
) -> None:
    make_folder(tmp_path, 4)
    seen, outcome = await watch(Demo(folder=tmp_path, steer=""), ports)
    assert "longest" not in outcome.output
    assert "compare_documents" not in [call.name for call in seen.story.calls]
    assert as_json(seen.story)["steering"] is None


async def test_what_the_script_does_not_know_is_admitted_in_the_report(
    tmp_path: Path, ports: Ports
) -> None:
    make_folder(tmp_path, 4)
    _, outcome = await watch(Demo(folder=tmp_path, steer="Sing!"), ports)
    assert "You also said “Sing!”: I follow a script" in outcome.output


async def test_of_equally_long_lines_the_first_file_by_name_is_told(
    tmp_path: Path, ports: Ports
) -> None:
    for name in "dcba":
        (tmp_path / name).write_text("same\n")
    _, outcome = await watch(Demo(folder=tmp_path), ports)
    assert "line 1 of a, 4 characters" in outcome.output


def test_a_failed_tool_is_reported_and_not_called_again() -> None:
    listing = AnsweredCall(
        id="1",
        name="list_documents",
        arguments="{}",
        output='{"folder":"f","documents":4,"skipped_count":0}',
    )
    reads = [
        AnsweredCall(
            id=str(n),
            name="read_documents",
            arguments=f'{{"first":{n},"last":{n}}}',
            output="lost",
            is_error=True,
        )
        for n in (1, 2, 3, 4)
    ]
    steps = tuple(AssistantMessage(calls=(call,)) for call in (listing, *reads))
    request = ModelRequest(messages=(UserMessage(content="Survey"), *steps))
    answer = surveyor_model(request)
    assert answer.calls == ()
    assert answer.text.count("could not be read: lost") == 4
    broken = AnsweredCall(id="1", name="list_documents", arguments="{}", output="no", is_error=True)
    request = ModelRequest(messages=(UserMessage(content="S"), AssistantMessage(calls=(broken,))))
    assert surveyor_model(request).text == "The folder could not be listed: no"


# ── bad folders ──────────────────────────────────────────────────────────────────────────────


async def test_a_folder_without_text_is_reported_as_such(
    tmp_path: Path, ports: Ports, journal: Journal
) -> None:
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0")
    seen, outcome = await watch(Demo(folder=tmp_path), ports, journal)
    assert outcome.output == (
        f"There are no text files in {tmp_path}.\nSkipped 1 file: image.png (binary)."
    )
    assert as_json(seen.story)["skipped"] == [{"path": "image.png", "reason": "binary"}]
    assert seen.story.runs == 1


async def test_a_file_that_vanishes_on_the_way_fails_its_reader_alone(
    tmp_path: Path, ports: Ports, journal: Journal
) -> None:
    make_folder(tmp_path, 6)
    lost = tmp_path / "part2" / "0005.md"
    seen = Seen()

    def meddle(event: Event) -> None:
        seen(event)
        if event.type == "demo:listing":
            lost.unlink()

    outcome = await run_demo(Demo(folder=tmp_path), meddle, ports=ports, journal=journal)
    assert outcome.outcome == "completed"
    assert outcome.output.startswith("5 documents")
    assert "Could not be read after all: part2/0005.md (FileNotFoundError" in outcome.output
    (failed,) = as_json(seen.story)["failed"]
    assert failed["path"] == "part2/0005.md"
    assert any("part2/0005.md: failed: FileNotFoundError" in line for line in seen.lines)


async def test_too_many_files_are_told_and_the_first_are_read(tmp_path: Path, ports: Ports) -> None:
    make_folder(tmp_path, 8)
    seen, outcome = await watch(Demo(folder=tmp_path, max_documents=5), ports)
    assert outcome.output.startswith("5 documents")
    assert "There are more than 5 text files; the others are not read." in outcome.output
    assert len(as_json(seen.story)["notes"]) == 1


class StuckOffload:
    """Never comes back, like a dead network drive."""

    async def run(self, fn: Callable[[], T]) -> T:
        await anyio.sleep_forever()
        raise AssertionError


async def test_cancelling_it_leaves_nothing_behind(tmp_path: Path) -> None:
    make_folder(tmp_path, 3)
    ports = Ports(clock=virtual_ports().clock, offload=StuckOffload())
    seen = Seen()
    with anyio.move_on_after(5) as scope:
        await run_demo(Demo(folder=tmp_path), seen, ports=ports)
    assert scope.cancelled_caught
    assert seen.events


# ── what is shown ────────────────────────────────────────────────────────────────────────────


def drawn(what: Any, *, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, _environ={})
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_the_story_is_the_same_when_only_the_journal_tells_it(
    tmp_path: Path, ports: Ports, journal: Journal
) -> None:
    make_folder(tmp_path, 6)
    seen, _ = await watch(Demo(folder=tmp_path), ports, journal)
    again = Story()
    for event in seen.events:
        if event.is_durable:
            again.take(event)
    assert {**as_json(again), "events": 0} == {**as_json(seen.story), "events": 0}


async def test_plain_lines_tell_of_every_document_and_of_the_message(
    tmp_path: Path, ports: Ports
) -> None:
    make_folder(tmp_path, 5)
    (tmp_path / "evil\x1b[2J\n.txt").write_text("x")
    seen, _ = await watch(Demo(folder=tmp_path), ports)
    lines = [line for line in seen.lines if line]
    assert sum(line.startswith("reader ") for line in lines) == 6
    assert "reader    evil\\x1b[2J\\n.txt: 1 word, 1 line" in lines
    assert any(line.startswith("message ") and STEER in line for line in lines)
    assert "".join(lines).isprintable()


async def test_the_picture_fits_the_screen_at_every_moment(tmp_path: Path, ports: Ports) -> None:
    make_folder(tmp_path, 120)
    story = Story()
    tallest = 0
    pictures = set()

    def look(event: Event) -> None:
        nonlocal tallest
        story.take(event)
        if story.events % 40 == 0:
            picture = drawn(draw_story(story, height=30))
            tallest = max(tallest, picture.count("\n"))
            pictures.update(re.findall(r"\d+/120", picture))

    await run_demo(Demo(folder=tmp_path), look, ports=ports)
    assert 20 < tallest <= 30
    assert len(pictures) > 10, "the bar moves"
    end = drawn(draw_story(story, height=30)) + drawn(draw_end(story))
    assert "… and 2" in end
    assert "120/120" in end
    assert f"✉ “{STEER}” (sent to its run_id when 60 were read)" in end
    assert "120 documents in" in end
    assert "121 runs" in end


async def test_names_are_drawn_as_they_are_not_as_markup(tmp_path: Path, ports: Ports) -> None:
    for name in ("[red]a[bold].md", ":smile:.txt", "b\x1b]0;title\x07.txt"):
        (tmp_path / name).write_text("# x\n")
    seen, _ = await watch(Demo(folder=tmp_path), ports)
    picture = drawn(draw_story(seen.story, height=40)) + drawn(draw_end(seen.story))
    assert "[red]a[bold].md" in picture
    assert ":smile:.txt" in picture
    assert "b\\x1b]0;title\\x07.txt" in picture
    assert "\x1b" not in picture


async def test_trouble_is_drawn_first(tmp_path: Path, ports: Ports) -> None:
    make_folder(tmp_path, 60)
    lost = tmp_path / "part2" / "0056.txt"
    story = Story()

    def meddle(event: Event) -> None:
        story.take(event)
        if event.type == "demo:listing":
            lost.unlink()

    await run_demo(Demo(folder=tmp_path), meddle, ports=ports)
    assert "✗ part2/0056.txt  failed" in drawn(draw_story(story, height=20))


async def test_the_recorded_picture_is_one_svg_without_escapes(
    tmp_path: Path, ports: Ports
) -> None:
    make_folder(tmp_path, 3)
    seen, _ = await watch(Demo(folder=tmp_path), ports)
    svg = as_svg(seen.story, "hubbub demo")
    assert svg.startswith("<svg") and svg.rstrip().endswith("</svg>")
    assert "surveyor" in svg and "\x1b" not in svg


async def test_a_slow_model_streams_what_it_says(tmp_path: Path, ports: Ports) -> None:
    make_folder(tmp_path, 2)
    typed = set()
    story = Story()

    def look(event: Event) -> None:
        story.take(event)
        typed.add(story.typing)

    await run_demo(Demo(folder=tmp_path, latency=10.0), look, ports=ports)
    assert "I list the " in typed
    assert story.typing == ""
    assert story.seconds >= 40, "four steps or more, in virtual time"
