"""The arguments of worlds, scenarios and strategies, checked before anything runs.

A test in which nothing can happen as it says passes forever.  So whatever could mean nothing is
refused, in one line that names the argument, what is wrong with it and what there is:

    setup_of        a setup, or what the function that was given makes
    check_world     setup, faults and store of a world; the names in its faults
    check_workers   how many workers there are, and the faults that strike them
    check_call      what else ``simulate`` is given, as far as it needs no setup
    check_steps     the agents that steps name

All raise ``BadValue``.  Agents are those of the setup's definitions, those of skills included;
where definitions do not fit together nothing is said of names, as the runtime tells what is wrong.
Tools are those that a fault can strike: what a code agent brings to its session itself is none.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import anyio
import anyio.lowlevel

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.errors import BadValue, CallerError, DefinitionError
from hubbub.hub.values import check_flag
from hubbub.runtime.simulation.story.faults import (
    AnyFault,
    ModelFault,
    ToolFault,
    WorkerFault,
    WorldFault,
)
from hubbub.runtime.simulation.story.fields import check_whole, shown
from hubbub.runtime.simulation.story.history import StoreName
from hubbub.runtime.simulation.story.setup import AnyTool, Setup
from hubbub.runtime.simulation.story.steps import AnyStep, Open, Step

__all__ = [
    "NotAsync", "awaited", "check_agents", "check_async", "check_call", "check_mapping",
    "check_no_loop", "check_steps", "check_store", "check_texts", "check_workers",
    "check_world", "setup_of",
]  # fmt: skip

T = TypeVar("T")

MAX_WORKERS: Final = 100
"""Of one world: all of them beat, however little there is to do."""


class NotAsync(BadValue):
    """An async function was expected, and a plain one was given."""

    def __init__(self, what: str, function: object, remedy: str = "") -> None:
        name = getattr(function, "__name__", type(function).__name__)
        super().__init__(
            what, f"{name} is a plain function; write `async def {name}`{remedy and f', {remedy}'}"
        )


# ── setups ───────────────────────────────────────────────────────────────────────────────────


def setup_of(setup: object) -> Setup:
    """The setup itself, or what the function that was given makes."""
    if isinstance(setup, Setup):
        return setup
    if isinstance(setup, AgentDefinition):
        wanted = "expected a Setup, not an AgentDefinition"
        raise BadValue("setup", f"{wanted}; write Setup.of(…) around {setup.name!r}")
    if not callable(setup):
        wanted = "expected a Setup, or a function that makes one"
        raise BadValue("setup", f"{wanted}, not {shown(setup)}; make one with Setup.of(agent)")
    made = setup()
    if isinstance(made, Setup):
        return made
    name = getattr(setup, "__name__", type(setup).__name__)
    if inspect.iscoroutine(made):
        made.close()
        raise BadValue("setup", f"{name} is async; write a plain function that returns a Setup")
    raise BadValue("setup", f"{name}() returned {shown(made)}; have it return a Setup")


def check_agents(what: str, names: Iterable[str], setup: Setup) -> None:
    """Raise for a name of no agent in the setup."""
    unknown = sorted(set(names) - {agent.name for agent in setup.agents})
    if unknown and (known := _definitions(setup)) is not None:
        for name in unknown:
            if name not in known.names:
                raise BadValue(what, f"no agent {name!r}; the setup has {_listed(known.names)}")


def _definitions(setup: Setup) -> Definitions | None:
    try:
        return setup.definitions()
    except DefinitionError:
        return None


# ── worlds ───────────────────────────────────────────────────────────────────────────────────


def check_world(setup: Setup, faults: Sequence[WorldFault], store: StoreName) -> None:
    """Raise for an unknown store, and for faults that cannot strike anything."""
    check_store("store", store)
    _check_faults(faults)
    for number, fault in enumerate(faults):
        if isinstance(fault, ModelFault) and fault.agent:
            check_agents(f"faults[{number}].agent", [fault.agent], setup)
        elif isinstance(fault, ToolFault) and fault.tool:
            _check_tool(f"faults[{number}].tool", fault.tool, setup)


def check_workers(workers: object, faults: object, store: object) -> int | None:
    """The number of workers where they are several, else ``None``; raises for what is none, for a
    store that they cannot share, and for faults of a worker that there is not."""
    if workers is not None:
        check_whole("workers", workers, least=1)
    count = workers if isinstance(workers, int) and workers > 1 else None
    if count is not None and count > MAX_WORKERS:
        raise BadValue("workers", f"at most {MAX_WORKERS}, not {count}")
    if count is not None and store in get_args(StoreName) and store != "memory":
        raise BadValue("store", f"{store!r} is one process's; several workers share 'memory'")
    _check_faults(faults)
    assert isinstance(faults, Sequence)
    for number, fault in enumerate(faults):
        if not isinstance(fault, WorkerFault):
            continue
        if count is None:
            problem = f"{fault!r} strikes one of several workers; write workers=2, or more"
            raise BadValue(f"faults[{number}]", problem)
        if fault.worker >= count:
            problem = f"no worker {fault.worker}; there are {count}, from 0"
            raise BadValue(f"faults[{number}].worker", problem)
    return count


def check_store(what: str, store: object) -> None:
    """Raise for what is not the name of a store."""
    if store not in get_args(StoreName):
        raise BadValue(what, f"no store {store!r}; there are {_listed(get_args(StoreName))}")


def _check_faults(faults: object) -> None:
    for number, fault in enumerate(_list_of(WorldFault, "faults", "faults", faults)):
        if not isinstance(fault, AnyFault):
            raise BadValue(f"faults[{number}]", _none_of("fault", fault, AnyFault))


def _check_tool(what: str, name: str, setup: Setup) -> None:
    known: dict[str, None] = {}

    def note(tool: AnyTool) -> AnyTool:
        known[tool.name] = None
        return tool

    setup.wrapped(lambda model: model, note)  # Goes wherever those are that are to be struck.
    if name not in known:
        there_are = _listed(sorted(known))
        raise BadValue(what, f"no tool {name!r} that could be struck; there are {there_are}")


# ── simulate ─────────────────────────────────────────────────────────────────────────────────


def check_call(
    scenario: object, faults: object, store: object, invariants: object, settle: object,
    workers: object = None,
) -> None:  # fmt: skip
    """Raise for what ``simulate`` cannot play, ask or keep, before a setup is made."""
    check_no_loop("simulate")
    if callable(scenario):
        _check_takes_world(scenario)
    else:
        also = ", or an async function of a world"
        for number, step in enumerate(_list_of(Step, "steps", "scenario", scenario, also)):
            if not isinstance(step, AnyStep):
                raise BadValue(f"scenario[{number}]", _none_of("step", step, AnyStep))
    check_store("store", store)
    check_workers(workers, faults, store)
    check_mapping("invariants", invariants)
    check_flag("settle", settle)


def _check_takes_world(scenario: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(scenario)
    except (TypeError, ValueError):  # What is written in C may have none.
        return
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(scenario, "__name__", type(scenario).__name__)
        raise BadValue(
            "scenario",
            f"{name}{signature} is called with the world alone; write `async def {name}(world)`",
        ) from None


def check_steps(scenario: object, setup: Setup) -> None:
    """Raise for steps that open an agent that the setup does not have."""
    if callable(scenario) or not isinstance(scenario, Sequence):
        return
    for number, step in enumerate(scenario):
        if isinstance(step, Open):
            what = f"scenario[{number}].agent"
            if step.agent:
                check_agents(what, [step.agent], setup)
            elif not setup.options.get("default_agent"):
                known = _listed(agent.name for agent in setup.agents)
                remedy = f"name one of {known}, or give the setup a default_agent"
                raise BadValue(what, f"the setup has no default_agent; {remedy}")


def check_mapping(what: str, invariants: object) -> None:
    """Raise for what is no mapping of names to functions."""
    remedy = 'write {**INVARIANTS, "mine": mine}'
    if not isinstance(invariants, Mapping):
        wanted = f"expected a mapping of names to functions, not {type(invariants).__name__}"
        raise BadValue(what, f"{wanted}; {remedy}")
    for name, invariant in invariants.items():
        if not isinstance(name, str) or not callable(invariant):
            given = f"{name!r}: {shown(invariant)}"
            raise BadValue(what, f"expected names and functions, not {given}; {remedy}")


def check_no_loop(what: str) -> None:
    """Raise ``CallerError`` where a loop is at work in this thread already."""
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:
        return
    raise CallerError(
        f"{what} has a loop of its own, and cannot be called in one; in an async test use the "
        "fixture simulated_world, or `async with World(setup) as world`"
    )


async def awaited(what: str, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Call and await a function; raises ``NotAsync`` for one whose value cannot be awaited."""
    came = function(*arguments)
    if not inspect.isawaitable(came):
        raise NotAsync(what, function)
    return await came


def check_async(what: str, function: Any, remedy: str) -> None:
    """Raise ``NotAsync`` for what is not an async function, however it is decorated."""
    if not inspect.iscoroutinefunction(inspect.unwrap(function)):
        raise NotAsync(what, function, remedy)


# ── lists and words ──────────────────────────────────────────────────────────────────────────


def check_texts(what: str, names: object) -> None:
    """Raise for what is no list of texts; a single text is none."""
    if isinstance(names, str):
        raise BadValue(what, f"expected a list of names; write [{names!r}]")
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise BadValue(what, f"expected a list of names, not {shown(names)}")


def _list_of(
    kind: type[Any], words: str, what: str, things: object, also: str = ""
) -> Sequence[Any]:
    wanted = f"expected a list of {words}{also}"
    if isinstance(things, kind):
        raise BadValue(what, f"{wanted}; write [{things!r}]")
    if isinstance(things, str) or not isinstance(things, Sequence):
        raise BadValue(what, f"{wanted}, not {shown(things)}")
    return things


def _none_of(word: str, thing: object, union: Any) -> str:
    if isinstance(thing, type) and thing in get_args(union):
        return f"the class {thing.__name__} is no {word}; make one: {thing.__name__}(…)"
    kinds = ", ".join(each.__name__ for each in get_args(union))
    return f"{shown(thing)} is no {word}; there are {kinds}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
