"""What the console shows of tools that need a person, and what is typed there (U-03, U-04)."""

from functools import partial

import anyio
import pytest
from support.agents import model_agent
from support.asked import Asked

from hubbub import (
    AgentDefinition,
    PromptDefinition,
    Runtime,
    SideConfig,
    SubagentToolConfig,
    agent,
    external_tool,
    tool,
)
from hubbub.channels import run_console
from hubbub.channels.console.answers import HOW, Answer, answer_to
from hubbub.channels.console.asked import MAX_SHOWN, prompt_lines
from hubbub.hub import events as e
from hubbub.hub.values import Json
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

pytestmark = pytest.mark.anyio

APPROVAL, EXTERNAL = f"  {HOW['approval']}", f"  {HOW['external']}"

NAME = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}


class Desk:
    """A refund desk: what was refunded, and an agent that refunds."""

    def __init__(self, *script):
        self.refunded = []

        @tool(approval=True)
        async def refund(order: int, reason: str = "none") -> str:
            self.refunded.append((order, reason))
            return f"refunded {order}"

        self.model = ScriptedModel(script)
        tools = (refund, external_tool("pick", NAME))
        self.agent = model_agent(self.model, *tools, parallel_tool_calls=False)


def rows(terminal):
    """What a person sees, without the empty prompt below it."""
    return [line for line in terminal.screen if line not in ("> ", "")]


async def results(rt):
    done = await rt.hub.read(types="agent:tool:complete")
    return [(x.output, x.is_error) for x in done]


@pytest.mark.spec("U-03")
@pytest.mark.parametrize("word", ["y", "approve", "Yes", " APPROVE "])
async def test_an_approval_shows_tool_arguments_and_how_to_answer(converse, terminal, word):
    desk = Desk(call("refund", order=7), "Done.")
    async with converse(terminal, desk.agent):
        terminal.type("Refund 7.")
        await anyio.sleep(3600)
        shown = ["? assistant wants to run refund(order=7)", APPROVAL]
        assert rows(terminal) == ["> Refund 7.", *shown]
        assert desk.refunded == []
        terminal.type(word)
        await anyio.sleep(1)
        assert rows(terminal)[4:] == ["• refund(order=7)", "  → refunded 7", "Done."]
    assert desk.refunded == [(7, "none")]


@pytest.mark.spec("U-03")
@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("n", "not run: denied"),
        ("no", "not run: denied"),
        ("deny too late", "not run: denied: too late"),
        ("n  not his", "not run: denied: not his"),
        ("1", "not run: denied: 1"),
        ("ok", "not run: denied: ok"),
        ("yes, if it is his", "not run: denied: yes, if it is his"),
        ("Approved are only those of May.", "not run: denied: Approved are only those of May."),
    ],
)
async def test_only_words_that_say_so_approve_and_all_else_denies(converse, terminal, line, result):
    desk = Desk(call("refund", order=7), "Sorry.")
    async with converse(terminal, desk.agent) as (rt, _):
        terminal.type("Refund 7.")
        await anyio.sleep(5)
        terminal.type(line)
        await anyio.sleep(5)
        assert await results(rt) == [(result, True)]
    assert desk.refunded == []


@pytest.mark.spec("U-03")
async def test_a_call_can_be_approved_with_other_arguments_which_must_fit(converse, terminal):
    desk = Desk(call("refund", order=7), "Done.")
    async with converse(terminal, desk.agent):
        terminal.type("Refund 7.")
        await anyio.sleep(5)
        terminal.type("")
        terminal.type("approve the lot")
        await anyio.sleep(1)
        assert rows(terminal)[-1].startswith("not understood: after approve only arguments may")
        terminal.type('y {"order": "seven"}')
        await anyio.sleep(1)
        assert rows(terminal)[-1].startswith("not sent: `order`: expected `int`")
        assert desk.refunded == []
        terminal.type('approve {"order": 8, "reason": "late"}')
        await anyio.sleep(1)
    assert desk.refunded == [(8, "late")]


@pytest.mark.spec("U-03")
async def test_several_prompts_are_shown_and_answered_one_after_the_other(converse, terminal):
    desk = Desk(
        reply("", call("refund", order=1), call("pick", what="x"), call("refund", order=2)),
        "Done.",
    )
    async with converse(terminal, desk.agent) as (rt, _):
        terminal.type("All.")
        await anyio.sleep(5)
        assert rows(terminal)[1:] == [
            "? assistant wants to run refund(order=1)", APPROVAL,
            "• pick(what='x')", "· next: assistant waits for the result of pick",
            "· next: assistant wants to run refund",
        ]  # fmt: skip
        terminal.type("y", "y")  # Nothing comes next that could be approved.
        await anyio.sleep(5)
        assert "? assistant waits for the result of pick(what='x')" in rows(terminal)
        assert EXTERNAL in rows(terminal)
        assert desk.refunded == [(1, "none")]
        terminal.type("result  a pear")
        await anyio.sleep(5)
        terminal.type("n")
        await anyio.sleep(5)
        assert [x for x, _ in await results(rt)] == ["refunded 1", "a pear", "not run: denied"]


@pytest.mark.spec("U-03")
async def test_what_was_typed_ahead_does_not_approve(converse, terminal):
    desk = Desk(reply("", call("refund", order=1), call("refund", order=2)), "Done.")
    async with converse(terminal, desk.agent):
        terminal.type("All.")
        await anyio.sleep(5)
        terminal.type("y", "y")
        await anyio.sleep(5)
        assert desk.refunded == [(1, "none")]
        assert any(x.startswith("not approved: it was asked only now") for x in rows(terminal))
        terminal.type("y")
        await anyio.sleep(1)
    assert desk.refunded == [(1, "none"), (2, "none")]


@pytest.mark.spec("U-03")
async def test_a_prompt_that_ends_elsewhere_makes_room_for_the_next(converse, terminal):
    desk = Desk(reply("", call("refund", order=1), call("refund", order=2)), "Done.")
    async with converse(terminal, desk.agent) as (rt, _):
        asked = Asked(rt.hub)
        terminal.type("All.")
        first, second = await asked.wait(2)
        await rt.hub.approve(first.prompt_id, source="elsewhere")
        await anyio.sleep(0.1)
        terminal.type("y")  # Was meant for the first.
        await anyio.sleep(5)
        assert desk.refunded == [(1, "none")]
        assert "? assistant wants to run refund(order=2)" in rows(terminal)
        await rt.hub.deny(second.prompt_id, "no", source="elsewhere")
        await anyio.sleep(5)
        terminal.type("y")
        await anyio.sleep(5)
        said = await rt.hub.read(types="session:message")
        assert [x.content for x in said] == ["y"]
    assert desk.refunded == [(1, "none")]


@pytest.mark.spec("U-04")
@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("result a pear", ("a pear", False)),
        ("result", ("", False)),
        ("error none left", ("none left", True)),
        ("deny not today", ("no result: not today", True)),
        ("something else", ("no result: something else", True)),
    ],
)
async def test_the_result_of_an_external_call_can_be_typed(converse, terminal, line, result):
    desk = Desk(call("pick", what="a"), "Done.")
    async with converse(terminal, desk.agent) as (rt, _):
        terminal.type("Pick.")
        await anyio.sleep(5)
        terminal.type(line)
        await anyio.sleep(5)
        assert await results(rt) == [result]


@pytest.mark.spec("U-03")
@pytest.mark.parametrize("word", ["cancel", "/stop"])
async def test_a_word_gives_up_what_waits_forapproval(converse, terminal, word):
    desk = Desk(call("refund", order=7), "Done.")
    async with converse(terminal, desk.agent) as (rt, _):
        terminal.type("Refund 7.")
        await anyio.sleep(5)
        terminal.type(word)
        await anyio.sleep(5)
        ((_, is_error),) = await results(rt)
        assert is_error
    assert desk.refunded == []


@pytest.mark.spec("U-03")
async def test_a_childs_prompt_bears_its_name_and_is_answered_in_the_conversation(
    converse, terminal
):
    desk = Desk(call("refund", order=7), "Refunded.")
    child = AgentDefinition(name="clerk", side_a=desk.agent.side_a, expose_as_tool=True)
    config = SubagentToolConfig(
        name="clerk", blocking=True, init_user_message_property="task",
    )  # fmt: skip
    prompt = PromptDefinition(
        name="main", prompt="You help.", tools=[config],
        model=ScriptedModel((call("clerk", task="Refund 7."), "Done.")),
    )  # fmt: skip
    main = AgentDefinition(name="main", side_a=SideConfig(prompt=prompt))
    async with converse(terminal, main, child):
        terminal.type("Refund 7.")
        await anyio.sleep(5)
        assert rows(terminal)[-2:] == ["? clerk wants to run refund(order=7)", APPROVAL]
        terminal.type("y")
        await anyio.sleep(5)
        assert rows(terminal)[-1] == "Done."
    assert desk.refunded == [(7, "none")]


@pytest.mark.spec("U-03")
async def test_after_a_restart_of_the_process_the_prompts_are_shown_again(
    terminal, later_pipe, journal, ports
):
    desk = Desk(reply("", call("refund", order=1), call("refund", order=2)), "Done.")
    async with Runtime([desk.agent], store=journal, ports=ports, grace=0) as rt:
        talk = partial(run_console, rt.hub, "assistant", session_key="mine")
        async with anyio.create_task_group() as group:
            group.start_soon(partial(talk, reader=terminal, writer=terminal))
            terminal.type("All.")
            await anyio.sleep(5)
            terminal.end()
    assert desk.refunded == []
    later_pipe.is_terminal = True
    async with Runtime([desk.agent], store=journal, ports=ports, grace=0) as rt:
        talk = partial(run_console, rt.hub, "assistant", session_key="mine")
        async with anyio.create_task_group() as group:
            group.start_soon(partial(talk, reader=later_pipe, writer=later_pipe))
            await anyio.sleep(5)
            shown = ["? assistant wants to run refund(order=1)", APPROVAL]
            assert rows(later_pipe)[-2:] == shown
            later_pipe.type("y")
            await anyio.sleep(5)
            assert "? assistant wants to run refund(order=2)" in rows(later_pipe)
            later_pipe.type("y")
            await anyio.sleep(5)
            later_pipe.end()
    assert desk.refunded == [(1, "none"), (2, "none")]


@pytest.mark.spec("U-03")
async def test_the_lines_of_a_pipe_approve(converse, pipe):
    desk = Desk(call("refund", order=7), "Done.")
    pipe.type("Refund 7.", "approve")
    pipe.end()
    async with converse(pipe, desk.agent) as (_, codes):
        await anyio.sleep(10)
        assert codes == [0]
    assert pipe.out == "Done.\n"
    assert pipe.aside.splitlines() == ["? assistant wants to run refund(order=7)", APPROVAL]
    assert desk.refunded == [(7, "none")]


@pytest.mark.spec("U-03")
async def test_with_no_more_input_nothing_is_approved(converse, pipe):
    desk = Desk(call("refund", order=7), "Done.")
    pipe.type("Refund 7.")
    pipe.end()
    async with converse(pipe, desk.agent) as (_, codes):
        await anyio.sleep(10)
        assert codes
    assert desk.refunded == []


@pytest.mark.spec("U-05")
async def test_an_answer_that_does_not_fit_leaves_the_question_open(converse, terminal):
    @agent("asker")
    async def asker(input, ctx):
        count = await ctx.ask("How many?", schema={"type": "integer"})
        ctx.say(f"{count + 1} it is.")

    async with converse(terminal, asker):
        terminal.type("go")
        await anyio.sleep(5)
        terminal.type("many")
        await anyio.sleep(5)
        assert rows(terminal)[-1].startswith("not sent: ")
        terminal.type("7")
        await anyio.sleep(5)
        assert rows(terminal).count("? How many?") == 1
        assert "8 it is." in rows(terminal)


# ── what is shown ────────────────────────────────────────────────────────────────────────────


def approval(raw: bytes) -> e.SessionPrompt:
    return e.SessionPrompt(
        prompt_id="p", kind="approval", tool="pay", arguments_json=Json(raw), agent="bot"
    )


def test_long_arguments_are_indented_json_shown_whole() -> None:
    text = "a  b " * 100
    raw = b'{"to":"x","items":[1,2],"note":"%s"}' % text.encode()
    lines = [line for line, _ in prompt_lines(approval(raw), "")]
    assert lines[0] == "? bot wants to run pay with"
    assert lines[1:4] == ["{", '  "to": "x",', '  "items": [']
    assert f'"note": "{text}"' in lines[-3]
    assert lines[-1] == HOW["approval"]


def test_arguments_can_neither_draw_nor_hide_anything() -> None:
    hostile = rb'{"to":"\u001b[2Jx\u202eyes\u200b\n"}'
    (title, _), _ = prompt_lines(approval(hostile), "")
    assert title.isprintable() and "\\x1b[2J" in title and "\\u202e" in title
    long = b'{"to":"%s\\u202e\\u001b\xe2\x80\xae"}' % (b"x" * 400)
    assert all(line.isprintable() for line, _ in prompt_lines(approval(long), ""))


def test_that_arguments_are_cut_is_said() -> None:
    raw = b'{"note":"%s"}' % (b"x" * (MAX_SHOWN + 100))
    lines = [line for line, _ in prompt_lines(approval(raw), "")]
    assert lines[-2].startswith("… and ") and "characters that are not shown" in lines[-2]
    assert max(map(len, lines)) <= 1_000


def test_a_word_among_the_options_of_a_question_is_an_answer() -> None:
    asked = e.SessionPrompt(question="What now?", options=("stop", "go on"), pauses=True)
    assert answer_to(asked, " stop ") == Answer("reply", "stop")
    assert answer_to(asked, "cancel") == Answer("word", "cancel")
    assert answer_to(asked, "2") == Answer("reply", "go on")
