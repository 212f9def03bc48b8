"""``NoHub``: the hub of a turn that is driven by hand: it has no listeners, and sends nothing.

A run's variables have their place here, as in any hub.  Everything that takes subscribers, other
runs or a journal raises ``CallerError``.
"""

from typing import Any, Final, NoReturn

from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event
from hubbub.hub.home_loop import HomeLoop
from hubbub.hub.hub import Hub
from hubbub.hub.pipeline import Pipeline
from hubbub.hub.ports import Ports
from hubbub.hub.run_hub import RunHub
from hubbub.runtime.activities.other_runs import OtherRuns

__all__ = ["ALONE", "NO_OTHER_RUNS", "FrameHub", "NoHub", "refuse"]

ALONE: Final = "a turn that is driven by hand has no {}; use a Runtime"


def refuse(what: str) -> NoReturn:
    """Raise ``CallerError``: there is no such thing here."""
    raise CallerError(ALONE.format(what))


class NoHub(Hub):
    """A hub that is never opened."""

    def __init__(self, ports: Ports | None) -> None:
        super().__init__(ports=ports)
        self.pipeline = _NoPipeline(self.journal, self.ports, self.tasks, max_inbox=1)
        self.pipeline.home = _Anywhere()
        self.pipeline.prompts = self.prompts
        self.addressing = self.pipeline.addressing
        self.dispatcher = self.pipeline.dispatcher

    @property
    def is_current_thread(self) -> bool:
        """Nothing has to be done in another thread."""
        return True


class _Anywhere(HomeLoop):
    """Nothing is written that could be waited for: it may be called from everywhere."""

    def check(self, call: str, remedy: str = "") -> None:
        pass


class _NoPipeline(Pipeline):
    """Takes nothing."""

    def check(self, call: str) -> None:
        refuse("hub")


class FrameHub(RunHub):
    """The hub of a tool: it can speak, and reaches no one."""

    __slots__ = ()

    def emit(self, event: Event) -> None:
        self._run.write(event, None)

    async def publish(self, event: Event) -> None:
        self._run.write(event, None)


async def _look_at(run_id: str) -> NoReturn:
    refuse("runs")


def _spawn(parent_run_id: str, agent: Any, input: Any = None, **options: Any) -> NoReturn:
    refuse("spawn")


NO_OTHER_RUNS: Final = OtherRuns(lambda run_id: {}, _look_at, _spawn)
