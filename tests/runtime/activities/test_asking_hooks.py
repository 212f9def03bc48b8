"""A hook asks a person: its answer comes while the hook is called, whatever else waits (U-05)."""

from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from msgspec.structs import replace
from support.agents import model_agent
from support.asked import Asked
from support.restarts import Lives, last_outcome

from hubbub import AgentDefinition, Hook, RunState, Runtime, SubagentToolConfig, tool
from hubbub.agents.definitions.hooks import HookPoint
from hubbub.agents.definitions.tools import ToolError
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError, PromptClosed, PromptTimeout
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


# A run that has yet to begin is stopped when hooks have seen its opening.
STOPPED = [point for point in POINTS if point != "before_create_message"]


@pytest.mark.parametrize("point", STOPPED)
@pytest.mark.parametrize("how", ["interrupt", "terminate"])
async def test_what_stops_a_run_ends_what_its_hook_asks(
    how: str, point: str, journal: Journal, ports: Ports
) -> None:
    asks = Asks(point)
    async with Runtime(family(), hooks=[asks.hook], store=journal, ports=ports) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("boss", "Go.", session_key="talk")
        prompt = await asked.first()
        is_idle = point == "after_session"
        if how == "terminate" or not is_idle:  # There is nothing to interrupt in an idle run.
            await getattr(rt.hub, how)(run.run_id, "enough")
            with anyio.fail_after(1):
                outcome = await run.result()
            assert outcome.outcome == ("terminated" if how == "terminate" else "interrupted")
            assert [x.reason for x in asked.ends[:1]] == [f"{outcome.outcome}: enough"]
            late = await rt.hub.reply(prompt.prompt_id, "yes")
            assert (late.status, late.reason) == ("rejected", f"{outcome.outcome}: enough")
            assert "yes" not in asks.answers


@pytest.mark.parametrize("point", POINTS)
async def test_a_hook_that_nobody_answers_in_time_goes_on(
    point: str, journal: Journal, ports: Ports
) -> None:
    seen: list[type] = []

    async def insist(state: RunState, value: object) -> None:
        if seen:
            return
        try:
            await state.ask("Sure?", timeout=5)
        except PromptTimeout as error:
            seen.append(type(error))

    hook = Hook("asks", point, insist)  # type: ignore[arg-type]
    async with Runtime(family(), hooks=[hook], store=journal, ports=ports) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("boss", "Go.", session_key="talk")
        prompt = await asked.first()
        await anyio.sleep(6)
        assert seen == [PromptTimeout]
        assert [x.reason for x in asked.ends] == ["expired"]
        assert (await rt.hub.reply(prompt.prompt_id, "yes")).status == "rejected"
        assert (await run.result()).output == "done"


async def test_two_hooks_and_a_tool_that_ask_at_once_each_get_their_own_answer(
    journal: Journal, ports: Ports
) -> None:
    got: list[str] = []

    @tool
    async def wonder(state: RunState) -> str:
        """Wonder."""
        got.append(await state.ask("tool"))
        return "wondered"

    async def start(state: RunState, value: object) -> None:
        if asked.prompts:
            return
        state.spawn("helper", "help", result="ignore")
        got.append(await state.ask("filter"))

    async def started(state: RunState, value: object) -> None:
        got.append(await state.ask("started"))

    hooks = [Hook("asks", "filter_messages", start), Hook("too", "after_subagent_created", started)]
    first = reply("Let me.", call("wonder"), call("helper", message="help"))
    boss = model_agent(
        ScriptedModel([first, "done"]), wonder, SubagentToolConfig(name="helper", blocking=False),
        name="boss", hooks=("asks", "too"), parallel_tool_calls=True,
    )  # fmt: skip
    helper = replace(model_agent(ScriptedModel(["helped"] * 3), name="helper"), expose_as_tool=True)
    async with Runtime([boss, helper], hooks=hooks, store=journal, ports=ports) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("boss", "Go.")
        answered = 0
        for waits in (2, 2):  # A hook of each point; then the tool, and the hook of its step.
            prompts = (await asked.wait(answered + waits))[answered:]
            for prompt in reversed(prompts):
                await rt.hub.reply(prompt.prompt_id, f"to {prompt.question}")
                await anyio.sleep(1)
                assert got[-1] == f"to {prompt.question}"
            answered += waits
        assert (await run.result()).output == "done"
        assert {x.reason for x in asked.ends} == {"answered"}


CALLS = ("before_store_tool_result", "after_tool_call_success", "after_tool_call_failure")


@pytest.mark.parametrize("point", POINTS)
async def test_what_a_person_says_answers_a_hook_of_a_call_and_is_else_heard_afterwards(
    point: str, journal: Journal, ports: Ports
) -> None:
    got: list[str] = []

    async def once(state: RunState, value: object) -> None:
        if not got and state.parent_run_id is None:
            got.append("")
            got[:] = [await state.ask("Go on?")]

    hook = Hook("asks", point, once)  # type: ignore[arg-type]
    async with Runtime(family(), hooks=[hook], store=journal, ports=ports) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("boss", "Go.", session_key="talk")
        prompt = await asked.first()
        await rt.hub.send_to_run(run.run_id, "I say so.")
        await anyio.sleep(1)
        if point not in CALLS:
            assert got == [""]
            await rt.hub.reply(prompt.prompt_id, "yes")
        await anyio.sleep(1)
        assert got == ["I say so." if point in CALLS else "yes"]
        await run.result()
        taken: list[Any] = await rt.hub.read(run.run_id, types="session:taken")
        messages = [x for each in taken for x in each.items if isinstance(x, e.SessionMessage)]
        assert [x.content for x in messages] == ["I say so."]


@pytest.mark.parametrize("point", POINTS)
async def test_a_question_of_a_hook_ends_with_its_process_and_the_run_goes_on(
    point: str, tmp_path: Path, ports: Ports
) -> None:
    lives, asks = Lives(tmp_path, ports, is_killed=True), Asks(point)
    async with lives.life(*family(), hooks=[asks.hook]) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("boss", "Go.", session_key="talk")
        prompt = await asked.first()
    quiet = Hook("asks", point, lambda state, value: None)  # type: ignore[arg-type]
    async with lives.life(*family(), hooks=[quiet]) as rt:
        late = await rt.hub.reply(prompt.prompt_id, "yes")
        assert late.status == "rejected"
        assert (await last_outcome(rt, run.run_id)).outcome == "completed"
        ends: list[Any] = await rt.hub.read(run.run_id, types="session:prompt:end")
        assert [x.prompt_id for x in ends] == [prompt.prompt_id]
        assert ends[0].reason.startswith("lost")
