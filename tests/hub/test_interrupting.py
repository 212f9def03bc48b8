"""Aborting the turn at work (H-11)."""

import anyio
import pytest

from hubbub import (
    AgentDefinition,
    PromptDefinition,
    Runtime,
    ScriptedModel,
    SideConfig,
    agent,
)
from hubbub.hub.events import SessionAbort
from hubbub.runtime.models.scripted import Fault

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-11")]


@agent("sleeper")
async def sleeper(input: str, ctx):
    await anyio.sleep_forever()


@agent("quick")
async def quick(input: str, ctx):
    return input


def runtime(journal, ports, *script):
    return Runtime(
        agents=[
            sleeper,
            quick,
            AgentDefinition(name="thinker", side_a=SideConfig(prompt="thinker")),
        ],
        prompts=[PromptDefinition(name="thinker", prompt="Think.", model="scripted")],
        models={"scripted": ScriptedModel(script or (Fault("hang"), "Later."))},
        store=journal,
        ports=ports,
    )


async def test_abort_interrupts_the_addressed_run_with_its_reason(journal, ports):
    async with runtime(journal, ports) as rt:
        one, two = await rt.start("sleeper", ""), await rt.start("sleeper", "")
        await anyio.sleep(1)
        assert (await rt.hub.interrupt(one.run_id, "enough")).accepted
        outcome = await one.finished()
        assert (outcome.outcome, outcome.reason) == ("interrupted", "enough")
        await anyio.sleep(1000)
        assert rt.hub.statistics().live == 1, "the other one goes on"
        await two.terminate()


async def test_abort_that_is_emitted_does_the_same(journal, ports):
    async with runtime(journal, ports) as rt:
        run = await rt.start("sleeper", "")
        await rt.hub.publish(SessionAbort(run_id=run.run_id, reason="enough"))
        outcome = await run.finished()
        assert (outcome.outcome, outcome.reason) == ("interrupted", "enough")


async def test_abort_ends_the_turn_of_a_model_run_which_goes_on_with_the_next_message(
    journal, ports
):
    async with runtime(journal, ports) as rt:
        run = await rt.start("thinker", "Think hard.")
        await anyio.sleep(1)
        assert (await run.interrupt("enough")).accepted
        outcome = await run.result()
        assert (outcome.outcome, outcome.reason) == ("interrupted", "enough")
        (interrupted,) = [e for e in await run.read() if e.type == "agent:interrupted"]
        assert interrupted.reason == "enough"
        assert rt.hub.statistics().live == 1


async def test_abort_of_the_hub_interrupts_every_run(journal, ports):
    async with runtime(journal, ports) as rt:
        runs = [await rt.start(name, "x") for name in ("sleeper", "thinker", "sleeper", "thinker")]
        await anyio.sleep(1)
        receipt = await rt.hub.interrupt(reason="everybody out")
        assert receipt.accepted
        assert set(receipt.run_ids) == {run.run_id for run in runs}
        outcomes = [await run.result() for run in runs]
        assert {(o.outcome, o.reason) for o in outcomes} == {("interrupted", "everybody out")}


async def test_abort_without_a_run_id_is_for_every_run_when_emitted_too(journal, ports):
    async with runtime(journal, ports) as rt:
        runs = [await rt.start("sleeper", "") for _ in range(3)]
        await rt.hub.publish(SessionAbort(reason="out"))
        assert {(await run.finished()).reason for run in runs} == {"out"}


async def test_aborting_again_changes_nothing(journal, ports):
    async with runtime(journal, ports) as rt:
        run = await rt.start("thinker", "Think hard.")
        await anyio.sleep(1)
        for n in range(3):
            await run.interrupt(f"{n}")
        outcome = await run.result()
        assert (outcome.outcome, outcome.reason) == ("interrupted", "0")
        events = [e.type for e in await run.read()]
        assert events.count("agent:interrupted") == 1
        assert events.count("session:end") == 1
        await run.interrupt("while idle")
        assert (await run.result()).reason == "0"
        events = [e.type for e in await run.read()]
        assert events.count("agent:interrupted") == 1


async def test_abort_after_the_terminal_event_is_a_no_op(journal, ports):
    async with runtime(journal, ports) as rt:
        got = []
        run = await rt.start("quick", "x")
        outcome = await run.finished()
        before = await run.read()
        rt.hub.subscribe("*", got.append)
        receipt = await rt.hub.interrupt(run.run_id, "too late")
        assert (receipt.status, receipt.reason) == ("rejected", "ended")
        everybody = await rt.hub.interrupt(reason="too late")
        assert (everybody.status, everybody.run_ids) == ("accepted", ())
        assert await run.read() == before
        assert await run.finished() == outcome
        assert got == [], "not even a dead letter"
