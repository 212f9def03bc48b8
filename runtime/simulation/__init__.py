"""Simulation: whole agent systems in virtual time, where things go wrong on purpose.

    def test_every_customer_is_answered() -> None:
        history = simulate(scenario, setup, seed=7, faults=[Crash(commit=5)])

Hub, runtime and store are the real ones.  What happens is a function of scenario, setup, seed and
faults: a failure says how to see it again.  Needs the extra ``testing``.

Reading order: ``simulate`` (the whole), ``story`` (what happens, and the history of it, as data),
``world`` (processes, users and time), ``invariants`` (what must hold).  Then:

    ``injection``    faults in models, tools, listeners, stores and disks
    ``loop``         seeded scheduling on Trio, threads in lockstep
    ``strategies``   Hypothesis draws stories, scripts, faults and events
    ``machine``      a state machine over a live world
    ``playback``     recordings, played again and compared
    ``plugin``       pytest

Everything loads when it is first used.  ``plugin`` lies in this package, and pytest imports it in
every program that has hubbub installed, be the extra there or not.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "INVARIANTS",
    "Approve",
    "Asked",
    "AsyncioOnly",
    "ChannelFault",
    "ClockJump",
    "Close",
    "Crash",
    "CutWorker",
    "Deny",
    "Heard",
    "History",
    "Interrupt",
    "Invariant",
    "KillWorker",
    "Life",
    "ListenerFault",
    "Logged",
    "ModelFault",
    "NeverRests",
    "NothingHappens",
    "Open",
    "PauseWorker",
    "Reply",
    "Restart",
    "Say",
    "Scenario",
    "Sent",
    "Setup",
    "SimMachine",
    "SimulationFailed",
    "Step",
    "StuckThread",
    "Terminate",
    "ToolFault",
    "Wait",
    "World",
    "WorldFault",
    "no_run_failed",
    "run_seeded",
    "scripted",
    "simulate",
]

_EXPORTS: Final = {
    "hubbub.runtime.simulation.invariants.all": (
        "INVARIANTS",
        "Invariant",
    ),
    "hubbub.runtime.simulation.invariants.failures": ("no_run_failed",),
    "hubbub.runtime.simulation.loop.asyncio_only": ("AsyncioOnly",),
    "hubbub.runtime.simulation.loop.lockstep": ("StuckThread",),
    "hubbub.runtime.simulation.loop.patience": ("NeverRests",),
    "hubbub.runtime.simulation.loop.seeded": (
        "NothingHappens",
        "run_seeded",
    ),
    "hubbub.runtime.simulation.machine": ("SimMachine",),
    "hubbub.runtime.simulation.simulate": (
        "Scenario",
        "SimulationFailed",
        "simulate",
    ),
    "hubbub.runtime.simulation.story.faults": (
        "ChannelFault",
        "ClockJump",
        "Crash",
        "CutWorker",
        "WorldFault",
        "KillWorker",
        "ListenerFault",
        "ModelFault",
        "PauseWorker",
        "ToolFault",
    ),
    "hubbub.runtime.simulation.story.history": (
        "Asked",
        "Heard",
        "History",
        "Life",
        "Sent",
    ),
    "hubbub.runtime.simulation.story.logbook": ("Logged",),
    "hubbub.runtime.simulation.story.setup": ("Setup",),
    "hubbub.runtime.simulation.story.steps": (
        "Approve",
        "Close",
        "Deny",
        "Interrupt",
        "Open",
        "Reply",
        "Restart",
        "Say",
        "Step",
        "Terminate",
        "Wait",
    ),
    "hubbub.runtime.simulation.strategies.scripts": ("scripted",),
    "hubbub.runtime.simulation.world.world": ("World",),
}


class _Package(ModuleType):
    """This package, in which ``simulate`` is the function.

    The import system puts a module that it has loaded into its package by name, and the module of
    that function has the same.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "simulate" and isinstance(value, ModuleType):
            value = value.simulate
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if TYPE_CHECKING:
    from hubbub.runtime.simulation.invariants.all import INVARIANTS, Invariant
    from hubbub.runtime.simulation.invariants.failures import no_run_failed
    from hubbub.runtime.simulation.loop.asyncio_only import AsyncioOnly
    from hubbub.runtime.simulation.loop.lockstep import StuckThread
    from hubbub.runtime.simulation.loop.patience import NeverRests
    from hubbub.runtime.simulation.loop.seeded import NothingHappens, run_seeded
    from hubbub.runtime.simulation.machine import SimMachine
    from hubbub.runtime.simulation.simulate import Scenario, SimulationFailed, simulate
    from hubbub.runtime.simulation.story.faults import (
        ChannelFault,
        ClockJump,
        Crash,
        CutWorker,
        KillWorker,
        ListenerFault,
        ModelFault,
        PauseWorker,
        ToolFault,
        WorldFault,
    )
    from hubbub.runtime.simulation.story.history import Asked, Heard, History, Life, Sent
    from hubbub.runtime.simulation.story.logbook import Logged
    from hubbub.runtime.simulation.story.setup import Setup
    from hubbub.runtime.simulation.story.steps import (
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
    from hubbub.runtime.simulation.strategies.scripts import scripted
    from hubbub.runtime.simulation.world.world import World
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
