"""Frames that lie beside each other, in the project's own world.

    e0 [["both", ["give", "ann", [["say"]]], ["look"], ["give", "bob", [["complete"]]]], ["say"]]

``give`` hands the conversation over from inside a tool, and the calls of one step run in parallel;
calls of ``use_agent`` wait for each other.  Those who have got it give it away again.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from hubbub import RunState, tool
from hubbub.runtime.simulation import Close, Interrupt, Open, Restart, Say, Step, Terminate, Wait

__all__ = ["beside_steps", "give"]

_OTHERS: Final = {"main": ("ann", "bob"), "ann": ("bob",), "bob": ("ann",)}
_WORDS: Final = ("stop", "cancel", "/back", "/back", "hello")


@tool
async def give(who: str, message: str, state: RunState) -> str:
    """Give the conversation away."""
    state.use_agent(who, message)


def beside_steps(
    random: Random, first: int, spoken: Callable[[str, Any], str], *, may_kill: bool
) -> list[Step]:
    """Conversations with such frames; their runs are numbered from ``first`` on."""
    steps: list[Step] = []
    for number in range(random.randint(1, 2)):
        program = [_giving(random, "main", 2), ["say"]]
        steps.append(Open(agent="main", input=spoken(f"e{number}", program), user="ben"))
        steps.append(Wait(seconds=random.choice((0.5, 1.0, 3.0))))
        for part in range(random.randint(4, 10)):
            steps += _one(random, first + number, f"f{number}{part}", spoken, may_kill=may_kill)
    steps.append(Wait(seconds=3.0))
    return steps


def _one(
    random: Random, to: int, label: str, spoken: Callable[[str, Any], str], *, may_kill: bool
) -> Iterator[Step]:
    choice = random.random()
    if choice < 0.4:
        step = random.choice((["complete"], ["complete"], ["say"], _giving(random, "main", 1)))
        yield Say(to=to, text=spoken(label, [step, ["say"]]), user="ben")
        yield Wait(seconds=random.choice((0.1, 1.0, 3.0)))
    elif choice < 0.6:
        yield Say(to=to, text=random.choice(_WORDS), user="ben")
    elif choice < 0.75:
        yield Wait(seconds=random.choice((0.1, 0.3, 1.0, 3.0)))
    elif choice < 0.85:
        yield Restart(kill=may_kill and random.random() < 0.7)
    elif choice < 0.95:
        yield Interrupt(to=to, reason="enough")
    else:
        yield random.choice((Terminate, Close))(to=to)


def _giving(random: Random, agent: str, depth: int) -> list[Any]:
    """A step that gives the conversation to two or three, and does something else, maybe."""
    calls: list[list[Any]] = []
    for _ in range(random.choice((2, 2, 3))):
        who = random.choice(_OTHERS[agent])
        calls.append(["give", who, [_below(random, who, depth), ["say"]]])
    if random.random() < 0.3:
        calls.insert(random.randrange(len(calls)), [random.choice(("note", "look"))])
    return ["both", *calls]


def _below(random: Random, who: str, depth: int) -> list[Any]:
    choice = random.random()
    if choice < 0.25 and depth > 1:
        return _giving(random, who, depth - 1)
    if choice < 0.4 and depth > 1:
        return ["use", _OTHERS[who][0], [[random.choice(("say", "complete"))]]]
    return [random.choice(("say", "say", "note", "look", "complete", "fail"))]
