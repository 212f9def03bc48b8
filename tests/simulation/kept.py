"""What a world has written is sound to all that look at a store, as it will be to its owner."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from hubbub.hub.events.codec import encode_event
from hubbub.hub.store.reader import EventRow
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.simulation import World
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.exchange.lanes import Lanes
from hubbub.runtime.stores.open import open_reader

__all__ = ["check_store", "lanes_sound"]


def lanes_sound(history: History) -> Iterator[str]:
    """Every event of a run may stand where it stands, on every store (G-08)."""
    lanes = Lanes("store")
    for at, event in enumerate(history.events, 1):
        if event.lane == "hub":  # Stores number them as they like.
            continue
        row = EventRow(
            at, event.run_id, event.root_run_id, event.lane, event.seq, event.type, None,
            encode_event(event),
        )  # fmt: skip
        for problem in lanes.take(row):
            yield f"{problem.where}: {problem.what}"


def check_store(live: World) -> None:
    """In a store on disk: ``fsck`` finds nothing, and what is exported can be imported."""
    if live.history.store != "sqlite":
        return
    folder = live._processes._folder
    with TemporaryDirectory(dir=folder) as copy:
        for number, place in enumerate((folder, Path(copy))):
            store = f"sqlite:{place}"
            problems = [x.text for x in StoreCheck(store).problems() if not x.heals]
            assert not problems, (("the store", "its import")[number], problems)
            if number == 0:
                _copy_runs(store, f"sqlite:{copy}")


def _copy_runs(store: str, to: str) -> None:
    with open_reader(store) as reader:
        roots = [row.run_id for row in reader.rows() if row.parent_run_id is None]
        for run_id in roots:
            import_runs(to, "run.jsonl", export_run(reader, run_id), ports=virtual_ports())
