"""Questions of tools and code to people, with answers on record (U-05)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest
from support.agents import model_agent
from support.asked import Asked
from support.families import Recorder, answers, child, config, parent
from support.restarts import Lives

from hubbub import AgentDefinition, Hook, RunContext, RunState, Runtime, agent, tool
from hubbub.hub.errors import BadValue, PromptClosed, PromptTimeout
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.runs.code_run import CodeRun

pytestmark = [pytest.mark.anyio, pytest.mark.spec("U-05")]


def results(model: Recorder, at: int = -1) -> list[tuple[str, bool]]:
    return [(x.output, x.is_error) for x in answers(model.requests[at])]


@dataclass
class Trip:
    to: str
    days: int = 1


# ── in tools ─────────────────────────────────────────────────────────────────────────────────


@tool(timeout=10)
async def book(state: RunState) -> str:
    """Book."""
    where = await state.ask("Where to?", options=("Rome", "Paris"))
    days = await state.ask("How many days?", schema=int)
    return f"{where} {days!r}"


async def test_a_tool_asks_and_waits_as_long_as_it_takes() -> None:
    model = Recorder(call("book"), "Booked.")
    async with Runtime([model_agent(model, book)], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Go.")
        first = await asked.first()
        assert (first.kind, first.question, first.options) == (
            "question", "Where to?", ("Rome", "Paris"),
        )  # fmt: skip
        await anyio.sleep(9_000)
        await rt.hub.reply(first.prompt_id, "Rome")
        second = (await asked.wait(2))[1]
        await anyio.sleep(9_000)
        wrong = await rt.hub.reply(second.prompt_id, "many")
        assert wrong.status == "rejected"
        assert "int" in wrong.reason
        await rt.hub.reply(second.prompt_id, "3")
        await run.result()
    assert results(model) == [("Rome 3", False)]


@pytest.mark.parametrize("hooked", [False, True])
async def test_a_tools_time_passes_only_while_it_does_not_ask(hooked: bool) -> None:
    @tool(timeout=10)
    async def dawdle(state: RunState) -> str:
        await anyio.sleep(6)
        await state.ask("Go on?")
        await anyio.sleep(6)
        return "never"

    model = Recorder(call("dawdle"), "Fine.")
    hook = Hook("h", "after_tool_call_failure", lambda state, result: None)
    options: dict[str, Any] = {"hooks": (hook,)} if hooked else {}
    definition = model_agent(model, dawdle, **({"hooks": ("h",)} if hooked else {}))
    async with Runtime([definition], store="memory", **options) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Go.")
        prompt = await asked.first()
        await anyio.sleep(1_000)
        await rt.hub.reply(prompt.prompt_id, "yes")
        await run.result()
    assert results(model) == [("timed out: the tool did not finish within 10 s", True)]


async def test_what_a_user_says_next_answers_and_what_does_not_fit_ends_the_question() -> None:
    model = Recorder(call("book"), "Booked.")
    async with Runtime([model_agent(model, book)], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Go.")
        await asked.first()
        await rt.hub.send_to_run(run.run_id, "Rome")
        await asked.wait(2)
        await rt.hub.send_to_run(run.run_id, "I do not know")
        await run.result()
        assert [x.reason for x in asked.ends] == ["answered", "denied: I do not know"]
    ((text, is_error),) = results(model)
    assert is_error
    assert "I do not know" in text


async def test_a_tools_question_that_nobody_answers_in_time_raises() -> None:
    seen: list[Exception] = []

    @tool
    async def insist(state: RunState) -> str:
        try:
            await state.ask("Sure?", timeout=60)
        except PromptTimeout as error:
            seen.append(error)
        try:
            await state.ask("Really?")
        except PromptClosed as error:
            seen.append(error)
        return "gave up"

    model = Recorder(call("insist"), "Fine.")
    async with Runtime([model_agent(model, insist)], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Go.")
        prompt = (await asked.wait(2))[1]
        await rt.hub.deny(prompt.prompt_id, "no")
        await run.result()
    assert [type(x) for x in seen] == [PromptTimeout, PromptClosed]
    assert results(model) == [("gave up", False)]


async def test_a_plain_tool_asks_through_its_loop() -> None:
    @tool(timeout=None)
    def sure(state: RunState) -> str:
        trip = anyio.from_thread.run(_ask_trip, state)
        return f"{trip.to} {trip.days}"

    async def _ask_trip(state: RunState) -> Trip:
        answer: Trip = await state.ask("Where to?", schema=Trip)
        return answer

    model = Recorder(call("sure"), "Fine.")
    async with Runtime([model_agent(model, sure)], store="memory") as rt:

        def answer(event: Any) -> None:
            assert rt.hub.reply(event.prompt_id, '{"where": 1}').status == "rejected"
            rt.hub.reply(event.prompt_id, '{"to": "Rome"}')

        rt.hub.subscribe("session:prompt", answer)
        run = await rt.start("assistant", "Go.")
        await run.result()
    assert results(model) == [("Rome 1", False)]


async def test_an_interruption_ends_a_tools_question() -> None:
    model = Recorder(call("book"), "Booked.")
    async with Runtime([model_agent(model, book)], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Go.")
        prompt = await asked.first()
        await rt.hub.interrupt(run.run_id, "enough")
        assert (await rt.hub.reply(prompt.prompt_id, "Rome")).status == "rejected"
        assert [x.reason for x in asked.ends] == ["interrupted: enough"]


async def test_a_schema_that_cannot_be_read_is_refused_at_the_call() -> None:
    @tool
    async def odd(state: RunState) -> str:
        try:
            await state.ask("?", schema={"type": "vector"})
        except BadValue:
            return "refused"
        return "?"

    model = Recorder(call("odd"), "Fine.")
    async with Runtime([model_agent(model, odd)], store="memory") as rt:
        await (await rt.start("assistant", "Go.")).result()
    assert results(model) == [("refused", False)]


async def test_a_question_below_a_conversation_is_answered_by_what_its_user_says() -> None:
    below = Recorder(call("book"), call("finish", result="booked"))
    main = Recorder(call("helper", message="Book."), "All done.")
    agents = [parent(main, config()), child(below, book)]
    async with Runtime(agents, store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        await asked.first()
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "Rome")
        await asked.wait(2)
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "2")
        await run.result()
    assert results(below) == [("Rome 2", False)]


async def test_a_tool_that_asks_gives_way_to_runs_that_are_ready() -> None:
    agents = [
        model_agent(Recorder(call("book"), "Booked."), book, name="first"),
        model_agent(Recorder("Hi."), name="second"),
    ]
    async with Runtime(agents, store="memory", max_live=1) as rt:
        asked = Asked(rt.hub)
        await rt.start("first", "Go.")
        await asked.first()
        assert (await rt.run("second", "Hello.")).output == "Hi."


async def test_leaving_does_not_wait_for_a_tool_that_asks(ports: Ports) -> None:
    model = Recorder(call("book"), "Booked.")
    async with Runtime([model_agent(model, book)], store="memory", ports=ports, grace=50) as rt:
        asked = Asked(rt.hub)
        await rt.start("assistant", "Go.")
        await asked.first()
        at = anyio.current_time()
    assert anyio.current_time() - at < 1


# ── over restarts ────────────────────────────────────────────────────────────────────────────


def booking(model: Recorder, *, idempotent: bool) -> tuple[AgentDefinition, list[str]]:
    tried: list[str] = []

    @tool(idempotent=idempotent, timeout=10)
    async def plan(state: RunState) -> str:
        tried.append("try")
        where = await state.ask("Where to?")
        days = await state.ask("How many days?", schema=int)
        return f"{where} {days!r}"

    return model_agent(model, plan), tried


@pytest.mark.parametrize("is_killed", [False, True])
async def test_an_idempotent_tool_that_is_called_again_finds_its_answers(
    is_killed: bool, ports: Ports, tmp_path: Path
) -> None:
    lives = Lives(tmp_path, ports, is_killed=is_killed)
    definition, tried = booking(Recorder(call("plan"), "Done."), idempotent=True)
    async with lives.life(definition) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Go.")
        await rt.hub.reply((await asked.first()).prompt_id, "Rome")
        prompt_id = (await asked.wait(2))[1].prompt_id
    for _ in range(4):  # However often: it only waited.
        async with lives.life(definition) as rt:
            asked = Asked(rt.hub)
            await anyio.sleep(100)
            assert not asked.prompts, "what is open is open, by the same id"
    async with lives.life(definition) as rt:
        await anyio.sleep(100)
        assert (await rt.hub.reply(prompt_id, "many")).status == "rejected"
        assert (await rt.hub.reply(prompt_id, "3")).status == "accepted"
        assert (await rt.result(run.run_id)).output == "Done."
        outputs = [x.output for x in await rt.hub.read(run.run_id, types="agent:tool:complete")]  # type: ignore[attr-defined]
        assert outputs == ["Rome 3"]
    assert len(tried) == 6


async def test_a_question_of_a_tool_that_is_not_called_again_ends_as_lost(
    ports: Ports, tmp_path: Path
) -> None:
    lives = Lives(tmp_path, ports, is_killed=True)
    definition, tried = booking(Recorder(call("plan"), "Done."), idempotent=False)
    async with lives.life(definition) as rt:
        asked = Asked(rt.hub)
        await rt.start("assistant", "Go.")
        prompt_id = (await asked.first()).prompt_id
    async with lives.life(definition) as rt:
        await anyio.sleep(10)
        receipt = await rt.hub.reply(prompt_id, "Rome")
        assert receipt.status == "rejected"
        assert receipt.reason.startswith("lost")
    assert len(tried) == 1


@agent("coder", on_restart="resume")
async def coder(input: str, ctx: RunContext) -> list[Any]:
    first = await ctx.ask("Where to?", schema=Trip)
    second = await ctx.step("allowed", ctx.ask, "Sure?")
    third = await ctx.ask("How many?", schema=int)
    return [first.to, second, third]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_code_that_is_executed_again_finds_its_answers_also_those_of_steps(
    is_killed: bool, ports: Ports, tmp_path: Path
) -> None:
    lives = Lives(tmp_path, ports, is_killed=is_killed)
    replies = ['{"to": "Rome"}', "yes", "3"]
    known: list[str] = []
    for text in replies:
        async with lives.life(coder) as rt:
            asked = Asked(rt.hub)
            if not known:
                run = await rt.start("coder", "Go.")
                known.append((await asked.first()).prompt_id)
            await anyio.sleep(10)
            receipt = await rt.hub.reply(known[-1], text)
            assert receipt.status == "accepted", receipt
            if text != replies[-1]:
                await anyio.sleep(10)
                known += [x.prompt_id for x in asked.prompts if x.prompt_id not in known]
            else:
                assert (await rt.result(run.run_id)).output == ["Rome", "yes", 3]
    assert len(known) == 3


@pytest.mark.parametrize("kept", [True, False])
async def test_a_code_agent_in_memory_waits_since_when_its_journal_says(kept: bool) -> None:
    @agent("waits")
    async def waits(input: str, ctx: RunContext) -> Any:
        if kept:
            return await ctx.ask("Deploy?", timeout=600)
        return await ctx.hub.ask("user", "Deploy?", timeout=600)

    async with Runtime([waits], store="memory") as rt:
        asked = Asked(rt.hub)
        await rt.start("waits", "Go.")
        prompt = await asked.first()
        (run,) = rt.runs.in_memory
        assert isinstance(run, CodeRun)
        (known,) = run.thread.prompts
        assert (known.since, known.expires_at) == (prompt.at, prompt.at + 600_000_000)


async def test_a_step_that_asks_as_it_was_written_before_still_works() -> None:
    @agent("asks")
    async def asks(input: str, ctx: RunContext) -> Any:
        return await ctx.step("allowed", ctx.ask, "Deploy?")

    async with Runtime([asks], store="memory") as rt:
        rt.hub.subscribe("session:prompt", lambda x: rt.hub.reply(x.prompt_id, "yes"))
        assert (await rt.run("asks", "Go.")).output == "yes"


async def test_parallel_calls_have_questions_of_their_own() -> None:
    model = Recorder(reply("", call("book"), call("book")), "Booked.")
    definition = model_agent(model, book, parallel_tool_calls=True)
    async with Runtime([definition], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Go.")
        prompts = list(await asked.wait(2))
        for number, prompt in enumerate(prompts):
            await rt.hub.reply(prompt.prompt_id, f"town {number}")
        for prompt in (await asked.wait(4))[2:]:
            await rt.hub.reply(prompt.prompt_id, "1")
        await run.result()
    assert sorted(x for x, _ in results(model)) == ["town 0 1", "town 1 1"]
