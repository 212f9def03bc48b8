"""Asking the runtime of a hub, which need not be there."""

from typing import Any

from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.hub import Hub

__all__ = ["ask_runtime", "found_by_runtime", "one_word"]


async def ask_runtime(hub: Hub, *question: str, given: object = None) -> Any:
    """What the runtime answers; the parts of the question are joined by blanks.

    Raises ``Refusal`` where no runtime is at work, and what the runtime raises.
    """
    if not hub.is_served("runtime"):
        raise Refusal("no-runtime", "nobody on this hub answers for a runtime; enter one")
    return await hub.ask("runtime", " ".join(question), given=given)


async def found_by_runtime(hub: Hub, unknown: str, verb: str, name: str, *more: str) -> Any:
    """What the runtime finds of one thing; raises ``Refusal``, of the kind ``unknown``, if it finds
    nothing."""
    found = await ask_runtime(hub, verb, one_word(name, unknown), *more)
    if found is None:
        raise Refusal(unknown, f"there is no such {unknown.removeprefix('unknown-')}")
    return found


def one_word(name: str, unknown: str) -> str:
    """A name that is one part of a question; raises ``Refusal`` for what is none."""
    if " " in name:
        raise Refusal(unknown, f"there is no such {unknown.removeprefix('unknown-')}")
    return name
