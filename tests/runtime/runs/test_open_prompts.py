"""What ends an open prompt besides its reply, and prompts of the runs below a conversation."""

from typing import Any

import anyio
import pytest
from support.agents import Observer, model_agent
from support.asked import Asked
from support.families import Recorder, answers, child, config, heard, parent
from support.restarts import Lives

from hubbub import AgentDefinition, RunState, Runtime, SideConfig, external_tool, tool
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, PromptClosed
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("U-03", "U-04")]

PICK = external_tool("pick")


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def results(model: Recorder, at: int = -1) -> list[tuple[str, bool]]:
    return [(x.output, x.is_error) for x in answers(model.requests[at])]


BOTH = reply("", call("pay", amount=1), call("pick"))


@pytest.mark.parametrize("how", ["interrupt", "terminate", "reset", "close"])
async def test_what_stops_a_run_ends_what_it_asks(how: str) -> None:
    model = Recorder(BOTH, "Well then.")
    async with Runtime([model_agent(model, pay, PICK)], store="memory") as rt:
        seen, asked = Observer(rt.hub), Asked(rt.hub)
        run = await rt.start("assistant", "Pay.")
        prompts = await asked.wait(2)
        match how:
            case "interrupt":
                await rt.hub.interrupt(run.run_id, "enough")
            case "terminate":
                await rt.hub.terminate(run.run_id)
            case "reset":
                rt.hub.emit(e.SessionReset(run_id=run.run_id))
            case "close":
                await rt.hub.close_run(run.run_id)
        await anyio.sleep(10)
        assert sorted(x.prompt_id for x in asked.ends) == sorted(x.prompt_id for x in prompts)
        for prompt in prompts:
            late = await rt.hub.reply(prompt.prompt_id, "approve")
            assert late.status == "rejected"
            assert late.reason == next(
                x.reason for x in asked.ends if x.prompt_id == prompt.prompt_id
            )
        assert not [x for x in seen.all("agent:tool:start") if x.name == "pay"]
        assert not await rt.hub.journal.notes("pause/") or not any(
            (await rt.hub.journal.notes("pause/")).values()
        )
    if how == "close":
        assert results(model) == [
            ("not run: denied: the conversation was closed", True),
            ("no result: the conversation was closed", True),
        ]


async def test_a_word_that_gives_up_ends_all_that_is_asked_and_the_turn_goes_on() -> None:
    model = Recorder(BOTH, "Well then.")
    async with Runtime([model_agent(model, pay, PICK)], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Pay.")
        await asked.wait(2)
        await rt.hub.send_to_run(run.run_id, " Stop ")
        assert (await run.result()).output == "Well then."
    assert results(model) == [("cancelled by the user", True)] * 2
    assert heard(model.requests[-1]) == ["Pay."]


async def test_what_other_agents_and_programs_say_answers_nothing() -> None:
    model = Recorder(BOTH, "Done.", "More.")
    async with Runtime([model_agent(model, pay, PICK)], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Pay.")
        prompts = await asked.wait(2)
        rt.hub.emit(e.SessionMessage(run_id=run.run_id, content="hint", silent=True))
        await anyio.sleep(10)
        assert not asked.ends
        await rt.hub.approve(prompts[0].prompt_id)
        await rt.hub.reply(prompts[1].prompt_id, "it")
        await run.result()
    assert results(model, 1) == [("paid 1", False), ("it", False)]


@pytest.mark.parametrize("answer", ["approve", "deny", "message"])
@pytest.mark.parametrize("text", ["And thanks!", "And thanks, too!"])
async def test_what_was_said_before_anything_was_asked_is_heard_when_nothing_is_asked_any_more(
    answer: str, text: str
) -> None:
    model = Recorder(call("pay", amount=1), "Fine.", latency=5.0)
    async with Runtime([model_agent(model, pay)], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Pay.")
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, text)
        prompt = await asked.first()
        await anyio.sleep(10)
        assert not asked.ends
        if answer == "message":
            await rt.hub.send_to_run(run.run_id, "no")
        else:
            given = rt.hub.approve if answer == "approve" else rt.hub.deny
            assert (await given(prompt.prompt_id)).accepted
        assert (await run.result()).output == "Fine."
    wanted = {"approve": "paid 1", "deny": "not run: denied", "message": "not run: denied: no"}
    assert results(model) == [(wanted[answer], answer != "approve")]
    assert heard(model.requests[-1]) == ["Pay.", text]


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("answer", ["approve", "message"])
async def test_what_was_said_before_something_was_asked_waits_over_a_restart(
    is_killed: bool, answer: str, ports: Ports, tmp_path: Any
) -> None:
    lives = Lives(tmp_path, ports, is_killed=is_killed)
    model = Recorder(BOTH, "Fine.", latency=5.0)
    agent = model_agent(model, pay, PICK)
    async with lives.life(agent) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Pay.")
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "And thanks!")
        prompts = await asked.wait(2)
        await anyio.sleep(1)
    async with lives.life(agent) as rt:
        asked = Asked(rt.hub)
        await anyio.sleep(1)
        assert not asked.ends
        if answer == "message":
            await rt.hub.send_to_run(run.run_id, "no")
        else:
            assert (await rt.hub.approve(prompts[0].prompt_id)).accepted
            await anyio.sleep(1)
            assert (await rt.hub.reply(prompts[1].prompt_id, "it")).accepted
        await anyio.sleep(30)
    approved = [("paid 1", False), ("it", False)]
    denied = [("not run: denied: no", True), ("no result: no", True)]
    assert results(model) == (approved if answer == "approve" else denied)
    assert heard(model.requests[-1]) == ["Pay.", "And thanks!"]


async def test_a_word_that_gives_up_is_for_what_is_asked_later_too() -> None:
    model = Recorder(BOTH, "Well then.", latency=5.0)
    async with Runtime([model_agent(model, pay, PICK)], store="memory") as rt:
        run = await rt.start("assistant", "Pay.")
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "stop")
        assert (await run.result()).output == "Well then."
    assert results(model) == [("cancelled by the user", True)] * 2


async def test_a_question_of_a_tool_is_not_answered_by_what_was_said_before_it() -> None:
    model = Recorder(call("wonder"), "Fine.", latency=5.0)
    async with Runtime([model_agent(model, wonder)], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Wonder.")
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "By the way")
        await asked.first()
        await anyio.sleep(10)
        assert not asked.ends
        await rt.hub.send_to_run(run.run_id, "Really.")
        await run.result()
    assert results(model) == [("Really.", False)]
    assert heard(model.requests[-1]) == ["Wonder.", "By the way"]


@tool
async def wonder_late(state: RunState) -> str:
    """Ask, after a while."""
    await anyio.sleep(10)
    return str(await state.ask("Really?"))


async def test_a_message_answers_what_was_asked_before_it_and_not_what_was_asked_after_it() -> None:
    slow = Recorder(reply("", call("pay", amount=1), call("wonder_late")), "Fine.")
    async with Runtime(
        [model_agent(slow, pay, wonder_late, parallel_tool_calls=True)], store="memory"
    ) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Pay.")
        await asked.first()
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "no")
        await asked.wait(2)
        await anyio.sleep(10)
        assert [x.reason for x in asked.ends] == ["denied"]
        await rt.hub.send_to_run(run.run_id, "yes")
        await run.result()
    assert results(slow) == [("not run: denied: no", True), ("yes", False)]


async def test_a_frame_that_asks_is_not_answered_by_what_was_said_before() -> None:
    writer_model = Recorder(
        call("pay", amount=1), "I did.", call("complete", result="nothing"), latency=5.0
    )
    writer = AgentDefinition(
        name="writer", expose_as_tool=True,
        side_a=SideConfig(prompt=model_agent(writer_model, pay).side_a.prompt),  # type: ignore[union-attr]
    )  # fmt: skip
    main = Recorder(call("use_agent", name="writer", message="Pay."), "Back.")
    async with Runtime([parent(main, agents=("writer",)), writer], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "By the way")
        prompt = await asked.first()
        await anyio.sleep(10)
        assert not asked.ends
        assert (await rt.hub.approve(prompt.prompt_id)).accepted
        await anyio.sleep(20)
    assert results(writer_model, 1) == [("paid 1", False)]
    assert heard(writer_model.requests[1])[-1] == "By the way"


def family(
    *script: Any, blocking: bool, stays: bool = False
) -> tuple[Recorder, Recorder, list[Any]]:
    """A main agent and its child, which pays."""
    below = Recorder(call("pay", amount=1), call("finish", result="child is done"))
    kid = child(below, pay)
    make = call("helper", message="Pay it.")
    if stays:
        make = call("subagent_create", agent="helper", name="h", arguments={"message": "Pay it."})
    main = Recorder(make, *script)
    return main, below, [parent(main, config(blocking=blocking, stays=stays)), kid]


async def test_a_message_to_a_conversation_denies_what_the_child_asks_that_it_waits_for() -> None:
    main, below, agents = family("All done.", blocking=True)
    async with Runtime(agents, store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        prompt = await asked.first()
        assert prompt.root_run_id == run.run_id != prompt.run_id
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "Not so much!")
        assert (await run.result()).output == "All done."
    assert ("not run: denied: Not so much!", True) in results(below)
    assert [x for x, _ in results(main)] == ["child is done"]


async def test_a_message_said_before_the_child_asked_is_no_answer_to_it() -> None:
    main, below, agents = family("All done.", "And that.", blocking=True)
    async with Runtime(agents, store="memory") as rt:
        asked = Asked(rt.hub)
        slow = Recorder(call("pay", amount=1), call("finish", result="child is done"), latency=9.0)
        below._inner = slow._inner
        run = await rt.start("main", "Go.")
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "By the way")
        prompt = await asked.first()
        await anyio.sleep(10)
        assert not asked.ends
        await rt.hub.approve(prompt.prompt_id)
        await run.result()
    assert heard(main.requests[-1]) == ["Go.", "By the way"]


async def test_a_message_that_a_conversation_hears_denies_what_runs_in_the_background_ask() -> None:
    main, below, agents = family("Started.", "Sunny.", "Noted.", blocking=False)
    async with Runtime(agents, store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        await asked.first()
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "How is the weather?")
        await anyio.sleep(10)
        assert [x.reason for x in asked.ends] == ["denied"]
    assert ("not run: denied: How is the weather?", True) in results(below)
    assert "How is the weather?" in heard(main.requests[-1])


async def test_a_frame_that_asks_gets_what_is_said_to_the_conversation() -> None:
    writer_model = Recorder(call("pay", amount=1), "I may not.", call("complete", result="nothing"))
    writer = AgentDefinition(
        name="writer", expose_as_tool=True,
        side_a=SideConfig(prompt=model_agent(writer_model, pay).side_a.prompt),  # type: ignore[union-attr]
    )  # fmt: skip
    main = Recorder(call("use_agent", name="writer", message="Pay."), "Back.")
    async with Runtime([parent(main, agents=("writer",)), writer], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        await asked.first()
        await rt.hub.send_to_run(run.run_id, "No.")
        await anyio.sleep(10)
        assert results(writer_model) == [("not run: denied: No.", True)]
        await rt.hub.send_to_run(run.run_id, "Thanks.")
        await anyio.sleep(10)
    assert [x for x, _ in results(main)] == ["nothing"]


async def test_a_child_that_asks_below_a_frame_is_answered_through_the_conversation() -> None:
    below = Recorder(call("pay", amount=1), call("finish", result="child is done"))
    writer_model = Recorder(call("helper", message="Pay."), call("complete", result="so"))
    writer = parent(writer_model, config(), name="writer")
    writer = AgentDefinition(name="writer", expose_as_tool=True, side_a=writer.side_a)
    main = Recorder(call("use_agent", name="writer", message="Pay."), "Back.")
    agents = [parent(main, agents=("writer",)), writer, child(below, pay)]
    async with Runtime(agents, store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        await asked.first()
        await anyio.sleep(1)
        await rt.hub.send_to_run(run.run_id, "No.")
        await anyio.sleep(10)
    assert ("not run: denied: No.", True) in results(below)
    assert [x for x, _ in results(main)] == ["so"]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_restart_shows_what_is_asked_below_and_a_message_denies_it(
    is_killed: bool, ports: Ports, tmp_path: Any
) -> None:
    lives = Lives(tmp_path, ports, is_killed=is_killed)
    main, below, agents = family("All done.", blocking=True)
    async with lives.life(*agents) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        prompt_id = (await asked.first()).prompt_id
        await anyio.sleep(1)
    async with lives.life(*agents) as rt:
        asked = Asked(rt.hub)
        await rt.hub.send_to_run(run.run_id, "No.")
        await anyio.sleep(10)
        assert [x.prompt_id for x in asked.ends] == [prompt_id]
        assert not asked.prompts
        assert results(below) == [("not run: denied: No.", True)]
        assert [x for x, _ in results(main)] == ["child is done"]


@tool
async def wonder(state: RunState) -> str:
    """Ask."""
    try:
        return str(await state.ask("Really?"))
    except PromptClosed as error:
        return error.reason


UNATTENDED = "nobody attends this run, so nobody can answer"


@pytest.mark.parametrize("below", [False, True])
async def test_where_nobody_attends_a_runtime_may_deny_at_once(below: bool) -> None:
    asks = reply("", call("pay", amount=1), call("pick"), call("wonder"))
    model = Recorder(asks, call("finish", result="over") if below else "Over.")
    agents: list[Any] = [model_agent(model, pay, PICK, wonder, name="main")]
    if below:
        main = Recorder(call("helper", message="Go."), "Over.")
        agents = [parent(main, config()), child(model, pay, PICK, wonder)]
    async with Runtime(agents, store="memory", unattended="deny") as rt:
        assert (await rt.run("main", "Go.")).output == "Over."
        assert results(model) == [
            (f"not run: denied: {UNATTENDED}", True),
            (f"no result: {UNATTENDED}", True),
            (f"denied: {UNATTENDED}", False),
        ]
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")  # Somebody may talk with this one.
        await asked.wait(2)
        await anyio.sleep(100)
        assert not asked.ends
        await rt.terminate(run.run_id)


async def test_without_that_it_waits() -> None:
    model = Recorder(call("pay", amount=1), "Over.")
    async with Runtime([model_agent(model, pay)], store="memory") as rt:
        rt.hub.subscribe("session:prompt", lambda x: rt.hub.approve(x.prompt_id))
        assert (await rt.run("assistant", "Go.")).output == "Over."
    assert results(model) == [("paid 1", False)]


def test_what_to_do_where_nobody_attends_is_one_of_two() -> None:
    with pytest.raises(BadValue, match="unattended"):
        Runtime([], store="memory", unattended="skip")  # type: ignore[arg-type]
