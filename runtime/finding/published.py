"""What a runtime publishes of its agents in its store, for processes that have none."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.store import Store

__all__ = ["PublishedAgent", "publish", "published_agents"]

NOTE: Final = "agents"
"""The key of the note."""

MAX_AGENTS: Final = 10_000
MAX_DESCRIPTION: Final = 500
"""How many are published, and how many characters of a description."""


class PublishedAgent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent as other processes know it."""

    name: str
    title: str = ""
    description: str = ""


def publish(store: Store, agents: Iterable[PublishedAgent]) -> None:
    """Have the store say which agents there are, in the place of what an earlier runtime said."""
    cut = [
        msgspec.structs.replace(
            each,
            name=str.__str__(each.name),  # A user's own kind of text is no JSON.
            title=each.title[:MAX_DESCRIPTION],
            description=each.description[:MAX_DESCRIPTION],
        )
        for each in agents
    ][:MAX_AGENTS]
    store.publish({NOTE: msgspec.json.encode(cut).decode()})


def published_agents(store: StoreReader) -> Sequence[PublishedAgent]:
    """The agents of the runtime that was on the store last; none before there was one."""
    note = store.notes(NOTE).get(NOTE)
    try:
        return _decoder.decode(note) if note is not None else ()
    except msgspec.DecodeError:  # Of a newer version, or damaged: what fsck looks at.
        return ()


_decoder: Final = msgspec.json.Decoder(tuple[PublishedAgent, ...])
