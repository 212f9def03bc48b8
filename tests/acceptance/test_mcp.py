"""The suite of MCP's own project for clients, unmodified, against a hub with an MCP server."""

import json
import shlex
import sys
from pathlib import Path
from typing import Final

import pytest
from support.node import Node

pytestmark = [pytest.mark.long, pytest.mark.spec("L-09")]

CLIENT: Final = Path(__file__).parent / "mcp_client.py"
SUITE: Final = "@modelcontextprotocol/conformance"

SCENARIOS: Final = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
)
"""All but those of OAuth, which hubbub leaves to whom gives it ``headers``, and of extensions."""

EXPECTED: Final = {
    # It has null for a flag whose schema allows none: a model is told so, the server is not asked.
    "http-custom-headers": {"sep-2243-client-omit-null"},
}
"""The checks that fail, and why.  May only shrink."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_client_scenario_passes(node: Node, scenario: str, tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-P", str(CLIENT)])
    done = node.command(
        SUITE, "client", "--command", command, "--scenario", scenario, "-o", str(tmp_path),
        "--timeout", "100000",
    )  # fmt: skip
    (found,) = tmp_path.glob("*/checks.json")
    checks = json.loads(found.read_text())
    failed = {each["id"] for each in checks if each["status"] in ("FAILURE", "WARNING")}
    assert checks, done.stdout
    assert failed == EXPECTED.get(scenario, set()), f"{done.stdout}\n{done.stderr}"


def test_no_scenario_is_left_out(node: Node) -> None:
    listed = node.command(SUITE, "list", "--client").stdout
    names = [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]
    others = {each for each in names if each.startswith("auth/") or "sep-2640-" in each}
    assert set(names) - others == set(SCENARIOS)
