"""Tools of the project's own world that ask a person, who answers, or speaks of something else.

    wonder   asks once; when its process has died the question is lost, and its call is over
    ponder   idempotent: runs again, asks twice, and finds the answers that are on record

Meanwhile somebody wishes for summaries (``wish``), and the clock is set back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import anyio
from msgspec import Struct

from hubbub import RunState, tool
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError, Closed, OperatorError
from hubbub.runtime.simulation import (
    ClockJump,
    Interrupt,
    Open,
    Reply,
    Restart,
    Say,
    Step,
    Wait,
    World,
    WorldFault,
)
from hubbub.runtime.simulation.invariants.messages import taken_over
from hubbub.runtime.simulation.story.history import History

__all__ = ["ASKING_NAMES", "ASKING_TOOLS", "AskedDrawn", "drawn_asking", "said_after", "wish"]

ASKING_NAMES: Final = ("wonder", "ponder")


@tool
async def wonder(text: str, state: RunState) -> str:
    """Look around, and ask somebody."""
    await anyio.sleep(0.4)
    return f"{text}: {await state.ask(text)}"


@tool(idempotent=True)
async def ponder(text: str, state: RunState) -> str:
    """Ask somebody twice."""
    first = await state.ask(f"{text}, first")
    return f"{first}, {await state.ask(f'{text}, again', timeout=600)}"


ASKING_TOOLS: Final = (wonder, ponder)


class AskedDrawn(Struct, frozen=True):
    """What is added to a world."""

    steps: tuple[Step, ...]
    wishes: tuple[tuple[int, int], ...]
    """After which of these steps somebody wishes for a summary, and of which run."""
    faults: tuple[WorldFault, ...]


def drawn_asking(
    random: Random, first: int, spoken: Callable[[str, Any], str], *, may_kill: bool
) -> AskedDrawn:
    """Conversations in which people are asked; their runs are numbered from ``first`` on."""
    steps: list[Step] = []
    for number in range(random.randint(1, 2)):
        program = [_asking(random) for _ in range(random.randint(1, 3))]
        steps.append(Open(agent="main", input=spoken(f"a{number}", program), user="ben"))
        steps.append(Wait(seconds=random.choice((0.2, 0.5, 1.0, 3.0))))
        for part in range(random.randint(5, 10)):
            said = spoken(f"b{number}{part}", [_asking(random), ["say"]])
            steps += _one(random, first + number, said, may_kill=may_kill)
        steps.append(Wait(seconds=random.choice((3.0, 70.0))))
    wishes = [(random.randrange(len(steps)), first) for _ in range(random.randint(0, 4))]
    faults: tuple[WorldFault, ...] = ()
    if random.random() < 0.3:
        faults = (ClockJump(at=random.randint(1, 40), seconds=random.choice((-4000, -90))),)
    return AskedDrawn(tuple(steps), tuple(wishes), faults)


def _one(random: Random, to: int, said: str, *, may_kill: bool) -> Iterator[Step]:
    choice = random.random()
    if choice < 0.3:
        yield Reply(to=to, text=random.choice(("yes", "no, later")))
    elif choice < 0.6:
        yield Say(to=to, text=said, user="ben")
    elif choice < 0.75:
        yield Wait(seconds=random.choice((0.1, 0.3, 1.0, 5.0)))
    elif choice < 0.95:
        yield Restart(kill=may_kill and random.random() < 0.7)
        if random.random() < 0.7:  # Before the run has come to anything.
            yield Say(to=to, text=said, user="ben")
    else:
        yield Interrupt(to=to, reason="enough")


def _asking(random: Random, depth: int = 1) -> list[Any]:
    """A step of a program that asks, or has somebody ask, or work meanwhile."""
    kinds = ("one", "one", "one", "tell", *(("ask", "send", "send", "stay") if depth else ()))
    match random.choice(kinds):
        case "one":
            return [random.choice(ASKING_NAMES)]
        case "tell":
            return ["tell", *([random.choice((*ASKING_NAMES, "look"))] for _ in range(2))]
        case "stay":
            return ["stay", "crew", [["slow"], ["note"]]]
        case kind:
            return ["child", kind, [_asking(random, 0), ["slow"]]]


async def wish(live: World, opened: Sequence[str], which: int) -> None:
    """Wish for a summary of a run, if it is still there."""
    if which < len(opened) and opened[which]:
        with suppress(CallerError, OperatorError, Closed), anyio.move_on_after(30.0):
            await live.hub.compact(opened[which])


def said_after(history: History) -> Iterator[str]:
    """A person's words answer what was asked when they were said, and nothing that came later,
    whatever the clock says (U-05).  What is said in the moment in which it is asked may be either:
    time stands still in a world where it does not in another.  So may what was said while a
    question was on its way to a store that processes share, once another one has the run: that
    goes by the times.
    """
    driven = taken_over(history)
    words: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    asked: dict[str, tuple[int, int]] = {}
    for place, event in enumerate(history.events):
        match event:
            case e.SessionPrompt():
                asked.setdefault(event.prompt_id, (place, event.at))
            case e.SessionMessage():
                words[event.root_run_id, event.content].append((place, event.at))
            case e.SessionReply() if event.prompt_id in asked:
                said = words.get((event.root_run_id, event.content), ())
                since, at = asked[event.prompt_id]
                by_time = event.root_run_id in driven
                if said and all(
                    place < since and then != at and not (by_time and then > at)
                    for place, then in said
                ):
                    yield (
                        f"run {event.run_id}: {event.content[:40]!r} answers {event.prompt_id} "
                        f"({event.id}), but was said before that was asked"
                    )
