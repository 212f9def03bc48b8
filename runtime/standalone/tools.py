"""``UseAgentTool``, ``UseSkillTool``, ``CompleteTool``: IA's tools, to be executed by hand.

Frames that an ``AgentExecutor`` or a runtime drives have these tools by themselves, where their
prompts name agents or skills; these are for programs that execute tools of their own accord.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from hubbub.agents.built_in import COMPLETE, USE_AGENT, USE_SKILL
from hubbub.agents.definitions.tools import ToolResult
from hubbub.agents.frames.frame import AgentContext
from hubbub.hub.errors import CallerError
from hubbub.runtime.standalone.executor import AgentExecutor

__all__ = ["CompleteTool", "UseAgentTool", "UseSkillTool"]


class UseSkillTool:
    """Give the conversation to a skill."""

    name = USE_SKILL
    description = "Let a skill take the conversation over; its result is the result of this call."

    def __init__(self, executor: AgentExecutor) -> None:
        self._executor = executor

    async def execute(self, input: Mapping[str, Any], context: AgentContext) -> ToolResult:
        """Begin the frame, and run none of its turns.

        Raises ``ChildActivated`` with a frame whose session holds ``input["message"]`` and whose
        ``parent_tool_use_id`` is ``context.tool_use_id``.  Returns an error, and begins nothing,
        where the agent ``context.agent_name`` may not call it: an unknown name, missing variables,
        a model that cannot be resolved.  A skill that a tool carries out (``passthrough``) is
        carried out, and its result returned.
        """
        arguments = msgspec.json.encode(dict(input)).decode()
        text, is_error = await self._executor.call(self.name, arguments, context)
        return ToolResult(text, is_error)


class UseAgentTool(UseSkillTool):
    """Give the conversation to an agent."""

    name = USE_AGENT
    description = "Let an agent take the conversation over; its result is the result of this call."


class CompleteTool:
    """Give the conversation back.  Offered to frames, and to nothing else."""

    name = COMPLETE
    description = "Signal that your task is complete and return a result."

    async def execute(self, input: Mapping[str, Any], context: AgentContext) -> ToolResult:
        """Never called: the executor of the turn intercepts it (IA)."""
        raise CallerError("complete is carried out by the turn that calls it; there is no frame")
