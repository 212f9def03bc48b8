"""The console while children have the conversation: what is shown, who is asked, what keys do."""

from functools import partial

import anyio
import pytest
from support.stacks import FRAME, MAIN, open_stack

from hubbub import (
    AgentDefinition,
    Hub,
    PromptDefinition,
    RunState,
    Runtime,
    SideConfig,
    agent,
    tool,
)
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.state.commands import BACK, CANCELLED, SENT_BACK, STOP
from hubbub.channels import Channel, Channels, run_console
from hubbub.channels.console.answers import WORDS
from hubbub.channels.console.questions import BY_WORD
from hubbub.channels.console.screen import prompt_of
from hubbub.channels.console.stack import Stack
from hubbub.hub import events as e
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import Fault, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


@tool
async def web_search(query: str) -> str:
    """Search the web."""
    return f"three pages about {query}"


@tool(timeout=None)
async def slow() -> str:
    """Takes an hour."""
    await anyio.sleep(3600)
    return "at last"


def talker(name, *script, agents=(), skills=(), pauses=False, model=None, **options):
    """An agent that can have the conversation, answering from a script."""
    prompt = PromptDefinition(
        name=name, prompt=f"You are {name}.", model=model or ScriptedModel(script, **options),
        tools=(web_search, slow), agents=agents, skills=skills,
    )  # fmt: skip
    return AgentDefinition(
        name=name, expose_as_tool=True, tool_description=f"Does {name}.",
        supports_checkpointing=pauses, side_a=SideConfig(prompt=prompt),
    )  # fmt: skip


def use(name, message):
    return call("use_agent", name=name, message=message)


def complete(result):
    return call("complete", result=result)


def main_agent(*more, **options):
    """Gives the conversation to a writer, then says two things."""
    script = (use("writer", "a summary"), *(more or ("All done.", "And more.")))
    return talker("main", *script, agents=("writer",), **options)


def writer(*script, **options):
    """Gives it to research at once, then asks, then completes."""
    script = script or (use("research", "find APIs"), "Short or long?", complete("It is written."))
    return talker("writer", *script, agents=("research",), **options)


def research(*script, **options):
    return talker("research", *(script or ("Which Python?", complete("three APIs"))), **options)


OPENING = [
    "> go",
    "▸ writer takes over: a summary",
    "▸ research takes over: find APIs",
    "Which Python?",
]


# ── who speaks, and to whom ──────────────────────────────────────────────────────────────────


def research_skill():
    """IA's example: speaks, searches when it is told what for, completes."""
    script = [
        "I'll search for Python async APIs...",
        call("web_search", query="3.13 async"),
        complete("Found 3 APIs: TaskGroup, Runner, timeout"),
    ]
    return Skill(
        name="research", description="Researches.", instructions="Research it.",
        tools=(web_search,), model=ScriptedModel(script),
    )  # fmt: skip


@pytest.mark.spec("I-01", "I-17", "K-03")
async def test_the_stack_diagram_of_interactive_agents(converse, terminal):
    call_skill = call("use_skill", name="research", message="Python async APIs")
    main = talker(
        "main", call_skill, "There are three of them.", "You are welcome.",
        skills=(research_skill(),),
    )  # fmt: skip
    async with converse(terminal, main) as (_, codes):
        terminal.type("research Python async APIs")
        await anyio.sleep(1)
        assert terminal.screen == [
            "> research Python async APIs",
            "▸ research takes over: Python async APIs",
            "I'll search for Python async APIs...",
            "main › research › ",
        ]
        terminal.type("focus on 3.13 specifically")
        await anyio.sleep(1)
        assert terminal.screen[3:] == [
            "main › research › focus on 3.13 specifically",
            "• web_search(query='3.13 async')",
            "  → three pages about 3.13 async",
            "↩ research → Found 3 APIs: TaskGroup, Runner, timeout",
            "▸ main",
            "There are three of them.",
            "> ",
        ]
        terminal.type("thanks")
        await anyio.sleep(1)
        assert terminal.screen[-3:] == ["> thanks", "You are welcome.", "> "]
    assert codes == [0]


@pytest.mark.spec("I-01", "I-17")
async def test_the_prompt_shows_the_stack_of_nested_takeovers(converse, terminal):
    async with converse(terminal, main_agent(), writer(), research()):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen == [*OPENING, "main › writer › research › "]
        terminal.type("3.13")
        await anyio.sleep(1)
        assert terminal.screen[4:] == [
            "main › writer › research › 3.13", "↩ research → three APIs", "▸ writer",
            "Short or long?", "main › writer › ",
        ]  # fmt: skip
        terminal.type("short")
        await anyio.sleep(1)
        assert terminal.screen[8:] == [
            "main › writer › short", "↩ writer → It is written.", "▸ main", "All done.", "> ",
        ]  # fmt: skip
        terminal.type("more")
        await anyio.sleep(1)
        assert terminal.screen[12:] == ["> more", "And more.", "> "]


@pytest.mark.spec("I-17")
@pytest.mark.parametrize(
    ("names", "width", "prompt"),
    [
        ((), 80, "> "),
        (("main",), 80, "> "),
        (("main", "research"), 80, "main › research › "),
        (("main", "writer", "research"), 40, "… › research › "),
        (("main", "writer", "x" * 100), 40, f"… › {'x' * 28}… › "),
        (("main", "ev\x1bil"), 80, "main › ev␛il › "),
    ],
)
def test_a_prompt_leaves_room_for_what_is_typed(names, width, prompt):
    assert prompt_of(names, width) == prompt


@pytest.mark.spec("I-17")
async def test_a_narrow_terminal_keeps_the_name_of_whoever_listens(converse, terminal):
    terminal.width = 40
    async with converse(terminal, main_agent(), writer(), research()):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen[-1] == "… › research › "


@pytest.mark.spec("I-10")
async def test_a_frames_text_is_shown_as_it_is_written_and_once(converse, terminal):
    frame = research("one two three four", complete("x"), latency=4)
    async with converse(terminal, main_agent(), writer(), frame):
        terminal.type("go")
        await anyio.sleep(2.5)
        assert terminal.screen[3:] == ["one two "]
        await anyio.sleep(10)
        assert terminal.screen[3:] == ["one two three four", "main › writer › research › "]


@pytest.mark.spec("I-10")
async def test_a_frames_text_voided_by_a_retry_is_said_to_be_void(converse, terminal):
    frame = research(Fault("cut", after=8), "one two three four", latency=4)
    async with converse(terminal, main_agent(), writer(), frame):
        terminal.type("go")
        await anyio.sleep(30)
        half, void, retry, whole, prompt = terminal.screen[3:]
        assert half in ("one ", "one two ")
        assert void == "✗ the unfinished text above is void"
        assert "trying again" in retry
        assert (whole, prompt) == ("one two three four", "main › writer › research › ")


@pytest.mark.spec("I-10")
async def test_text_beside_the_call_of_a_child_reaches_the_user_first(converse, terminal):
    main = talker(
        "main", reply("I pass you on.", use("research", "it")), "B.", agents=("research",)
    )
    async with converse(terminal, main, research()):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen == [
            "> go", "I pass you on.", "▸ research takes over: it", "Which Python?",
            "main › research › ",
        ]  # fmt: skip


@pytest.mark.spec("I-10")
async def test_a_frame_that_says_nothing_leaves_the_prompt(converse, terminal):
    frame = research(reply("", stop_reason="refusal"), complete("x"))
    async with converse(terminal, main_agent(), writer(), frame):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen[3].startswith("nothing was said: ")
        assert terminal.screen[-1] == "main › writer › research › "


async def test_isolated_children_of_a_frame_stay_in_the_margin(converse, terminal):
    @agent("helper")
    async def helper(input, ctx):
        ctx.say("I look it up")
        return "found"

    @tool
    async def look_up(state: RunState) -> str:
        """Asks a helper."""
        return str((await state.spawn("helper", None).finished()).output)

    prompt = PromptDefinition(
        name="research", prompt="", model=ScriptedModel([call("look_up"), "Found it."]),
        tools=(look_up,),
    )  # fmt: skip
    frame = AgentDefinition(
        name="research", expose_as_tool=True, tool_description="r", side_a=SideConfig(prompt=prompt)
    )
    async with converse(terminal, main_agent(), writer(), frame, helper):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen[3:] == [
            "• look_up()", "+ helper", "  helper: I look it up", "  helper: → found",
            "  → found", "Found it.", "main › writer › research › ",
        ]  # fmt: skip


async def test_takeovers_of_an_isolated_child_take_nothing_from_the_user(converse, terminal):
    @tool
    async def delegate(state: RunState) -> str:
        """Has it written."""
        return str((await state.spawn("writer", "go").finished()).output)

    prompt = PromptDefinition(
        name="main", prompt="", model=ScriptedModel([call("delegate"), "There."]), tools=(delegate,)
    )
    main = AgentDefinition(name="main", side_a=SideConfig(prompt=prompt))
    async with converse(terminal, main, writer(), research()):
        terminal.type("go")
        await anyio.sleep(10)
        assert terminal.screen[-2:] == ["There.", "> "]
        assert not [line for line in terminal.screen if "▸" in line or "↩" in line]
        assert "    research: Which Python?" in terminal.screen


async def test_a_call_that_pushes_nothing_is_shown_with_its_error(converse, terminal):
    script = (use("nobody", "it"), use("research", " "), "Then I do it myself.")
    main = talker("main", *script, agents=("research",))
    async with converse(terminal, main, research()):
        terminal.type("go")
        await anyio.sleep(1)
        start, error, *rest = terminal.screen[1:]
        assert start == "• use_agent(name='nobody', message='it')"
        assert error.startswith("  ✗ ")
        assert rest[0].startswith("• use_agent(name='research'")
        assert rest[1] == "  ✗ `message` is empty: say what it is to do"
        assert rest[2:] == ["Then I do it myself.", "> "]


async def test_a_passthrough_skill_shows_that_it_works(converse, terminal):
    @tool(timeout=None)
    async def run_code(message: str) -> str:
        """Runs it."""
        await anyio.sleep(60)
        return f"ran {message}"

    skill = Skill(name="code", description="Runs code.", passthrough=run_code)
    script = (call("web_search", query="a"), call("use_skill", name="code", message="f()"), "Ran.")
    async with converse(terminal, talker("main", *script, skills=(skill,))):
        terminal.type("go")
        await anyio.sleep(10)
        assert terminal.screen[3:] == ["• use_skill(name='code', message='f()')", ""]
        await anyio.sleep(60)
        assert terminal.screen[3:] == [
            "• use_skill(name='code', message='f()')", "  → ran f()", "Ran.", "> ",
        ]  # fmt: skip


async def test_a_frame_that_fails_gives_the_conversation_back_in_one_line(converse, terminal):
    async with converse(terminal, main_agent(), writer(), research(Fault("auth"))):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen[3:] == [
            "✗ research gave the conversation back: failed: scripted: scripted fault (auth)",
            "▸ writer", "Short or long?", "main › writer › ",
        ]  # fmt: skip


# ── getting it back ──────────────────────────────────────────────────────────────────────────


def test_the_words_are_those_that_agents_heed():
    assert STOP | {BACK} == WORDS
    assert {CANCELLED, SENT_BACK} == BY_WORD


@pytest.mark.spec("I-08")
@pytest.mark.parametrize("word", ["/stop", " Cancel ", "stop"])
async def test_a_word_brings_the_user_back_to_main(converse, terminal, word):
    async with converse(terminal, main_agent(), writer(), research()):
        terminal.type("go")
        await anyio.sleep(1)
        terminal.type(word)
        await anyio.sleep(1)
        assert terminal.screen[4:] == [f"main › writer › research › {word}", "back to main", "> "]
        terminal.type("and you?")
        await anyio.sleep(1)
        assert terminal.screen[6:] == ["> and you?", "All done.", "> "]


@pytest.mark.spec("I-08")
async def test_a_word_stops_a_frame_in_the_middle_of_its_sentence(converse, terminal):
    frame = research("one two three four", latency=40)
    async with converse(terminal, main_agent(), writer(), frame):
        terminal.type("go")
        await anyio.sleep(15)
        terminal.type("stop")
        await anyio.sleep(60)
        assert terminal.screen[3:] == ["one stop", "back to main", "> "]


@pytest.mark.spec("I-08")
async def test_back_pops_one_frame(converse, terminal):
    async with converse(terminal, main_agent(), writer(), research()):
        terminal.type("go")
        await anyio.sleep(1)
        terminal.type("/back")
        await anyio.sleep(1)
        assert terminal.screen[4:] == [
            "main › writer › research › /back",
            "✗ research gave the conversation back: sent back by the user",
            "▸ writer", "Short or long?", "main › writer › ",
        ]  # fmt: skip


@pytest.mark.spec("I-08")
async def test_ctrl_c_interrupts_the_frame_that_works_and_it_stays(converse, terminal):
    frame = research("Which Python?", call("slow"), "What now?", complete("x"))
    async with converse(terminal, main_agent(), writer(), frame) as (_, codes):
        terminal.type("go")
        await anyio.sleep(1)
        terminal.type("3.13")
        await anyio.sleep(5)
        terminal.press_ctrl_c()
        await anyio.sleep(5)
        assert terminal.screen[5:] == [
            "• slow()", "^C", "interrupting; Ctrl-C again goes back to main",
            "  ✗ interrupted: Ctrl-C", "interrupted: Ctrl-C", "main › writer › research › ",
        ]  # fmt: skip
        terminal.type("go on")
        await anyio.sleep(1)
        assert terminal.screen[-2:] == ["What now?", "main › writer › research › "]
    assert codes == [0]


@pytest.mark.spec("I-08")
async def test_ctrl_c_while_a_frame_waits_goes_back_to_main_and_there_twice_leaves(
    converse, terminal
):
    async with converse(terminal, main_agent(), writer(), research()) as (_, codes):
        terminal.type("go")
        await anyio.sleep(1)
        terminal.press_ctrl_c()
        await anyio.sleep(5)
        assert terminal.screen[4:] == ["main › writer › research › ^C", "back to main", "> "]
        assert not codes
        terminal.type("and you?")
        await anyio.sleep(5)
        assert terminal.screen[-2:] == ["All done.", "> "]
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        assert not codes
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        assert codes == [0]


@pytest.mark.spec("I-08")
async def test_a_press_that_went_back_to_main_is_not_the_first_of_two_that_leave(
    converse, terminal
):
    async with converse(terminal, main_agent(), writer(), research()) as (_, codes):
        terminal.type("go")
        await anyio.sleep(1)
        for shown in ("back to main", "press Ctrl-C again to leave"):
            terminal.press_ctrl_c()
            await anyio.sleep(0.5)
            assert not codes
            assert terminal.screen[-2:] == [shown, "> "]
        terminal.press_ctrl_c()
        await anyio.sleep(0.5)
        assert codes == [0]


@pytest.mark.spec("I-08")
async def test_two_presses_take_a_frame_away_that_heeds_no_interruption(converse, terminal):
    @tool(timeout=None)
    async def stubborn() -> str:
        """Takes a minute, and cannot be cut off."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)
        return "done"

    prompt = PromptDefinition(
        name="research", prompt="", model=ScriptedModel([call("stubborn")]), tools=(stubborn,)
    )
    frame = AgentDefinition(
        name="research", expose_as_tool=True, tool_description="r", side_a=SideConfig(prompt=prompt)
    )
    async with converse(terminal, main_agent(), writer(), frame) as (rt, codes):
        terminal.type("go")
        await anyio.sleep(5)
        for _ in range(2):
            terminal.press_ctrl_c()
            await anyio.sleep(1)
        asked = await rt.hub.read(types="session:abort")
        assert [x.agent for x in asked] == ["research", "main"]
        await anyio.sleep(100)
        assert not codes
        assert terminal.screen[-2:] == ["back to main", "> "]


@pytest.mark.spec("I-08")
async def test_two_presses_interrupt_a_frame_and_then_take_it_away(converse, terminal):
    async with converse(terminal, main_agent(), writer(), research(call("slow"))) as (_, codes):
        terminal.type("go")
        await anyio.sleep(5)
        terminal.press_ctrl_c()
        await anyio.sleep(0.5)
        terminal.press_ctrl_c()
        await anyio.sleep(5)
        assert not codes
        assert terminal.screen[-3:] == ["main › writer › research › ^C", "back to main", "> "]


@pytest.mark.spec("I-08")
async def test_ctrl_c_twice_leaves_when_nobody_takes_a_frame_away(journal, ports, terminal):
    # A hub without a runtime: nobody heeds the interruption.
    async with open_stack(journal, ports) as stack, anyio.create_task_group() as group:
        codes = []
        stack.write(FRAME, e.SessionEnd())

        async def talk():
            options = {"session_key": "chat", "reader": terminal, "writer": terminal}
            codes.append(await run_console(stack.hub, MAIN, **options))

        group.start_soon(talk)
        await anyio.sleep(1)
        assert terminal.screen == [f"{MAIN} › {FRAME} › "]
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        assert not codes
        terminal.press_ctrl_c()
        await anyio.sleep(1)
        assert codes == [0]


# ── questions over which a model has paused ──────────────────────────────────────────────────


def pausing(*more):
    return research(
        call("interrupt", prompt="Which one?", options=["3.12", "3.13"]), *(more or ("So be it.",)),
        pauses=True,
    )  # fmt: skip


QUESTION = ["? Which one?", "  1) 3.12", "  2) 3.13"]


@pytest.mark.spec("I-15")
async def test_a_pause_is_a_question_that_the_next_line_answers(converse, terminal):
    async with converse(terminal, main_agent(), writer(), pausing()) as (rt, _):
        terminal.type("go")
        await anyio.sleep(1)
        assert terminal.screen[3:] == [*QUESTION, "main › writer › research › "]
        terminal.type("2")
        await anyio.sleep(1)
        assert terminal.screen[6:] == [
            "main › writer › research › 2", "So be it.", "main › writer › research › ",
        ]  # fmt: skip
        (answered,) = await rt.hub.read(types="agent:tool:complete")
        assert answered.output == "3.13"


@pytest.mark.spec("I-15")
async def test_a_pause_that_expires_takes_the_question_away(converse, terminal):
    async with converse(terminal, main_agent(), writer(), pausing()) as (rt, _):
        terminal.type("go")
        await anyio.sleep(3700)
        assert terminal.screen[6].startswith("  ✗ no answer came within 3600 s")
        assert terminal.screen[7:] == ["So be it.", "main › writer › research › "]
        terminal.type("2")
        await anyio.sleep(1)
        (message,) = await rt.hub.read(types="session:message")
        assert message.content == "2"


@pytest.mark.spec("I-15")
async def test_a_word_gives_a_pause_up_and_is_no_reply(converse, terminal):
    main = talker(
        "main", call("interrupt", prompt="Sure?"), "As you like.", pauses=True, agents=("writer",)
    )
    async with converse(terminal, main, writer(), research()):
        terminal.type("go")
        await anyio.sleep(1)
        terminal.type("cancel")
        await anyio.sleep(1)
        assert terminal.screen[1:] == [
            "? Sure?", "> cancel", "  ✗ cancelled by the user", "As you like.", "> ",
        ]  # fmt: skip


@pytest.mark.spec("I-08", "I-15")
async def test_a_word_at_a_frames_pause_brings_the_user_back_to_main(converse, terminal):
    async with converse(terminal, main_agent(), writer(), pausing()):
        terminal.type("go")
        await anyio.sleep(1)
        terminal.type("/stop")
        await anyio.sleep(1)
        assert terminal.screen[6:] == [
            "main › writer › research › /stop", "back to main", "> ",
        ]  # fmt: skip


@pytest.mark.spec("I-15")
async def test_a_word_that_is_an_option_is_an_answer(converse, terminal):
    ask = call("interrupt", prompt="What now?", options=["stop", "go on"])
    main = talker("main", ask, "As you like.", pauses=True)
    async with converse(terminal, main) as (rt, _):
        terminal.type("go")
        await anyio.sleep(1)
        terminal.type("stop")
        await anyio.sleep(1)
        (answered,) = await rt.hub.read(types="agent:tool:complete")
        assert (answered.output, answered.is_error) == ("stop", False)


# ── pipes ────────────────────────────────────────────────────────────────────────────────────


async def test_a_pipe_gets_what_every_frame_says_and_sends_line_by_line(converse, pipe):
    pipe.type("go", "3.13", "short", "more")
    pipe.end()
    agents = main_agent(latency=5), writer(latency=5), research(latency=5)
    async with converse(pipe, *agents) as (rt, codes):
        await anyio.sleep(200)
        assert codes == [0]
        taken = await rt.hub.read(types="session:taken")
        said = [(x.agent, i.content) for x in taken for i in x.items if i.type == "session:message"]
        assert said == [("research", "3.13"), ("writer", "short"), ("main", "more")]
    assert pipe.out == "Which Python?\nShort or long?\nAll done.\nAnd more.\n"
    assert pipe.aside == ""


@pytest.mark.spec("I-08")
@pytest.mark.parametrize("options", [{}, {"session_key": "chat"}])
@pytest.mark.parametrize("words", [("/stop",), ("/back", "cancel"), ("/back", "/back")])
async def test_the_users_own_word_is_no_failure_of_a_pipe(converse, pipe, options, words):
    pipe.type("go", *words)
    pipe.end()
    async with converse(pipe, main_agent(), writer(), research(), **options) as (_, codes):
        await anyio.sleep(20)
        assert codes == [0]


async def test_a_failure_of_a_frame_is_one_of_a_pipe_if_main_fails_over_it(converse, pipe):
    pipe.type("go")
    pipe.end()
    main = main_agent(Fault("auth"))
    async with converse(pipe, main, writer(Fault("auth")), research()) as (_, codes):
        await anyio.sleep(20)
        assert codes == [1]


@pytest.mark.spec("I-15", "K-03")
@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize("has_frames", [False, True])
async def test_a_line_that_answered_a_question_of_a_pipe_is_waited_for(
    converse, pipe, later_pipe, is_later, has_frames
):
    ask = call("interrupt", prompt="Which one?", options=["3.12", "3.13"])
    script = (ask, "So be it.", "It is there.")
    agents = [talker("main", *script, pauses=True, latency=5)]
    if has_frames:
        agents = [main_agent(), writer(), research(*script, pauses=True, latency=5)]
    answering = later_pipe if is_later else pipe
    pipe.type("go")
    answering.type("2", "where")
    answering.end()
    if is_later:
        pipe.end()
    async with converse(pipe, *agents, session_key="chat") as (rt, codes):
        await anyio.sleep(30)
        assert codes == [0]
        if is_later:
            options = {"reader": answering, "writer": answering, "session_key": "chat"}
            assert await run_console(rt.hub, "main", **options) == 0
        await anyio.sleep(30)
        events = await rt.hub.read(types=["agent:text", "session:message"])
        told = [getattr(x, "text", "") or getattr(x, "content", "") for x in events]
        assert told == ["So be it.", "where", "It is there."]
    assert answering.out == "So be it.\nIt is there.\n"


async def test_the_end_of_input_ends_the_frames_and_main_answers(converse, pipe):
    pipe.type("go")
    pipe.end()
    agents = main_agent(latency=5), writer(latency=5), research(latency=5)
    async with converse(pipe, *agents) as (_, codes):
        await anyio.sleep(200)
        assert codes == [0]
    assert pipe.out == "Which Python?\nShort or long?\nAll done.\n"
    assert pipe.aside == (
        "✗ research gave the conversation back: the conversation was closed\n"
        "✗ writer gave the conversation back: the conversation was closed\n"
    )


async def test_a_pipe_leaves_when_a_frame_of_a_kept_conversation_waits(converse, pipe):
    pipe.type("go")
    pipe.end()
    async with converse(pipe, main_agent(), writer(), research(latency=5), session_key="chat") as (
        rt,
        codes,
    ):
        await anyio.sleep(20)
        assert codes == [0]
        assert len(await rt.hub.journal.runs()) == 3
    assert pipe.out == "Which Python?\n"


@pytest.mark.spec("I-15")
async def test_a_pipe_leaves_a_pause_of_a_kept_conversation_to_a_later_one(converse, pipe):
    pipe.type("go")
    pipe.end()
    options = {"session_key": "chat"}
    async with converse(pipe, main_agent(), writer(), pausing(), **options) as (rt, codes):
        await anyio.sleep(20)
        assert codes == [0]
        assert not await rt.hub.read(types="session:prompt:end")
    assert pipe.aside.count("? Which one?") == 1


# ── attaching to a conversation ──────────────────────────────────────────────────────────────

BEFORE = ["▸ research, before:", "Which Python?"]


@pytest.mark.spec("I-09", "I-17", "K-04")
async def test_a_later_console_knows_who_has_the_conversation(journal, ports, terminal, pipe):
    agents = [main_agent(), writer(), research()]

    async def talk(hub, end):
        return await run_console(hub, "main", session_key="chat", reader=end, writer=end)

    async with Hub(journal=journal, ports=ports) as hub:
        async with Runtime(agents, hub=hub, grace=0):
            pipe.type("go")
            pipe.end()
            assert await talk(hub, pipe) == 0
        async with Runtime(agents, hub=hub, grace=0), anyio.create_task_group() as group:
            group.start_soon(talk, hub, terminal)
            await anyio.sleep(1)
            assert terminal.screen == [*BEFORE, "main › writer › research › "]
            terminal.type("3.13")
            await anyio.sleep(1)
            assert terminal.screen[2:] == [
                "main › writer › research › 3.13", "↩ research → three APIs", "▸ writer",
                "Short or long?", "main › writer › ",
            ]  # fmt: skip
            terminal.type("/stop")
            await anyio.sleep(1)
            assert terminal.screen[6:] == ["main › writer › /stop", "back to main", "> "]
            terminal.end()


@pytest.mark.spec("I-09")
async def test_a_later_console_shows_what_main_said_last_and_only_in_a_terminal(
    converse, terminal, pipe, later_pipe
):
    bot = talker("main", "One.", "Two.", "Three.", "Four.")
    pipe.type("a", "b")
    pipe.end()
    async with converse(pipe, bot, session_key="chat") as (rt, codes):
        await anyio.sleep(1)
        assert codes == [0]
        later_pipe.type("c")
        later_pipe.end()
        options = {"session_key": "chat"}
        await run_console(rt.hub, "main", reader=later_pipe, writer=later_pipe, **options)
        assert (later_pipe.out, later_pipe.aside) == ("Three.\n", "")
        async with anyio.create_task_group() as group:
            options |= {"reader": terminal, "writer": terminal}
            group.start_soon(partial(run_console, rt.hub, "main", **options))
            await anyio.sleep(1)
            assert terminal.screen == ["▸ main, before:", "Three.", "> "]
            terminal.type("d")
            await anyio.sleep(1)
            assert terminal.screen[2:] == ["> d", "Four.", "> "]
            terminal.end()


@pytest.mark.spec("I-09")
async def test_a_console_that_finds_a_frame_at_work_shows_nothing_from_before(
    journal, ports, terminal, pipe
):
    agents = [main_agent(), writer(), research("Which Python?", call("slow"), "There.")]

    async def talk(hub, end):
        return await run_console(hub, "main", session_key="chat", reader=end, writer=end)

    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        pipe.type("go")
        pipe.end()
        assert await talk(rt.hub, pipe) == 0
        await rt.hub.send("3.13", session_key="chat")
        await anyio.sleep(1)
        async with anyio.create_task_group() as group:
            group.start_soon(talk, rt.hub, terminal)
            await anyio.sleep(1)
            assert terminal.screen == ["main › writer › research › "]
            await anyio.sleep(4000)
            assert "▸ research" in terminal.screen
            assert terminal.screen[-2:] == ["There.", "main › writer › research › "]
            terminal.end()


@pytest.mark.spec("I-17")
async def test_a_conversation_that_is_begun_elsewhere_is_followed(converse, terminal):
    agents = [main_agent(), writer(), research()]
    async with converse(terminal, *agents, session_key="chat") as (rt, _):
        assert terminal.screen == ["> "]
        rt.hub.open("main", "go", session_key="chat")
        await anyio.sleep(1)
        assert terminal.screen == [*OPENING[1:], "main › writer › research › "]


async def test_nothing_is_lost_or_doubled_of_what_a_kept_conversation_begins_with(converse, pipe):
    pipe.type("go")
    pipe.end()
    agents = [main_agent(), writer(use("research", "x"), complete("y")), research(complete("z"))]
    async with converse(pipe, *agents, session_key="chat") as (_, codes):
        await anyio.sleep(10)
        assert codes == [0]
    assert pipe.out == "All done.\n"


@pytest.mark.spec("I-15")
async def test_a_later_console_asks_what_is_still_open(journal, ports, terminal, pipe):
    agents = [main_agent(), writer(), pausing()]

    async def talk(hub, end):
        return await run_console(hub, "main", session_key="chat", reader=end, writer=end)

    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        pipe.type("go")
        pipe.end()
        assert await talk(rt.hub, pipe) == 0
        async with anyio.create_task_group() as group:
            group.start_soon(talk, rt.hub, terminal)
            await anyio.sleep(1)
            assert terminal.screen[-4:] == [*QUESTION, "main › writer › research › "]
            terminal.type("1")
            await anyio.sleep(1)
            assert terminal.screen[-2:] == ["So be it.", "main › writer › research › "]
            terminal.end()


@pytest.mark.spec("I-17")
async def test_what_is_read_may_overlap_with_what_is_heard(journal, ports):
    agents = [main_agent(), writer(), research()]
    heard = []
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        rt.hub.subscribe("*", heard.append)
        run = await rt.start("main", "go", session_key="chat")
        for line in ("3.13", "/stop", "more"):
            await run.result()
            stack = Stack()
            stack.begin(run.run_id, "main")
            await stack.read(rt.hub)
            names, was_at_work = stack.names, stack.is_at_work
            for event in heard:
                stack.follow(event)
            assert (stack.names, stack.is_at_work) == (names, was_at_work)
            followed = Stack()
            followed.begin(run.run_id, "main")
            for event in heard:
                followed.follow(event)
            assert (followed.names, followed.is_at_work) == (names, was_at_work)
            await rt.hub.send(line, session_key="chat")


# ── how soon ─────────────────────────────────────────────────────────────────────────────────


class CountingJournal(MemoryJournal):
    """Counts the commits."""

    commits = 0

    def submit(self, commit):
        self.commits += 1
        super().submit(commit)


@pytest.mark.spec("I-10")
async def test_a_frames_first_words_take_one_commit_more_than_mains_at_most(ports):
    def slow_model(*script):
        return ScriptedModel(script, latency=4)

    agents = [
        talker("main", model=slow_model("At once.", use("research", "it")), agents=("research",)),
        talker("research", model=slow_model("Here I am.", "And again.")),
    ]
    first, pushed = [], []
    said = set()

    def note(event, context):
        if (event.run_id, event.turn) not in said:
            said.add((event.run_id, event.turn))
            first.append((event.agent, journal.commits))

    journal = CountingJournal(ids=ports.ids)
    async with Runtime(agents, store=journal, ports=ports, grace=0) as rt:
        rt.hub.subscribe("session:push", lambda event: pushed.append(journal.commits))
        run = await rt.start("main", None, session_key="chat")
        await anyio.sleep(60)
        async with Channels(rt.hub, Channel("ear", {"agent:text:delta": note})):
            before = []
            for line in ("one", "two", "three"):
                before.append(journal.commits)
                await rt.hub.send(line, session_key="chat")
                await anyio.sleep(60)
    del run
    (main, at_main), (pushed_to, at_push), (told, at_message) = first
    assert (main, pushed_to, told) == ("main", "research", "research")
    of_main = at_main - before[0]
    assert of_main == 2  # The message, and its being taken.
    assert at_push - (pushed[0] - 1) <= of_main + 1
    assert at_message - before[2] <= of_main + 1
