"""What a process has declared of its agents, where several are at work on one store.

    a process joins ─► by agent, a digest of its definition ─► another one's is another digest
                                                               └─► refused, unless it replaces

Whoever drives a run does so by its own definitions.  Two programs that mean different agents by
one name would go on with each other's conversations; so the second one is refused.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import OperatorError

__all__ = ["NOTHING_DECLARED", "Declared", "OtherDefinition"]


class Declared(Struct, frozen=True):
    """By agent a digest of its definition; ``replaces``: others may have other definitions."""

    definitions: Mapping[str, str] = {}
    replaces: bool = False

    def differing(self, other: "Declared") -> str:
        """The first agent of both that each defines in its own way; empty for none."""
        return next(
            (
                agent
                for agent, digest in sorted(self.definitions.items())
                if other.definitions.get(agent, digest) != digest
            ),
            "",
        )


NOTHING_DECLARED: Final = Declared()


class OtherDefinition(OperatorError):
    """A worker at work on the store has another definition of an agent.

    ``place`` is the store, ``worker`` what that one is called.
    """

    def __init__(self, place: str, agent: str, worker: str) -> None:
        self.place, self.agent, self.worker = place, agent, worker
        super().__init__(
            f"{place}: the worker {worker!r}, which is at work on this store, has another "
            f"definition of the agent {agent!r}; stop that worker first, give the agent another "
            "name or this program another store (?schema=NAME), or, where this is a newer version "
            "of the same program, join with replace_agents=True (hubbub worker --replace)"
        )
