"""The line of code that plays a simulation again."""

from collections.abc import Mapping, Sequence
from typing import Any

from hubbub.runtime.simulation.invariants.all import INVARIANTS, Invariant
from hubbub.runtime.simulation.loop.patience import MAX_ROUNDS
from hubbub.runtime.simulation.story.faults import WorldFault
from hubbub.runtime.simulation.story.history import StoreName
from hubbub.runtime.simulation.story.setup import code_of

__all__ = ["replay_of"]


def replay_of(
    scenario: Any,
    setup: Any = None,
    *,
    seed: int = 0,
    faults: Sequence[WorldFault] = (),
    store: StoreName = "memory",
    workers: int | None = None,
    invariants: Mapping[str, Invariant] = INVARIANTS,
    settle: bool = True,
    max_rounds: int = MAX_ROUNDS,
) -> str:
    """The call of ``simulate`` that plays this again.

    Steps and faults are written out; functions go by their names, where they have one: a setup
    or scenario that has none is called ``setup`` or ``scenario``.
    """
    given = [
        code_of(scenario, "scenario") if callable(scenario) else repr([*scenario]),
        code_of(setup, "setup"),
        f"seed={seed}",
    ]
    if faults:
        given.append(f"faults={[*faults]!r}")
    if store != "memory":
        given.append(f"store={store!r}")
    if workers is not None:
        given.append(f"workers={workers}")
    if invariants is not INVARIANTS:
        given.append(f"invariants={_invariants(invariants)}")
    if not settle:
        given.append("settle=False")
    if max_rounds != MAX_ROUNDS:
        given.append(f"max_rounds={max_rounds}")
    return f"simulate({', '.join(given)})"


def _invariants(invariants: Mapping[str, Invariant]) -> str:
    """The mapping as code: what is a user's own by the name of its function."""
    kept = {name for name, each in INVARIANTS.items() if invariants.get(name) is each}
    own = [
        f"{name!r}: {code_of(each, name)}" for name, each in invariants.items() if name not in kept
    ]
    if len(kept) == len(INVARIANTS):
        return f"{{{', '.join(['**INVARIANTS', *own])}}}"
    picked = [f"{name!r}: INVARIANTS[{name!r}]" for name in invariants if name in kept]
    return f"{{{', '.join([*picked, *own])}}}"
