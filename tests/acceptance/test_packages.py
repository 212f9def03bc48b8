"""What the clients of others need is there: Node, their packages and a hub on either server."""

from pathlib import Path

import pytest
from support.node import Node
from support.served import ServedHub

pytestmark = pytest.mark.long

HERE = Path(__file__).parent


def test_the_packages_load_and_reach_the_hub(node: Node, hub: ServedHub) -> None:
    assert node.run(HERE / "packages.mjs", hub.url) == {
        "health": {"status": "ok"},
        "base": f"{hub.url}/v1",
    }


def test_the_suite_of_open_responses_says_which_it_is(node: Node) -> None:
    assert node.command("llmprobe", "--version").stdout.strip() == "0.6.12"
