"""A hub with an app on it, and a client of the app."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import msgspec
from support.shared_stores import SharedPlace

from hubbub import Agent, Runtime, ScriptedModel, external_tool, tool
from hubbub.channels.http import HttpApp
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply

__all__ = ["PROCESSES", "client_of", "parsed", "served", "support"]

PROCESSES = [1]
"""With 2, what is served is a process that only carries channels, and another one runs agents."""


@tool(approval=True)
async def refund(order: int) -> str:
    """Pay back."""
    return f"refunded {order}"


PICK = external_tool(
    "pick", {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
)


def support(*script: Any) -> Agent:
    """An agent that asks before it pays back, and answers what else is said."""
    said = script or (reply("", call("refund", order=7)), "Done.", *["Hello."] * 50)
    return Agent("support", "You help.", model=ScriptedModel(list(said)), tools=[refund, PICK])


def client_of(app: HttpApp, host: str = "localhost") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{host}")


@asynccontextmanager
async def served(
    ports: Ports, *agents: Any, store: Any = "memory", **options: Any
) -> AsyncIterator[tuple[Runtime, HttpApp, httpx.AsyncClient]]:
    runs = [*(agents or (support(),))]
    async with AsyncExitStack() as stack:
        if PROCESSES[0] > 1 and store == "memory":
            place = SharedPlace(ports.clock)
            await stack.enter_async_context(Runtime(runs, store=place.journal(), ports=ports))
            kept = place.journal(is_worker=False)
            rt = Runtime(store=kept, ports=ports, role="channel")
        else:
            rt = Runtime(runs, store=store, ports=ports)
        app = HttpApp(rt.hub, **options)
        for each in (rt, app):
            await stack.enter_async_context(each)
        yield rt, app, await stack.enter_async_context(client_of(app))


def parsed(answer: httpx.Response, type_: Any) -> Any:
    """What is answered, which is of the documented form and holds nothing else."""
    found = msgspec.json.decode(answer.content, type=type_)
    again = msgspec.json.decode(msgspec.json.encode(found))
    assert again == _with_defaults(answer.json(), again)
    return found


def _with_defaults(given: Any, filled: Any) -> Any:
    """What was given, with what the type has by default; what it does not know stays and shows."""
    if isinstance(given, dict) and isinstance(filled, dict):
        return filled | {key: _with_defaults(x, filled.get(key)) for key, x in given.items()}
    if isinstance(given, list) and isinstance(filled, list) and len(given) == len(filled):
        return [_with_defaults(x, y) for x, y in zip(given, filled, strict=True)]
    return given
