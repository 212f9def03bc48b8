"""hubbub: an event-hub actor system for LLM agents.

Every agent run is a durable actor, addressed by its ``run_id`` on one ``Hub``.  See README.md.
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__version__ = "0.1.0"

__all__ = [
    "START",
    "Agent",
    "AgentContext",
    "AgentDefinition",
    "AgentExecutor",
    "AgentOptions",
    "AgentResponse",
    "AgentStack",
    "AgentStackManager",
    "Audio",
    "ChildActivated",
    "Compaction",
    "ContentPart",
    "Cron",
    "CustomEvent",
    "Document",
    "Event",
    "ExecutableAgent",
    "FunctionModel",
    "Heartbeat",
    "HeartbeatTask",
    "Hook",
    "Hub",
    "HubbubError",
    "Image",
    "Immediate",
    "Limits",
    "McpServer",
    "Message",
    "Model",
    "ModelChoice",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "Price",
    "PromptDefinition",
    "Receipt",
    "RestorePolicy",
    "Resumable",
    "Retention",
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
    "Spent",
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
    "external_tool",
    "load_skills",
    "mcp",
    "send_agent_message",
    "tool",
]

_EXPORTS: Final = {
    "hubbub.agents.compaction": ("Compaction",),
    "hubbub.agents.definitions.agent": (
        "AgentDefinition",
        "SessionToolBinding",
        "SideConfig",
        "agent",
    ),
    "hubbub.agents.definitions.external": ("external_tool",),
    "hubbub.agents.definitions.hooks": ("Hook",),
    "hubbub.agents.mcp_server": ("McpServer", "mcp"),
    "hubbub.agents.definitions.prompt": (
        "Immediate",
        "PromptDefinition",
        "Resumable",
        "SubagentToolConfig",
    ),
    "hubbub.agents.definitions.run_state": ("RunState",),
    "hubbub.agents.definitions.short_form": (
        "Agent",
        "AgentOptions",
    ),
    "hubbub.agents.definitions.skills": ("Skill",),
    "hubbub.agents.definitions.tools": (
        "Tool",
        "ToolError",
        "ToolResult",
        "tool",
    ),
    "hubbub.agents.definitions.variables": ("VariableDefinition",),
    "hubbub.agents.folders.stack_frame_meta": ("StackFrameMeta",),
    "hubbub.agents.frames.activation": ("ChildActivated",),
    "hubbub.agents.frames.frame": (
        "AgentContext",
        "SessionState",
        "StackFrame",
        "ToolUse",
        "TurnAction",
        "TurnResult",
    ),
    "hubbub.agents.model": (
        "Model",
        "ModelReply",
        "ModelRequest",
        "ToolCall",
        "Usage",
    ),
    "hubbub.agents.model_choice": ("ModelChoice",),
    "hubbub.agents.prices": ("Price",),
    "hubbub.agents.settings": ("ModelSettings",),
    "hubbub.agents.state.spending": ("Spent",),
    "hubbub.hub.events.limits": ("Limits",),
    "hubbub.agents.standalone.stack": (
        "AgentResponse",
        "AgentStack",
        "AgentStackManager",
    ),
    "hubbub.agents.state.registry": ("SubagentRegistryEntry",),
    "hubbub.hub.errors": ("HubbubError",),
    "hubbub.hub.events": (
        "ContentPart",
        "CustomEvent",
        "Event",
    ),
    "hubbub.hub.hub": ("Hub",),
    "hubbub.hub.message": ("Message",),
    "hubbub.hub.events.parts": (
        "Audio",
        "Document",
        "Image",
    ),
    "hubbub.hub.receipt": ("Receipt",),
    "hubbub.hub.store.cursor": ("START",),
    "hubbub.hub.values": ("Secret",),
    "hubbub.runtime.activities.agent_messages": ("send_agent_message",),
    "hubbub.runtime.kernel.handle": ("Run",),
    "hubbub.runtime.kernel.outcome": ("RunOutcome",),
    "hubbub.runtime.loading.skills": ("load_skills",),
    "hubbub.runtime.models.scripted": (
        "FunctionModel",
        "ScriptedModel",
    ),
    "hubbub.runtime.runs.context": ("RunContext",),
    "hubbub.runtime.runtime": ("Runtime",),
    "hubbub.runtime.schedules.schedules": (
        "Cron",
        "Heartbeat",
        "HeartbeatTask",
    ),
    "hubbub.runtime.stores.retention.retention": ("Retention",),
    "hubbub.runtime.standalone.executor": (
        "AgentExecutor",
        "execute_turn",
    ),
    "hubbub.runtime.supervision.inline_calls": ("ExecutableAgent",),
    "hubbub.runtime.supervision.restore": ("RestorePolicy",),
}

if TYPE_CHECKING:
    from hubbub.agents.compaction import Compaction
    from hubbub.agents.definitions.agent import (
        AgentDefinition,
        SessionToolBinding,
        SideConfig,
        agent,
    )
    from hubbub.agents.definitions.external import external_tool
    from hubbub.agents.definitions.hooks import Hook
    from hubbub.agents.definitions.prompt import (
        Immediate,
        PromptDefinition,
        Resumable,
        SubagentToolConfig,
    )
    from hubbub.agents.definitions.run_state import RunState
    from hubbub.agents.definitions.short_form import Agent, AgentOptions
    from hubbub.agents.definitions.skills import Skill
    from hubbub.agents.definitions.tools import Tool, ToolError, ToolResult, tool
    from hubbub.agents.definitions.variables import VariableDefinition
    from hubbub.agents.folders.stack_frame_meta import StackFrameMeta
    from hubbub.agents.frames.activation import ChildActivated
    from hubbub.agents.frames.frame import (
        AgentContext,
        SessionState,
        StackFrame,
        ToolUse,
        TurnAction,
        TurnResult,
    )
    from hubbub.agents.mcp_server import McpServer, mcp
    from hubbub.agents.model import Model, ModelReply, ModelRequest, ToolCall, Usage
    from hubbub.agents.model_choice import ModelChoice
    from hubbub.agents.prices import Price
    from hubbub.agents.settings import ModelSettings
    from hubbub.agents.standalone.stack import AgentResponse, AgentStack, AgentStackManager
    from hubbub.agents.state.registry import SubagentRegistryEntry
    from hubbub.agents.state.spending import Spent
    from hubbub.hub.errors import HubbubError
    from hubbub.hub.events import ContentPart, CustomEvent, Event
    from hubbub.hub.events.limits import Limits
    from hubbub.hub.events.parts import Audio, Document, Image
    from hubbub.hub.hub import Hub
    from hubbub.hub.message import Message
    from hubbub.hub.receipt import Receipt
    from hubbub.hub.store.cursor import START
    from hubbub.hub.values import Secret
    from hubbub.runtime.activities.agent_messages import send_agent_message
    from hubbub.runtime.kernel.handle import Run
    from hubbub.runtime.kernel.outcome import RunOutcome
    from hubbub.runtime.loading.skills import load_skills
    from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel
    from hubbub.runtime.runs.context import RunContext
    from hubbub.runtime.runtime import Runtime
    from hubbub.runtime.schedules.schedules import Cron, Heartbeat, HeartbeatTask
    from hubbub.runtime.standalone.executor import AgentExecutor, execute_turn
    from hubbub.runtime.stores.retention.retention import Retention
    from hubbub.runtime.supervision.inline_calls import ExecutableAgent
    from hubbub.runtime.supervision.restore import RestorePolicy
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
