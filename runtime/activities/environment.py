"""``Environment``: the variables of one run, as its tools and hooks see them.

The order in which values are looked for is decided in ``hubbub.agents.definitions.variables``;
where they are kept, here: a run's own in the ``Secrets`` port, the rest in the definitions.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from hubbub.agents.definitions.tools import Tool
from hubbub.agents.definitions.variables import env_problems, is_true, resolve
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.hub.errors import BadValue
from hubbub.hub.masking import LONG, Masker
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.texts import check_label
from hubbub.runtime.kernel.services import Services

__all__ = ["Environment"]


class Environment(Mapping[str, str]):
    """Every variable that has a value for this run; looked up again each time.

    ``repr`` shows names only.
    """

    __slots__ = ("_agent", "_ancestors", "_prompt_env", "_run_id", "_services")

    def __init__(
        self,
        services: Services,
        run_id: str,
        agent: str,
        ancestors: tuple[tuple[str, str], ...],
        prompt_env: Mapping[str, str],
    ) -> None:
        self._services = services
        self._run_id = run_id
        self._agent = agent
        self._ancestors = ancestors
        self._prompt_env = prompt_env

    @classmethod
    def of(cls, services: Services, lane: OwnLane, side: ActiveSide | None) -> "Environment":
        """The variables of a run at work on ``side``."""
        env = side.prompt.env if side is not None else {}
        return cls(services, lane.run_id, lane.agent, lane.ancestors, env)

    def below(self, run_id: str, agent: str, prompt_env: Mapping[str, str]) -> "Environment":
        """The variables of a child that is about to be started."""
        ancestors = ((self._run_id, self._agent), *self._ancestors)
        return Environment(self._services, run_id, agent, ancestors, prompt_env)

    def find(self, name: str, *, is_scoped: bool | None = None) -> str | None:
        """The value of a variable, or ``None``."""
        addressing = self._services.hub.addressing
        definitions = self._services.definitions
        agents = dict(self._ancestors)
        if is_scoped is None:
            is_scoped = definitions.declares_scoped(self._agent, name)
        definition = definitions.find_agent(self._agent)
        return resolve(
            name,
            own=lambda name: addressing.value(self._run_id, name),
            ancestors=agents,
            own_of=addressing.value,
            is_scoped=is_scoped,
            was_given=lambda run_id, name: (
                addressing.was_given_scoped(run_id, name)
                or definitions.declares_scoped(agents[run_id], name)
            ),
            defaults=(
                definition.env if definition is not None else {},
                self._prompt_env,
                self._services.env,
            ),
        )

    def secrets(self, side: ActiveSide | None) -> frozenset[str]:
        """The values that nothing said of this run's failures may quote.

        All but those of variables that are declared as texts.  Of an agent that declares what it
        reads, no short value of an undeclared one either: it is a flag or a number, which every
        other sentence holds.  A value that was replaced counts as its variable does: code that
        read it before may quote it yet.
        """
        declared = () if side is None else side.variables
        texts = {each.name for each in declared if each.type == "text"}
        secrets = {each.name for each in declared if each.type == "secret"}
        definition = self._services.definitions.find_agent(self._agent)
        declares = definition is None or not definition.is_code
        replaced = self._services.hub.addressing.replaced
        run_ids = (self._run_id, *(run_id for run_id, _ in self._ancestors))
        return frozenset(
            value
            for name, value in chain(self.items(), *map(replaced, run_ids))
            if name in secrets or (name not in texts and (len(value) >= LONG or not declares))
        )

    def masker(self, side: ActiveSide | None) -> Masker:
        """What is said of this run's failures goes through it."""
        return Masker({*self.secrets(side), *self._services.catalog.keys})

    def lacking(self, tool: Tool[..., Any]) -> str:
        """Why a tool cannot be called: what it requires is not set; else empty."""
        required = [each.name for each in tool.variables if each.required]
        unset = [name for name in required if self.find(name) is None]
        return f"{tool.name} cannot run: {', '.join(unset)} is not set" if unset else ""

    def is_enabled(self, name: str) -> bool:
        """Whether a variable that gates a branch enables it."""
        return is_true(self.find(name))

    def set(self, name: str, value: str) -> None:
        """Give this run, and what is below it, a value; raises ``BadValue``."""
        check_label("name", name)
        for problem in env_problems("env", {name: value}):
            raise BadValue("set_env", problem)
        addressing = self._services.hub.addressing
        before = self.find(name)
        if before is not None and before != value:
            addressing.remember_replaced(self._run_id, name, before)
        addressing.put_value(self._run_id, name, value)

    def __getitem__(self, name: str) -> str:
        value = self.find(name) if isinstance(name, str) else None
        if value is None:
            raise KeyError(
                f"{name}: the variable is not set; open the run with it (env), also one that is "
                "there, or give it by set_env or the env of the agent, the prompt or the runtime"
            )
        return value

    def __iter__(self) -> Iterator[str]:
        addressing = self._services.hub.addressing
        names = dict.fromkeys(addressing.names(self._run_id))
        for run_id, _ in self._ancestors:
            names.update(dict.fromkeys(addressing.names(run_id)))
        definition = self._services.definitions.find_agent(self._agent)
        for env in (definition.env if definition else {}, self._prompt_env, self._services.env):
            names.update(dict.fromkeys(env))
        return (name for name in names if self.find(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Environment {', '.join(self)}>"
