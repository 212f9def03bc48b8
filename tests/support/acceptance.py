"""The agents that clients of others meet in ``tests/acceptance``."""

import json
from typing import Any, Final

from hubbub import FunctionModel, Usage
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest
from hubbub.runtime.models.scripted import call, reply
from support.agents import echo_model, heard, model_agent

__all__ = ["AGENTS"]

USAGE: Final = Usage(input_tokens=10, output_tokens=5)
SCHEMA: Final = "fits this schema, and nothing else:\n"


def probed(request: ModelRequest) -> ModelReply:
    """Calls the first tool that it is given, gives JSON where that is asked for, else repeats."""
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        return reply(f"The result is {last.calls[-1].output}.", usage=USAGE)
    told = request.messages[0]
    wanted = getattr(told, "content", "")
    if SCHEMA in wanted:
        schema = json.loads(wanted.rpartition(SCHEMA)[2])
        return reply(json.dumps(value_of(schema)), usage=USAGE)
    if "JSON object" in wanted:
        return reply('{"name": "Ada", "age": 36}', usage=USAGE)
    if request.tools and last.content != "(continue)":
        chosen = request.tools[0]
        arguments = value_of(chosen.schema)
        return reply("", call(chosen.name, **arguments), thinking="Which tool?", usage=USAGE)
    return reply(f"I heard: {', '.join(heard(request))}", usage=USAGE)


def value_of(schema: Any) -> Any:
    """A value that fits a simple JSON schema."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: value_of(each) for name, each in schema.get("properties", {}).items()}
        case "array":
            return []
        case "string":
            return "Paris"
        case "boolean":
            return True
        case _:
            return 2


AGENTS: Final = (
    model_agent(echo_model(latency=0), name="assistant"),
    model_agent(FunctionModel(probed), name="prober"),
)
"""``assistant`` answers with what it was told, ``prober`` does what suites ask of a model."""
