"""A hub whose agent calls each tool of the MCP server at an address, once, and answers questions.

What the suite of clients runs: the address is the argument, the rest is in the environment.
"""

import json
import os
import sys
from typing import Any, Final

import anyio

from hubbub import Agent, FunctionModel, ModelReply, ModelRequest, Runtime, mcp
from hubbub.agents.model import AssistantMessage
from hubbub.hub.events import SessionPrompt
from hubbub.runtime.models.scripted import call, reply

CONTEXT: Final = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
IS_OLD: Final = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025") < "2026"


def value_of(schema: Any) -> Any:
    """A value that fits a schema: its default, where it has one."""
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: value_of(each) for name, each in schema.get("properties", {}).items()}
        case "array":
            return []
        case "string":
            return "test"
        case "boolean":
            return True
        case _:
            return 5


def calls(request: ModelRequest) -> ModelReply:
    """What the suite says is to be called, or one tool after the other."""
    replies = [each for each in request.messages if isinstance(each, AssistantMessage)]
    done = sum(len(each.calls) for each in replies)
    given = CONTEXT.get("toolCalls", ())
    if given and done < len(given):
        return reply("", call(f"it_{given[done]['name']}", **given[done]["arguments"]))
    if given or done >= len(request.tools):
        return reply("Done.")
    tool = request.tools[done]
    arguments = value_of(tool.schema)
    if "echo" in tool.name:  # It wants to see what has come of the other tool's schema.
        arguments = {"schema": request.tools[0].schema}
    return reply("", call(tool.name, **arguments))


async def main(address: str) -> None:
    server = mcp(address, name="it", timeout=20, protocol="2025" if IS_OLD else "2026")
    agent = Agent("caller", "You call.", model=FunctionModel(calls), tools=[server])
    async with Runtime([agent], store="memory") as rt:

        def answer(asked: SessionPrompt) -> None:
            schema = json.loads(bytes(asked.schema_json))
            rt.hub.reply(asked.prompt_id, json.dumps(value_of(schema)) if schema else "accept")

        rt.hub.subscribe(SessionPrompt, answer)
        await rt.run("caller", "Go.")


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])
