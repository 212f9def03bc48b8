"""Agents of the own world with hooks at every point and variables of every kind.

    hooked      people talk to it; it has hooks, gives itself values, and has children
    vault       stays, has hooks, and wants a scoped ``KEY``, which somebody must provide
    reader      one blocking invocation, without hooks; it reads what it inherits

At each point stand, in this order: a hook that changes its value or writes down the call, one that
raises, one that returns what does not fit, and one that takes its time.  A value says whose it is
(``value_of``), so that whoever reads it can tell.
"""

from collections.abc import Mapping
from itertools import cycle
from typing import Any, Final, get_args

import anyio
from msgspec import Struct, field, structs
from simulation.raisers import RAISED
from support.families import FINISH, config, finish, give_up, report

from hubbub import (
    AgentDefinition,
    Hook,
    PromptDefinition,
    RunState,
    SideConfig,
    VariableDefinition,
    tool,
)
from hubbub.agents.definitions.hooks import NOTIFICATION_POINTS, HookPoint
from hubbub.agents.definitions.tools import ToolResult
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.runtime.models.scripted import FunctionModel

__all__ = [
    "FILTERED", "HOOKED", "MARK", "REFUSED", "SAID", "STORED", "VARIABLES", "Seen", "Told",
    "Watched", "value_of",
]  # fmt: skip

HOOKED: Final = ("hooked", "vault")
VARIABLES: Final = ("PIN", "KEY")
MARK: Final = "mum-7d41"
"""What every value begins with: it must appear nowhere."""

FILTERED: Final = "filtered"
SAID: Final = " ~m"
STORED: Final = {False: " ~ok ~s", True: " ~bad ~s"}
"""What hooks add to a result: of a call that succeeded, of one that failed."""
REFUSED: Final = "refused "


def value_of(name: str, owner: str, label: str) -> str:
    """A value of a variable that says who has it, and since when."""
    return f"{MARK}|{name}|{owner}|{label}"


class Told(Struct, frozen=True, kw_only=True):
    """A hook was called for what is on record: at which point, of which run, for what."""

    point: str
    run_id: str
    what: str


class Seen(Struct, frozen=True, kw_only=True):
    """What a run's tool found its variables to be."""

    run_id: str
    label: str
    values: Mapping[str, str | None]


class Watched(Struct):
    """The agents, anew for each world, and what their hooks and tools have seen in all lives."""

    told: list[Told] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def agents(self, model: FunctionModel, *tools: Any) -> list[AgentDefinition]:
        """All of them; ``tools`` are had by each."""
        hooks = [each.id for each in self.hooks()]
        tools = (*tools, self._read(), assign, refuse)
        key = VariableDefinition(name="KEY", scoped=True, required=True)
        reader = config("reader")
        talks = PromptDefinition(
            name="p-hooked", prompt="hooked", model=model,
            tools=(*tools, reader, config("vault", stays=True)),
        )  # fmt: skip
        return [
            AgentDefinition(
                name="hooked", hooks=hooks, side_a=SideConfig(prompt=talks, max_steps=12)
            ),
            _worker("vault", model, *tools, reader, hooks=hooks, variables=(key,)),
            _worker("reader", model, *tools),
        ]

    def _read(self) -> Any:
        @tool(idempotent=True)
        async def read(text: str, state: RunState) -> str:
            """Look at the variables."""
            values = {name: state.env.get(name) for name in VARIABLES}
            self.seen.append(Seen(run_id=state.run_id, label=text, values=values))
            return f"read {text}"

        return read

    def hooks(self) -> tuple[Hook, ...]:
        """The hooks of the agents, by point."""
        kinds = cycle(RAISED.values())

        def explode(state: RunState, value: object) -> None:
            raise next(kinds)()

        def misfit(state: RunState, value: object) -> int:
            return 7

        async def linger(state: RunState, value: object) -> None:
            await anyio.sleep(0.1)

        made: list[Hook] = []
        for point in get_args(HookPoint):
            first = self._recorder(point) if point in NOTIFICATION_POINTS else _CHANGES[point]
            # What the hook of a notice returns goes to the next one as it is.
            others = (
                (explode, linger) if point in NOTIFICATION_POINTS else (explode, misfit, linger)
            )
            made += [Hook(f"{point}-{x.__name__}", point, x) for x in (first, *others)]
        return tuple(made)

    def _recorder(self, point: HookPoint) -> Any:
        def write_down(state: RunState, value: Any) -> None:
            told = Told(point=point, run_id=state.run_id, what=_shown(value))
            self.told.append(told)

        return write_down


def _worker(
    name: str, model: FunctionModel, *tools: Any, hooks: Any = (), variables: Any = ()
) -> AgentDefinition:
    work = PromptDefinition(
        name=f"{name}-a", prompt=name, model=model, variables=variables,
        tools=(finish, give_up, report, *tools),
    )  # fmt: skip
    review = PromptDefinition(
        name=f"{name}-b", prompt="You review.", tools=(finish, give_up, report),
        model=FunctionModel(lambda _: "Go on.", name="nods", latency=0.2),
    )  # fmt: skip
    return AgentDefinition(
        name=name, type="dual_ai", expose_as_tool=True, tool_description=name, hooks=hooks,
        max_session_turns=4, side_a=SideConfig(prompt=work, **FINISH),
        side_b=SideConfig(prompt=review, **FINISH),
    )  # fmt: skip


@tool(idempotent=True)
async def assign(name: str, text: str, state: RunState) -> str:
    """Give the run a value."""
    await anyio.sleep(0.1)
    state.set_env(name, value_of(name, state.run_id, text))
    await anyio.sleep(0.1)
    return f"assigned {name} {text}"


@tool
async def refuse(text: str) -> ToolResult:
    """Say no."""
    return ToolResult(f"{REFUSED}{text}", is_error=True)


# ── hooks that change ────────────────────────────────────────────────────────────────────────


def _shown(value: Any) -> str:
    match value:
        case UserMessage():
            return value.content
        case AssistantMessage():
            return value.text
        case None | str():
            return value or ""
    return str(getattr(value, "reference", ""))


def filter_more(state: RunState, messages: tuple[Any, ...]) -> Any:
    return (*messages, UserMessage(content=FILTERED))


def mark_message(state: RunState, message: Any) -> Any:
    if isinstance(message, UserMessage):
        return structs.replace(message, content=f"~{message.content}")
    return structs.replace(message, text=f"{message.text}{SAID}") if message.text else None


async def mark_result(state: RunState, result: ToolResult) -> ToolResult:
    await anyio.sleep(0.05)
    return structs.replace(result, content=f"{result.content} ~s")


def mark_success(state: RunState, result: ToolResult) -> ToolResult:
    return structs.replace(result, content=f"{result.content} ~ok")


async def mark_failure(state: RunState, result: ToolResult) -> ToolResult:
    return structs.replace(result, content=f"{result.content} ~bad")


_CHANGES: Final[Mapping[str, Any]] = {
    "filter_messages": filter_more,
    "before_create_message": mark_message,
    "before_store_tool_result": mark_result,
    "after_tool_call_success": mark_success,
    "after_tool_call_failure": mark_failure,
}
