"""Notes that processes leave in a store that several share, and what goes of them.

    a worker begins ─► its own note of agents, whole
                    ─► out of the others' go its own agents, and those that no worker at work offers
                       and no unfinished tree wants
                    ─► notes without agents go, and those of prompts that have ended

So there is one description of each agent, that of the worker that began last, and as many notes at
most as there are agents that somebody offers or wants.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

__all__ = ["AGENTS", "ASKED", "of_agents", "spent", "tidied"]

AGENTS: Final = "agents"
"""The key of the note that says which agents there are; in a store that several share, the
beginning of the keys."""

ASKED: Final = "asked"
"""Begins the keys of the notes of prompts that no run asks."""


def of_agents(notes: Mapping[str, str]) -> Mapping[str, str]:
    """Those of ``notes`` that say which agents there are."""
    return {key: x for key, x in notes.items() if key == AGENTS or key.startswith(f"{AGENTS}:")}


def tidied(
    notes: Mapping[str, str], own: Mapping[str, str], needed: Collection[str] | None
) -> Mapping[str, str]:
    """Which of the ``notes`` of agents change once ``own`` stand among them, and to what; one that
    is empty then is to go.

    ``needed`` are the agents that other workers offer or trees want; ``None``: any may be.  What
    cannot be read, as it is of another version, stays.
    """
    said = {agent.get("name") for note in own.values() for agent in _read(note)}
    changed = {}
    for key, note in of_agents(notes).items():
        agents = () if key in own else _read(note)
        left = [
            agent
            for agent in agents
            if agent.get("name") not in said and (needed is None or agent.get("name") in needed)
        ]
        if len(left) < len(agents):
            changed[key] = msgspec.json.encode(left).decode() if left else ""
    return changed


def spent(notes: Mapping[str, str]) -> Iterable[str]:
    """The keys of notes of prompts that have ended."""
    return [key for key, note in notes.items() if key.startswith(f"{ASKED}:") and not note]


def _read(note: str) -> Sequence[Mapping[str, Any]]:
    """The agents of a note as they stand there: also what only a later version has of them."""
    try:
        return _decoder.decode(note)
    except msgspec.DecodeError:
        return ()


_decoder: Final = msgspec.json.Decoder(list[dict[str, Any]])
