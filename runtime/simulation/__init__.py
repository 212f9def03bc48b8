"""Simulation: whole agent systems in virtual time, where things go wrong on purpose.

    def test_every_customer_is_answered() -> None:
        history = simulate(scenario, setup, seed=7, faults=[Crash(commit=5)])

Hub, runtime and store are the real ones.  What happens is a function of scenario, setup, seed and
faults: a failure says how to see it again.  Needs the extra ``testing``.

Reading order: ``simulate`` (the whole), ``steps`` and ``faults`` (what happens, as data), ``world``
(users and time), ``setup``, ``history`` and ``invariants`` (what came of it).  Below: ``lives``,
``process``, ``dying_store`` and ``power_loss`` (crashes), ``plan``, ``injection`` and ``line``
(other faults), ``reading``, ``loop`` and ``patience`` (Trio).  For Hypothesis: ``strategies``,
``event_strategies``, ``event_types``, ``machine`` (over ``frozen_loop``), ``aims``.  For pytest:
``plugin``; recordings: ``writing``, ``recording``, ``recorded_replies``, ``stand_ins``,
``playback``.

Everything loads when it is first used.  ``plugin`` lies in this package, and pytest imports it in
every program that has hubbub installed, be the extra there or not.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "INVARIANTS",
    "Asked",
    "ChannelFault",
    "ClockJump",
    "Close",
    "Crash",
    "Fault",
    "Heard",
    "History",
    "Interrupt",
    "Invariant",
    "Life",
    "ListenerFault",
    "ModelFault",
    "NeverRests",
    "NothingHappens",
    "Open",
    "Restart",
    "Say",
    "Scenario",
    "Sent",
    "Setup",
    "SimMachine",
    "SimulationFailed",
    "Step",
    "Terminate",
    "ToolFault",
    "Wait",
    "World",
    "run_seeded",
    "simulate",
]

_EXPORTS: Final = {
    "hubbub.runtime.simulation.faults": (
        "ChannelFault",
        "ClockJump",
        "Crash",
        "Fault",
        "ListenerFault",
        "ModelFault",
        "ToolFault",
    ),
    "hubbub.runtime.simulation.history": ("Asked", "Heard", "History", "Life", "Sent"),
    "hubbub.runtime.simulation.invariants": ("INVARIANTS", "Invariant"),
    "hubbub.runtime.simulation.loop": ("NothingHappens", "run_seeded"),
    "hubbub.runtime.simulation.machine": ("SimMachine",),
    "hubbub.runtime.simulation.patience": ("NeverRests",),
    "hubbub.runtime.simulation.setup": ("Setup",),
    "hubbub.runtime.simulation.simulate": ("Scenario", "SimulationFailed", "simulate"),
    "hubbub.runtime.simulation.steps": (
        "Close",
        "Interrupt",
        "Open",
        "Restart",
        "Say",
        "Step",
        "Terminate",
        "Wait",
    ),
    "hubbub.runtime.simulation.world": ("World",),
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
    from hubbub.runtime.simulation.faults import (
        ChannelFault,
        ClockJump,
        Crash,
        Fault,
        ListenerFault,
        ModelFault,
        ToolFault,
    )
    from hubbub.runtime.simulation.history import (
        Asked,
        Heard,
        History,
        Life,
        Sent,
    )
    from hubbub.runtime.simulation.invariants import INVARIANTS, Invariant
    from hubbub.runtime.simulation.loop import NothingHappens, run_seeded
    from hubbub.runtime.simulation.machine import SimMachine
    from hubbub.runtime.simulation.patience import NeverRests
    from hubbub.runtime.simulation.setup import Setup
    from hubbub.runtime.simulation.simulate import Scenario, SimulationFailed, simulate
    from hubbub.runtime.simulation.steps import (
        Close,
        Interrupt,
        Open,
        Restart,
        Say,
        Step,
        Terminate,
        Wait,
    )
    from hubbub.runtime.simulation.world import World
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
