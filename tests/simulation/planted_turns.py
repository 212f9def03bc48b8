"""Bugs to plant in how old turns go, and in what begins behind a base (``planted``)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

from msgspec import structs

from hubbub.agents.state.bases import base_of, is_due, thread_of
from hubbub.agents.state.family import Family
from hubbub.agents.state.thread import Thread
from hubbub.hub.events import AgentBase
from hubbub.hub.store.journal import Commit, Cut
from hubbub.hub.store.ledger_row import Settled
from hubbub.hub.store.memory_rows import MemoryRow
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.removal import old_turns
from hubbub.runtime.removal.old_turns import OldTurns

__all__ = ["TURNS", "WORLDS_OF_TURNS"]

_due = old_turns._due


@contextmanager
def one_turn_too_few() -> Iterator[None]:
    """Of the turns that are to be kept one goes."""

    def sooner(store: StoreReader, run_id: str, keep: int) -> Any:
        return _due(store, run_id, keep - 1)

    with patch.object(old_turns, "_due", sooner):
        yield


@contextmanager
def cut_below_a_frame() -> Iterator[None]:
    """Nobody looks whether an agent has the conversation at a base."""
    with (
        patch.object(old_turns, "were_over", lambda *_: True),
        patch("hubbub.agents.turn.interpret.is_due", _is_due_below_frames),
    ):
        yield


def _is_due_below_frames(thread: Thread, keep_turns: int) -> bool:
    own = [child for child in thread.family.children if not child.takeover]
    family = structs.replace(thread.family, children=tuple(own))
    return is_due(structs.replace(thread, family=family), keep_turns)


@contextmanager
def cut_with_mail() -> Iterator[None]:
    """Nobody looks whether something waited at a base."""
    with patch.object(old_turns, "_without_mail", lambda store, run_id, bases: bases):
        yield


@contextmanager
def schedules_keep_all_turns() -> Iterator[None]:
    """Turns that no user has begun never go."""

    def of_users(store: StoreReader, run_id: str, **how: Any) -> Any:
        row = store.row(run_id)
        is_timed = row is not None and row.kind in ("cron", "heartbeat")
        return None if is_timed else _due(store, run_id, **how)

    with patch.object(old_turns, "_due", of_users):
        yield


@contextmanager
def children_keep_all_turns() -> Iterator[None]:
    """Turns of a child that stays never go."""

    def of_roots(store: StoreReader, run_id: str, **how: Any) -> Any:
        row = store.row(run_id)
        is_child = row is not None and row.parent_run_id is not None
        return None if is_child else _due(store, run_id, **how)

    with patch.object(old_turns, "_due", of_roots):
        yield


@contextmanager
def hole_of_turns_untold() -> Iterator[None]:
    """A reader that is behind learns nothing of turns that go before it has read them."""

    async def let_go(self: OldTurns, due: Any, step: Any) -> bool:
        notes, run_id = self._note_of(step.last), due.cut.run_id
        cut = structs.replace(due.cut, after=step.after, until=step.last)
        commit = Commit(cut=cut, notes=notes, about=run_id)
        await self._commit(commit)
        return not commit.error

    with patch.object(OldTurns, "_let_go", let_go):
        yield


@contextmanager
def keys_go_with_turns() -> Iterator[None]:
    """Of what has gone nobody knows any more that it was accepted."""
    cut = MemoryRow.cut

    def forgetting(row: MemoryRow, what: Cut) -> Sequence[int]:
        gone = cut(row, what)
        known = (row.keys or {}).items()
        row.keys = {key: item for key, item in known if not isinstance(item, Settled)}
        return gone

    with patch.object(MemoryRow, "cut", forgetting):
        yield


@contextmanager
def base_without_children() -> Iterator[None]:
    """A base says nothing of the children that stay."""

    def childless(thread: Thread, worked: int = 0) -> AgentBase | None:
        return base_of(structs.replace(thread, family=Family()), worked)

    with patch("hubbub.agents.turn.interpret.base_of", childless):
        yield


@contextmanager
def files_lost_behind_a_base() -> Iterator[None]:
    """A run that is read from its base on has no files."""

    def without_files(base: AgentBase) -> Thread:
        thread = thread_of(base)
        return structs.replace(thread, area=structs.replace(thread.area, files={}))

    with patch("hubbub.agents.state.fold.thread_of", without_files):
        yield


@contextmanager
def keys_of_the_gone_not_forked() -> Iterator[None]:
    """A fork does not know under which keys messages were accepted that have gone."""
    with patch("hubbub.runtime.timelines.cut._Cut._settled", lambda *_: {}):
        yield


TURNS: Final[Mapping[str, Callable[[], AbstractContextManager[Any]]]] = {
    plant.__name__: plant
    for plant in (
        one_turn_too_few,
        cut_below_a_frame,
        cut_with_mail,
        schedules_keep_all_turns,
        children_keep_all_turns,
        hole_of_turns_untold,
        keys_go_with_turns,
        base_without_children,
        files_lost_behind_a_base,
        keys_of_the_gone_not_forked,
    )
}

WORLDS_OF_TURNS: Final[Mapping[str, int]] = {
    **dict.fromkeys(TURNS, 60),
    "keys_of_the_gone_not_forked": 150,
    "cut_with_mail": 700,
}
"""How many worlds it may take to find each, from seed 0 on."""
