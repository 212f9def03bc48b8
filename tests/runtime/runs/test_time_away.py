"""Time in which the process of a run is away is no time at work, however the run ends."""

import anyio
import pytest

from hubbub import Agent, FunctionModel, Limits, ModelReply, ModelRequest
from hubbub.agents.model import UserMessage
from hubbub.hub import events as e
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.simulation import History, Setup, World, simulate
from hubbub.runtime.simulation.story.history import StoreName

pytestmark = pytest.mark.spec("L-05")


def desk(request: ModelRequest) -> ModelReply:
    """It has a helper work when it is told so, and else answers."""
    last = request.messages[-1]
    if isinstance(last, UserMessage) and last.content == "work":
        return reply("", call("helper", message="work"))
    return reply("Here.")


def setup() -> Setup:
    slow = FunctionModel(lambda request: reply("Done."), latency=5.0)
    helper = Agent("helper", "You help.", model=slow, run_limits=Limits(seconds=60)).as_tool()
    return Setup.of(
        Agent("desk", "You serve.", model=FunctionModel(desk), tools=[helper]),
        limits=Limits(seconds=60),
    )


def died_three_times(store: StoreName, away: float) -> History:
    """The process dies of a helper, and is away for so long after its last death."""

    async def scenario(world: World) -> None:
        run_id = await world.open("desk", "work", user="ann")
        for seconds in (0.0, 0.0, away):
            await world.wait(1)
            await world.die()
            await anyio.sleep(seconds)
        await world.settle(60)
        await world.restart()
        await world.say(run_id, "And now?", user="ann")
        await world.settle(60)

    return simulate(scenario, setup, store=store)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_who_is_given_up_after_three_deaths_was_not_at_work_since_the_last_one(
    store: StoreName,
) -> None:
    history = died_three_times(store, 1_000)
    (root,), (helper,) = history.of("desk"), history.of("helper")
    failed = [x.error_type for x in history.own[helper] if isinstance(x, e.AgentFailed)]
    assert failed == ["CrashLoop"]
    assert history.said(root) == ["Here.", "Here."]
