"""Which model a run asks now, how long an activity may take, and what it means that it took longer.

Several models are looked up here and not in the core: a skill may be read by those of its caller.
"""

from typing import Protocol

from hubbub.agents.model_choice import ModelChoice, named
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.retry import Failure
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.decide import Activity, CallModel, RunTool, Summarize
from hubbub.agents.turn.signals import (
    HooksCalled,
    ModelFailed,
    Signal,
    ToolFinished,
    unsummarised,
)
from hubbub.hub.own_lane import OwnLane
from hubbub.runtime.kernel.services import Services

__all__ = [
    "MODEL_TIMEOUT", "TIMED_OUT", "ChoosingRun", "chosen", "names_of", "side_summarised",
    "summary_choice", "timed_out", "timeout_of",
]  # fmt: skip

MODEL_TIMEOUT = 600.0
"""Seconds that one model call may take, where settings do not say it."""

TIMED_OUT = "timed out: the tool did not finish within {:g} s"


class ChoosingRun(Protocol):
    """The run whose model is asked."""

    @property
    def lane(self) -> OwnLane: ...

    @property
    def thread(self) -> Thread: ...

    @property
    def side(self) -> ActiveSide | None: ...


def chosen(
    run: ChoosingRun, side: ActiveSide, services: Services
) -> tuple[ModelChoice, tuple[ModelChoice, ...]]:
    """The model that the side at work asks now, and all that it may."""
    choices = services.catalog.choices_of(side, run.lane.ancestors, services.definitions)
    thread = run.thread
    at = thread.models.of(thread.side)
    return choices[at if at < len(choices) else 0], choices


def side_summarised(activity: Summarize, run: ChoosingRun, services: Services) -> ActiveSide | None:
    """The side whose messages are summarised, which may not be the one at work."""
    thread = run.thread
    if activity.side == thread.side:
        return run.side
    return services.definitions.find_side(thread.agent, activity.side)


def summary_choice(
    activity: Summarize, side: ActiveSide, run: ChoosingRun, services: Services
) -> ModelChoice:
    """The model that the side whose messages are summarised asks now."""
    choices = services.catalog.choices_of(side, run.lane.ancestors, services.definitions)
    place = run.thread.models.of(activity.side)
    return choices[place if place < len(choices) else 0]


def names_of(choices: tuple[ModelChoice, ...]) -> tuple[str, ...]:
    """The names of several models; of one alone nothing needs to be known."""
    return tuple(named(each.model) for each in choices) if len(choices) > 1 else ()


def timeout_of(activity: Activity, run: ChoosingRun, services: Services) -> float | None:
    """Seconds that an activity may take."""
    side = run.side
    if isinstance(activity, CallModel):
        if side is None:
            return MODEL_TIMEOUT + activity.delay
        choice = side.choices[0] if side.is_plain else chosen(run, side, services)[0]
        return _seconds_of(choice) + activity.delay
    if isinstance(activity, Summarize):  # All its attempts: the turn waits for it.
        side = side_summarised(activity, run, services)
        if side is None:
            return MODEL_TIMEOUT
        return _seconds_of(summary_choice(activity, side, run, services))
    if side is None or not isinstance(activity, RunTool) or side.hooks:
        return None
    tool = side.tools.get(activity.name)
    return tool.timeout if tool is not None else None


def _seconds_of(choice: ModelChoice) -> float:
    """Seconds that the model has for one call."""
    given = None if choice.settings is None else choice.settings.timeout
    return MODEL_TIMEOUT if given is None else given


def timed_out(activity: Activity, seconds: float, run: ChoosingRun, services: Services) -> Signal:
    """What it means that an activity took longer."""
    match activity:
        case CallModel():
            text = f"the model did not answer within {seconds - activity.delay:g} s"
            failure = Failure(kind="timeout", error=text, retryable=True)
            side = run.side
            names = () if side is None else names_of(chosen(run, side, services)[1])
            return ModelFailed(failure, activity.turn, names)
        case Summarize():
            return unsummarised(activity, f"the model did not answer within {seconds:g} s")
        case RunTool():
            text = TIMED_OUT.format(seconds)
            return ToolFinished(activity.step, activity.index, text, True, is_late=True)
        case _:
            return HooksCalled()
