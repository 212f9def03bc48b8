"""``hubbub workers``: who is at work on a store, as it is printed, of a folder and of rows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.stores import agents

from hubbub import Runtime
from hubbub.__main__ import main
from hubbub.hub.events import CustomEvent
from hubbub.hub.events.codec import encode_event
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import EventRow, ProcessRow
from hubbub.runtime.cli.text import process_lines
from hubbub.runtime.inspection.at_work import StoreAtWork, list_processes


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["workers", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_of_a_folder_it_is_the_one_runtime_or_nobody_whose_trees_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:{tmp_path}/kept"

    async def work() -> None:
        async with Runtime(agents(), store=store) as rt:
            for name in ("one", "two"):
                await (await rt.start("bot", name, session_key=name)).result()
            told = said(capsys, "--store", store).splitlines()
            assert told[0].split()[:3] == ["process", "kind", "since"] and len(told) == 2
            assert " worker " in told[1] and told[1].startswith("process ")
            (process,) = json.loads(said(capsys, "--json", "--store", store))["processes"]
            assert (process["trees"], process["running"], process["is_worker"]) == (2, 0, True)
            assert process["left"] is process["since"] is process["lag"] is None
            assert process["lag_seconds"] is None

    anyio.run(work)
    assert said(capsys, "--store", store) == (
        "nobody is at work on this store\ntrees that nobody drives:\n  2 of bot\n"
    )
    found = json.loads(said(capsys, "--json", "--store", store))
    assert found["processes"] == []
    assert found["free"] == [{"agent": "bot", "trees": 2, "is_known": False}]


def test_a_folder_without_a_store_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workers", "--store", f"sqlite:{tmp_path}/none"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "no such store" in shown.err and shown.err.count("\n") == 1


NOW = 600_000_000

ROWS = (
    ProcessRow(
        name="a:1", is_worker=True, since=60_000_000, left=5.25, trees=1_200, running=7,
        capacity=2_000, agents=("bot", "desk\x1b[2J"), told=90,
    ),
    ProcessRow(
        name="b:2", is_worker=True, since=500_000_000, left=1.0, trees=3, running=1,
        agents=("old",), drains=True, told=100,
    ),
    ProcessRow(
        name="web", is_worker=False, since=590_000_000, left=6.0, trees=0, running=0, told=99
    ),
    ProcessRow(name="older", is_worker=False, since=590_000_000, left=6.0, trees=0, running=0),
)  # fmt: skip


def test_agents_that_workers_define_in_several_ways_are_shown_with_who_has_the_same() -> None:
    def row(name: str, **definitions: str) -> ProcessRow:
        return ProcessRow(
            name=name, is_worker=True, trees=0, running=0, definitions=definitions, agents=()
        )

    class Deployed(Kept):
        def processes(self) -> Any:
            return (row("a", bot="1", x="9"), row("b", bot="2"), row("c", bot="1", x="9"))

    found: StoreAtWork = list_processes(Deployed(), 0)  # type: ignore[arg-type]
    assert [(one.agent, one.workers) for one in found.differing] == [("bot", (("a", "c"), ("b",)))]
    assert [*process_lines(found, 0)][-2:] == [
        "agents with several definitions (those with the same one together):",
        "  bot: a, c | b",
    ]


class Kept:
    """A reader of what several processes share."""

    tip = 100

    def __getattr__(self, name: str) -> Any:
        return getattr(MemoryJournal().reader(), name)

    def event_rows(self, *, after: int, until: int) -> Iterator[EventRow]:
        """The event after 90; there is none after 99 any more."""
        assert until == after + 1
        if after == 90:
            body = encode_event(CustomEvent(name="x", lane="own", at=NOW - 2_500_000))
            yield EventRow(until, "run", "run", "own", 1, "x", None, bytes(body))

    def processes(self) -> Any:
        return ROWS

    def free_trees(self) -> Any:
        return {"bot": 4, "old": 2, "gone": 1_000}


def test_leases_shares_and_lags_are_shown_and_for_which_agents_nobody_is_there() -> None:
    found: StoreAtWork = list_processes(Kept(), NOW)  # type: ignore[arg-type]
    assert [(each.agent, each.is_known) for each in found.free] == [
        ("bot", True), ("old", False), ("gone", False),  # Who leaves takes nothing more.
    ]  # fmt: skip
    assert [one.lag for one in found.processes] == [10, 0, 1, None]
    assert [one.lag_seconds for one in found.processes] == [2.5, 0.0, None, None]
    assert [*process_lines(found, NOW)] == [
        "process  kind             since  lease  trees  running  capacity  position  behind      "
        "agents",
        "a:1      worker           9 min  5.2 s  1,200  7        2,000     90        10 (2.5 s)  "
        "bot, desk\\x1b[2J",
        "b:2      worker, leaving  100 s  1.0 s  3      1                  100                   "
        "old",
        "web      channel          10 s   6.0 s                            99        1",
        "older    channel          10 s   6.0 s",
        "trees that nobody drives:",
        "  4 of bot",
        "  2 of old: no worker that is here knows this agent",
        "  1,000 of gone: no worker that is here knows this agent",
    ]
