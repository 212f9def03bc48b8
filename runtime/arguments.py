"""What a ``Runtime`` is given, as far as no other part checks it: refused before it is used."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from hubbub.agents.definitions.variables import env_problems
from hubbub.agents.model import is_model
from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.hub import Hub
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.ports import Ports
from hubbub.hub.store.sharing import Sharing
from hubbub.hub.texts import check_label
from hubbub.hub.values import check_counts, check_grace
from hubbub.runtime.supervision.restore import RestorePolicy

__all__ = ["MAX_CAPACITY", "Role", "check_arguments", "check_role"]

Role: TypeAlias = Literal["worker", "channel"]
"""What a process does on a store that several share: drive runs, or only carry channels."""


MAX_CAPACITY: Final = 1_000_000_000
"""How many trees a process can be said to take, at most."""


def check_arguments(
    store: object,
    hub: object,
    ports: object,
    env: object,
    models: object,
    environ: object,
    restore: object,
    grace: object,
) -> None:
    """Raise ``BadValue`` or ``DefinitionError`` for the first that is not what it must be."""
    _check_parts(store, hub, ports)
    _check_values(env)
    _check_models(models)
    _check_environ(environ)
    if not isinstance(restore, RestorePolicy):
        raise BadValue("restore", f"expected a RestorePolicy, not {shown(restore)}")
    check_grace("grace", grace)


def _check_values(env: object) -> None:
    """Raise ``DefinitionError`` for what are no values of variables."""
    if env is not None and (problems := list(env_problems("env", env))):
        raise DefinitionError("runtime", problems)


def _check_models(models: object) -> None:
    """Raise ``BadValue`` or ``DefinitionError`` for what are no models by name."""
    if models is None:
        return
    if not isinstance(models, Mapping):
        raise BadValue("models", f"expected a mapping of names, not {kind_of(models)}")
    for name in models:
        check_label("models", name)
    wrong = [(name, kind_of(each)) for name, each in models.items() if not is_model(each)]
    if wrong:
        problems = [f"models.{name}: give a Model object, not {kind}" for name, kind in wrong]
        raise DefinitionError("runtime", problems)


def _check_environ(environ: object) -> None:
    """Raise ``BadValue`` for what is no environment."""
    if environ is not None and not isinstance(environ, Mapping):
        raise BadValue("environ", f"expected a mapping, not {kind_of(environ)}")


def _check_parts(store: object, hub: object, ports: object) -> None:
    """Raise ``BadValue`` for what is no store, no hub or no ports."""
    if not isinstance(store, str) and (isinstance(store, type) or not hasattr(store, "submit")):
        what = kind_of(store)
        raise BadValue(
            "store", f"expected 'memory', 'sqlite:FOLDER', 'postgresql://…' or a store, not {what}"
        )
    if hub is not None and not isinstance(hub, Hub):
        raise BadValue("hub", f"expected a Hub, not {kind_of(hub)}")
    if ports is not None and not isinstance(ports, Ports):
        raise BadValue("ports", f"expected Ports, not {kind_of(ports)}")


def check_role(
    role: object, capacity: object, replace_agents: object, sharing: Sharing | None
) -> None:
    """Raise ``BadValue`` for a role that there is not, or that a process cannot have on its store,
    and for what is no capacity of it, or nothing that it could replace."""
    if role not in ("worker", "channel"):
        raise BadValue("role", f'expected "worker" or "channel", not {shown(role)}')
    if capacity is not None:
        check_counts(1, capacity=capacity)
        if isinstance(capacity, int) and capacity > MAX_CAPACITY:
            words = f"expected at most {MAX_CAPACITY:,}; leave it out for any number"
            raise BadValue("capacity", words)
        if role == "channel":
            raise BadValue("capacity", 'a process with role="channel" drives no runs; leave it out')
    if not isinstance(replace_agents, bool):
        raise BadValue("replace_agents", f"expected True or False, not {shown(replace_agents)}")
    if replace_agents and role == "channel":
        what = 'a process with role="channel" drives no agents; leave it out'
        raise BadValue("replace_agents", what)
    if sharing is None:
        if role == "channel":
            raise BadValue(
                "role", "nobody would drive the runs of a store that one process has to itself; "
                'use "worker", or a store that several share: store="postgresql://…"',
            )  # fmt: skip
        if capacity is not None:
            raise BadValue(
                "capacity", "nobody else drives the runs of a store that one process has to "
                "itself; leave it out, or bound the runs in memory by max_live",
            )  # fmt: skip
    elif sharing.is_worker != (role == "worker"):
        given = "with" if sharing.is_worker else "without"
        raise BadValue(
            "role", f"the store was made {given} is_worker=True, and the role is {role!r}; make "
            "both the same",
        )  # fmt: skip
