"""Values of wrong types in definitions, schedules and a runtime's arguments.

Whatever is given, a ``HubbubError`` says so when it is made or when a runtime is built of it; what
is accepted runs.  Fields and parameters are found by introspection: a new one is attacked by
itself, and a new definition must have a row in ``MAKERS``.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

import anyio
import pytest

import hubbub
from attacks.test_types import VALUES
from hubbub import (
    Agent,
    AgentDefinition,
    Cron,
    FunctionModel,
    Heartbeat,
    HeartbeatTask,
    Hook,
    Immediate,
    McpServer,
    Model,
    ModelChoice,
    ModelSettings,
    PromptDefinition,
    Resumable,
    Runtime,
    ScriptedModel,
    Secret,
    SessionToolBinding,
    SideConfig,
    Skill,
    SubagentToolConfig,
    VariableDefinition,
    agent,
    external_tool,
    mcp,
    tool,
)
from hubbub.agents.definitions.short_form import AgentOptions
from hubbub.hub.errors import DefinitionError, HubbubError
from hubbub.hub.near_misses import shown

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01")]

Made = Callable[[Any], Runtime]


class Unshowable:
    """Of a user's own class, which has no ``repr``."""

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


def nested(depth: int) -> list[Any]:
    """Too deep for ``repr``, and for JSON."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


ALL_VALUES = (*VALUES, Unshowable(), [Unshowable()], nested(5_000), ScriptedModel, [ScriptedModel])


async def act(word: str) -> str:
    """Act."""
    return word


async def work(input: Any, ctx: Any) -> str:
    return "done"


def keep(state: Any, given: Any) -> None:
    return None


def model() -> ScriptedModel:
    return ScriptedModel(["x"], repeat=True)


def prompt(**given: Any) -> PromptDefinition:
    return PromptDefinition(**{"name": "p", "prompt": "x", "model": model(), **given})


def bot(name: str = "a", **given: Any) -> AgentDefinition:
    return AgentDefinition(**{"name": name, "side_a": SideConfig(prompt=prompt()), **given})


def of(*agents: Any, **given: Any) -> Runtime:
    return Runtime(agents, store="memory", **given)


def of_prompt(made: Any) -> Runtime:
    kid = bot("kid", expose_as_tool=True, tool_description="It helps.")
    return of(kid, bot(side_a=SideConfig(prompt=made)))


def of_child(**given: Any) -> Runtime:
    return of_prompt(prompt(tools=[SubagentToolConfig(name="kid", **given)]))


MAKERS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any], Made]] = {
    "AgentDefinition": (AgentDefinition, {"name": "a", "side_a": SideConfig(prompt=prompt())}, of),
    "a code agent": (AgentDefinition, {"name": "a", "execute": work}, of),
    "PromptDefinition": (PromptDefinition, {"name": "p", "prompt": "x", "model": model()},
                         of_prompt),
    "SideConfig": (SideConfig, {"prompt": prompt()}, lambda made: of(bot(side_a=made))),
    "SubagentToolConfig": (SubagentToolConfig, {"name": "kid"},
                           lambda made: of_prompt(prompt(tools=[made]))),
    "Immediate": (Immediate, {}, lambda made: of_child(immediate=made)),
    "ModelChoice": (ModelChoice, {"model": model()},
                    lambda made: of_prompt(prompt(model=[made, model()]))),
    "ModelSettings": (ModelSettings, {}, lambda made: of_prompt(prompt(settings=made))),
    "Resumable": (Resumable, {"receives_messages": "side_a"},
                  lambda made: of_child(resumable=made)),
    "VariableDefinition": (VariableDefinition, {"name": "V"},
                           lambda made: of_prompt(prompt(variables=[made]))),
    "Skill": (Skill, {"name": "s", "description": "d", "instructions": "x"},
              lambda made: of(bot(side_a=SideConfig(prompt=prompt(skills=["s"]))), skills=[made])),
    "SessionToolBinding": (
        SessionToolBinding, {"name": "act"},
        lambda made: of(
            bot(side_a=SideConfig(prompt=prompt(tools=[tool(act)]), session_stop=made))
        ),
    ),
    "Hook": (Hook, {"id": "h", "point": "filter_messages", "fn": keep},
             lambda made: of(bot(hooks=["h"]), hooks=[made])),
    "tool": (lambda **given: tool(**given)(act), {},
             lambda made: of_prompt(prompt(tools=[made]))),
    "external_tool": (external_tool, {"name": "out"},
                      lambda made: of_prompt(prompt(tools=[made]))),
    "mcp": (mcp, {"server": "x"}, lambda made: of_prompt(prompt(tools=[made]))),
    "McpServer": (McpServer, {"name": "x", "target": "x", "prefix": "x_"},
                  lambda made: of_prompt(prompt(tools=[made]))),
    "agent": (lambda **given: agent(**given)(work), {"name": "a"}, of),
    "Agent": (Agent, {"name": "a", "prompt": "x", "model": model()}, of),
    "Cron": (Cron, {"uid": "u", "expression": "* * * * *", "agent": "a", "prompt": "x"},
             lambda made: of(bot(), schedules=[made])),
    "Heartbeat": (Heartbeat, {"agent": "a", "tasks": ["x"]},
                  lambda made: of(bot(), schedules=[made])),
    "HeartbeatTask": (HeartbeatTask, {"title": "t", "prompt": "x"},
                      lambda made: of(bot(), schedules=[Heartbeat("a", [made])])),
    "Secret": (Secret, {"value": "x"}, lambda made: of(bot())),
    "Runtime": (Runtime, {"agents": [bot()], "store": "memory"}, lambda made: made),
}  # fmt: skip

SIGNATURES: Mapping[str, Callable[..., Any]] = {"tool": tool, "agent": agent}


def parameters(name: str) -> list[str]:
    made = inspect.signature(SIGNATURES.get(name, MAKERS[name][0])).parameters
    found = [x.name for x in made.values() if x.kind is not x.VAR_KEYWORD]
    if name == "Agent":
        found += AgentOptions.__annotations__
    return [x for x in found if not (x == "fn" and name == "tool")]


def test_every_public_definition_and_schedule_is_attacked() -> None:
    rooms = (
        "hubbub.agents.definitions",
        "hubbub.agents.settings",
        "hubbub.agents.model_choice",
        "hubbub.runtime.schedules",
    )
    found = {
        name
        for name in hubbub.__all__
        if getattr(getattr(hubbub, name), "__module__", "").startswith(rooms)
    }
    others = {"AgentOptions", "RunState", "Tool", "ToolError", "ToolResult", "send_agent_message"}
    assert found - others <= set(MAKERS), "what users make needs a row"


@pytest.mark.parametrize("name", MAKERS)
async def test_a_definition_is_of_its_types_or_refused_before_anything_runs(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, given, runtime_of = MAKERS[name]
    wrong: list[str] = []
    for parameter in parameters(name):
        for value in ALL_VALUES:
            what = f"{name}({parameter}={shown(value)})"
            try:
                runtime = runtime_of(make(**{**given, parameter: value}))
            except HubbubError as error:
                if not str(error).strip():
                    wrong.append(f"{what}: says nothing")
                continue
            except Exception as error:
                wrong.append(f"{what}: {error!r}")
                continue
            if problem := await problem_of(runtime, caplog):
                wrong.append(f"{what}: {problem}")
    assert not wrong, "\n".join(wrong)


def classes_in(annotation: Any) -> set[type]:
    """The classes of ours, and of models, that a field's declaration names."""
    found = {annotation} if inspect.isclass(annotation) else set()
    if annotation is Model:
        found = {ScriptedModel, FunctionModel}
    for part in get_args(annotation):
        found |= classes_in(part)
    return {each for each in found if each.__module__.startswith("hubbub.")}


def declared(name: str) -> Mapping[str, Any]:
    made = SIGNATURES.get(name, MAKERS[name][0])
    kinds = get_type_hints(made.__init__ if name in ("Runtime", "Secret") else made)
    return {**kinds, **get_type_hints(AgentOptions)} if name == "Agent" else kinds


@pytest.mark.parametrize("name", sorted({*MAKERS} - {"a code agent"}))
def test_a_class_given_for_an_instance_is_refused_with_the_remedy(name: str) -> None:
    make, given, runtime_of = MAKERS[name]
    wrong: list[str] = []
    kinds = declared(name)
    for parameter in parameters(name):
        for kind in sorted(classes_in(kinds[parameter]), key=lambda kind: kind.__name__):
            said = []
            for value in (kind, [kind], {"x": kind}):
                try:
                    runtime_of(make(**{**given, parameter: value}))
                except HubbubError as error:
                    said.append(str(error))
                else:
                    wrong.append(f"{name}({parameter}={value!r}): accepted")
            if f"give an instance: {kind.__name__}(…)" not in " ".join(said):
                wrong.append(f"{name}({parameter}={kind.__name__}): {said}")
    assert not wrong, "\n".join(wrong)


async def problem_of(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> str:
    """How something that was accepted breaks later, if it does."""
    caplog.clear()
    try:
        with anyio.fail_after(3600):
            async with runtime as rt:
                for name in rt.definitions.names[-1:]:
                    await (await rt.start(name, "go")).result()
    except HubbubError as error:
        return "" if isinstance(error, DefinitionError) else repr(error)
    except Exception as error:
        return repr(error)
    died = [x for x in caplog.records if x.levelno >= logging.ERROR and "died" in x.getMessage()]
    return died[0].getMessage() if died else ""
