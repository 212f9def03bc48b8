"""``fork``: a user of a world has a new run go on from a record of another one."""

from collections.abc import Callable, Mapping
from typing import TypedDict, cast

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.hub.errors import BadValue, CallerError, Closed
from hubbub.hub.message import Sayable
from hubbub.hub.values import check_seq
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.story.history import ForkMade, History, Sent
from hubbub.runtime.simulation.world.processes import Processes

__all__ = ["ForkChanges", "fork"]


class ForkChanges(TypedDict, total=False):
    """How a fork differs from what it is a fork of; see ``Runtime.fork``."""

    message: Sayable | None
    agent: str | AgentDefinition | None
    model: str
    prompt: str
    env: Mapping[str, str] | None
    session_key: str


async def fork(
    processes: Processes, history: History, write: Callable[[Sent], object],
    run_id: str, seq: int | None, changes: ForkChanges, user: str,
) -> str:  # fmt: skip
    """Make a fork with the process at work, and write down what becomes of it; its id, or nothing
    where it was refused.  Raises ``BadValue`` for what is no number of a record."""
    check_seq(seq)
    made = ForkMade(
        run_id=processes.new_run_id(),
        of_run_id=run_id,
        seq=seq,
        changes=cast("dict[str, object]", changes),
    )
    history.forks.append(made)
    what = run_id if seq is None else f"{run_id} after {seq}"
    sent = Sent(verb="fork", run_id=made.run_id, text=what, user=user)

    async def make(runtime: Runtime) -> str:
        made.tip = runtime.hub.journal.tip
        write(sent)
        try:
            await runtime.fork(run_id, seq, new_run_id=made.run_id, **changes)
        except Closed:
            raise
        except (CallerError, BadValue) as error:
            made.status, made.reason = "rejected", str(error)
            return ""
        made.status = "accepted"
        return made.run_id

    found = await processes.do(make, made.run_id)
    sent.status, sent.reason = made.status, made.reason
    return found
