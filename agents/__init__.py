"""Agents: what should happen, as pure data and pure functions.

Reading order: ``definitions`` (what users write), ``resolution`` (how it fits together), ``model``
(what models are shown), ``state`` (a run's state, a fold over its events), ``turn`` (``decide``,
what is due, and ``interpret``, what an outcome means).  Each rule is in the file of that name:

    the stop ladder      ``turn.stop``            the inbox         ``turn.intake``
    the two sides        ``state.transcript``     sessions' ends    ``turn.endings``
    calls and results    ``turn.calls``           files and keys    ``state.area``
    children             ``state.family``         variables         ``definitions.variables``
    calling a child      ``turn.child_calls``, ``turn.child_starts``
    a frame              ``turn.takeover`` (push), ``state.commands``, ``turn.commands`` (back)
    the registry         ``state.registry``       hooks             ``turn.hook_events``
    retries              ``retry``                prompts           ``state.prompts``
    after a crash        ``turn.recovery``, ``turn.crash_limit``
    code agents          ``code``                 frames as values  ``frames``
    frames by hand       ``standalone``
    a folder for people  ``folders``              one file of all   ``packaging``
"""

from typing import TYPE_CHECKING

from hubbub.hub.exports import exports_of

if not TYPE_CHECKING:  # ``import hubbub`` is enough for ``hubbub.agents.definitions``.
    __getattr__, __dir__ = exports_of(__name__, {})
