"""What ``publish`` acknowledges: nothing that was refused, and it always returns."""

from typing import Any

import anyio
import pytest
from support.restarts import Lives

from hubbub import Agent, FunctionModel, Hub, Message, Runtime
from hubbub.hub.errors import CallerError, Closed, HubbubError, RunEnded, UnknownRun
from hubbub.hub.events import (
    SessionAbort,
    SessionClose,
    SessionLimits,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionReset,
    SessionTerminate,
)

pytestmark = pytest.mark.anyio

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


def agent(name: str, answer: Any = "ok", **options: Any) -> Agent:
    return Agent(name, "You.", model=FunctionModel(lambda request: answer, **options))


@pytest.mark.spec("H-17", "H-07")
@pytest.mark.parametrize("is_emitted", [False, True], ids=["published", "emitted"])
async def test_a_message_that_the_owner_of_a_run_refuses_is_raised_and_hangs_nobody(
    tmp_path, ports, is_emitted
):
    lives = Lives(tmp_path, ports)
    async with lives.life(agent("old", latency=30)) as rt:
        run = await rt.start("old", "hi")
        await anyio.sleep(0.3)
    async with lives.life(agent("other")) as rt:
        dead: list[str] = []
        rt.hub.subscribe("hub:dead_letter", lambda event: dead.append(event.reason))
        event = SessionMessage(run_id=run.run_id, content="hello")
        with anyio.fail_after(10):
            if is_emitted:
                rt.hub.emit(event)
            else:
                with pytest.raises(CallerError, match="agent gone"):
                    await rt.hub.publish(event)
        await anyio.sleep(1)
        assert dead == ["agent gone"]


@pytest.mark.spec("H-17")
@pytest.mark.parametrize(
    "item",
    [
        SessionMessage(content="x"), SessionAbort(), SessionClose(), SessionLimits(),
        SessionReset(message="x"), SessionTerminate(),
    ],
    ids=lambda item: item.type,
)  # fmt: skip
async def test_what_no_run_gets_is_raised(hub, item):
    run_id = (await hub.open("agent")).run_id
    await hub.publish(SessionTerminate(run_id=run_id))
    for to, error in ((NOBODY, UnknownRun), (run_id, RunEnded)):
        placed = type(item)(**{**_said(item), "run_id": to})
        with anyio.fail_after(10):
            if isinstance(item, SessionTerminate) and to == run_id:
                await hub.publish(placed)
            else:
                with pytest.raises(error):
                    await hub.publish(placed)


def _said(item):
    return {name: getattr(item, name) for name in item.__struct_fields__}


@pytest.mark.spec("H-10")
async def test_a_reply_to_no_prompt_is_raised(hub):
    with anyio.fail_after(10), pytest.raises(CallerError, match="unknown"):
        await hub.publish(SessionReply(prompt_id="nobody's", content="x"))


@pytest.mark.spec("H-09")
async def test_a_repeated_message_is_acknowledged_and_another_under_its_key_is_raised(hub):
    run_id = (await hub.open("agent")).run_id
    first = SessionMessage(run_id=run_id, content="one", key="k")
    await hub.publish(first)
    await hub.publish(first)
    with pytest.raises(CallerError, match="key reused"):
        await hub.publish(SessionMessage(run_id=run_id, content="two", key="k"))
    assert len(await hub.read(run_id, types="session:message")) == 1


async def test_publishing_to_a_hub_that_closes_meanwhile_ends(journal, ports):
    hub, ended = Hub(journal=journal, ports=ports), []

    async def publish(event):
        try:
            await hub.publish(event)
            ended.append("acknowledged")
        except HubbubError as error:
            ended.append(type(error).__name__)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, hub:
            run_id = (await hub.open("agent")).run_id
            hub.subscribe("session:message", lambda event: hub.close())
            for number in range(3):
                said = SessionMessage(run_id=run_id, content=f"{number}")
                tasks.start_soon(publish, said)
            await anyio.sleep(1)
    assert len(ended) == 3
    assert set(ended) <= {"acknowledged", Closed.__name__}


@pytest.mark.spec("H-07", "R-09")
@pytest.mark.parametrize("how", ["emit", "publish", "open"])
async def test_an_opening_that_is_refused_is_one_dead_letter(journal, ports, how):
    async with Runtime([agent("known")], store=journal, ports=ports) as rt:
        dead: list[Any] = []
        rt.hub.subscribe("hub:dead_letter", dead.append)
        said = SessionMessage(content="precious")
        opening = SessionOpen(open_agent="nobody", correlation_id="c", message=said)
        if how == "emit":
            rt.hub.emit(opening)
            await anyio.sleep(1)
        elif how == "publish":
            with pytest.raises(CallerError, match="no agent named 'nobody'"):
                await rt.hub.publish(opening)
        else:
            opened = rt.hub.open("nobody", Message("precious"), correlation_id="c")
            assert (await opened).rejected
        (letter,) = dead
        assert "no agent named 'nobody'" in letter.reason
        assert letter.message.correlation_id == "c"
        assert letter.message.message.content == "precious"
