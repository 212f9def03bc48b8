"""Unit tests of tools, hooks and code agents: a real run state, or context, without a runtime.

Reading order: ``bench`` (the run that is made for a test, and what it collects), ``states`` (for
tools and hooks), ``contexts`` (for code agents).  ``hubbub.testing`` offers all of it.
"""
