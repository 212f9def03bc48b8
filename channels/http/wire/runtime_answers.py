"""Asking the runtime of a hub, which need not be there."""

from typing import Any

from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.hub import Hub

__all__ = ["ask_runtime"]


async def ask_runtime(hub: Hub, *question: str) -> Any:
    """What the runtime answers; the parts of the question are joined by blanks.

    Raises ``Refusal`` where no runtime is at work, and what the runtime raises.
    """
    if not hub.is_served("runtime"):
        raise Refusal("no-runtime", "nobody on this hub answers for a runtime; enter one")
    return await hub.ask("runtime", " ".join(question))
