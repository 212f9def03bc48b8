"""A worker of a store that several processes share, for the benchmarks: agents that think.

    python tests/benchmarks/shared_worker.py STORE LOOP SECONDS

Its agent calls a tool each ``SECONDS``, for as long as it lives.  Ends when its input does.
"""

import sys

import anyio
import anyio.to_thread

from hubbub import AgentDefinition, PromptDefinition, Runtime, ScriptedModel, SideConfig, tool
from hubbub.runtime.models.scripted import call

__all__ = ["thinker"]

STEPS = 1000


@tool
async def note(text: str) -> str:
    """Take a note."""
    return f"{text}: noted"


def thinker(seconds: float) -> tuple[AgentDefinition, PromptDefinition]:
    """An agent that thinks for so long before each of its steps."""
    script = [call("note", text="what was thought of this time")] * STEPS
    model = ScriptedModel([*script, "Done."], latency=seconds)
    prompt = PromptDefinition(name="thinker", prompt="You think.", model=model, tools=[note])
    side = SideConfig(prompt="thinker", max_steps=STEPS + 1)
    return AgentDefinition(name="thinker", side_a=side), prompt


async def _work(store: str, seconds: float) -> None:
    agent, prompt = thinker(seconds)
    async with Runtime([agent], prompts=[prompt], store=store):
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    anyio.run(_work, sys.argv[1], float(sys.argv[3]), backend=sys.argv[2])
