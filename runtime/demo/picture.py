"""The demo's story as a tree, for a terminal.  Needs rich, the ``cli`` extra; writes nothing."""

import io
from heapq import nsmallest
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hubbub.runtime.demo.story import Call, Entry, Reading, Story, SurveyorHeard, found, summary
from hubbub.runtime.text import printable

__all__ = ["TREE_LINES", "as_svg", "draw_end", "draw_story"]

MANY: Final = 12
"""Documents from which on a progress bar is shown."""

TREE_LINES: Final = 38
"""Lines that the finished tree may take."""

WIDTH: Final = 100

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_OVERHEAD: Final = 8
"""Lines besides the surveyor's entries: its head, the bar, what is being typed, some air."""


def draw_story(story: Story, *, height: int, tick: int = 0) -> RenderableType:
    """The tree of runs as it stands, in at most about ``height`` lines."""
    tree = Tree(_head(story, tick), guide_style="bright_black")
    room = max(0, height - _OVERHEAD - len(story.entries))
    share = max(2, room // max(1, sum(bool(call.readings) for call in story.calls)))
    for entry in story.entries:
        _add(tree, entry, share, tick)
    if story.typing:
        tree.add(_line(story.typing.splitlines()[-1], "italic"))
    if story.documents <= MANY:
        return tree
    return Group(tree, _bar(story))


def as_svg(story: Story, command: str) -> str:
    """The end of the demo as a picture for a page, below the command that was typed."""
    console = Console(
        record=True, file=io.StringIO(), width=WIDTH, force_terminal=True,
        color_system="truecolor", highlight=False, legacy_windows=False, _environ={},
    )  # fmt: skip
    console.print(Text(f"$ {command}", "bold"), draw_story(story, height=TREE_LINES))
    console.print(draw_end(story))
    return console.export_svg(title="hubbub demo", unique_id="hubbub-demo")


def draw_end(story: Story) -> RenderableType:
    """The report, and a line on what happened."""
    panel = Panel(Text(story.report), title="report", title_align="left", border_style="green")
    return Group(panel, Text(summary(story), "dim"))


def _head(story: Story, tick: int) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{_mark(story.ending.outcome if story.ending else '', tick)} ", "bold")
    text.append("surveyor", "bold cyan")
    return text.append(f"  a model run, {story.run_id}", "dim")


def _add(tree: Tree, entry: Entry, room: int, tick: int) -> None:
    match entry:
        case SurveyorHeard():
            after = f" (sent to its run_id when {entry.after_documents} were read)"
            text = _line(f"✉ “{printable(entry.text)}”", "bold yellow")
            tree.add(text.append(after, "dim"))
        case Call():
            branch = tree.add(_call(entry, tick))
            for line in _readers(entry.readings, room, tick):
                branch.add(line)
        case _:
            tree.add(_line(printable(entry.text), "italic"))


def _call(call: Call, tick: int) -> Text:
    arguments = ", ".join(f"{name}={value}" for name, value in call.arguments.items())
    outcome = ("failed" if call.is_error else "completed") if call.is_done else ""
    text = _line(f"{_mark(outcome, tick)} ")
    text.append(call.name, "magenta").append(f"({arguments})", "dim")
    if call.is_error:
        text.append(f"  {printable(call.output)}", "red")
    return text


def _readers(readings: list[Reading], room: int, tick: int) -> list[Text]:
    """The readers most worth seeing: at work, in trouble, with broken links, then the others."""
    if len(readings) <= room:
        return [_reader(reading, tick) for reading in readings]
    places = nsmallest(room - 1, range(len(readings)), lambda at: _interest(readings[at]))
    shown = [_reader(readings[at], tick) for at in sorted(places)]
    more = len(readings) - len(shown)
    return [*shown, _line(f"… and {more} more", "dim")]


def _interest(reading: Reading) -> int:
    if reading.outcome not in ("", "completed"):
        return 0
    if reading.facts is not None and reading.facts.broken_links:
        return 1
    return 3 if reading.outcome else 2


def _reader(reading: Reading, tick: int) -> Text:
    text = _line(f"{_mark(reading.outcome, tick)} ")
    is_wrong = reading.outcome not in ("", "completed")
    return text.append(reading.path, "cyan").append(
        f"  {found(reading)}", "red" if is_wrong else "dim"
    )


def _bar(story: Story) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_row(
        Text("documents"),
        ProgressBar(total=story.documents, completed=story.read, width=40),
        Text(f"{story.read:,}/{story.documents:,}"),
    )
    return row


def _mark(outcome: str, tick: int) -> str:
    if not outcome:
        return _SPINNER[tick % len(_SPINNER)]
    return "✓" if outcome == "completed" else "✗"


def _line(text: str, style: str = "") -> Text:
    # One line each, so that the tree's height can be told.
    return Text(no_wrap=True, overflow="ellipsis").append(text, style)
