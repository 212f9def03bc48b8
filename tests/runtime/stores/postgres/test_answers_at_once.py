"""A person at a worker, and one at another process, answer a question in one moment."""

from itertools import takewhile
from typing import Any

import anyio
import pytest
from support.asked import Asked
from support.postgres import Server

from hubbub import Agent, FunctionModel, RunState, Runtime, tool
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.spec("H-10", "X-05")]

ROUNDS = 15


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@tool(idempotent=True)
async def wonder(number: int, state: RunState) -> str:
    """Ask a person."""
    return "answer " + await state.ask(f"Which, for the {number}th time?")


def answer(request: Any) -> Any:
    for message in takewhile(lambda x: isinstance(x, UserMessage), reversed(request.messages)):
        if message.content.startswith("begin"):
            return call("wonder", number=int(message.content.split()[1]))
    return "done"


@pytest.mark.parametrize("first", ["said", "replied"])
async def test_what_does_not_answer_a_question_is_heard_in_the_conversation(
    server: Server, first: str
) -> None:
    address, desk = server.dsn(), Agent("desk", "Ask.", model=FunctionModel(answer), tools=[wonder])
    async with (
        Runtime([desk], store=PostgresStore(address)) as rt,
        Runtime(store=PostgresStore(address, is_worker=False), role="channel") as other,
    ):
        asked = Asked(other.hub)
        run = await rt.start("desk", session_key="ann")
        accepted = []
        for number in range(ROUNDS):
            run.send(f"begin {number}")
            with anyio.fail_after(20):
                prompt = (await asked.wait(number + 1))[-1]
            what = f"said-{number}", f"replied-{number}"
            reply = other.hub.reply(prompt.prompt_id, what[1]) if first == "replied" else None
            said = rt.hub.send_to_run(run.run_id, what[0])
            reply = reply or other.hub.reply(prompt.prompt_id, what[1])
            accepted.append((what[0], (await said).accepted))
            accepted.append((what[1], (await reply).accepted))
            await run.result()
        await run.ask("That is all.")
        conversation = (await rt.state_at(run.run_id)).conversation
    heard = [x.content for x in conversation if isinstance(x, UserMessage)]
    answers = [
        x.output.removeprefix("answer ")
        for message in conversation
        if isinstance(message, AssistantMessage)
        for x in message.calls
    ]
    assert len(answers) == ROUNDS
    wanted = [x for x, is_accepted in accepted if is_accepted]
    assert sorted([*answers, *(x for x in heard if x.startswith("said"))]) == sorted(wanted)
