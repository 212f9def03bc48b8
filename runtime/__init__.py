"""The runtime: makes happen what agents decide.

Reading order: ``runtime`` (composition), ``activation`` (the shell's loop for model runs),
``perform`` (activities), ``delegate`` and ``pending_variables`` (children), ``run_state`` (what
tools see), ``code_run``, ``run_handle``; then the models.
"""

from hubbub.runtime.run_context import RunContext
from hubbub.runtime.run_handle import Run, RunOutcome
from hubbub.runtime.runtime import ExecutableAgent, Runtime

__all__ = ["ExecutableAgent", "Run", "RunContext", "RunOutcome", "Runtime"]
