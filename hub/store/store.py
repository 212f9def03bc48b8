"""``Store``: everything a hub and its runtime need from where they keep things.

journal    events, inboxes, notes: ``Journal``, all of it
secrets    values of variables, which are in no event
blobs      contents of files, by digest
reader     the whole record, for inspection: ``StoreReader``

Beside these a store may keep snapshots of long runs (``KeepsSnapshots``), and let trees of ended
runs go while a runtime is at work (``RemovesTrees``), and contents that several trees shared
(``DropsContents``).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from hubbub.hub.ports import Keeper
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.journal import Journal, LoadedRun
from hubbub.hub.store.reader import StoreReader

__all__ = [
    "RETENTION", "DroppedContents", "DropsContents", "KeepsSnapshots", "Removed", "RemovesTrees",
    "Store", "cuts_lanes", "drops_of", "read_removed", "removals_of", "snapshots_of", "takes_bases",
]  # fmt: skip

T = TypeVar("T")

RETENTION: Final = "retention"
"""The key of the note by which a runtime tells what has gone to who only reads its store."""


class Store(Journal, Keeper, Protocol):
    """A journal, and what is kept beside it.  See ``Journal`` for the guarantees of its commits.

    ``secrets`` and ``blobs`` are ``None`` where a store has no place of its own for them: the
    ports of the program keep them then (``Ports.of_store``).  They may be asked for before
    ``open``; a durable store's are durable no later than the next commit submitted after them.
    """

    def forget_submitted(self) -> None:
        """Drop what is submitted and not being written yet; nothing is reported.

        For a process that is to end as though it were killed: nothing but ``aclose`` follows.
        """
        ...

    def publish(self, notes: Mapping[str, str]) -> None:
        """Keep texts by key, in the place of what stood there, for who only reads the store.

        It is no commit: no event is dispatched, and nothing waits for it.  A durable store's are
        durable no later than the next commit.
        """
        ...

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        """What ``look`` finds in the whole record, called where reading may block.

        It sees what subscribers have, and no part of what is being written.  Raises what ``look``
        raises, and ``StoreFailed`` or ``StoreUnreadable`` where the store cannot be read.
        """
        ...

    def reader(self) -> StoreReader:
        """A reader of what is committed, beside the store while it is open; close it before.

        Raises ``OperatorError`` where the store cannot be read.
        """
        ...


class RemovesTrees(Protocol):
    """What a store has from which trees go beside a runtime (``Commit.gone``)."""

    @property
    def keeps_all(self) -> bool:
        """Whether nothing else leaves it while it is open."""
        ...

    async def prepare_removals(self) -> None:
        """Have by what is found what goes; for the first time in a large store it takes a while."""
        ...

    async def put_by(self, run_ids: Sequence[str]) -> None:
        """Remove what is shown in files of runs that are to go, durably: ahead of them, or their
        files would bring them back.  Those of a run that stays are made again when the store is
        opened.  Raises ``OSError`` for what cannot be removed."""
        ...


class DroppedContents(Struct, frozen=True, kw_only=True):
    """What a store has done about contents that nothing names."""

    contents: int = 0
    """How many are gone."""
    size: int = 0
    """How many bytes these took."""
    more: bool = False
    """Whether there is more to do."""
    problems: Sequence[str] = ()
    """Why others stay that should go."""


class DropsContents(Protocol):
    """What a store has, beside ``RemovesTrees``, in which trees share contents of files."""

    def hold_contents(self) -> None:
        """From now on contents may go, but none that was put since and is not on record yet.  To
        be called before anything is put."""
        ...

    async def look_at_contents(self) -> bool:
        """Look at the next events, for the contents that they name; whether there are more.  Call
        it until there are none before trees go."""
        ...

    async def drop_contents(self) -> DroppedContents:
        """Have some contents go that no event and no note names, and that nobody is about to name.
        Call it again for more."""
        ...


class Removed(Struct, kw_only=True):
    """What has gone since a runtime was opened, and when it looked last."""

    since: int
    """When that was (µs since the Unix epoch)."""
    passed: int | None = None
    """When the last pass was over (µs); ``None`` before the first."""
    trees: int = 0
    runs: int = 0
    events: int = 0
    silent: int = 0
    """Trees that were ended because nothing was heard of them."""
    contents: int = 0
    """Contents of files that nothing named any more, in a store in which trees share them."""
    content_bytes: int = 0
    problems: int = 0
    """Trees and contents that stay although they should go."""
    cuts: int = 0
    """How often old turns of a run that lives have gone."""


class KeepsSnapshots(Protocol):
    """What a store has that keeps snapshots; others are read whole."""

    def keep_snapshot(self, draft: SnapshotDraft) -> None:
        """Keep a snapshot, if one is due, when nothing else is to be done.  It never raises."""
        ...

    async def load_kept(self, run_id: str, version: str) -> LoadedRun | None:
        """A run, from its snapshot on if there is a sound one of this version, else whole."""
        ...


def snapshots_of(store: object) -> KeepsSnapshots | None:
    """What keeps a store's snapshots; ``None`` for a store that keeps none.

    Nor does one keep any whose ``load`` was written over without ``load_kept``, as by a class that
    wraps another store, or is derived from one: what it makes of ``load`` holds for every read.
    """
    own = getattr(store, "__dict__", ())
    is_bypassed = ("load" in own and "load_kept" not in own) or _bypasses_load(type(store))
    return store if hasattr(store, "keep_snapshot") and not is_bypassed else None  # type: ignore[return-value]


def _bypasses_load(kind: type) -> bool:
    """Whether the ``load_kept`` of a store knows nothing of its ``load``: a nearer class has it."""
    for each in kind.__mro__:
        if "load_kept" in vars(each):
            return False
        if "load" in vars(each):
            return True
    return False


def cuts_lanes(store: object) -> bool:
    """Whether old turns of runs that live go from a store (``Commit.cut``)."""
    return getattr(store, "cuts_lanes", False) is True


async def takes_bases(store: object) -> bool:
    """Whether runs may write bases into a store from which old turns go: not while a process is at
    work on it that does not know what they are, which the store's own ``takes_bases`` says."""
    ask = getattr(store, "takes_bases", None)
    return ask is None or bool(await ask())


def removals_of(store: object) -> RemovesTrees | None:
    """What has trees of a store go; ``None`` for a store from which none go.

    A store that wraps another one has the attribute ``removals``.
    """
    found: Any = getattr(store, "removals", store)
    return found if hasattr(found, "prepare_removals") else None


def drops_of(store: object) -> DropsContents | None:
    """What has contents of a store go; ``None`` for a store in which they go with their tree.

    A store that wraps another one has the attribute ``drops``.
    """
    found: Any = getattr(store, "drops", store)
    return found if hasattr(found, "drop_contents") else None


def read_removed(note: str) -> Removed | None:
    """What a note says; ``None`` for none, and for one that cannot be read."""
    try:
        return _decoder.decode(note) if note else None
    except msgspec.DecodeError:  # hubbub fsck says so.
        return None


_decoder: Final = msgspec.json.Decoder(Removed)
