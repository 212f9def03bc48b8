"""A state that outlives its call, in a task or a thread that a tool has left behind, does nothing.

The members of ``RunState`` are found by introspection: a new one needs a row here.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from hubbub import Agent, AgentDefinition, RunState, Runtime, ScriptedModel, agent, tool
from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import call

pytestmark = pytest.mark.anyio

ACTS: Mapping[str, Callable[[Any], Any]] = {
    "ask": lambda state: state.ask("Well?"),
    "files": lambda state: state.files.write("a.txt", "x"),
    "inject_message": lambda state: state.inject_message("x"),
    "kv": lambda state: state.kv.set("a", 1),
    "notify_parent": lambda state: state.notify_parent("x"),
    "queue_message": lambda state: state.queue_message("x"),
    "send_agent_message": lambda state: state.send_agent_message("x"),
    "set_env": lambda state: state.set_env("A", "b"),
    "set_status": lambda state: state.set_status("x"),
    "spawn": lambda state: state.spawn("kid", "x"),
    "terminate": lambda state: state.terminate("late"),
    "use_agent": lambda state: state.use_agent("kid", "x"),
    "use_skill": lambda state: state.use_skill("kid", "x"),
}
LOOKS = {
    "agent", "call_id", "children", "env", "get_child_thread", "get_parent_thread", "hub",
    "messages", "parent_run_id", "read_part", "root_run_id", "run_id", "status", "terminated",
}  # fmt: skip


def test_every_member_of_a_state_is_tried_or_looks_only() -> None:
    members = {name for name in dir(RunState) if not name.startswith("_")}
    assert members - LOOKS == {*ACTS}


def agents(kept: list[Any]) -> list[AgentDefinition]:
    @tool
    async def leak(state: RunState) -> str:
        """Leave the state behind, and that of the parent."""
        kept.append(state)
        kept.append(await state.get_parent_thread())
        return "ok"

    @agent("kid")
    async def kid(input: Any, ctx: Any) -> None:
        return None

    @agent("parent")
    async def parent(input: Any, ctx: Any) -> str:
        child = ctx.spawn("a", input)
        await child.result()
        async for message in ctx.messages():
            if message.content == "end":
                break
        return "done"

    model = ScriptedModel([call("leak"), "hello"], repeat=True)
    return [Agent("a", "", model=model, tools=[leak]), kid, parent]


async def test_what_is_called_after_its_call_is_refused_and_has_no_effect(
    ports: Ports, store: Journal
) -> None:
    kept: list[Any] = []
    async with Runtime(agents(kept), store=store, ports=ports) as rt:  # type: ignore[arg-type]
        parent = await rt.start("parent", "go")
        await anyio.sleep(60)
        seen: list[Event] = []
        rt.hub.subscribe("*", seen.append)
        state, above = kept
        wrong = []
        for late, names in ((state, {*ACTS}), (above, {"queue_message", "terminate"})):
            for name in sorted(names):
                try:
                    with anyio.fail_after(3600):
                        made = ACTS[name](late)
                        if inspect.isawaitable(made):
                            await made
                except CallerError as error:
                    said = str(error)
                else:
                    said = "accepted"
                if "this call is over" not in said:
                    wrong.append(f"{name}: {said}")
        await anyio.sleep(60)
        assert not wrong and not seen
        rt.hub.send_to_run(parent.run_id, "end")
        assert (await parent.result()).output == "done"
