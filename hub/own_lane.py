"""``OwnLane``: the pen of a run's owner.

It numbers and stamps the run's own events and submits them, one commit at a time or several in
flight; the store refuses them (``conflict``) as soon as somebody else has written.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, structs

from hubbub.hub.events import Event, SessionMessage
from hubbub.hub.pipeline import Pipeline
from hubbub.hub.store.journal import Commit, Delivery, RunStatus

__all__ = ["OwnLane"]


class OwnLane(Struct, eq=False):
    """Writes one run's own lane.  ``seq`` is the number of the last event written or in flight."""

    pipeline: Pipeline
    run_id: str
    root_run_id: str
    parent_run_id: str | None
    agent: str
    seq: int = 0
    ancestors: tuple[tuple[str, str], ...] = ()
    """Run id and agent of the runs above, the parent first."""
    in_flight: int = 0

    def append(
        self,
        events: Iterable[Event],
        *,
        taken: Iterable[int] = (),
        deliveries: Sequence[Delivery] = (),
        status: RunStatus | None = None,
        agent: str = "",
        lent: Sequence[tuple[str, int]] = (),
        leave_to: str = "",
        again: SessionMessage | None = None,
        fold: Callable[[Commit], None] | None = None,
        before: Callable[[Commit], None] | None = None,
        after: Callable[[Commit], None] | None = None,
    ) -> Commit:
        """Stamp and submit.  ``fold`` is given the stamped commit ahead of that; ``before`` runs
        when it is committed and ahead of the dispatch, ``after`` when the dispatch is done or
        queued behind one at work."""
        expect = self.seq
        now = self.pipeline.ports.clock.now()
        seq = expect
        stamped = []
        for event in events:
            seq += 1
            stamped.append(
                structs.replace(
                    event,
                    at=now,
                    run_id=self.run_id,
                    root_run_id=self.root_run_id,
                    parent_run_id=self.parent_run_id,
                    agent=self.agent,
                    lane="own",
                    seq=seq,
                )
            )
        self.seq = seq
        commit = Commit(
            self.run_id, stamped, expect, taken, deliveries, status, agent, lent=lent,
            leave_to=leave_to, again=again, about=self.run_id, lane=self, before=before,
            after=after,
        )  # fmt: skip
        if agent:
            self.agent = agent
        self.in_flight += 1
        if fold is not None:
            fold(commit)
        self.pipeline.submit(commit)
        return commit
