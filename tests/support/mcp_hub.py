"""A program: a hub whose agent calls a tool of an MCP server, in a process that may be killed.

Its arguments: the store's folder, the run's key, the program of the server, the event loop.  It
prints what the call came to, once the run is over.
"""

import sys

import anyio

from hubbub import Agent, Runtime, ScriptedModel, mcp
from hubbub.hub.events import AgentToolComplete
from hubbub.runtime.models.scripted import call


async def main(store: str, key: str, program: str) -> None:
    command = [sys.executable, "-P", program]
    # Two: what one inherits must not keep the other's input open.
    servers = [mcp([*command, name], name=name) for name in ("it", "other")]
    model = ScriptedModel([call("it_wait"), "Done."])
    agent = Agent("helper", "You help.", model=model, tools=servers)
    async with Runtime([agent], store=f"sqlite:{store}") as rt:
        found = await rt.find(key)
        run = found if found is not None else await rt.start("helper", "Go.", session_key=key)
        await run.result()
        for event in await rt.hub.read(run.run_id):
            if isinstance(event, AgentToolComplete):
                print(event.output)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:4], backend=sys.argv[4])
