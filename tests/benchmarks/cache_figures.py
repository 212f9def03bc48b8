"""What share of its input a long conversation need not pay for in full, as a provider's cache has
it: a figure without a clock."""

import sys
from collections import defaultdict
from pathlib import Path

from figures import Aim, Figure, Loop, on_loop

from hubbub import AgentDefinition, FunctionModel, ModelReply, ModelRequest, Runtime, tool
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.runtime.models.scripted import call, reply

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.cached_prefix import BODIES, head_of, stable_text, text_of
from support.families import child, config, parent

__all__ = ["cached", "shares_of_conversation"]

EACH_CHILD = 5
"""Every so many turns a child is given work."""


@tool
async def look_up(order: int) -> str:
    """Look up an order by its number."""
    return f"Order {order}: shipped on Monday, expected on Thursday, carrier DHL, two parcels."


class _Conversation:
    """A desk with a tool and children that stay, and all that their models are asked."""

    def __init__(self) -> None:
        self.requests = defaultdict[str, list[ModelRequest]](list)

    def agents(self) -> list[AgentDefinition]:
        desk = parent(FunctionModel(self._desk), look_up, config(blocking=True, stays=True))
        return [desk, child(FunctionModel(self._helper))]

    def _desk(self, request: ModelRequest) -> ModelReply:
        self.requests[request.cache_key].append(request)
        last = request.messages[-1]
        if not isinstance(last, UserMessage):
            return reply("It was shipped on Monday and should be with you on Thursday.")
        turn = sum(isinstance(each, UserMessage) for each in request.messages)
        if turn % EACH_CHILD:
            return reply("Let me see.", call("look_up", order=turn))
        task = {"message": f"Find out where parcel {turn} is, and why it is late."}
        return reply(
            "", call("subagent_create", agent="helper", name=f"parcel {turn}", arguments=task)
        )

    def _helper(self, request: ModelRequest) -> ModelReply:
        self.requests[request.cache_key].append(request)
        asked = sum(isinstance(each, AssistantMessage) for each in request.messages)
        if asked % 3 == 2:
            return reply("", call("finish", result="It is at the customs office, one day late."))
        return reply("", call("report", status=f"asked {asked + 1} of 2 offices"))


async def shares_of_conversation(turns: int) -> dict[str, float]:
    """By provider, the share of the input that had been read in the request before; of a first
    request, tools and system prompt may have been read in another conversation."""
    conversation = _Conversation()
    async with Runtime(conversation.agents(), store="memory", max_spawns=turns) as runtime:
        run = await runtime.start("main", "Where is my order?", session_key="desk")
        for turn in range(2, turns + 1):
            await run.ask(f"And what about order number {turn}, which I bought last week?")
    return {provider: _share(provider, conversation.requests) for provider in BODIES}


def _share(provider: str, conversations: dict[str, list[ModelRequest]]) -> float:
    total = served = 0
    heads = set[str]()
    for requests in conversations.values():
        kept = ""
        for request in requests:
            body = BODIES[provider](request)
            text, head = text_of(body), head_of(body)
            total += len(text)
            served += max(len(known) for known in (kept, *heads & {head}) if text.startswith(known))
            kept = stable_text(provider, request)
            heads.add(head)
    return served / total


def cached(loop: Loop, rounds: int, scale: float) -> Figure:
    turns = max(10, int(200 * scale))
    shares = on_loop(loop, shares_of_conversation, turns)
    each = ", ".join(f"{provider} {100 * share:.1f}" for provider, share in shares.items())
    return Figure(
        what=f"input that a prefix cache serves, {turns} turns with tools and children",
        loop=loop, unit="%", value=100 * min(shares.values()), aim=Aim(">=", 95),
        note=f"characters of the requests' bodies; {each}",
    )  # fmt: skip
