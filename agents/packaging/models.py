"""Which model a packed prompt is read by, how it is to answer, what it may use: written and read.

Models are named: an object is somebody's program and cannot be packed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.model_choice import ModelChoice
from hubbub.agents.packaging.format import (
    ChoicePart,
    LimitsPart,
    PromptPart,
    SettingsPart,
    fields_of,
    written,
)
from hubbub.agents.settings import ModelSettings
from hubbub.hub.events import Limits

__all__ = ["BY_NAME", "read_limits", "read_model", "written_limits", "written_model"]

BY_NAME: Final = (
    "a Model object cannot be packed; give the model by name, "
    '"provider:name" or one of Runtime(models=…)'
)

Say: TypeAlias = Callable[[str, str], None]
"""Takes the path of a problem and the problem."""


def written_model(
    prompt: PromptDefinition, say: Say, json: Callable[[str, Any], Any]
) -> dict[str, Any]:
    """The fields of a part for a prompt's models and settings; ``json`` gives plain values."""
    path = f"prompts.{prompt.name}.model"
    model: Any = prompt.model
    if isinstance(model, tuple):
        model = [_written_choice(f"{path}[{at}]", each, say, json) for at, each in enumerate(model)]
    else:
        model = _name(path, model, say)
    return {
        "model": model, "settings": _written_settings(prompt.settings),
        "limits": written_limits(prompt.limits),
    }  # fmt: skip


def _written_choice(path: str, choice: Any, say: Say, json: Callable[[str, Any], Any]) -> Any:
    if not isinstance(choice, ModelChoice):
        return _name(path, choice, say)
    return written(
        ChoicePart,
        choice,
        model=_name(path, choice.model, say),
        settings=_written_settings(choice.settings),
        provider_options=json(f"{path}.provider_options", choice.provider_options),
    )


def _written_settings(settings: ModelSettings | None) -> dict[str, Any] | None:
    return None if settings is None else written(SettingsPart, settings)


def _name(path: str, model: Any, say: Say) -> str:
    if isinstance(model, str):
        return model
    say(path, BY_NAME)
    return ""


def read_model(
    path: str, part: PromptPart, make: Callable[[str, Any, dict[str, Any]], Any]
) -> Mapping[str, Any]:
    """The fields of a definition for a part's models and settings; ``make`` reports problems."""
    model: Any = part.model
    if not isinstance(model, str):
        model = [_read_choice(f"{path}.model[{at}]", each, make) for at, each in enumerate(model)]
    return {
        "model": model, "settings": _read_settings(f"{path}.settings", part.settings, make),
        "limits": read_limits(f"{path}.limits", part.limits, make),
    }  # fmt: skip


def _read_choice(
    path: str, part: str | ChoicePart, make: Callable[[str, Any, dict[str, Any]], Any]
) -> Any:
    if isinstance(part, str):
        return part
    settings = _read_settings(f"{path}.settings", part.settings, make)
    # What cannot be made is reported; the list is read on, for what else is wrong with it.
    return make(path, ModelChoice, fields_of(part, settings=settings)) or "-"


def _read_settings(
    path: str, part: SettingsPart | None, make: Callable[[str, Any, dict[str, Any]], Any]
) -> Any:
    return None if part is None else make(path, ModelSettings, fields_of(part))


def written_limits(limits: Limits | None) -> dict[str, Any] | None:
    """The part for limits."""
    return None if limits is None else written(LimitsPart, limits)


def read_limits(
    path: str, part: LimitsPart | None, make: Callable[[str, Any, dict[str, Any]], Any]
) -> Any:
    """The limits of a part; ``make`` reports problems."""
    return None if part is None else make(path, Limits, fields_of(part))
