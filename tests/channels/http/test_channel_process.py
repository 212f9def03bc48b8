"""What the face over HTTP does where another process runs the agents: what it always does.

The tests are those of other files; the app is on a runtime without definitions, which drives
nothing, and a worker beside it on the same store has no face.
"""

from typing import Any, Final

import http_apps
import pytest
import test_api
import test_app
import test_attachments
import test_every_route
import test_limits_of_trees
import test_outputs
import test_parts
import test_repeating
import test_snapshots
import test_values_of_openings
import test_variables

pytestmark = [pytest.mark.anyio, pytest.mark.long]

MODULES: Final = (
    test_api, test_app, test_attachments, test_every_route, test_limits_of_trees, test_outputs,
    test_parts, test_repeating, test_snapshots, test_values_of_openings, test_variables,
)  # fmt: skip

OTHERWISE: Final = {
    "test_an_opening_that_cannot_be_meant_is_refused":
        "a process without definitions opens whatever agent is named: its worker may yet come",
    "test_prompts_are_listed_and_the_first_answer_counts":
        "what an approved call takes is known where its tool is, and its run says so",
    "test_what_are_no_limits_is_refused": "what models cost is known to workers only",
    "test_numbers_of_events_are_ones_that_a_browser_has_exactly":
        "of an answer that is there at once no pieces are sent to other processes",
}  # fmt: skip
"""Tests of which something is otherwise there, and why."""


@pytest.fixture(autouse=True)
def _two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_apps, "PROCESSES", [2])


def _tests() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in MODULES:
        for name, each in vars(module).items():
            if name.startswith("test_") and callable(each) and name not in OTHERWISE:
                assert name not in found, name
                found[name] = each
    return found


globals().update(_tests())
