"""Tools, hooks and code agents are tested without a runtime, by what they really get."""

import inspect
import re
import subprocess
import sys
import textwrap
from typing import Any

import anyio
import anyio.from_thread
import msgspec
import pytest

from hubbub import (
    Agent,
    AgentDefinition,
    FunctionModel,
    Hook,
    PromptDefinition,
    RunContext,
    RunState,
    Runtime,
    ScriptedModel,
    SideConfig,
    ToolError,
    VariableDefinition,
    agent,
    tool,
)
from hubbub.hub.errors import (
    BadValue,
    CallerError,
    DefinitionError,
    NoSuchFile,
    RunFailed,
    UnknownAgent,
)
from hubbub.hub.events import AgentText
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call as ask_for
from hubbub.testing import BenchState, call, ctx_for, run_code, state_for

pytestmark = pytest.mark.anyio
KEY = VariableDefinition(name="KEY")


@tool
async def refund(order: str, state: RunState) -> str:
    """Refund an order."""
    if await state.ask(f"Refund {order}?", options=["yes", "no"]) == "no":
        raise ToolError("not allowed")
    await state.kv.set(order, "refunded")
    state.set_status("refunding")
    return "done"


@tool
def note(text: str, state: RunState) -> str:
    """Take a note."""
    anyio.from_thread.run(state.files.write, "notes.txt", text)
    state.set_env("NOTED", "yes")
    return state.env["KEY"]


@pytest.mark.spec("U-11")
async def test_a_tool_is_called_with_a_real_state(ports: Ports) -> None:
    async with state_for(answers=["yes"], ports=ports) as state:
        assert isinstance(state, RunState)
        assert await refund("A-1", state=state) == "done"
        assert state.kv.get("A-1") == "refunded"
        (prompt,) = state.bench.prompts
        assert (prompt.question, prompt.options) == ("Refund A-1?", ("yes", "no"))
        assert state.bench.statuses == ["refunding"]


@pytest.mark.spec("U-11")
async def test_a_tool_is_called_as_a_model_does(ports: Ports) -> None:
    answers = {"Refund A-1?": "no"}
    async with state_for(answers=answers, ports=ports) as state:
        denied = await call(refund, state, order="A-1")
        assert denied.is_error and denied.content == "not allowed"
        wrong = await call(refund, state, number=1)
        assert wrong.is_error and "order" in wrong.content and "number" in wrong.content
        assert not state.kv.keys()
        with pytest.raises(BadValue, match="state_for"):
            await call(refund, object(), order="A-1")  # type: ignore[arg-type]


@pytest.mark.spec("U-11")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])  # As they are: a thread takes real time.
def test_a_plain_tool_runs_in_a_thread(loop: str) -> None:
    async def main() -> None:
        async with state_for(env={"KEY": "k"}, variables=[KEY]) as state:
            assert (await call(note, state, text="x")).content == "k"
            assert await state.files.read_text("notes.txt") == "x"
            assert state.env["NOTED"] == "yes"

    anyio.run(main, backend=loop)


@pytest.mark.spec("U-11")
async def test_a_call_has_its_tools_time_as_in_a_run(ports: Ports) -> None:
    said: list[str] = []

    @tool(timeout=5)
    async def slow(seconds: float, state: RunState) -> str:
        await anyio.sleep(seconds)
        said.append("done")
        return "done"

    model = ScriptedModel(
        [ask_for("slow", seconds=6), lambda asked: asked.messages[-1].calls[-1].output]
    )
    async with Runtime(
        [Agent("a", "", model=model, tools=[slow])], store="memory", ports=ports
    ) as rt:
        in_a_run = (await rt.run("a", "Go.")).output
    async with state_for(ports=ports) as state:
        assert (await call(slow, state, seconds=4)).content == "done"
        late = await call(slow, state, seconds=6)
        assert late.is_error and late.content == in_a_run and "within 5 s" in in_a_run
        assert said == ["done"]


@pytest.mark.spec("U-11")
async def test_a_call_needs_what_its_tool_requires_as_in_a_run(ports: Ports) -> None:
    @tool(variables=[VariableDefinition(name="TOKEN", required=True)])
    async def needy() -> str:
        return "called"

    async with state_for(ports=ports) as state:
        refused = await call(needy, state)
        assert refused.is_error and refused.content == "needy cannot run: TOKEN is not set"
        state.set_env("TOKEN", "t")
        assert (await call(needy, state)).content == "called"


@pytest.mark.spec("U-11")
async def test_what_a_run_would_refuse_is_refused(ports: Ports) -> None:
    async with state_for(files={"a.txt": "x"}, kv={"n": 1}, ports=ports) as state:
        assert state.files.list() == ("a.txt",) and state.kv.get("n") == 1
        with pytest.raises(NoSuchFile):
            await state.files.read("b.txt")
        with pytest.raises(BadValue):
            await state.kv.set("n", object())
        with pytest.raises(CallerError, match="root"):
            state.notify_parent("hello")
        with pytest.raises(UnknownAgent, match="did you mean"):
            state.spawn("assistent", "x")
    with pytest.raises(CallerError, match="over"):
        await state.kv.set("late", 1)


@pytest.mark.spec("U-11")
async def test_children_return_what_the_test_says_and_are_listed(ports: Ports) -> None:
    def judge(input: Any) -> Any:
        if input == "bad":
            raise ValueError("no verdict")
        return {"verdict": input}

    async with state_for(children={"judge": judge, "other": 7}, ports=ports) as state:
        assert (await state.spawn("judge", "good").result()).value() == {"verdict": "good"}
        assert (await state.spawn("other", [1], name="second").result()).output == 7
        with pytest.raises(RunFailed, match="no verdict"):
            (await state.spawn("judge", "bad").result()).value()
        assert [x[:2] for x in state.bench.children] == [
            ("judge", "good"), ("other", [1]), ("judge", "bad")
        ]  # fmt: skip
        assert state.bench.children[1].name == "second"


@pytest.mark.spec("U-11")
async def test_messages_are_collected_and_a_child_has_a_parent(ports: Ports) -> None:
    async with state_for(as_child=True, env={"KEY": "k"}, ports=ports) as state:
        assert state.env["KEY"] == "k" and state.parent_run_id is not None
        await state.notify_parent("half done")
        await state.queue_message("look at this")
        state.inject_message("and that")
        said = [x.content for x in state.bench.messages]
        assert "half done" in said[0] and said[1:] == ["look at this", "and that"]
        assert state.bench.messages[0].run_id == state.parent_run_id


@pytest.mark.spec("U-11")
async def test_what_a_tool_raises_has_its_secrets_masked(ports: Ports) -> None:
    key = VariableDefinition(name="KEY", required=True)

    @tool(variables=[key])
    async def look(expected: bool, state: RunState) -> str:
        """Look."""
        raise (ToolError if expected else ValueError)(f"refused {state.env['KEY']}")

    env = {"KEY": "tr0ub4dor-and-3"}
    async with state_for(env=env, variables=[key], ports=ports) as state:
        for expected in (True, False):
            result = await call(look, state, expected=expected)
            assert result.is_error and result.content.endswith("refused ***")


async def test_a_question_that_nothing_answers_is_an_error_and_not_a_hang(ports: Ports) -> None:
    with pytest.raises(CallerError, match=r"asked 'Refund A-2\?'"):
        async with state_for(ports=ports) as state:
            await refund("A-2", state=state)


async def test_answers_that_are_no_texts_fit_a_schema(ports: Ports) -> None:
    async with state_for(answers=lambda prompt: [len(prompt.question)], ports=ports) as state:
        assert await state.ask("four", schema=list[int]) == [4]
    with pytest.raises(BadValue):
        async with state_for(answers="yes", ports=ports):
            pass


@pytest.mark.spec("U-11")
async def test_the_agent_of_the_run_may_be_ones_own(ports: Ports) -> None:
    def never(request: Any) -> str:
        raise AssertionError("its model is not asked")

    prompt = PromptDefinition(
        name="p", prompt="x", model=FunctionModel(never), tools=[refund], variables=[KEY],
        tool_choice="refund",
    )  # fmt: skip
    mine = AgentDefinition(
        name="mine", env={"KEY": "of the agent"}, side_a=SideConfig(prompt=prompt)
    )
    async with state_for(mine, input="Where is it?", ports=ports) as state:
        assert state.agent == "mine" and state.env["KEY"] == "of the agent"
        assert state.messages[0].content == "Where is it?"  # type: ignore[union-attr]
    with pytest.raises(BadValue, match="of a model"):
        async with state_for(tally, ports=ports):
            pass
    with pytest.raises(DefinitionError, match="mine: is an agent"):
        async with state_for(mine, children={"mine": 1}, ports=ports):
            pass


@pytest.mark.spec("U-11")
async def test_a_hook_is_called_with_a_real_state(ports: Ports) -> None:
    async def shorten(state: Any, value: Any) -> Any:
        await state.kv.set("seen", len(value))
        return value[-1:]

    hook = Hook(id="shorten", point="filter_messages", fn=shorten)
    async with state_for(ports=ports) as state:
        assert await hook.fn(state, ["a", "b"]) == ["b"]
        assert state.kv.get("seen") == 2


# ── code agents ──────────────────────────────────────────────────────────────────────────────


@agent("tally")
async def tally(input: int, ctx: RunContext) -> int:
    total = input
    async for message in ctx.messages():
        total += int(message.content)
    ctx.say(f"at {total}")
    if await ctx.ask("Go on?") == "no":
        return total
    doubled: int = await ctx.step("double", lambda: total * 2, type=int)
    return doubled + int((await ctx.spawn("judge", doubled).result()).value())


@pytest.mark.spec("U-11")
async def test_a_code_agent_is_called_with_a_real_context(ports: Ports) -> None:
    async with ctx_for(
        messages=["2", "3"], children={"judge": 10}, answers=["yes"], ports=ports
    ) as ctx:
        assert await run_code(tally, 1, ctx) == 22
        assert ctx.bench.texts == ["at 6"]
        assert ctx.bench.children[0][:2] == ("judge", 12)
        assert any(isinstance(x, AgentText) for x in ctx.bench.events)
    async with ctx_for(answers=["no"], files={"a": "x"}, kv={"n": 1}, ports=ports) as ctx:
        assert await run_code(tally, 1, ctx) == 1
        assert ctx.files.list() == ("a",) and ctx.kv.get("n") == 1


@agent("clerk")
async def clerk(input: Any, ctx: RunContext) -> str:
    async for said in ctx.messages():
        await ctx.hub.reply(said.prompt_id, "seven")
    return "over"


@agent("asks")
async def asks(input: str, ctx: RunContext) -> Any:
    await ctx.hub.open("clerk", run_id=input)
    return await ctx.hub.ask(input, "How many?")


@pytest.mark.parametrize("run_id", ["order-7", "0198c5d2-0000-7000-8000-00000000000a"])
async def test_code_asks_a_run_whatever_its_id_is(run_id: str, ports: Ports) -> None:
    async with ctx_for(agents=[clerk], ports=ports) as ctx:
        assert await run_code(asks, run_id, ctx) == "seven"


class Order(msgspec.Struct):
    items: tuple[str, ...]


@agent("packer")
async def packer(input: Order, ctx: RunContext) -> object:
    return object() if not input.items else len(input.items)


@pytest.mark.spec("U-11", "R-01")
async def test_a_code_agent_is_called_with_what_a_run_would_give_it(ports: Ports) -> None:
    async with ctx_for(ports=ports) as ctx:
        assert await run_code(packer, Order(("a", "b")), ctx) == 2
        assert await run_code(packer, {"items": ["a"]}, ctx) == 1
        for wrong in ({"items": 3}, object()):
            with pytest.raises(BadValue, match="input"):
                await run_code(packer, wrong, ctx)
        with pytest.raises(BadValue, match="output"):
            await run_code(packer, {"items": []}, ctx)
        with pytest.raises(BadValue, match="of a model"):
            await run_code(Agent("model", "You help.", model=ScriptedModel([])), "Hi", ctx)
        with pytest.raises(BadValue, match="expected an agent"):
            await run_code(print, "Hi", ctx)  # type: ignore[arg-type]
        with pytest.raises(BadValue, match="ctx_for"):
            await run_code(packer, {"items": []}, None)  # type: ignore[arg-type]


async def test_what_the_code_raises_is_raised_in_the_test(ports: Ports) -> None:
    with pytest.raises(LookupError):
        async with state_for(ports=ports):
            raise LookupError
    with pytest.raises(LookupError):
        async with ctx_for(ports=ports):
            raise LookupError


# ── what the docstrings show ─────────────────────────────────────────────────────────────────


@pytest.mark.spec("U-11")
@pytest.mark.parametrize("shown", [state_for, ctx_for])
async def test_the_program_in_the_docstring_runs(shown: Any) -> None:
    block = re.search(r"\n\n((?:        .*\n|\n)+?)\n    \S", shown.__doc__)
    assert block is not None
    names: dict[str, Any] = {**globals()}
    exec(textwrap.dedent(block[1]), names)
    (test,) = [x for name, x in names.items() if name.startswith("test_") and name not in globals()]
    assert inspect.iscoroutinefunction(test)
    await test()


@pytest.mark.spec("U-11")
def test_it_needs_no_test_framework() -> None:
    program = (
        "import sys, hubbub.testing; hubbub.testing.state_for, hubbub.testing.ctx_for;"
        "print({'pytest', 'hypothesis', 'trio'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
    assert BenchState.__name__ in dir(sys.modules["hubbub.testing"])
