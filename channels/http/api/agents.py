"""The agents that can be started."""

from typing import Final

from msgspec import Struct

from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime

__all__ = ["ROUTES", "AgentList", "AgentView"]


class AgentView(Struct, frozen=True, kw_only=True):
    """An agent: what it is called and what it does."""

    name: str
    title: str = ""
    description: str = ""


class AgentList(Struct, frozen=True):
    """Every agent of the runtime, in its order."""

    agents: tuple[AgentView, ...]


async def list_agents(call: HttpCall) -> HttpAnswer:
    """Every agent."""
    names = await ask_runtime(call.hub, "agents")
    return HttpAnswer(content={"agents": [await _agent(call, name) for name in names]})


async def show_agent(call: HttpCall) -> HttpAnswer:
    """One of them."""
    name = call.path["name"]
    found = await _agent(call, name)
    if found is None:
        raise Refusal("unknown-agent", f"there is no agent {name!r}")
    return HttpAnswer(content=found)


async def _agent(call: HttpCall, name: str) -> object:
    return await ask_runtime(call.hub, "agent", name)


ROUTES: Final = (
    Route(
        method="GET", path="/api/agents", summary="The agents", handler=list_agents,
        answers={200: AgentList}, problems=("no-runtime",),
    ),
    Route(
        method="GET", path="/api/agents/{name}", summary="An agent", handler=show_agent,
        answers={200: AgentView}, problems=("unknown-agent", "no-runtime"),
    ),
)  # fmt: skip
