"""What a fork has in the place of its agent's model and instructions, made a part of its side."""

from copy import copy

from msgspec import structs
from msgspec.structs import force_setattr

from hubbub.agents.model_choice import ModelChoice
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.rewritten import Rewritten

__all__ = ["choice_of", "with_rewritten"]


def choice_of(side: ActiveSide, model: str) -> ModelChoice:
    """A model for a side: one of its own with what is said of that, another with the settings of
    its prompt.  Provider options are words of one provider, and of no use to another model."""
    for each in side.choices:
        if each.model == model:
            return each
    return ModelChoice(model, side.prompt.settings, {})


def with_rewritten(side: ActiveSide, rewritten: Rewritten) -> ActiveSide:
    """The side with another model, and another text of its prompt, where these are given.

    The text is not checked: that was done by who gave it, and a run must wake whatever its record
    says.  What it calls ``{{NAME}}`` is filled as in the prompt that it replaces.
    """
    prompt = copy(side.prompt)
    if rewritten.prompt:
        force_setattr(prompt, "prompt", rewritten.prompt)
    if not rewritten.model:
        return structs.replace(side, prompt=prompt)
    choice = choice_of(side, rewritten.model)
    # What is known of a prompt's model is kept by the prompt's name.
    force_setattr(prompt, "name", f"{prompt.name}, asking {rewritten.model}")
    force_setattr(prompt, "model", rewritten.model)
    return structs.replace(side, prompt=prompt, choices=(choice,))
