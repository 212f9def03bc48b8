"""All that a store tells who reads it, to compare two stores with."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hubbub.hub.events.descriptors import kind_of_descriptor
from hubbub.hub.store.reader import info_of
from hubbub.runtime.stores.open import open_original, open_reader

__all__ = ["agents_in", "told_by"]


def told_by(store: str) -> dict[str, Any]:
    """What every function of the reader of a store at rest says, its secrets and contents."""
    found: dict[str, Any] = {}
    with open_original(store) as original:
        found["secrets"] = dict(original.secrets())
        found["contents"] = dict(original.contents())
    with ExitStack() as inside:
        reader = inside.enter_context(open_reader(store))
        rows = [*reader.rows()]
        found |= {
            "name": reader.name, "tip": reader.tip, "rows": rows, "roots": reader.roots(),
            "events": [*reader.event_rows()], "backwards": [*reader.event_rows(backwards=True)],
            "waiting": [*reader.waiting()], "accepted": [*reader.accepted()],
            "notes": reader.notes(), "described": reader.described(),
            "described later": reader.described(reader.tip // 2),
            "spoken to": reader.spoken_to(50), "newest": reader.newest_trees(live=False, limit=50),
            "live": reader.newest_trees(live=True, limit=50), "every": reader.find("", "every"),
            "only": reader.find("", "only"), "newest user": reader.find("user", "newest"),
        }  # fmt: skip
        for row in rows:
            info, run_id = info_of(row), row.run_id
            found[run_id] = {
                "row": reader.row(run_id), "tree": reader.tree(run_id), "load": reader.load(run_id),
                "lanes": reader.lanes(run_id, 1_000), "waiting": [*reader.waiting(run_id)],
                "events": [*reader.event_rows((run_id,))], "below": reader.find(run_id, "below"),
                "accepted": [*reader.accepted(run_id)], "item": reader.item(run_id, 1),
                "latest": reader.latest(run_id, ("agent:status", "agent:start", "session:end")),
                "key": info.session_key and reader.find(info.session_key, "key"),
                "name": reader.find(info.agent, "name"), "matching": reader.matching(run_id[:9], 9),
                "kind": kind_of_descriptor(info.descriptor),
            }  # fmt: skip
    return found


def agents_in(folder: Path) -> dict[str, Any]:
    """The files in agents' folders.  Where ``run.jsonl`` says how the run stood in between depends
    on what was written together, so that is left out."""
    files: dict[str, Any] = {}
    for place in folder.rglob("*"):
        if place.is_file():
            content: Any = place.read_bytes()
            if place.name == "run.jsonl":
                lines = content.splitlines()
                events = [x for x in lines if x.startswith(b'{"line":"event"')]
                keys = [x for x in lines if x.startswith(b'{"line":"accepted"')]
                content = (lines[0], events, sorted(keys), lines[-1])
            files[str(place.relative_to(folder))] = content
    return files
