"""``Rewritten``: what one run has in the place of what its agent's definition says."""

from msgspec import Struct

__all__ = ["Rewritten"]


class Rewritten(Struct, frozen=True, gc=False):
    """Another model and other instructions, while the run is this agent; empty: the agent's."""

    agent: str
    model: str = ""
    prompt: str = ""
    """The text of its instructions."""
