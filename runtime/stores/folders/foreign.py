"""``foreign_runs``: the agents' folders of runs that a store does not have, read and placed.

Nothing here changes a file, and nothing that is in one raises.
"""

from collections.abc import Callable, Container, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.state.bases import base_behind_gap
from hubbub.hub.addressing import is_minted
from hubbub.hub.events import AgentChild, SessionOpen
from hubbub.hub.values import NULL
from hubbub.runtime.stores.folders.disk import Disk
from hubbub.runtime.stores.folders.families import Place, place_families
from hubbub.runtime.stores.folders.run_files import RUN
from hubbub.runtime.stores.folders.run_text import Broken, RunText, read_run, unreadable
from hubbub.runtime.stores.folders.write import run_id_of

__all__ = ["ForeignRun", "foreign_runs", "without_those_below"]


class ForeignRun(Struct, frozen=True, kw_only=True):
    """A run that the store does not have, and its place there."""

    text: RunText
    place: Place


def foreign_runs(
    disk: Disk,
    root: str,
    root_of: Callable[[str], str | None],
    knows: Callable[[str, str], bool],
) -> list[ForeignRun | Broken]:
    """The folders in ``root`` of runs that the store does not have.

    ``root_of`` tells the root of a run that it has, ``knows`` whether such a run has another one
    on record as its child.
    """
    texts: dict[str, RunText] = {}
    broken: list[Broken] = []
    left_out: dict[str, None] = {}
    try:
        names = disk.listdir(root)
    except OSError as error:
        return [unreadable(root, error)]
    for name in names:
        path, run_id = f"{root}/{name}", run_id_of(name)
        what = _misplaced(disk, path, run_id)
        if what:
            broken.append(_out_of_place(path, what))
        elif what is not None and run_id is not None and root_of(run_id) is None:
            found = read_run(disk, path, run_id)
            if isinstance(found, Broken):
                broken.append(found)
                left_out[run_id] = None
            else:
                texts[run_id] = found
    placed = _placed(texts, left_out, root_of, knows)
    found_ones = [x for x in placed if isinstance(x, ForeignRun)]
    return [*broken, *(x for x in placed if isinstance(x, Broken)), *without_those_below(
        found_ones, {*left_out, *(run_id_of(Path(x.folder).name) for x in placed
                                  if isinstance(x, Broken))}
    )]  # fmt: skip


def without_those_below(
    found: list[ForeignRun], left_out: Container[str | None]
) -> list[ForeignRun | Broken]:
    """Leave out those who stand below one that is left out."""
    by_id = {one.text.run_id: one for one in found}
    return [_unless_below(one, by_id, left_out) for one in found]


def _unless_below(
    one: ForeignRun, by_id: Mapping[str, ForeignRun], left_out: Container[str | None]
) -> ForeignRun | Broken:
    above = one.place.parent
    while above is not None:
        if above in left_out:
            what = f"it stands below run {above}, which could not be adopted"
            remedy = "once that is, it is adopted, too"
            folder = one.text.folder
            return Broken(folder=folder, file=folder, line=0, what=what, remedy=remedy)
        above = by_id[above].place.parent if above in by_id else None
    return one


def _placed(
    texts: Mapping[str, RunText],
    left_out: Container[str],
    root_of: Callable[[str], str | None],
    knows: Callable[[str, str], bool],
) -> list[ForeignRun | Broken]:
    parents = {x: text.line.parent_run_id for x, text in texts.items()}

    def root_where(run_id: str) -> str | None:
        # One that cannot be read is there, and those below it wait for it.
        return run_id if run_id in left_out else root_of(run_id)

    circles = {x for x, place in place_families(parents, root_where).items() if place.is_circle}
    children = {x: _children(text) for x, text in texts.items()}
    # What has gone behind a base may have said of any run that it was started.
    cut = {x for x, text in texts.items() if base_behind_gap(line.event for line in text.events)}
    lost: dict[str, str] = {}
    for run_id, parent in parents.items():
        if parent is None or run_id in circles or parent in left_out:
            continue
        if parent in children:
            known = parent in cut or run_id in children[parent]
        else:
            known = root_of(parent) is None or knows(parent, run_id)
        if not known and not _says_itself(texts[run_id]):
            lost[run_id] = f"its parent {parent} knows of no such child; it is a root of its own"
            parents[run_id] = None
    places = place_families(parents, root_where)
    return [_one(texts[x], places[x], lost.get(x, ""), x in circles) for x in texts]


def _one(text: RunText, place: Place, lost: str, is_circle: bool) -> ForeignRun | Broken:
    if is_circle:
        what, remedy = "its parents form a circle", "restore the folder from a backup"
        return Broken(
            folder=text.folder, file=f"{text.folder}/{RUN}", line=0, what=what, remedy=remedy
        )
    if place.lost:
        lost = f"its parent {place.lost} is not here; it is a root of its own"
    if lost:
        text = replace(text, warnings=(*text.warnings, f"{text.folder}: {lost}"))
        place = replace(place, lost=place.lost or str(text.line.parent_run_id))
    return ForeignRun(text=text, place=place)


def _children(text: RunText) -> frozenset[str]:
    return frozenset(x.event.child_run_id for x in text.events if isinstance(x.event, AgentChild))


def _says_itself(text: RunText) -> bool:
    """Whether it was not its parent that opened a run."""
    first = next((x.event for x in text.events if x.event.lane == "in"), None)
    return isinstance(first, SessionOpen) and first.descriptor_json is not NULL


def _misplaced(disk: Disk, path: str, run_id: str | None) -> str | None:
    """Why what is there is no folder of an agent; empty for one, ``None`` for what was
    never meant to be one.

    A project may keep code of its own in a folder of that name.
    """
    is_link = disk.is_link(path)
    if not (is_link or disk.is_folder(path)) or not _is_certainly_ours(disk, path):
        return None
    if is_link:
        return "a link, which is not followed"
    return "its name is that of no run" if run_id is None else ""


def _is_certainly_ours(disk: Disk, path: str) -> bool:
    """Whether a folder has the id of a run as its name, or what nobody else writes in it."""
    if is_minted(path.rpartition("/")[2]):
        return True
    try:
        names = disk.listdir(path)
    except OSError:
        return False
    return not {"descriptor.json", RUN}.isdisjoint(names) or {"state.json", "history.jsonl"} <= {
        *names
    }


def _out_of_place(path: str, what: str) -> Broken:
    remedy = "put the folder itself there under the id of its run, or remove it"
    return Broken(folder=path, file=path, line=0, what=what, remedy=remedy)
