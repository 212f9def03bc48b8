"""A hook asks a person: its answer comes while the hook is called, whatever else waits (U-05)."""

from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from msgspec.structs import replace
from support.agents import model_agent
from support.asked import Asked

from hubbub import AgentDefinition, Hook, RunState, Runtime, SubagentToolConfig, tool
from hubbub.agents.definitions.hooks import HookPoint
from hubbub.agents.definitions.tools import ToolError
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError, PromptClosed
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import ScriptedModel, call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("U-05")]

POINTS = get_args(HookPoint)


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Journal:
    """Each kind of store there is."""
    if request.param == "sqlite":
        return sqlite_store(tmp_path, ports=ports, mirror=False)
    inner = MemoryJournal()
    return inner if request.param == "memory" else LateJournal(inner)


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def trip() -> None:
    """Trip."""
    raise ToolError("tripped")


def family() -> list[AgentDefinition]:
    """A parent whose first turn comes by every point: calls that end well and badly, and a child's
    result."""
    first = reply("Let me.", call("look"), call("trip"), call("helper", message="help"))
    model = ScriptedModel([first, "done", "done again"])
    boss = model_agent(
        model, look, trip, SubagentToolConfig(name="helper"), name="boss", hooks=("asks",)
    )
    helper = model_agent(ScriptedModel(["helped"] * 3), name="helper", hooks=("asks",))
    return [boss, replace(helper, expose_as_tool=True)]


class Asks:
    """A hook that asks each time it is called, and what its questions came to."""

    def __init__(self, point: str) -> None:
        self.hook = Hook("asks", point, self._ask)  # type: ignore[arg-type]
        self.answers: list[str] = []
        self.refused = 0

    async def _ask(self, state: RunState, value: object) -> None:
        try:
            self.answers.append(await state.ask("Go on?"))
        except PromptClosed as error:
            self.answers.append(error.reason)
            raise
        except CallerError:
            self.refused += 1
            raise


@pytest.mark.parametrize("delay", [0, 7], ids=["at once", "later"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_hook_gets_its_answer_at_each_point(
    point: str, delay: float, store: Journal, ports: Ports
) -> None:
    asks = Asks(point)
    async with Runtime(family(), hooks=[asks.hook], store=store, ports=ports) as rt:
        receipts: list[Any] = []

        async def answer(prompt: e.SessionPrompt) -> None:
            await anyio.sleep(delay)
            receipts.append(await rt.hub.reply(prompt.prompt_id, "yes"))

        asked = Asked(rt.hub)
        rt.hub.subscribe(e.SessionPrompt, answer)
        run = await rt.start("boss", "Go.", session_key="talk")
        first = await run.result()
        await rt.hub.send_to_run(run.run_id, "And again.")
        second = await run.result()
        await anyio.sleep(60)
        assert (first.output, second.output) == ("done", "done again")
        assert len(asks.answers) == len(asked.prompts) == len(asked.ends) > 0
        assert {*asks.answers} == {"yes"}
        assert {x.reason for x in asked.ends} == {"answered"}
        assert {x.status for x in receipts} == {"accepted"}
        # Nothing is asked in the name of a run that is over, as the helper is with its last words.
        assert asks.refused == (point in ("after_create_message", "after_session"))
