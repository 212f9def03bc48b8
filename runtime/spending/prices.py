"""``PriceList``: what calls cost, and limits of cost for which a price is missing."""

from collections.abc import Iterable, Mapping

from hubbub.agents.model import Model
from hubbub.agents.model_choice import ModelChoice, named
from hubbub.agents.prices import Price
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.skill_agents import CALLERS_MODEL
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Limits, Usage
from hubbub.hub.logs import log
from hubbub.hub.near_misses import did_you_mean, shown

__all__ = ["PriceList"]


class PriceList:
    """The prices of one runtime, by the names that models are given by.

    Raises ``BadValue`` for what are no prices.
    """

    __slots__ = ("_prices", "_unknown", "is_known")

    def __init__(self, prices: Mapping[str, Price] | None = None) -> None:
        if prices is not None and not isinstance(prices, Mapping):
            raise BadValue("prices", f"expected a mapping, not {type(prices).__name__}")
        for name, price in (prices or {}).items():
            if not isinstance(name, str):
                raise BadValue("prices", f"expected names of models, not {shown(name)}")
            if not isinstance(price, Price):
                problem = f"expected Price(input=…, output=…), not {shown(price)}"
                raise BadValue(f"prices[{name!r}]", problem)
        self._prices = dict(prices or {})
        self._unknown: set[str] = set()
        """The models with a price of which it has been said that they report no usage."""
        self.is_known = bool(prices)
        """Whether there are any prices."""

    def price_of(self, model: str | Model) -> Price | None:
        """The price of a model as a prompt names it, or of a ``Model`` by its own name."""
        return self._prices.get(named(model))

    def nanos(self, model: str | Model, usage: Usage, *, cached_apart: bool) -> int | None:
        """What a call of a model has cost, in billionths; ``None`` where it has no price.

        So where the provider reports no usage, unless the model costs nothing.  That is said once.
        """
        price = self.price_of(model)
        cost = None if price is None else price.nanos(usage, cached_apart=cached_apart)
        if cost is None and price is not None:
            self._say_unknown(named(model))
        return cost

    def _say_unknown(self, model: str) -> None:
        if model not in self._unknown:
            self._unknown.add(model)
            log.warning(
                "usage.unknown", model=model,
                reason="its answers come without usage, so their cost is not known and no limit of "
                "tokens or cost is reached by them; bound it by model_calls and seconds",
            )  # fmt: skip

    def missing(self, choices: Iterable[ModelChoice]) -> Iterable[str]:
        """What is wrong with a limit of cost for what such models use."""
        for each in choices:
            name = named(each.model)
            if each.model != CALLERS_MODEL and name not in self._prices:
                hint = did_you_mean(name, self._prices)
                yield (
                    f"a limit of cost needs a price for {name}{hint or ';'} "
                    f"give Runtime(prices={{{name!r}: Price(input=…, output=…)}})"
                )

    def problems(self, definitions: Definitions, tree: Limits | None) -> Iterable[str]:
        """What is wrong with the limits of cost of a runtime, each with its path."""
        has_cost = tree is not None and tree.cost is not None
        if has_cost and not self._prices:
            yield "limits.cost: give Runtime(prices=…), without which no cost is known"
            return
        seen: set[tuple[str, str]] = set()
        for (agent, which), side in definitions.sides.items():
            of_run = definitions.agent(agent).run_limits
            if side.prompt.limits is not None and side.prompt.limits.cost is not None:
                path = f"agents.{agent}.{which}.limits.cost"
                place = f"agents.{agent}.{side.prompt.name}"  # A side's frame has its prompt, too.
            elif of_run is not None and of_run.cost is not None:
                path = place = f"agents.{agent}.run_limits.cost"
            elif has_cost:
                path = place = "limits.cost"
            else:
                continue
            for problem in self.missing(side.choices):
                if (place, problem) not in seen:
                    seen.add((place, problem))
                    yield f"{path}: {problem}"
