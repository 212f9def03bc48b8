"""Tools that a person must approve (U-03)."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.asked import Asked
from support.families import Recorder, answers

from hubbub import Hub, Runtime, agent, external_tool, tool
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


class Desk:
    """A refund desk: what was refunded, and an agent that refunds."""

    def __init__(self, *script: Any, approval: Any = True, **options: Any) -> None:
        self.refunded: list[int] = []

        @tool(approval=approval, **options)
        async def refund(order: int, reason: str = "none") -> str:
            self.refunded.append(order)
            return f"refunded {order}"

        @tool
        async def look(order: int) -> str:
            return f"order {order}"

        self.model = Recorder(*script)
        self.agent = model_agent(self.model, refund, look, external_tool("pick", {
            "type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"],
        }))  # fmt: skip

    def results(self) -> list[tuple[str, bool]]:
        return [(x.output, x.is_error) for x in answers(self.model.requests[-1])]


async def test_an_approved_call_runs_once_and_the_turn_goes_on() -> None:
    desk = Desk(call("refund", order=7), "Done.")
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund 7.")
        prompt = await seen.first()
        assert (prompt.kind, prompt.tool, prompt.arguments) == ("approval", "refund", {"order": 7})
        assert prompt.options == ("approve", "deny")
        await anyio.sleep(10_000)
        assert not desk.refunded
        receipt = await rt.hub.approve(prompt.prompt_id)
        assert receipt.status == "accepted"
        assert (await run.result()).output == "Done."
        assert desk.refunded == [7]
        again = await rt.hub.approve(prompt.prompt_id)
        assert (again.status, again.reason) == ("rejected", "answered")
        assert [x.reason for x in seen.ends] == ["approved"]


@pytest.mark.parametrize("decision", ["approve", "deny", "deny with words", "reply"])
@pytest.mark.parametrize("stored", ["memory", "sqlite"])
async def test_who_replies_second_is_told_the_same_of_every_reply_on_every_store(
    decision: str, stored: str, tmp_path: Path, ports: Ports
) -> None:
    desk = Desk(call("refund", order=7), "Done.")

    def store() -> Any:
        return MemoryJournal() if stored == "memory" else sqlite_store(tmp_path / "s", ports=ports)

    def say(hub: Hub, prompt_id: str) -> Receipt:
        match decision:
            case "approve":
                return hub.approve(prompt_id)
            case "reply":
                return hub.reply(prompt_id, "no, thanks")
            case _:
                return hub.deny(prompt_id, "too late" if decision.endswith("words") else "")

    async with Runtime([desk.agent], store=store(), ports=ports) as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund 7.", session_key="ann")
        prompt = await seen.first()
        first, second = say(rt.hub, prompt.prompt_id), say(rt.hub, prompt.prompt_id)
        assert (await first).accepted
        await run.result()
        later = await say(rt.hub, prompt.prompt_id)
    async with Runtime(
        [desk.agent], store=store(), ports=ports
    ) as rt:  # On a memory store it is unknown there.
        after = await say(rt.hub, prompt.prompt_id)
    reasons = [(await second).reason, later.reason, after.reason]
    assert reasons == ["answered", "answered", "unknown" if stored == "memory" else "answered"]


async def test_a_denied_call_does_not_run_and_the_model_reads_the_reason() -> None:
    desk = Desk(call("refund", order=7), "Sorry.")
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund 7.")
        prompt = await seen.first()
        await rt.hub.deny(prompt.prompt_id, "too late")
        assert (await run.result()).output == "Sorry."
    assert desk.results() == [("not run: denied: too late", True)]
    assert not desk.refunded


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("approve", ("refunded 7", False)),
        ("deny", ("not run: denied", True)),
        ("yes", ("not run: denied: yes", True)),
        ("Approve", ("not run: denied: Approve", True)),
    ],
)
async def test_a_text_approves_only_if_it_is_exactly_that(
    text: str, result: tuple[str, bool]
) -> None:
    desk = Desk(call("refund", order=7), "Fine.")
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund 7.")
        prompt = await seen.first()
        assert (await rt.hub.reply(prompt.prompt_id, text)).status == "accepted"
        await run.result()
    assert desk.results() == [result]


async def test_a_call_approved_with_other_arguments_runs_with_those_and_the_model_is_told() -> None:
    desk = Desk(call("refund", order=7), "Fine.")
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund 7.")
        prompt = await seen.first()
        wrong = await rt.hub.approve(prompt.prompt_id, {"order": "eight"})
        assert wrong.status == "rejected"
        assert "order" in wrong.reason
        assert (await rt.hub.approve(prompt.prompt_id, {"order": 8})).status == "accepted"
        await run.result()
        (start,) = await rt.hub.read(run.run_id, types="agent:tool:start")
        assert isinstance(start, e.AgentToolStart)
        assert start.arguments == '{"order":8}'
    assert desk.refunded == [8]
    (done,) = answers(desk.model.requests[-1])
    assert (done.arguments, done.output) == ('{"order":7}', "refunded 8")
    assert '{"order":8}' in done.notes[0]


async def test_arguments_that_do_not_fit_are_shown_to_nobody() -> None:
    desk = Desk(call("refund", order="x"), call("pick", who=1), "Fine.")
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund 7.")
        await run.result()
        assert not seen.prompts
    assert [x.startswith("Bad arguments") for x, _ in desk.results()] == [True, True]


async def test_what_a_user_says_next_denies_and_is_the_reason() -> None:
    desk = Desk(call("refund", order=7), "Fine.", "More.")
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund 7.")
        await seen.first()
        await rt.hub.send_to_run(run.run_id, "No, leave it.")
        assert (await run.result()).output == "Fine."
    assert desk.results() == [("not run: denied: No, leave it.", True)]


@pytest.mark.parametrize("parallel", [False, True])
async def test_all_prompts_of_a_step_open_in_its_commit(parallel: bool) -> None:
    desk = Desk(reply("", call("look", order=1), call("refund", order=1), call("pick", what="x"),
                      call("refund", order=2)), "Fine.")  # fmt: skip
    definition = model_agent(desk.model, *desk.agent.side_a.prompt.tools,  # type: ignore[union-attr]
                             parallel_tool_calls=parallel)  # fmt: skip
    async with Runtime([definition], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund both.")
        prompts = await seen.wait(3)
        own = await rt.hub.read(run.run_id)
        types = [x.type for x in own]
        step = types[types.index("agent:step") :]
        if "agent:tool:complete" in step:
            step = step[: step.index("agent:tool:complete")]
        assert step.count("session:prompt") == 3
        assert [x.kind for x in prompts] == ["approval", "external", "approval"]
        await rt.hub.approve(prompts[2].prompt_id)
        await anyio.sleep(1)
        assert desk.refunded == ([2] if parallel else [])  # In its turn.
        await rt.hub.reply(prompts[1].prompt_id, "picked")
        await rt.hub.approve(prompts[0].prompt_id)
        await run.result()
        assert desk.refunded == ([2, 1] if parallel else [1, 2])
    texts = [x for x, _ in desk.results()]
    assert texts == ["order 1", "refunded 1", "picked", "refunded 2"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_predicate_says_which_calls_are_asked_about(is_async: bool) -> None:
    async def later(order: int, reason: str) -> bool:
        assert reason == "none"
        return order > 100

    def now(order: int, reason: str) -> bool:
        return order > 100

    script = [call("refund", order=7), call("refund", order=700), "Fine."]
    desk = Desk(*script, approval=later if is_async else now)
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund.")
        prompt = await seen.first()
        assert desk.refunded == [7]
        await rt.hub.approve(prompt.prompt_id)
        await run.result()
    assert desk.refunded == [7, 700]


async def test_a_predicate_that_raises_has_the_person_asked() -> None:
    def broken(order: int, reason: str) -> bool:
        raise RuntimeError("no")

    desk = Desk(call("refund", order=7), "Fine.", approval=broken)
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Refund.")
        prompt = await seen.first()
        await rt.hub.deny(prompt.prompt_id)
        await run.result()
    assert not desk.refunded


async def test_an_approval_with_a_timeout_is_denied_when_nobody_answers() -> None:
    desk = Desk(call("refund", order=7), "Fine.", approval_timeout=60)
    async with Runtime([desk.agent], store="memory") as rt:
        run = await rt.start("assistant", "Refund.")
        await run.result()
    assert desk.results() == [("not run: nobody approved it in time", True)]


async def test_the_results_of_external_calls_come_from_outside() -> None:
    desk = Desk(call("pick", what="a"), call("pick", what="b"), "Fine.")
    async with Runtime([desk.agent], store="memory") as rt:
        seen = Asked(rt.hub)
        run = await rt.start("assistant", "Pick.")
        first = await seen.first()
        assert (first.kind, first.arguments) == ("external", {"what": "a"})
        await rt.hub.reply(first.prompt_id, "A it is")
        second = (await seen.wait(2))[1]
        assert (await rt.hub.approve(second.prompt_id)).status == "rejected"
        await rt.hub.reply(second.prompt_id, "broken", is_error=True)
        await run.result()
    assert desk.results() == [("A it is", False), ("broken", True)]


@pytest.mark.spec("U-03", "U-04", "H-10")
async def test_a_run_approves_denies_and_answers_in_its_own_name() -> None:
    desk = Desk(
        reply("", call("refund", order=1), call("refund", order=2), call("pick", what="a")), "Done."
    )
    seen: list[e.SessionPrompt] = []

    @agent("judge")
    async def judge(input: Any, ctx: Any) -> None:
        first, second, third = seen
        assert (await ctx.hub.approve(first.prompt_id, {"order": "x"})).rejected
        assert (await ctx.hub.approve(first.prompt_id, {"order": 3})).accepted
        assert (await ctx.hub.approve(first.prompt_id)).reason == "answered"
        assert (await ctx.hub.deny(second.prompt_id, "too much")).accepted
        assert (await ctx.hub.reply(third.prompt_id, "none is left", is_error=True)).accepted

    async with Runtime([desk.agent, judge], store="memory") as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Go.")
        seen += await asked.wait(3)
        judging = await rt.start("judge")
        assert (await judging.result()).outcome == "completed"
        await run.result()
        assert desk.refunded == [3]
        said = [output for output, _ in desk.results()]
        assert said[1:] == ["not run: denied: too much", "none is left"]
        replies = await rt.hub.read(run.run_id, types=e.SessionReply.type)
        assert {x.source for x in replies if isinstance(x, e.SessionReply)} == {judging.run_id}
