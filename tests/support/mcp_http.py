"""A program that is an MCP server over HTTP, on a socket that it inherits, or over "stdio"."""

import sys

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel


class Size(BaseModel):
    size: str


def server() -> MCPServer:
    made = MCPServer("shop")

    @made.tool()
    async def echo(word: str) -> str:
        """Say it again."""
        return word

    @made.tool()
    async def token(context: Context) -> str:
        """The caller's token."""
        return context.request_context.request.headers.get("authorization", "none")

    @made.tool()
    async def unlock(context: Context) -> str:
        """Show another tool."""

        async def opened() -> str:
            return "found"

        made.add_tool(opened, name="opened")
        await context.notify_tools_changed()
        # Those who speak the older protocol do not hear that.
        await context.session.send_tool_list_changed()
        return "unlocked"

    @made.tool()
    async def order(context: Context) -> str:
        """Ask in the middle of the call."""
        found = await context.elicit("About your order", Size)
        return f"{found.action} {found.data.size}" if found.action == "accept" else found.action

    @made.tool()
    async def hurry(context: Context) -> str:
        """Ask, take that back, and ask something else."""
        try:
            with anyio.fail_after(0.1):
                await context.elicit("Quick: A?", Size)
        except TimeoutError:
            found = await context.elicit("Then B?", Size)
            return f"B {found.data.size}" if found.action == "accept" else found.action
        return "A"

    @made.tool()
    async def wait() -> str:
        """Never answer."""
        await anyio.sleep_forever()
        return ""

    return made


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server().run("stdio")
        sys.exit()
    app = server().streamable_http_app()
    uvicorn.run(app, fd=int(sys.argv[1]), log_level="warning")
