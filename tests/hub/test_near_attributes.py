"""Who looks for something at the wrong place, or by nearly its name, is told where it is."""

import pickle
from copy import copy

import pytest

from hubbub import Agent, Hub, Runtime, ScriptedModel
from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.errors import BadPattern, DefinitionError
from hubbub.hub.ports import Ports

pytestmark = pytest.mark.anyio


async def test_a_run_says_where_its_output_is(ports: Ports) -> None:
    agent = Agent("a", "You help.", model=ScriptedModel(["hello"]))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        run = await rt.start("a", "hi")
        for name, where in (
            ("output", "write (await run.result()).output"),
            ("id", "write run.run_id"),
            ("status", "write (await rt.state_at(run.run_id)).status"),
            ("sned", "did you mean 'send'?"),
        ):
            with pytest.raises(AttributeError) as raised:
                getattr(run, name)
            assert str(raised.value) == f"'Run' object has no attribute {name!r}; {where}"
        outcome = await run.result()
        for name, where in (("text", r"write outcome\.output"), ("sesion", "mean 'session'")):
            with pytest.raises(AttributeError, match=f"no attribute {name!r}; .*{where}"):
                getattr(outcome, name)
        assert not hasattr(run, "__len__") and not hasattr(outcome, "zzz")
        assert copy(outcome) == outcome and pickle.loads(pickle.dumps(outcome)) == outcome


@pytest.mark.parametrize(
    ("option", "meant"), [("modl", "model"), ("tols", "tools"), ("outptu", "output")]
)
def test_an_option_of_an_agent_that_is_nearly_one_is_named(option: str, meant: str) -> None:
    with pytest.raises(DefinitionError, match=f"{option}: .*did you mean {meant!r}"):
        Agent("a", "b", model=ScriptedModel([]), **{option: 1})  # type: ignore[call-overload]


@pytest.mark.parametrize("pattern", ["agent.text", "agent_text", "AgentText", "agent/text"])
async def test_a_type_with_other_signs_between_its_words_is_refused(
    pattern: str, ports: Ports
) -> None:
    async with Hub(ports=ports) as hub:
        with pytest.raises(BadPattern, match="no event has such a type; did you mean 'agent:text'"):
            hub.subscribe(pattern)
    assert Patterns("shop.order").match("shop.order")
