"""What fails is seen: in the log, once, with its traceback; and in the outcome's own words."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent

from hubbub import (
    AgentDefinition,
    FunctionModel,
    ModelReply,
    Runtime,
    ScriptedModel,
    VariableDefinition,
    agent,
    tool,
)
from hubbub.agents.definitions.tools import ToolError
from hubbub.agents.model import ToolCall
from hubbub.hub.errors import RunFailed
from hubbub.hub.events import AgentComplete
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import Fault, call
from hubbub.runtime.simulation import Setup, World, simulate

pytestmark = pytest.mark.anyio


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [x for x in caplog.records if x.name == "hubbub" and x.getMessage().startswith(event)]


# ── tools ────────────────────────────────────────────────────────────────────────────────────


@tool(name="act")
async def breaks(city: str) -> str:
    raise LookupError(f"no such city: {city}")


@tool(name="act")
def breaks_in_a_thread(city: str) -> str:
    raise LookupError(f"no such city: {city}")


@pytest.mark.spec("D-04", "U-08")
@pytest.mark.parametrize("act", [breaks, breaks_in_a_thread], ids=["async", "plain"])
async def test_what_a_tool_raises_is_logged_once_with_its_traceback(
    act: Any, journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    bot = model_agent(ScriptedModel([call("act", city="Ys"), "Well."]), act)
    async with Runtime([bot], store=journal, ports=ports) as rt:
        outcome = await rt.run("assistant", "Go.")
    assert outcome.success
    (record,) = [x for x in caplog.records if x.levelno >= logging.WARNING]
    assert record.levelno == logging.ERROR and "tool='act'" in record.getMessage()
    assert outcome.run_id in record.getMessage() and record.exc_info is not None
    text = logging.Formatter().format(record)
    assert "LookupError: no such city: Ys" in text and f"in {act.fn.__name__}" in text


async def test_what_a_tool_says_plainly_is_no_error_of_the_program(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def act() -> str:
        raise ToolError("the shop is closed")

    caplog.set_level("INFO", logger="hubbub")
    bot = model_agent(ScriptedModel([call("act"), "Well."]), act)
    async with Runtime([bot], store=journal, ports=ports) as rt:
        await rt.run("assistant", "Go.")
    (record,) = told(caplog, "tool.raised")
    assert record.levelno == logging.INFO


# ── models ───────────────────────────────────────────────────────────────────────────────────


def breaks_at_once(request: Any) -> str:
    raise LookupError("no such line")


async def breaks_later(request: Any) -> str:
    raise LookupError("no such line")


@pytest.mark.spec("U-08")
@pytest.mark.parametrize("fn", [breaks_at_once, breaks_later], ids=["plain", "async"])
@pytest.mark.parametrize(
    "make", [FunctionModel, lambda fn: ScriptedModel([fn])], ids=["function", "step"]
)
async def test_what_the_function_of_a_model_raises_is_logged_once_with_its_traceback(
    make: Any, fn: Any, journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure of the model stays what it is."""
    async with Runtime([model_agent(make(fn))], store=journal, ports=ports) as rt:
        outcome = await rt.run("assistant", "Go.")
    assert outcome.outcome == "failed"
    assert f"{fn.__name__} raised LookupError: no such line" in outcome.reason
    (record,) = told(caplog, "model.raised")
    assert record.levelno == logging.ERROR and outcome.run_id in record.getMessage()
    assert f"in {fn.__name__}" in logging.Formatter().format(record)


async def test_what_a_script_refuses_by_itself_has_no_traceback(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime([model_agent(ScriptedModel([]))], store=journal, ports=ports) as rt:
        assert (await rt.run("assistant", "Go.")).outcome == "failed"
    assert not told(caplog, "model.raised")


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


class Odd:
    """A model of a user's own."""

    name = "odd"

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls = 0

    async def call(self, request: Any, on_delta: Any = None) -> Any:
        self.calls += 1
        return self.answer


class NotAsync(Odd):
    def call(self, request: Any, on_delta: Any = None) -> Any:  # type: ignore[override]
        self.calls += 1
        return self.answer


@tool(name="again")
async def again() -> str:
    return "again"


@agent("assistant")
async def raises(input: Any, ctx: Any) -> None:
    raise RuntimeError("the disk is full")


@agent("assistant")
async def says_it_failed(input: Any, ctx: Any) -> None:
    ctx.hub.emit(AgentComplete(success=False, outcome="failed", reason="I give up"))


@agent("assistant")
async def sleeps(input: Any, ctx: Any) -> None:
    await anyio.sleep(3600)


FAILED: dict[str, tuple[Callable[[], AgentDefinition], str, str]] = {
    "missing variable": (
        lambda: model_agent(
            ScriptedModel(["x"]), variables=[VariableDefinition(name="CITY", required=True)]
        ),
        "failed", "needs CITY",
    ),
    "model": (lambda: model_agent(Odd(None)), "failed", "ModelReply"),
    "limit": (
        lambda: model_agent(ScriptedModel([call("again")] * 3), again, max_steps=2), "limit", ""
    ),
    "code agent": (lambda: raises, "failed", "RuntimeError: the disk is full"),
    "code agent in its own words": (lambda: says_it_failed, "failed", "I give up"),
    "deadline": (lambda: sleeps, "timed_out", "the run's time is over"),
    "deadline of a model": (lambda: model_agent(echo_model(3600)), "timed_out", ""),
}  # fmt: skip


@pytest.mark.spec("U-08")
@pytest.mark.parametrize("name", FAILED)
async def test_a_failed_run_says_so_in_one_line_at_error(
    name: str, journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    make, outcome, why = FAILED[name]
    async with Runtime([make()], store=journal, ports=ports, environ={}) as rt:
        run = await rt.start("assistant", "Go.", timeout=60)
        ended = await run.result()
        run.close()
        assert (await run.finished()).outcome == ended.outcome == outcome
    (record,) = told(caplog, "run.failed")
    assert record.levelno == logging.ERROR
    line = record.getMessage()
    assert "\n" not in line and why in line
    assert all(part in line for part in (run.run_id, "agent='assistant'", f"outcome={outcome!r}"))
    assert (record.exc_info is not None) == (name == "code agent")
    assert repr(ended.reason) in line and repr(ended.reason) in repr(ended)
    with pytest.raises(RunFailed) as failed:
        ended.value()
    assert why in str(failed.value) and failed.value.run_id == run.run_id
    assert (failed.value.outcome, failed.value.reason) == (ended.outcome, ended.reason)


@pytest.mark.spec("U-08")
async def test_the_value_of_what_succeeded_is_its_output(journal: Journal, ports: Ports) -> None:
    @agent("adds")
    async def adds(numbers: list[int], ctx: Any) -> dict[str, int]:
        return {"sum": sum(numbers)}

    bot = model_agent(ScriptedModel(["Well."]))
    async with Runtime([bot, adds], store=journal, ports=ports) as rt:
        assert (await rt.run("assistant", "Go.")).value() == "Well."
        assert (await rt.run("adds", [1, 2])).value() == {"sum": 3}


@pytest.mark.parametrize("how", ["completed", "interrupted", "terminated", "closed"])
async def test_a_run_that_ends_as_somebody_wants_says_nothing(
    how: str, journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    latency = 1.0 if how == "completed" else 600.0
    async with Runtime([model_agent(echo_model(latency))], store=journal, ports=ports) as rt:
        run = await rt.start("assistant", "Go.")
        await anyio.sleep(0.5)
        if how == "interrupted":
            run.interrupt("enough")
        elif how == "terminated":
            await run.terminate("enough")
        elif how == "closed":
            run.close()
            run.interrupt("enough")
        await run.result()
    assert not [x for x in caplog.records if x.levelno >= logging.WARNING]


async def test_a_conversation_that_fails_twice_says_so_twice(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime([model_agent(Odd("text"))], store=journal, ports=ports) as rt:
        run = await rt.start("assistant", "Go.")
        await run.result()
        await run.send("Again.")
        await run.result()
        run.close()
        await run.finished()
    assert len(told(caplog, "run.failed")) == 2


NO_REPLIES: dict[str, tuple[Any, str]] = {
    "str": ("hello", "expected ModelReply(text=…), not str"),
    "None": (None, "expected ModelReply(text=…), not NoneType"),
    "dict": ({"text": "x"}, "expected ModelReply(text=…), not dict"),
    "text": (ModelReply(text=None), "text must be a str, not NoneType"),  # type: ignore[arg-type]
    "calls": (ModelReply(calls="act"), "calls must be a tuple, not str"),  # type: ignore[arg-type]
    "call": (ModelReply(calls=("act",)), "its calls[0] must be a ToolCall, not str"),  # type: ignore[arg-type]
    "arguments": (
        ModelReply(calls=(ToolCall(name="act", arguments={}),)),  # type: ignore[arg-type]
        "its calls[0].arguments must be a str, not dict",
    ),
    "usage": (ModelReply(text="x", usage=None), "usage must be a Usage, not NoneType"),  # type: ignore[arg-type]
    "thinking": (
        ModelReply(text="x", thinking=("x",)),
        "thinking[0] must be a Thinking, not str",
    ),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", NO_REPLIES)
async def test_a_model_that_returns_something_else_is_told_what_is_wanted(
    name: str, journal: Journal, ports: Ports
) -> None:
    answer, why = NO_REPLIES[name]
    for model in (Odd(answer), NotAsync(answer)):
        async with Runtime([model_agent(model)], store="memory", ports=ports) as rt:
            outcome = await rt.run("assistant", "Go.")
        wanted = why if type(model) is Odd else "call is to be an async function"
        assert outcome.reason.startswith("the model 'odd' returned no reply: ")
        assert wanted in outcome.reason and model.calls == 1


@pytest.mark.parametrize("is_heard", [True, False])
@pytest.mark.parametrize(
    "name", [x for x in NO_REPLIES if isinstance(NO_REPLIES[x][0], ModelReply)]
)
async def test_a_scripted_reply_of_another_form_is_told_what_is_wanted(
    name: str, is_heard: bool, ports: Ports
) -> None:
    answer, why = NO_REPLIES[name]
    for model in (
        ScriptedModel([answer]), ScriptedModel([lambda request: answer]),
        ScriptedModel([Fault("malformed"), answer]), FunctionModel(lambda request: answer),
    ):  # fmt: skip
        async with Runtime([model_agent(model)], store="memory", ports=ports) as rt:
            if is_heard:
                rt.hub.subscribe("*", lambda event: None)
            outcome = await rt.run("assistant", "Go.")
        assert outcome.reason.startswith(f"the model {model.name!r} returned no reply: ")
        assert why in outcome.reason


# ── who sees it ──────────────────────────────────────────────────────────────────────────────


PROGRAM = """
import anyio
from hubbub import *

city = VariableDefinition(name="CITY", required=True)
prompt = PromptDefinition(name="p", prompt="x", model=ScriptedModel(["y"]), variables=[city])
bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))

async def main():
    async with Runtime([bot], store="memory") as rt:
        print((await rt.run("bot", "Go.")).output)

anyio.run(main)
"""


@pytest.mark.spec("R-15", "U-08")
def test_a_program_that_configures_nothing_sees_why_a_run_has_failed(tmp_path: Path) -> None:
    """By logging's last resort; and whoever configures logging decides himself."""
    quiet = "import logging\nlogging.getLogger('hubbub').addHandler(logging.NullHandler())\n"
    for before in ("", quiet):
        script = tmp_path / "program.py"
        script.write_text(before + PROGRAM)
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == "None\n"
        lines = [line for line in done.stderr.splitlines() if line.startswith("run.failed")]
        assert len(lines) == (not before)
        assert all("needs CITY" in line for line in lines)


def test_what_fails_in_a_simulated_world_is_told_by_its_history_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        await world.runtime.run("assistant", "Go.")

    bot = model_agent(ScriptedModel([call("act", city="Ys"), "Well."]), breaks)
    history = simulate(scenario, Setup(agents=[bot]))
    assert [x.event for x in history.logged if x.level == "error"] == ["tool.raised"]
    assert not caplog.records
