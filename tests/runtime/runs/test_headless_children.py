"""Children of one model or of code: nobody talks with them, and their first result counts."""

from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life
from support.families import Recorder, answers, heard, only, write_file

from hubbub import (
    Agent,
    AgentDefinition,
    Resumable,
    RunContext,
    Runtime,
    VariableDefinition,
    agent,
)
from hubbub.agents.model import ModelRequest
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import call, reply

pytestmark = pytest.mark.anyio

RESULT = "Subagent (reference: {}) has returned the following result:\n\n{}"
FAILURE = "Subagent (reference: {}) has reported a failure:\n\n{}"
NOTHING = "(finished; nothing returned)"


def create(message: str, **arguments: Any) -> Any:
    given = {"message": message, **arguments}
    return call("subagent_create", agent="helper", name="Bob", arguments=given)


def reference_in(request: ModelRequest) -> str:
    (note,) = request.system_notes
    return note.splitlines()[1].removeprefix("- ").partition(":")[0]


def write(message: str, **more: Any) -> Any:
    return lambda request: call(
        "subagent_message", reference=reference_in(request), message=message, **more
    )


def of_one_model(*script: Any, **options: Any) -> AgentDefinition:
    return Agent("helper", "You work.", model=Recorder(*script, latency=5), **options)


def of_code(output: Any = "one") -> AgentDefinition:
    @agent("helper", description="Works.")
    async def helper(input: str, ctx: RunContext) -> Any:
        await anyio.sleep(5)
        if isinstance(output, Exception):
            raise output
        return output

    return helper


def lead(boss: Recorder, *tools: Any, **options: Any) -> AgentDefinition:
    return Agent("main", "You lead.", model=boss, tools=tools, **options)


async def settled(rt: Runtime, boss: Recorder, requests: int) -> None:
    """Return when the parent has asked its model so often, and is idle."""
    with anyio.fail_after(10_000):
        while len(boss.requests) < requests:  # noqa: ASYNC110
            await anyio.sleep(1)
    await anyio.sleep(100)
    assert len(boss.requests) == requests, "and nothing more is told"


# ── the four modes ───────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-05", "C-01", "C-09", "C-10", "U-02")
@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("kind", [of_one_model, of_code])
async def test_a_call_that_waits_gets_the_first_result(
    kind: Any, stays: bool, journal: Journal, ports: Ports
) -> None:
    helper = kind("one")
    boss = Recorder(create("Go.") if stays else call("helper", message="Go."), "Thanks.")
    agents = [lead(boss, helper.as_tool(resumable=stays))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        assert (await run.result()).output == "Thanks."
        await settled(rt, boss, 2)
        (done,) = answers(boss.requests[1])
        assert (done.output, done.is_error, done.notes) == ("one", False, ())
        assert heard(boss.requests[1]) == ["Please."], "and nothing is queued besides"
        child = seen.first("agent:child").child_run_id
        if stays and kind is of_one_model:
            assert seen.types(child)[-1] == "agent:park"
        else:
            assert assert_one_life(seen.events, child).output == "one"


@pytest.mark.spec("D-05", "C-01", "C-09", "C-10", "C-11", "U-02")
@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("kind", [of_one_model, of_code])
async def test_a_call_that_does_not_wait_is_told_the_first_result_once(
    kind: Any, stays: bool, journal: Journal, ports: Ports
) -> None:
    helper = kind("one")
    first = create("Go.") if stays else call("helper", message="Go.")
    boss = Recorder(first, "Under way.", "Thanks.")
    agents = [lead(boss, helper.as_tool(blocking=False, resumable=stays))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        assert (await run.result()).output == "Under way."
        await settled(rt, boss, 3)
        child = seen.first("agent:child").child_run_id
        assert heard(boss.requests[2]) == ["Please.", RESULT.format(child, "one")]


@pytest.mark.spec("D-05", "C-18")
@pytest.mark.parametrize("blocking", [False, True])
async def test_an_agent_of_one_model_that_stays_answers_each_message(
    blocking: bool, journal: Journal, ports: Ports
) -> None:
    helper = of_one_model("one", lambda request: f"two, after {heard(request)[0]}")
    asides = () if blocking else ("Waiting.",)
    boss = Recorder(create("First."), *asides, write("Second."), *asides, "Thanks.")
    agents = [lead(boss, helper.as_tool(blocking=blocking, resumable=True))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.start("main", "Please.")
        await settled(rt, boss, 3 if blocking else 5)
        texts = ["one", "two, after First."]
        if blocking:
            assert [each.output for each in answers(boss.requests[-1])] == texts
        else:
            child = seen.first("agent:child").child_run_id
            told = [RESULT.format(child, text) for text in texts]
            assert heard(boss.requests[-1]) == ["Please.", *told]


@pytest.mark.spec("D-05", "C-18")
async def test_code_that_stays_reads_what_it_is_written_and_its_return_is_the_result(
    journal: Journal, ports: Ports
) -> None:
    @agent("helper")
    async def helper(input: str, ctx: RunContext) -> list[str]:
        words = [input]
        async for message in ctx.messages():
            words.append(message.content)
            if message.content == "Third.":
                break
        return words

    boss = Recorder(create("First."), write("Second."), write("Third."), "Waiting.", "Thanks.")
    agents = [lead(boss, helper.as_tool(blocking=False, resumable=True))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.start("main", "Please.")
        await settled(rt, boss, 5)
        child = seen.first("agent:child").child_run_id
        told = RESULT.format(child, '["First.","Second.","Third."]')
        assert heard(boss.requests[-1]) == ["Please.", told]
        assert not any(each.is_error for each in answers(boss.requests[-1]))


@pytest.mark.spec("D-05", "C-08")
async def test_code_that_has_returned_takes_no_more_messages(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(create("First."), write("Second."), "Thanks.")
    agents = [lead(boss, of_code().as_tool(resumable=True))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        await rt.start("main", "Please.")
        await settled(rt, boss, 3)
        first, second = answers(boss.requests[-1])
        assert (first.output, second.is_error) == ("one", True)
        assert second.output.endswith("is terminated; start another with subagent_create")


@pytest.mark.spec("D-05", "C-07")
async def test_the_cap_counts_running_code(journal: Journal, ports: Ports) -> None:
    both = reply("", create("a"), create("b"))
    boss = Recorder(both, "Under way.")
    kept = Resumable(receives_messages="side_a", max_instances=1)
    agents = [lead(boss, of_code().as_tool(blocking=False, resumable=kept))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
        assert [each.is_error for each in answers(boss.requests[1])] == [False, True]


# ── what a result is ─────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-05", "C-09")
@pytest.mark.parametrize(
    ("output", "told", "is_error"),
    [
        ("text", "text", False),
        ({"found": 3}, '{"found":3}', False),
        (None, NOTHING, False),
        (0, "0", False),
        ("", "it ended without any text", True),
        (ValueError("broken"), "ValueError: broken", True),
    ],
)
async def test_what_code_returns_is_what_the_call_is_answered_with(
    output: Any, told: str, is_error: bool, journal: Journal, ports: Ports
) -> None:
    boss = Recorder(call("helper", message="Go."), "Thanks.")
    async with Runtime([lead(boss, of_code(output).as_tool())], store=journal, ports=ports) as rt:
        await rt.run("main", "Please.")
        (done,) = answers(boss.requests[1])
        assert (done.output, done.is_error) == (told, is_error)


@pytest.mark.spec("D-05", "C-09", "C-10")
async def test_a_model_that_fails_fails_the_call(journal: Journal, ports: Ports) -> None:
    def broken(request: ModelRequest) -> str:
        raise ValueError("no model")

    boss = Recorder(call("helper", message="Go."), "Sorry.")
    agents = [lead(boss, of_one_model(broken).as_tool())]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        assert (await rt.run("main", "Please.")).output == "Sorry."
        (done,) = answers(boss.requests[1])
        assert done.is_error and "no model" in done.output


@pytest.mark.spec("D-05", "C-10", "C-18")
@pytest.mark.parametrize("blocking", [False, True])
async def test_what_waits_at_its_end_gives_a_child_no_second_result(
    blocking: bool, journal: Journal, ports: Ports
) -> None:
    """A message that comes during the last model call, and the result of a grandchild."""
    leaf = Agent("leaf", "You work.", model=Recorder("late", latency=8))
    helper = Agent(
        "helper", "You work.", tools=[leaf.as_tool(blocking=False)],
        model=Recorder(call("leaf", message="Go."), "one", "two", latency=5),
    )  # fmt: skip
    asides = () if blocking else ("Waiting.",)
    boss = Recorder(call("helper", message="Go."), *asides, "Thanks.")
    agents = [lead(boss, helper.as_tool(blocking=blocking))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.start("main", "Please.")
        await anyio.sleep(7)
        child = seen.first("agent:child").child_run_id
        receipt = await rt.hub.send_to_run(child, "And?")
        assert receipt.accepted
        await settled(rt, boss, 2 if blocking else 3)
        results = [x for x in seen.all("session:result") if x.child_run_id == child]
        assert [(x.content, x.final) for x in results] == [("one", True)]
        letters = [x.message for x in seen.all("hub:dead_letter")]
        assert [x.content for x in letters if isinstance(x, e.SessionMessage)] == ["And?"]


@pytest.mark.spec("D-05", "C-10", "T-10")
@pytest.mark.parametrize("kind", [of_one_model, of_code])
async def test_an_interrupted_child_fails_the_call_that_waits_for_it(
    kind: Any, journal: Journal, ports: Ports
) -> None:
    boss = Recorder(call("helper", message="Go."), "Sorry.")
    async with Runtime([lead(boss, kind().as_tool())], store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await anyio.sleep(1)
        rt.hub.interrupt(seen.first("agent:child").child_run_id, "enough")
        rt.hub.send_to_run(seen.first("agent:child").child_run_id, "And?")
        assert (await run.result()).output == "Sorry."
        await settled(rt, boss, 2)
        (done,) = answers(boss.requests[1])
        assert (done.output, done.is_error) == ("interrupted: enough", True)


@pytest.mark.spec("D-05", "C-04")
@pytest.mark.parametrize("kind", [of_one_model, of_code])
async def test_it_may_start_with_its_prompt(kind: Any, journal: Journal, ports: Ports) -> None:
    boss = Recorder("Thanks.")
    agents = [lead(boss, kind("one").as_tool(immediate=True))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.run("main", "Please.")
        child = seen.first("agent:child").child_run_id
        assert heard(boss.requests[0]) == ["Please.", RESULT.format(child, "one")]


# ── nobody to talk with ──────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-05", "I-01")
@pytest.mark.parametrize("stays", [False, True])
async def test_a_frame_of_a_headless_child_returns_its_first_text(
    stays: bool, journal: Journal, ports: Ports
) -> None:
    asker = Agent(
        "asker", "You ask.", model=Recorder("Which version?"), expose_as_tool=True
    )  # fmt: skip
    helper = Agent(
        "helper", "You work.", agents=["asker"],
        model=Recorder(call("use_agent", name="asker", message="Ask."),
                       lambda request: f"asked: {answers(request)[-1].output}"),
    )  # fmt: skip
    boss = Recorder(create("Go.") if stays else call("helper", message="Go."), "Thanks.")
    agents = [lead(boss, helper.as_tool(resumable=stays)), asker]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        assert (await run.result()).output == "Thanks."
        (done,) = answers(boss.requests[1])
        assert (done.output, done.is_error) == ("asked: Which version?", False)
        live = [info.agent for info in await rt.hub.journal.runs()]
        assert sorted(live) == (["helper", "main"] if stays else ["main"])


@pytest.mark.spec("D-05", "I-15")
@pytest.mark.parametrize("stays", [False, True])
async def test_a_question_of_a_headless_child_is_an_error_at_once(
    stays: bool, journal: Journal, ports: Ports
) -> None:
    helper = of_one_model(
        call("interrupt", prompt="Which?"), lambda request: answers(request)[-1].output,
        supports_checkpointing=True,
    )  # fmt: skip
    boss = Recorder(create("Go.") if stays else call("helper", message="Go."), "Thanks.")
    agents = [lead(boss, helper.as_tool(resumable=stays))]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        assert (await run.result()).output == "Thanks."
        question = only(seen.all("agent:tool:complete"), lambda x: x.name == "interrupt")
        assert question.is_error
        assert answers(boss.requests[1])[0].output == question.output


# ── files and variables ──────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-05", "C-02", "A-01")
@pytest.mark.parametrize("kind", ["one", "code"])
async def test_files_that_a_call_names_are_copied_for_the_child(
    kind: str, journal: Journal, ports: Ports
) -> None:
    @agent("helper")
    async def of_functions(input: str, ctx: RunContext) -> Any:
        return [input, list(ctx.files.list()),
                (await ctx.files.read("plan.md")).decode()]  # fmt: skip

    def notes(request: ModelRequest) -> str:
        return "; ".join(request.messages[-1].notes)  # type: ignore[union-attr]

    helper = of_functions if kind == "code" else of_one_model(notes)
    boss = Recorder(
        call("write_file", path="plan.md", text="# Plan"),
        call("helper", message="Go.", files=["plan.md"]), "Thanks.",
    )  # fmt: skip
    tool = helper.as_tool(init_attachments_property="files")
    async with Runtime([lead(boss, write_file, tool)], store=journal, ports=ports) as rt:
        await rt.run("main", "Please.")
        done = answers(boss.requests[-1])[-1]
        shown = '["Go.",["plan.md"],"# Plan"]' if kind == "code" else "Attachments:\n- plan.md"
        assert (done.output, done.is_error) == (shown, False)


@pytest.mark.spec("D-05", "A-01")
async def test_files_of_a_message_are_code_s_own_under_the_names_it_is_told(
    journal: Journal, ports: Ports
) -> None:
    @agent("helper")
    async def helper(input: str, ctx: RunContext) -> Any:
        await ctx.files.write("plan.md", "mine")
        async for message in ctx.messages():
            (path,) = message.attachments
            return [path, (await ctx.files.read(path)).decode(), len(ctx.files.list())]
        return "no message came"

    boss = Recorder(
        call("write_file", path="plan.md", text="# Plan"), create("Go."),
        write("Here.", attachments=["plan.md"]), "Waiting.", "Thanks.",
    )  # fmt: skip
    tool = helper.as_tool(blocking=False, resumable=True)
    async with Runtime([lead(boss, write_file, tool)], store=journal, ports=ports) as rt:
        await rt.start("main", "Please.")
        await settled(rt, boss, 5)
        assert heard(boss.requests[-1])[-1].endswith('["plan-2.md","# Plan",2]')


@pytest.mark.spec("D-05", "V-01")
async def test_a_child_of_one_model_waits_for_its_scoped_variables(
    journal: Journal, ports: Ports
) -> None:
    key = VariableDefinition(name="KEY", scoped=True, required=True, type="text")
    helper = Agent("helper", "Your key: {{KEY}}.", variables=[key], model=Recorder("one"))
    boss = Recorder(call("helper", message="Go."), "Waiting.", "Thanks.")
    async with Runtime([lead(boss, helper.as_tool())], store=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
        (refused,) = answers(boss.requests[1])
        assert refused.is_error and "subagent_env_required" in refused.output
        request_id = refused.output.partition('"request_id":"')[2].partition('"')[0]
        child = await rt.provide_variables(run.run_id, request_id, {"KEY": "k"})
        await settled(rt, boss, 3)
        assert heard(boss.requests[-1])[-1] == RESULT.format(child.run_id, "one")
