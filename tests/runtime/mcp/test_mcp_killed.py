"""A process that is killed while a server of its works on a call."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.spec("P-10", "L-09"),
    pytest.mark.skipif(sys.platform == "win32", reason="no kill -9 there"),
]

HUB = Path(__file__).parents[2] / "support" / "mcp_hub.py"

SERVER = """
import json, sys
name = sys.argv[1]

def note(word):
    with open({log!r}, "a") as log:
        log.write(name + " " + word + "\\n")

def say(id_, **said):
    print(json.dumps({{"jsonrpc": "2.0", "id": id_, **said}}), flush=True)

note("started")
for line in sys.stdin:
    asked = json.loads(line)
    method, id_ = asked.get("method"), asked.get("id")
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {{"name": "x", "version": "1"}}
        say(id_, result={{"protocolVersion": version, "capabilities": {{}}, "serverInfo": info}})
    elif method == "tools/list":
        say(id_, result={{"tools": [{{"name": "wait", "inputSchema": {{"type": "object"}}}}]}})
    elif method == "tools/call":
        note("called")
    elif id_ is not None:
        say(id_, error={{"code": -32601, "message": "unknown"}})
note("ended")
"""


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_call_under_way_when_its_process_was_killed_is_told_as_lost(
    tmp_path: Path, backend: str
) -> None:
    log, program = tmp_path / "log", tmp_path / "server.py"
    program.write_text(SERVER.format(log=str(log)))
    log.touch()
    arguments = [str(tmp_path / "store"), "one", str(program), backend]
    command = [sys.executable, "-P", str(HUB), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        try:
            eventually(lambda: "it called" in log.read_text() or first.poll() is not None)
        finally:
            first.kill()
    # Both servers see the end of their input, and go.
    eventually(lambda: {"it ended", "other ended"} <= set(log.read_text().splitlines()))
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "it may or may not have had its effect" in again.stdout
    assert log.read_text().splitlines().count("it called") == 1
