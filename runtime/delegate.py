"""Looking up what a call of a child needs, and V-02's door: variables for a child that waits.

Nothing is started here: what is found becomes a signal, and what that means is decided in
``hubbub.agents.delegating``.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from hubbub.agents.arguments import BadArguments
from hubbub.agents.children import Deferred
from hubbub.agents.decide import RunTool, StartChild
from hubbub.agents.definitions import Immediate
from hubbub.agents.delegation import ChildRequest, read_call, refusal_of_creation
from hubbub.agents.sides import ActiveSide, ChildTool
from hubbub.agents.signals import Delegated
from hubbub.agents.thread import Thread
from hubbub.hub.errors import Closed, VariablesRefused
from hubbub.hub.events import AgentChild, AgentComplete, SessionOpen, SessionVariables, Variable
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.receipt import Receipt
from hubbub.hub.stream import EventStream
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
    runtime: "Runtime", env: Environment, child: ChildTool, given: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The scoped variables that a child and what is below it must have, and those it lacks.

    Each is looked for where it will be read: defaults of an agent or a prompt are its own, and a
    branch is there if it will be enabled for the agent that has it.
    """
    definitions = runtime.definitions
    if not definitions.scoped_of(child.agent.name, lambda _: True, required=False):
        return (), ()
    required: dict[str, None] = {}
    missing: dict[str, None] = {}
    agents = [child.agent.name]
    for agent in agents:  # Grows meanwhile.
        for side in definitions.sides_of(agent):
            below = env.below("", agent, side.prompt.env)
            for name in _needs(side):
                required[name] = None
                if name not in given and below.find(name, is_scoped=True) is None:
                    missing[name] = None
            for branch in side.children.values():
                gate = branch.config.optional
                if branch.agent.name not in agents and (
                    gate is None or (env if gate in given else below).is_enabled(gate)
                ):
                    agents.append(branch.agent.name)
    return tuple(required), tuple(missing)


def _needs(side: ActiveSide) -> Iterable[str]:
    """The scoped variables that a side's prompt or one of its tools requires."""
    declared = [*side.prompt.variables, *(v for t in side.tools.values() for v in t.variables)]
    scoped = {each.name for each in declared if each.scoped}
    return [each.name for each in declared if each.required and each.name in scoped]


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
    waiting = await _find(runtime, parent_run_id, request_id)
    deferred, missing = waiting.deferred, waiting.missing
    return PendingVariables(
        request_id=request_id, agent=deferred.agent, required=deferred.required,
        missing=missing, expires_at=deferred.expires_at,
    )  # fmt: skip


async def provide(
    runtime: "Runtime", parent_run_id: str, request_id: str, values: Mapping[str, str]
) -> tuple[str, str]:
    """See ``Runtime.provide_variables``."""
    waiting = await _find(runtime, parent_run_id, request_id)
    _check_values(request_id, waiting, values)
    _check_room(runtime, request_id, waiting)
    now = runtime.ports.clock.now()
    child_run_id = runtime.ports.ids.run_id(now)
    addressing, agent = runtime.hub.addressing, waiting.deferred.agent
    for name, value in {**waiting.given, **values}.items():
        addressing.put_value(child_run_id, name, value, is_scoped=True)
    event = SessionVariables(
        request_id=request_id, names=tuple(values), child_run_id=child_run_id,
        child_agent=agent, provided_at=now,
    )  # fmt: skip
    root = waiting.lane.root_run_id
    try:
        async with runtime.hub.subscribe(_FATES, root_run_id=root, lossless=True) as events:
            receipt = await runtime.hub._deliver(event, to=parent_run_id)
            _check_accepted(request_id, receipt)
            await _wait_started(events, request_id, parent_run_id, child_run_id)
    except VariablesRefused:
        addressing.drop_values(child_run_id)
        raise
    return child_run_id, agent


def _check_accepted(request_id: str, receipt: Receipt) -> None:
    if receipt.status == "duplicate":
        raise VariablesRefused(request_id, "booted", "its subagent has been started already")
    if not receipt.accepted:
        problem = f"its parent takes nothing more ({receipt.reason})"
        raise VariablesRefused(request_id, "ended", problem)


_FATES: Final = (SessionOpen.type, AgentChild.type, AgentComplete.type)


async def _wait_started(
    events: EventStream, request_id: str, parent_run_id: str, child_run_id: str
) -> None:
    """Wait until the parent has taken the variables at its next boundary and started the child."""
    async for event in events:
        match event:
            case SessionOpen() if event.run_id == child_run_id:
                return
            case AgentChild() if event.child_run_id == child_run_id and event.error:
                raise VariablesRefused(request_id, "cap", event.error)
            case AgentComplete() if event.run_id == parent_run_id:
                raise VariablesRefused(request_id, "ended", f"run {parent_run_id} is over")
    raise Closed("the runtime", "the subagent is started when a runtime is opened on its store")


class _Waiting(Struct, frozen=True, gc=False):
    """A creation that waits for variables, as it stands now."""

    deferred: Deferred
    lane: OwnLane
    thread: Thread
    child: ChildTool | None
    missing: tuple[str, ...]
    given: Mapping[str, str]
    """What is copied into its scope from its parent's (C-05)."""

    def __repr__(self) -> str:
        return f"<waiting {self.deferred.request_id}>"


async def _find(runtime: "Runtime", parent_run_id: str, request_id: str) -> _Waiting:
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
    side = runtime.definitions.find_side(deferred.owner, deferred.side)
    child = side.children.get(deferred.agent) if side is not None else None
    given: dict[str, str] = {}
    missing = deferred.required
    if child is not None:
        env = Environment.of(runtime, lane, side)
        given = {v.name: v.value.reveal() or "" for v in _transfer(env, child)}
        lacks = _wanted(runtime, env, child, given)[1]
        missing = tuple(name for name in deferred.required if name in lacks)
    return _Waiting(deferred, lane, thread, child, missing, given)


def _check_values(request_id: str, waiting: _Waiting, values: Mapping[str, str]) -> None:
    required = waiting.deferred.required
    if not isinstance(values, Mapping):
        raise VariablesRefused(request_id, "value", "a mapping of names to texts is wanted")
    unwanted = [str(name) for name in values if name not in required]
    if unwanted:
        problem = f"{', '.join(unwanted)} is not wanted; wanted: {', '.join(required)}"
        raise VariablesRefused(request_id, "unwanted", problem, unwanted)
    wrong = [
        name
        for name, value in values.items()
        if not isinstance(value, str) or len(value) > MAX_VALUE_CHARS
    ]
    if wrong:
        problem = f"{', '.join(wrong)}: a text of at most {MAX_VALUE_CHARS:,} characters is wanted"
        raise VariablesRefused(request_id, "value", problem, wrong)
    left = [name for name in waiting.missing if name not in values]
    if left:
        problem = f"{', '.join(left)} must be given, too"
        raise VariablesRefused(request_id, "incomplete", problem, left)


def _check_room(runtime: "Runtime", request_id: str, waiting: _Waiting) -> None:
    request = ChildRequest(agent=waiting.deferred.agent)
    room = runtime.trees.room(waiting.lane.root_run_id)
    if refused := refusal_of_creation(waiting.thread, request, waiting.child, True, room):
        raise VariablesRefused(request_id, "cap", refused)
