"""Code agents in a playing: their functions run, their conversations with models do not.

What ``ctx.session`` is given, a model's name or a model, is not asked: it answers as it did.
"""

import functools
from collections.abc import Iterable
from typing import Any

from msgspec import structs

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.model_choice import ModelSpec
from hubbub.runtime.runs.context import RunContext, parts_of
from hubbub.runtime.runs.session import ModelSession
from hubbub.runtime.simulation.playback.replies import RecordedModel, Replies, recorded_tool

__all__ = ["recorded_code"]


def recorded_code(
    agent: AgentDefinition, replies: Replies, real_tools: Iterable[str] = ()
) -> AgentDefinition:
    """``agent`` with recorded models in its sessions; agents of models are returned unchanged."""
    execute = agent.execute
    if execute is None:
        return agent

    # The function's own signature says what its input is.
    @functools.wraps(execute)
    async def run(input: Any, context: RunContext) -> Any:
        return await execute(input, _RecordedContext(context, replies, frozenset(real_tools)))

    return structs.replace(agent, execute=run)


class _RecordedContext(RunContext):
    """A run's context with recorded models."""

    __slots__ = ("_real_tools", "_replies")

    def __init__(self, context: RunContext, replies: Replies, real_tools: frozenset[str]) -> None:
        super().__init__(*parts_of(context))
        self._replies = replies
        self._real_tools = real_tools

    def session(
        self, *, model: ModelSpec, tools: Iterable[Tool[..., Any]] = (), **options: Any
    ) -> ModelSession:
        answering = [
            each if each.name in self._real_tools else recorded_tool(each, self._replies)
            for each in tools
        ]
        count = len(model) if isinstance(model, list | tuple) else 1
        recorded = [RecordedModel(self._replies)] * count
        return super().session(model=recorded, tools=answering, **options)
