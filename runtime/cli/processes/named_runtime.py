"""``named_runtime``: the runtime that ``MODULE:NAME`` and the options of a command make."""

import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.arguments import MAX_CAPACITY, Role
from hubbub.runtime.cli.printing import at_least
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.stores.open import DEFAULT_STORE, open_store, place_of_store
from hubbub.runtime.stores.retention.retention import Retention

if TYPE_CHECKING:
    from hubbub.runtime.loading.agents import LoadedAgents

__all__ = ["NamedRuntime", "ProcessSettings", "named_runtime"]


class ProcessSettings(Struct, frozen=True, kw_only=True):
    """What a command was told of its process; ``None`` and the empty text: nothing."""

    store: str | None = None
    role: Role | None = None
    name: str = ""
    capacity: int | None = None
    grace: float | None = None
    replace: bool | None = None
    retention: Retention | None = None


class NamedRuntime(Struct, frozen=True, kw_only=True):
    """A runtime that is not entered yet."""

    runtime: Runtime
    begin: Callable[[Runtime], Awaitable[object]]
    """What to do once it is."""
    name: str
    """What the process is called."""
    place: str
    """What its store is called; no password is in it."""


def named_runtime(
    module: str | None, settings: ProcessSettings, *, role: Role, grace: float
) -> NamedRuntime:
    """The ``Runtime`` that a module has, or one with its agents; without a module the demo's.

    ``role`` and ``grace`` count where the settings say nothing.  Raises ``OperatorError`` for what
    cannot be together, for a module that cannot be loaded, and for a store that cannot be.
    """
    found: Runtime | LoadedAgents | None = None
    if module is not None:
        from hubbub.runtime.loading.agents import load_named

        found = load_named(module, Runtime)
    if isinstance(found, Runtime):
        _check_own(str(module), settings)
        place = "the store of its module"
        return NamedRuntime(runtime=found, begin=_nothing, name=str(module), place=place)
    if settings.capacity is not None:
        at_least(1, "--capacity", settings.capacity, MAX_CAPACITY)
    role = settings.role or role
    text = settings.store or DEFAULT_STORE
    name = settings.name or f"{socket.gethostname()}:{os.getpid()}"
    grace = grace if settings.grace is None else settings.grace
    ports = Ports()
    store = open_store(text, ports, is_worker=role == "worker", name=name)
    begin: Callable[[Runtime], Awaitable[object]] = _nothing
    if found is not None:
        runtime = Runtime(
            found.agents, found.prompts, found.tools, skills=found.skills, ports=ports,
            store=store, default_agent=found.agent.name, grace=grace, role=role,
            capacity=settings.capacity, replace_agents=bool(settings.replace),
            retention=settings.retention,
        )  # fmt: skip
    elif role == "channel":
        if settings.replace:
            raise OperatorError("--replace: this process drives no agents; leave it out")
        if settings.retention is not None:
            raise OperatorError("--retention-…: nothing goes by this process; tell the workers")
        runtime = Runtime(ports=ports, store=store, grace=grace, role=role)
    else:
        from hubbub.runtime.cli.processes.served_demo import begin_served_demo, served_demo

        begin = begin_served_demo
        runtime = served_demo(
            store, ports, capacity=settings.capacity, replace_agents=bool(settings.replace),
            retention=settings.retention,
        )  # fmt: skip
    place = text if text == "memory" else place_of_store(text)
    return NamedRuntime(runtime=runtime, begin=begin, name=name, place=place)


_OPTIONS: Final = {
    "store": "--store", "role": "--role", "name": "--name", "capacity": "--capacity",
    "grace": "--grace", "replace": "--replace", "retention": "--retention-…",
}  # fmt: skip


def _check_own(module: str, settings: ProcessSettings) -> None:
    """Raise ``OperatorError`` for options that a ``Runtime`` of a module's own has decided."""
    for name, option in _OPTIONS.items():
        if getattr(settings, name) not in (None, ""):
            what = "a store" if name == "store" else "settings"
            raise OperatorError(f"{module} has {what} of its own; leave {option} out")


async def _nothing(runtime: Runtime) -> None:
    """An own module's agents begin nothing by themselves."""
