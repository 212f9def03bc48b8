"""What users write: agents, prompts, tools, hooks, skills, variables, and their checks."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "HOOK_TIMEOUT",
    "MAX_ARGUMENTS_CHARS",
    "MAX_ERROR_CHARS",
    "MAX_RESULT_CHARS",
    "NOTIFICATION_POINTS",
    "NO_RESULT",
    "RESULT_POINTS",
    "SKILL_PREFIX",
    "Agent",
    "AgentDefinition",
    "AgentOptions",
    "AgentTool",
    "BadArguments",
    "Execute",
    "Files",
    "Hook",
    "HookPoint",
    "Immediate",
    "Keys",
    "PromptDefinition",
    "Resumable",
    "RunState",
    "SessionToolBinding",
    "SideConfig",
    "Skill",
    "SubagentToolConfig",
    "Tool",
    "ToolError",
    "ToolResult",
    "VariableDefinition",
    "alone",
    "by_point",
    "env_problems",
    "error_text",
    "external_tool",
    "fill_prompt",
    "is_true",
    "mismatch",
    "passthrough_problems",
    "placeholders",
    "render_failure",
    "render_result",
    "resolve",
    "tool",
    "variable_problems",
]

_EXPORTS: Final = {
    "hubbub.agents.definitions.agent": (
        "AgentDefinition",
        "AgentTool",
        "Execute",
        "SessionToolBinding",
        "SideConfig",
    ),
    "hubbub.agents.definitions.prompt": (
        "Immediate",
        "PromptDefinition",
        "Resumable",
        "SubagentToolConfig",
    ),
    "hubbub.agents.definitions.tools": (
        "BadArguments",
        "MAX_ARGUMENTS_CHARS",
        "MAX_ERROR_CHARS",
        "MAX_RESULT_CHARS",
        "NO_RESULT",
        "Tool",
        "ToolError",
        "ToolResult",
        "alone",
        "error_text",
        "render_failure",
        "render_result",
        "tool",
    ),
    "hubbub.agents.definitions.external": ("external_tool",),
    "hubbub.agents.definitions.hooks": (
        "HOOK_TIMEOUT",
        "Hook",
        "HookPoint",
        "NOTIFICATION_POINTS",
        "RESULT_POINTS",
        "by_point",
        "mismatch",
    ),
    "hubbub.agents.definitions.variables": (
        "VariableDefinition",
        "env_problems",
        "fill_prompt",
        "is_true",
        "placeholders",
        "resolve",
        "variable_problems",
    ),
    "hubbub.agents.definitions.skills": (
        "SKILL_PREFIX",
        "Skill",
        "passthrough_problems",
    ),
    "hubbub.agents.definitions.short_form": (
        "Agent",
        "AgentOptions",
    ),
    "hubbub.agents.definitions.run_state": (
        "Files",
        "Keys",
        "RunState",
    ),
}

if TYPE_CHECKING:
    from hubbub.agents.definitions.agent import (
        AgentDefinition,
        AgentTool,
        Execute,
        SessionToolBinding,
        SideConfig,
    )
    from hubbub.agents.definitions.external import external_tool
    from hubbub.agents.definitions.hooks import (
        HOOK_TIMEOUT,
        NOTIFICATION_POINTS,
        RESULT_POINTS,
        Hook,
        HookPoint,
        by_point,
        mismatch,
    )
    from hubbub.agents.definitions.prompt import (
        Immediate,
        PromptDefinition,
        Resumable,
        SubagentToolConfig,
    )
    from hubbub.agents.definitions.run_state import (
        Files,
        Keys,
        RunState,
    )
    from hubbub.agents.definitions.short_form import Agent, AgentOptions
    from hubbub.agents.definitions.skills import (
        SKILL_PREFIX,
        Skill,
        passthrough_problems,
    )
    from hubbub.agents.definitions.tools import (
        MAX_ARGUMENTS_CHARS,
        MAX_ERROR_CHARS,
        MAX_RESULT_CHARS,
        NO_RESULT,
        BadArguments,
        Tool,
        ToolError,
        ToolResult,
        alone,
        error_text,
        render_failure,
        render_result,
        tool,
    )
    from hubbub.agents.definitions.variables import (
        VariableDefinition,
        env_problems,
        fill_prompt,
        is_true,
        placeholders,
        resolve,
        variable_problems,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
