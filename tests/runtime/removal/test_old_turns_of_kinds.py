"""``Retention(keep_turns=…)`` where a conversation is more than messages and answers: a request for
variables that nobody has answered, an agent of two sides."""

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from support.pruned_stores import problems

from hubbub import (
    AgentDefinition,
    Message,
    PromptDefinition,
    Resumable,
    Retention,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
    VariableDefinition,
)
from hubbub.__main__ import main
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelReply, ModelRequest, UserMessage
from hubbub.agents.state.bases import base_behind_gap
from hubbub.agents.state.thread import Thread
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.runtime.inspection.variable_requests import VariableRequest, open_requests
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply
from hubbub.runtime.remembered.snapshots import thread_of

pytestmark = pytest.mark.anyio

KEPT = Retention(keep_turns=3)
TURNS = 20


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryJournal() if request.param == "memory" else f"sqlite:{tmp_path / 'store'}"


async def gap_of(rt: Runtime, run_id: str) -> int:
    """The number of the base before which turns of a run have gone, after a pass."""
    await anyio.sleep(61)

    def look(reader: StoreReader) -> int:
        return base_behind_gap(x.event for x in events_in(reader, run_id))

    return await rt.hub.journal.inspect(look)


def sound(store: Any) -> bool:
    return isinstance(store, MemoryJournal) or problems(store) == []


# ── a request for variables ──────────────────────────────────────────────────────────────────


@tool
async def write(text: str, state: RunState) -> str:
    await state.files.write("brief.md", text)
    return "written"


def clerk(request: ModelRequest) -> ModelReply:
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        wanted = {"it needs a helper": "the brief", "number 0": "another one"}
        text = wanted.get(last.content)
        return reply("noted") if text is None else reply("", call("write", text=text))
    if last.calls[-1].name == "write" and "the brief" in last.calls[-1].arguments:
        return reply("", call("helper", task="to do", files=["brief.md"]))
    return reply("noted")


def with_helper(heard: list[Any]) -> list[AgentDefinition]:
    @tool
    async def look(state: RunState) -> str:
        paths = state.files.list()
        heard.append((state.env["KEY"], await state.files.read_text(paths[0])))
        return "looked"

    prompt = PromptDefinition(
        name="h", prompt="Help.", model=ScriptedModel([call("look"), "helped"] * 9), tools=[look],
        variables=[VariableDefinition(name="KEY", scoped=True, required=True)],
    )  # fmt: skip
    helper = AgentDefinition(name="helper", expose_as_tool=True, side_a=SideConfig(prompt=prompt))
    called = SubagentToolConfig(
        name="helper", blocking=False, init_user_message_property="task",
        init_attachments_property="files",
    )  # fmt: skip
    model = FunctionModel(clerk)
    asks = PromptDefinition(name="c", prompt="Serve.", model=model, tools=[write, called])
    return [AgentDefinition(name="bot", side_a=SideConfig(prompt=asks)), helper]


async def requests_of(rt: Runtime, run_id: str) -> tuple[VariableRequest, ...]:
    return await rt.hub.journal.inspect(lambda reader: open_requests(reader, (run_id,)))


async def test_a_conversation_with_a_request_for_variables_loses_its_old_turns_and_not_the_request(
    store: Any, ports: Ports
) -> None:
    heard: list[Any] = []
    async with Runtime(with_helper(heard), store=store, ports=ports, retention=KEPT) as rt:
        run = await rt.start("bot", "it needs a helper", session_key="chat")
        await run.result()
        before = await requests_of(rt, run.run_id)
        for turn in range(TURNS):
            await run.ask(Message(f"number {turn}", key=f"k{turn}"))
        assert await gap_of(rt, run.run_id) > 0
        assert await requests_of(rt, run.run_id) == before
        (request,) = before
        waits = await rt.pending_variables(run.run_id, request.request_id)
        assert waits.missing == ("KEY",)
        child = await rt.provide_variables(run.run_id, request.request_id, {"KEY": "a value"})
        assert (await child.result()).output == "helped"
        assert heard == [("a value", "the brief")]
        assert await requests_of(rt, run.run_id) == ()
        await run.ask("and now?")
    assert sound(store)


async def test_what_was_to_be_given_to_a_child_goes_on_with_an_export_and_a_fork(
    tmp_path: Path, ports: Ports
) -> None:
    heard: list[Any] = []
    agents = with_helper(heard)
    one, two = (f"sqlite:{tmp_path / name}" for name in ("one", "two"))
    async with Runtime(agents, store=one, ports=ports, retention=KEPT) as rt:
        run = await rt.start("bot", "it needs a helper", session_key="chat")
        await run.result()
        for turn in range(TURNS):
            await run.ask(f"number {turn}")
        assert await gap_of(rt, run.run_id) > 0
        (request,) = await requests_of(rt, run.run_id)
        fork = await rt.fork(run.run_id)
        (forked,) = await requests_of(rt, fork.run_id)
        assert forked == replace(
            request, run_id=fork.run_id, root_run_id=fork.run_id,
            path=request.path.replace(run.run_id, fork.run_id),
        )  # fmt: skip
        child = await rt.provide_variables(fork.run_id, request.request_id, {"KEY": "of a fork"})
        assert (await child.result()).output == "helped"
        assert await requests_of(rt, run.run_id) == (request,)
    export = str(tmp_path / "run.jsonl")
    assert main(["export", run.run_id, "--out", export, "--store", one]) == 0
    assert main(["import", export, "--store", two]) == 0
    assert sound(two)
    async with Runtime(agents, store=two, ports=ports, retention=KEPT) as rt:
        assert await requests_of(rt, run.run_id) == (request,)
        child = await rt.provide_variables(run.run_id, request.request_id, {"KEY": "elsewhere"})
        assert (await child.result()).output == "helped"
    assert heard == [("of a fork", "the brief"), ("elsewhere", "the brief")]


# ── two sides ────────────────────────────────────────────────────────────────────────────────


@tool(idempotent=True)
def finish(result: str) -> str:
    return result


def worker(request: ModelRequest) -> ModelReply:
    said = [x for x in request.messages if isinstance(x, UserMessage)]
    if said[-1].content == "go on":
        return reply("", call("finish", result=f"{len(said)} heard"))
    return reply(f"about {said[-1].content}")


def caller(request: ModelRequest) -> ModelReply:
    if len(request.messages) == 1:
        arguments = {"message": "the first"}
        return reply("", call("subagent_create", agent="pair", name="Ada", arguments=arguments))
    return reply("noted")


def pair() -> AgentDefinition:
    ends = SessionToolBinding("finish", message_property="result")
    a = PromptDefinition(name="a", prompt="Work.", model=FunctionModel(worker), tools=[finish])
    b = PromptDefinition(name="b", prompt="Check.", model=FunctionModel(lambda _: "go on"))
    return AgentDefinition(
        name="pair", type="dual_ai", expose_as_tool=True, max_session_turns=6,
        side_a=SideConfig(prompt=a, session_stop=ends), side_b=SideConfig(prompt=b),
    )  # fmt: skip


def pairs() -> list[AgentDefinition]:
    stays = SubagentToolConfig(name="pair", resumable=Resumable(receives_messages="side_a"))
    prompt = PromptDefinition(name="c", prompt="Ask.", model=FunctionModel(caller), tools=[stays])
    return [AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt)), pair()]


async def kept_pair(rt: Runtime) -> tuple[str, str]:
    """A run, and its child that stays, after so many sessions of the child."""
    run = await rt.start("bot", "the first", session_key="chat")
    await run.result()
    (opened,) = [x for x in await run.read() if x.type == "agent:child"]
    child = opened.child_run_id  # type: ignore[attr-defined]
    for turn in range(TURNS):
        assert (await rt.hub.send_to_run(child, f"number {turn}")).accepted
        await rt.result(child)
    return run.run_id, child


def unbased(thread: Thread | None) -> Thread:
    assert thread is not None
    return replace(thread, based=(0, 0))


async def test_an_agent_of_two_sides_that_stays_loses_its_old_turns(
    store: Any, ports: Ports
) -> None:
    async with Runtime(pairs(), store=store, ports=ports, retention=KEPT) as rt:
        child = (await kept_pair(rt))[1]
        before = unbased(await thread_of(rt.hub.journal, child))
        assert await gap_of(rt, child) > 0
        assert unbased(await thread_of(rt.hub.journal, child)) == before
        assert before.two_sided and before.transcript and before.transcript_b
    async with Runtime(pairs(), store=store, ports=ports, retention=KEPT) as rt:
        await rt.hub.send_to_run(child, "the last")
        await rt.result(child)
        thread = await thread_of(rt.hub.journal, child)
        assert thread is not None and len(thread.transcript) > len(before.transcript)
    assert sound(store)


async def test_a_child_that_comes_back_without_its_parent_is_a_root_that_reports_to_nobody(
    tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    async with Runtime(pairs(), store=f"sqlite:{folder}", ports=ports, retention=KEPT) as rt:
        run_id, child = await kept_pair(rt)
        assert await gap_of(rt, child) > 0
    for file in folder.glob("hubbub.*"):
        file.unlink()
    shutil.rmtree(folder / "agents" / run_id)
    async with Runtime(pairs(), store=f"sqlite:{folder}", ports=ports, retention=KEPT) as rt:
        thread = await thread_of(rt.hub.journal, child)
        assert thread is not None
        origin = thread.origin
        assert (origin.root_run_id, origin.parent_run_id, origin.depth) == (child, None, 0)
        assert not origin.reports
        await rt.hub.send_to_run(child, "the last")
        await rt.result(child)
    assert problems(f"sqlite:{folder}") == []
