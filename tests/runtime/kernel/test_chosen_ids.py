"""A run whose id its caller chose is treated as one that was given an id."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.asked import Asked
from support.families import Recorder, answers, child, config, parent
from support.restarts import Lives

from hubbub import Message, RunContext, RunState, Runtime, agent, tool
from hubbub.agents.model import ModelRequest
from hubbub.hub.errors import BadValue, PromptClosed
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.finding.answers import answer
from hubbub.runtime.finding.conversations import list_conversations
from hubbub.runtime.inspection.prompts import open_prompts
from hubbub.runtime.models.scripted import call

pytestmark = pytest.mark.anyio

IDS = (
    "order-7", "7", "-", "_", "a" * 64, "UPPER", "Upper", "order", "order-7-and-more",
    "0198c5d2-0000-4000-8000-000000000000", "0198C5D2-0000-7000-8000-00000000000A",
    "abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789",
)  # fmt: skip
"""The longest, every character, some that differ in case alone, beginnings of others, UUIDs."""

ASKED = ("order-7", "0198c5d2-0000-7000-8000-00000000000a")


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@agent("asks")
async def asks(input: str, ctx: RunContext) -> str:
    return str(await ctx.hub.ask(input, "How much?"))


@agent("listens")
async def listens(input: Any, ctx: RunContext) -> str:
    async for said in ctx.messages():
        if said.content == "over":
            break
    return "over"


@pytest.mark.parametrize("run_id", ASKED)
async def test_what_one_run_asks_another_is_not_shown_as_a_question_for_people(
    run_id: str, ports: Ports
) -> None:
    store = MemoryJournal()
    async with Runtime([asks, listens], store=store, ports=ports) as rt:
        await rt.start("listens", run_id=run_id)
        await rt.start("asks", run_id, run_id="asks-1")
        await anyio.sleep(1)
        reader = store.reader()
        assert open_prompts(reader) == ()
        assert [x for each in list_conversations(reader) for x in each.waits_for] == []
        assert answer(reader, "prompts", ports.clock.now()) == []


@pytest.mark.parametrize("asker", ASKED)
async def test_what_another_run_asks_is_no_person_s_word(asker: str, ports: Ports) -> None:
    model = Recorder(call("pay", amount=1), "Well then.")
    async with Runtime([model_agent(model, pay), asks], store="memory", ports=ports) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Pay.", run_id="pays")
        await asked.wait()
        await rt.start("asks", run.run_id, run_id=asker)
        await anyio.sleep(1)
        assert not asked.ends
        await rt.hub.terminate(asker)


@pytest.mark.parametrize("run_id", ASKED)
@pytest.mark.parametrize("way", ["queue_message", "inject_message"])
async def test_what_a_run_says_to_itself_is_no_person_s_word(
    run_id: str, way: str, ports: Ports
) -> None:
    said: list[str] = []

    @tool
    async def mutter(state: RunState) -> str:
        """Say something to oneself."""
        said.append((await getattr(state, way)("stop")).status)
        return "said"

    model = Recorder(call("mutter"), call("pay", amount=1), "Well then.")
    async with Runtime([model_agent(model, mutter, pay)], store="memory", ports=ports) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Pay.", run_id=run_id)
        prompt = await asked.first()
        await anyio.sleep(1)
        assert said == ["accepted"] and not asked.ends
        assert (await rt.hub.approve(prompt.prompt_id)).accepted
        await run.result()


@pytest.mark.parametrize("run_id", ASKED)
async def test_what_a_parent_says_to_its_child_is_no_person_s_word(
    run_id: str, ports: Ports
) -> None:
    below = Recorder(call("pay", amount=1), call("finish", result="paid"))
    make = call("subagent_create", agent="helper", name="h", arguments={"message": "Pay it."})

    def tell(request: ModelRequest) -> Any:
        (note,) = request.system_notes
        reference = note.splitlines()[1].removeprefix("- ").partition(":")[0]
        return call("subagent_message", reference=reference, message="Pay!")

    main = Recorder(make, "Begun.", tell, "Ok.")
    agents = [parent(main, config(blocking=False, stays=True)), child(below, pay)]
    async with Runtime(agents, store="memory", ports=ports) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Pay.", run_id=run_id)
        prompt = await asked.first()
        await run.result()
        await rt.hub.send_to_run(run.run_id, Message("Tell it.", silent=True))
        await anyio.sleep(1)
        assert "sent to" in answers(main.requests[-1])[-1].output.lower()
        assert not asked.ends and prompt.run_id != run_id


async def test_no_run_is_opened_under_the_address_of_a_service(ports: Ports) -> None:
    async with Runtime([listens], store="memory", ports=ports) as rt:
        with pytest.raises(BadValue, match="'runtime' is a service's address"):
            await rt.start("listens", run_id="runtime")
        stop = rt.hub.serve("order-7", lambda question: "served")
        with pytest.raises(BadValue, match="'order-7' is a service's address"):
            await rt.start("listens", run_id="order-7")
        stop()
        await rt.start("listens", run_id="order-7")


async def test_no_service_takes_the_address_of_a_run_at_work(ports: Ports) -> None:
    async with Runtime([listens], store="memory", ports=ports) as rt:
        run = await rt.start("listens", run_id="order-7")
        with pytest.raises(BadValue, match="'order-7' is taken"):
            rt.hub.serve("order-7", len)
        await rt.hub.send_to_run(run.run_id, "over")
        assert (await run.result()).output == "over"


async def test_runs_whose_ids_are_nearly_the_same_are_told_apart(
    tmp_path: Path, ports: Ports
) -> None:
    @agent("keeps", on_restart="resume")
    async def keeps(input: str, ctx: RunContext) -> str:
        await ctx.files.write("mine.txt", ctx.run_id)
        reply = await ctx.ask(f"{ctx.run_id}?")
        return f"{await ctx.files.read_text('mine.txt')} {reply}"

    lives = Lives(tmp_path, ports)
    async with lives.life(keeps) as rt:
        for run_id in IDS:
            await rt.start("keeps", "begin", run_id=run_id)
        await anyio.sleep(1)
    async with lives.life(keeps) as rt:
        await anyio.sleep(1)  # Until each is back.
        shown = {x["run_id"]: x["prompt_id"] for x in await rt.hub.ask("runtime", "prompts")}
        assert {*shown} == {*IDS}
        for run_id in IDS:
            assert (await rt.hub.reply(shown[run_id], f"for {run_id}")).accepted
        for run_id in IDS:
            assert (await rt.finished(run_id)).output == f"{run_id} for {run_id}"
            assert {x.run_id for x in await rt.hub.read(run_id)} == {run_id}


async def test_an_id_that_is_none_is_refused(journal: Journal, ports: Ports) -> None:
    wrong = ("a" * 65, "a.b", "a/b", "..", "a b", "é", "a\n", "a?", "hub", "user")
    async with Runtime([listens], store=journal, ports=ports) as rt:
        for run_id in wrong:
            with pytest.raises(BadValue, match="run_id"):
                rt.hub.open("listens", run_id=run_id)
        with pytest.raises(PromptClosed, match="no service, no run"):
            await rt.hub.ask("order-7", "?")
