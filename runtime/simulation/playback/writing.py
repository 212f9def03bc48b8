"""Recordings of what a test did: the runs of a store or of a simulated world, as exports.

They are files like those of ``hubbub export --no-files``, one for each root: ``hubbub import``
takes them in, to be looked at with ``hubbub show``, and ``replay_recording`` plays them again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.hub.events import Event, InLane
from hubbub.hub.events.codec import encode_event
from hubbub.hub.events.identities import identity_of
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.store import Store
from hubbub.hub.values import NULL
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.simulation.world.reading import read_store
from hubbub.runtime.stores.exchange.export import (
    FORMAT,
    AcceptedLine,
    EndLine,
    EventLine,
    ExportLine,
    HeaderLine,
    RunLine,
)

__all__ = ["read_journal", "write_recordings"]

_encoder: Final = msgspec.json.Encoder()


class _Tree(Struct):
    """A root and everything below it."""

    root: str
    runs: list[RunInfo]
    events: list[Event]


async def read_journal(journal: Store) -> History:
    """All events of a store that is not in use."""
    history = History()
    await read_store(journal, history)
    return history


def write_recordings(history: History, folder: Path, name: str) -> list[Path]:
    """Write the runs of ``history`` into ``folder``, a file for each root; returns the files.

    The first is ``NAME.jsonl``, the next ``NAME-2.jsonl``.  A folder that is missing is made, a
    file that is there is replaced.
    """
    written: list[Path] = []
    for number, tree in enumerate(_trees(history), 1):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (f"{name}.jsonl" if number == 1 else f"{name}-{number}.jsonl")
        lines = [*_lines(tree, history.waiting)]
        encoded = [_encoder.encode(line) for line in (*lines, EndLine(lines=len(lines)))]
        path.write_bytes(b"".join(line + b"\n" for line in encoded))
        written.append(path)
    return written


def _trees(history: History) -> Iterator[_Tree]:
    trees = {run_id: _Tree(run_id, [], []) for run_id in history.roots}
    for info in history.runs.values():
        if (tree := trees.get(info.root_run_id)) is not None:
            tree.runs.append(info)
    for event in history.events:
        info_of = history.runs.get(event.run_id)
        if event.lane in ("own", "in") and info_of is not None and info_of.root_run_id in trees:
            trees[info_of.root_run_id].events.append(event)
    return iter(trees.values())


def _lines(tree: _Tree, waiting: Mapping[str, Sequence[InLane]]) -> Iterator[ExportLine]:
    yield HeaderLine(format=FORMAT, run_id=tree.root, store="a test", has_contents=False)
    for info in tree.runs:
        yield RunLine(
            run_id=info.run_id, root_run_id=info.root_run_id, parent_run_id=info.parent_run_id,
            agent=info.agent, name=info.name, session_key=info.session_key,
            descriptor=NULL if info.descriptor is None
            else msgspec.Raw(_encoder.encode(info.descriptor)),
            status=info.status, inbox=info.inbox, created_at=info.created_at,
            wake_at=info.wake_at, recent=info.created_at,
            waiting=tuple(item.seq for item in waiting.get(info.run_id, ())),
        )  # fmt: skip
    yield from (EventLine(event=msgspec.Raw(encode_event(event))) for event in tree.events)
    yield from _accepted(tree.events)


def _accepted(events: Iterable[Event]) -> Iterator[AcceptedLine]:
    for event in events:
        if event.lane == "in":
            source, key = identity_of(event)  # type: ignore[arg-type]
            if key:
                yield AcceptedLine(run_id=event.run_id, source=source, key=key, seq=event.seq)
