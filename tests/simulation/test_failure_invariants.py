"""``no_run_failed``: its author's mistakes, with run, error and place; and nothing else."""

from typing import Any

import anyio
import pytest
from support.bugs import support_desk

from hubbub import (
    AgentDefinition,
    PromptDefinition,
    SessionToolBinding,
    SideConfig,
    ToolError,
    agent,
    tool,
)
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call
from hubbub.runtime.simulation import (
    INVARIANTS,
    Crash,
    Interrupt,
    ModelFault,
    Open,
    Restart,
    Say,
    Setup,
    SimulationFailed,
    Step,
    Terminate,
    ToolFault,
    Wait,
    WorldFault,
    no_run_failed,
    simulate,
)


@tool
async def look_up(order: int) -> str:
    """Look an order up."""
    await anyio.sleep(5)
    return "it was lost"


@tool
def broken(order: int) -> str:
    """Raise what its author has not thought of."""
    raise TypeError("my own mistake")


@tool
def refuses(order: int) -> str:
    """Say that it did not work."""
    raise ToolError("there is no such order")


@tool
def give_up(why: str) -> str:
    """Give up."""
    return "given up"


@agent("code")
async def code(input: Any, ctx: Any) -> Any:
    return input + 1


@agent("parent")
async def parent(input: Any, ctx: Any) -> Any:
    return (await ctx.spawn("code", input).result()).output


@agent("sleeper")
async def sleeper(input: Any, ctx: Any) -> None:
    await anyio.sleep(10)


def desk(*script: Any, model: Any = None) -> AgentDefinition:
    prompt = PromptDefinition(
        name="desk", prompt="Help.", model=model or ScriptedModel([*script, "done"]),
        tools=[look_up, broken, refuses],
    )  # fmt: skip
    return AgentDefinition(name="desk", side_a=SideConfig(prompt=prompt))


def told(
    agents: list[AgentDefinition], *later: Step, faults: list[WorldFault] | None = None
) -> list[str]:
    """What is said of a world in which the first agent is opened; every other invariant holds."""
    history = simulate([Open(agent=agents[0].name, input="a"), *later], Setup.of(*agents),
                       faults=faults or [])  # fmt: skip
    return [history.named(line) for line in no_run_failed(history)]


def test_it_is_not_asked_unless_one_says_so() -> None:
    assert "no_run_failed" not in INVARIANTS
    story = [Open(agent="code", input="a")]
    simulate(story, Setup.of(code))
    asked = {**INVARIANTS, "no_run_failed": no_run_failed}
    with pytest.raises(SimulationFailed) as failed:
        simulate(story, Setup.of(code), invariants=asked)
    assert failed.value.broken == "no_run_failed"


def test_an_author_hears_of_his_mistakes_once_with_run_error_and_place() -> None:
    mistake = 'TypeError: can only concatenate str (not "int") to str'
    assert told([code]) == [f"run 1 (code): failed at 0.000 s (1/own/5): {mistake}"]
    (line,) = told([parent, code])  # By the child; its parent only had its result.
    assert line.startswith("run 1.1 (code): failed")
    (line,) = told([desk(call("broken", order=1))])
    assert line == (
        "run 1 (desk): call 1.0 (broken) was an error at 0.000 s (1/own/6): "
        "TypeError: my own mistake"
    )
    (line,) = told([desk(call("refuses", order=1))])
    assert line.endswith(": there is no such order")

    def answer(request: Any) -> str:
        raise KeyError("lines")

    assert len(told([desk(model=FunctionModel(answer))], Wait(seconds=60), Say(text="b"))) == 2
    (line,) = told([desk(model=FunctionModel(answer))])
    assert line.startswith("run 1 (desk): failed at 0.000 s (1/own/4): ")
    assert "KeyError" in line


def test_a_call_that_waited_for_a_child_that_failed_is_not_told_of_beside_the_child() -> None:
    def answer(request: Any) -> str:
        raise KeyError("lines")

    def pair(name: str, model: Any, *tools: Any) -> AgentDefinition:
        prompt = PromptDefinition(name=name, prompt="x", model=model, tools=tools)
        other = PromptDefinition(name=f"{name}2", prompt="x", model=ScriptedModel(["y"]))
        return AgentDefinition(
            name=name, type="dual_ai", expose_as_tool=True, max_session_turns=2,
            side_a=SideConfig(prompt=prompt), side_b=SideConfig(prompt=other),
        )  # fmt: skip

    lead = pair("lead", ScriptedModel([call("helper", message="help"), "well"]), "helper")
    (line,) = told([lead, pair("helper", FunctionModel(answer))])
    assert line.startswith("run 1.1 (helper): failed")


def test_what_repeats_a_failure_that_a_fault_explains_is_explained() -> None:
    @agent("boss")
    async def boss(input: Any, ctx: Any) -> None:
        outcome = await ctx.spawn("desk", input).result()
        assert outcome.success, outcome.reason

    broken_model: list[WorldFault] = [ModelFault(kind="error")] * 6
    assert not told([boss, desk()], faults=broken_model)
    assert told([boss, code, desk(model=FunctionModel(lambda request: 1 / 0))])  # type: ignore[arg-type,return-value]


def test_what_a_model_got_wrong_or_gave_up_is_no_failure() -> None:
    assert not told([desk(call("nope", order=1))])
    assert not told([desk(call("look_up", number="x"))])
    side = PromptDefinition(
        name="a", prompt="x", model=ScriptedModel([call("give_up", why="too hard")]),
        tools=[give_up],
    )  # fmt: skip
    other = PromptDefinition(name="b", prompt="x", model=ScriptedModel(["y"]))
    pair = AgentDefinition(
        name="pair", type="dual_ai", side_b=SideConfig(prompt=other),
        side_a=SideConfig(prompt=side, session_fail=SessionToolBinding("give_up", "why")),
    )  # fmt: skip
    history = simulate([Open(agent="pair", input="a")], Setup.of(pair))
    ending = history.outcome(history.roots[0])
    assert ending is not None
    assert ending.outcome == "failed"
    assert not list(no_run_failed(history))


@pytest.mark.parametrize("kind", ["hang", "raise", "late", "crash"])
def test_what_a_fault_of_a_tool_explains_is_no_failure(kind: Any) -> None:
    for seconds in (0.0, 1_000.0):
        fault = ToolFault(tool="look_up", kind=kind, seconds=seconds)
        assert not told([desk(call("look_up", order=1))], faults=[fault])
    # Another tool was not struck.
    script = (call("look_up", order=1), call("broken", order=1))
    assert len(told([desk(*script)], faults=[ToolFault(tool="look_up", kind=kind)])) == 1


@pytest.mark.parametrize(
    "kind",
    [
        "hang",
        "error",
        "refused",
        "rate_limit",
        "cut",
        "empty",
        "bad_arguments",
        "unknown_tool",
        "slow",
    ],
)
def test_what_faults_of_a_model_explain_is_no_failure(kind: Any) -> None:
    for seconds in (0.0, 1_000.0):
        faults: list[WorldFault] = [ModelFault(kind=kind, seconds=seconds)] * 6
        assert not told([desk(call("look_up", order=1))], faults=faults)


@pytest.mark.parametrize(
    "later", [Interrupt(), Terminate(), Restart(), Restart(kill=True)], ids=repr
)
def test_what_a_scenario_cuts_off_is_no_failure(later: Step) -> None:
    assert not told([desk(call("look_up", order=1))], Wait(seconds=2), later)
    assert not told([sleeper], Wait(seconds=2), later)


def test_the_support_desk_does_not_fail_whenever_it_dies() -> None:
    for commit in range(1, 30):
        history = simulate(
            [Open(agent="desk", input="hi")], support_desk(), faults=[Crash(commit=commit)],
            invariants={"no_run_failed": no_run_failed},
        )  # fmt: skip
        assert history.runs or commit == 1
