"""Adopting agents: folders that the database does not know are put into it.

Delete the database, or copy one agent's folder to another machine, and the agents are there when
a runtime is opened.  What cannot be read is reported and stays where it is.

* A session key, a user, a cron task and the heartbeat have one open run: a folder of one that is
  taken waits until that run is over.
* A family is adopted from above: below a folder that was not adopted nothing is, or a child would
  come to its end with nobody there to be told.  One whose parent is nowhere goes on alone.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from hubbub.hub.addressing import identity_of, is_from_user
from hubbub.hub.events import SessionMessage
from hubbub.hub.events.codec import encode_event
from hubbub.hub.events.descriptors import (
    encode_descriptor,
    is_addressed,
    is_identity,
    kind_of_descriptor,
)
from hubbub.hub.logs import log
from hubbub.hub.store.intake import RunIntake
from hubbub.hub.store.journal import Addressing
from hubbub.hub.store.reader import RunRow, StoreReader
from hubbub.hub.texts import readable
from hubbub.runtime.stores.exchange.lanes import Lanes
from hubbub.runtime.stores.folders.read import Adopted, Broken
from hubbub.runtime.stores.folders.write import AgentFolders, run_id_of
from hubbub.runtime.stores.sqlite.regular_files import read_regular

__all__ = ["adopt", "problems_of"]


def adopt(
    intake: RunIntake, folders: AgentFolders, default_agent: str = ""
) -> Sequence[Adopted | Broken]:
    """Put the folders that the store does not know into it; returns them, and the broken ones.

    Call in the writing thread, before anything is submitted.
    """
    reader = intake.reader
    foreign = folders.foreign(reader.roots().get, default_agent=default_agent)
    found = _with_families(_with_free_names(foreign, reader))
    # Whom a user spoke to last comes last: that order is what recency is read from.
    adopted = sorted((one for one in found if isinstance(one, Adopted)), key=_last_heard)
    for one in adopted:
        with intake.all_or_nothing():
            _put(intake, one)
        folders.renew(one.info)
    for each in found:
        if isinstance(each, Broken):
            log.error("agent_folder.broken", problem=str(each))
            continue
        log.info("agent_folder.adopted", folder=each.folder, run_id=each.info.run_id)
        for warning in each.warnings:
            log.warning("agent_folder.adopted", problem=warning)
    return found


def _with_free_names(
    found: Iterable[Adopted | Broken], reader: StoreReader
) -> list[Adopted | Broken]:
    """Of several folders with one key or descriptor the one heard from last is adopted."""
    sorted_out: list[Adopted | Broken] = []
    taken: dict[tuple[str, Addressing], str] = {}
    for one in sorted(found, key=_last_heard, reverse=True):
        for what, to, by in _names_of(one):
            assert isinstance(one, Adopted)
            run_id = one.info.run_id
            holder = next(iter(reader.find(to, by)), taken.setdefault((to, by), run_id))
            if holder != run_id:
                what = f"its {what} is that of run {holder}, which is open"
                remedy = "terminate that run, and it is adopted when the store is next opened"
                file = f"{one.folder}/state.json"
                one = Broken(folder=one.folder, file=file, line=1, what=what, remedy=remedy)
                break
        sorted_out.append(one)
    return sorted_out


def _names_of(one: Adopted | Broken) -> Iterable[tuple[str, str, Addressing]]:
    """What only one open run may have: in words, and as an address."""
    if isinstance(one, Broken) or one.info.inbox != "open":
        return
    if (key := one.info.session_key) and is_addressed(one.info.descriptor):
        yield f"session key {key!r}", key, "key"
    if is_identity(one.info.descriptor):
        text = bytes(encode_descriptor(one.info.descriptor)).decode()
        yield f"descriptor {text}", text, "descriptor"


def _with_families(found: Sequence[Adopted | Broken]) -> list[Adopted | Broken]:
    """Leave out who stands below one that is left out."""
    sorted_out: list[Adopted | Broken] = []
    left_out = {run_id_of(Path(one.folder).name) for one in found if isinstance(one, Broken)}
    by_id = {one.info.run_id: one for one in found if isinstance(one, Adopted)}
    for one in found:
        above = _first_above(one, by_id, left_out) if isinstance(one, Adopted) else None
        if above is not None:
            what = f"it stands below run {above}, which could not be adopted"
            remedy = "once that is, it is adopted, too"
            one = Broken(folder=one.folder, file=one.folder, line=0, what=what, remedy=remedy)
        sorted_out.append(one)
    return sorted_out


def _first_above(
    one: Adopted, by_id: Mapping[str, Adopted], left_out: Container[str | None]
) -> str | None:
    """The nearest run above it that is left out."""
    seen = set()
    at: Adopted | None = one
    while at is not None and at.info.run_id not in seen:
        seen.add(at.info.run_id)
        for above in (at.info.parent_run_id, at.info.root_run_id):
            if above is not None and above in left_out:
                return above
        at = by_id.get(at.info.parent_run_id or "")
    return None


def _put(intake: RunIntake, one: Adopted) -> None:
    for digest, path in one.files.items():
        intake.put_content(digest, read_regular(path))
    info, lanes = one.info, Lanes("")
    left = {item.seq for item in one.pending}
    taken = [item for item in one.items if item.seq not in left]
    for event in (*taken, *one.events, *one.pending):
        for _ in lanes.take(intake.put_event(event, encode_event(event))):
            pass  # Nothing is wrong with them: they were looked at.
    lane = lanes.runs[info.run_id]
    descriptor = bytes(encode_descriptor(info.descriptor)).decode()
    row = RunRow(
        address=info.run_id, run_id=info.run_id, root_run_id=info.root_run_id,
        parent_run_id=info.parent_run_id, agent=info.agent, name=info.name,
        session_key=info.session_key, kind=kind_of_descriptor(info.descriptor),
        descriptor=descriptor, status=info.status, inbox=info.inbox,
        ready=info.status == "active" or (info.status != "ended" and bool(left)),
        seq=lane.seq, in_seq=lane.in_seq, chain=None, waiting=len(left),
        messages=sum(isinstance(item, SessionMessage) for item in one.pending), born=lane.born,
        created_at=info.created_at, wake_at=info.wake_at, recent=_last_heard(one),
    )  # fmt: skip
    intake.put_run(row, sorted(left))
    for item in one.items:
        source, key = identity_of(item)
        if key:
            intake.put_key(info.run_id, source, key, item.seq)


def _last_heard(one: Adopted | Broken) -> int:
    if isinstance(one, Broken):
        return 0
    said = [x.at for x in one.items if isinstance(x, SessionMessage) and is_from_user(x)]
    return max(said, default=one.info.created_at)


def problems_of(found: Sequence[Adopted | Broken]) -> tuple[str, ...]:
    """What people must hear of: folders that were left out, and what was missing in others."""
    problems: list[str] = []
    for one in found:
        problems += [str(one)] if isinstance(one, Broken) else one.warnings
    return tuple(map(readable, problems))
