"""``hubbub prune``: trees that have ended leave a store."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from hubbub.hub.errors import OperatorError
from hubbub.hub.events.moments import shown_moment
from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import FAILED, Write, document, write_all
from hubbub.runtime.stores.open import DEFAULT_STORE, open_reader
from hubbub.runtime.stores.retention.retention import EndedTree, Retention
from hubbub.runtime.stores.retention.typed import typed_retention
from hubbub.runtime.text import printable

if TYPE_CHECKING:
    from hubbub.runtime.stores.retention.pruning import Pruned

__all__ = ["prune_command"]

SHOWN: Final = 100
"""Trees, and problems, that are listed one by one."""


def prune_command(write: Write, notice: Write) -> Callable[..., int]:
    def prune(
        *,
        ended: str | None = None,
        keep_last: int | None = None,
        max_bytes: str | None = None,
        dry_run: bool = False,
        export: Path | None = None,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Remove runs that have ended, for good: whole trees, oldest first.

        A tree goes with its events, keys, files and folders when every run in it has ended. What
        has not ended is always kept. No runtime may be at work on the store; with --dry-run one
        may. Freed space is used again. Exit code 1: some trees were kept because of a problem.

        Parameters
        ----------
        ended
            Keep those that ended less than this ago: 30d, 12h, 90min, 8w.
        keep_last
            Keep that many that ended last, however old and large they are.
        max_bytes
            What all events of the store may take (500MB, 10GB): beyond it the oldest go, however
            young they are. Contents of files do not count.
        dry_run
            Change nothing; print what would go.
        export
            Write each tree into this folder first, as RUN.jsonl, which hubbub import accepts.
        json
            Print one JSON object instead: dry_run, trees (root_run_id, agent, run_ids, events,
            ended_at, size), kept, contents, exports, problems.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.stores.retention.pruning import prune_store

        if dry_run and export is not None:
            raise OperatorError("--dry-run writes nothing; leave --export out, or --dry-run")
        retention = typed_retention(ended=ended, keep_last=keep_last, max_bytes=max_bytes)
        if retention is None:
            raise OperatorError("what may go? give --ended 30d, --keep-last 100, --max-bytes 10GB")
        if dry_run:
            made = _found(store, retention, notice)
        else:
            made = prune_store(store, retention, export=export, ports=Ports(), tell=notice)
        if json:
            write(document({"dry_run": dry_run, **msgspec.structs.asdict(made)}))
        else:
            write_all(write, _lines(made, dry_run))
            write_all(notice, map(printable, made.problems[:SHOWN]))
        return FAILED if made.problems else 0

    return prune


def _found(store: str, retention: Retention, tell: Write) -> "Pruned":
    """What would go."""
    from hubbub.runtime.stores.retention.pruning import Pruned, find_trees

    with open_reader(store) as reader:
        found = find_trees(reader, retention, Ports().clock.now(), tell)
    return Pruned(
        trees=found.trees, kept=found.kept, problems=found.problems, contents=0, exports=()
    )


def _lines(made: "Pruned", is_dry: bool) -> Iterator[str]:
    trees = made.trees
    if is_dry:
        yield from map(_tree_line, trees[:SHOWN])
        if (more := len(trees) - SHOWN) > 0:
            yield f"… and {more:,} more trees"
    runs, events = sum(len(x.run_ids) for x in trees), sum(x.events for x in trees)
    what = f"{len(trees):,} trees of {runs:,} runs and {events:,} events"
    if is_dry:
        yield f"would remove {what}; {made.kept:,} trees that have ended would stay"
        return
    contents = f"{made.contents:,} contents of files"
    yield f"removed {what}, {contents}; {made.kept:,} trees that have ended stay"
    if made.exports:
        yield f"exported first, as {len(made.exports):,} files"


def _tree_line(tree: EndedTree) -> str:
    when = shown_moment(tree.ended_at, "seconds")
    return printable(f"{tree.root_run_id}  {tree.agent}  ended {when}  {tree.events:,} events")
