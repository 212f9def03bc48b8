"""The runtime: makes happen what agents decide.

Reading order: ``runtime`` (composition), then the rooms:

    ``kernel``       what everything that runs shares: services, live runs, outcomes, handles
    ``activities``   models, tools, hooks, files, children, questions: what runs do
    ``runs``         runs in memory: ``model_run`` (the shell's loop) and ``code_run``
    ``supervision``  runs come and go: admission, loading, restoring, quarantine
    ``schedules``    cron and heartbeat
    ``models``       names, scripted models, and providers over HTTP
    ``stores``       SQLite, and agents' folders behind it
    ``finding``      conversations, agents and schedules, found in a store without a runtime
    ``inspection``   what a store holds: shown, exported, imported, checked, copied
    ``timelines``    runs seen from any point of their lives
    ``cli``          the command line over a store
    ``loading``      skills and agents from files
    ``standalone``   interactive agents driven by hand, without a runtime
    ``demo``         the demos
    ``simulation``   whole systems in virtual time
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "Awaited",
    "Conversation",
    "Conversations",
    "ExecutableAgent",
    "Replayed",
    "Run",
    "RunContext",
    "RunOutcome",
    "Runtime",
]

_EXPORTS: Final = {
    "hubbub.runtime.finding.conversations": ("Conversation", "Conversations", "Awaited"),
    "hubbub.runtime.inspection.replay": ("Replayed",),
    "hubbub.runtime.kernel.handle": ("Run",),
    "hubbub.runtime.kernel.outcome": ("RunOutcome",),
    "hubbub.runtime.runs.context": ("RunContext",),
    "hubbub.runtime.runtime": ("Runtime",),
    "hubbub.runtime.supervision.inline_calls": ("ExecutableAgent",),
}

if TYPE_CHECKING:
    from hubbub.runtime.finding.conversations import Awaited, Conversation, Conversations
    from hubbub.runtime.inspection.replay import Replayed
    from hubbub.runtime.kernel.handle import Run
    from hubbub.runtime.kernel.outcome import RunOutcome
    from hubbub.runtime.runs.context import RunContext
    from hubbub.runtime.runtime import Runtime
    from hubbub.runtime.supervision.inline_calls import ExecutableAgent
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
