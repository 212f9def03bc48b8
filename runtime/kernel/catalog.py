"""``Catalog``: definitions at work, everything that is looked up once and then kept.

A model by its name, a prompt's tools as its model is shown them, a code agent's function with
what decodes its input.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import anyio
import msgspec

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.signature import is_pydantic
from hubbub.agents.model import Model, ToolSpec
from hubbub.agents.model_choice import ModelChoice
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import FRAME, ActiveSide
from hubbub.agents.resolution.skill_agents import CALLERS_MODEL
from hubbub.agents.settings import ModelSettings
from hubbub.agents.state.context_limit import ContextLimit
from hubbub.agents.turn.child_calls import child_specs
from hubbub.agents.turn.takeover import takeover_specs
from hubbub.hub.errors import BadValue, MissingKey, UnknownModel
from hubbub.hub.values import NULL, Json, decode_value
from hubbub.runtime.models.providers import KEY_VARIABLES

__all__ = ["Catalog", "code_of"]


class Catalog:
    """What the definitions of one runtime come to.

    ``models`` are the caller's own and stay open; models made here from a text are closed by
    ``aclose``.  ``environ`` is where keys of providers come from.
    """

    __slots__ = (
        "_child_specs",
        "_code",
        "_environ",
        "_gates",
        "_inputs",
        "_made",
        "_models",
        "_specs",
        "limits",
    )

    def __init__(self, models: Mapping[str, Model], environ: Mapping[str, str]) -> None:
        self._models = dict(models)
        self._environ = environ
        self._made: dict[str, Model] = {}
        self._specs: dict[str, tuple[ToolSpec, ...]] = {}
        self._child_specs: dict[tuple[str, str, frozenset[str]], tuple[ToolSpec, ...]] = {}
        self._gates: dict[tuple[str, str], frozenset[str]] = {}
        self._inputs: dict[str, Callable[[Json], Any]] = {}
        self._code: dict[str, Callable[[Json, Any], Awaitable[Any]]] = {}
        self.limits: dict[str, ContextLimit] = {}
        """By prompt: what its model can be shown (runtime/activities/summaries.py)."""

    @property
    def keys(self) -> frozenset[str]:
        """The providers' keys that there are: nothing may quote them."""
        return frozenset(key for name in KEY_VARIABLES if (key := self._environ.get(name, "")))

    async def aclose(self) -> None:
        """Close the models made here; idempotent."""
        made, self._made = self._made, {}
        for model in made.values():
            close = getattr(model, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await close()

    def choices_of(
        self,
        side: ActiveSide,
        above: Iterable[tuple[str, str]],
        definitions: Definitions,
    ) -> tuple[ModelChoice, ...]:
        """The models of a side: its own, or those of the run that began the frame.

        ``above`` are run id and agent of the runs above, the caller first.
        """
        choices = side.choices
        if choices[0].model != CALLERS_MODEL:
            return choices
        options = choices[0].provider_options
        for _, agent in above:
            caller = definitions.find_side(agent, FRAME) or definitions.find_side(agent, "side_a")
            if caller is not None and caller.choices[0].model != CALLERS_MODEL:
                return tuple(
                    each
                    if each.provider_options is not caller.prompt.provider_options
                    else ModelChoice(each.model, each.settings, options)
                    for each in caller.choices
                )
        return choices

    def model(self, model: str | Model) -> Model:
        """Resolve a model by name, once."""
        if not isinstance(model, str):
            return model
        found = self._models.get(model) or self._made.get(model)
        if found is None:
            from hubbub.runtime.models.resolve import resolve_model

            found = self._made[model] = resolve_model(model, self._models, self._environ)
        return found

    def model_problem(self, model: str | Model) -> str:
        """Why ``model`` can name none, whatever the environment; empty where it can."""
        if not isinstance(model, str) or model in self._models:
            return ""
        from hubbub.runtime.models.resolve import check_model

        try:
            check_model(model, self._models)
        except UnknownModel as error:
            return str(error)
        return ""

    def settings_problems(self, model: str | Model, settings: ModelSettings) -> Iterable[str]:
        """What of ``settings`` a model lacks, as far as it can be known without a key."""
        from hubbub.runtime.models.resolve import settings_problems

        return settings_problems(model, settings, self._models, self._environ)

    def lacking(self, choice: ModelChoice) -> Iterable[str]:
        """What is wrong with a model and its settings; nothing of a model that is none."""
        if choice.settings is None or self.model_problem(choice.model):
            return ()  # Said when it is asked.
        return self.settings_problems(choice.model, choice.settings)

    def prepare(self, used: Iterable[tuple[str | Model, ...]]) -> None:
        """Make the models that will be used, of each list at least one.

        Raises ``MissingKey`` for all keys that are not there, ``UnknownModel``, ``MissingExtra``.
        """
        missing: dict[str, str] = {}
        for models in used:
            keys = [self._missing_key(each) for each in models]
            if all(keys):
                named = {each.variable: each.provider for each in keys if each is not None}
                missing[" or ".join(named)] = " or ".join(named.values())
        if missing:
            raise MissingKey(" and ".join(missing.values()), " and ".join(missing))

    def _missing_key(self, model: str | Model) -> MissingKey | None:
        try:
            self.model(model)
        except MissingKey as error:
            return error
        return None

    def specs_of(self, side: ActiveSide) -> tuple[ToolSpec, ...]:
        """The tools of a side as its model is shown them."""
        if not side.tools:
            return ()
        if side.has_given:
            return tuple(t.spec for t in side.tools.values())
        found = self._specs.get(side.prompt.name)
        if found is None:
            found = self._specs[side.prompt.name] = tuple(t.spec for t in side.tools.values())
        return found

    def specs_with_children(
        self, side: ActiveSide, is_enabled: Callable[[str], bool]
    ) -> tuple[ToolSpec, ...]:
        """The same, with the agents that the model may call just now."""
        place = (side.agent, side.acts_as)
        gates = self._gates.get(place)
        if gates is None:
            gates = self._gates[place] = side.gates
        enabled = frozenset(filter(is_enabled, gates)) if gates else gates
        key = (*place, enabled)
        found = None if side.has_given else self._child_specs.get(key)
        if found is None:
            own = (*child_specs(side, enabled.__contains__), *takeover_specs(side))
            found = (*self.specs_of(side), *own)
            if not side.has_given:
                self._child_specs[key] = found
        return found

    def is_bound(self, choice: ModelChoice, side: ActiveSide, specs: tuple[ToolSpec, ...]) -> bool:
        """Whether a model can be bound to the schema of what the side's answers are to be."""
        if side.output is None:
            return False
        takes = getattr(self.model(choice.model), "takes_output", None)
        return takes is not None and bool(takes(side.output.spec, bool(specs)))

    def code_of(self, definition: AgentDefinition) -> Callable[[Json, Any], Awaitable[Any]]:
        """A code agent's function, fed with its encoded input."""
        found = self._code.get(definition.name)
        if found is None:
            found = self._code[definition.name] = _with_decoded_input(
                definition, self.input_of(definition)
            )
        return found

    def input_of(self, definition: AgentDefinition) -> Callable[[Json], Any]:
        """What decodes the input of a code agent, made once."""
        found = self._inputs.get(definition.name)
        if found is None:
            found = self._inputs[definition.name] = _input_decoder(definition)
        return found


def _input_type(definition: AgentDefinition) -> Any:
    """What the agent's function says its input is."""
    assert definition.execute is not None
    function = inspect.unwrap(definition.execute)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return Any
    try:
        hints = inspect.get_annotations(function, eval_str=True)
    except Exception:
        return Any
    return hints.get(parameters[0].name, Any)


def _input_decoder(definition: AgentDefinition) -> Callable[[Json], Any]:
    wanted = _input_type(definition)

    def decode(input_json: Json) -> Any:
        if wanted is Any or (input_json is NULL and wanted is not None):
            return decode_value(input_json)
        try:
            return msgspec.json.decode(input_json, type=wanted)
        except (msgspec.ValidationError, TypeError) as error:
            problem = str(error)
            if is_pydantic(wanted):
                name = wanted.__qualname__
                problem = f"{name} is a pydantic model; take a dict, for {name}.model_validate"
            raise BadValue(f"input of {definition.name}", problem) from None

    return decode


def code_of(definition: AgentDefinition) -> Callable[[Json, Any], Awaitable[Any]]:
    """A code agent's function, fed with its encoded input; made anew at each call."""
    return _with_decoded_input(definition, _input_decoder(definition))


def _with_decoded_input(
    definition: AgentDefinition, decode: Callable[[Json], Any]
) -> Callable[[Json, Any], Awaitable[Any]]:
    execute = definition.execute
    assert execute is not None

    def call(input_json: Json, context: Any) -> Awaitable[Any]:
        return execute(decode(input_json), context)

    return call
