"""A code agent of the project's own world whose tasks run at once, in another order each time.

    s1 [["start", "ask"], ["make", "start"], ["give up", "same"]]

Each list is a task, which does these one after another, and dawdles before each for as long as
chance has it in this execution.  What it was given is kept outside of the world, for the
invariants: in every life, whatever died meanwhile, it must be its own.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final

import anyio
from msgspec import Struct, field

from hubbub import AgentDefinition, RunContext, agent
from hubbub.hub import events as e
from hubbub.hub.errors import PromptClosed, PromptTimeout
from hubbub.runtime.simulation import Invariant, Open, Reply, Restart, Step, Wait
from hubbub.runtime.simulation.story.history import History

__all__ = ["Several", "several_steps"]

_KINDS: Final = ("start", "start", "ask", "ask", "make", "keyed", "give up", "same")
_PAUSES: Final = (0.0, 0.0, 0.3, 1.0, 4.0)
_PATIENCE: Final = 30.0


class Given(Struct, frozen=True):
    """What a task was given: by a child or a step, or (``prompt``) by a person."""

    run_id: str
    own: str
    found: str
    is_answer: bool = False


@agent("twice", on_restart="resume")
async def twice(input: str, ctx: RunContext) -> str:
    """Says it twice, after a moment."""
    await anyio.sleep(0.5)
    return f"{input} {input}"


class Several(Struct):
    """What tasks were given, in every life of a world."""

    given: list[Given] = field(default_factory=list)

    def agents(self) -> tuple[AgentDefinition, ...]:
        """The one with tasks, and the one that they start."""

        @agent("several", on_restart="resume")
        async def several(input: str, ctx: RunContext) -> str:
            """Has several tasks at once."""
            label, _, program = input.partition(" ")

            async def task(number: int, kinds: list[str]) -> None:
                for place, kind in enumerate(kinds):
                    chance = Random(f"{input} {ctx.attempt} {number} {place}")
                    await anyio.sleep(chance.choice(_PAUSES))
                    await self._do(ctx, kind, f"{label}.{number}.{place}")

            async with anyio.create_task_group() as group:
                for number, kinds in enumerate(json.loads(program)):
                    group.start_soon(task, number, kinds)
            return "all done"

        return several, twice

    async def _do(self, ctx: RunContext, kind: str, own: str) -> None:
        def note(found: Any, *, is_answer: bool = False) -> None:
            self.given.append(Given(ctx.run_id, own, str(found), is_answer))

        match kind:
            case "start":
                outcome = await ctx.spawn("twice", own).result()
                if outcome.success:
                    note(outcome.output)
            case "same":  # Of all tasks: which child one gets makes no difference.
                await ctx.spawn("twice", "all", name="same").result()
            case "make":
                note(await ctx.step(own, lambda: f"{own} {own}"))
            case "ask":
                await _answered(note, lambda: ctx.ask(own, timeout=_PATIENCE))
            case "keyed":
                words = f"{own}, for the {ctx.attempt}. time"
                await _answered(note, lambda: ctx.ask(words, timeout=_PATIENCE, key=own))
            case "give up":
                with anyio.move_on_after(2):
                    await _answered(note, lambda: ctx.ask(own))

    def invariants(self) -> tuple[Invariant, ...]:
        """What must hold of a history in which these tasks ran."""

        def own_results(history: History) -> Iterator[str]:
            """Each task gets what its own child, its own step or its own question came to."""
            for given in self.given:
                if not given.is_answer:
                    if given.found != f"{given.own} {given.own}":
                        yield f"run {given.run_id}: {given.own} was given {given.found!r}"
                elif given.found not in _answers(history, given):
                    yield f"run {given.run_id}: the answer to {given.own} was {given.found!r}"

        def goes_on(history: History) -> Iterator[str]:
            """Code that is executed again and does the same is not taken for other code."""
            for run_id, own in history.own.items():
                for event in own:
                    if isinstance(event, e.AgentFailed) and event.error_type == "ChildChanged":
                        yield f"run {run_id}: {event.id} says {event.error}"

        def started_once(history: History) -> Iterator[str]:
            """What a task starts and asks is on record once, in however many executions."""
            for run_id, info in history.runs.items():
                own = history.own.get(run_id, ())
                if info.agent != "several":
                    continue
                started = [
                    x.identity for x in own if isinstance(x, e.AgentChild) and x.name != "same"
                ]
                given_up = {
                    x.prompt_id
                    for x in own
                    if isinstance(x, e.SessionPromptEnd) and x.reason == "closed"
                }
                asked = [
                    x.identity
                    for x in own
                    if isinstance(x, e.SessionPrompt) and x.prompt_id not in given_up
                ]
                for identities in (started, asked):
                    if len(set(identities)) != len(identities):
                        yield f"run {run_id} has started or asked the same twice"

        return own_results, goes_on, started_once


async def _answered(note: Callable[..., None], ask: Callable[[], Awaitable[str]]) -> None:
    with suppress(PromptTimeout, PromptClosed):
        note(await ask(), is_answer=True)


def _answers(history: History, given: Given) -> list[str]:
    """What was replied to the questions that a task asked by these words."""
    asked = {
        x.prompt_id
        for x in history.own.get(given.run_id, ())
        if isinstance(x, e.SessionPrompt) and x.question.partition(",")[0] == given.own
    }
    inbox = history.inbox.get(given.run_id, ())
    return [x.content for x in inbox if isinstance(x, e.SessionReply) and x.prompt_id in asked]


def several_steps(random: Random, first: int, *, may_kill: bool) -> list[Step]:
    """What somebody opens besides, answers, and kills meanwhile; runs are numbered from ``first``
    on."""
    steps: list[Step] = []
    for number in range(random.randint(1, 2)):
        tasks = [
            [random.choice(_KINDS) for _ in range(random.randint(1, 3))]
            for _ in range(random.randint(2, 4))
        ]
        steps.append(Open(agent="several", input=f"s{number} {json.dumps(tasks)}", user="cleo"))
        for reply in range(random.randint(4, 9)):
            steps.append(Wait(seconds=random.choice((0.2, 0.6, 1.5))))
            if random.random() < 0.3:
                steps.append(Restart(kill=may_kill and random.random() < 0.7))
            steps.append(Reply(to=first + number, text=f"r{number}.{reply}", user="cleo"))
    return steps
