"""What a server is given as a secret, and says wherever it can: it shows nowhere."""

import io
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from support.mcp_raw import RawServer
from support.mcp_servers import Results, mcp_agent

from hubbub import Runtime, ScriptedModel, Secret, mcp
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.spec("L-09")]

SECRET = "tok-6f1d9a-not-to-be-seen"

PROGRAM = """
import json, os, sys
secret, how = os.environ["TOKEN"], sys.argv[1]

def say(id_, **said):
    print(json.dumps({"jsonrpc": "2.0", "id": id_, **said}), flush=True)

print("configured with", secret, flush=True)
print("configured with", secret, file=sys.stderr, flush=True)
if how == "exits":
    sys.exit(f"cannot use {secret}")
if how == "is cut":
    print("x" * 180 + secret, flush=True)
    sys.stderr.write(secret + "y" * 1_988)
    sys.exit(1)
for line in sys.stdin:
    asked = json.loads(line)
    method, id_ = asked.get("method"), asked.get("id")
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": secret, "version": secret}
        say(id_, result={"protocolVersion": version, "capabilities": {}, "serverInfo": info})
        print(json.dumps({"jsonrpc": "2.0", "method": secret}), flush=True)
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed",
                          "params": {"_meta": secret}}), flush=True)
    elif method == "tools/list":
        tools = [{"name": "act", "inputSchema": {"type": "object"}}, {"name": secret},
                 {"name": "bad", "inputSchema": secret}]
        say(id_, result={"tools": tools})
    elif method == "tools/call":
        if how == "refuses":
            say(id_, error={"code": 1, "message": f"{secret} is not valid"})
        elif how == "lies":
            say(id_, result=secret)
        elif how == "babbles":
            while True:
                print("trying", secret)
        else:
            os._exit(1)
    elif id_ is not None:
        say(id_, error={"code": -32601, "message": secret})
"""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Processes live in the machine's own time."""
    found: str = request.param
    return found


@pytest.mark.parametrize("how", ["exits", "is cut", "refuses", "lies", "babbles", "dies"])
async def test_a_secret_that_a_command_prints_shows_nowhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    logged = io.StringIO()
    handler = logging.StreamHandler(logged)
    logging.getLogger().addHandler(handler)
    program = tmp_path / "server.py"
    program.write_text(PROGRAM)
    server = mcp(
        [sys.executable, "-P", str(program), how], name="it", env={"TOKEN": Secret(SECRET)}
    )
    model = ScriptedModel([call("it_act"), "Done."])
    said: list[Any] = [repr(server), str(server)]
    try:
        async with Runtime([mcp_agent(model, server)], store="memory") as rt:
            rt.hub.subscribe("*", lambda event: said.append(repr(event)))
            outcome = await rt.run("helper", "Go.")
            said += [repr(outcome), repr(rt.mcp_servers), repr(rt), json.dumps(outcome.output)]
            said += map(repr, await rt.hub.read(outcome.run_id))
            assert how in ("exits", "is cut") or rt.mcp_servers[0].left_out
    finally:
        logging.getLogger().removeHandler(handler)
    out = capfd.readouterr()
    said += [logged.getvalue(), out.out, out.err]
    assert len(said) > 8
    parts = SECRET, SECRET[:8], SECRET[-8:]
    assert not [text for text in said if any(part in text for part in parts)]


async def test_a_secret_in_a_list_shows_in_no_reason(ports: Any) -> None:
    server = RawServer(page=lambda cursor: {"tools": [{"name": SECRET}], "nextCursor": [SECRET]})
    given = mcp(server, name="it", env={"TOKEN": Secret(SECRET)})
    agent = mcp_agent(ScriptedModel(["Done."]), given)
    async with Runtime([agent], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert len(rt.mcp_servers[0].left_out) == 2
        assert SECRET not in repr(rt.mcp_servers)
        assert not results.errors
