"""docs/http.md names everything that there is, and what it says in a shell is what happens."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.served import served_hub

from hubbub import Runtime
from hubbub.channels.http import HttpApp
from hubbub.channels.http.wire.problem_kinds import KINDS

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text()
PROGRAM = re.search(r"```python\n# shop\.py\n(.*?)```", PAGE, re.DOTALL)
SHELL = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)

WITNESS = """curl() { command curl -w '%{stderr}%{http_code} %{url_effective}\\n' "$@"; }
"""


def test_the_page_names_every_route_and_every_kind_of_problem() -> None:
    routes = HttpApp(Runtime([], store="memory").hub, token="t").routes
    paths = {
        (route.method.replace("WEBSOCKET", "GET"), route.path.replace(":path}", "}"))
        for route in routes
        if route.is_documented and route.path not in ("/", "/inspector/{name:path}")
    }
    named = {
        (method, path.partition("?")[0])
        for method, path in re.findall(r"`(GET|POST|PUT|DELETE) (/[^`]*)`", PAGE)
    }
    named |= {("GET", "/ready")}
    assert paths - named == set()
    assert {kind for kind in KINDS if f"`{kind}`" not in PAGE} == set()


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_shell_commands_of_the_page_do_what_they_say() -> None:
    assert PROGRAM is not None and SHELL is not None
    space: dict[str, Any] = {}
    exec(PROGRAM[1], space)
    with served_hub([space["support"]], "asyncio", "uvicorn") as site:
        script = SHELL[1].replace("localhost:8700", site.url.removeprefix("http://"))
        script = script.replace("PROMPT=", "sleep 0.5\nPROMPT=").replace(
            "RUN=$", "sleep 0.5\nRUN=$"
        )
        done = subprocess.run(
            ["bash", "-c", WITNESS + script], capture_output=True, text=True, timeout=60
        )
    statuses = re.findall(r"^(\d{3}) http", done.stderr, re.MULTILINE)
    assert len(statuses) == len(re.findall(r"\bcurl -s", SHELL[1]))
    assert set(statuses[:-1]) <= {"200", "202"}, done.stderr
    assert statuses[-1] in ("202", "409"), "the run was being closed already"
    for said in (
        '"status":"duplicate"', "10.00 paid back for A7", '"in/orders.csv"', "order,amount",
        "event: agent:text", "replay_recording", '"agent:text"',
    ):  # fmt: skip
        assert said in done.stdout, said
