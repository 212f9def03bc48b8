"""What a reset says is heard in the session that begins with it, or becomes one dead letter."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from hubbub import (
    Agent,
    AgentDefinition,
    FunctionModel,
    ModelRequest,
    PromptDefinition,
    Runtime,
    SideConfig,
    agent,
)
from hubbub.hub.events import Event, HubDeadLetter, SessionReset
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Journal

pytestmark = [pytest.mark.anyio, pytest.mark.spec("T-09")]
MOMENTS = ("agent:start", "session:start", "session:taken", "agent:text", "agent:step",
           "session:end", "agent:park", "agent:complete", "session:close")  # fmt: skip


def two_sided(model: FunctionModel) -> AgentDefinition:
    sides = [
        SideConfig(prompt=PromptDefinition(name=name, prompt="", model=model)) for name in "ab"
    ]
    return AgentDefinition(
        name="x", type="dual_ai", max_session_turns=2, side_a=sides[0], side_b=sides[1]
    )


def code(model: FunctionModel) -> AgentDefinition:
    @agent("x")
    async def collects(input: Any, ctx: Any) -> list[str]:
        return [message.content async for message in ctx.messages()]

    return collects


KINDS: dict[str, Callable[[FunctionModel], AgentDefinition]] = {
    "one-sided": lambda model: Agent("x", "", model=model),
    "two-sided": two_sided,
    "code": code,
}


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_message_of_a_reset_is_heard_refused_or_a_dead_letter(
    kind: str, once: bool, journal: Journal, ports: Ports
) -> None:
    """At every moment at which somebody can hear of the run, and also while it is being closed."""
    heard: list[str] = []

    async def answer(request: ModelRequest) -> str:
        heard.extend(getattr(each, "content", "") for each in request.messages)
        await anyio.sleep(1)
        return "well"

    wrong = []
    definition = KINDS[kind](FunctionModel(answer))
    async with Runtime([definition], store=journal, ports=ports) as rt:
        letters: list[Any] = []
        rt.hub.subscribe("hub:dead_letter", letters.append)
        for number, (moment, closes) in enumerate((m, c) for m in MOMENTS for c in (False, True)):
            text, receipts = f"reset {number}", []

            def reset(event: Event, text: str = text, receipts: list[Receipt] = receipts) -> None:
                if not receipts:
                    receipts.append(rt.hub.reset(event.run_id, text))

            with rt.hub.subscribe(moment, reset):
                run = await rt.start("x", "hello", once=once)
                if closes:
                    run.close()
                await anyio.sleep(30)
                run.close()
                await run.finished()
                await anyio.sleep(30)
            found = [each for each in letters if _is_of(each, text)]
            if not receipts:
                continue
            is_lost = receipts[0].accepted and text not in heard and not found
            if is_lost or len(found) > 1 or (found and text in heard):
                wrong.append(f"{moment}, {closes=}: {receipts[0]}, {found}")
    assert not wrong, "\n".join(wrong)


def _is_of(letter: HubDeadLetter, text: str) -> bool:
    return isinstance(letter.message, SessionReset) and letter.message.message == text


async def test_a_reset_without_words_is_no_dead_letter(journal: Journal, ports: Ports) -> None:
    definition = code(FunctionModel(lambda request: "x"))
    async with Runtime([definition], store=journal, ports=ports) as rt:
        letters: list[Event] = []
        rt.hub.subscribe("hub:dead_letter", letters.append)
        run = await rt.start("x", "hello")
        assert (await rt.hub.reset(run.run_id)).accepted
        run.close()
        await run.finished()
        assert not letters


@pytest.mark.parametrize("once", [False, True])
async def test_a_reset_that_is_accepted_as_the_answer_comes_is_not_lost(
    once: bool, journal: Journal, ports: Ports
) -> None:
    """The run decides that it is over before it can know of the reset."""
    heard: list[str] = []
    receipts: list[Receipt] = []

    async def answer(request: ModelRequest) -> str:
        heard.extend(getattr(each, "content", "") for each in request.messages)
        await anyio.sleep(1)
        if not receipts:
            receipts.append(rt.hub.reset(run.run_id, "anew"))
        return "well"

    async with Runtime(
        [Agent("x", "", model=FunctionModel(answer))], store=journal, ports=ports
    ) as rt:
        letters: list[Any] = []
        rt.hub.subscribe("hub:dead_letter", letters.append)
        run = await rt.start("x", "hello", once=once)
        await anyio.sleep(30)
        found = [each for each in letters if _is_of(each, "anew")]
        assert receipts[0].accepted and len(found) + heard.count("anew") == 1
