"""Limits in worlds of ``own_world``: of trees and of turns, said otherwise meanwhile."""

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import anyio
from msgspec import structs

from hubbub import AgentDefinition, Limits, PromptDefinition
from hubbub.hub.errors import CallerError, Closed, OperatorError
from hubbub.runtime.simulation import World

__all__ = ["Raised", "limits_of_turns", "raised", "raises", "tree_limits"]

Raised = tuple[int, int, Limits | None]
"""After which step somebody raises or lowers what a tree may use, of which opening, to what."""

_OF_TURN: Final = (Limits(model_calls=2), Limits(model_calls=4), Limits(seconds=1.5))


def tree_limits(random: Random) -> Limits:
    """Limits that a tree may reach."""
    calls, seconds = random.randint(1, 25), random.choice((0.4, 2.0, 9.0))
    return random.choice((
        Limits(model_calls=calls), Limits(seconds=seconds),
        Limits(model_calls=calls, seconds=seconds),
    ))  # fmt: skip


def raises(random: Random, steps: int) -> tuple[Raised, ...]:
    """What is said otherwise meanwhile."""
    count = random.randint(0, 4)
    return tuple(
        (random.randrange(steps), random.randrange(9), random.choice((None, tree_limits(random))))
        for _ in range(count)
    )


def limits_of_turns(agents: Sequence[AgentDefinition], seed: int | None) -> list[AgentDefinition]:
    """The agents; with a seed each side of some of them may use so much in a turn."""
    random = Random(f"turns {seed}")
    return [*agents] if seed is None else [_limited(each, random) for each in agents]


def _limited(agent: AgentDefinition, random: Random) -> AgentDefinition:
    changes: dict[str, Any] = {}
    if agent.side_a is not None and random.random() < 0.3:
        changes["run_limits"] = Limits(model_calls=random.randint(2, 12))
    for name in ("side_a", "side_b"):
        side = getattr(agent, name)
        prompt = None if side is None else side.prompt
        if isinstance(prompt, PromptDefinition) and random.random() < 0.5:
            limited = structs.replace(prompt, limits=random.choice(_OF_TURN))
            changes[name] = structs.replace(side, prompt=limited)
    return structs.replace(agent, **changes) if changes else agent


async def raised(live: World, opened: Sequence[str], which: int, limits: Limits | None) -> None:
    """Say what a tree may use, if it is still there; nothing comes back from a process that dies
    meanwhile."""
    if opened:
        with suppress(CallerError, OperatorError, Closed), anyio.move_on_after(30.0):
            await live.runtime.limit(opened[which % len(opened)], limits)
