"""``TurnLoop``: a conversation with a model that is driven in memory, without commits.

    ask the core what is due → take, perform → fold what it makes of that → again

The loop of ``model_run`` where there is no inbox and no journal of its own: a code agent's
``ctx.session``, and a turn of a frame that a program drives by hand.  What differs between them,
and where the conversation is kept, its host says.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, assert_never

import anyio

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.turn.decide import (
    Activity,
    AwaitChildren,
    Command,
    Conclude,
    Do,
    EndByLimit,
    Kind,
    Leave,
    Lend,
    Park,
    Take,
)
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import Concluded, Decision, LimitReached, Signal, Taken
from hubbub.hub.events import InLane
from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.tasks.stepped import stepped
from hubbub.runtime.activities.at_work import AtWork, Performer
from hubbub.runtime.activities.perform import perform
from hubbub.runtime.activities.timeouts import timed_out, timeout_of

__all__ = ["Rest", "TurnHost", "TurnLoop"]

Rest: TypeAlias = AwaitChildren | Lend | Park | Leave
"""A command that leaves nothing to do here."""


class TurnHost(Performer, Protocol):
    """The conversation that is driven."""

    @property
    def definitions(self) -> Definitions: ...

    def due(self) -> Command:
        """What the core says is to be done."""
        ...

    def take(self, kind: Kind) -> tuple[InLane, ...]:
        """What waits of a kind; it waits no longer."""
        ...

    def at_work(self, activity: Activity) -> AtWork:
        """What an activity needs."""
        ...

    def without_runs(self, signal: Signal) -> Signal:
        """The signal; a refusal in its place where it would start a run."""
        ...

    def apply(self, decision: Decision) -> None:
        """Fold what was decided."""
        ...


class TurnLoop:
    """Does what is due, one thing at a time.

    ``is_lent``: the task is the caller's (``stepped``).
    """

    __slots__ = ("_host", "_is_lent")

    def __init__(self, host: TurnHost, *, is_lent: bool = False) -> None:
        self._host = host
        self._is_lent = is_lent

    async def step(self) -> Rest | None:
        """Do the next thing; returns the command where there is none.

        Activities that are due together are done side by side.  Cancelled, the conversation is as
        it was after its last finished activity.
        """
        host = self._host
        command = host.due()
        match command:
            case Take(kind=kind):
                self.signal(Taken(host.take(kind)))
            case Do(activities=activities):
                for signal in await _together(activities, self._perform):
                    self.signal(signal)
            case EndByLimit(limit=name):
                self.signal(LimitReached(name, host.thread.turn))
            case Conclude():
                self.signal(Concluded())
            case AwaitChildren() | Lend() | Park() | Leave():
                return command
            case _:
                assert_never(command)
        return None

    def signal(self, signal: Signal) -> None:
        """Let the core say what something comes to."""
        host = self._host
        host.apply(interpret(host.thread, signal, host.definitions))

    async def _perform(self, activity: Activity) -> Signal:
        host = self._host
        at = host.at_work(activity)
        seconds = timeout_of(activity, at.run, at.services)
        with anyio.move_on_after(seconds):
            work = perform(activity, at)
            return host.without_runs(await stepped(work, is_lent=self._is_lent))
        assert seconds is not None
        return timed_out(activity, seconds, at.run, at.services)


async def _together(
    activities: tuple[Activity, ...], do: Callable[[Activity], Awaitable[Signal]]
) -> list[Signal]:
    """Do activities side by side; what they came to, in their order."""
    if len(activities) == 1:
        return [await do(activities[0])]
    signals: dict[int, Signal] = {}

    async def one(number: int, activity: Activity) -> None:
        signals[number] = await do(activity)

    async with anyio.create_task_group() as group:
        for number, activity in enumerate(activities):
            start_in(group, one(number, activity))
    return [signals[number] for number in sorted(signals)]
