"""Tools of the project's own world that a person must approve, and what must hold of them.

    refund   not idempotent: its effect is never doubled
    post     idempotent
    perhaps  needs leave where ``needs_leave`` says so of its text

What they did is kept outside of the world: it survives every process.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import anyio
from msgspec import Struct, field

from hubbub import RunState, Tool, tool
from hubbub.hub import events as e
from hubbub.hub.values import decode_value
from hubbub.runtime.simulation import (
    Approve,
    Deny,
    Interrupt,
    Invariant,
    Open,
    Reply,
    Restart,
    Say,
    Step,
    Terminate,
    Wait,
    World,
)
from hubbub.runtime.simulation.story.history import History

__all__ = ["ASKING", "Approved", "answer_late", "approval_steps"]

ASKING: Final = ("refund", "post", "perhaps")


class Effect(Struct, frozen=True):
    """A call that ran."""

    tool: str
    run_id: str
    call_id: str
    text: str


def needs_leave(text: str) -> bool:
    """Of some texts, always of the same."""
    return zlib.crc32(text.encode()) % 3 > 0


class Approved(Struct):
    """What ran, in every life of a world."""

    effects: list[Effect] = field(default_factory=list)

    def tools(self) -> tuple[Tool[..., Any], ...]:
        """Tools that note their calls here, at once, and then take a while."""

        async def act(name: str, text: str, state: RunState) -> str:
            self.effects.append(Effect(name, state.run_id, state.call_id, text))
            await anyio.sleep(0.2)
            return f"{name} {text}"

        @tool(approval=True)
        async def refund(text: str, state: RunState) -> str:
            """Pay back."""
            return await act("refund", text, state)

        @tool(approval=True, idempotent=True)
        async def post(text: str, state: RunState) -> str:
            """Publish."""
            return await act("post", text, state)

        @tool(approval=needs_leave)
        async def perhaps(text: str, state: RunState) -> str:
            """Do what sometimes needs leave."""
            return await act("perhaps", text, state)

        return refund, post, perhaps

    def invariants(self) -> tuple[Invariant, ...]:
        """What must hold of a history in which these tools ran."""

        def approved_alone(history: History) -> Iterator[str]:
            """Nothing runs unapproved, or with other arguments than approved (U-03)."""
            for each in self.effects:
                if problem := _unapproved(history, each):
                    yield f"run {each.run_id}: {each.tool} ({each.call_id}) ran, {problem}"

        def approved_once(history: History) -> Iterator[str]:
            """An approved call runs at most once, unless it may be repeated (U-03, P-10)."""
            counts = Counter((x.run_id, x.call_id, x.tool) for x in self.effects)
            for (run_id, call_id, name), count in counts.items():
                if count > 1 and name != "post":
                    yield f"run {run_id}: {name} ({call_id}) ran {count} times"

        def asked_once(history: History) -> Iterator[str]:
            """A call is asked about once, whatever happens meanwhile (U-03)."""
            for run_id, own in history.own.items():
                asked = Counter(x.prompt_id for x in own if isinstance(x, e.SessionPrompt))
                for prompt_id, count in asked.items():
                    if count > 1:
                        yield f"run {run_id} asks {prompt_id} {count} times"

        return approved_alone, approved_once, asked_once


def _unapproved(history: History, effect: Effect) -> str:
    """Why a call ought not to have run, or not so; empty where it may have."""
    own = history.own.get(effect.run_id, ())
    of_call = [x for x in own if x.call_id == effect.call_id]
    asked = [x for x in of_call if isinstance(x, e.SessionPrompt) and x.kind == "approval"]
    if not asked:
        is_free = effect.tool == "perhaps" and not needs_leave(effect.text)
        return "" if is_free else "and nobody was asked"
    inbox = history.inbox.get(effect.run_id, ())
    replies = [x for x in inbox if isinstance(x, e.SessionReply)]
    first = next((x for x in replies if x.prompt_id == asked[0].prompt_id), None)
    if first is None:
        return "and nobody has answered"
    if first.decision != "approve":
        return f"which was denied ({first.id})"
    ends = [x.reason for x in of_call if isinstance(x, e.SessionPromptEnd)]
    if ends != ["approved"]:
        return f"and its prompt has ended by {ends}"
    given = decode_value(first.arguments_json) or asked[0].arguments
    return "" if given["text"] == effect.text else f"with {effect.text!r}, not with {given}"


# ── users ────────────────────────────────────────────────────────────────────────────────────


def approval_steps(
    random: Random, first: int, spoken: Callable[[str, Any], str], *, may_kill: bool
) -> list[Step]:
    """Conversations in which leave is asked for; their runs are numbered from ``first`` on."""
    steps: list[Step] = []
    for number in range(random.randint(1, 2)):
        program = [_asking(random) for _ in range(random.randint(1, 3))]
        steps.append(Open(agent="main", input=spoken(f"p{number}", program), user="ann"))
        steps.append(Wait(seconds=random.choice((0.2, 1.0, 3.0))))
        for part in range(random.randint(5, 10)):
            said = spoken(f"q{number}{part}", [_asking(random), ["say"]])
            steps.append(_one(random, first + number, said, may_kill=may_kill))
        steps.append(Wait(seconds=random.choice((3.0, 70.0))))
    return steps


def _one(random: Random, to: int, said: str, *, may_kill: bool) -> Step:
    choice = random.random()
    if choice < 0.35:
        given = {"text": f"changed {said[:3]}"} if random.random() < 0.25 else None
        return Approve(to=to, arguments=given, user=random.choice(("ann", "ben")))
    if choice < 0.45:
        return Deny(to=to, reason="not now")
    if choice < 0.5:
        return Reply(to=to, text=random.choice(("approve", "yes, please")))
    if choice < 0.6:
        return Say(to=to, text=said, user="ann")
    if choice < 0.8:
        return Wait(seconds=random.choice((0.1, 0.3, 1.0, 5.0)))
    if choice < 0.93:
        return Restart(kill=may_kill and random.random() < 0.7)
    return Interrupt(to=to, reason="enough") if random.random() < 0.7 else Terminate(to=to)


def _asking(random: Random, depth: int = 2) -> list[Any]:
    """A step of a program that asks, or has somebody below ask: a child that is waited for or
    not, or one that takes the conversation over."""
    kind = random.choice(("one", "one", "both", "tell", *(("ask", "send", "use") if depth else ())))
    match kind:
        case "one":
            return [random.choice(ASKING)]
        case "both" | "tell":
            several = [[random.choice((*ASKING, "look"))] for _ in range(random.randint(2, 3))]
            return [kind, *several]
        case "use":
            return ["use", "ann", [_asking(random, 0), ["complete"]]]
    return ["child", kind, [_asking(random, depth - 1) for _ in range(random.randint(1, 2))]]


async def answer_late(live: World, number: int) -> None:
    """Somebody answers what was asked last, whether it is open or not, and again."""
    heard = [each.event for each in live.history.heard]
    asked = [x.prompt_id for x in heard if isinstance(x, e.SessionPrompt) and x.kind == "approval"]
    for prompt_id in [*dict.fromkeys(asked)][-3:]:
        for turn in range(2):
            if (number + turn) % 2:
                await live.approve(prompt_id, user="cleo")
            else:
                await live.deny(prompt_id, "too late", user="cleo")
