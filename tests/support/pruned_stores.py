"""Stores with trees that ended at different times, for the tests of pruning."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import anyio
from msgspec import Struct

from hubbub import Message, Runtime
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.virtual import EPOCH, LoopClock
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.stores.open import open_original, open_reader
from support.stores import SECRET, agents

__all__ = ["DAY", "Aged", "counted_calls", "fill_with_ages", "ports_at", "problems", "told_of"]

DAY: Final = 86_400


class Aged(Struct, frozen=True):
    """The roots in such a store, by when they ended."""

    old: str
    """On the first day; its file has the words of the next one's, too, and one of its own."""
    family: str
    """On the second, with a child; it was opened with a session key, and spoken to with keys."""
    young: str
    """On the third."""
    chat: str
    """A conversation that goes on."""
    last: str
    """On the fourth: it has the last event in the store."""


class _At(LoopClock):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._now = EPOCH + int(seconds * 1_000_000)

    def now(self) -> int:
        return self._now


def ports_at(seconds: float) -> Ports:
    """Ports of a command at a time after the beginning."""
    return Ports(clock=_At(seconds))


async def fill_with_ages(store: Any, ports: Ports) -> Aged:
    """Make a store in virtual time."""
    async with Runtime(agents(), store=store, ports=ports, grace=0.1) as rt:
        old = await rt.run("bot", "alone")
        await anyio.sleep(DAY)
        family = await rt.start("parent", "go", session_key="family", env={"TOKEN": SECRET})
        await rt.hub.send_to_run(family.run_id, Message("hello?", key="k"))
        await anyio.sleep(1)
        await rt.hub.terminate(family.run_id)
        await rt.finished(family.run_id)
        await anyio.sleep(DAY)
        young = await rt.run("bot", "shared")
        chat = await rt.start("bot", Message("shared", key="opening"), session_key="chat_1")
        await chat.result()
        await anyio.sleep(DAY)
        last = await rt.run("bot", "newest")
    return Aged(old.run_id, family.run_id, young.run_id, chat.run_id, last.run_id)


def problems(store: str) -> list[str]:
    """What fsck finds, but folders that are behind."""
    return [x.text for x in StoreCheck(store, thorough=True).problems() if not x.heals]


def told_of(store: str) -> dict[str, Any]:
    """All that a store holds, by tree; and beside them."""
    with open_original(store) as original:
        secrets, contents = dict(original.secrets()), dict(original.contents())
    with open_reader(store) as reader:
        roots = dict(reader.roots())
        found: dict[str, Any] = {root: _tree(reader, root) for root in {*roots.values()}}
        return found | {
            "tip": reader.tip, "name": reader.name, "notes": dict(reader.notes()),
            "contents": contents, "secrets": secrets,
            "hub": [x for x in reader.event_rows() if x.lane == "hub"],
        }  # fmt: skip


def _tree(reader: StoreReader, root: str) -> Any:
    rows = reader.tree(root)
    run_ids = [row.run_id for row in rows]
    return (
        rows, [*reader.event_rows(run_ids)], [[*reader.accepted(x)] for x in run_ids],
        [[*reader.waiting(x)] for x in run_ids],
    )  # fmt: skip


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """How many functions are called inside: one number, in a list."""
    counted = [0]

    def count(frame: FrameType, event: str, _: Any) -> None:
        counted[0] += event == "call"

    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(None)
