"""What runs wait for people to answer comes into a store with them: by import and by adoption."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.asked import Asked

from hubbub import AgentDefinition, Runtime, external_tool, tool
from hubbub.agents.model import AssistantMessage
from hubbub.agents.state.prompts import LASTING
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store

WAIT = 20.0

refunded: list[int] = []


@tool(approval=True)
async def refund(order: int) -> str:
    """Pay an order back."""
    refunded.append(order)
    return f"refunded {order}"


def agents() -> list[AgentDefinition]:
    def work(request: Any) -> Any:
        if isinstance(request.messages[-1], AssistantMessage):
            return "Done."
        return reply("", call("refund", order=7), call("pick"))

    def delegate(request: Any) -> Any:
        return "Done." if len(request.messages) > 1 else call("desk", message="Refund it.")

    desk = model_agent(
        FunctionModel(work), refund, external_tool("pick"), name="desk", parallel_tool_calls=True
    )
    return [desk, model_agent(FunctionModel(delegate), desk.as_tool(), name="main")]


def runtime(folder: Path) -> Runtime:
    return Runtime(agents(), store=sqlite_store(folder), grace=0)


def ask(folder: Path, agent: str) -> tuple[str, dict[str, str]]:
    """Have an agent ask, and stop; returns its run, and the prompts by their tools."""

    async def work() -> tuple[str, dict[str, str]]:
        async with runtime(folder) as rt:
            seen = Asked(rt.hub)
            run = await rt.start(agent, "Go.", session_key="web_ada")
            with anyio.fail_after(WAIT):
                asked = await seen.wait(2)
            return run.run_id, {each.tool: each.prompt_id for each in asked}

    return anyio.run(work)


def exported(folder: Path, run_id: str) -> list[bytes]:
    with open_reader(f"sqlite:{folder}") as store:
        return list(export_run(store, run_id))


def take(folder: Path, lines: list[bytes], *, replace: bool = False) -> None:
    import_runs(f"sqlite:{folder}", "file", lines, replace=replace, ports=Ports())


def notes(folder: Path) -> dict[str, str]:
    with open_reader(f"sqlite:{folder}") as store:
        return {key: note for key, note in store.notes(LASTING).items() if note}


def by_import(folder: Path, run_id: str) -> Path:
    take(folder.parent / "other", exported(folder, run_id))
    return folder.parent / "other"


def by_adoption(folder: Path, run_id: str) -> Path:
    shutil.copytree(folder / "agents", folder.parent / "adopted" / "agents")
    return folder.parent / "adopted"


def at_once(folder: Path, run_id: str, act: Callable[[Runtime], list[Receipt]]) -> list[str]:
    """Act on the store's runtime in the breath in which it is entered; what the calls came to."""

    async def work() -> list[str]:
        async with runtime(folder) as rt:
            receipts = act(rt)
            for receipt in receipts:
                (await receipt).raise_if_rejected()
            run = await rt.handle(run_id)
            with anyio.fail_after(WAIT):
                assert (await run.result()).output == "Done."
            done = await rt.hub.read(root_run_id=run_id, types=e.AgentToolComplete.type)
            return [x.output for x in done if isinstance(x, e.AgentToolComplete)]

    refunded.clear()
    return anyio.run(work)


@pytest.mark.spec("U-03", "P-12")
@pytest.mark.parametrize("agent", ["desk", "main"])
@pytest.mark.parametrize("way", [by_import, by_adoption])
def test_what_an_imported_run_asks_is_answered_before_it_has_come_into_memory(
    tmp_path: Path, way: Callable[[Path, str], Path], agent: str
) -> None:
    run_id, asked = ask(tmp_path / "store", agent)
    kept = notes(tmp_path / "store")
    folder = way(tmp_path / "store", run_id)

    def act(rt: Runtime) -> list[Receipt]:
        return [
            rt.hub.approve(asked["refund"], {"order": 8}), rt.hub.reply(asked["pick"], "that"),
        ]  # fmt: skip

    outputs = at_once(folder, run_id, act)
    assert refunded == [8] and {"refunded 8", "that"} <= {*outputs}
    assert len(kept) == 2 and notes(folder) == {}


@pytest.mark.spec("U-03", "P-12")
@pytest.mark.parametrize("agent", ["desk", "main"])
@pytest.mark.parametrize("way", [by_import, by_adoption])
def test_an_imported_run_is_noted_to_ask_as_where_it_comes_from(
    tmp_path: Path, way: Callable[[Path, str], Path], agent: str
) -> None:
    run_id, _ = ask(tmp_path / "store", agent)
    folder = way(tmp_path / "store", run_id)

    async def open_it() -> None:
        store = sqlite_store(folder)  # It adopts what there is in folders.
        await store.open()
        await store.aclose()

    anyio.run(open_it)
    assert notes(folder) == notes(tmp_path / "store") != {}


@pytest.mark.spec("U-03")
@pytest.mark.parametrize("agent", ["desk", "main"])
def test_what_the_user_says_next_denies_what_an_imported_tree_asks(
    tmp_path: Path, agent: str
) -> None:
    run_id, _ = ask(tmp_path / "store", agent)
    folder = by_import(tmp_path / "store", run_id)
    outputs = at_once(folder, run_id, lambda rt: [rt.hub.send("No, stop.", session_key="web_ada")])
    assert refunded == [] and any("No, stop." in output for output in outputs)


@pytest.mark.spec("U-03")
def test_what_a_replaced_run_had_asked_is_asked_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    run_id, asked = ask(folder, "desk")
    before = exported(folder, run_id)
    at_once(
        folder, run_id, lambda rt: [rt.hub.approve(asked["refund"]), rt.hub.deny(asked["pick"])]
    )
    after = exported(folder, run_id)
    take(folder, before, replace=True)
    assert len(notes(folder)) == 2
    take(folder, after, replace=True)
    assert notes(folder) == {}


@pytest.mark.spec("G-04")
def test_an_export_notes_nothing_of_other_runs_and_no_number_stops_a_runtime(
    tmp_path: Path,
) -> None:
    run_id, asked = ask(tmp_path / "store", "desk")
    lines = exported(tmp_path / "store", run_id)
    foreign = asked["refund"].replace(run_id, "0" * 8 + run_id[8:]).encode()
    take(tmp_path / "foreign", [x.replace(asked["refund"].encode(), foreign) for x in lines])
    assert [*notes(tmp_path / "foreign")] == [LASTING + asked["pick"]]
    endless = [x.replace(b'"pauses":true', b'"timeout":1e300,"pauses":true') for x in lines]
    take(tmp_path / "endless", endless)
    answers = [asked["refund"], asked["pick"]]
    at_once(tmp_path / "endless", run_id, lambda rt: [rt.hub.deny(each) for each in answers])
