"""What newcomers write first and wrongly is answered by one line that says what to write."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import NODEFAULT, Struct, structs

from attacks.test_definition_types import MAKERS
from hubbub import (
    Agent,
    AgentDefinition,
    Hook,
    Image,
    Limits,
    Message,
    Price,
    Runtime,
    ScriptedModel,
    agent,
    tool,
)
from hubbub.hub.errors import HubbubError
from hubbub.hub.near_misses import told_fields

pytestmark = pytest.mark.spec("U-09")
BUILT: list[type[Struct]] = sorted(
    {
        made
        for made in (*(row[0] for row in MAKERS.values()), Limits, Message, Price)
        if inspect.isclass(made) and issubclass(made, Struct)
    },
    key=lambda made: made.__name__,
)
"""The structs that users write."""


def test_every_struct_that_users_write_tells_of_its_fields() -> None:
    assert len(BUILT) > 12
    assert not [kind.__name__ for kind in BUILT if not isinstance(kind, told_fields)]


def test_a_misspelt_field_is_named_with_what_was_meant() -> None:
    for kind in BUILT:
        given = dict.fromkeys(kind.__struct_fields__)
        for field in (each for each in given if len(each) > 4):
            with pytest.raises(TypeError) as caught:
                kind(**{**given, field[:-2] + field[-1]: None})
            said = str(caught.value)
            assert said.startswith(f"{kind.__name__} has no field") and "did you mean" in said
            assert "\n" not in said
        with pytest.raises(TypeError, match=rf"{kind.__name__} has no field 'zzz'; it has "):
            kind(**{**given, "zzz": None})


def test_a_missing_field_and_fields_without_names_are_told() -> None:
    for kind in BUILT:
        needed = [
            each.name
            for each in structs.fields(kind)
            if each.default is NODEFAULT and each.default_factory is NODEFAULT
        ]
        if needed:
            with pytest.raises(TypeError, match=rf"{kind.__name__}: give {needed[0]}=…"):
                kind()
        with pytest.raises(TypeError, match=rf"{kind.__name__}: give its fields by name"):
            kind(*range(40))


def test_what_is_wrong_with_the_values_is_told_as_ever() -> None:
    class Given(Struct, metaclass=told_fields):
        x: int

        def __post_init__(self) -> None:
            raise TypeError("of its own")

    with pytest.raises(TypeError, match="of its own"):
        Given(x=1)


def model() -> ScriptedModel:
    return ScriptedModel(["x"])


async def alone(input: Any) -> str:
    return "x"


wrong: Any = Agent
"""The same, without a type checker, which newcomers do not run first."""
anything: Any = None

MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "an option": (lambda: wrong("a", "p", model=model(), tols=[]), "Agent has no such option"),
    "one agent": (lambda: Runtime(wrong("a", "p", model=model())),
                  "agents: expected a list, not AgentDefinition"),
    "a class": (lambda: wrong("a", "p", model=ScriptedModel), "instance: ScriptedModel(…)"),
    "one text": (lambda: ScriptedModel("hello"), "write ['hello']"),
    "a function": (lambda: wrong("a", "p", model=model(), tools=[len]), "with @tool"),
    "no name": (lambda: agent(anything or alone), '@agent("name")'),
    "no context": (lambda: agent("a")(anything or alone), "write `async def alone(input, ctx)`"),
    "a path": (lambda: Image(anything or "a.png"), "use from_file"),
    "no annotation": (lambda: tool(lambda word: word, name="act"), "annotate it"),
    "a model alone": (lambda: Runtime([wrong("a", "p", model="gpt-5")], store="memory"),
                      "write anthropic:NAME, openai:NAME"),
    "a provider": (lambda: Runtime([wrong("a", "p", model="antropic:x")], store="memory"),
                   "did you mean 'anthropic:x'"),
    "a store": (lambda: Runtime([wrong("a", "p", model=model())], store="sqllite:x"),
                'expected "sqlite:PATH", "postgresql://…" or "memory"'),
    "a point": (lambda: Hook("h", anything or "filter_message", print), "filter_messages"),
    "no body": (lambda: AgentDefinition(name="a"), "execute, side_a: give one of them"),
    "a variable": (lambda: Runtime([wrong("a", "{{NAME}}", model=model())], store="memory"),
                   "NAME"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_mistake_is_one_line_with_the_remedy(mistake: str) -> None:
    make, remedy = MISTAKES[mistake]
    with pytest.raises(HubbubError) as caught:
        make()
    said = str(caught.value)
    assert remedy in said and "\n" not in said
