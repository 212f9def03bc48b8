"""A session or run that has failed says so, once, where anybody may see it."""

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.state.thread import FAILURES, Outcome, Thread
from hubbub.hub.logs import log
from hubbub.hub.own_lane import OwnLane

__all__ = ["tell_code_failure", "tell_failure"]


def tell_failure(lane: OwnLane, thread: Thread, before: Outcome | None) -> None:
    """Log how ``thread`` has just failed; ``before`` is the outcome that it had until then."""
    last = thread.outcome
    assert last is not None
    if thread.phase == "ended" and before is not None and before.session == last.session:
        return  # The run ends as its session did.
    log.error(
        "run.failed", run_id=lane.run_id, agent=lane.agent, outcome=last.outcome,
        reason=last.reason,
    )  # fmt: skip


def tell_code_failure(lane: OwnLane, thread: CodeThread, **shown: BaseException) -> None:
    """Log how the run of a code agent has just failed, if it has."""
    ending = thread.ending
    if ending is not None and ending.outcome in FAILURES:
        log.error(
            "run.failed", run_id=lane.run_id, agent=lane.agent, outcome=ending.outcome,
            reason=ending.reason, **shown,
        )  # fmt: skip
