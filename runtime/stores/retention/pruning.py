"""Pruning: trees that have ended leave a store for good, as a ``Retention`` says.

    ended trees ─► exports ─► agents' folders ─► rows, events, keys ─► notes, contents

* In this order, in transactions of about ``BATCH`` runs, each part on the disk before the next:
  whenever the process dies, or the power fails, each tree is there with all that it has, or gone.
  A folder that is gone without its run is written again when a runtime opens the store; the rest is
  made up for by the next pruning.
* The tree with the last event of the store stays until something else is written: no position is
  used twice, so what a cursor says of another tree holds.  A cursor into a tree that is gone cannot
  be placed, and yields a gap.
* A content goes when no event and no note names its digest any more, in whatever way.
* What the hub's own lane says of a tree stays: that lane is one chain.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from hubbub.agents.state.prompts import LASTING
from hubbub.hub.errors import BadValue, HubbubError, OperatorError
from hubbub.hub.ports import Ports
from hubbub.hub.store.cursor import REMOVED, removed_up_to
from hubbub.hub.store.intake import RunIntake
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.exchange.run_check import READ_ERRORS
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.write import folder_name
from hubbub.runtime.stores.open import folder_of_store, open_intake, open_reader
from hubbub.runtime.stores.retention.retention import EndedTree, Retention, trees_to_go
from hubbub.runtime.stores.retention.trees import (
    EndedRun,
    damage_in,
    ended_tree,
    last_end,
    what_goes_with,
)
from hubbub.runtime.stores.sqlite.blobs import sync_folder
from hubbub.runtime.stores.sqlite.output_file import check_outside_stores, write_output
from hubbub.runtime.stores.sqlite.private_files import make_private_folder

__all__ = ["Found", "Pruned", "find_trees", "prune_store"]

BATCH: Final = 200
"""Runs after which a transaction ends, with the tree that is at hand."""

STEP: Final = 200_000
"""Events after which progress is reported."""

LOOKED_AT: Final = 20_000
"""Trees after which it is, as it is decided about them."""

REMEDY: Final = "name a folder for the exports: --export FOLDER"

FIRST: Final = -(1 << 62)
"""Before every position, damaged ones included."""

_DIGEST: Final = re.compile(rb"[0-9a-f]{64}")

Tell = Callable[[str], object]


class Found(Struct, frozen=True, kw_only=True):
    """What a retention says of a store."""

    trees: Sequence[EndedTree]
    """Those that go, oldest first."""
    kept: int
    """How many trees have ended and stay."""
    problems: Sequence[str]
    """Of trees that have ended and cannot be read: they stay."""


class Pruned(Struct, frozen=True, kw_only=True):
    """What has gone."""

    trees: Sequence[EndedTree]
    kept: int
    contents: int
    exports: Sequence[str]
    """The files that were written."""
    problems: Sequence[str]
    """Of trees that stay although they should go: what is wrong, and the remedy."""


def find_trees(
    store: StoreReader, retention: Retention, now: int, tell: Tell | None = None
) -> Found:
    """What a retention says of a store at a time (µs).  Changes nothing."""
    tell = tell or _nobody
    with store.one_moment():
        sizes = _sizes(store, tell) if retention.most is not None else {}
        trees, problems = _ended_trees(store, sizes, tell)
        going = trees_to_go(trees, retention, now, sum(sizes.values()))
        for last in store.event_rows(after=store.tip - 1):
            if last.lane != "hub":
                going = [tree for tree in going if last.run_id not in tree.run_ids]
    return Found(trees=going, kept=len(trees) + len(problems) - len(going), problems=problems)


def _nobody(_: str) -> None:
    """Nobody is told of progress."""


def _sizes(store: StoreReader, tell: Tell) -> Mapping[str, int]:
    """How many bytes the events of each run take, and, by no id, those of the hub's own lane."""
    sizes = {"": 0}
    for count, row in enumerate(store.event_rows(after=FIRST), 1):
        if count % STEP == 0:
            tell(f"{count:,} events measured")
        run_id = row.run_id if row.lane != "hub" else ""
        sizes[run_id] = sizes.get(run_id, 0) + len(row.body)
    return sizes


def _ended_trees(
    store: StoreReader, sizes: Mapping[str, int], tell: Tell
) -> tuple[list[EndedTree], list[str]]:
    """The trees in which every run has ended, and what is wrong with others of them."""
    live: set[str] = set()
    ended: dict[str, list[EndedRun]] = {}
    for row in store.rows():
        if row.status != "ended":
            live.add(row.root_run_id)
            ended.pop(row.root_run_id, None)
        elif row.root_run_id not in live:
            run = (row.run_id, row.agent, row.seq + row.in_seq)
            ended.setdefault(row.root_run_id, []).append(run)
    trees: list[EndedTree] = []
    problems: list[str] = []
    for count, (root, runs) in enumerate(ended.items(), 1):
        if count % LOOKED_AT == 0:
            tell(f"{count:,} of {len(ended):,} trees that have ended looked at")
        try:
            tree = ended_tree(store, root, runs)
            size = sum(sizes.get(run_id, 0) for run_id in tree.run_ids)
            trees.append(structs.replace(tree, size=size))
        except (*READ_ERRORS, HubbubError) as error:
            problems.append(f"run {root}: cannot be read ({error}), and is kept; see hubbub fsck")
    times = Counter(tree.ended_at for tree in trees)
    placed = [
        structs.replace(tree, place=last_end(store, tree)) if times[tree.ended_at] > 1 else tree
        for tree in trees
    ]
    return placed, problems


def prune_store(
    store: str,
    retention: Retention,
    *,
    export: Path | None = None,
    ports: Ports,
    tell: Tell | None = None,
) -> Pruned:
    """Have the trees of the store that ``store`` names go that ``retention`` does not keep.

    No runtime may be at work on it.  With ``export`` each is written into that folder first, as
    ``hubbub export`` does, and is on the disk before anything goes.  A tree that cannot be exported
    stays.  ``silent`` is for a runtime: here it changes nothing.  Raises ``BadValue`` for a text
    that names no store, for ``keep_turns``, and for ``silent`` alone, and ``OperatorError`` where
    there is none, where it is in use, or where it cannot be written: what has gone by then is gone
    whole.
    """
    if retention.keep_turns is not None:
        raise BadValue("keep_turns", "only a runtime lets turns go: the run itself writes its base")
    if not retention.removes:
        raise BadValue("retention", "only a runtime ends what is silent; give ended, or keep_last")
    with open_reader(store):  # Where there is none, nothing is made for it.
        pass
    if export is not None:
        _make_folder(export, store)
    tell = tell or _nobody
    with open_intake(store, ports.ids, "hubbub prune") as intake:
        found = find_trees(intake.reader, retention, ports.clock.now(), tell)
        pruning = _Pruning(store, intake, export, tell)
        pruning.prune(found.trees)
        return Pruned(
            trees=pruning.gone, contents=pruning.contents, exports=pruning.exports,
            problems=[*found.problems, *pruning.problems],
            kept=found.kept + len(found.trees) - len(pruning.gone),
        )  # fmt: skip


def _make_folder(export: Path, store: str) -> None:
    check_outside_stores(export, remedy=REMEDY, store=folder_of_store(store))
    missing = [place for place in (export, *export.parents) if not place.exists()]
    try:
        make_private_folder(export)
        for place in missing:
            sync_folder(place.parent)
    except OSError as error:
        raise OperatorError(f"{export}: {error.strerror}; {REMEDY}") from error
    if not export.is_dir():
        raise OperatorError(f"{export}: is not a folder; {REMEDY}")


class _Pruning:
    """One pruning of a store."""

    def __init__(self, store: str, intake: RunIntake, export: Path | None, tell: Tell) -> None:
        self._folder = folder = folder_of_store(store)
        self._written = [each for each in (export, folder and folder.agents) if each]
        """Where something is made, or removed, before a tree goes."""
        self._intake = intake
        self._export = export
        self._tell = tell
        self._disk = RealDisk()
        self.gone: list[EndedTree] = []
        self.exports: list[str] = []
        self.problems: list[str] = []
        self.contents = 0

    def prune(self, trees: Sequence[EndedTree]) -> None:
        """Have trees go."""
        for batch in _batches(trees):
            ready = [tree for tree in batch if self._is_put_by(tree)]
            self._flush()
            with self._intake.all_or_nothing():
                self._note(ready)
                for tree in ready:
                    self._forget(tree)
            self._intake.settle()
            self.gone += ready
            self._tell(f"{len(self.gone):,} of {len(trees):,} trees pruned")
        if self.gone:
            self._drop_requests()
            self._drop_contents()

    def _is_put_by(self, tree: EndedTree) -> bool:
        """Export a tree, where that is wanted, and remove its folders; whether that was done."""
        try:
            if damage := damage_in(self._intake.reader, tree.run_ids):
                raise OperatorError(f"{damage}; see hubbub fsck")
            if self._export is not None:
                for run_id in _tops(self._intake.reader, tree):
                    path = self._export / f"{folder_name(run_id)}.jsonl"
                    lines = export_run(self._intake.reader, run_id)
                    write_output(path, lines, remedy=REMEDY, store=self._folder)
                    self.exports.append(str(path))
            if self._folder is not None:
                for run_id in tree.run_ids:
                    self._disk.remove_tree(str(self._folder.agents / folder_name(run_id)))
        except OSError as error:
            words = f"{error.filename}: {error.strerror}; make it removable"
        except (*READ_ERRORS, HubbubError) as error:
            words = str(error)
        else:
            return True
        self.problems.append(f"run {tree.root_run_id} is kept: {words}")
        return False

    def _flush(self) -> None:
        """Have on the disk what was done beside the store: a folder that came back would bring its
        agent back."""
        for place in self._written:
            try:
                if place.is_dir():
                    sync_folder(place)
            except OSError as error:
                words = f"{error.strerror}; look at the disk, and do this again"
                raise OperatorError(f"{place}: {words}") from error

    def _note(self, trees: Sequence[EndedTree]) -> None:
        """Note up to where something goes, for who comes with a cursor from before it."""
        reader = self._intake.reader
        places = [what_goes_with(reader, tree.run_ids)[0] for tree in trees]
        highest = max([removed_up_to(reader.notes(REMOVED), reader.tip), *places])
        self._intake.put_note(REMOVED, str(highest))

    def _forget(self, tree: EndedTree) -> None:
        for run_id in tree.run_ids:
            self._intake.forget(run_id)
            self._intake.drop_notes(f"{LASTING}{run_id}.")

    def _drop_requests(self) -> None:
        kept = self._intake.reader.roots()
        with self._intake.all_or_nothing():
            self._intake.drop_requests(kept.__contains__)

    def _drop_contents(self) -> None:
        """Remove the contents that nothing names any more."""
        unnamed = {digest.encode() for digest in self._intake.contents()}
        if not unnamed:
            return
        reader = self._intake.reader
        for note in reader.notes().values():
            unnamed.difference_update(_DIGEST.findall(note.encode()))
        for count, row in enumerate(reader.event_rows(after=FIRST), 1):
            unnamed.difference_update(_DIGEST.findall(row.body))
            if count % STEP == 0:
                self._tell(f"{count:,} events looked through for contents of files")
        self.contents = self._intake.drop_contents(sorted(x.decode() for x in unnamed))


def _batches(trees: Sequence[EndedTree]) -> Iterator[list[EndedTree]]:
    batch: list[EndedTree] = []
    runs = 0
    for tree in trees:
        batch.append(tree)
        runs += len(tree.run_ids)
        if runs >= BATCH:
            yield batch
            batch, runs = [], 0
    if batch:
        yield batch


def _tops(store: StoreReader, tree: EndedTree) -> Iterator[str]:
    """The runs of a tree below which the others are: its root, unless it was imported in part."""
    for run_id in tree.run_ids:
        row = store.row(run_id)
        if row is not None and row.parent_run_id not in tree.run_ids:
            yield run_id
