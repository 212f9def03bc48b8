"""What must hold of every history."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "INVARIANTS",
    "Invariant",
    "budgets_held",
    "limits_held",
    "no_idle_run_with_mail",
    "no_leaked_task",
    "no_message_lost",
    "no_run_failed",
    "one_completion_per_invocation",
    "one_terminal_event",
    "order_kept",
    "problems_of",
    "replay_equals_live",
    "start_before_everything",
    "takeover_stack",
    "valid_history_at_every_model_call",
]

_EXPORTS: Final = {
    "hubbub.runtime.simulation.invariants.all": (
        "INVARIANTS",
        "Invariant",
        "budgets_held",
        "limits_held",
        "no_idle_run_with_mail",
        "no_leaked_task",
        "no_message_lost",
        "no_run_failed",
        "one_completion_per_invocation",
        "one_terminal_event",
        "order_kept",
        "problems_of",
        "replay_equals_live",
        "start_before_everything",
        "takeover_stack",
        "valid_history_at_every_model_call",
    ),
}

if TYPE_CHECKING:
    from hubbub.runtime.simulation.invariants.all import (
        INVARIANTS,
        Invariant,
        budgets_held,
        limits_held,
        no_idle_run_with_mail,
        no_leaked_task,
        no_message_lost,
        no_run_failed,
        one_completion_per_invocation,
        one_terminal_event,
        order_kept,
        problems_of,
        replay_equals_live,
        start_before_everything,
        takeover_stack,
        valid_history_at_every_model_call,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
