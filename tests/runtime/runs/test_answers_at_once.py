"""Two answers to one question in one moment: one of them counts, and nothing said is lost.

A store that takes its time has accepted both before the run that asks learns of either.
"""

from pathlib import Path

import anyio
import pytest
from support.agents import model_agent
from support.asked import Asked
from support.families import Recorder, answers, child, config, heard, parent

from hubbub import RunState, Runtime, external_tool, tool
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-10", "U-04")]


@tool
async def wonder(state: RunState) -> str:
    """Ask a person from within a tool."""
    return "answer " + await state.ask("Which?")


@tool(idempotent=True)
async def wonder_again(state: RunState) -> str:
    """Ask a person from within a tool that may run twice."""
    return "answer " + await state.ask("Which?")


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


TOOLS = {
    "wonder": wonder, "wonder_again": wonder_again, "pay": pay, "pick": external_tool("pick"),
}  # fmt: skip
TELLS_APART = frozenset(("wonder", "wonder_again", "pick"))
"""What quotes in its result who has answered."""


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Journal:
    if request.param == "sqlite":
        return sqlite_store(tmp_path / "store", ports=ports)
    return MemoryJournal() if request.param == "memory" else LateJournal(MemoryJournal())


def give(rt: Runtime, run_id: str, prompt_id: str, name: str, what: str) -> Receipt:
    """One answer: what a person says in the conversation, or a reply to the prompt itself."""
    if what != "reply":
        return rt.hub.send_to_run(run_id, what)
    return rt.hub.approve(prompt_id) if name == "pay" else rt.hub.reply(prompt_id, what)


@pytest.mark.parametrize("both", ["said-1 said-2", "said-1 reply", "reply said-1", "said-1 stop"])
@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("asker", ["itself", "a child"])
async def test_what_does_not_answer_a_question_is_heard_in_the_conversation(
    store: Journal, ports: Ports, asker: str, name: str, both: str
) -> None:
    model = Recorder(call(name) if asker == "itself" else call("helper", message="Work."))
    agents = [model_agent(model, TOOLS[name])]
    below = Recorder(call(name), lambda r: call("finish", result=answers(r)[-1].output))
    if asker != "itself":
        agents = [parent(model, config()), child(below, TOOLS[name])]
    async with Runtime(agents, store=store, ports=ports) as rt:
        asked = Asked(rt.hub)
        run = await rt.start(agents[0].name, "Begin.")
        prompt = await asked.first()
        given = {x: give(rt, run.run_id, prompt.prompt_id, name, x) for x in both.split()}
        for receipt in given.values():
            await receipt
        accepted = {x for x, receipt in given.items() if receipt.accepted}
        await run.result()
        await anyio.sleep(10)
        await run.result()
        said = heard(model.requests[-1])[1:]
        output = answers(model.requests[-1])[0].output
    assert not asked.prompts[1:]
    assert [x.prompt_id for x in asked.ends] == [prompt.prompt_id]
    assert len(said) == len(set(said)) == len(accepted) - 1, "one of them is the answer"
    assert accepted >= set(said)
    if name in TELLS_APART:
        [answer] = accepted - set(said)
        assert output.endswith(answer)
