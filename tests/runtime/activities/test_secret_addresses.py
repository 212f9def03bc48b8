"""A secret that a tool takes for an address: what is said of the message that nobody gets."""

import logging
from typing import Any

import pytest
from support.agents import model_agent
from support.secrets import leaks

from hubbub import FunctionModel, RunState, Runtime, Tool, VariableDefinition, tool
from hubbub.agents.model import AssistantMessage
from hubbub.hub.events.codec import encode_event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import call

pytestmark = pytest.mark.anyio

SECRET = "sk-live-Zq81xTT0aa7"


KEY = VariableDefinition(name="KEY", required=True)


@tool(variables=[KEY])
def send(state: RunState) -> str:
    """Mistake the key for an address."""
    state.hub.send_to_run(state.env["KEY"], "hello")
    return "sent"


@tool(variables=[KEY])
async def tell(state: RunState) -> str:
    """Mistake the key for an agent."""
    await state.send_agent_message("hello", state.env["KEY"])
    return "told"


@pytest.mark.spec("H-07", "W-06")
@pytest.mark.parametrize("sends", [send, tell], ids=["send_to_run", "send_agent_message"])
async def test_a_secret_that_is_used_as_an_address_is_in_no_dead_letter_and_no_log(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture, sends: Tool[..., Any]
) -> None:
    def answer(request: Any) -> Any:
        return "done" if isinstance(request.messages[-1], AssistantMessage) else call(sends.name)

    letters: list[Any] = []
    with caplog.at_level(logging.DEBUG):
        async with Runtime(
            [model_agent(FunctionModel(answer), sends)], store=journal, ports=ports
        ) as rt:
            rt.hub.subscribe("hub:dead_letter", letters.append)
            await rt.run("assistant", "go", env={"KEY": SECRET})
    (letter,) = letters
    assert (letter.to, letter.message.content) == ("***", "hello")
    assert not leaks(encode_event(letter).decode(), SECRET)
    assert any("message.undeliverable" in record.getMessage() for record in caplog.records)
    assert not leaks(caplog.text, SECRET)
