"""Looking up what a call of a child needs, and V-02's door: variables for a child that waits.

Nothing is started here: what is found becomes a signal, and what that means is decided in
``hubbub.agents.delegating``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from hubbub.agents.arguments import BadArguments
from hubbub.agents.children import Deferred
from hubbub.agents.decide import RunTool, StartChild
from hubbub.agents.definitions import Immediate
from hubbub.agents.delegation import ChildRequest, read_call, refusal_of_creation
from hubbub.agents.resolution import ActiveSide, ChildTool
from hubbub.agents.signals import Delegated
from hubbub.agents.thread import Thread
from hubbub.hub.errors import VariablesRefused
from hubbub.hub.events import SessionVariables, Variable
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.values import Secret
from hubbub.runtime.variables import Environment

if TYPE_CHECKING:
    from hubbub.runtime.runtime import Runtime

__all__ = ["PendingVariables", "look_up_call", "look_up_start", "pending", "provide"]


def look_up_call(
    activity: RunTool, thread: Thread, side: ActiveSide, runtime: "Runtime", lane: OwnLane
) -> Delegated:
    """What a model's call of a child comes to."""
    try:
        request = read_call(side, activity.name, activity.arguments)
    except BadArguments as error:
        request, problem = ChildRequest(agent=activity.name), error.message
        if activity.name not in side.children:
            request = ChildRequest(agent=next(iter(side.children)))
    else:
        problem = ""
    return _look_up(activity.step, activity.index, request, problem, thread, side, runtime, lane)


def look_up_start(
    activity: StartChild, thread: Thread, side: ActiveSide, runtime: "Runtime", lane: OwnLane
) -> Delegated:
    """What a subagent that starts with its prompt comes to (C-04, C-05)."""
    child = side.children.get(activity.name)
    env = Environment.of(runtime, lane, side)
    hints = _hints(child)
    message = env.find(hints.description_env) if hints.description_env else None
    name = env.find(hints.name_env) if hints.name_env else None
    request = ChildRequest(
        agent=activity.name,
        message=activity.message if message is None else message,
        name=name or "",
    )
    return _look_up(0, activity.index, request, "", thread, side, runtime, lane)


def _hints(child: ChildTool | None) -> Immediate:
    hints = child.config.immediate if child is not None else None
    return hints if isinstance(hints, Immediate) else Immediate()


def _look_up(
    step: int,
    index: int,
    request: ChildRequest,
    problem: str,
    thread: Thread,
    side: ActiveSide,
    runtime: "Runtime",
    lane: OwnLane,
) -> Delegated:
    now = runtime.ports.clock.now()
    found = Delegated(
        step=step, index=index, request=request, problem=problem, now=now,
        child_run_id=runtime.ports.ids.run_id(now), room=runtime.trees.room(lane.root_run_id),
    )  # fmt: skip
    env = Environment.of(runtime, lane, side)
    name = request.agent
    if request.reference:
        known = thread.family.find(request.reference)
        name = known.agent if known is not None else ""
    child = side.children.get(name)
    if child is None:
        return found
    optional = child.config.optional
    if problem or (optional is not None and not env.is_enabled(optional)):
        return structs.replace(found, is_enabled=optional is None or env.is_enabled(optional))
    if request.reference:
        return found
    # Only one that starts with its prompt is handed variables; every child may need some.
    given = _transfer(env, child) if not step else ()
    required, missing = _wanted(runtime, env, child, {each.name for each in given})
    request_id = f"{runtime.ports.ids.number():012x}" if missing else ""
    return structs.replace(
        found, required=required, missing=missing, variables=given, request_id=request_id
    )


def _transfer(env: Environment, child: ChildTool) -> tuple[Variable, ...]:
    """The variables that go into the child's scope (C-05)."""
    values = ((name, env.find(name)) for name in _hints(child).scoped_env)
    return tuple(
        Variable(name=name, value=Secret(value), scoped=True)
        for name, value in values
        if value is not None
    )


def _wanted(
    runtime: "Runtime", env: Environment, child: ChildTool, given: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The scoped variables that a child and what is below it must have, and those it lacks."""
    definitions = runtime.definitions
    required = definitions.scoped_of(child.agent.name, env.is_enabled)
    if not required:
        return (), ()
    side = definitions.side(child.agent.name)
    below = env.below("", child.agent.name, side.prompt.env)
    missing = tuple(
        name for name in required if name not in given and below.find(name, is_scoped=True) is None
    )
    return required, missing


# ── variables for a child that waits (V-02) ──────────────────────────────────────────────────

MAX_VALUE_CHARS: Final = 1 << 20


class PendingVariables(Struct, frozen=True, kw_only=True):
    """A creation that waits for variables: names only."""

    request_id: str
    agent: str
    required: tuple[str, ...]
    missing: tuple[str, ...]
    expires_at: int
    """µs since the epoch."""


async def pending(runtime: "Runtime", parent_run_id: str, request_id: str) -> PendingVariables:
    """See ``Runtime.pending_variables``."""
    deferred, env = await _find(runtime, parent_run_id, request_id)
    missing = tuple(name for name in deferred.required if env.find(name, is_scoped=True) is None)
    return PendingVariables(
        request_id=request_id, agent=deferred.agent, required=deferred.required,
        missing=missing, expires_at=deferred.expires_at,
    )  # fmt: skip


async def provide(
    runtime: "Runtime", parent_run_id: str, request_id: str, values: Mapping[str, str]
) -> tuple[str, str]:
    """See ``Runtime.provide_variables``."""
    deferred, env = await _find(runtime, parent_run_id, request_id)
    _check_values(request_id, deferred, env, values)
    await _check_room(runtime, parent_run_id, request_id, deferred)
    now = runtime.ports.clock.now()
    child_run_id = runtime.ports.ids.run_id(now)
    addressing = runtime.hub.addressing
    for name, value in values.items():
        addressing.put_value(child_run_id, name, value, is_scoped=True)
    event = SessionVariables(
        request_id=request_id, names=tuple(values), child_run_id=child_run_id,
        child_agent=deferred.agent, provided_at=now,
    )  # fmt: skip
    receipt = await runtime.hub._deliver(event, to=parent_run_id)
    if receipt.accepted:
        return child_run_id, deferred.agent
    addressing.drop_values(child_run_id)
    if receipt.status == "duplicate":
        raise VariablesRefused(request_id, "booted", "its subagent has been started already")
    raise VariablesRefused(request_id, "ended", f"its parent takes nothing more ({receipt.reason})")


async def _find(
    runtime: "Runtime", parent_run_id: str, request_id: str
) -> tuple[Deferred, Environment]:
    found = await runtime.runs.look_at(parent_run_id)
    if found is None:
        raise VariablesRefused(request_id, "unknown", f"there is no run {parent_run_id!r}")
    lane, thread_of = found
    thread = thread_of()
    family = thread.family
    deferred = next((d for d in family.deferred if d.request_id == request_id), None)
    if deferred is None:
        if request_id in family.booted:
            raise VariablesRefused(request_id, "booted", "its subagent has been started already")
        raise VariablesRefused(request_id, "unknown", f"run {parent_run_id} has not asked for it")
    if thread.phase == "ended":
        raise VariablesRefused(request_id, "ended", f"run {parent_run_id} is over")
    if runtime.ports.clock.now() >= deferred.expires_at:
        remedy = "have the subagent called again"
        raise VariablesRefused(request_id, "expired", f"it was to be answered sooner; {remedy}")
    side = runtime.definitions.find_side(thread.agent, deferred.side)
    target = runtime.definitions.find_side(deferred.agent, "side_a")
    env = Environment.of(runtime, lane, side)
    return deferred, env.below("", deferred.agent, target.prompt.env if target else {})


def _check_values(
    request_id: str, deferred: Deferred, env: Environment, values: Mapping[str, str]
) -> None:
    if not isinstance(values, Mapping):
        raise VariablesRefused(request_id, "value", "a mapping of names to texts is wanted")
    unwanted = [str(name) for name in values if name not in deferred.required]
    if unwanted:
        wanted = ", ".join(deferred.required)
        problem = f"{', '.join(unwanted)} is not wanted; wanted: {wanted}"
        raise VariablesRefused(request_id, "unwanted", problem, unwanted)
    wrong = [
        name
        for name, value in values.items()
        if not isinstance(value, str) or len(value) > MAX_VALUE_CHARS
    ]
    if wrong:
        problem = f"{', '.join(wrong)}: a text of at most {MAX_VALUE_CHARS:,} characters is wanted"
        raise VariablesRefused(request_id, "value", problem, wrong)
    left = [
        name
        for name in deferred.required
        if name not in values and env.find(name, is_scoped=True) is None
    ]
    if left:
        problem = f"{', '.join(left)} must be given, too"
        raise VariablesRefused(request_id, "incomplete", problem, left)


async def _check_room(
    runtime: "Runtime", parent_run_id: str, request_id: str, deferred: Deferred
) -> None:
    found = await runtime.runs.look_at(parent_run_id)
    assert found is not None
    lane, thread_of = found
    thread = thread_of()
    side = runtime.definitions.find_side(thread.agent, deferred.side)
    child = side.children.get(deferred.agent) if side is not None else None
    request = ChildRequest(agent=deferred.agent)
    room = runtime.trees.room(lane.root_run_id)
    if refused := refusal_of_creation(thread, request, child, True, room):
        raise VariablesRefused(request_id, "cap", refused)
