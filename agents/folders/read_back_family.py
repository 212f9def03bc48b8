"""A run's children, made again from what its folder says (agents/folders/read_back.py).

Rules
-----
* All children that the record has are registered; the order is theirs, but for those that are
  made again with what waits for them.
* What starts with a prompt counts as started; what was given up is given up again, as its result
  must not be told.
"""

from typing import Any

from hubbub.agents.folders.rewritten_lane import RewrittenLane
from hubbub.agents.state.family import OPENING, Child
from hubbub.hub import events as e

__all__ = ["register", "restore_family"]


def register(lane: RewrittenLane, child: Child, **more: Any) -> None:
    """Put a child on record."""
    fields = {
        "step": 0, "index": lane.record.spawned.get(child.run_id, 0), "waits": False, **more
    }  # fmt: skip
    lane.put(
        e.AgentChild(
            child_run_id=child.run_id, child_agent=child.agent, name=child.name,
            title=child.title, description=child.description, tool=child.tool,
            side=child.side, group=child.group, created_at=child.created_at,
            resumable=child.resumable, blocking=child.blocking, explicit=child.explicit,
            reports=child.reports, takeover=child.takeover,
            result="call" if child.result == "read" else child.result, call_id=child.call,
            **fields,
        )
    )  # fmt: skip


def restore_family(lane: RewrittenLane) -> None:
    """Put the rest of the record's family on record, as it was."""
    goal = lane.record.thread.family
    left = [x for x in goal.children if lane.thread.family.find(x.run_id) is None]
    _starts(lane, left)
    for child in left:
        if lane.thread.family.find(child.run_id) is None:
            register(lane, child)
    _forget(lane, goal.given_up)
    for child in goal.children:
        found = lane.thread.family.find(child.run_id)
        if child.ended and found is not None and not found.ended:
            lane.take(e.SessionResult(child_run_id=child.run_id, session=0, final=True))
    _deferred(lane)


def _starts(lane: RewrittenLane, left: list[Child]) -> None:
    """What starts with a prompt, which of it is waited for, and which no longer."""
    goal = lane.record.thread.family
    starting = {start.child for start in goal.starts}
    given_up = [child for child, key in goal.given_up if key == OPENING]
    former = [x for x in left if x.run_id in given_up and x.run_id not in starting]
    sides = list(goal.activated)
    if former:
        side = former[0].side
        if side in sides and (len(sides) > 1 or not goal.starts):
            sides.remove(side)
        lane.put(e.AgentImmediate(names=tuple(x.agent for x in former), side=side))
        for at, child in enumerate(former):
            register(lane, child, immediate=True, index=at, waits=True)
        lane.put(e.AgentInterrupted())
    last = sides.pop() if goal.starts and sides else "side_a"
    for side in sides:
        lane.put(e.AgentImmediate(side=side))
    if not goal.starts:
        return
    names = tuple(start.name for start in goal.starts)
    lane.put(e.AgentImmediate(names=names, message=goal.starts[0].message, side=last))
    by_id = {child.run_id: child for child in left}
    for at, start in enumerate(goal.starts):
        if start.child in given_up and start.child in by_id:
            register(lane, by_id[start.child], immediate=True, index=at, waits=True)
    if any(start.status == "waiting" for start in lane.thread.family.starts):
        lane.put(e.AgentInterrupted())
    for at, start in enumerate(goal.starts):
        late = by_id.get(start.child)
        if late is not None and lane.thread.family.find(late.run_id) is None:
            register(lane, late, immediate=True, index=at, waits=start.status == "waiting")
        elif start.status == "done" and lane.thread.family.starts[at].status == "todo":
            lane.put(e.AgentImmediate(skipped=(at,)))


def _forget(lane: RewrittenLane, given_up: tuple[tuple[str, str], ...]) -> None:
    """What was given up and has reported since."""
    for child, key in lane.thread.family.given_up:
        if (child, key) not in given_up:
            lane.take(e.SessionResult(child_run_id=child, session=0, answers=(key,)))


def _deferred(lane: RewrittenLane) -> None:
    for each in lane.record.thread.family.deferred:
        lane.put(
            e.SessionVariables(
                request_id=each.request_id, child_agent=each.agent, name=each.name,
                message=each.message, owner=each.owner, side=each.side,
                required=each.required, names=each.required, files=each.files,
                expires_at=each.expires_at,
            )
        )  # fmt: skip
    for request_id in lane.record.thread.family.booted:
        lane.take(e.SessionVariables(request_id=request_id))
