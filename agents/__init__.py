"""Agents: what should happen, as pure data and pure functions.

Reading order: ``definitions`` and ``tools`` (what users write), ``model`` (what models are
shown), ``thread`` (a run's state), ``fold`` → ``decide`` → ``interpret`` (the turn engine),
``calls``, ``retry``, ``request``, ``lifecycle`` (code agents).
"""
