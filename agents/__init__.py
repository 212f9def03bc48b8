"""Agents: what should happen, as pure data and pure functions.

Reading order: ``definitions`` and ``tools`` (what users write), ``sides`` → ``side_reader`` →
``resolution`` (how they fit together), ``model`` (what models are shown), ``thread`` (a run's
state), ``fold`` → ``decide`` → ``interpret`` (the turn engine).  Each rule stands in the file named
after it:

    the stop ladder      ``stop``            the inbox            ``taking``
    the two sides        ``perspective``     sessions' ends       ``endings``
    calls and results    ``calls``           files and keys       ``area``
    children             ``children``        variables            ``variables``
    calling a child      ``delegation``, ``delegating``, ``immediate``
    a frame              ``takeover`` (push), ``words``, ``heeding`` (back), ``skills``,
                         ``skill_agents``; by hand: ``frames``, ``frame_turns``
    the registry         ``registry``        hooks                ``hooks``, ``notices``
    retries              ``retry``           code agents          ``lifecycle``
    a folder for people  ``history``, ``history_lines``, ``agent_record``; back: ``read_back``,
                         ``read_back_family``, ``read_back_calls``
    a talk told as one   ``context``, ``context_lines``; ``stack_view``, ``stack_frame_meta``
    what is gone         ``gone``            after a crash        ``restoring``
    durable steps        ``recorded``
    one file for others  ``packing``, ``package_format``
    a definition's flaws ``definition_problems``
    schemas              ``schema``
"""

from typing import TYPE_CHECKING

from hubbub.hub.exports import exports_of

if not TYPE_CHECKING:  # ``import hubbub`` is enough for ``hubbub.agents.definitions``.
    __getattr__, __dir__ = exports_of(__name__, {})
