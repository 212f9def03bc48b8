"""The runtime: makes happen what agents decide.

Reading order: ``runtime`` (composition), ``activation`` (the shell's loop for model runs),
``perform`` (activities), ``delegate`` and ``pending_variables`` (children), ``run_state`` (what
tools see), ``code_run``, ``run_handle``; then the models.  What stands where:

    runs come and go          ``activations``, ``arrivals``, ``relatives``, ``boot``, ``withheld``
    what waits for a run      ``mailbox`` (model runs), ``inbox`` (code), ``pauses`` (questions)
    the store                 ``stores``, ``sqlite_store`` (its face), ``sqlite_writer``,
                              ``sqlite_rows``, ``sqlite_addresses``, ``sqlite_reader``,
                              ``sqlite_schema``; ``data_folder``, ``blob_folder``,
                              ``stored_secrets``
    agents' folders           ``agent_folders``, ``folder_findings``, ``folder_history``,
                              ``folder_files``, ``context_files``, ``context_reader``, ``disk``;
                              ``projection`` (behind the store), ``foreign_folders``, ``adoption``
    schedules                 ``schedules``, ``ticks``, ``scheduler``, ``schedule_status``
    the store's command line  ``store_commands``; ``store_file``, ``store_view``, ``replay``,
                              ``run_export``, ``context_export``, ``run_import``, ``store_copy``,
                              ``store_check``, ``recorded_test``
    simulation                a package of its own: ``simulation``
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = ["ExecutableAgent", "Run", "RunContext", "RunOutcome", "Runtime"]

_EXPORTS: Final = {
    "hubbub.runtime.kernel.handle": ("Run",),
    "hubbub.runtime.kernel.outcome": ("RunOutcome",),
    "hubbub.runtime.runs.context": ("RunContext",),
    "hubbub.runtime.runtime": (
        "ExecutableAgent",
        "Runtime",
    ),
}

if TYPE_CHECKING:
    from hubbub.runtime.kernel.handle import Run
    from hubbub.runtime.kernel.outcome import RunOutcome
    from hubbub.runtime.runs.context import RunContext
    from hubbub.runtime.runtime import ExecutableAgent, Runtime
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
