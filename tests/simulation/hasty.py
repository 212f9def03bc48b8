"""Runs of the own world that are terminated just as they end by themselves.

h1 ["itself", 2]     by itself: it ends so many turns of the loop later
h1 ["child", 0]      its child, as soon as that hands in its result
"""

import json
from random import Random
from typing import Final

import anyio
import anyio.lowlevel

from hubbub import RunContext, agent
from hubbub.hub.events import AgentToolStart, Event
from hubbub.runtime.simulation import Open, Step, Wait

__all__ = ["hasty", "hasty_steps"]

_PROGRAM: Final = json.dumps([["child", "send", [["look"], ["say"]]], ["say"]])


@agent("hasty", on_restart="resume")
async def hasty(input: str, ctx: RunContext) -> str:
    """Has a child work, and is in a hurry to end it, or itself."""
    label, _, program = input.partition(" ")
    whom, turns = json.loads(program)
    child = ctx.spawn("ask", f"{label}.c {_PROGRAM}")

    def see(event: Event) -> None:
        if isinstance(event, AgentToolStart) and event.name == "finish":
            ctx.hub.terminate(event.run_id)

    if whom == "child":
        ctx.hub.subscribe("agent:tool:start", see, run_id=child.run_id)
        await child.finished()
        return "it is over"
    await anyio.sleep(1)
    ctx.hub.terminate(ctx.run_id)
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    return "I am over"


def hasty_steps(random: Random) -> list[Step]:
    """What somebody opens besides; at the end, as runs are numbered by their openings."""
    steps: list[Step] = []
    for number in range(random.randint(1, 3)):
        program = [random.choice(("itself", "child")), random.randrange(4)]
        text = f"h{number} {json.dumps(program)}"
        steps += [Open(agent="hasty", input=text, user="cleo"), Wait(seconds=5)]
    return steps
