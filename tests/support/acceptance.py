"""The agents that clients of others meet in ``tests/acceptance``."""

from typing import Final

from support.agents import echo_model, model_agent

__all__ = ["AGENTS"]

AGENTS: Final = (model_agent(echo_model(latency=0), name="assistant"),)
"""``assistant`` answers with what it was told."""
