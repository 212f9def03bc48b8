"""``pending`` and ``provide``: variables for a child whose creation waits for them.

The creation is kept in the parent's journal, names only; the values go where only the runtime
looks, under the id of the child that they start.  What is refused has stored nothing.
"""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from hubbub.agents.definitions.variables import VariableDefinition, told_name
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import ChildTool
from hubbub.agents.state.family import Deferred
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.child_calls import ChildRequest, refusal_of_creation
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.errors import Closed, VariablesRefused
from hubbub.hub.events import AgentChild, AgentComplete, Event, SessionOpen, SessionVariables
from hubbub.hub.message import MAX_VARIABLES
from hubbub.hub.near_misses import shown
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.texts import readable, text_problem
from hubbub.runtime.activities.child_lookup import transfer, wanted
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.activities.other_runs import LookAt
from hubbub.runtime.kernel.services import Services

__all__ = ["PendingVariables", "pending", "provide"]

MAX_VALUE_CHARS: Final = 1 << 20


class PendingVariables(Struct, frozen=True, kw_only=True):
    """A creation that waits for variables: names only."""

    request_id: str
    agent: str
    required: tuple[str, ...]
    missing: tuple[str, ...]
    expires_at: int
    """µs since the epoch."""
    variables: tuple[VariableDefinition, ...] = ()
    """What each of the ``required`` ones is, as the agent that reads it declares it."""


async def pending(
    services: Services, look_at: LookAt, parent_run_id: str, request_id: str
) -> PendingVariables:
    """See ``Runtime.pending_variables``."""
    waiting = await _find(services, look_at, parent_run_id, request_id)
    deferred, missing = waiting.deferred, waiting.missing
    return PendingVariables(
        request_id=request_id, agent=deferred.agent, required=deferred.required,
        missing=missing, expires_at=deferred.expires_at,
        variables=_declared(services.definitions, deferred.agent, deferred.required),
    )  # fmt: skip


def _declared(
    definitions: Definitions, agent: str, names: Collection[str]
) -> tuple[VariableDefinition, ...]:
    """The declarations of variables that an agent or one below it reads; the nearest counts."""
    found: dict[str, VariableDefinition] = {}
    agents = [agent]
    for name in agents:  # Grows meanwhile.
        for side in definitions.sides_of(name):
            for each in side.variables:
                if each.name in names and each.scoped:
                    found.setdefault(each.name, each)
            below = (child.agent.name for child in side.children.values())
            agents += [each for each in dict.fromkeys(below) if each not in agents]
    return tuple([found.get(name) or VariableDefinition(name=name) for name in names])


async def provide(
    services: Services,
    look_at: LookAt,
    parent_run_id: str,
    request_id: str,
    values: Mapping[str, str],
) -> tuple[str, str]:
    """See ``Runtime.provide_variables``."""
    waiting = await _find(services, look_at, parent_run_id, request_id)
    _check_values(request_id, waiting, values)
    _check_room(services, request_id, waiting)
    now = services.hub.ports.clock.now()
    child_run_id = services.hub.ports.ids.run_id(now)
    addressing, agent = services.hub.addressing, waiting.deferred.agent
    for name, value in {**waiting.given, **values}.items():
        addressing.put_value(child_run_id, name, value, is_scoped=True)
    event = SessionVariables(
        request_id=request_id, names=tuple(values), child_run_id=child_run_id,
        child_agent=agent, provided_at=now,
    )  # fmt: skip
    root = waiting.lane.root_run_id
    try:
        async with services.hub.subscribe(_FATES, root_run_id=root, lossless=True) as events:
            receipt = await services.hub.pipeline.deliver(event, to=parent_run_id)
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
    events: EventStream[Event], request_id: str, parent_run_id: str, child_run_id: str
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
    """A creation that waits for variables, as it is now."""

    deferred: Deferred
    lane: OwnLane
    thread: Thread
    child: ChildTool | None
    missing: tuple[str, ...]
    given: Mapping[str, str]
    """What is copied into its scope from its parent's."""

    def __repr__(self) -> str:
        return f"<waiting {self.deferred.request_id}>"


async def _find(
    services: Services, look_at: LookAt, parent_run_id: str, request_id: str
) -> _Waiting:
    found = await look_at(parent_run_id)
    if found is None:
        raise VariablesRefused(request_id, "unknown", f"there is no run {shown(parent_run_id)}")
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
    if services.hub.ports.clock.now() >= deferred.expires_at:
        remedy = "have the subagent called again"
        raise VariablesRefused(request_id, "expired", f"it was to be answered sooner; {remedy}")
    side = services.definitions.find_side(deferred.owner, deferred.side)
    child = side.children.get(deferred.agent) if side is not None else None
    given: dict[str, str] = {}
    missing = deferred.required
    env = Environment.of(services, lane, side)
    if _only_carries(services):
        # Of what the run's values hand down only those are known here that the child must have.
        missing = deferred.missing
        held = {x: env.find(x, is_scoped=True) for x in deferred.required if x not in missing}
        given = {name: value for name, value in held.items() if value is not None}
    elif child is not None:
        given = {v.name: v.value.reveal() or "" for v in transfer(env, child)}
        lacks = wanted(services, env, child, given)[1]
        missing = tuple(name for name in deferred.required if name in lacks)
    return _Waiting(deferred, lane, thread, child, missing, given)


def _check_values(request_id: str, waiting: _Waiting, values: Mapping[str, str]) -> None:
    required = waiting.deferred.required
    if not isinstance(values, Mapping):
        raise VariablesRefused(request_id, "value", "expected a mapping of names to texts")
    if len(values) > MAX_VARIABLES:
        problem = f"{len(values):,} values; a run is given {MAX_VARIABLES:,} at most"
        raise VariablesRefused(request_id, "value", problem)
    unwanted = [readable(told_name(str(name))) for name in values if name not in required]
    if unwanted:
        problem = f"{', '.join(unwanted)} was not requested; requested: {', '.join(required)}"
        raise VariablesRefused(request_id, "unwanted", problem, unwanted)
    wrong = [
        name
        for name, value in values.items()
        if text_problem(value) or len(value) > MAX_VALUE_CHARS
    ]
    if wrong:
        problem = f"{', '.join(wrong)}: expected a text of at most {MAX_VALUE_CHARS:,} characters"
        raise VariablesRefused(request_id, "value", problem, wrong)
    left = [name for name in waiting.missing if name not in values]
    if left:
        problem = f"{', '.join(left)} must be given, too"
        raise VariablesRefused(request_id, "incomplete", problem, left)


def _only_carries(services: Services) -> bool:
    """Whether no agent is known here, but to the processes that run them."""
    return not services.definitions.names and sharing_of(services.hub.journal) is not None


def _check_room(services: Services, request_id: str, waiting: _Waiting) -> None:
    if _only_carries(services):
        return  # Who drives the parent decides.
    request = ChildRequest(agent=waiting.deferred.agent)
    budget = services.budgets.of(waiting.lane.root_run_id)
    if refused := refusal_of_creation(waiting.thread, request, waiting.child, True, budget):
        raise VariablesRefused(request_id, "cap", refused)
