"""The names of the tools that come with every runtime; no other tool may have one.

But ``FINAL_ANSWER`` is taken only on a side whose prompt has ``output``.
"""

from typing import Final

__all__ = [
    "BUILT_IN", "COMPLETE", "CREATE", "FINAL_ANSWER", "INTERRUPT", "MESSAGE", "SEND", "USE_AGENT",
    "USE_SKILL",
]  # fmt: skip

COMPLETE: Final = "complete"
INTERRUPT: Final = "interrupt"
USE_AGENT: Final = "use_agent"
USE_SKILL: Final = "use_skill"
CREATE: Final = "subagent_create"
MESSAGE: Final = "subagent_message"
SEND: Final = "send_agent_message"
FINAL_ANSWER: Final = "final_answer"
"""By which a model answers that is to answer with a value and cannot be bound to its schema."""

BUILT_IN: Final = (COMPLETE, INTERRUPT, USE_AGENT, USE_SKILL, CREATE, MESSAGE, SEND)
