"""Processes that die while a tool or a model is at work, wherever that is."""

from typing import Any

import anyio
import pytest

from hubbub import AgentDefinition, FunctionModel, ModelRequest, PromptDefinition, SideConfig, tool
from hubbub.agents.model import AssistantMessage
from hubbub.hub import events as e
from hubbub.runtime.models.scripted import call
from hubbub.runtime.simulation import (
    Crash,
    History,
    ModelFault,
    Open,
    Say,
    Setup,
    ToolFault,
    Wait,
    simulate,
)


def desk(bank: list[str], *, idempotent: bool, is_async: bool = True) -> Setup:
    async def refund(order: str) -> str:
        """Pay an order back."""
        await anyio.sleep(1)
        bank.append(order)
        return "Paid."

    def refund_now(order: str) -> str:
        """Pay an order back."""
        bank.append(order)
        return "Paid."

    pays = tool(name="refund", idempotent=idempotent)(refund if is_async else refund_now)

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return last.calls[-1].output
        return call("refund", order=last.content) if last.content != "Hi" else "Hello."

    prompt = PromptDefinition(
        name="desk", prompt="You help.", model=FunctionModel(answer), tools=[pays]
    )
    return Setup.of(AgentDefinition(name="desk", side_a=SideConfig(prompt=prompt)))


PAUSE = (Wait(seconds=60), Wait(seconds=60))  # A crash ends the one it strikes in.
STORY = [Open(agent="desk", input="Hi"), *PAUSE, Say(text="A7"), *PAUSE, Say(text="B8")]


def answers(history: History) -> list[tuple[bool, str]]:
    done = [x for x in history.events if isinstance(x, e.AgentToolComplete)]
    return [(x.is_error, x.output) for x in done]


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_a_tool_has_had_its_effect_when_the_process_dies_of_it(
    store: Any, is_async: bool, seconds: float
) -> None:
    bank: list[str] = []
    fault = ToolFault(call=2, kind="crash", seconds=seconds)
    setup = desk(bank, idempotent=False, is_async=is_async)
    history = simulate(STORY, setup, faults=[fault], store=store)
    assert bank == ["A7", "B8"]
    assert [life.end for life in history.lives] == ["crashed", "left"]
    assert [*history.injected] == [("tool", "crash", "refund", 2)]
    (first, paid), (second, unknown) = answers(history)
    assert (first, paid) == (False, "Paid.")
    assert second and "may" in unknown


def test_one_that_is_declared_idempotent_is_run_again() -> None:
    bank: list[str] = []
    history = simulate(
        STORY, desk(bank, idempotent=True), faults=[ToolFault(tool="refund", kind="crash")]
    )
    assert bank == ["A7", "A7", "B8"]
    assert answers(history) == [(False, "Paid.")] * 2


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_a_model_that_was_not_heard_is_asked_again(seconds: float) -> None:
    bank: list[str] = []
    fault = ModelFault(agent="desk", call=3, kind="crash", seconds=seconds)
    history = simulate(STORY, desk(bank, idempotent=False), faults=[fault])
    assert [life.end for life in history.lives] == ["crashed", "left"]
    (run_id,) = history.runs
    assert history.said(run_id) == ["Hello.", "Paid.", "Paid."]
    assert len(history.requests) == 6, "one of five was asked twice"


def test_as_many_processes_die_as_there_are_faults() -> None:
    bank: list[str] = []
    faults = [ModelFault(kind="crash"), ToolFault(kind="crash"), Crash(commit=1, life=1)]
    history = simulate(STORY, desk(bank, idempotent=False), faults=faults)
    assert [life.end for life in history.lives] == ["crashed"] * 3 + ["left"]
    assert bank == ["A7", "B8"]
