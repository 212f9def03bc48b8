"""Prompts and replies (H-10)."""

import shlex
from urllib.parse import quote

import anyio
import pytest

from hubbub import (
    AgentDefinition,
    CustomEvent,
    Hub,
    PromptDefinition,
    RunState,
    Runtime,
    ScriptedModel,
    Secret,
    SideConfig,
    agent,
    tool,
)
from hubbub.hub.errors import BadValue, Closed, PromptClosed, PromptTimeout
from hubbub.hub.events import AgentComplete, SessionReply
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.receipt import Receipt
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-10")]

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


def prompts(hub):
    got = []
    hub.subscribe("session:prompt", got.append)
    return got


class Asking:
    """A question on its way, asked in a task of its own."""

    def __init__(self, hub, address="user", **options):
        self._ask = lambda: hub.ask(address, "How are you?", **options)
        self.answer = self.error = None
        self.is_done = False

    async def __call__(self):
        try:
            self.answer = await self._ask()
        except Exception as error:
            self.error = error
        self.is_done = True


# ── asking whoever listens ───────────────────────────────────────────────────────────────────


async def test_prompt_has_an_id_and_the_reply_to_it_is_the_answer(hub, eventually):
    got = prompts(hub)
    asking = Asking(hub, options=("well", "badly"))
    async with anyio.create_task_group() as group:
        group.start_soon(asking)
        await eventually(lambda: got)
        (prompt,) = got
        assert prompt.prompt_id
        assert quote(prompt.prompt_id, safe="") == shlex.quote(prompt.prompt_id) == prompt.prompt_id
        assert (prompt.question, prompt.to, prompt.options) == (
            "How are you?", "user", ("well", "badly"),
        )  # fmt: skip
        assert (await hub.reply(prompt.prompt_id, "well")).accepted
    assert asking.answer == "well"


async def test_first_reply_wins_and_later_ones_are_rejected(hub, eventually):
    got = prompts(hub)
    asking = Asking(hub)
    async with anyio.create_task_group() as group:
        group.start_soon(asking)
        await eventually(lambda: got)
        receipts = [hub.reply(got[0].prompt_id, text) for text in ("first", "second")]
        assert [(await r).status for r in receipts] == ["accepted", "rejected"]
        assert receipts[1].reason == "answered"
    assert asking.answer == "first"
    late = await hub.reply(got[0].prompt_id, "third")
    assert (late.status, late.reason) == ("rejected", "answered")


async def test_reply_to_an_unknown_prompt_is_rejected(hub):
    receipt = await hub.reply("no such prompt", "hello")
    assert (receipt.status, receipt.reason) == ("rejected", "unknown")


async def test_reply_given_inside_the_prompt_s_own_dispatch_is_received(hub):
    receipts = []
    hub.subscribe(
        "session:prompt", lambda event: receipts.append(hub.reply(event.prompt_id, "at once"))
    )
    assert await hub.ask("user", "How are you?") == "at once"
    assert (await receipts[0]).accepted


async def test_reply_that_is_emitted_counts_like_one_that_is_given(hub):
    dead = []
    hub.subscribe("hub:dead_letter", dead.append)
    hub.subscribe(
        "session:prompt",
        lambda event: hub.emit(SessionReply(prompt_id=event.prompt_id, content="emitted")),
    )
    assert await hub.ask("user", "How are you?") == "emitted"
    assert dead == []
    hub.emit(SessionReply(prompt_id="no such prompt", content="lost"))
    assert [(d.reason, d.message.content) for d in dead] == [("unknown", "lost")]


async def test_all_who_watch_a_receipt_hear_of_its_outcome():
    """A reply that is emitted is watched by its prompt, and by who emitted it."""
    receipt, heard = Receipt(), []
    receipt.watch(lambda one: heard.append(("prompt", one.reason)))
    receipt.watch(lambda one: heard.append(("emitter", one.reason)))
    receipt.settle("rejected", "ended")
    assert heard == [("prompt", "ended"), ("emitter", "ended")]


async def test_reply_is_seen_by_others_as_an_event(hub):
    got = []
    hub.subscribe("session:reply", got.append)
    hub.subscribe("session:prompt", lambda event: hub.reply(event.prompt_id, "fine", source="web"))
    await hub.ask("user", "How are you?")
    assert [(event.content, event.source) for event in got] == [("fine", "web")]


async def test_questions_asked_at_once_get_their_own_answers(hub, eventually):
    got = prompts(hub)
    askings = [Asking(hub) for _ in range(20)]
    async with anyio.create_task_group() as group:
        for asking in askings:
            group.start_soon(asking)
        await eventually(lambda: len(got) == 20)
        assert len({prompt.prompt_id for prompt in got}) == 20
        for number, prompt in reversed(list(enumerate(got))):
            hub.reply(prompt.prompt_id, f"answer {number}")
    assert sorted(asking.answer for asking in askings) == sorted(f"answer {n}" for n in range(20))


async def test_timeout_raises_and_later_replies_are_rejected(hub):
    got = prompts(hub)
    before = anyio.current_time()
    with pytest.raises(PromptTimeout, match="within 60 s") as caught:
        await hub.ask("user", "How are you?", timeout=60)
    assert anyio.current_time() - before == pytest.approx(60)
    assert caught.value.prompt_id == got[0].prompt_id
    assert got[0].timeout == 60
    late = await hub.reply(got[0].prompt_id, "too late")
    assert (late.status, late.reason) == ("rejected", "expired")


async def test_without_a_timeout_ask_waits(hub, eventually):
    got = prompts(hub)
    asking = Asking(hub)
    async with anyio.create_task_group() as group:
        group.start_soon(asking)
        await anyio.sleep(30 * 86_400)
        assert not asking.is_done
        hub.reply(got[0].prompt_id, "at last")
    assert asking.answer == "at last"


async def test_reply_in_time_beats_the_timeout(hub):
    hub.subscribe("session:prompt", lambda event: hub.reply(event.prompt_id, "quick"))
    assert await hub.ask("user", "How are you?", timeout=1) == "quick"


async def test_negative_timeout_is_refused(hub):
    with pytest.raises(BadValue, match="timeout: expected seconds from 0"):
        await hub.ask("user", "How are you?", timeout=-1)


async def test_cancelled_ask_leaves_no_prompt_open(hub, eventually):
    got = prompts(hub)
    with anyio.move_on_after(5):
        await hub.ask("user", "How are you?")
    late = await hub.reply(got[0].prompt_id, "too late")
    assert (late.status, late.reason) == ("rejected", "closed")
    assert not hub.prompts._open
    assert not hub.prompts._of_run


async def test_closing_hub_wakes_everybody_who_asks(journal, ports, eventually):
    asking = None
    async with anyio.create_task_group() as group, Hub(journal=journal, ports=ports) as hub:
        asking = Asking(hub)
        got = prompts(hub)
        group.start_soon(asking)
        await eventually(lambda: got)
    assert isinstance(asking.error, Closed)
    with pytest.raises(Closed):
        await hub.ask("user", "Anybody?")


# ── asking a service ─────────────────────────────────────────────────────────────────────────


async def test_service_answers_by_its_function(hub):
    async def slow(question):
        await anyio.sleep(5)
        return {"question": question}

    stop = hub.serve("slow", slow)
    hub.serve("quick", lambda question: len(question))
    got = prompts(hub)
    assert await hub.ask("slow", "abc") == {"question": "abc"}
    assert await hub.ask("quick", "abc") == 3
    assert got == [], "a service needs no listener"
    with pytest.raises(PromptTimeout):
        await hub.ask("slow", "abc", timeout=1)
    with pytest.raises(BadValue, match="taken"):
        hub.serve("quick", slow)
    with pytest.raises(BadValue, match="taken"):
        hub.serve("user", slow)
    stop()
    stop()
    with pytest.raises(PromptClosed, match="no service"):
        await hub.ask("slow", "abc")


@pytest.mark.spec("H-10")
async def test_address_that_is_nobody_s_closes_the_prompt_at_once(hub):
    got = prompts(hub)
    for address in ("typo", "User", "runtimes", "a b"):
        with pytest.raises(PromptClosed, match="no service, no run, and not 'user'"):
            await hub.ask(address, "Anybody?")
    with pytest.raises(BadValue, match="empty"):
        await hub.ask("", "Anybody?")
    run_id = (await hub.open("agent", run_id="order-7")).run_id
    with pytest.raises(PromptTimeout):  # A run, whatever its id looks like.
        await hub.ask(run_id, "Anybody?", timeout=1)
    assert got == []


@pytest.mark.spec("H-10")
async def test_run_that_asks_nobody_is_told_at_once(journal, ports):
    async with Runtime([curious], store=journal, ports=ports) as rt:
        before = ports.clock.monotonic()
        outcome = await rt.run("curious", "nosuch")
        assert outcome.outcome == "failed"
        assert "no service, no run" in outcome.reason
        assert ports.clock.monotonic() == before


async def test_what_serves_nobody_is_refused(hub):
    for address, handler in (("", len), ("name", 5), ("name", None), ("user", len)):
        with pytest.raises(BadValue):
            hub.serve(address, handler)
    assert not hub.is_served("name")


@pytest.mark.spec("R-16", "H-15")
@pytest.mark.parametrize("by_runtime", [True, False])
async def test_service_at_work_when_the_hub_closes_is_cancelled_and_its_askers_are_told(
    journal, ports, by_runtime
):
    ended = []

    async def slow(question):
        try:
            await anyio.sleep(100)
        finally:
            ended.append(question)

    async def ask(address):
        with pytest.raises(Closed):
            await hub.ask(address, address, timeout=1000 if address == "slow" else None)
        assert ports.clock.monotonic() < before + 10
        told.append(address)

    told, before = [], ports.clock.monotonic()
    async with anyio.create_task_group() as group:
        opened = (
            Runtime([], store=journal, ports=ports)
            if by_runtime
            else Hub(journal=journal, ports=ports)
        )
        async with opened:
            hub = opened.hub if by_runtime else opened
            hub.serve("slow", slow)
            hub.serve("slower", slow)
            for address in ("slow", "slower", "user"):
                group.start_soon(ask, address)
            await anyio.sleep(1)
        await anyio.sleep(1)
        assert sorted(ended) == ["slow", "slower"]
    assert sorted(told) == ["slow", "slower", "user"]


async def test_what_goes_with_a_question_reaches_a_service_and_no_event(hub):
    got, seen = [], []
    hub.serve("keeper", lambda question, given: got.append((question, given)))
    hub.subscribe("*", seen.append)
    values = {"KEY": Secret("planted")}
    await hub.ask("keeper", "keep", given=values)
    assert got == [("keep", values)] and seen == []
    assert hub.is_served("keeper") and not hub.is_served("user")
    for somebody_else in ("user", "nobody", "01a2068e-1ed4-7350-a80b-0a31152f123e"):
        with pytest.raises(BadValue, match="only a service gets it"):
            await hub.ask(somebody_else, "keep", given=values)
    assert seen == []


# ── asking a run, and runs that ask ──────────────────────────────────────────────────────────


@agent("oracle")
async def oracle(input: str, ctx):
    async for message in ctx.messages():
        if message.content == "leave":
            return "left"
        if message.prompt_id:
            await ctx.hub.reply(message.prompt_id, f"{message.content}: 42")
    return None


@agent("curious")
async def curious(to: str, ctx):
    if to == "user":
        return await ctx.ask("How are you?", timeout=3600)
    return await ctx.hub.ask(to, "How many?")


async def test_run_is_asked_by_a_message_and_answers_with_reply(journal, ports):
    async with Runtime(agents=[oracle], store=journal, ports=ports) as rt:
        run = await rt.start("oracle", "")
        assert await rt.hub.ask(run.run_id, "What") == "What: 42"
        assert await rt.hub.ask(run.run_id, "How") == "How: 42"
        await rt.terminate(run.run_id)


async def test_asking_a_run_that_is_not_there_is_an_error(hub):
    with pytest.raises(PromptClosed, match="unknown"):
        await hub.ask(NOBODY, "Anybody?")


async def test_prompt_to_a_run_that_ends_is_closed(journal, ports):
    async with Runtime(agents=[oracle], store=journal, ports=ports) as rt:
        run = await rt.start("oracle", "")
        run.send("leave")
        with pytest.raises(PromptClosed, match=f"{run.run_id} has ended"):
            await rt.hub.ask(run.run_id, "What")
        with pytest.raises(PromptClosed, match="ended"):
            await rt.hub.ask(run.run_id, "What")


async def test_prompt_to_a_run_without_an_owner_is_closed_with_the_run(hub, eventually):
    run_id = (await hub.open("agent")).run_id
    asking = Asking(hub, run_id)
    async with anyio.create_task_group() as group:
        group.start_soon(asking)
        await eventually(lambda: hub.statistics().waiting == 2)
        lane = OwnLane(
            hub.pipeline, run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="agent"
        )
        lane.append((AgentComplete(),), status="ended")
    assert isinstance(asking.error, PromptClosed)


async def test_run_that_asks_the_user_has_prompt_and_reply_in_its_journal(journal, ports):
    async with Runtime(agents=[curious], store=journal, ports=ports) as rt:
        rt.hub.subscribe("session:prompt", lambda event: rt.hub.reply(event.prompt_id, "fine"))
        run = await rt.start("curious", "user")
        assert (await run.result()).output == "fine"
        events = await run.read()
        (prompt,) = [e for e in events if e.type == "session:prompt"]
        (reply,) = [e for e in events if e.type == "session:reply"]
        assert (prompt.lane, reply.lane) == ("own", "in")
        assert prompt.prompt_id == reply.prompt_id
        assert any(reply in e.items for e in events if e.type == "session:taken")


async def test_run_asks_a_run(journal, ports):
    async with Runtime(agents=[curious, oracle], store=journal, ports=ports) as rt:
        asked = await rt.start("oracle", "")
        assert (await rt.run("curious", asked.run_id)).output == "How many?: 42"
        await rt.terminate(asked.run_id)


async def test_run_asks_the_runtime_as_a_service(journal, ports):
    async with Runtime(agents=[curious, oracle], store=journal, ports=ports) as rt:
        assert await rt.hub.ask("runtime", "agents") == ["curious", "oracle"]


async def test_timeout_of_a_run_s_question_is_raised_in_the_run(journal, ports):
    async with Runtime(agents=[curious], store=journal, ports=ports) as rt:
        got = prompts(rt.hub)
        run = await rt.start("curious", "user")
        outcome = await run.result()
        assert outcome.outcome == "failed"
        assert "PromptTimeout" in outcome.reason
        late = await rt.hub.reply(got[0].prompt_id, "too late")
        assert late.rejected


async def test_prompt_of_a_run_that_has_ended_is_closed(journal, ports, eventually):
    async with Runtime(agents=[curious], store=journal, ports=ports) as rt:
        got = prompts(rt.hub)
        run = await rt.start("curious", "user")
        await eventually(lambda: got)
        await run.terminate()
        await run.finished()
        late = await rt.hub.reply(got[0].prompt_id, "too late")
        assert late.rejected
        assert late.reason not in ("unknown", "")


async def test_tool_of_a_model_agent_may_ask(journal, ports):
    @tool
    async def ask_user(state: RunState) -> str:
        """Ask the user."""
        return await state.hub.ask("user", "Really?")

    rt = Runtime(
        agents=[AgentDefinition(name="assistant", side_a=SideConfig(prompt="assistant"))],
        prompts=[
            PromptDefinition(
                name="assistant", prompt="You help.", model="scripted", tools=(ask_user,)
            )
        ],
        models={"scripted": ScriptedModel([reply("", call("ask_user")), "Done."])},
        store=journal,
        ports=ports,
    )
    async with rt:
        rt.hub.subscribe("session:prompt", lambda event: rt.hub.reply(event.prompt_id, "yes"))
        run = await rt.start("assistant", "Begin.")
        assert (await run.result()).output == "Done."
        (result,) = [e for e in await run.read() if e.type == "agent:tool:complete"]
        assert (result.output, result.is_error) == ("yes", False)


async def test_what_asks_through_the_hub_again_after_a_restart_asks_another_question(
    journal, ports, eventually
):
    """Otherwise the second answer would be taken for a repetition of the first.

    It is ``ctx.ask`` that keeps the answers.
    """

    @agent("stubborn", on_restart="resume")
    async def stubborn(input: str, ctx):
        answer = await ctx.hub.ask("user", "How are you?")
        if ctx.attempt == 1:
            await anyio.sleep_forever()
        return answer

    ids = []
    for answer in ("first", "second"):
        async with Runtime(agents=[stubborn], store=journal, ports=ports, grace=0) as rt:
            got = prompts(rt.hub)
            if not ids:
                run = await rt.start("stubborn", "")
            await eventually(lambda got=got: got)
            ids.append(got[0].prompt_id)
            assert (await rt.hub.reply(ids[-1], answer)).accepted
            if answer == "second":
                assert (await rt.result(run.run_id)).output == "second"
            else:
                await anyio.sleep(1)
    assert len(set(ids)) == 2


async def test_prompt_during_a_dispatch_is_seen_in_order(hub, eventually):
    got = []
    hub.subscribe("*", lambda event: got.append(event.type))

    async def asker(event):
        await hub.ask("user", "Again?")

    hub.subscribe("test:tick", asker)
    hub.subscribe("session:prompt", lambda event: hub.reply(event.prompt_id, "yes"))
    hub.emit(CustomEvent.of("test:tick"))
    await eventually(lambda: "session:reply" in got)
    assert got == ["test:tick", "session:prompt", "session:reply", "session:prompt:end"]
