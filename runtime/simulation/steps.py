"""``Step``: what users do, as data.  A scenario that is a list of these shrinks and can be shown.

    Open(agent="support", input="my parcel is lost")
    Say(to=0, text="and it was fragile")       to the run of the first Open
    Wait(seconds=60)
    Restart(kill=True)

A step about a run that was never opened does nothing: a shorter list is still a scenario.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, assert_never

from msgspec import Struct

from hubbub.runtime.simulation.world import World

__all__ = [
    "Close", "Interrupt", "Open", "Restart", "Say", "Step", "Terminate", "Wait", "play",
]  # fmt: skip


class Open(Struct, frozen=True, kw_only=True, repr_omit_defaults=True, tag="open"):
    """Start a run of ``agent``, or find that of ``key``; it is number 0, 1, … for later steps."""

    agent: str = ""
    input: Any = None
    key: str = ""
    user: str = "user"


class Say(Struct, frozen=True, kw_only=True, repr_omit_defaults=True, tag="say"):
    """Say something to run number ``to``; ``key`` makes it idempotent (H-09)."""

    to: int = 0
    text: str = ""
    key: str = ""
    user: str = "user"


class Wait(Struct, frozen=True, kw_only=True, repr_omit_defaults=True, tag="wait"):
    """Let virtual time pass."""

    seconds: float = 1.0


class Interrupt(Struct, frozen=True, kw_only=True, repr_omit_defaults=True, tag="interrupt"):
    """Interrupt the turn at work of run number ``to``."""

    to: int = 0
    reason: str = ""


class Terminate(Struct, frozen=True, kw_only=True, repr_omit_defaults=True, tag="terminate"):
    """End run number ``to``, and its descendants, now."""

    to: int = 0
    reason: str = ""


class Close(Struct, frozen=True, kw_only=True, repr_omit_defaults=True, tag="close"):
    """Have run number ``to`` accept no more messages, handle what waits, and end."""

    to: int = 0
    reason: str = ""


class Restart(Struct, frozen=True, kw_only=True, repr_omit_defaults=True, tag="restart"):
    """End the process, in order or (``kill``) as by ``kill -9``, and begin another one."""

    kill: bool = False


Step: TypeAlias = Open | Say | Wait | Interrupt | Terminate | Close | Restart


async def play(steps: Sequence[Step], world: World) -> None:
    """Do one step after the other in ``world``."""
    opened: list[str] = []
    for step in steps:
        if isinstance(step, Say | Interrupt | Terminate | Close):
            if 0 <= step.to < len(opened):
                await _about(step, opened[step.to], world)
            continue
        match step:
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
