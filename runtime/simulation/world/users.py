"""``play``: the users of a world do the steps of a scenario, one after the other."""

from collections.abc import Sequence
from typing import assert_never, cast

from hubbub.runtime.simulation.story.history import Skipped
from hubbub.runtime.simulation.story.steps import (
    AnyStep,
    Approve,
    Close,
    Deny,
    Interrupt,
    Open,
    Reply,
    Restart,
    Say,
    Step,
    Terminate,
    Wait,
)
from hubbub.runtime.simulation.world.world import World

__all__ = ["play"]


async def play(steps: Sequence[Step], world: World, opened: list[str] | None = None) -> None:
    """Do one step after the other in ``world``.

    ``opened`` are the runs that steps before have opened; those of these steps are added.
    """
    opened = [] if opened is None else opened
    for each in steps:
        step = cast("AnyStep", each)
        match step:
            case Reply() | Approve() | Deny():
                prompt_id = ""
                if step.to < len(opened):
                    kind = "approval" if isinstance(step, Approve) else ""
                    prompt_id = world.open_prompt(opened[step.to], kind)
                if prompt_id:
                    await _answer(step, prompt_id, world)
                else:
                    _skip(step, len(opened), world)
            case Say() | Interrupt() | Terminate() | Close():
                if step.to < len(opened):
                    await _about(step, opened[step.to], world)
                else:
                    _skip(step, len(opened), world)
            case Open():
                run_id = await world.open(
                    step.agent, step.input, session_key=step.key, user=step.user
                )
                opened.append(run_id)
            case Wait():
                await world.wait(step.seconds)
            case Restart():
                if step.kill:
                    await world.die()
                await world.restart()
            case _:
                assert_never(step)


async def _about(step: Say | Interrupt | Terminate | Close, run_id: str, world: World) -> None:
    match step:
        case Say():
            await world.say(run_id, step.text, user=step.user, key=step.key)
        case Interrupt():
            await world.interrupt(run_id, step.reason)
        case Terminate():
            await world.terminate(run_id, step.reason)
        case Close():
            await world.close(run_id, step.reason)
        case _:
            assert_never(step)


async def _answer(step: Reply | Approve | Deny, prompt_id: str, world: World) -> None:
    match step:
        case Reply():
            await world.reply(prompt_id, step.text, user=step.user)
        case Approve():
            await world.approve(prompt_id, step.arguments, user=step.user)
        case Deny():
            await world.deny(prompt_id, step.reason, user=step.user)
        case _:
            assert_never(step)


def _skip(step: Step, opened: int, world: World) -> None:
    """Write down that a step is about no run, or answers nothing."""
    history = world.history
    skipped = Skipped(
        step=repr(step), opened=opened, life=world.lives - 1, at=world.clock.monotonic(),
        place=len(history.heard), after=len(history.sent),
    )  # fmt: skip
    history.skipped.append(skipped)
