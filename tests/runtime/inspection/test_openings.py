"""However a run was opened, its store is well, and its export is the same run elsewhere.

Every way of opening, with a message that has a key and with one that has none, of a run that is new
and of one that is found again: nothing of it is damage to ``hubbub fsck``, and every export that
the store gives can be imported.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.stores import open_runtime

from hubbub import (
    AgentDefinition,
    Message,
    PromptDefinition,
    RunState,
    Runtime,
    SideConfig,
    agent,
    tool,
)  # fmt: skip
from hubbub.hub.errors import RunEnded
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.models.scripted import FunctionModel, call
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = pytest.mark.anyio

Say = Callable[[Runtime, Any], Awaitable[Any]]

HISTORY = [
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "function": {"name": "track", "arguments": "{}"}},
    ]},
    {"role": "tool", "tool_call_id": "a", "content": "in Rome"},
    {"role": "assistant", "content": "In Rome."},
]  # fmt: skip

USER = {"type": "user", "connector": "telegram", "userId": "7", "channelId": "8"}
CRON = {"type": "cron", "id": "nightly"}


def started(**options: Any) -> Say:
    async def say(rt: Runtime, what: Any) -> None:
        await (await rt.start("bot", what, **options)).result()

    return say


def opened(**options: Any) -> Say:
    async def say(rt: Runtime, what: Any) -> None:
        receipt = await rt.hub.open("bot", what, **options)
        await rt.result(receipt.run_id)

    return say


async def run(rt: Runtime, what: Any) -> None:
    await rt.run("bot", what)


async def code(rt: Runtime, what: Any) -> None:
    with suppress(RunEnded):  # What has another key comes too late: the agent answers once.
        await (await rt.start("child", what, run_id="mine")).result()


WAYS: dict[str, Say] = {
    "start": started(),
    "start by a conversation's key": started(session_key="chat_1_2"),
    "start by a user's key": started(session_key="anything"),
    "start by a run id": started(run_id="mine"),
    "start with a correlation id": started(session_key="chat_1_2", correlation_id="m1"),
    "start of one session": started(once=True),
    "start from a source": started(session_key="chat_1_2", source="telegram"),
    "start from schedules, as their source is called": started(source="schedule"),
    "start with a history": started(session_key="chat_1_2", history=HISTORY),
    "open with a history by a user": opened(descriptor=USER, history=HISTORY),
    "start of a code agent": code,
    "run": run,
    "open": opened(),
    "open by a run id": opened(run_id="mine"),
    "open by a user": opened(descriptor=USER),
    "open by a cron task": opened(descriptor=CRON),
    "open by the heartbeat": opened(descriptor={"type": "heartbeat"}),
}  # fmt: skip

SAID = {
    "with a key": (Message("hi", key="m1"), Message("and?", key="m2"), Message("hi", key="m1")),
    "without": (Message("hi"), "and?", Message("hi")),
    "some with a key": ("hi", Message("and?", key="m1"), "and then?"),
}


@pytest.mark.spec("G-04", "G-08", "H-09")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("said", SAID)
async def test_a_store_is_well_however_its_runs_were_opened(
    how: str, said: str, tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    async with open_runtime(folder, ports) as rt:
        for what in SAID[said]:
            await WAYS[how](rt, what)
    async with open_runtime(folder, ports) as rt:
        await WAYS[how](rt, SAID[said][-1])
    assert_carried_over(folder, tmp_path)


@pytest.mark.spec("G-04", "G-08", "G-10")
async def test_a_store_is_well_whatever_its_children_were_opened_with(
    tmp_path: Path, ports: Ports
) -> None:
    @tool
    async def delegate(state: RunState) -> str:
        """Start a child."""
        child = state.spawn("child", Message("go", key="m1"))
        return str((await child.result()).output)

    @agent("child")
    async def child(input: str, ctx: Any) -> str:
        return f"heard {input}"

    answers = iter((call("delegate"), "done"))
    model = FunctionModel(lambda request: next(answers))
    prompt = PromptDefinition(name="above", prompt="", model=model, tools=[delegate])
    above = AgentDefinition(name="above", side_a=SideConfig(prompt=prompt))
    folder = tmp_path / "store"
    async with Runtime([above, child], store=sqlite_store(folder, ports=ports), ports=ports) as rt:
        top = await rt.start(above, Message("hi", key="m1"))
        await top.result()
        descriptor = {"type": "subagent", "id": "c", "parentAgentId": top.run_id, "name": "c"}
        await rt.hub.open("child", Message("go", key="m1"), descriptor=descriptor)
        await rt.result("c")
    assert_carried_over(folder, tmp_path)


def assert_carried_over(folder: Path, elsewhere: Path) -> None:
    """The store is well, and each of its families is the same in a store of its own."""
    assert [str(one) for one in StoreCheck(f"sqlite:{folder}", thorough=True).problems()] == []
    with open_reader(f"sqlite:{folder}") as store:
        roots = [row.run_id for row in store.rows() if row.parent_run_id is None]
    assert roots
    for number, run_id in enumerate(roots):
        lines = exported(folder, run_id)
        other = elsewhere / f"other{number}"
        import_runs(f"sqlite:{other}", "file.jsonl", lines, replace=False, ports=Ports())
        assert exported(other, run_id) == lines
        problems = StoreCheck(f"sqlite:{other}", thorough=True).problems()
        assert [str(one) for one in problems] == []


def exported(folder: Path, run_id: str) -> list[bytes]:
    with open_reader(f"sqlite:{folder}") as store:
        return list(export_run(store, run_id))
