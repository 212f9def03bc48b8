"""``check_rewritten``: whether a fork can go on with another model, or other instructions.

The command line has no definitions, and does not ask this: what is wrong fails the fork's turn.
Where models have prices, one that has none is refused: no limit of cost would be reached by it.
"""

from hubbub.agents.definitions.variables import placeholders
from hubbub.agents.model_choice import named
from hubbub.agents.resolution.rewritten_side import choice_of
from hubbub.hub.errors import BadValue
from hubbub.runtime.kernel.services import Services

__all__ = ["check_rewritten"]


def check_rewritten(services: Services, model: str, prompt: str, agent: str) -> None:
    """Raise ``BadValue`` for what the side of an agent cannot have in the place of its own.

    Of an agent that others drive nothing is known here.  Raises ``UnknownModel``, ``MissingKey``
    and ``MissingExtra`` for a model that cannot be asked from here.
    """
    side = services.definitions.find_side(agent, "side_a")
    if side is None:
        return
    if side.two_sided:
        what = "prompt" if prompt else "model"
        raise BadValue(what, f"{agent!r} has two sides; give agent=… with other prompts")
    kinds = {each.name: each.type for each in side.prompt.variables}
    for name in sorted(placeholders(prompt)):
        if kinds.get(name) == "secret":
            only = "only a text variable enters a prompt"
            raise BadValue("prompt", f"{{{{{name}}}}} is secret; {only}")
    if model:
        services.catalog.model(model)
        choice = choice_of(side, model)
        wrong = [*services.catalog.lacking(choice)]
        if services.prices.is_known:
            wrong += services.prices.missing([choice])
        if wrong:
            raise BadValue("model", f"{named(model)}: {wrong[0]}")
