"""The seed's example: a worker and a reviewer as one subagent, and who delegates to it (SA 8)."""

import anyio
import pytest

from hubbub import RunState, Runtime
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.activities.thread_state import foreign_state
from hubbub.runtime.demo.assets.agents import (
    agents,
    inspect_asset,
    offline_models,
    prompts,
    write_asset,
)
from hubbub.runtime.demo.assets.report import run_assets

pytestmark = pytest.mark.anyio


@pytest.mark.spec("C-01", "A-01", "S-02", "S-04", "S-05")
async def test_a_draft_is_sent_back_once_then_approved_and_the_parent_gets_its_own_copy(
    journal: Journal, ports: Ports
) -> None:
    events: list[Event] = []
    definitions = {"agents": agents(), "prompts": prompts(), "models": offline_models(0.1)}
    async with Runtime(**definitions, store=journal, ports=ports) as rt:  # type: ignore[arg-type]
        rt.hub.subscribe("*", events.append)
        run = await rt.start("director", "A tree.")
        with anyio.fail_after(60):
            outcome = await run.result()
        assert outcome.success and "passed review" in outcome.output
        (child,) = [event for event in events if isinstance(event, e.AgentChild)]
        turns = [event for event in events if isinstance(event, e.SessionTurn)]
        assert [(x.side, x.label, x.reason) for x in turns] == [
            ("side_b", "Reviewer", "response"),
            ("side_a", "Worker", "stop_tool"),
            ("side_b", "Reviewer", "response"),
        ]
        assert turns[1].content == "It is 24 × 24 pixels, not 32 × 32."
        statuses = [event.status for event in events if isinstance(event, e.AgentStatus)]
        assert statuses == ["sent back once"]
        mine = await foreign_state(rt.services, rt.others, run.run_id)
        theirs = await foreign_state(rt.services, rt.others, child.child_run_id)
        assert isinstance(mine, RunState) and isinstance(theirs, RunState)
        assert mine.files.list() == theirs.files.list() == ("tree.svg",)
        assert await mine.files.read("tree.svg") == await theirs.files.read("tree.svg")
        assert 'width="32"' in await mine.files.read_text("tree.svg")
        assert mine.children == (), "it was not resumable"


async def test_the_example_needs_nothing_but_a_call(ports: Ports) -> None:
    """(With the machine's own ports it runs in the command line's tests: no threads here, whose
    work takes no virtual time.)"""
    made = await run_assets(ports=ports)
    assert (made.outcome, made.rejections, list(made.files)) == ("completed", 1, ["tree.svg"])


async def test_what_is_no_picture_is_told_to_the_reviewer(ports: Ports) -> None:
    class Files:
        async def read_text(self, path: str) -> str:
            return texts[path]

    class State:
        files = Files()

    texts = {
        "none.svg": "no picture",
        "bomb.svg": '<!DOCTYPE x [<!ENTITY a "b">]><svg>&a;</svg>',
        "empty.svg": '<svg width="32" height="32"/>',
        "html.svg": "<html/>",
    }
    for path in texts:
        found = await inspect_asset.fn(path, State())  # type: ignore[arg-type]
        assert found["problems"], path
    assert write_asset.schema["required"] == ["path", "svg"]
