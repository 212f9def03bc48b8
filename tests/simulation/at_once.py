"""What people say in one moment while something is asked, and what becomes of all that they say.

    words, words     one of them is the answer, the other one is heard
    words, a reply   the same, and the reply may come too late
    words, "stop"    what was asked is answered, or given up

None of them waits for the receipt of another: where a store takes its time, it has accepted both
before the run that asks learns of either.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import anyio
from msgspec import Struct
from simulation.approved import ASKING
from simulation.asking import ASKING_NAMES

from hubbub.agents.model import UserMessage
from hubbub.agents.state.commands import CANCELLED, command_of
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.addressing import is_from_user
from hubbub.hub.events import Event, SessionMessage
from hubbub.runtime.simulation import (
    Approve,
    Deny,
    Interrupt,
    Open,
    Reply,
    Restart,
    Say,
    Step,
    Wait,
    World,
)
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.simulation.world.users import play

__all__ = ["Moment", "drawn_moments", "in_one_moment", "words_have_effect"]

_PATIENCE: Final = 30
"""How often somebody looks whether anything is asked, every tenth of a second."""


class Moment(Struct, frozen=True):
    """After which step people do all of these at once, as soon as something is asked."""

    after: int
    steps: tuple[Step, ...]


# ── users ────────────────────────────────────────────────────────────────────────────────────


def drawn_moments(
    random: Random, first: int, before: int, spoken: Callable[[str, Any], str], *, may_kill: bool
) -> tuple[list[Step], tuple[Moment, ...]]:
    """Conversations in which several people answer at once; their runs are numbered from ``first``
    on, and ``before`` steps come before them."""
    steps: list[Step] = []
    moments: list[Moment] = []
    for number in range(random.randint(1, 2)):
        to, label = first + number, f"o{number}"
        program = [_asking(random) for _ in range(random.randint(1, 3))]
        steps.append(Open(agent="main", input=spoken(label, program), user="ben"))
        for part in range(random.randint(2, 4)):
            said = [spoken(f"{label}{part}{x}", [_asking(random), ["say"]]) for x in "ab"]
            moments.append(Moment(before + len(steps) - 1, _at_once(random, to, said)))
            steps.append(Wait(seconds=random.choice((0.1, 1.0, 3.0))))
            if random.random() < 0.2:
                steps[-1] = Restart(kill=may_kill and random.random() < 0.7)
    steps.append(Wait(seconds=3.0))
    return steps, tuple(moments)


def _at_once(random: Random, to: int, said: Sequence[str]) -> tuple[Step, ...]:
    """What people do in one moment, in any order."""
    key = said[0].partition(" ")[0] if random.random() < 0.3 else ""
    words: Step = Say(to=to, text=said[0], user="ben", key=key)
    answers = (Reply(to=to, text="yes"), Approve(to=to), Deny(to=to, reason="no"))
    others: list[Step] = [Say(to=to, text=said[1], user=random.choice(("ben", "cleo")))]
    others += [Say(to=to, text=random.choice(("stop", "/back")), user="cleo")]
    match random.choice(("words", "reply", "reply", "gives up", "both", "interrupt")):
        case "words":
            steps = [words, others[0]]
        case "reply":
            steps = [words, *answers]
        case "gives up":
            steps = [words, others[1]]
        case "both":
            steps = [*others, *answers]
        case _:
            steps = [words, Interrupt(to=to, reason="enough")]
    random.shuffle(steps)
    return tuple(steps)


def _asking(random: Random, depth: int = 1) -> list[Any]:
    """A step of a program that asks, or has somebody below ask."""
    kind = random.choice(("one", "one", "tell", *(("child", "use") if depth else ())))
    match kind:
        case "one":
            return [random.choice((*ASKING_NAMES, *ASKING, "pause"))]
        case "tell":
            return ["tell", *([random.choice((*ASKING_NAMES, *ASKING))] for _ in range(2))]
        case "use":
            return ["use", "ann", [_asking(random, 0), ["complete"]]]
    return ["child", random.choice(("ask", "ask", "send")), [_asking(random, 0)]]


async def in_one_moment(live: World, opened: list[str], steps: Sequence[Step]) -> None:
    """Do all of these at once, when something is asked that they may answer."""
    to = getattr(steps[0], "to", 0)
    for _ in range(_PATIENCE):
        if to < len(opened) and live.open_prompt(opened[to]):
            break
        await live.wait(0.1)
    async with anyio.create_task_group() as group:
        for step in steps:
            group.start_soon(play, [step], live, opened)


# ── what must hold ───────────────────────────────────────────────────────────────────────────


def words_have_effect(history: History) -> Iterator[str]:
    """What a person says and a run takes is heard, or does something: it is the answer to what was
    asked, gives that up, or gives the conversation back; else it waits once more (H-10, U-04)."""
    places = {event.id: place for place, event in enumerate(history.events)}
    for run_id, own in history.own.items():
        thread = EMPTY
        for event in own:
            before, thread = thread, fold(thread, event)
            if not isinstance(event, e.SessionTaken) or event.id in history.forked:
                continue
            said = [x for x in event.items if isinstance(x, SessionMessage) and is_from_user(x)]
            if not said:
                continue
            heard = _heard_since(before, thread)
            for item in said:
                if heard[item.content]:
                    heard[item.content] -= 1
                elif not any(
                    _is_effect(item, before, each)
                    for each in _of_commit(history.events, places[event.id])
                ):
                    text = item.content[:40]
                    yield f"run {run_id}: {text!r} ({item.id}) was taken ({event.id}) for nothing"


def _heard_since(before: Thread, after: Thread) -> Counter[str]:
    news = (
        *after.transcript[len(before.transcript) :],
        *after.transcript_b[len(before.transcript_b) :],
    )
    return Counter(x.content for x in news if isinstance(x, UserMessage))


def _of_commit(events: Sequence[Event], place: int) -> Iterator[Event]:
    """What was committed with what a run took: the rest of its records, and what it sent."""
    run_id, has_sent = events[place].run_id, False
    for event in events[place + 1 :]:
        if event.lane == "own" and (
            event.run_id != run_id or has_sent or isinstance(event, e.SessionTaken)
        ):
            return
        has_sent |= event.lane == "in"
        yield event


def _is_effect(said: SessionMessage, before: Thread, event: Event) -> bool:
    """Whether an event is what became of somebody's words."""
    word = command_of(said)
    is_returned = bool(word) and (before.frame is not None or before.origin.frame > 0)
    match event:
        case e.SessionMessage():
            return (event.content, event.source, event.at) == (said.content, said.source, said.at)
        case e.SessionReply():
            text = CANCELLED if word else said.content
            return (event.content, event.source) == (text, said.source)
        case e.SessionPromptEnd():
            asked = {x.prompt_id for x in before.prompts if x.is_held}
            ends = (CANCELLED,) if word else ("answered", "denied")
            return event.prompt_id in asked and event.reason.partition(":")[0] in ends
        case e.SessionCancel() | e.AgentInterrupted() | e.AgentComplete():
            return is_returned
    return False
