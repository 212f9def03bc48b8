"""What is wrong with prompts that a runtime is built with, besides the names they use."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.variables import placeholders
from hubbub.agents.model import Model
from hubbub.agents.model_choice import ModelChoice, named
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.skill_agents import CALLERS_MODEL
from hubbub.agents.settings import ModelSettings
from hubbub.hub.near_misses import nearest

__all__ = ["KnownModels", "prompt_problems", "used_models"]


class KnownModels(Protocol):
    """What can be known of models before one is made."""

    def model_problem(self, model: str | Model) -> str:
        """What is wrong with the value of a prompt's ``model``; ``""``: nothing."""
        ...

    def settings_problems(self, model: str | Model, settings: ModelSettings) -> Iterable[str]:
        """What a model lacks of a prompt's settings."""
        ...


def prompt_problems(definitions: Definitions, models: KnownModels) -> Iterable[str]:
    """What no run of these prompts could do without, each with its path."""
    for path, prompt in _prompts(definitions):
        if prompt.model != CALLERS_MODEL:
            for index, choice in enumerate(prompt.choices):
                yield from _model_problems(path, prompt, index, choice, models)
        if not prompt.name.startswith("skill:"):  # A skill's text may show braces to the model.
            yield from _undeclared(path, prompt)


def used_models(definitions: Definitions) -> tuple[tuple[str | Model, ...], ...]:
    """The models of all sides and skills, of which one each must be there; a prompt that no agent
    has uses none."""
    used = [tuple(each.model for each in side.choices) for side in definitions.sides.values()]
    return tuple(
        each for at, each in enumerate(used) if each not in used[:at] and each[0] != CALLERS_MODEL
    )


def _model_problems(
    path: str, prompt: PromptDefinition, index: int, choice: ModelChoice, models: KnownModels
) -> Iterator[str]:
    place = f"{path}.model[{index}]" if isinstance(prompt.model, tuple) else f"{path}.model"
    if problem := models.model_problem(choice.model):
        yield f"{place}: {problem}"
    elif choice.settings is not None:
        own = f"{place}." if choice.settings is not prompt.settings else f"{path}."
        told = f" ({named(choice.model)})" if isinstance(prompt.model, tuple) else ""
        for each in models.settings_problems(choice.model, choice.settings):
            yield f"{own}settings.{each}{told}"


def _prompts(definitions: Definitions) -> Iterator[tuple[str, PromptDefinition]]:
    """Every prompt once, with its path."""
    for name, prompt in definitions.prompts.items():
        yield f"prompts.{name}", prompt
    seen = {*definitions.prompts}
    for (agent, which), side in definitions.sides.items():
        if side.prompt.name not in seen:
            seen.add(side.prompt.name)
            yield f"agents.{agent}.{which}.prompt", side.prompt


def _undeclared(path: str, prompt: PromptDefinition) -> Iterator[str]:
    declared = [each.name for each in prompt.variables]
    for name in sorted(placeholders(prompt.prompt).difference(declared)):
        meant = nearest(name, declared)
        hint = "" if meant is None else f"did you mean {{{{{meant}}}}}? Else "
        yield (
            f"{path}.prompt: {{{{{name}}}}} is not declared; {hint}add "
            f'VariableDefinition(name="{name}", type="text") to its variables, and to show the '
            f'braces to the model env={{"{name}": "{{{{{name}}}}}"}} as well'
        )
