"""``StackFrameMeta``: a frame of a conversation's stack, as ``state.json`` shows it."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["HIDDEN", "FrameType", "StackFrameMeta"]

FrameType: TypeAlias = Literal["main", "skill", "agent"]

HIDDEN: Final = "***"
"""Replaces the value of a variable."""


class StackFrameMeta(Struct, frozen=True, kw_only=True):
    """A frame that is open.  Ids are run ids: ``frame_id`` and ``agent_session_id`` are the same.

    * ``model`` is what the frame was pushed with, or else what answered its last call; ``None``
      before anything is known.
    * ``iteration`` counts the model calls of the activation at work: since the push or the last
      message of the user.  ``max_iterations`` is its bound; a definition may set a lower one,
      which is not known of main.
    * ``parent_tool_use_id`` is the call of the frame below that waits; ``None`` for main.
    * ``effective_tools`` are names, empty for main, whose definition says them.
    * ``environment`` has names of variables; every value is ``***``.
    """

    frame_id: str
    agent_session_id: str
    agent_name: str
    agent_type: FrameType
    model: str | None = None
    iteration: int = 0
    max_iterations: int = 25
    parent_tool_use_id: str | None = None
    effective_tools: tuple[str, ...] = ()
    is_skill_agent: bool = False
    environment: Mapping[str, str] = {}
