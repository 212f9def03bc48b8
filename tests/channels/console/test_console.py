"""The console over a fake terminal: what is shown, and what keys do (K-03)."""

from functools import partial

import anyio
import pytest

from hubbub import (
    Agent,
    AgentDefinition,
    Hub,
    PromptDefinition,
    RunState,
    Runtime,
    SideConfig,
    SubagentToolConfig,
    ToolError,
    agent,
    tool,
)
from hubbub.agents.model import UserMessage
from hubbub.channels import Console, run_console
from hubbub.hub.errors import BadValue, PromptClosed, PromptTimeout
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("K-03")]


@tool
async def weather(city: str) -> str:
    """Current weather for a city."""
    if city == "Atlantis":
        raise ToolError("no such place")
    return f"Sun in {city}"


@tool(timeout=None)
async def slow() -> str:
    """Takes an hour."""
    await anyio.sleep(3600)
    return "at last"


@tool
async def choose(state: RunState) -> str:
    """Asks the user."""
    return await state.hub.ask("user", "Which one?", options=("red", "blue"))


@tool
async def describe(state: RunState) -> str:
    """Asks the user, with a limit of ten seconds."""
    return await state.hub.ask("user", "How?", timeout=10)


TOOLS = (weather, slow, choose, describe)


def model_agent(*script, name="bot", max_steps=None, tools=TOOLS, parallel=False, **options):
    """A model agent that answers from a script."""
    prompt = PromptDefinition(
        name=name, prompt="You help.", model=ScriptedModel(script, **options), tools=tools,
        parallel_tool_calls=parallel,
    )  # fmt: skip
    return AgentDefinition(name=name, side_a=SideConfig(prompt=prompt, max_steps=max_steps))


# ── what is said ─────────────────────────────────────────────────────────────────────────────


async def test_a_conversation_reads_line_answer_prompt(converse, terminal):
    bot = model_agent("It is sunny.", "It is\nraining.")
    async with converse(terminal, bot) as (_, codes):
        assert terminal.screen == ["> "]
        terminal.type("Paris?")
        await anyio.sleep(1)
        assert terminal.screen == ["> Paris?", "It is sunny.", "> "]
        terminal.type("Rome?")
        await anyio.sleep(1)
    assert terminal.screen == [
        "> Paris?", "It is sunny.", "> Rome?", "It is", "raining.", "> ", "",
    ]  # fmt: skip
    assert codes == [0]


async def test_lines_typed_ahead_do_not_mix_prompt_and_answer(converse, terminal):
    async with converse(terminal, model_agent("One.", "Two.", "Three.", latency=3)):
        terminal.type("a", "", "b", " ")
        await anyio.sleep(60)
        assert terminal.screen[:4] == ["> a", "", "b", " "]
        assert terminal.screen[-1] == "> "
        assert {"One.", "Two."} <= set(terminal.screen)


async def test_text_is_shown_as_it_is_written_and_only_once(converse, terminal):
    bot = model_agent("one two three four", latency=4)
    async with converse(terminal, bot):
        terminal.type("count")
        await anyio.sleep(2.5)
        assert terminal.screen == ["> count", "one two "]
        await anyio.sleep(5)
        assert terminal.screen == ["> count", "one two three four", "> "]


async def test_an_answer_that_had_begun_before_is_shown_whole_and_only_once(
    terminal, journal, ports
):
    bot = model_agent("one two three four", latency=8)
    async with Runtime([bot], store=journal, ports=ports, grace=0) as rt:
        await rt.hub.open("bot", "count", session_key="mine")
        await anyio.sleep(5)
        async with anyio.create_task_group() as group:
            talk = partial(run_console, rt.hub, "bot", session_key="mine")
            group.start_soon(partial(talk, reader=terminal, writer=terminal))
            await anyio.sleep(10)
            terminal.end()
    assert [line for line in terminal.screen if "three" in line] == ["one two three four"]
    assert "meant" not in terminal.out


async def test_what_a_model_streams_without_pause_is_shown_once(converse, terminal):
    async with converse(terminal, model_agent("one two three")):
        terminal.type("count")
        await anyio.sleep(1)
        assert terminal.out.count("one") == terminal.out.count("three") == 1


async def test_a_line_typed_while_the_agent_works_steers_it(converse, terminal):
    requests = []

    def answer(request):
        requests.append([m.content for m in request.messages if isinstance(m, UserMessage)])
        return reply("", call("weather", city="Rome")) if len(requests) == 1 else "Done."

    prompt = PromptDefinition(
        name="bot", prompt="", model=FunctionModel(answer, latency=5), tools=TOOLS
    )
    bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))
    async with converse(terminal, bot):
        terminal.type("begin")
        await anyio.sleep(1)
        terminal.type("hurry")
        await anyio.sleep(20)
        assert requests == [["begin"], ["begin", "hurry"]]
        assert terminal.screen[-2:] == ["Done.", "> "]


async def test_text_voided_by_a_retry_is_said_to_be_void(converse, terminal):
    bot = model_agent(Fault("cut", after=8), "one two three four", latency=4)
    async with converse(terminal, bot):
        terminal.type("count")
        await anyio.sleep(30)
    _, half, void, retry, *rest = terminal.screen
    assert half in ("one ", "one two ")
    assert void == "✗ the unfinished text above is void"
    assert retry.startswith("scripted: scripted fault (cut); trying again in")
    assert rest == ["one two three four", "> ", ""]


async def test_text_voided_by_a_restart_is_said_to_be_void(journal, ports, terminal):
    bot = model_agent("one two three four", latency=4)
    async with Hub(journal=journal, ports=ports) as hub, anyio.create_task_group() as group:
        console = Console(hub, "bot", reader=terminal, writer=terminal)
        group.start_soon(console.run)
        async with Runtime(agents=[bot], hub=hub, grace=0):
            await anyio.sleep(0.1)
            terminal.type("count")
            await anyio.sleep(2.5)
        async with Runtime(agents=[bot], hub=hub, grace=0):
            await anyio.sleep(10)
            terminal.end()
            await anyio.sleep(1)
    assert terminal.screen[:5] == [
        "> count", "one two ", "✗ the unfinished text above is void", "going on after a restart",
        "one two three four",
    ]  # fmt: skip


async def test_a_code_agent_is_given_the_prompt_when_it_waits(converse, terminal):
    @agent("echo")
    async def echo(input, ctx):
        ctx.say(f"heard {input}")
        async for message in ctx.messages():
            await anyio.sleep(5)
            ctx.say(f"heard {message.content}")

    async with converse(terminal, echo) as (_, codes):
        terminal.type("one")
        await anyio.sleep(2)
        assert terminal.screen == ["> one", "heard one", "> "]
        terminal.type("two")
        await anyio.sleep(2)
        assert terminal.screen[-1] == ""  # It works.
        await anyio.sleep(10)
        assert terminal.screen == ["> one", "heard one", "> two", "heard two", "> "]
    assert codes == [0]


async def test_what_a_silent_code_agent_returns_is_its_answer(converse, terminal):
    @agent("adder")
    async def adder(input, ctx):
        return {"sum": len(input)} if input != "text" else "a text"

    async with converse(terminal, adder):
        terminal.type("four")
        await anyio.sleep(1)
        terminal.type("text")
        await anyio.sleep(1)
        assert terminal.screen == ["> four", '{"sum":4}', "> text", "a text", "> "]


async def test_the_first_message_needs_no_typing(converse, terminal):
    async with converse(terminal, model_agent("Hello."), first="hi"):
        await anyio.sleep(1)
        assert terminal.screen == ["Hello.", "> "]


async def test_a_blank_line_says_nothing(converse, terminal):
    async with converse(terminal, model_agent("Hello.")) as (rt, _):
        terminal.type("", "  ")
        await anyio.sleep(1)
        assert await rt.hub.read(types="session:open") == []


# ── what happens besides ─────────────────────────────────────────────────────────────────────


async def test_a_tool_has_a_line_when_it_starts_and_one_with_its_result(converse, terminal):
    bot = model_agent(reply("Let me look.", call("weather", city="Rome")), "It is sunny.")
    async with converse(terminal, bot):
        terminal.type("Rome?")
        await anyio.sleep(1)
    assert terminal.screen[1:5] == [
        "Let me look.", "• weather(city='Rome')", "  → Sun in Rome", "It is sunny.",
    ]  # fmt: skip


async def test_a_tool_shows_that_it_works_before_its_result(converse, terminal):
    async with converse(terminal, model_agent(call("slow"), "Done.")):
        terminal.type("go")
        await anyio.sleep(60)
        assert terminal.screen == ["> go", "• slow()", ""]
        await anyio.sleep(3600)
        assert terminal.screen == ["> go", "• slow()", "  → at last", "Done.", "> "]


async def test_results_of_parallel_calls_name_their_tools(converse, terminal):
    calls = (call("slow"), call("weather", city="Rome"))
    async with converse(terminal, model_agent(reply("", *calls), "Done.", parallel=True)):
        terminal.type("go")
        await anyio.sleep(4000)
    shown = terminal.screen[1:5]
    assert shown[:2] == ["• slow()", "• weather(city='Rome')"]
    assert shown[3] == "  slow → at last"


async def test_errors_of_tools_have_a_colour_and_results_another(converse, terminal):
    terminal.has_colour = True
    script = [call("weather", city="Rome"), call("weather", city="Atlantis"), call("fly"), "Done."]
    async with converse(terminal, model_agent(*script)):
        terminal.type("go")
        await anyio.sleep(1)
    assert "\x1b[2m  → Sun in Rome\x1b[0m\n" in terminal.out
    assert "\x1b[31m  ✗ no such place\x1b[0m\n" in terminal.out
    assert "\x1b[31m  fly ✗ there is no tool named 'fly'" in terminal.out
    assert "\nDone.\n" in terminal.out


async def test_without_colour_no_line_has_one(converse, terminal):
    script = [call("weather", city="Rome"), call("weather", city="Atlantis"), "Done."]
    async with converse(terminal, model_agent(*script)):
        terminal.type("go")
        await anyio.sleep(1)
    assert "✗ no such place" in terminal.out
    assert "\x1b" not in terminal.out.replace("\r\x1b[K", "")


async def test_long_lines_of_tools_are_cut_to_the_width_of_the_screen(converse, terminal):
    @tool
    async def flood(size: int, note: str) -> str:
        """Returns much."""
        return "first\nsecond " + "x" * size

    script = [call("flood", size=900_000, note="y" * 5000), "Done."]
    async with converse(terminal, model_agent(*script, tools=(flood,))):
        terminal.type("go")
        await anyio.sleep(1)
    assert all(len(line) < 80 for line in terminal.screen)
    assert terminal.screen[2].startswith("  → first second xxx")
    assert terminal.screen[2].endswith("…")
    assert len(terminal.out) < 1000


async def test_status_and_children_stand_indented_under_their_names(converse, terminal):
    @agent("worker")
    async def worker(input, ctx):
        ctx.status(f"reading {input}")
        await anyio.sleep(1)
        ctx.say(f"{input} has 3 lines\n\nand ends well")
        if input == "bad":
            raise ValueError("unreadable")
        return 3

    @agent("lead")
    async def lead(input, ctx):
        ctx.status("looking")
        for each in ("good", "bad"):
            child = ctx.spawn("worker", each, name=f"{each} one")
            await child.result()
        ctx.say("All read.")

    async with converse(terminal, lead, worker):
        terminal.type("go")
        await anyio.sleep(10)
    assert terminal.screen[:14] == [
        "> go",
        "· looking",
        "+ good one (worker)",
        "  good one: · reading good",
        "  good one: good has 3 lines",
        "  good one: and ends well",
        "  good one: → 3",
        "+ bad one (worker)",
        "  bad one: · reading bad",
        "  bad one: bad has 3 lines",
        "  bad one: and ends well",
        "  bad one: ✗ failed: ValueError: unreadable",
        "All read.",
        "> ",
    ]


async def test_what_happens_while_a_sentence_is_written_waits_for_its_end(converse, terminal):
    @tool
    async def begin(state: RunState) -> str:
        """Starts a child that goes on beside."""
        state.spawn("ticker", None, name="ticker")
        return "begun"

    @agent("ticker")
    async def ticker(input, ctx):
        for number in range(3):
            await anyio.sleep(1)
            ctx.status(f"tick {number}")

    bot = model_agent(call("begin"), "a b c\nd e f", tools=(begin,), latency=6)
    async with converse(terminal, bot, ticker):
        terminal.type("go")
        await anyio.sleep(30)
    screen = terminal.screen
    first, second = screen.index("a b c"), screen.index("d e f")
    assert first < screen.index("  ticker: · tick 1") < second


async def test_nothing_from_outside_has_power_over_the_terminal(converse, terminal):
    evil = "\x1b]0;owned\x07\x1b[31mred\x9b2J\rover\x08\x7f\x00\u202e\u2066"

    @tool
    async def hostile(text: str) -> str:
        """Returns escapes."""
        return evil

    @agent("lead")
    async def child(input, ctx):
        ctx.status(evil)
        ctx.say(evil)
        raise ValueError(evil)

    @tool
    async def delegate(state: RunState) -> str:
        """Starts a hostile child."""
        await state.spawn("lead", None, name=evil.replace("\0", "")).finished()
        return await state.hub.ask("user", evil, options=(evil,))

    script = [
        reply(evil, call("hostile", text=evil)), call("delegate"), Fault("server", message=evil),
        evil, Fault("auth", message=evil), "never",
    ]  # fmt: skip
    bot = model_agent(*script, tools=(hostile, delegate), latency=2)
    async with converse(terminal, bot, child):
        terminal.type("go")
        await anyio.sleep(30)
        terminal.type("1")
        await anyio.sleep(30)
        terminal.type("again")
        await anyio.sleep(30)
    shown = terminal.out.replace("\r\x1b[K", "")
    assert shown.count("␛]0;owned␇") > 8
    assert not [c for c in shown if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0]
    assert not {"\u202e", "\u2066"} & {*shown}


# ── endings ──────────────────────────────────────────────────────────────────────────────────


async def test_a_session_that_fails_says_so_in_one_line_and_the_next_goes_on(converse, terminal):
    bot = model_agent(Fault("auth"), "Better now.")
    async with converse(terminal, bot) as (_, codes):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen == ["> go", "failed: scripted: scripted fault (auth)", "> "]
        terminal.type("and now?")
        await anyio.sleep(1)
        assert terminal.screen[3:] == ["failed: scripted: scripted fault (auth)", "> "]
    assert codes == [0]


async def test_a_limit_says_so_in_one_line(converse, terminal):
    bot = model_agent(call("weather", city="Rome"), max_steps=1)
    async with converse(terminal, bot):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen[-2:] == ["stopped: the limit of steps is reached", "> "]


@pytest.mark.spec("S-09")
async def test_a_turn_that_says_nothing_says_why(converse, terminal):
    bot = model_agent(reply("", stop_reason="refusal"))
    async with converse(terminal, bot):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen[-2].startswith("nothing was said: "), terminal.screen


@pytest.mark.spec("C-04")
async def test_a_subagent_that_could_not_be_started_is_shown(journal, ports, terminal):
    prompt = PromptDefinition(
        name="p", prompt="", model=ScriptedModel(["I see."]),
        tools=[SubagentToolConfig(name="helper", immediate=True)],
    )  # fmt: skip
    side = SideConfig(prompt=PromptDefinition(name="h", prompt="", model=ScriptedModel([])))
    helper = AgentDefinition(
        name="helper", type="dual_ai", expose_as_tool=True, max_session_turns=2,
        side_a=side, side_b=side,
    )  # fmt: skip
    bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))
    async with (
        Runtime([bot, helper], store=journal, ports=ports, max_depth=0) as rt,
        anyio.create_task_group() as group,
    ):
        group.start_soon(partial(run_console, rt.hub, "bot", reader=terminal, writer=terminal))
        await anyio.sleep(1)
        terminal.type("go")
        await anyio.sleep(1)
        terminal.end()
    assert any(line.startswith("✗ helper was not started: ") for line in terminal.screen)


async def test_an_unknown_agent_is_one_line(journal, ports, terminal):
    async with Runtime(agents=[], store=journal, ports=ports) as rt:
        with anyio.move_on_after(10):
            terminal.type("hi")
            terminal.end()
            assert await run_console(rt.hub, "nobody", reader=terminal, writer=terminal) == 0
    assert [line for line in terminal.screen if line not in ("hi", "> ", "")] == [
        "not sent: no agent named 'nobody'; known agents: none"
    ]


async def test_a_run_that_is_terminated_says_so_and_the_next_line_begins_anew(converse, terminal):
    async with converse(terminal, model_agent("One.", "Two.")) as (rt, _):
        terminal.type("a")
        await anyio.sleep(1)
        (first,) = await rt.hub.journal.runs()
        await rt.terminate(first.run_id, "enough")
        await anyio.sleep(1)
        assert terminal.screen == ["> a", "One.", "terminated: enough", "> "]
        terminal.type("b")
        await anyio.sleep(1)
        assert terminal.screen[3:] == ["> b", "One.", "> "]


async def test_a_line_that_the_run_ended_without_taking_is_told(converse, terminal):
    @agent("hasty")
    async def hasty(input, ctx):
        await anyio.sleep(5)
        return f"{input} is done"

    async with converse(terminal, hasty):
        terminal.type("one")
        await anyio.sleep(1)
        terminal.type("two")
        await anyio.sleep(10)
        assert terminal.screen == [
            "> one", "two", "one is done", "not handled, the run is over: two", "> ",
        ]  # fmt: skip


async def test_retries_are_shown(converse, terminal):
    bot = model_agent(Fault("rate_limit", times=2, retry_after=7), "Done.")
    async with converse(terminal, bot):
        terminal.type("go")
        await anyio.sleep(30)
    assert terminal.screen[1:4] == [
        "scripted: scripted fault (rate_limit); trying again in 7.0 s",
        "scripted: scripted fault (rate_limit); trying again in 7.0 s",
        "Done.",
    ]


@pytest.mark.spec("L-03")
async def test_answers_that_do_not_fit_are_shown_with_what_the_model_is_told(converse, terminal):
    answers = ScriptedModel(["warm", call("final_answer", n="x"), call("final_answer", n=2)])
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    bot = Agent("assistant", "x", model=answers, output=schema)
    async with converse(terminal, bot):
        terminal.type("go")
        await anyio.sleep(30)
    shown = [line for line in terminal.screen if "does not fit" in line]
    assert len(shown) == 2 and "told so: not valid JSON" in shown[0]
    assert "final_answer ✗" in shown[1] and "`n`: expected `int`" in shown[1]
    assert '{"n":2}' in terminal.screen


# ── Ctrl-C ───────────────────────────────────────────────────────────────────────────────────


async def test_ctrl_c_interrupts_the_turn_and_the_conversation_goes_on(converse, terminal):
    bot = model_agent(call("slow"), "Two.")
    async with converse(terminal, bot) as (_, codes):
        terminal.type("go")
        await anyio.sleep(5)
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        assert terminal.screen == [
            "> go", "• slow()", "^C", "interrupting; press Ctrl-C again to leave",
            "  ✗ interrupted: Ctrl-C", "interrupted: Ctrl-C", "> ",
        ]  # fmt: skip
        assert not codes
        await anyio.sleep(60)
        terminal.type("and?")
        await anyio.sleep(1)
        assert terminal.screen[-2:] == ["Two.", "> "]


async def test_ctrl_c_in_the_middle_of_a_sentence_interrupts_it(converse, terminal):
    async with converse(terminal, model_agent("one two three four", latency=8)):
        terminal.type("go")
        await anyio.sleep(3)
        terminal.press_ctrl_c()
        await anyio.sleep(30)
        assert terminal.screen[1:] == [
            "one ^C", "interrupting; press Ctrl-C again to leave", "interrupted: Ctrl-C", "> ",
        ]  # fmt: skip


async def test_ctrl_c_twice_leaves(converse, terminal):
    async with converse(terminal, model_agent(call("slow"), "Two.")) as (rt, codes):
        terminal.type("go")
        await anyio.sleep(5)
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        assert codes == [0]
        assert terminal.screen[-1] == ""
        assert await rt.hub.journal.runs() == []


async def test_ctrl_c_twice_leaves_also_when_the_interruption_takes_long(journal, ports, terminal):
    # A hub without a runtime: nobody heeds the interruption.
    async with Hub(journal=journal, ports=ports) as hub, anyio.create_task_group() as group:
        codes = []

        async def talk():
            codes.append(await run_console(hub, "bot", reader=terminal, writer=terminal))

        group.start_soon(talk)
        await anyio.sleep(1)
        terminal.type("go")
        await anyio.sleep(1)
        terminal.press_ctrl_c()
        await anyio.sleep(1.5)
        assert not codes
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        assert codes == [0]


async def test_two_presses_far_apart_interrupt_twice(converse, terminal):
    bot = model_agent(call("slow"), call("slow"), "Three.")
    async with converse(terminal, bot) as (_, codes):
        for _ in range(2):
            terminal.type("go")
            await anyio.sleep(5)
            terminal.press_ctrl_c()
            await anyio.sleep(5)
        assert not codes
        assert terminal.screen.count("interrupted: Ctrl-C") == 2


@pytest.mark.spec("I-08")
async def test_ctrl_c_at_an_idle_prompt_gives_a_fresh_one_and_twice_leaves(converse, terminal):
    async with converse(terminal, model_agent("One.")) as (_, codes):
        terminal.type("go")
        await anyio.sleep(5)
        for _ in range(2):
            terminal.press_ctrl_c()
            await anyio.sleep(1)
            assert terminal.screen[-3:] == ["> ^C", "press Ctrl-C again to leave", "> "]
            await anyio.sleep(1)  # They are too far apart.
        assert not codes
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        assert codes == [0]
        assert terminal.screen[-2:] == ["> ^C", ""]


@pytest.mark.spec("I-08")
async def test_a_line_between_two_presses_makes_the_second_an_interruption(converse, terminal):
    async with converse(terminal, model_agent(call("slow"), "Two.")) as (_, codes):
        terminal.press_ctrl_c()
        await anyio.sleep(0.5)
        terminal.type("go")
        await anyio.sleep(0.5)
        terminal.press_ctrl_c()
        await anyio.sleep(5)
        assert not codes
        assert terminal.screen[-2:] == ["interrupted: Ctrl-C", "> "]


async def test_ctrl_c_before_anything_was_said_needs_no_conversation(converse, terminal):
    async with converse(terminal, model_agent("One.")) as (rt, codes):
        for _ in range(2):
            terminal.press_ctrl_c()
            await anyio.sleep(1)
        assert codes == [0]
        assert terminal.screen == ["> ^C", "press Ctrl-C again to leave", "> ^C", ""]
        assert await rt.hub.read() == []


# ── questions ────────────────────────────────────────────────────────────────────────────────


async def test_a_question_is_answered_by_the_next_line(converse, terminal):
    script = [call("choose"), "Red it is."]
    async with converse(terminal, model_agent(*script)):
        terminal.type("go")
        await anyio.sleep(60)
        assert terminal.screen[1:] == ["• choose()", "? Which one?", "  1) red", "  2) blue", "> "]
        terminal.type("")  # Says nothing: there are options.
        terminal.type("2")
        await anyio.sleep(1)
        assert terminal.screen[-3:] == ["  → blue", "Red it is.", "> "]


async def test_a_question_from_outside_any_run_is_answered_too(converse, terminal):
    async with converse(terminal, model_agent("One.")) as (rt, _):
        answers = []

        async def ask():
            answers.append(await rt.hub.ask("user", "Ready?"))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await anyio.sleep(1)
            assert terminal.screen == ["? Ready?", "> "]
            terminal.type("yes")
        assert answers == ["yes"]


async def test_a_question_to_somebody_else_is_none_of_the_users_business(converse, terminal):
    async with converse(terminal, model_agent("One.")) as (rt, _):
        with pytest.raises(PromptClosed):
            await rt.hub.ask("auditor", "Is it true?", timeout=10)
        terminal.type("hi")
        await anyio.sleep(1)
        assert terminal.screen == ["> hi", "One.", "> "]


async def test_a_line_after_a_question_of_a_program_has_expired_is_a_message(converse, terminal):
    async with converse(terminal, model_agent("One.")) as (rt, _):
        with pytest.raises(PromptTimeout):
            await rt.hub.ask("user", "Ready?", timeout=10)
        await anyio.sleep(1)
        terminal.type("yes")
        await anyio.sleep(1)
        assert terminal.screen == ["? Ready?", "> yes", "One.", "> "]


async def test_a_line_after_a_question_of_the_run_has_expired_is_a_message(converse, terminal):
    bot = model_agent(call("describe"), call("slow"), "Done.")
    async with converse(terminal, bot) as (rt, _):
        terminal.type("go")
        await anyio.sleep(20)
        assert "? How?" in terminal.screen
        terminal.type("well")
        await anyio.sleep(1)
        (message,) = await rt.hub.read(types="session:message")
        assert message.content == "well"


async def test_a_question_answered_elsewhere_is_closed_here(converse, terminal):
    async with converse(terminal, model_agent(call("choose"), "Done.", "More.")) as (rt, _):
        asked = []
        rt.hub.subscribe("session:prompt", asked.append)
        terminal.type("go")
        await anyio.sleep(5)
        await rt.hub.reply(asked[0].prompt_id, "red", source="elsewhere")
        await anyio.sleep(1)
        terminal.type("more")
        await anyio.sleep(1)
        assert terminal.screen[-2:] == ["More.", "> "]


async def test_ctrl_c_at_a_question_closes_it(converse, terminal):
    async with converse(terminal, model_agent(call("choose"), "Done.")) as (rt, _):
        terminal.type("go")
        await anyio.sleep(5)
        terminal.press_ctrl_c()
        await anyio.sleep(5)
        terminal.type("1")
        await anyio.sleep(1)
        (message,) = await rt.hub.read(types="session:message")
        assert message.content == "1"
        assert terminal.screen[-2:] == ["Done.", "> "]


@pytest.mark.parametrize("wait", [0, 5])
async def test_with_no_more_input_a_question_interrupts_its_turn(converse, terminal, wait):
    async with converse(terminal, model_agent(call("choose"), "Done.")) as (_, codes):
        terminal.type("go")
        await anyio.sleep(wait)
        terminal.end()
        await anyio.sleep(10)
        assert codes == [0]
    assert "no more input to answer: Which one?" in terminal.screen


# ── pipes ────────────────────────────────────────────────────────────────────────────────────


async def test_a_pipe_gets_the_answer_and_nothing_else(converse, pipe):
    script = [reply("Let me look.", call("weather", city="Rome")), "It is sunny."]
    pipe.type("Rome?")
    pipe.end()
    async with converse(pipe, model_agent(*script, latency=5)) as (_, codes):
        await anyio.sleep(60)
        assert codes == [0]
    assert pipe.out == "Let me look.\nIt is sunny.\n"
    assert pipe.aside == ""


async def test_a_pipe_gets_nothing_that_a_terminal_behind_it_would_obey(converse, pipe):
    """As with ``hubbub chat | tee``."""
    pipe.type("go")
    pipe.end()
    evil = "\x1b]0;owned\x07\x1b[31mred\x9b2J\r\n\tover\x08\u202e"
    async with converse(pipe, model_agent(evil)) as (_, codes):
        await anyio.sleep(60)
    assert codes == [0]
    assert pipe.out == "␛]0;owned␇␛[31mred\ufffd2J\n\tover␈\ufffd\n"


async def test_lines_of_a_pipe_are_answered_one_by_one(converse, pipe):
    pipe.type("a", "b", "c")
    pipe.end()
    async with converse(pipe, model_agent("1", "2", "3", latency=5)) as (rt, codes):
        await anyio.sleep(60)
        assert codes == [0]
        assert len(await rt.hub.read(types="session:start")) == 3
    assert pipe.out == "1\n2\n3\n"


async def test_a_code_agent_behind_a_pipe_ends_with_the_input(converse, pipe):
    @agent("echo")
    async def echo(input, ctx):
        ctx.say(f"heard {input}")
        async for message in ctx.messages():
            await anyio.sleep(60)
            ctx.say(f"heard {message.content}")
        await anyio.sleep(60)
        ctx.say("bye")

    pipe.type("one", "two")
    pipe.end()
    async with converse(pipe, echo) as (_, codes):
        await anyio.sleep(200)
        assert codes == [0]
    assert pipe.out == "heard one\nheard two\nbye\n"


async def test_a_failure_behind_a_pipe_is_told_aside_and_by_the_exit_code(converse, pipe):
    pipe.type("go")
    pipe.end()
    async with converse(pipe, model_agent(Fault("auth"), "never")) as (_, codes):
        await anyio.sleep(1)
        assert codes == [1]
    assert pipe.out == ""
    assert pipe.aside == "failed: scripted: scripted fault (auth)\n"


async def test_a_retry_behind_a_pipe_leaves_no_half_answer(converse, pipe):
    pipe.type("go")
    pipe.end()
    bot = model_agent(Fault("cut", after=8), "one two three four", latency=4)
    async with converse(pipe, bot) as (_, codes):
        await anyio.sleep(60)
        assert codes == [0]
    assert pipe.out == "one two three four\n"
    assert "trying again" in pipe.aside


async def test_an_empty_pipe_does_nothing(converse, pipe):
    pipe.end()
    async with converse(pipe, model_agent("One.")) as (rt, codes):
        assert codes == [0]
        assert await rt.hub.read(types="session:open") == []
    assert pipe.out == pipe.aside == ""


async def test_the_lines_of_a_pipe_answer_questions(converse, pipe):
    pipe.type("go", "1")
    pipe.end()
    async with converse(pipe, model_agent(call("choose"), "Done.")) as (rt, codes):
        await anyio.sleep(10)
        (result,) = await rt.hub.read(types="agent:tool:complete")
        assert result.output == "red"
        assert codes == [0]
    assert pipe.out == "Done.\n"
    assert "? Which one?" in pipe.aside


async def test_the_question_of_a_code_agent_behind_a_pipe_keeps_the_next_line_waiting(
    converse, pipe
):
    @agent("asker")
    async def asker(input, ctx):
        ctx.say("I have a question.")
        await anyio.sleep(5)
        heard = await ctx.ask("Which one?")
        await anyio.sleep(0.1)
        ctx.say(f"So: {heard}.")
        async for message in ctx.messages():
            ctx.say(f"And: {message.content}.")

    async with converse(pipe, asker) as (rt, _):
        pipe.type("go")
        await anyio.sleep(6)
        pipe.type("red", "more")
        await anyio.sleep(10)
        events = await rt.hub.read(types=["agent:text", "session:message"])
        told = [getattr(x, "text", "") or getattr(x, "content", "") for x in events]
        assert told == ["I have a question.", "So: red.", "more", "And: more."]


async def test_ctrl_c_behind_a_pipe_leaves_at_once(converse, pipe):
    pipe.type("go")
    async with converse(pipe, model_agent(call("slow"), "Done.")) as (_, codes):
        await anyio.sleep(5)
        pipe.press_ctrl_c()
        await anyio.sleep(1)
        assert codes == [130]


async def test_a_pipe_that_nobody_reads_any_more_ends_the_conversation(converse, pipe):
    def broken(text):
        raise BrokenPipeError

    pipe.write = broken
    pipe.type("go")
    async with converse(pipe, model_agent("Done.")) as (_, codes):
        await anyio.sleep(5)
        assert codes == [1]


# ── conversations ────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("K-04")
async def test_a_conversation_with_a_key_goes_on_in_a_later_console(converse, terminal, pipe):
    bot = model_agent("One.", "Two.")
    async with converse(terminal, bot, session_key="mine") as (rt, codes):
        terminal.type("a")
        terminal.end()
        await anyio.sleep(5)
        assert codes == [0]
        pipe.type("b")
        pipe.end()
        code = await run_console(rt.hub, "bot", session_key="mine", reader=pipe, writer=pipe)
        assert code == 0
        assert pipe.out == "Two.\n"
        assert len(await rt.hub.read(types="agent:start")) == 1


async def test_a_conversation_without_a_key_ends_with_the_console(converse, terminal):
    async with converse(terminal, model_agent("One.")) as (rt, codes):
        terminal.type("a")
        await anyio.sleep(5)
        assert len(await rt.hub.journal.runs()) == 1
        terminal.end()
        await anyio.sleep(5)
        assert codes == [0]
        assert await rt.hub.journal.runs() == []


async def test_the_end_of_input_waits_for_the_last_answer(converse, terminal):
    async with converse(terminal, model_agent(call("slow"), "Done.")) as (_, codes):
        terminal.type("go")
        terminal.end()
        await anyio.sleep(3000)
        assert not codes
        await anyio.sleep(1000)
        assert codes == [0]
    assert terminal.screen[-2:] == ["Done.", ""]


async def test_other_runs_of_the_hub_are_none_of_the_consoles_business(converse, terminal):
    async with converse(terminal, model_agent("One.", name="bot")) as (rt, _):
        await rt.run("bot", "elsewhere")
        await anyio.sleep(1)
        assert terminal.screen == ["> "]


async def test_a_console_leaves_when_the_hub_closes(ports, journal, terminal):
    codes = []

    async def talk(hub):
        codes.append(await run_console(hub, "bot", reader=terminal, writer=terminal))

    async with anyio.create_task_group() as group:
        async with Runtime(agents=[model_agent("One.")], store=journal, ports=ports) as rt:
            group.start_soon(talk, rt.hub)
            await anyio.sleep(1)
        await anyio.sleep(1)
        assert codes == [0]


async def test_a_hub_has_one_console(converse, terminal, pipe):
    async with converse(terminal, model_agent("One.")) as (rt, _):
        with pytest.raises(BadValue, match="a channel 'console' already"):
            await run_console(rt.hub, "bot", reader=pipe, writer=pipe)
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen[-2:] == ["One.", "> "]


async def test_a_message_too_long_for_the_hub_is_refused_in_words(converse, pipe):
    pipe.type("hi", "x" * 4_000_001)
    pipe.end()
    async with converse(pipe, model_agent("One.", "Two.")) as (_, codes):
        await anyio.sleep(5)
        assert codes
    assert pipe.out == "One.\n"
    assert "longer than 4,000,000 characters" in pipe.aside
