"""Light tasks (``light.py``) on Trio.  Only there it is imported."""

from contextvars import Context
from functools import partial
from typing import Any

from anyio.abc import TaskGroup
from trio import CancelScope, Nursery

from hubbub.hub.tasks.light import Work

__all__ = ["TrioLightTasks"]


class TrioLightTasks:
    """Those in the nursery of a task group, which cancels them and waits for them."""

    __slots__ = ("_nursery",)

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery

    @classmethod
    def of(cls, group: TaskGroup) -> "TrioLightTasks | None":
        """Those of a group, if it says what nursery it has: no promise of anyio's."""
        nursery: Any = getattr(group, "_nursery", None)
        return cls(nursery) if isinstance(nursery, Nursery) else None

    def start(self, work: Work, name: str, context: Context) -> CancelScope:
        """Start a task of ``work``, which enters the scope by which it is cancelled."""
        scope = CancelScope()
        context.run(partial(self._nursery.start_soon, work, scope, name=name or None))
        return scope

    @property
    def ids(self) -> frozenset[int]:
        """The ids of all tasks of the group."""
        return frozenset(map(id, self._nursery.child_tasks))
