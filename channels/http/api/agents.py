"""The agents that can be started."""

from typing import Final

from msgspec import Struct

from hubbub.channels.http.api.messages import MessageBody, keyed
from hubbub.channels.http.api.views import AgentView
from hubbub.channels.http.wire.host import SOURCE
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.receipts import RECEIPTS, REJECTIONS, answer_of
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime
from hubbub.hub.near_misses import shown

__all__ = ["ROUTES", "AgentList"]


class AgentList(Struct, frozen=True):
    """Every agent of the runtime, in its order."""

    agents: tuple[AgentView, ...]


async def list_agents(call: HttpCall) -> HttpAnswer:
    """Every agent."""
    names = await ask_runtime(call.hub, "agents")
    return HttpAnswer(content={"agents": [await ask_runtime(call.hub, "agent", x) for x in names]})


async def show_agent(call: HttpCall) -> HttpAnswer:
    """One of them."""
    name = call.path["name"]
    found = await ask_runtime(call.hub, "agent", name)
    if found is None:
        raise Refusal("unknown-agent", f"there is no agent {shown(name)}")
    return HttpAnswer(content=found)


async def send_to_agent(call: HttpCall) -> HttpAnswer:
    """Send to the one live run of an agent."""
    name = call.path["name"]
    message = keyed(call, call.body)
    receipt = call.hub.send_to(name, message, source=SOURCE, request=call.request("agents", name))
    return await answer_of(receipt, unknown="unknown-agent")


ROUTES: Final = (
    Route(
        method="GET", path="/api/agents", summary="The agents", handler=list_agents,
        answers={200: AgentList}, problems=("no-runtime",),
    ),
    Route(
        method="GET", path="/api/agents/{name}", summary="An agent", handler=show_agent,
        answers={200: AgentView}, problems=("unknown-agent", "no-runtime"),
    ),
    Route(
        method="POST", path="/api/agents/{name}/messages",
        summary="Send a message to the one live run of an agent", handler=send_to_agent,
        body=MessageBody, is_keyed=True, answers=RECEIPTS,
        problems=("unknown-agent", "unknown-file", *REJECTIONS),
    ),
)  # fmt: skip
