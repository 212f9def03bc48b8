"""What definitions hold of secrets is in no ``repr``, however it is made.

What there is to attack is found by introspection: each field of each definition that takes values
by name, or a model's name, and each class of ours with such a field.
"""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pprint import pformat
from typing import Any

import msgspec
import pytest

import hubbub
from attacks.test_definition_types import MAKERS, declared, parameters
from hubbub import Agent, ModelChoice, Runtime, ScriptedModel, mcp
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports

SECRET = "hunter2-hunter2"
ADDRESS = f"openai:NAME@http://me:{SECRET}@127.0.0.1:9/v1"
HARMLESS = ("StackFrameMeta", "Setup")
"""The values are hidden already; they are a simulated world's own."""
NAMES = ("env", "headers", "environment", "environ")


def shown(made: object) -> str:
    """All that a log, a traceback, a test's report or a terminal shows of it."""
    rich = getattr(made, "__rich_repr__", list)
    return " ".join(
        (repr(made), str(made), f"{made}", pformat(made), repr([*rich()]), repr([made]))
    )


def makings() -> Iterator[tuple[str, Any, Any]]:
    """Each definition with a secret in one of its fields, and the runtime that has it."""
    for name, (make, given, runtime_of) in MAKERS.items():
        kinds = declared(name)
        for parameter in parameters(name):
            if parameter in NAMES:
                made = make(**{**given, parameter: {"TOKEN": SECRET}})
            elif parameter == "model" and name != "PromptDefinition" and "str" in str(kinds):
                made = make(**{**given, parameter: ADDRESS})
            elif parameter == "model":
                made = make(**{**given, parameter: [ADDRESS, ModelChoice(ADDRESS)]})
            else:
                continue
            yield f"{name}({parameter})", made, runtime_of


@pytest.mark.spec("G-06")
def test_no_definition_shows_the_secrets_that_it_holds() -> None:
    wrong, seen = [], []
    for what, made, runtime_of in makings():
        seen.append(what)
        said = shown(made)
        try:
            said += shown(runtime_of(made))
        except DefinitionError as error:
            said += str(error)
        if SECRET in said:
            wrong.append(f"{what}: {said[:300]}")
    assert {"Agent(env)", "Skill(env)", "mcp(env)", "mcp(headers)", "Runtime(env)"} <= {*seen}
    assert {"Agent(model)", "PromptDefinition(model)", "ModelChoice(model)"} <= {*seen}
    assert not wrong, "\n".join(wrong)


@pytest.mark.spec("G-06")
def test_what_holds_such_a_definition_does_not_show_it_either() -> None:
    model = ScriptedModel(["x"])
    server = mcp(f"https://127.0.0.1/mcp?key={SECRET}", env={"A": SECRET})
    kid = Agent("kid", "x", model=model, env={"A": SECRET})
    lead = Agent("lead", "x", model=model, tools=[kid.as_tool(), server])
    assert SECRET not in shown(lead) and "?key=***" in shown(lead) and "'A': ***" in shown(lead)


@pytest.mark.spec("G-06")
def test_every_class_with_a_field_of_values_hides_them() -> None:
    """A new one is found here before it is shown somewhere."""
    unsafe = []
    for kind in classes():
        if issubclass(kind, msgspec.Struct):
            has_own = kind.__repr__ is not msgspec.Struct.__repr__
            fields = () if has_own else kind.__struct_fields__
        elif dataclasses.is_dataclass(kind):
            fields = tuple(each.name for each in dataclasses.fields(kind) if each.repr)
        else:
            continue
        if {*fields} & {"env", "environ", "environment"} and kind.__name__ not in HARMLESS:
            unsafe.append(f"{kind.__module__}.{kind.__qualname__}")
    assert not unsafe, "\n".join(unsafe)


def classes() -> Iterator[type]:
    for found in pkgutil.walk_packages(hubbub.__path__, "hubbub."):
        if ".tests" in found.name or found.name.startswith("hubbub.tests"):
            continue
        module = importlib.import_module(found.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ == found.name:
                yield kind


@pytest.mark.anyio
@pytest.mark.spec("G-06")
async def test_a_password_in_a_models_address_is_in_no_event(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    models = [ADDRESS, ADDRESS.replace("NAME", "OTHER")]
    agent = Agent("a", "x", model=models)
    async with Runtime([agent], store="memory", ports=ports, environ={}) as rt:
        seen: list[Event] = []
        rt.hub.subscribe("*", seen.append)
        outcome = await rt.run("a", "hello")
    assert not outcome.success
    assert "openai:OTHER@http://***@127.0.0.1:9/v1" in repr(seen)
    assert SECRET not in repr(seen) + repr(outcome) + caplog.text
