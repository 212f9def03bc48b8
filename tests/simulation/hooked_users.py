"""What is said to the agents of ``hooked``, and who provides the variables that they want."""

import json
from contextlib import suppress
from random import Random
from typing import Any, Final

import anyio
from simulation.hooked import VARIABLES, value_of

from hubbub.hub.errors import Closed, VariablesRefused
from hubbub.hub.events import SessionVariables
from hubbub.runtime.simulation import Open, Restart, Say, Step, Terminate, Wait, World

__all__ = ["hooked_steps", "provide"]

_FIRST: Final = json.dumps([["assign", each] for each in VARIABLES])
"""What the first message has its hearer do."""


def hooked_steps(random: Random, first: int, *, may_kill: bool) -> list[Step]:
    """Conversations with ``hooked``, whose runs are numbered from ``first`` on."""
    steps: list[Step] = []
    for number in range(random.randint(1, 2)):
        steps.append(Open(agent="hooked", input=f"o{number} {_FIRST}", user="ann"))
        labels = [f"v{number}{part}" for part in range(random.randint(3, 6))]
        steps += [_one(random, first + number, label, may_kill=may_kill) for label in labels]
        steps.append(Wait(seconds=random.choice((3.0, 70.0))))
    return steps


def _one(random: Random, to: int, label: str, *, may_kill: bool) -> Step:
    choice = random.random()
    if choice < 0.6:
        return Say(to=to, text=_said(random, label), user="ann")
    if choice < 0.8:
        return Wait(seconds=random.choice((0.2, 1.0, 5.0)))
    if choice < 0.95:
        return Restart(kill=may_kill and random.random() < 0.5)
    return Terminate(to=to)


def _said(random: Random, label: str) -> str:
    return f"{label} {json.dumps([_step(random) for _ in range(random.randint(1, 4))])}"


def _step(random: Random, depth: int = 2) -> list[Any]:
    kinds = ["read", "read", "assign", "note", "refuse"]
    kind = random.choice(kinds if depth < 2 else [*kinds, "child", "stay", "stay", "to"])
    match kind:
        case "assign":
            # The vault's ``KEY`` is what is provided for it, and nothing else.
            return ["assign", random.choice(VARIABLES) if depth == 2 else "PIN"]
        case "child":
            return ["child", "reader", [_step(random, 0), ["read"]]]
        case "stay":
            below = random.choice((["child", "reader", [["read"]]], _step(random, 1)))
            return ["stay", "vault", [["read"], below, ["read"]]]
        case "to":
            return ["to", random.randrange(3), [["read"]]]
    return [kind]


async def provide(live: World) -> None:
    """Provide, twice, all that is wanted by now."""
    heard = [each.event for each in live.history.heard]
    wanted = [x for x in heard if isinstance(x, SessionVariables) and not x.child_run_id]
    for event in {each.request_id: each for each in wanted}.values():
        values = {name: value_of(name, event.request_id, "given") for name in event.names}
        for _ in range(2):
            with anyio.move_on_after(30.0):
                await _provide(live, event, values)


async def _provide(live: World, event: SessionVariables, values: dict[str, str]) -> None:
    with suppress(VariablesRefused, Closed):  # It is too late, or the process has died.
        await live.runtime.provide_variables(event.run_id, event.request_id, values)
