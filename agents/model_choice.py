"""``ModelChoice``: one of the models of a prompt, with settings of its own; and lists of them.

    "anthropic:NAME"                               one model
    ["anthropic:NAME", "openai:NAME"]              tried in order: the next where one fails for good
    ["anthropic:NAME", ModelChoice("openai:NAME", settings=ModelSettings(…))]

A list of one is the same as the model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from hubbub.agents.model import Model, is_model
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import DefinitionError
from hubbub.hub.masking.safe_repr import SafeRepr, without_credentials
from hubbub.hub.near_misses import kind_of, shown, unmade
from hubbub.hub.texts import text_problem

__all__ = [
    "ModelChoice",
    "ModelSpec",
    "changed_models",
    "choices_of",
    "model_problems",
    "named",
    "one_model_problems",
]

MAX_CHOICES: Final = 16


class ModelChoice(SafeRepr, frozen=True):
    """One of several models that a prompt is read by.

    ``settings`` and ``provider_options``, where given, are in the place of the prompt's: what one
    provider has, another may lack.  Raises ``DefinitionError`` listing every problem.
    """

    model: str | Model
    settings: ModelSettings | None = None
    provider_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        problems = list(one_model_problems("model", self.model))
        if not isinstance(self.settings, ModelSettings | None):
            problems.append(f"settings: expected ModelSettings(…){unmade(self.settings)}")
        options: object = self.provider_options
        if options is not None and (
            not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options)
        ):
            problems.append("provider_options: expected a mapping of names to JSON values")
        if problems:
            raise DefinitionError("ModelChoice", problems)


ModelSpec: TypeAlias = str | Model | Sequence[str | Model | ModelChoice]
"""What a prompt may say of its model."""


def choices_of(
    model: ModelSpec, settings: ModelSettings | None, options: Mapping[str, Any]
) -> tuple[ModelChoice, ...]:
    """The models in order, each with the settings and options that hold for it."""
    found = []
    for each in model if isinstance(model, tuple) else (model,):
        own = each if isinstance(each, ModelChoice) else ModelChoice(each)
        found.append(
            ModelChoice(
                own.model,
                settings if own.settings is None else own.settings,
                options if own.provider_options is None else own.provider_options,
            )
        )
    return tuple(found)


def changed_models(model: Any, change: Callable[[Any], Any]) -> Any:
    """The same, with each model changed."""
    if not isinstance(model, tuple):
        return change(model)
    return tuple(
        ModelChoice(change(each.model), each.settings, each.provider_options)
        if isinstance(each, ModelChoice)
        else change(each)
        for each in model
    )


def named(model: str | Model) -> str:
    """A model as it is named, without a password that its address holds; a model object by its
    own name or its class."""
    if isinstance(model, str):
        return without_credentials(model)
    name = getattr(model, "name", None)
    return name if isinstance(name, str) else type(model).__name__


def model_problems(model: object) -> Iterable[str]:
    """What is wrong with what a prompt says of its model."""
    if not isinstance(model, tuple):
        yield from one_model_problems("model", model)
        return
    if not model:
        yield "model: an empty list; give at least one model"
    if len(model) > MAX_CHOICES:
        yield f"model: at most {MAX_CHOICES} models are tried, not {len(model)}"
        return
    for index, each in enumerate(model):
        if not isinstance(each, ModelChoice):
            yield from one_model_problems(f"model[{index}]", each)


def one_model_problems(path: str, model: object) -> Iterable[str]:
    """What is wrong with one model."""
    if isinstance(model, str):
        if problem := text_problem(model):
            yield f"{path}: {problem}"
        elif not model:
            yield f'{path}: give "provider:name", a registered name, or a Model'
    elif isinstance(model, type):
        yield f"{path}: expected a Model, not {kind_of(model)}"
    elif not is_model(model):
        what = shown(model) if isinstance(model, list | tuple) else kind_of(model)
        yield f"{path}: {what} has no `call`; give a Model"
