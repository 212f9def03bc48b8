"""Worlds in which models fail: a run with several is answered as long as one of them is there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.simulations import look

from hubbub import Agent, FunctionModel, ModelReply, ModelRequest
from hubbub.agents.model import UserMessage
from hubbub.hub import events as e
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.simulation import Crash, ModelFault, Setup, World, scripted, simulate
from hubbub.runtime.simulation.strategies.worlds import scripts

pytestmark = pytest.mark.spec("L-06")


def _looks(request: ModelRequest) -> ModelReply:
    last = request.messages[-1] if request.messages else None
    if isinstance(last, UserMessage):
        return reply("", call("look", what=last.content))
    return reply("that is all")


def desk() -> Setup:
    """One agent of three models that say the same."""
    models = [FunctionModel(_looks, name=name, latency=0.5) for name in ("one", "two", "three")]
    return Setup.of(Agent("desk", "You help.", model=models, tools=[look]))


async def day(world: World) -> None:
    """A conversation of three messages."""
    run = await world.open("desk", "the red one", user="ann")
    for text in ("the green one", "thanks"):
        await world.result(run)
        await world.say(run, text, user="ann")
    await world.result(run)


FAULTS = st.lists(
    st.builds(ModelFault, call=st.integers(1, 12), kind=st.sampled_from(["refused", "error"]))
    | st.builds(ModelFault, call=st.integers(1, 12), kind=st.just("hang"))
    | st.builds(Crash, commit=st.integers(1, 20)),
    max_size=3,
)


def choices(own: list[e.Event]) -> list[int]:
    """The model of each answer, and of each further attempt."""
    return [x.choice for x in own if isinstance(x, e.AgentStep | e.AgentRetry)]


@settings(max_examples=examples(40), deadline=None)
@given(FAULTS, st.integers(0, 3))
def test_a_run_moves_to_another_model_only_when_one_has_failed(
    faults: list[ModelFault | Crash], seed: int
) -> None:
    history = simulate(day, desk, seed=seed, faults=faults)
    for own in history.own.values():
        at = 0
        for event in own:
            if isinstance(event, e.AgentRetry) and event.choice != at:
                assert (event.choice, event.model) == (
                    (at + 1) % 3, ("one", "two", "three")[(at + 1) % 3]
                )  # fmt: skip
                at = event.choice
            elif isinstance(event, e.AgentStep):
                assert event.choice == at
            elif isinstance(event, e.SessionEnd) and event.outcome == "failed":
                at = 0
        if sum(isinstance(x, ModelFault) for x in faults) < 3:
            ends = [x for x in own if isinstance(x, e.SessionEnd)]
            assert all(x.outcome != "failed" for x in ends), "one of the three is there"


def test_a_model_that_is_refused_is_followed_by_the_next() -> None:
    history = simulate(day, desk, faults=[ModelFault(call=2, kind="refused")])
    (own,) = history.own.values()
    assert choices(list(own)) == [0, 1, *[1] * 5]


@settings(max_examples=examples(20), deadline=None)
@given(scripts(desk), FAULTS)
def test_scripts_leave_a_prompt_as_many_models_as_it_had(
    script: dict[str, list[ModelReply]], faults: list[ModelFault | Crash]
) -> None:
    simulate(day, scripted(desk, script), faults=faults)
