"""``hubbub.testing``: unit tests of tools, hooks and code agents, without a runtime.

``state_for`` gives a real ``RunState`` to call a tool or hook with, ``ctx_for`` a real
``RunContext`` for a code agent's function; ``call`` calls a tool as a model does, ``run_code`` the
function as a run does.  It needs no test framework, and works on asyncio and on Trio.  For whole
stories in virtual time, with faults and properties, see ``hubbub.runtime.simulation``.
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "Answers",
    "Bench",
    "BenchContext",
    "BenchState",
    "Children",
    "StartedChild",
    "call",
    "ctx_for",
    "run_code",
    "state_for",
]

_EXPORTS: Final = {
    "hubbub.runtime.testing.bench": ("Answers", "Bench", "Children", "StartedChild"),
    "hubbub.runtime.testing.contexts": ("BenchContext", "ctx_for", "run_code"),
    "hubbub.runtime.testing.states": ("BenchState", "call", "state_for"),
}

if TYPE_CHECKING:
    from hubbub.runtime.testing.bench import Answers, Bench, Children, StartedChild
    from hubbub.runtime.testing.contexts import BenchContext, ctx_for, run_code
    from hubbub.runtime.testing.states import BenchState, call, state_for
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
