"""Publishing which agents a runtime has in its store, for processes that have none."""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from hubbub.hub.store.left_notes import AGENTS
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.store.store import Store
from hubbub.runtime.inspection.published import (
    MAX_DESCRIPTION,
    PublishedAgent,
    published,
    published_agents,
)

__all__ = ["publish", "published", "published_agents"]

MAX_AGENTS: Final = 10_000
"""How many are published."""


def publish(store: Store, agents: Iterable[PublishedAgent]) -> None:
    """Have the store say which agents there are, in the place of what an earlier runtime said.

    In a store that several share, in the place of what a runtime with agents of the same names
    said; one that has none says nothing.
    """
    cut = [
        msgspec.structs.replace(
            each,
            name=str.__str__(each.name),  # A user's own kind of text is no JSON.
            title=each.title[:MAX_DESCRIPTION],
            description=each.description[:MAX_DESCRIPTION],
        )
        for each in agents
    ][:MAX_AGENTS]
    key = AGENTS
    if sharing_of(store) is not None:
        if not cut:
            return
        names = "\0".join(sorted(each.name for each in cut))
        key = f"{AGENTS}:{hashlib.sha256(names.encode()).hexdigest()[:16]}"
    store.publish({key: msgspec.json.encode(cut).decode()})
