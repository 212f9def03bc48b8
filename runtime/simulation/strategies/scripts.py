"""Scripts of a whole setup: what each of its prompts may call, and models that play it.

    scripted(setup, scripts)   the setup with the models of those prompts replaced by scripts
    offered(setup)             by prompt, the tools that its model is shown

    scripted(setup, {"desk": [reply("", call("look_up", order=7)), reply("It was lost.")]})

``strategies.scripts`` draws scripts that fit.  Prompts, not agents: two agents that read one
prompt share its model.  That of a skill is called ``skill:NAME``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import structs

from hubbub.agents.built_in import COMPLETE
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.rewriting import Rewriting
from hubbub.agents.definitions.skills import SKILL_PREFIX, Skill
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest, ToolSpec
from hubbub.agents.model_choice import changed_models
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.turn.child_calls import child_specs
from hubbub.agents.turn.takeover import takeover_specs
from hubbub.hub.errors import BadValue
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.simulation.story.arguments import setup_of
from hubbub.runtime.simulation.story.setup import Setup, code_of

__all__ = ["MAX_SPAWNS", "Scripts", "check_prompts", "definitions_of", "offered", "scripted"]

Scripts: TypeAlias = Mapping[str, Sequence[ModelReply]]
"""By the name of a prompt: what its model says, one reply after the other."""

MAX_SPAWNS: Final = 30
"""Runs that one root of a scripted setup may start, unless its options say otherwise.  Scripts
that call each other would continue until the runtime's own limit, which is far away."""

LAST_WORDS: Final = "That is all."


def definitions_of(setup: Setup) -> Definitions:
    """The definitions of a setup, resolved as its runtime will resolve them."""
    return setup.definitions()


def offered(setup: Setup) -> Mapping[str, tuple[ToolSpec, ...]]:
    """By prompt, every tool that its model may be shown, branches that are not enabled included.

    Raises ``DefinitionError`` for a setup whose parts do not fit.
    """
    found: dict[str, dict[str, ToolSpec]] = {}
    for side in definitions_of(setup).sides.values():
        specs = found.setdefault(_prompt_name(side), {})
        specs.update((spec.name, spec) for spec in _specs(side))
    return {name: tuple(specs.values()) for name, specs in found.items()}


def scripted(setup: Setup | Callable[[], Setup], scripts: Scripts) -> Setup:
    """The same setup with other models: each prompt that ``scripts`` names plays its script.

    The reply is found by counting what the model has said before, as ``ScriptedModel`` does, so
    the same request always gets the same answer.  After the last one a frame completes, and
    anybody else says a last word.  Raises ``BadValue`` for a prompt that the setup does not have.
    """
    code = f"scripted({code_of(setup, 'setup')}, {scripts!r})"
    setup = setup_of(setup)
    check_scripts(scripts)
    sides = definitions_of(setup).sides.values()
    known = (*map(_prompt_name, sides), *(prompt.name for prompt in setup.prompts))
    check_prompts("scripted", scripts, known)
    models = {name: _model(name, script) for name, script in scripts.items()}
    replaced = _Replacing(models)
    return structs.replace(
        setup,
        agents=replaced.agents(setup.agents, setup.prompts),
        prompts=tuple(map(replaced.prompt, setup.prompts)),
        skills=tuple(map(replaced.skill, setup.skills)),
        options={"max_spawns": MAX_SPAWNS, **setup.options},
        code=code,
    )


def check_scripts(scripts: object) -> None:
    """Raise for what are no scripts: a text would be played letter by letter."""
    remedy = "expected a list of replies by prompt: {'desk': ['Hello.']}"
    if not isinstance(scripts, Mapping):
        raise BadValue("scripts", f"{remedy}, not {type(scripts).__name__}")
    for name, script in scripts.items():
        if isinstance(script, str) or not isinstance(script, Sequence):
            raise BadValue(f"scripts[{name!r}]", f"{remedy}, not {script!r}")


def check_prompts(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise for a name that is that of no prompt."""
    there = dict.fromkeys(known)
    for name in names:
        if name not in there:
            raise BadValue(what, f"no prompt {name!r}; there are {', '.join(there) or 'none'}")


def _specs(side: ActiveSide) -> tuple[ToolSpec, ...]:
    tools = tuple(tool.spec for tool in side.tools.values())
    return (*tools, *child_specs(side, lambda _: True), *takeover_specs(side))


def _prompt_name(side: ActiveSide) -> str:
    return side.agent if side.agent.startswith(SKILL_PREFIX) else side.prompt.name


def _model(name: str, script: Sequence[ModelReply]) -> FunctionModel:
    def scripted_answer(request: ModelRequest) -> ModelReply:
        said = sum(isinstance(x, AssistantMessage) and not x.is_given for x in request.messages)
        if said < len(script):
            return script[said]
        if any(spec.name == COMPLETE for spec in request.tools):
            return reply("", call(COMPLETE, result=LAST_WORDS))
        return reply(LAST_WORDS)

    return FunctionModel(scripted_answer, name=name)


class _Replacing(Rewriting):
    """Other models for the prompts that have a script."""

    def __init__(self, models: Mapping[str, FunctionModel]) -> None:
        super().__init__()
        self._models = models

    def new_model(self, reader: PromptDefinition | Skill) -> Any:
        if isinstance(reader, PromptDefinition):
            script = self._models.get(reader.name)
            # As many as there were: where one fails, the next plays the same script.
            return changed_models(reader.model, lambda model: script or model)
        known = {} if reader.is_passthrough else self._models
        return known.get(reader.agent_name, reader.model)
