"""Users' code of the own world that raises what is no error: what ends tasks, and its likes.

m7 [["throw", "generator"], ["say"]]                 a tool raises it, and the run goes on
m7 [["leave", "ask", [["look"]], "own"], ["say"]]    one that has started a child
m7 [["break", "cancelled"]]                          the model object does, and the turn fails
m7 [["own"]]                                         to ``thrower``: a listener does, then it
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Final

import anyio

from hubbub import RunContext, RunState, agent, tool
from hubbub.hub.events import Event

__all__ = ["RAISED", "RAISERS", "THROWING", "thrower"]


class Own(BaseException):
    """A class that no ``except Exception`` stops."""


class OwnInterrupt(BaseException):
    """Said like the one of the keyboard, and not that."""


RAISED: Final[Mapping[str, Callable[[], BaseException]]] = {
    "cancelled": asyncio.CancelledError,
    "generator": GeneratorExit,
    "own": lambda: Own("own"),
    "interrupt": lambda: OwnInterrupt("not of the keyboard"),
    "group": lambda: BaseExceptionGroup("several", [Own("one"), ValueError("two")]),
}

THROWING: Final = ("throw", "throw_plain", "leave")
"""The tools that raise; the last one starts a child before."""


@tool
async def throw(kind: str) -> str:
    """Raise something after a while."""
    await anyio.sleep(0.1)
    raise RAISED[kind]()


@tool
def throw_plain(kind: str) -> str:
    """Raise something."""
    raise RAISED[kind]()


@tool
async def leave(who: str, message: str, kind: str, state: RunState) -> str:
    """Have a child work, and raise something."""
    state.spawn(who, message)
    await anyio.sleep(0.3)
    raise RAISED[kind]()


RAISERS: Final = (throw, throw_plain, leave)


@agent("thrower")
async def thrower(input: str, ctx: RunContext) -> str:
    """Has a listener raise at whatever tools do, and then raises itself."""
    _, _, program = str(input).partition(" ")
    kind = json.loads(program)[0][0]

    def listen(event: Event) -> None:
        raise RAISED[kind]()

    ctx.hub.subscribe("agent:tool:*", listen)
    await anyio.sleep(20)
    raise RAISED[kind]()
