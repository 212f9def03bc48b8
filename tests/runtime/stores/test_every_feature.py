"""Whatever a runtime writes is sound to all that look at a store: ``fsck``, export and import,
backups, folders that come back without their database."""

import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from journals.record import STORIES
from msgspec import structs
from support.feature_stories import FEATURES, Story
from support.folder_worlds import WORLDS

from hubbub import (
    CustomEvent,
)
from hubbub.agents.state import fold
from hubbub.agents.state.bases import base_of
from hubbub.agents.state.thread import Thread, origin_of
from hubbub.hub import events as e
from hubbub.hub.events import CATALOGUE, Event
from hubbub.hub.events.codec import encode_event
from hubbub.hub.events.sessions import IN_BOTH_LANES
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import EventRow
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.backup import backup_store
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.exchange.lanes import Lanes
from hubbub.runtime.stores.open import open_reader, sqlite_store

RUN: Final = "01900000-0000-7000-8000-00000000000a"


# ── the catalogue ────────────────────────────────────────────────────────────────────────────


def lanes_of(kind: type[Event]) -> set[str]:
    """Where a runtime writes events of a type: at their home, and where a run reads its own."""
    found = {"own", "hub"} if kind.home == "scope" else {kind.home} - {"none"}
    return found | ({"own"} if kind in fold._CHANGES else set())


WRITTEN: Final = [
    (kind, lane) for kind in (*CATALOGUE, CustomEvent) for lane in sorted(lanes_of(kind))
]


def test_something_stands_in_both_lanes_of_a_run() -> None:
    both = [kind for kind in CATALOGUE if lanes_of(kind) == {"own", "in"}]
    assert both == [*IN_BOTH_LANES]


@pytest.mark.spec("G-04", "G-08")
@pytest.mark.parametrize(
    ("kind", "lane"), WRITTEN, ids=lambda x: getattr(x, "type", x) if x is not CustomEvent else "my"
)
def test_every_event_is_sound_in_every_lane_that_a_runtime_writes_it_to(
    kind: type[Event], lane: str
) -> None:
    opening = e.SessionOpen(run_id=RUN, root_run_id=RUN, agent="a", lane="in", seq=1)
    start = e.AgentStart(run_id=RUN, root_run_id=RUN, agent="a", lane="own", seq=1)
    seq = 1 if lane == "hub" else 2
    event = kind(run_id=RUN, root_run_id=RUN, agent="a", lane=lane, seq=seq)
    if isinstance(event, e.AgentBase):
        base = base_of(Thread(agent="a", phase="live", origin=origin_of(opening)))
        assert base is not None
        event = structs.replace(event, thread_json=base.thread_json, inbox=1)  # One item has come.
    lanes = Lanes("store")
    problems = [
        problem.what
        for position, x in enumerate((opening, start, event), 1)
        for problem in lanes.take(
            EventRow(
                position, RUN, RUN, x.lane, x.seq, x.type, None, encode_event(x)
            )
        )
    ]  # fmt: skip
    assert problems == []


# ── the features ─────────────────────────────────────────────────────────────────────────────


def _world(name: str) -> Story:
    async def play(store: Any, ports: Ports) -> None:
        await WORLDS[name](sqlite_store(store.removeprefix("sqlite:")), 3)

    return play


PLAYED: Final[dict[str, Story]] = {
    **FEATURES,
    **{f"recorded {name}": story for name, story in STORIES.items() if name != "future"},
    **{f"world {name}": _world(name) for name in WORLDS},
}
"""A story is given the text that names its store; what comes from the future needs the store."""


@pytest.mark.anyio
@pytest.mark.spec("G-04", "G-08", "P-02")
@pytest.mark.parametrize("story", PLAYED.values(), ids=PLAYED)
async def test_what_a_runtime_wrote_is_sound_and_comes_back_by_every_way(
    story: Story, ports: Ports, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    await story(store, ports)
    assert unsound(store) == []
    before = bodies(store)
    assert before

    backup_store(store, tmp_path / "backup")
    assert unsound(f"sqlite:{tmp_path / 'backup'}") == []
    assert bodies(f"sqlite:{tmp_path / 'backup'}") == before

    imported = f"sqlite:{tmp_path / 'imported'}"
    exports = exports_of(store)
    for lines in exports.values():
        import_runs(imported, "run.jsonl", lines, ports=ports)
    assert unsound(imported) == []
    assert bodies(imported) == before
    assert exports_of(imported) == exports

    adopted, kept = without_database(tmp_path / "store", tmp_path / "adopted")
    assert await told_by(adopted) == []
    assert unsound(adopted) == []
    assert bodies(adopted) == {run_id: before[run_id] for run_id in kept}


def without_database(folder: Path, copy: Path) -> tuple[str, set[str]]:
    """A copy of a store without its database, and the runs that come back there.

    Roots have a folder where somebody can address them; without theirs, their children are roots
    of their own, which changes what is written.
    """
    with open_reader(f"sqlite:{folder}") as reader:
        roots = {row.run_id: row.root_run_id for row in reader.rows()}
    shutil.copytree(folder, copy)
    for file in copy.glob("hubbub.*"):
        file.unlink()
    present = {file.parent.name for file in copy.glob("agents/*/run.jsonl")}
    kept = {run_id for run_id in present if roots[run_id] in present}
    for run_id in present - kept:
        shutil.rmtree(copy / "agents" / run_id)
    return f"sqlite:{copy}", kept


async def told_by(store: str) -> list[str]:
    """What a store reports of its folders when it is opened."""
    opened = sqlite_store(store.removeprefix("sqlite:"), ports=virtual_ports())
    await opened.open()
    try:
        await opened.projected()
        return list(opened.problems)
    finally:
        await opened.aclose()


def unsound(store: str) -> list[str]:
    """What ``fsck`` finds, folders that are behind included: a runtime has left them in order."""
    return [each.text for each in StoreCheck(store, thorough=True).problems() if not each.heals]


def exports_of(store: str) -> dict[str, list[bytes]]:
    """The export of each tree, as it is in a file."""
    with open_reader(store) as reader:
        roots = [row.run_id for row in reader.rows() if not row.parent_run_id]
        return {run_id: [*export_run(reader, run_id)] for run_id in roots}


def bodies(store: str) -> dict[str, list[bytes]]:
    """Every event of every run, as it is kept."""
    with open_reader(store) as reader:
        return {
            row.run_id: [x.body for x in reader.event_rows((row.run_id,)) if x.lane != "hub"]
            for row in reader.rows()
        }
