"""Users of a simulated world answer prompts, approve and deny (U-11)."""

import pytest
from support.agents import model_agent

from hubbub import FunctionModel, external_tool, tool
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.hub import events as e
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.simulation import (
    Approve,
    Crash,
    Deny,
    History,
    Open,
    Reply,
    Restart,
    Setup,
    Step,
    Wait,
    simulate,
)

pytestmark = pytest.mark.spec("U-03")


@tool(approval=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


def _answer(request: ModelRequest) -> object:
    if any(isinstance(m, AssistantMessage) for m in request.messages):
        return "Done."
    return reply("", call("pay", amount=1), call("pay", amount=2), call("pick"))


SETUP = Setup(agents=[
    model_agent(FunctionModel(_answer, latency=1.0), pay, external_tool("pick"), name="desk")
])  # fmt: skip
STORY: list[Step] = [
    Open(agent="desk", input="Pay."),
    Wait(seconds=5),
    Approve(arguments={"amount": 7}),
    Wait(),
    Restart(kill=True),
    Deny(reason="too much"),
    Reply(text="the red one"),
    Wait(seconds=5),
]


def outputs(history: History) -> list[str]:
    return [x.output for x in history.events if isinstance(x, e.AgentToolComplete)]


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
def test_they_answer_the_oldest_open_prompt(store: str) -> None:
    history = simulate(STORY, SETUP, store=store)  # type: ignore[arg-type]
    assert outputs(history) == ["paid 7", "not run: denied: too much", "the red one"]
    assert [(x.verb, x.status) for x in history.sent[1:]] == [
        ("approve", "accepted"), ("deny", "accepted"), ("reply", "accepted"),
    ]  # fmt: skip
    assert not history.skipped


def test_where_nothing_is_asked_they_do_nothing_and_the_trace_says_so() -> None:
    story: list[Step] = [Reply(text="hm"), Open(agent="desk"), Approve(), Deny(to=3)]
    history = simulate(story, SETUP)
    assert [x.step for x in history.skipped] == ["Reply(text='hm')", "Approve()", "Deny(to=3)"]


@pytest.mark.parametrize("commit", range(1, 12))
def test_a_crash_anywhere_changes_nothing_of_what_they_decided(commit: int) -> None:
    story = [*STORY, Approve(), Wait(), Deny(), Wait(), Reply(text="late"), Wait(seconds=5)]
    history = simulate(story, SETUP, faults=[Crash(commit=commit)])
    approved = {x.run_id for x in history.sent if x.verb == "approve"}
    ran = [x for x in history.events if isinstance(x, e.AgentToolStart) and x.name == "pay"]
    assert not ran or approved
