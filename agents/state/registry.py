"""The registry of children: what a run's tools and its model see of them.

Rules
-----
* It lists the instances that stay.  What is known of them was written when they were started;
  ``status`` alone is theirs: ``running``, ``idle`` or ``terminated`` at each transition, or the
  text of ``session_status`` and ``set_status`` until the next.
* While there are any, each model step is shown one system message with references, names and
  statuses, made again.  All that live are in it, and the last few that are terminated.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from hubbub.agents.state.family import Child, Family

__all__ = ["SubagentRegistryEntry", "entry_of", "registry_note"]

MAX_TERMINATED: Final = 10
MAX_STATUS_CHARS: Final = 500


class SubagentRegistryEntry(Struct, frozen=True, kw_only=True):
    """A child that stays.  ``created_at`` is µs since the epoch."""

    reference: str
    name: str
    title: str = ""
    description: str = ""
    resumable: bool = True
    blocking: bool = True
    thread_name: str = ""
    spawn_group_id: str = ""
    created_at: int = 0
    status: str = "idle"
    parent_communication: Literal["implicit", "explicit"] = "implicit"


def entry_of(child: Child, statuses: Mapping[str, str]) -> SubagentRegistryEntry:
    """A child as its parent's registry shows it."""
    return SubagentRegistryEntry(
        reference=child.run_id,
        name=child.agent,
        title=child.title,
        description=child.description,
        resumable=child.resumable,
        blocking=child.blocking,
        thread_name=child.name,
        spawn_group_id=child.group,
        created_at=child.created_at,
        status=_status(child, statuses),
        parent_communication="explicit" if child.explicit else "implicit",
    )


def registry_note(family: Family, statuses: Mapping[str, str]) -> tuple[str, ...]:
    """The system message about a run's children; nothing while there are none."""
    children = family.registry
    if not children:
        return ()
    over = [child for child in children if child.ended]
    shown = [child for child in children if not child.ended or child in over[-MAX_TERMINATED:]]
    lines = [
        f"- {child.run_id}: {child.agent} {child.name!r}: {_status(child, statuses)}"
        for child in shown
    ]
    if len(over) > MAX_TERMINATED:
        lines.append(f"- and {len(over) - MAX_TERMINATED} more that are terminated")
    return ("Your subagents, by reference:\n" + "\n".join(lines),)


def _status(child: Child, statuses: Mapping[str, str]) -> str:
    if child.ended:
        return "terminated"
    # One that has not said anything yet is about to start.
    return statuses.get(child.run_id, "running")[:MAX_STATUS_CHARS]
