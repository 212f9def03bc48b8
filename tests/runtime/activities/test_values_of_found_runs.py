"""Values of variables that come with an opening which finds a run: taken, or refused aloud."""

from typing import Any

import pytest
from support.agents import model_agent
from support.secrets import leaks

from hubbub import (
    FunctionModel,
    Message,
    ModelRequest,
    RunState,
    Runtime,
    VariableDefinition,
    tool,
)
from hubbub.agents.model import AssistantMessage
from hubbub.hub.events.codec import encode_event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import call

pytestmark = pytest.mark.anyio

KEY = VariableDefinition(name="CRM_KEY", required=True)


def crm() -> Any:
    """An agent whose prompt needs a key; its tool says which one it has, or takes another."""

    @tool
    def which(state: RunState) -> str:
        return state.env["CRM_KEY"][-1]

    @tool
    def change(state: RunState) -> str:
        state.set_env("CRM_KEY", "changed-9")
        return "changed"

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return last.calls[0].output
        return call("change" if last.content == "change it" else "which")

    return model_agent(FunctionModel(answer), which, change, variables=[KEY], name="crm")


@pytest.mark.spec("D-07", "R-09")
async def test_a_conversation_that_lacks_a_variable_gets_it_by_opening_it_again(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([crm()], store=journal, ports=ports) as rt:
        first = await rt.start("crm", "hello", session_key="web_ada")
        assert (await first.result()).outcome == "failed"
        again = await rt.start("crm", "hello", session_key="web_ada", env={"CRM_KEY": "planted-1"})
        assert again.run_id == first.run_id
        assert (await again.result()).output == "1"
        # The same once more is no contradiction: who opens a conversation for each message may.
        same = await rt.start("crm", "hello", session_key="web_ada", env={"CRM_KEY": "planted-1"})
        assert (await same.result()).output == "1"
        written = b"\n".join(encode_event(x) for x in await rt.hub.read())
        assert not leaks(written.decode(), "planted-1")
        await first.close()
        await first.finished()
        assert rt.hub.addressing.values(first.run_id) == ()


@pytest.mark.spec("D-07", "R-09", "H-07")
async def test_another_value_than_the_conversation_has_is_refused_with_the_message(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([crm()], store=journal, ports=ports) as rt:
        run = await rt.start("crm", "hello", session_key="web_ada", env={"CRM_KEY": "planted-1"})
        await run.result()
        for more in ({"input": "hello"}, {}):
            env = {"CRM_KEY": "planted-2"}
            receipt = await rt.hub.open("crm", session_key="web_ada", env=env, **more)
            assert receipt.rejected and receipt.run_id == run.run_id
            assert "CRM_KEY" in receipt.explanation and "planted" not in repr(receipt)
        await rt.hub.send("hello", session_key="web_ada")
        assert (await run.result()).output == "1"
        assert len([x for x in await run.read() if x.type == "session:message"]) == 1
        assert rt.hub.addressing.values(run.run_id) == ("planted-1",)


@pytest.mark.spec("D-07")
async def test_a_value_that_the_run_itself_has_replaced_is_no_contradiction(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([crm()], store=journal, ports=ports) as rt:
        env = {"CRM_KEY": "planted-1"}
        run = await rt.start("crm", "change it", session_key="web_ada", env=env)
        await run.result()
        again = await rt.start("crm", "hello", session_key="web_ada", env=env)
        assert (await again.result()).output == "9"


@pytest.mark.spec("H-07", "H-09", "R-09")
async def test_a_duplicate_says_where_the_first_was_accepted(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([crm()], store=journal, ports=ports, env={"CRM_KEY": "k-3"}) as rt:
        opened = await rt.hub.open("crm", Message("one", key="1"), session_key="web_ada")
        sent = await rt.hub.send_to_run(opened.run_id, Message("two", key="2"))
        for receipt, again in (
            (opened, rt.hub.open("crm", Message("one", key="1"), session_key="web_ada")),
            (opened, rt.hub.open("crm", Message("one", key="1"), run_id=opened.run_id)),
            (opened, rt.hub.open("crm", run_id=opened.run_id)),
            (opened, rt.hub.open("crm", session_key="web_ada")),
            (sent, rt.hub.send_to_run(opened.run_id, Message("two", key="2"))),
            (sent, rt.hub.send(Message("two", key="2"), session_key="web_ada")),
        ):
            assert (await again).duplicate
            assert again.cursor == receipt.cursor != ""
        # What follows it is the whole answer, however often it was sent.
        async with rt.hub.subscribe("agent:text", after=again.cursor) as events:
            assert (await anext(events)).text == "3"
