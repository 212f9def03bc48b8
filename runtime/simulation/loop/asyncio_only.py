"""``AsyncioOnly``: code in a simulated world that works on asyncio alone.

Simulations run on Trio, where asyncio has no loop.  A tool that needs one raises, and that is an
answer which its model reads: nothing would be broken, and nothing tested.
"""

import re
from collections.abc import Iterable
from typing import Final

from hubbub.hub import events as e
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.runtime.simulation.story.logbook import Logged

__all__ = ["AsyncioOnly", "AsyncioWatch"]

_SIGNS: Final = re.compile(
    r"RuntimeError: no running event loop"
    r"|(?:RuntimeError|DeprecationWarning): There is no current event loop"
    r"|TypeError: trio\.run received unrecognized yield message"
    # A lock, queue or event of asyncio's that somebody has to wait for.
    r"|AttributeError: 'NoneType' object has no attribute 'create_future'"
)
"""What asyncio, or Trio about it, says to code that awaits asyncio's things on Trio."""


class AsyncioOnly(CopiedWhole, AssertionError):
    """Code under simulation has asked for asyncio's loop."""

    def __init__(self, who: str, said: str) -> None:
        super().__init__(
            f"{who} is for asyncio only, and simulations run on Trio: it raised {said!r}; write "
            "it with anyio, which runs on both (anyio.sleep for asyncio.sleep), or give the "
            "simulation a stand-in for it"
        )


class AsyncioWatch:
    """Notices the first thing in a world that has asked for asyncio's loop.

    It goes by the words of what was raised, for that is all that events and messages hold.
    """

    def __init__(self) -> None:
        self._found: AsyncioOnly | None = None

    def listen(self, hub: Hub) -> None:
        """Notice the tools and agents that fail on this hub, for as long as it is open."""
        hub.subscribe((e.AgentToolComplete.type, e.AgentFailed.type), self._hear)

    def check(self, logged: Iterable[Logged]) -> None:
        """Raise ``AsyncioOnly`` if something was noticed, or the log tells of it: what hooks,
        listeners and models raise is there."""
        if self._found is None:
            for each in logged:
                if sign := _SIGNS.search(each.error):
                    names = (each.facts.get(name) for name in ("hook", "listener"))
                    who = next((f"{name!r}" for name in names if name), "something")
                    raise AsyncioOnly(f"{who}, of which {each.event} was logged,", sign[0])
        else:
            raise self._found

    def _hear(self, event: Event) -> None:
        match event:
            case e.AgentToolComplete(is_error=True):
                who, text = f"the tool {event.name!r} of {event.agent!r}", event.output
            case e.AgentFailed():
                who, text = f"the agent {event.agent!r}", f"{event.error_type}: {event.error}"
            case _:
                return
        if sign := _SIGNS.search(text):
            self._found = self._found or AsyncioOnly(who, sign[0])
            log.error("asyncio.asked_for", who=who, run_id=event.run_id, error=sign[0])
