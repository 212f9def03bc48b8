"""Definitions that have changed, or are gone, when a run is gone on with (P-14)."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life, echo_model, model_agent
from support.families import Recorder, child, config, offered, parent

from hubbub import AgentDefinition, Hub, PromptDefinition, RunContext, Runtime, SideConfig, agent
from hubbub.agents.definitions.tools import tool
from hubbub.hub import events as e
from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-14")]


async def events_of(journal: Any, run_id: str) -> list[Any]:
    loaded = await journal.load(run_id)
    assert loaded is not None
    return list(loaded.events)


async def result(rt: Runtime, run_id: str) -> Any:
    with anyio.fail_after(100_000):
        return await rt.result(run_id)


other = model_agent(echo_model(), name="other")


# ── changed ──────────────────────────────────────────────────────────────────────────────────


async def test_a_changed_prompt_model_and_tools_hold_from_the_next_step(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def old_tool() -> str:
        return "old"

    @tool
    async def new_tool() -> str:
        return "new"

    def definition(prompt: str, model: Recorder, *tools: Any) -> AgentDefinition:
        made = PromptDefinition(name="p", prompt=prompt, model=model, tools=tools)
        return AgentDefinition(name="assistant", side_a=SideConfig(prompt=made))

    first, second = Recorder("one"), Recorder("one", call("new_tool"), "two")
    before = [definition("You help.", first, old_tool)]
    async with Runtime(before, store=journal, ports=ports) as rt:
        run = await rt.start("assistant", "hello")
        await run.result()
    after = [definition("You are brief.", second, new_tool)]
    async with Runtime(after, store=journal, ports=ports) as rt:
        await rt.hub.send_to_run(run.run_id, "and now?")
        assert (await result(rt, run.run_id)).output == "two"
    assert [(x.system, offered(x)) for x in first.requests] == [("You help.", ["old_tool"])]
    assert [(x.system, offered(x)) for x in second.requests] == [
        ("You are brief.", ["new_tool"])
    ] * 2
    (done,) = [x for x in await events_of(journal, run.run_id) if x.type == "agent:tool:complete"]
    assert done.output == "new"


# ── the agent is gone ────────────────────────────────────────────────────────────────────────


async def test_a_run_whose_agent_is_gone_stays_as_it_is_and_goes_on_when_it_is_back(
    journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(echo_model(latency=100))]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
        await run.send("more")
    before = await events_of(journal, run.run_id)
    async with Runtime([other], store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        refused = await rt.hub.send_to_run(run.run_id, "anybody?")
        assert (refused.status, refused.reason) == ("rejected", "agent gone")
        await anyio.sleep(10)
        await rt.hub.interrupt(run.run_id)
        await rt.hub.interrupt(run.run_id)
        with anyio.fail_after(10), pytest.raises(OperatorError, match="no agent 'assistant'"):
            await rt.result(run.run_id)
        with anyio.fail_after(10), pytest.raises(OperatorError, match="terminate the run"):
            await rt.finished(run.run_id)
        assert (await rt.run("other", "hi")).output == "echo: hi"
        (report,) = seen.all("hub:error")
        assert (report.run_id, report.agent, report.error_type) == (
            run.run_id, "assistant", "agent gone"
        )  # fmt: skip
        assert "open the runtime with it again" in report.error
    assert await events_of(journal, run.run_id) == before
    async with Runtime(agents, store=journal, ports=ports) as rt:
        assert "more" in (await result(rt, run.run_id)).output
    lane = await events_of(journal, run.run_id)
    assert isinstance(lane[len(before)], e.AgentRestore)
    assert sum(isinstance(x, e.AgentInterrupted) for x in lane) == 1, "what waited is handled"


async def test_a_parked_run_whose_agent_is_gone_refuses_messages_and_is_not_doubled(
    journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        run = await rt.start("assistant", "hello", session_key="telegram_1_2")
        await run.result()
    async with Runtime([other], store=journal, ports=ports) as rt:
        opened = await rt.hub.open("other", "hello again", session_key="telegram_1_2")
        assert (opened.status, opened.reason) == ("rejected", "agent gone")
        assert (await rt.result(run.run_id)).output == "echo: hello", "its last word stands"
    assert [info.run_id for info in await journal.runs(live=False)] == [run.run_id]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        await rt.hub.open("assistant", "and again", session_key="telegram_1_2")
        assert (await result(rt, run.run_id)).output == "echo: and again"


async def test_a_run_that_never_began_fails_when_its_agent_is_gone(
    journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports, max_live=1) as rt:
        rt.runs.stop()
        rt.phase.is_leaving = True
        run_id = (await rt.hub.open("assistant", "hello", run_id="never-begun")).run_id
    async with Runtime([other], store=journal, ports=ports) as rt:
        outcome = await rt.finished(run_id)
    assert outcome.outcome == "failed" and "no agent named 'assistant'" in outcome.reason
    assert_one_life(await events_of(journal, run_id), run_id)


@pytest.mark.spec("P-14", "T-05")
async def test_a_run_whose_agent_is_gone_can_be_ended(journal: Journal, ports: Ports) -> None:
    agents = [model_agent(echo_model(latency=100))]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
        await run.send("more")
    async with Runtime([other], store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        await anyio.sleep(5)
        await rt.terminate(run.run_id, "not wanted")
        with anyio.fail_after(10):
            outcome = await rt.finished(run.run_id)
        assert [x.message.content for x in seen.all("hub:dead_letter")] == ["more"]
    assert (outcome.outcome, outcome.reason) == ("terminated", "not wanted")
    assert_one_life(await events_of(journal, run.run_id), run.run_id)


async def test_its_deadline_still_ends_a_run_whose_agent_is_gone(
    journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(echo_model(latency=100))]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello", timeout=60)
        await anyio.sleep(5)
    async with Runtime([other], store=journal, ports=ports) as rt:
        await anyio.sleep(100)
        with anyio.fail_after(10):
            assert (await rt.finished(run.run_id)).outcome == "timed_out"
    assert_one_life(await events_of(journal, run.run_id), run.run_id)


@pytest.mark.parametrize("emits", [False, True], ids=["runtime starts", "agent starts"])
async def test_a_code_run_whose_agent_is_gone_waits_and_can_be_ended(
    emits: bool, journal: Journal, ports: Ports
) -> None:
    @agent("coder", on_restart="resume", emits_start_complete=emits)
    async def coder(input: Any, ctx: RunContext) -> str:
        async for message in ctx.messages():
            return message.content
        return ""

    async with Runtime([coder], store=journal, ports=ports, grace=0) as rt:
        run, ended = await rt.start("coder", 1), await rt.start("coder", 2)
        await anyio.sleep(5)
    async with Runtime([other], store=journal, ports=ports) as rt:
        assert (await rt.hub.send_to_run(run.run_id, "x")).reason == "agent gone"
        await rt.terminate(ended.run_id)
        with anyio.fail_after(10):
            assert (await rt.finished(ended.run_id)).outcome == "terminated"
    assert_one_life(await events_of(journal, ended.run_id), ended.run_id)
    async with Runtime([coder], store=journal, ports=ports) as rt:
        await rt.hub.send_to_run(run.run_id, "back")
        assert (await result(rt, run.run_id)).output == "back"


async def test_the_result_of_a_child_waits_for_a_parent_whose_agent_is_gone(ports: Ports) -> None:
    journal = MemoryJournal()
    boss = Recorder(call("helper", message="x"), "Thanks.")
    helper = child(Recorder(call("finish", result="found it"), latency=50))
    async with Runtime((parent(boss, config()), helper), store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("main", "Please.")
        await anyio.sleep(5)
    async with Runtime([helper], store=journal, ports=ports) as rt:
        await anyio.sleep(500)
        info = await journal.info(run.run_id)
        assert info is not None and info.waiting == 1
    async with Runtime((parent(boss, config()), helper), store=journal, ports=ports) as rt:
        assert (await result(rt, run.run_id)).output == "Thanks."
    (told,) = [x for x in await events_of(journal, run.run_id) if x.type == "agent:tool:complete"]
    assert told.output == "found it"


# ── a tool, or a side, is gone ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_run_whose_tool_is_gone_in_the_middle_of_a_call_waits_for_it(
    idempotent: bool, journal: Journal, ports: Ports
) -> None:
    @tool(idempotent=idempotent)
    async def dig() -> str:
        await anyio.sleep(100)
        return "gold"

    def digger(*tools: Any) -> list[AgentDefinition]:
        return [model_agent(Recorder(call("dig"), "done"), *tools)]

    async with Runtime(digger(dig), store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
    before = await events_of(journal, run.run_id)
    async with Runtime(digger(), store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        with anyio.fail_after(10), pytest.raises(OperatorError, match="a tool it no longer has"):
            await rt.result(run.run_id)
        await anyio.sleep(10)
        (report,) = seen.all("hub:error")
        assert report.error_type == "tool gone" and "'dig'" in report.error
        refused = await rt.hub.send_to_run(run.run_id, "hello?")
        assert (refused.status, refused.reason) == ("rejected", "tool gone")
        (letter,) = seen.all("hub:dead_letter")
        assert (letter.reason, letter.message.content) == ("tool gone", "hello?")
    assert await events_of(journal, run.run_id) == before
    async with Runtime(digger(dig), store=journal, ports=ports) as rt:
        assert (await result(rt, run.run_id)).output == "done"
    (done,) = [x for x in await events_of(journal, run.run_id) if x.type == "agent:tool:complete"]
    assert done.output == "gold" if idempotent else "may or may not" in done.output


async def test_a_tool_that_is_gone_without_being_at_work_is_only_no_longer_offered(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def dig() -> str:
        return "gold"

    first, second = Recorder(call("dig"), "done"), Recorder("", "", "yes")
    async with Runtime([model_agent(first, dig)], store=journal, ports=ports) as rt:
        run = await rt.start("assistant", "hello")
        await run.result()
    async with Runtime([model_agent(second)], store=journal, ports=ports) as rt:
        assert (await rt.hub.send_to_run(run.run_id, "still?")).accepted
        assert (await result(rt, run.run_id)).output == "yes"


async def test_a_run_whose_side_is_gone_waits_for_it(journal: Journal, ports: Ports) -> None:
    def made(*, two_sided: bool) -> list[AgentDefinition]:
        side_a = SideConfig(prompt=PromptDefinition(name="a", prompt="", model=echo_model()))
        side_b = SideConfig(
            prompt=PromptDefinition(name="b", prompt="", model=echo_model(latency=100))
        )
        if not two_sided:
            return [AgentDefinition(name="pair", side_a=side_a)]
        return [AgentDefinition(name="pair", type="dual_ai", side_a=side_a, side_b=side_b)]

    async with Runtime(made(two_sided=True), store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("pair", "hello")
        await anyio.sleep(5)
    before = await events_of(journal, run.run_id)
    async with Runtime(made(two_sided=False), store=journal, ports=ports) as rt:
        with anyio.fail_after(10), pytest.raises(OperatorError, match="has no side_b any more"):
            await rt.result(run.run_id)
        assert rt.runs.refusal_of(run.run_id) == "prompt gone"
    assert await events_of(journal, run.run_id) == before
    async with Runtime(made(two_sided=True), store=journal, ports=ports, grace=0):
        await anyio.sleep(5)
    assert len(await events_of(journal, run.run_id)) > len(before)


# ── who hears of it ──────────────────────────────────────────────────────────────────────────


async def test_whoever_listens_before_the_runtime_opens_hears_of_it_once(
    journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(echo_model(latency=100))]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
    async with Hub(journal=journal, ports=ports) as hub:
        seen = Observer(hub, "hub:error")
        async with Runtime([other], hub=hub):
            await anyio.sleep(5)
            await hub.interrupt(run.run_id)
            await anyio.sleep(5)
    assert [x.run_id for x in seen.events] == [run.run_id]


async def test_it_is_the_same_over_the_disk(tmp_path: Path) -> None:
    ports = virtual_ports()
    agents = [model_agent(echo_model(latency=100))]

    def store() -> Journal:
        return sqlite_store(tmp_path, ports=ports)

    async with Runtime(agents, store=store(), ports=ports, grace=0) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
    async with Runtime([other], store=store(), ports=ports) as rt:
        assert (await rt.hub.send_to_run(run.run_id, "x")).reason == "agent gone"
        with anyio.fail_after(10), pytest.raises(OperatorError, match="no agent 'assistant'"):
            await rt.result(run.run_id)
    async with Runtime(agents, store=store(), ports=ports) as rt:
        assert (await result(rt, run.run_id)).output == "echo: hello"
