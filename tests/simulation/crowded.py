"""Worlds in which others have all the room when a run is to end.

c0 [["child", "ask", [["dwell"]]], ["say"]]     as many as may be in memory; then one is ended
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import anyio

from hubbub import tool
from hubbub.hub import events as e
from hubbub.runtime.simulation import ClockJump, Interrupt, Open, Step, Terminate, Wait
from hubbub.runtime.simulation.story.history import History

__all__ = ["crowded_steps", "dwell", "ended_in_time"]

SOON: Final = 10_000_000
"""Microseconds in which a run that is terminated has ended, whoever has the room."""


@tool(timeout=None)
async def dwell(text: str) -> str:
    """Keep a place for longer than anybody may have to wait for his end."""
    await anyio.sleep(120)
    return f"dwelt {text}"


def crowded_steps(random: Random, first: int, room: int, spoken: Any) -> list[Step]:
    """What somebody does besides; ``first`` is the number of the next run that is opened."""
    program = [["child", "ask", [["dwell"]]], ["say"]]
    steps: list[Step] = [
        Open(agent="main", input=spoken(f"c{number}", program), user="cleo")
        for number in range(room)
    ]
    ends = Terminate if random.random() < 0.7 else Interrupt
    steps += [Wait(seconds=random.choice((0.5, 2.0, 5.0))), ends(to=first), Wait(seconds=30)]
    return steps


def ended_in_time(history: History) -> Iterator[str]:
    """Who is terminated ends soon, however many others have all the room (R-18, T-05).

    As long as its process lives, that is: something was heard of it afterwards.  Of several nobody
    knows whose it is.
    """
    if history.workers or any(isinstance(fault, ClockJump) for fault in history.faults):
        return
    last: dict[int, int] = {}
    stops: dict[str, tuple[int, e.Event]] = {}
    for heard in history.heard:
        last[heard.life] = max(last.get(heard.life, 0), heard.event.at)
        if isinstance(heard.event, e.SessionTerminate) and heard.event.id not in history.forked:
            stops.setdefault(heard.event.run_id, (heard.life, heard.event))
    for run_id, (life, stop) in stops.items():
        own = history.own.get(run_id, ())
        is_over = bool(own) and isinstance(own[-1], e.AgentComplete)
        ended = own[-1].at if is_over else last[life]
        if min(ended, last[life]) > stop.at + SOON:
            yield f"run {run_id} was terminated ({stop.id}), and has not ended in time"
