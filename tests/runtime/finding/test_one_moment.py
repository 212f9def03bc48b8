"""What is looked at in a store is of one moment, also where a run takes something meanwhile."""

from pathlib import Path
from threading import Event
from typing import Any

import anyio
import anyio.to_thread
import pytest
from support.agents import echo_model, model_agent

from hubbub import Runtime
from hubbub.runtime.finding import looks
from hubbub.runtime.stores.open import open_reader

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-07")]


async def test_a_file_is_found_while_its_run_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what is the run's and what waits for it, it was in neither."""
    is_read, is_taken, replay = Event(), Event(), looks.replay

    def slow(*args: Any) -> Any:
        found = replay(*args)
        is_read.set()
        assert is_taken.wait(60)
        return found

    agents = [model_agent(echo_model(), name="bot")]
    store = f"sqlite:{tmp_path / 'store'}"
    async with Runtime(agents, store=store) as rt:
        run = await rt.start("bot", session_key="chat")
        await run.result()
        assert (await rt.hub.ask("runtime", f"put {run.run_id} a.txt", given=b"text")).accepted
        monkeypatch.setattr(looks, "replay", slow)
        found: list[Any] = []

        def look() -> None:
            with open_reader(store) as reader:
                found.extend(looks.look(reader, "files", run.run_id, 0))

        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, look)
            await anyio.to_thread.run_sync(is_read.wait)
            await rt.hub.send("hello", session_key="chat")
            await run.result()
            is_taken.set()
    assert [each.path for each in found] == ["a.txt"]
