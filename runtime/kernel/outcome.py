"""``RunOutcome``: how a session or a run ended."""

from typing import Any, Final, Generic

from msgspec import Struct

from hubbub.agents.definitions.output import Output_co, OutputForm
from hubbub.agents.state.spending import NOTHING_SPENT, Spent
from hubbub.agents.state.thread import Outcome
from hubbub.hub.errors import RunFailed
from hubbub.hub.events import Ending, OutcomeName, Usage
from hubbub.hub.near_misses import ToldAttributes
from hubbub.hub.values import Json, decode_value

__all__ = ["RunOutcome", "outcome_of"]


_ELSEWHERE: Final = dict.fromkeys(("text", "answer", "content", "response"), "outcome.output") | {
    "result": "outcome.output, or outcome.value(), which raises where there is none",
    "error": "outcome.reason",
    "status": "outcome.outcome",
    "cost": "outcome.tree.cost",
    "ok": "outcome.success",
}


class RunOutcome(Struct, ToldAttributes, Generic[Output_co], frozen=True, kw_only=True):
    """How a session, or a run, ended.

    ``output`` is the last text of a model run, or the value that its ``output=`` asks for; what the
    function returned for a code run; a fresh copy each time.  ``output_json`` is what is on record
    of it: ``bytes(outcome.output_json)`` is the JSON.  ``reason`` says why, in words, where
    ``outcome`` is not ``completed``; it is the name of the limit where one was reached.
    ``usage`` is the session's, or the run's own; ``tree`` is what the run and all below it had used
    when this was asked, with the ``cost``.
    """

    _elsewhere = _ELSEWHERE

    run_id: str
    session: int
    success: bool
    outcome: OutcomeName
    reason: str
    output_json: Json
    usage: Usage
    output_form: OutputForm | None = None
    """What makes the output of what is on record, where the agent has ``output=``."""
    tree: Spent = NOTHING_SPENT

    @property
    def output(self) -> Output_co:
        """The output, decoded again at each access; ``None`` if there is none.

        Of an agent with ``output=`` it is such a value if the session completed, and else ``None``,
        which type checkers do not see: ``value()`` raises instead.  Raises ``BadValue`` for a value
        on record that does not fit, since the agent had another ``output=`` then.
        """
        found: Any
        if self.output_form is None:
            found = decode_value(self.output_json)
        else:
            found = self.output_form.value(self.output_json) if self.success else None
        return found  # type: ignore[no-any-return]

    def value(self) -> Output_co:
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


def outcome_of(
    run_id: str,
    last: Ending | Outcome,
    session: int = 0,
    form: OutputForm | None = None,
    tree: Spent = NOTHING_SPENT,
) -> RunOutcome:
    """How a run ended, or its session, as its last ending says it; ``form`` is its agent's."""
    return RunOutcome(
        run_id=run_id, session=session, success=last.success, outcome=last.outcome,
        reason=last.reason, output_json=last.output_json, usage=last.usage,
        output_form=form, tree=tree,
    )  # fmt: skip
