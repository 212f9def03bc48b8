"""Looking up what a call of a child needs.

Nothing is started here: what is found becomes a signal, and what that means is decided in
``hubbub.agents.turn.child_starts``.
"""

from collections.abc import Collection, Iterable

from msgspec import structs

from hubbub.agents.built_in import USE_AGENT, USE_SKILL
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.prompt import Immediate
from hubbub.agents.definitions.skills import SKILL_PREFIX
from hubbub.agents.model import ModelReply
from hubbub.agents.resolution.sides import FRAME, ActiveSide, ChildTool
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.child_calls import ChildRequest, read_call
from hubbub.agents.turn.decide import RunTool, StartChild
from hubbub.agents.turn.signals import Delegated
from hubbub.agents.turn.takeover import read_takeover, request_of
from hubbub.hub.errors import HubbubError
from hubbub.hub.events import Variable
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.texts import label_problem
from hubbub.hub.values import Secret
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.kernel.services import Services

__all__ = [
    "look_up_call", "look_up_calls", "look_up_frame", "look_up_start", "transfer", "wanted",
]  # fmt: skip


def look_up_call(
    activity: RunTool, thread: Thread, side: ActiveSide, services: Services, lane: OwnLane
) -> Delegated:
    """What a model's call of a child comes to."""
    if activity.name in (USE_AGENT, USE_SKILL):
        return _look_up_takeover(activity, thread, side, services, lane)
    try:
        request = read_call(side, activity.name, activity.arguments)
    except BadArguments as error:
        request, problem = ChildRequest(agent=activity.name), error.message
        if activity.name not in side.children:
            request = ChildRequest(agent=next(iter(side.children)))
    else:
        problem = ""
    return _look_up(activity.step, activity.index, request, problem, thread, side, services, lane)


def look_up_calls(
    reply: ModelReply, thread: Thread, side: ActiveSide, services: Services, lane: OwnLane
) -> tuple[Delegated, ...]:
    """What the calls of children that run first come to; later ones are looked up in their turn."""
    step = thread.step + 1
    first = reply.calls if side.prompt.parallel_tool_calls else reply.calls[:1]
    return tuple(
        [
            look_up_call(
                RunTool(step, index, call.name, call.arguments), thread, side, services, lane
            )
            for index, call in enumerate(first)
            if side.delegates(call.name, call.arguments)
        ]
    )


def _look_up_takeover(
    activity: RunTool, thread: Thread, side: ActiveSide, services: Services, lane: OwnLane
) -> Delegated:
    problem = ""
    try:
        request = read_takeover(side, thread.agent, activity.name, activity.arguments)
    except BadArguments as error:
        request, problem = request_of("", ""), error.message
    return look_up_frame(activity, request, side, services, lane, problem)


def look_up_frame(
    activity: RunTool,
    request: ChildRequest,
    side: ActiveSide,
    services: Services,
    lane: OwnLane,
    problem: str = "",
) -> Delegated:
    """What a call that gives the conversation away comes to: its variables, its model."""
    now = services.hub.ports.clock.now()
    missing: tuple[str, ...] = ()
    target = services.definitions.find_side(request.agent, FRAME)
    if target is not None and not problem:
        env = Environment.of(services, lane, side)
        below = env.below("", request.agent, target.prompt.env)
        required = (each for each in target.variables if each.required)
        missing = tuple(
            dict.fromkeys(
                each.name for each in required
                if below.find(each.name, is_scoped=each.scoped) is None
            )
        )  # fmt: skip
        try:
            above = ((lane.run_id, lane.agent), *lane.ancestors)
            choices = services.catalog.choices_of(target, above, services.definitions)
            services.catalog.prepare([tuple(each.model for each in choices)])
        except HubbubError as error:
            problem = f"{request.agent.removeprefix(SKILL_PREFIX)} was not started: {error}"
    return Delegated(
        step=activity.step, index=activity.index, request=request, problem=problem, now=now,
        child_run_id=services.hub.ports.ids.run_id(now), missing=missing,
        budget=services.budgets.of(lane.root_run_id),
    )  # fmt: skip


def look_up_start(
    activity: StartChild, thread: Thread, side: ActiveSide, services: Services, lane: OwnLane
) -> Delegated:
    """What a subagent that starts with its prompt comes to."""
    child = side.children.get(activity.name)
    env = Environment.of(services, lane, side)
    hints = _hints(child)
    message = env.find(hints.description_env) if hints.description_env else None
    name = env.find(hints.name_env) if hints.name_env else None
    if label_problem(name):  # A value may hold what a name may not.
        name = None
    request = ChildRequest(
        agent=activity.name,
        message=activity.message if message is None else message,
        name=name or "",
    )
    return _look_up(0, activity.index, request, "", thread, side, services, lane)


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
    services: Services,
    lane: OwnLane,
) -> Delegated:
    now = services.hub.ports.clock.now()
    found = Delegated(
        step=step, index=index, request=request, problem=problem, now=now,
        child_run_id=services.hub.ports.ids.run_id(now),
        budget=services.budgets.of(lane.root_run_id),
    )  # fmt: skip
    env = Environment.of(services, lane, side)
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
    given = transfer(env, child) if not step else ()
    required, missing = wanted(services, env, child, {each.name for each in given})
    request_id = f"{services.hub.ports.ids.number():012x}" if missing else ""
    return structs.replace(
        found, required=required, missing=missing, variables=given, request_id=request_id
    )


def transfer(env: Environment, child: ChildTool) -> tuple[Variable, ...]:
    """The variables that go into the child's scope."""
    values = ((name, env.find(name)) for name in _hints(child).scoped_env)
    return tuple(
        Variable(name=name, value=Secret(value), scoped=True)
        for name, value in values
        if value is not None
    )


def wanted(
    services: Services, env: Environment, child: ChildTool, given: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The scoped variables that a child and what is below it must have, and those it lacks.

    Each is looked for where it will be read: defaults of an agent or a prompt are its own, and a
    branch is there if it will be enabled for the agent that has it.
    """
    definitions = services.definitions
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
