"""``RunOutcome``: how a session or a run ended."""

from typing import Any

from msgspec import Struct

from hubbub.agents.state.thread import Outcome
from hubbub.hub.errors import RunFailed
from hubbub.hub.events import Ending, OutcomeName, Usage
from hubbub.hub.values import Json, decode_value

__all__ = ["RunOutcome", "outcome_of"]


class RunOutcome(Struct, frozen=True, kw_only=True):
    """How a session, or a run, ended.

    ``output`` is the last text of a model run, what the function returned for a code run; a
    fresh copy each time.  ``reason`` says why, in words, where ``outcome`` is not ``completed``.
    """

    run_id: str
    session: int
    success: bool
    outcome: OutcomeName
    reason: str
    output_json: Json
    usage: Usage

    @property
    def output(self) -> Any:
        """The output, decoded again at each access; ``None`` if there is none."""
        return decode_value(self.output_json)

    def value(self) -> Any:
        """The output of what succeeded; raises ``RunFailed`` with the reason where it did not.

        A limit, an interruption and a deadline count as failures here, whatever text they left.
        """
        if not self.success:
            raise RunFailed(self.run_id, self.outcome, self.reason)
        return self.output

    def __repr__(self) -> str:
        return (
            f"RunOutcome(run_id={self.run_id!r}, outcome={self.outcome!r}, "
            f"output={self.output!r}, reason={self.reason!r}, usage={self.usage!r})"
        )


def outcome_of(run_id: str, last: Ending | Outcome, session: int = 0) -> RunOutcome:
    """How a run ended, or its session, as its last ending says it."""
    return RunOutcome(
        run_id=run_id, session=session, success=last.success, outcome=last.outcome,
        reason=last.reason, output_json=last.output_json, usage=last.usage,
    )  # fmt: skip
