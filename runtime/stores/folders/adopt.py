"""Adopting agents: the runs of folders that the database does not know are imported into it.

Delete the database, or copy one agent's folder to another machine, and the agents are there when
a runtime is opened.  What cannot be read is reported and stays where it is.

* A tree's runs are imported together, all or none, by the checks of every import.
* A session key, a user, a cron task and the heartbeat have one open run: a folder of one that is
  taken waits until that run is over.
* A family is adopted from above: below a folder that was not adopted nothing is, or a child would
  come to its end with nobody there to be told.  One whose parent is nowhere continues alone.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.hub.events.descriptors import (
    encode_descriptor,
    is_addressed,
    is_identity,
    read_descriptor,
)
from hubbub.hub.events.files import kept_contents
from hubbub.hub.logs import log
from hubbub.hub.store.intake import RunIntake
from hubbub.hub.store.journal import Addressing, RunInfo
from hubbub.hub.store.reader import StoreReader, own_lane
from hubbub.hub.texts import readable
from hubbub.runtime.stores.exchange.export import FORMAT, EndLine, EventLine, HeaderLine, write_line
from hubbub.runtime.stores.exchange.incoming_runs import ImportProblem, IncomingRuns
from hubbub.runtime.stores.exchange.lanes import may_have_started
from hubbub.runtime.stores.exchange.run_check import READ_ERRORS
from hubbub.runtime.stores.folders.disk import Disk
from hubbub.runtime.stores.folders.files import FolderFiles
from hubbub.runtime.stores.folders.foreign import ForeignRun, foreign_runs, without_those_below
from hubbub.runtime.stores.folders.repaired import RepairedRun, merged, repaired
from hubbub.runtime.stores.folders.run_files import RUN
from hubbub.runtime.stores.folders.run_text import Broken
from hubbub.runtime.stores.folders.write import AgentFolders, folder_name
from hubbub.runtime.stores.sqlite.regular_files import read_regular

__all__ = ["Adopted", "adopt", "problems_of", "refused"]

_MISFITS: Final = (*READ_ERRORS, ImportProblem, OSError)
"""What is raised where runs do not fit together, or cannot be read."""


class Adopted(Struct, frozen=True, kw_only=True):
    """A run that was put into the store."""

    folder: str
    info: RunInfo
    warnings: tuple[str, ...] = ()


Found: TypeAlias = Adopted | Broken


def adopt(
    intake: RunIntake, folders: AgentFolders, disk: Disk, files: FolderFiles, root: str
) -> Sequence[Found]:
    """Put the runs of the folders in ``root`` that the store does not know into it; returns what
    became of each.

    Call in the writing thread, before anything is submitted.
    """
    roots = intake.reader.roots()
    found, present = _found(disk, root, intake.reader, roots)
    told: list[Found] = [one for one in found if isinstance(one, Broken)]
    trees = _trees([one for one in found if isinstance(one, ForeignRun)])
    # Whom a user spoke to last comes last: what is shown by age is shown in that order.
    for tree in sorted(trees, key=lambda tree: _last_heard(tree[0])):
        adopted = _adopt_tree(intake, files, tree, roots, present)
        told += adopted
        for one in adopted:
            if isinstance(one, Adopted):
                folders.renew(one.info)
    for each in told:
        if isinstance(each, Broken):
            log.error("agent_folder.broken", problem=str(each))
            continue
        log.info("agent_folder.adopted", folder=each.folder, run_id=each.info.run_id)
        for warning in each.warnings:
            log.warning("agent_folder.adopted", problem=warning)
    return told


def refused(disk: Disk, root: str, reader: StoreReader) -> list[Broken]:
    """The folders in ``root`` that a runtime which opens the store leaves where they are, as far as
    that shows without importing them.

    Raises ``StoreUnreadable``.
    """
    roots = reader.roots()
    found, present = _found(disk, root, reader, roots)
    left_out = [one for one in found if isinstance(one, Broken)]
    for tree in _trees([one for one in found if isinstance(one, ForeignRun)]):
        try:
            repaired(tree, _is_there(roots, present))
        except _MISFITS as error:
            left_out += _misfits(tree, error)
    return left_out


def _found(
    disk: Disk, root: str, reader: StoreReader, roots: Mapping[str, str]
) -> tuple[list[ForeignRun | Broken], frozenset[str]]:
    """The folders of runs that the store does not have, and the names of all of these."""
    found = _with_free_names(foreign_runs(disk, root, roots.get, _knows_child(reader)), reader)
    return found, frozenset(_folder_of(one).rpartition("/")[2] for one in found)


def _is_there(roots: Mapping[str, str], present: Container[str]) -> Callable[[str], bool]:
    return lambda run_id: run_id in roots or folder_name(run_id) in present


def _folder_of(one: ForeignRun | Broken) -> str:
    return one.folder if isinstance(one, Broken) else one.text.folder


def _knows_child(reader: StoreReader) -> Callable[[str, str], bool]:
    """Whether a run of the store has recorded another one as its child, or may have."""

    def knows(parent: str, run_id: str) -> bool:
        try:
            return may_have_started(own_lane(reader, parent), run_id)
        except READ_ERRORS:  # The parent is damaged, and its child stays one of it.
            return True

    return knows


# ── who comes in ─────────────────────────────────────────────────────────────────────────────


def _with_free_names(
    found: Sequence[ForeignRun | Broken], reader: StoreReader
) -> list[ForeignRun | Broken]:
    """Of several folders with one key or descriptor, the one spoken to last is adopted."""
    taken: dict[tuple[str, Addressing], str] = {}
    left_out: dict[str | None, Broken] = {}
    foreign = [one for one in found if isinstance(one, ForeignRun)]
    for one in sorted(foreign, key=_last_heard, reverse=True):
        run_id = one.text.run_id
        for what, to, by in _names_of(one):
            holder = next(iter(reader.find(to, by)), taken.setdefault((to, by), run_id))
            if holder != run_id:
                left_out[run_id] = Broken(
                    folder=one.text.folder, file=f"{one.text.folder}/{RUN}", line=0,
                    what=f"its {what} is that of run {holder}, which is open",
                    remedy="terminate that run, and it is adopted when the store is next opened",
                )  # fmt: skip
                break
    kept = [one for one in foreign if one.text.run_id not in left_out]
    broken = [one for one in found if isinstance(one, Broken)]
    return [*broken, *left_out.values(), *without_those_below(kept, left_out)]


def _names_of(one: ForeignRun) -> Iterator[tuple[str, str, Addressing]]:
    """What only one open run may have: in words, and as an address."""
    line = one.text.line
    if line.inbox != "open":
        return
    text = bytes(line.descriptor)
    descriptor = None if text == b"null" else read_descriptor(text)
    if (key := line.session_key) and is_addressed(descriptor):
        yield f"session key {key!r}", key, "key"
    if is_identity(descriptor):
        said = bytes(encode_descriptor(descriptor)).decode()
        yield f"descriptor {said}", said, "descriptor"


def _last_heard(one: ForeignRun) -> int:
    return one.text.line.recent or one.text.line.created_at


def _trees(found: Iterable[ForeignRun]) -> list[list[ForeignRun]]:
    """The runs that are imported together: trees, each with its root first."""
    by_id = {one.text.run_id: one for one in found}
    below: dict[str, list[ForeignRun]] = {}
    tops = []
    for one in by_id.values():
        if one.place.parent in by_id:
            below.setdefault(str(one.place.parent), []).append(one)
        else:
            tops.append(one)
    trees = []
    for top in tops:
        tree = [top]
        for one in tree:  # It grows.
            tree += below.get(one.text.run_id, ())
        trees.append(tree)
    return trees


# ── coming in ────────────────────────────────────────────────────────────────────────────────


def _adopt_tree(
    intake: RunIntake,
    files: FolderFiles,
    tree: Sequence[ForeignRun],
    roots: Mapping[str, str],
    present: Container[str],
) -> list[Found]:
    try:
        runs = repaired(tree, _is_there(roots, present))
        with intake.all_or_nothing():
            return _import(intake, files, runs)
    except _MISFITS as error:
        return [*_misfits(tree, error)]


def _misfits(tree: Sequence[ForeignRun], error: BaseException) -> list[Broken]:
    what = f"does not fit together: {error}"
    remedy = "restore the folder from a backup, or remove it"
    return [
        Broken(
            folder=one.text.folder, file=f"{one.text.folder}/{RUN}", line=0, what=what,
            remedy=remedy,
        )
        for one in tree
    ]  # fmt: skip


def _import(intake: RunIntake, files: FolderFiles, runs: Sequence[RepairedRun]) -> list[Found]:
    incoming = IncomingRuns(intake, replace=False)
    for number, line in enumerate(_lines(runs), 1):
        incoming.take(number, line)
    found: list[Found] = []
    for run in runs:
        lost = _take_contents(intake, files, run)
        warnings = (*run.text.warnings, *lost)
        found.append(Adopted(folder=run.text.folder, info=run.info, warnings=warnings))
    incoming.finish()
    return found


def _lines(runs: Sequence[RepairedRun]) -> Iterator[bytes]:
    """The runs as an export has them."""
    top, count = runs[0].text, 1
    yield write_line(
        HeaderLine(format=FORMAT, run_id=top.run_id, store=top.store, has_contents=False)
    )
    for run in runs:
        count += 1
        yield write_line(run.text.line)
    for stored in merged(run.text for run in runs):
        count += 1
        yield write_line(EventLine(event=msgspec.Raw(stored.body)))
    for run in runs:
        for key in run.text.accepted:
            count += 1
            yield write_line(key)
    yield write_line(EndLine(lines=count))


def _take_contents(intake: RunIntake, files: FolderFiles, run: RepairedRun) -> list[str]:
    """Keep the contents that the folder shows; returns what is missing of what the run has."""
    path, lost = run.text.folder, []
    area = run.record.thread.area.files
    shown = set()
    for name, ref in area.items():
        problem, place = files.problem(path, ref), files.place(path, name)
        if not problem and place is not None:
            intake.put_content(ref.digest, read_regular(place))
            shown.add(ref.digest)
        elif problem:
            lost.append(f"{path}/files/{name}: {problem}")
    named = {ref.digest for x in run.text.events for ref in kept_contents(x.event)}
    former = named - shown - {ref.digest for ref in area.values()}
    if gone := [digest for digest in former if not _has(intake.reader, digest)]:
        what = "contents of files that it had before are not here"
        lost.append(f"{path}/{RUN}: {len(gone)} {what}")
    return lost


def _has(reader: StoreReader, digest: str) -> bool:
    try:
        reader.content(digest)
    except OSError:
        return False
    return True


def problems_of(found: Sequence[Found]) -> tuple[str, ...]:
    """The problems to report: folders that were left out, and gaps in others."""
    problems: list[str] = []
    for one in found:
        problems += [str(one)] if isinstance(one, Broken) else one.warnings
    return tuple(map(readable, problems))
