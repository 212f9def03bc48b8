"""``run.ask``: the outcome of the turn that took this message, whoever else speaks (U-07)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.agents import echo_model, model_agent
from support.frames import complete, frame, open_runtime, use
from support.profiles import examples

from hubbub import FunctionModel, Message, RunContext, Runtime, ScriptedModel, agent, tool
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError, Closed, RunEnded, UnknownRun, WaitCycle
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


@pytest.mark.spec("U-07")
async def test_each_asker_gets_the_turn_that_took_its_own_message(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model(5.0))], store=journal, ports=ports) as rt:
        run = await rt.start("assistant")
        found: dict[str, RunOutcome] = {}

        async def ask(text: str, after: float) -> None:
            await anyio.sleep(after)
            found[text] = await run.ask(text)

        async with anyio.create_task_group() as group:
            for at, text in enumerate(("one", "two", "three", "four")):
                group.start_soon(ask, text, at * 2.0)
        later = await run.ask("five")
    # What comes while the model is being asked waits for its answer; then all of it is taken.
    assert {text: outcome.output for text, outcome in found.items()} == {
        "one": "echo: one", "two": "echo: two, three", "three": "echo: two, three",
        "four": "echo: four",
    }  # fmt: skip
    assert found["two"] == found["three"] and found["two"].session != found["four"].session
    assert later.output == "echo: five" and later.outcome == "completed"


def sessions_of(events: list[e.Event], run_id: str) -> dict[str, tuple[int, str]]:
    """The plain model: each message's session, and what that came to, from the run's own lane."""
    taken: list[str] = []
    found = {}
    for event in events:
        if event.run_id != run_id:
            continue
        if isinstance(event, e.SessionTaken):
            taken += [x.content for x in event.items if isinstance(x, e.SessionMessage)]
        elif isinstance(event, e.SessionEnd):
            found.update(dict.fromkeys(taken, (event.session, event.outcome)))
            taken = []
    return found


asks = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["say", "work", "fail", "twice"])), max_size=12
)


@pytest.mark.spec("U-07")
@given(asks=asks, stops=st.lists(st.integers(0, 40), max_size=2), late=st.booleans())
@settings(
    max_examples=examples(100), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
async def test_what_an_asker_gets_is_what_the_journal_says_of_its_message(
    asks: list[tuple[int, str]], stops: list[int], late: bool
) -> None:
    @tool
    async def work() -> str:
        """Work."""
        await anyio.sleep(3)
        return "worked"

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        said = last.content if isinstance(last, UserMessage) else ""
        if "work" in said:
            return reply("", call("work"))
        if "fail" in said:
            raise ValueError("no")
        return said or "done"

    bot = model_agent(FunctionModel(answer, latency=2.0), work)
    memory = MemoryJournal()
    store = LateJournal(memory) if late else memory
    async with Runtime([bot], store=store, ports=virtual_ports()) as rt:
        run = await rt.start("assistant")
        found: dict[str, RunOutcome] = {}

        async def ask(at: int, second: int, text: str) -> None:
            await anyio.sleep(second)
            said = f"{text} {at}"
            found[said] = await run.ask(Message(said, key=said))
            if text == "twice":  # Delivered again it is no second turn.
                assert await run.ask(Message(said, key=said)) == found[said]

        async def stop(second: int) -> None:
            await anyio.sleep(second)
            run.interrupt("enough")

        async with anyio.create_task_group() as group:
            for at, (second, text) in enumerate(asks):
                group.start_soon(ask, at, second, text)
            for second in stops:
                group.start_soon(stop, second)
        expected = sessions_of(await rt.hub.read(run.run_id), run.run_id)
    assert {text: (each.session, each.outcome) for text, each in found.items()} == expected
    assert len(found) == len(asks)


@pytest.mark.spec("U-07")
async def test_what_asks_in_vain_hears_why(journal: Journal, ports: Ports) -> None:
    async with Runtime([model_agent(echo_model(5.0))], store=journal, ports=ports) as rt:
        run = await rt.start("assistant", "first")
        with pytest.raises(UnknownRun):
            await Run(rt.outcomes, "nobody", "assistant").ask("hello?")
        answered = await run.ask(Message("hi", key="k"))
        with pytest.raises(CallerError, match="key reused"):
            await run.ask(Message("bye", key="k"))

        async def late() -> None:
            with pytest.raises(RunEnded, match="terminated"):
                await run.ask("too late to be taken")

        async with anyio.create_task_group() as group:
            rt.hub.send_to_run(run.run_id, "at work")
            await anyio.sleep(1)
            group.start_soon(late)
            await anyio.sleep(1)
            await run.terminate()
        with pytest.raises(RunEnded, match="terminated"):
            await run.ask("anybody?")
        # What was asked before, under its key, was answered.
        assert await run.ask(Message("hi", key="k")) == answered


@pytest.mark.spec("U-07")
async def test_a_turn_that_is_cut_off_is_the_outcome(journal: Journal, ports: Ports) -> None:
    async with Runtime([model_agent(echo_model(5.0))], store=journal, ports=ports) as rt:
        run = await rt.start("assistant")
        outcomes = []

        async def ask() -> None:
            outcomes.append((await run.ask("hi")).outcome)

        for stop in (run.interrupt, run.terminate):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await anyio.sleep(1)
                stopped: Any = stop()
                await stopped
    assert outcomes == ["interrupted", "terminated"]


@pytest.mark.spec("U-07")
async def test_the_frame_on_top_answers_and_the_turn_goes_on_below_it(
    journal: Journal, ports: Ports
) -> None:
    main = ScriptedModel([reply("", use("booking")), "Main again.", "Bye."])
    booking = ScriptedModel(["Which city?", reply("", use("dates")), reply("", complete("booked"))])
    dates = ScriptedModel(["Which day?", reply("", complete("Monday"))])
    agents = [
        frame(main, agents=("booking",)), frame(booking, name="booking", agents=("dates",)),
        frame(dates, name="dates"),
    ]  # fmt: skip
    async with open_runtime(*agents, journal=journal, ports=ports) as rt:
        run = await rt.start("main", session_key="telegram_1_2")
        said = []
        for text in ("book", "Rome", "Monday please", "thanks"):
            outcome = await run.ask(text)
            info = await rt.hub.journal.info(outcome.run_id)
            assert info is not None
            said.append((info.agent, outcome.output, outcome.outcome))
    assert said == [
        ("booking", "Which city?", "completed"), ("dates", "Which day?", "completed"),
        ("main", "Main again.", "completed"), ("main", "Bye.", "completed"),
    ]  # fmt: skip


@pytest.mark.spec("U-07")
@pytest.mark.parametrize("word", ["/stop", "/back"])
async def test_words_that_unwind_frames_end_the_turn_below(
    journal: Journal, ports: Ports, word: str
) -> None:
    main = ScriptedModel([reply("", use("booking")), "Main again.", "Bye."])
    booking = frame(ScriptedModel(["Which city?"]), name="booking")
    agents = [frame(main, agents=("booking",)), booking]
    async with open_runtime(*agents, journal=journal, ports=ports) as rt:
        run = await rt.start("main", session_key="telegram_1_2")
        await run.ask("book")
        outcome = await run.ask(word)
        assert outcome.run_id == run.run_id
        assert outcome.outcome == ("interrupted" if word == "/stop" else "completed")


@pytest.fixture(params=["memory", "late", "sqlite"])
def open_again(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Callable[[], Any]:
    memory = MemoryJournal()

    def store() -> Journal:
        if request.param == "sqlite":
            return sqlite_store(tmp_path / "store", ports=ports)
        return memory if request.param == "memory" else LateJournal(memory)

    return lambda: Runtime([model_agent(echo_model(5.0))], store=store(), ports=ports, grace=0)


@pytest.mark.spec("U-07")
async def test_after_a_restart_a_message_is_asked_for_by_its_key(
    open_again: Callable[[], Runtime],
) -> None:
    opening = Message("hi", key="m0")

    async def ask(run: Run) -> None:
        with pytest.raises(Closed):
            await run.ask(Message("two", key="m2"))

    async with anyio.create_task_group() as group, open_again() as rt:
        run = await rt.start("assistant", opening, session_key="k")
        answered = await run.ask(Message("one", key="m1"))
        group.start_soon(ask, run)
        await anyio.sleep(1)
    async with open_again() as rt:
        again = await rt.start("assistant", opening, session_key="k")
        assert again.duplicate and again.run_id == run.run_id
        assert await again.ask(Message("one", key="m1")) == answered
        assert (await again.ask(Message("two", key="m2"))).output == "echo: two"
        assert (await again.ask(opening)).session == 1
        assert (await again.ask(Message("three", key="m3"))).output == "echo: three"


@pytest.mark.spec("U-07")
async def test_a_code_agent_has_no_turns_and_says_so(journal: Journal, ports: Ports) -> None:
    @agent("code")
    async def code(input: Any, ctx: RunContext) -> None:
        async for message in ctx.messages():
            if message.prompt_id:
                await ctx.hub.reply(message.prompt_id, f"yes, {message.content}")

    async with Runtime([code], store=journal, ports=ports) as rt:
        run = await rt.start(code)
        with pytest.raises(CallerError, match="code agent"):
            await run.ask("hi")
        assert [x for x in await run.read() if isinstance(x, e.SessionMessage)] == []
        assert await rt.hub.ask(run.run_id, "hi") == "yes, hi"
        await run.close()


@pytest.mark.spec("U-07")
async def test_a_run_cannot_ask_itself_and_a_child_answers_its_parent(
    journal: Journal, ports: Ports
) -> None:
    errors = []

    @tool
    async def consult(state: RunState) -> str:
        """Ask a child."""
        child = state.spawn("expert")  # It ends with its first session: nothing is said yet.
        try:
            await Run(rt.outcomes, state.run_id, "assistant").ask("me?")
        except WaitCycle as error:
            errors.append(error)
        return str((await child.ask("second")).output)

    expert = model_agent(echo_model(), name="expert")
    bot = model_agent(ScriptedModel([reply("", call("consult")), "So it is."]), consult)
    async with Runtime([bot, expert], store=journal, ports=ports) as rt:
        run = await rt.start("assistant")
        assert (await run.ask("hi")).output == "So it is."
        results = [x.output for x in await run.read() if isinstance(x, e.AgentToolComplete)]
    assert len(errors) == 1 and "second" in results[0]
