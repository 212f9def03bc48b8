"""Small parents and children, for the tests of delegation."""

from collections.abc import Callable, Iterable
from typing import Any

from hubbub import (
    AgentDefinition,
    FunctionModel,
    Model,
    ModelRequest,
    PromptDefinition,
    Resumable,
    RunState,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
    tool,
)
from hubbub.agents.model import AnsweredCall, AssistantMessage, UserMessage

__all__ = [
    "FINISH", "Recorder", "answers", "child", "config", "finish", "give_up", "heard", "offered",
    "only", "parent", "report", "write_file",
]  # fmt: skip


@tool(idempotent=True)
async def finish(result: str, files: list[str] | None = None) -> str:
    """Hand in the result."""
    return "handed in"


@tool(idempotent=True)
async def give_up(reason: str, files: list[str] | None = None) -> str:
    """Say that it cannot be done."""
    return "given up"


@tool
async def report(status: str) -> str:
    """Say what you are at."""
    return "noted"


@tool(idempotent=True)
async def write_file(path: str, text: str, state: RunState) -> str:
    """Write a file."""
    await state.files.write(path, text)
    return f"wrote {path}"


FINISH: dict[str, Any] = {
    "session_stop": SessionToolBinding("finish", "result", "files"),
    "session_fail": SessionToolBinding("give_up", "reason", "files"),
    "session_status": SessionToolBinding("report", "status"),
}


def child(
    model: Model,
    *tools: Any,
    name: str = "helper",
    other: Model | None = None,
    max_session_turns: int = 6,
    **prompt: Any,
) -> AgentDefinition:
    """A two-sided agent whose side A does the work, and ends with ``finish`` or ``give_up``."""
    side_a = PromptDefinition(
        name=f"{name}-a", prompt=f"You are {name}.", model=model,
        tools=(finish, give_up, report, write_file, *tools), **prompt,
    )  # fmt: skip
    side_b = PromptDefinition(
        name=f"{name}-b", prompt="You review.", model=other or FunctionModel(lambda _: "Go on."),
        tools=(finish, give_up, report),
    )  # fmt: skip
    return AgentDefinition(
        name=name, type="dual_ai", expose_as_tool=True, max_session_turns=max_session_turns,
        tool_description=f"Does what {name} does.", title=name.title(),
        side_a=SideConfig(prompt=side_a, **FINISH), side_b=SideConfig(prompt=side_b, **FINISH),
    )  # fmt: skip


def parent(model: Model, *tools: Any, name: str = "main", **prompt: Any) -> AgentDefinition:
    """A one-sided agent that delegates."""
    definition = PromptDefinition(
        name=f"{name}-prompt", prompt="You lead.", model=model, tools=tools, **prompt
    )
    return AgentDefinition(name=name, side_a=SideConfig(prompt=definition))


def config(
    name: str = "helper", *, blocking: bool = True, stays: bool = False, **more: Any
) -> SubagentToolConfig:
    """A child in one of the four modes; the rest of ``Resumable`` by name."""
    of_resumable = {
        key: more.pop(key)
        for key in ("receives_messages", "max_instances", "parent_communication")
        if key in more
    }
    resumable = Resumable(**{"receives_messages": "side_a", **of_resumable}) if stays else False
    return SubagentToolConfig(name=name, blocking=blocking, resumable=resumable, **more)


class Recorder:
    """A model that keeps every request it gets, and answers from a script.

    An item may be a function of the request.  After the last one it says ``done``.
    """

    def __init__(self, *script: Any, latency: float = 0.0) -> None:
        self.requests: list[ModelRequest] = []
        self._script = script
        self._inner = FunctionModel(self._answer, name="recorder", latency=latency)

    @property
    def name(self) -> str:
        return "recorder"

    def _answer(self, request: ModelRequest) -> Any:
        said = sum(isinstance(m, AssistantMessage) and not m.is_given for m in request.messages)
        item = self._script[said] if said < len(self._script) else "done"
        return item(request) if callable(item) else item

    async def call(self, request: ModelRequest, on_delta: Any = None) -> Any:
        self.requests.append(request)
        return await self._inner.call(request, on_delta)


def heard(request: ModelRequest) -> list[str]:
    """What was said to the model, in order."""
    return [m.content for m in request.messages if isinstance(m, UserMessage)]


def answers(request: ModelRequest) -> list[AnsweredCall]:
    """The calls of the model's own, with their results, in order."""
    return [c for m in request.messages if isinstance(m, AssistantMessage) for c in m.calls]


def offered(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


def only(items: Iterable[Any], test: Callable[[Any], bool] = bool) -> Any:
    """The one item for which ``test`` holds."""
    found = [item for item in items if test(item)]
    assert len(found) == 1, found
    return found[0]
