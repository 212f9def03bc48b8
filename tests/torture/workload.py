"""What the process that is killed does: agents whose every effect can be counted afterwards.

A message to ``lead`` is a list of orders, ``what#name``; the model carries them out one after
another, each by one tool call, and says ``done`` and the names.  What it does next follows from
the conversation alone, so it needs no memory of its own.
"""

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
from support.families import child, config, parent

from hubbub import (
    Agent,
    AgentDefinition,
    FunctionModel,
    ModelRequest,
    RunContext,
    RunState,
    VariableDefinition,
    tool,
)
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.runtime.models.scripted import call

__all__ = [
    "GUIDE", "ORDERS", "SCHEDULED", "SECRET", "TICKED", "WITH_USERS", "Effects", "agents",
    "secret_of",
]  # fmt: skip

GUIDE = "guide"
WITH_USERS = ("approved", "asked", "sealed", GUIDE)
"""Orders beside ``ORDERS`` in which users have a part: somebody has to approve or to answer a
question, has given a secret, or converses with another agent that takes the conversation over."""

ORDERS = ("risky", "safe", "file", "value", "waiter", "stayer", "goer", "roamer")
"""The last four are children: waited for or not, gone when they are done or not."""

SECRET = "TOKEN"
SCHEDULED = "ticker"
TICKED = "tick"
"""What the schedule has its agent do, safely."""

_ORDER = re.compile(rf"\b({'|'.join((*ORDERS, *WITH_USERS))})#(\w+)")


def secret_of(name: str) -> str:
    """What the user knows whose orders have such names: their first letters and digits."""
    user = re.match(r"[a-z]+[0-9]+", name)
    assert user is not None
    return f"secret_of_{user[0]}"


class Effects:
    """What tools did to the world: lines at the end of a file, flushed one by one."""

    def __init__(self, path: Path, *, flushes: bool = True) -> None:
        self._path = path
        self._flushes = flushes

    async def leave(self, what: str, name: str) -> None:
        """Have an effect, and take a moment before and after, in which to be killed."""
        await anyio.sleep(0.003)
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{what} {name}\n".encode())
            if self._flushes:
                os.fsync(file)
        finally:
            os.close(file)
        await anyio.sleep(0.003)


def agents(effects: Effects, tell: Callable[..., None]) -> list[AgentDefinition]:
    """Everybody; ``tell`` reports what has been acknowledged."""

    @tool
    async def risky(name: str) -> str:
        """Must not be done twice."""
        await effects.leave("risky", name)
        return f"did {name}"

    @tool(approval=True)
    async def approved(name: str) -> str:
        """Must not be done twice, nor unless it is approved."""
        await effects.leave("risky", name)
        return f"did {name}"

    @tool(idempotent=True)
    async def safe(name: str, state: RunState) -> str:
        """May be done twice."""
        if name == TICKED:  # Each run that the schedule opens is told the same.
            name = f"{name}@{state.run_id}"
        await effects.leave("safe", name)
        return f"did {name}"

    @tool(idempotent=True)
    async def file(name: str, state: RunState) -> str:
        """Write a file."""
        await state.files.write(f"{name}.txt", name * 50)
        return f"wrote {name}"

    @tool(idempotent=True)
    async def value(name: str, state: RunState) -> str:
        """Keep a value."""
        await state.kv.set(name, name)
        return f"kept {name}"

    @tool(idempotent=True)
    async def asked(name: str, state: RunState) -> str:
        """Has somebody say something."""
        return f"heard {await state.ask(name)}"

    @tool(idempotent=True, variables=[VariableDefinition(name=SECRET)])
    async def sealed(name: str, state: RunState) -> str:
        """Knows the secret that its run was given."""
        return f"{'knows' if state.env.get(SECRET) == secret_of(name) else 'lacks'} {name}"

    async def clerk(input: Any, ctx: RunContext) -> Any:
        ctx.set_env(SECRET, f"secret of {ctx.run_id}")
        done = []
        for number in range(4):
            step = f"{input}s{number}"
            name = await ctx.step(step, _did, effects, step)
            tell("step", ctx.run_id, step, name)
            done.append(name)
        helper = ctx.spawn("waiter", {"message": f"{input}h"})
        outcome = await helper.result()
        await ctx.kv.set("done", done)
        tell("secret", ctx.run_id, ctx.env[SECRET].replace(" ", "_"))
        async for message in ctx.messages(idle_timeout=0.05):
            ctx.say(message.content)
        return [*done, outcome.output]

    def helper(name: str) -> AgentDefinition:
        return child(FunctionModel(_work, latency=0.004), safe, name=name)

    return [
        parent(
            FunctionModel(_lead, latency=0.004), risky, safe, file, value, approved, asked, sealed,
            config("waiter"), config("goer", blocking=False),
            config("stayer", stays=True, max_instances=50),
            config("roamer", blocking=False, stays=True, max_instances=50),
            name="lead", agents=(GUIDE,),
        ),
        *map(helper, ORDERS[4:]),
        Agent(GUIDE, "You guide.", model=FunctionModel(_guide, latency=0.004), expose_as_tool=True),
        AgentDefinition(name="clerk", execute=clerk, on_restart="resume"),
        parent(FunctionModel(_lead, latency=0.002), safe, name=SCHEDULED),
    ]  # fmt: skip


async def _did(effects: Effects, name: str) -> str:
    await effects.leave("step", name)
    return name


def _lead(request: ModelRequest) -> Any:
    """The first order that has not been given to a tool."""
    made = {name for c in _calls(request) for name in [_name_in(c.arguments)]}
    orders = [order for text in _heard(request) for order in _ORDER.findall(text)]
    for what, name in orders:
        if name not in made:
            if what in ("stayer", "roamer"):
                message = {"message": name}
                return call("subagent_create", agent=what, name=name, arguments=message)
            if what == GUIDE:
                return call("use_agent", name=GUIDE, message=name)
            return call(what, **{"message" if what in ORDERS[4:] else "name": name})
    return " ".join(["done", *(name for _, name in orders)])


def _work(request: ModelRequest) -> Any:
    """A child's side A: an effect for each message, then the result."""
    name = _heard(request)[-1]
    if not any(_name_in(c.arguments) == f"{name}c" for c in _calls(request)):
        return call("safe", name=f"{name}c")
    return call("finish", result=f"finished {name}")


def _guide(request: ModelRequest) -> Any:
    """Wants to know one thing more of the user, whatever that is."""
    name, *more = _heard(request)
    return call("complete", result=f"finished {name}") if more else f"{name}?"


def _calls(request: ModelRequest) -> Iterable[Any]:
    return [c for m in request.messages if isinstance(m, AssistantMessage) for c in m.calls]


def _heard(request: ModelRequest) -> list[str]:
    return [m.content for m in request.messages if isinstance(m, UserMessage)]


def _name_in(arguments: str) -> str:
    given = json.loads(arguments)
    given = given.get("arguments", given)
    return str(given.get("message", given.get("name", "")))
