"""``hubbub export --state`` says what ``state.json`` says, at every rest of a conversation."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from support.frames import KEY, complete, frame, open_runtime, use

from hubbub import AgentDefinition, Runtime
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.folder_export import export_state
from hubbub.runtime.models.scripted import ScriptedModel, call
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("I-11")]

Open = Callable[[], Runtime]

LINES = ("write", "this", "b", "well", "yes", "on", "and")
"""One frame and then two; a pause over a question, and its answer; and the frames are gone."""


@pytest.fixture
def open_store(tmp_path: Path, ports: Ports) -> Open:
    ask = call("interrupt", prompt="Which one?", options=["a", "b"])
    scripts = {
        "main": [use("writer"), "Done.", "And more."],
        "writer": [use("research"), "Is this right?", complete("written")],
        "research": ["Which?", ask, "That one.", complete("found")],
    }
    below = {"main": ("writer",), "writer": ("research",)}
    agents: list[AgentDefinition] = [
        frame(
            ScriptedModel(script), name=name, agents=below.get(name, ()),
            supports_checkpointing=name == "research",
        )
        for name, script in scripts.items()
    ]  # fmt: skip
    return lambda: open_runtime(*agents, journal=sqlite_store(tmp_path, ports=ports), ports=ports)


def assert_same(folder: Path) -> None:
    """Of every run."""
    runs = sorted((folder / "agents").iterdir())
    assert len(runs) == 3
    with open_reader(f"sqlite:{folder}") as store:
        for run in runs:
            shown = (run / "state.json").read_bytes()
            assert export_state(store, run.name) == shown


async def say(runtime: Runtime, line: str) -> None:
    """Say ``line``, or answer with it, and wait until the folders show what came of it."""
    past = await runtime.hub.read()
    asked = {x.prompt_id for x in past if isinstance(x, e.SessionPrompt)}
    asked -= {x.prompt_id for x in past if isinstance(x, e.SessionReply)}
    for prompt_id in asked:
        assert (await runtime.hub.reply(prompt_id, line)).accepted
    if not asked:
        assert (await runtime.hub.open("main", line, session_key=KEY)).accepted
    await anyio.sleep(1)
    await runtime.hub.journal.projected()  # type: ignore[attr-defined]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_state_is_exported_as_its_file_has_it(
    restarts: bool, open_store: Open, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_store())
        for line in LINES:
            if restarts and line != LINES[0]:
                await stack.aclose()
                assert_same(tmp_path)
                runtime = await stack.enter_async_context(open_store())
            await say(runtime, line)
            assert_same(tmp_path)
        told = [x.text for x in await runtime.hub.read() if isinstance(x, e.AgentText)]
        assert told == ["Which?", "That one.", "Is this right?", "Done.", "And more."]
    assert_same(tmp_path)
