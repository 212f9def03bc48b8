"""Answers that come when the time of a prompt is over, in time by the record or not (U-03, U-05).

The time of a prompt runs while no process does.  What counts is when an answer was given: one that
came too late does nothing, whichever way it comes, and one that came in time is valid, whenever it
is taken.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.asked import Asked
from support.families import Recorder, answers, child, config, parent
from support.frames import complete, frame, use

from hubbub import (
    AgentDefinition,
    Hub,
    RunContext,
    RunState,
    Runtime,
    agent,
    external_tool,
    tool,
)
from hubbub.hub import events as e
from hubbub.hub.errors import OperatorError, PromptTimeout
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import LoopClock, virtual_ports
from hubbub.runtime.inspection.answering import PromptAnswer, answer_prompt
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-10", "U-03", "U-05")]

SECONDS = 60


class SetClock(LoopClock):
    """A clock that somebody sets."""

    offset = 0

    def now(self) -> int:
        return super().now() + self.offset


class Lives:
    """Lives of one store; between them time passes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: Ports = virtual_ports()
        self.clock = self.ports.clock = SetClock()

    def store(self) -> Any:
        return sqlite_store(self.folder, ports=self.ports, mirror=False)

    def life(self, *agents: AgentDefinition) -> Runtime:
        return Runtime(agents, store=self.store(), ports=self.ports, grace=0)

    def pass_by(self, seconds: float) -> None:
        self.clock.offset += int(seconds * 1_000_000)

    async def answer(self, prompt_id: str, answer: PromptAnswer) -> bool:
        """Answer by the command; whether that was accepted."""
        try:
            await answer_prompt(f"sqlite:{self.folder}", prompt_id, answer, self.ports)
        except OperatorError as error:
            return "expired" not in str(error)
        return True

    async def put_in(self, reply: e.SessionReply) -> None:
        """A reply that nobody has checked, as versions before have written it."""
        async with Hub(journal=self.store(), ports=self.ports) as hub:
            run_id = reply.prompt_id.partition(".")[0]
            receipt = await hub.pipeline.deliver(reply, to=run_id)
            assert receipt.accepted


YES = PromptAnswer(decision="approve")
RED = PromptAnswer(decision="reply", text="red")

Made = tuple[list[AgentDefinition], PromptAnswer]


@pytest.fixture
def done() -> list[str]:
    """What was done with a person's leave, or with the answer."""
    return []


def pay_tool(done: list[str]) -> Any:
    @tool(approval=True, approval_timeout=SECONDS)
    async def pay(amount: int) -> str:
        """Pay."""
        done.append(f"paid {amount}")
        return f"paid {amount}"

    return pay


def approval(done: list[str]) -> Made:
    return [parent(Recorder(call("pay", amount=7)), pay_tool(done))], YES


def approval_of_a_child(done: list[str]) -> Made:
    below = Recorder(call("pay", amount=7), call("finish", result="child is done"))
    main = parent(Recorder(call("helper", message="Pay it.")), config())
    return [main, child(below, pay_tool(done))], YES


def approval_of_a_frame(done: list[str]) -> Made:
    above = frame(Recorder(call("pay", amount=7), complete()), pay_tool(done), name="writer")
    return [parent(Recorder(use("writer")), agents=("writer",)), above], YES


def external(done: list[str]) -> Made:
    def read(request: Any) -> str:
        done.extend(x.output for x in answers(request) if not x.is_error)
        return "read"

    pick = external_tool("pick", {"type": "object", "properties": {}}, timeout=SECONDS)
    return [parent(Recorder(call("pick"), read), pick)], RED


def question_of_a_tool(done: list[str]) -> Made:
    @tool(idempotent=True)
    async def choose(state: RunState) -> str:
        try:
            done.append(str(await state.ask("Which?", timeout=SECONDS)))
        except PromptTimeout:
            return "nothing"
        return done[-1]

    return [parent(Recorder(call("choose")), choose)], RED


def question_of_code(done: list[str]) -> Made:
    @agent("main", on_restart="resume")
    async def asker(input: Any, ctx: RunContext) -> str:
        try:
            done.append(str(await ctx.ask("Which?", timeout=SECONDS)))
        except PromptTimeout:
            return "nothing"
        return done[-1]

    return [asker], RED


ASKERS: list[Callable[[list[str]], Made]] = [
    approval, approval_of_a_child, approval_of_a_frame, external, question_of_a_tool,
    question_of_code,
]  # fmt: skip


async def asked_and_left(lives: Lives, agents: list[AgentDefinition]) -> tuple[str, str]:
    """The ids of the run and of the prompt, when the process that asked has gone."""
    async with lives.life(*agents) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.", session_key="web_1")
        prompt_id = (await asked.first()).prompt_id
        await anyio.sleep(1)
    return run.run_id, prompt_id


async def ends_of(lives: Lives, agents: list[AgentDefinition], prompt_id: str) -> list[str]:
    """Why the prompt ended, once the next process has had its time."""
    async with lives.life(*agents) as rt:
        await anyio.sleep(10)
        ends = await rt.hub.read(types=e.SessionPromptEnd.type)
        return [
            x.reason for x in ends if isinstance(x, e.SessionPromptEnd) and x.prompt_id == prompt_id
        ]


@pytest.mark.parametrize("seconds", [30, SECONDS, 3600])
@pytest.mark.parametrize("way", ["command", "inbox", "boot"])
@pytest.mark.parametrize("make", ASKERS)
async def test_an_answer_counts_if_it_came_in_time_and_does_nothing_else(
    make: Callable[[list[str]], Made], way: str, seconds: int, tmp_path: Path, done: list[str]
) -> None:
    lives = Lives(tmp_path)
    agents, answer = make(done)
    in_time = seconds < SECONDS
    _, prompt_id = await asked_and_left(lives, agents)
    lives.pass_by(seconds)
    reply = e.SessionReply(prompt_id=prompt_id, content=answer.text)
    if answer.decision == "approve":
        reply = e.SessionReply(prompt_id=prompt_id, decision="approve")
    if way == "command":
        assert await lives.answer(prompt_id, answer) is in_time
    elif way == "inbox":
        await lives.put_in(reply)
    else:
        async with lives.life(*agents) as rt:
            if make in (question_of_a_tool, question_of_code):
                await anyio.sleep(1)  # Their run has to come back first.
            receipt = await rt.hub.reply(prompt_id, answer.text or "approve")
            assert (receipt.status, receipt.reason) == (
                ("accepted", "") if in_time else ("rejected", "expired")
            )
    lives.pass_by(3600)  # What is accepted is taken when the time is over.
    ends = await ends_of(lives, agents, prompt_id)
    if in_time:
        assert len({*done}) == 1 and ends == ["approved" if answer is YES else "answered"]
    else:
        assert done == [] and ends == ["expired"]


async def test_a_reply_that_nobody_checked_and_came_too_late_is_a_dead_letter(
    tmp_path: Path, done: list[str]
) -> None:
    lives = Lives(tmp_path)
    agents, _ = approval(done)
    run_id, prompt_id = await asked_and_left(lives, agents)
    lives.pass_by(3600)
    await lives.put_in(e.SessionReply(prompt_id=prompt_id, decision="approve"))
    async with lives.life(*agents) as rt:
        await anyio.sleep(10)
        dropped = await rt.hub.read(run_id, types=e.SessionDropped.type)
    assert [getattr(x, "reason", "") for x in dropped] == ["expired"]


async def test_a_clock_that_is_set_forward_ends_the_time_and_one_set_back_does_not_extend_it(
    tmp_path: Path, done: list[str]
) -> None:
    lives = Lives(tmp_path)
    agents, _ = approval(done)
    async with lives.life(*agents) as rt:
        asked = Asked(rt.hub)
        await rt.start("main", "Go.")
        prompt_id = (await asked.first()).prompt_id
        lives.pass_by(3600)
        receipt = await rt.hub.approve(prompt_id)
        assert (receipt.status, receipt.reason) == ("rejected", "expired")
        lives.pass_by(-7200)
        await anyio.sleep(SECONDS + 1)
        assert [x.reason for x in asked.ends] == ["expired"]
        assert (await rt.hub.approve(prompt_id)).reason == "expired"
    assert done == []


@pytest.mark.parametrize("seconds", [30, 3600])
async def test_what_is_said_answers_a_question_only_if_it_was_said_in_time(
    seconds: int, tmp_path: Path, done: list[str]
) -> None:
    lives = Lives(tmp_path)
    agents, _ = question_of_a_tool(done)
    run_id, prompt_id = await asked_and_left(lives, agents)
    lives.pass_by(seconds)
    async with Hub(journal=lives.store(), ports=lives.ports) as hub:
        assert (await hub.send_to_run(run_id, "blue")).accepted
    ends = await ends_of(lives, agents, prompt_id)
    assert (done, ends) == ((["blue"], ["answered"]) if seconds < SECONDS else ([], ["expired"]))
