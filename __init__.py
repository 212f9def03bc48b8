"""hubbub: an event-hub actor system for LLM agents.

Every agent run is a durable actor, addressed by its ``run_id`` on one ``Hub``.  See README.md.
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__version__ = "0.1.0"

__all__ = [
    "START",
    "AgentContext",
    "AgentDefinition",
    "AgentExecutor",
    "AgentResponse",
    "AgentStack",
    "AgentStackManager",
    "ChildActivated",
    "Cron",
    "CustomEvent",
    "Event",
    "ExecutableAgent",
    "FunctionModel",
    "Heartbeat",
    "HeartbeatTask",
    "Hook",
    "Hub",
    "HubbubError",
    "Immediate",
    "Message",
    "Model",
    "ModelReply",
    "ModelRequest",
    "PromptDefinition",
    "Receipt",
    "RestorePolicy",
    "Resumable",
    "Run",
    "RunContext",
    "RunOutcome",
    "RunState",
    "Runtime",
    "ScriptedModel",
    "Secret",
    "SessionState",
    "SessionToolBinding",
    "SideConfig",
    "Skill",
    "StackFrame",
    "StackFrameMeta",
    "SubagentRegistryEntry",
    "SubagentToolConfig",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "TurnAction",
    "TurnResult",
    "Usage",
    "VariableDefinition",
    "agent",
    "execute_turn",
    "load_skills",
    "send_agent_message",
    "tool",
]

_EXPORTS: Final = {
    "hubbub.agents.definitions": (
        "AgentDefinition",
        "Immediate",
        "PromptDefinition",
        "Resumable",
        "SessionToolBinding",
        "SideConfig",
        "SubagentToolConfig",
        "agent",
    ),
    "hubbub.agents.frames": (
        "AgentContext",
        "AgentResponse",
        "AgentStack",
        "AgentStackManager",
        "ChildActivated",
        "SessionState",
        "StackFrame",
        "ToolUse",
        "TurnAction",
        "TurnResult",
    ),
    "hubbub.agents.hooks": ("Hook",),
    "hubbub.agents.model": ("Model", "ModelReply", "ModelRequest", "ToolCall", "Usage"),
    "hubbub.agents.registry": ("SubagentRegistryEntry",),
    "hubbub.agents.run_state": ("RunState",),
    "hubbub.agents.skills": ("Skill",),
    "hubbub.agents.stack_frame_meta": ("StackFrameMeta",),
    "hubbub.agents.tools": ("Tool", "ToolError", "ToolResult", "tool"),
    "hubbub.agents.variables": ("VariableDefinition",),
    "hubbub.hub.cursor": ("START",),
    "hubbub.hub.errors": ("HubbubError",),
    "hubbub.hub.events": ("CustomEvent", "Event"),
    "hubbub.hub.hub": ("Hub",),
    "hubbub.hub.message": ("Message",),
    "hubbub.hub.receipt": ("Receipt",),
    "hubbub.hub.values": ("Secret",),
    "hubbub.runtime.agent_messages": ("send_agent_message",),
    "hubbub.runtime.boot": ("RestorePolicy",),
    "hubbub.runtime.run_context": ("RunContext",),
    "hubbub.runtime.run_handle": ("Run", "RunOutcome"),
    "hubbub.runtime.runtime": ("ExecutableAgent", "Runtime"),
    "hubbub.runtime.schedules": ("Cron", "Heartbeat", "HeartbeatTask"),
    "hubbub.runtime.scripted_model": ("FunctionModel", "ScriptedModel"),
    "hubbub.runtime.skill_folder": ("load_skills",),
    "hubbub.runtime.turn_driver": ("AgentExecutor", "execute_turn"),
}

if TYPE_CHECKING:
    from hubbub.agents.definitions import (
        AgentDefinition,
        Immediate,
        PromptDefinition,
        Resumable,
        SessionToolBinding,
        SideConfig,
        SubagentToolConfig,
        agent,
    )
    from hubbub.agents.frames import (
        AgentContext,
        AgentResponse,
        AgentStack,
        AgentStackManager,
        ChildActivated,
        SessionState,
        StackFrame,
        ToolUse,
        TurnAction,
        TurnResult,
    )
    from hubbub.agents.hooks import Hook
    from hubbub.agents.model import Model, ModelReply, ModelRequest, ToolCall, Usage
    from hubbub.agents.registry import SubagentRegistryEntry
    from hubbub.agents.run_state import RunState
    from hubbub.agents.skills import Skill
    from hubbub.agents.stack_frame_meta import StackFrameMeta
    from hubbub.agents.tools import Tool, ToolError, ToolResult, tool
    from hubbub.agents.variables import VariableDefinition
    from hubbub.hub.cursor import START
    from hubbub.hub.errors import HubbubError
    from hubbub.hub.events import CustomEvent, Event
    from hubbub.hub.hub import Hub
    from hubbub.hub.message import Message
    from hubbub.hub.receipt import Receipt
    from hubbub.hub.values import Secret
    from hubbub.runtime.agent_messages import send_agent_message
    from hubbub.runtime.boot import RestorePolicy
    from hubbub.runtime.run_context import RunContext
    from hubbub.runtime.run_handle import Run, RunOutcome
    from hubbub.runtime.runtime import ExecutableAgent, Runtime
    from hubbub.runtime.schedules import Cron, Heartbeat, HeartbeatTask
    from hubbub.runtime.scripted_model import FunctionModel, ScriptedModel
    from hubbub.runtime.skill_folder import load_skills
    from hubbub.runtime.turn_driver import AgentExecutor, execute_turn
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
