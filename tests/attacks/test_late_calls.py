"""A state that outlives its call, in a task or a thread that a tool has left behind, does nothing.

The members of ``RunState`` are found by introspection: a new one needs a row here.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from hubbub import Agent, AgentDefinition, RunState, Runtime, ScriptedModel, agent, tool
from hubbub.hub.errors import CallerError, RunEnded
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.run_hub import ACTS as REFUSED
from hubbub.hub.run_hub import RunHub
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
ACTS_OF_HUB: Mapping[str, Callable[[Any, str], Any]] = {
    "approve": lambda hub, other: hub.approve(f"{other}.0"),
    "ask": lambda hub, other: hub.ask(other, "Well?"),
    "close_run": lambda hub, other: hub.close_run(other),
    "deny": lambda hub, other: hub.deny(f"{other}.0"),
    "interrupt": lambda hub, other: hub.interrupt(other),
    "open": lambda hub, other: hub.open("kid", "x"),
    "reply": lambda hub, other: hub.reply(f"{other}.0", "x"),
    "send": lambda hub, other: hub.send("x", session_key="other"),
    "send_to": lambda hub, other: hub.send_to("parent", "x"),
    "send_to_run": lambda hub, other: hub.send_to_run(other, "x"),
    "subscribe": lambda hub, other: hub.subscribe("*", print),
    "terminate": lambda hub, other: hub.terminate(other),
}
LOOKS_OF_HUB = {
    "cursor", "emit", "end_prompt", "has", "hub", "open_prompt", "publish", "read",
    "run_id", "scoped", "statistics",
}  # fmt: skip
"""What is emitted late is dropped."""
LOOKS = {
    "agent", "call_id", "children", "env", "get_child_thread", "get_parent_thread", "hub",
    "messages", "parent_run_id", "read_part", "root_run_id", "run_id", "status", "terminated",
}  # fmt: skip


def test_every_member_of_a_state_is_tried_or_looks_only() -> None:
    members = {name for name in dir(RunState) if not name.startswith("_")}
    assert members - LOOKS == {*ACTS}


def test_every_member_of_a_run_s_hub_is_tried_or_looks_only() -> None:
    members = {name for name in dir(RunHub) if not name.startswith("_")}
    assert members - LOOKS_OF_HUB == {*ACTS_OF_HUB} == REFUSED


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
        wrong += await tried_of(state.hub, parent.run_id) + await tried_of(above.hub, parent.run_id)
        await anyio.sleep(60)
        assert not wrong and not seen
        rt.hub.send_to_run(parent.run_id, "end")
        assert (await parent.result()).output == "done"


async def tried_of(hub: Any, other: str) -> list[str]:
    """What a hub that is used too late does not refuse."""
    wrong = []
    for name, act in ACTS_OF_HUB.items():
        try:
            with anyio.fail_after(3600):
                made = act(hub, other)
                if inspect.isawaitable(made):
                    await made
        except CallerError as error:
            said = str(error)
        else:
            said = "accepted"
        if "this call is over" not in said:
            wrong.append(f"hub.{name}: {said}")
    return wrong


@pytest.mark.parametrize("how", ["timed out", "interrupted", "its run was terminated"])
async def test_the_hub_of_a_call_that_was_cut_off_does_nothing_any_more(
    how: str, ports: Ports, store: Journal
) -> None:
    kept: list[Any] = []

    @tool(timeout=5 if how == "timed out" else None)
    async def waits(state: RunState) -> str:
        kept.append(state)
        await anyio.sleep(100)
        return "late"

    @agent("parent")
    async def parent(input: Any, ctx: Any) -> None:
        await anyio.sleep(3600)

    @agent("kid")
    async def kid(input: Any, ctx: Any) -> None:
        return None

    model = ScriptedModel([call("waits"), "hello"], repeat=True)
    definitions = [Agent("a", "", model=model, tools=[waits]), parent, kid]
    async with Runtime(definitions, store=store, ports=ports, grace=0) as rt:  # type: ignore[arg-type]
        other = await rt.start("parent", "x", session_key="other")
        run = await rt.start("a", "go")
        await anyio.sleep(1)
        if how == "interrupted":
            await rt.hub.interrupt(run.run_id)
        elif how == "its run was terminated":
            await rt.hub.terminate(run.run_id)
        await anyio.sleep(60)
        assert await tried_of(kept[0].hub, other.run_id) == []
        assert (await rt.hub.read(other.run_id, types="session:message")) == []


async def test_a_task_that_a_code_agent_leaves_behind_does_nothing_any_more(
    ports: Ports, store: Journal
) -> None:
    kept: list[Any] = []

    @agent("a")
    async def leaves(input: Any, ctx: Any) -> str:
        kept.append(ctx)
        return "done"

    @agent("parent")
    async def parent(input: Any, ctx: Any) -> None:
        await anyio.sleep(3600)

    @agent("kid")
    async def kid(input: Any, ctx: Any) -> None:
        return None

    async with Runtime([leaves, parent, kid], store=store, ports=ports, grace=0) as rt:  # type: ignore[arg-type]
        other = await rt.start("parent", "x", session_key="other")
        await rt.run("a", "go")
        (ctx,) = kept
        assert await tried_of(ctx.hub, other.run_id) == []
        for act in (lambda: ctx.spawn("kid", "x"), lambda: ctx.notify_parent("x")):
            with pytest.raises(RunEnded):
                act()
