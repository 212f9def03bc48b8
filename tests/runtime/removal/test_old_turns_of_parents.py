"""``Retention(keep_turns=…)`` where each turn has a child: the record of its start goes, the child
stays, and is one of its parent's wherever that is looked at."""

import shutil
from pathlib import Path

import anyio
import pytest
from support.pruned_stores import problems

from hubbub import Agent, FunctionModel, ModelReply, ModelRequest, Retention, Runtime
from hubbub.__main__ import main
from hubbub.agents.model import AssistantMessage
from hubbub.agents.state.bases import base_behind_gap
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.runtime.models.scripted import call, reply

pytestmark = pytest.mark.anyio

TURNS = 20
KEPT = Retention(keep_turns=3)


def answer(request: ModelRequest) -> ModelReply:
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        return reply("done")
    return reply("", call("helper", message=str(last.content)))


def agents() -> list[Agent]:
    helper = Agent("helper", "You help.", model=FunctionModel(lambda _: "helped"))
    return [Agent("bot", "You serve.", model=FunctionModel(answer), tools=[helper.as_tool()])]


async def cut_store(store: str, ports: Ports) -> str:
    """A store with a run of which old turns have gone; its id."""
    async with Runtime(agents(), store=store, ports=ports, retention=KEPT) as rt:
        for turn in range(TURNS):
            run = await rt.start("bot", f"number {turn}", session_key="chat")
            assert (await run.result()).output == "done"
        await anyio.sleep(120)
        assert await gap_of(rt, run.run_id)
    return run.run_id


async def rewritten(store: str, ports: Ports) -> None:
    """Have its folders written again, with what is left."""
    shutil.rmtree(Path(store.removeprefix("sqlite:")) / "agents")
    async with Runtime(agents(), store=store, ports=ports):
        await anyio.sleep(1)


async def gap_of(rt: Runtime, run_id: str) -> int:
    def look(reader: StoreReader) -> int:
        return base_behind_gap(x.event for x in events_in(reader, run_id))

    return await rt.hub.journal.inspect(look)


async def parents(store: str, ports: Ports) -> list[str | None]:
    """The parent of each run, those that have none first."""

    def look(reader: StoreReader) -> list[str | None]:
        return sorted((row.parent_run_id for row in reader.rows()), key=lambda x: x or "")

    async with Runtime(agents(), store=store, ports=ports) as rt:
        return await rt.hub.journal.inspect(look)


async def test_a_store_from_which_the_starts_of_children_have_gone_is_not_damaged(
    tmp_path: Path, ports: Ports
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    await cut_store(store, ports)
    assert problems(store) == []


async def test_another_store_takes_what_is_left_with_all_children(
    tmp_path: Path, ports: Ports
) -> None:
    one, two = (f"sqlite:{tmp_path / name}" for name in ("one", "two"))
    run_id = await cut_store(one, ports)
    export, again = tmp_path / "run.jsonl", tmp_path / "again.jsonl"
    assert main(["export", run_id, "--out", str(export), "--store", one]) == 0
    assert main(["import", str(export), "--store", two]) == 0
    assert main(["export", run_id, "--out", str(again), "--store", two]) == 0
    assert again.read_bytes() == export.read_bytes()
    assert problems(two) == []
    assert await parents(two, ports) == [None, *[run_id] * TURNS]


@pytest.mark.parametrize("gone", ["hubbub.db", "the folders, then hubbub.db"])
async def test_folders_bring_the_children_back_below_their_parent(
    gone: str, tmp_path: Path, ports: Ports
) -> None:
    folder = tmp_path / "store"
    store = f"sqlite:{folder}"
    run_id = await cut_store(store, ports)
    if gone != "hubbub.db":
        await rewritten(store, ports)
    (folder / "hubbub.db").unlink()
    assert await parents(store, ports) == [None, *[run_id] * TURNS]
    assert problems(store) == []


async def test_a_child_alone_comes_back_below_a_parent_that_was_cut(
    tmp_path: Path, ports: Ports
) -> None:
    """The parent is in the database; the folder of its first child is one that it does not know."""
    folder, other = tmp_path / "store", tmp_path / "other"
    run_id = await cut_store(f"sqlite:{folder}", ports)
    await rewritten(f"sqlite:{folder}", ports)
    async with Runtime(agents(), store=f"sqlite:{other}", ports=ports):
        pass
    children = [x for x in (folder / "agents").iterdir() if x.name != run_id]
    first = min(children, key=lambda x: x.name)
    shutil.copytree(folder / "agents" / run_id, other / "agents" / run_id)
    assert await parents(f"sqlite:{other}", ports) == [None]
    shutil.copytree(first, other / "agents" / first.name)
    assert await parents(f"sqlite:{other}", ports) == [None, run_id]
