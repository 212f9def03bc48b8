"""What a runtime publishes of its agents in its store, and what others read of it there."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.store.left_notes import AGENTS, of_agents
from hubbub.hub.store.reader import StoreReader

__all__ = [
    "MAX_DESCRIPTION", "PublishedAgent", "PublishedVariable", "published", "published_agents",
]  # fmt: skip

MAX_DESCRIPTION: Final = 500
"""Characters of a description that are published."""

MAX_VARIABLES: Final = 100
MAX_BELOW: Final = 50
"""Variables of an agent that are published, and agents whose are."""


class PublishedVariable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A variable that an agent, or a subagent of its, reads.

    ``type`` is ``secret`` or ``text``.  ``needed``: nothing gives it a value but the opening of a
    run (``env``), and without one turns fail.  A ``required`` one that is ``scoped`` is asked for
    when the subagent that reads it is to be started.
    """

    name: str
    type: str = "secret"
    description: str = ""
    required: bool = False
    scoped: bool = False
    needed: bool = False


class PublishedAgent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent as other processes know it."""

    name: str
    title: str = ""
    description: str = ""
    variables: tuple[PublishedVariable, ...] = ()


def published(definitions: Definitions, env: Mapping[str, str]) -> Iterator[PublishedAgent]:
    """The agents of a runtime that gives them all ``env``."""
    for name in definitions.names:
        agent = definitions.agent(name)
        yield PublishedAgent(
            name=name, title=agent.title, description=agent.description,
            variables=_variables(definitions, name, env),
        )  # fmt: skip


def _variables(
    definitions: Definitions, root: str, env: Mapping[str, str]
) -> tuple[PublishedVariable, ...]:
    """What a root and the subagents that it always has read, its own first."""
    found: dict[str, PublishedVariable] = {}
    agents = [root]
    for name in agents:  # Grows meanwhile.
        for side in definitions.sides_of(name):
            given = {**env, **side.prompt.env, **definitions.agent(name).env}
            for each in side.variables:
                is_inherited = name == root or not each.scoped
                needed = each.required and is_inherited and each.name not in given
                before = found.get(each.name)
                if before is None or (needed and not before.needed):
                    found[each.name] = _shown(each, needed=needed)
            agents += [
                child.agent.name
                for child in side.children.values()
                if child.config.optional is None
                and child.agent.name not in agents
                and len(agents) < MAX_BELOW
            ]
    return tuple(found.values())[:MAX_VARIABLES]


def _shown(variable: VariableDefinition, *, needed: bool) -> PublishedVariable:
    return PublishedVariable(  # A user's own kind of text is no JSON.
        name=str.__str__(variable.name), type=str.__str__(variable.type),
        description=str.__str__(variable.description)[:MAX_DESCRIPTION],
        required=bool(variable.required), scoped=bool(variable.scoped), needed=bool(needed),
    )  # fmt: skip


def published_agents(store: StoreReader) -> Sequence[PublishedAgent]:
    """The agents of the runtime that was on the store last; none before there was one.

    Of a store that several share, those of all workers that are there.  While none is there, or one
    does not say which agents it knows: those of the last ones, and those that unfinished
    conversations want.
    """
    notes = of_agents(store.notes(AGENTS))
    found: dict[str, PublishedAgent] = {}
    for key in sorted(notes):
        found.update({each.name: each for each in _decoded(notes[key])})
    known = _known(store) if len(notes) > 1 else None
    return [each for each in found.values() if known is None or each.name in known]


def _decoded(note: str) -> tuple[PublishedAgent, ...]:
    try:
        return _decoder.decode(note)
    except msgspec.DecodeError:  # Of a newer version, or damaged: what fsck looks at.
        return ()


def _known(store: StoreReader) -> set[str] | None:
    """The agents that workers know that are there; ``None`` where that is not known."""
    workers = [each for each in store.processes() if each.is_worker]
    if not workers or any(each.agents is None for each in workers):
        return None
    return {name for each in workers for name in each.agents or ()}


_decoder: Final = msgspec.json.Decoder(tuple[PublishedAgent, ...])
