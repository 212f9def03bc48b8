"""Corners that the machines over stacks have found (test_takeover_machine.py), each by itself."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.programs import MAIN, Program, spoken
from support.stored_runs import StoredRuns
from support.worlds import World

from hubbub.hub import events as e

pytestmark = pytest.mark.anyio

DEEP: Program = [["use", "ann", [["use", "bob", [["say"], ["say"]]], ["say"]]], ["say"]]
"""Main, ann above it, and bob on top."""


async def begun(world: World, *roots: str, program: Program = DEEP) -> StoredRuns:
    await world.begin()
    for number, root in enumerate(roots):
        await world.hub.open(MAIN, spoken(f"m{number}", program), run_id=root)
    await world.rest()
    return await world.tally()


def heard(tally: StoredRuns, run_id: str) -> list[str]:
    return [getattr(m, "content", "").partition(" ")[0] for m in tally.threads[run_id].transcript]


@pytest.mark.spec("I-08", "I-13")
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
async def test_what_the_top_has_not_read_survives_the_end_of_the_whole_stack(
    store: str, tmp_path: Path
) -> None:
    """The frame below the top is over first: what moves goes on to whoever is left."""
    world = World(store, tmp_path, latency=1.0)
    tally = await begun(world, "root")
    _, _, top = tally.stack("root")
    await world.hub.send_to_run("root", spoken("first", [["say"]]), source="web")
    await anyio.sleep(0.5)
    await world.hub.send_to_run(top, spoken("unread", [["say"]]), source="web")
    await world.hub.send_to_run("root", "cancel", source="web")
    await world.rest()
    tally = await world.tally()
    tally.check()
    assert tally.stack("root") == ["root"]
    assert not tally.strays()
    assert tally.threads["root"].last_text == "unread.0"
    await world.end()


@pytest.mark.spec("C-17", "I-13")
@pytest.mark.parametrize("store", ["memory", "late"])
async def test_conversations_that_fill_the_memory_still_reach_their_frames(
    store: str, tmp_path: Path
) -> None:
    world = World(store, tmp_path, max_live=2)
    roots = ("one", "two", "three")
    await begun(world, *roots)
    await world.end()
    await world.begin()
    for root in roots:
        world.hub.send_to_run(root, spoken(f"for-{root}", [["say"]]), source="web")
    await world.rest()
    tally = await world.tally()
    tally.check()
    for root in roots:
        assert tally.threads[tally.stack(root)[-1]].last_text == f"for-{root}.0"
    await world.end()


@pytest.mark.spec("C-17", "I-13")
async def test_a_frame_that_only_waits_leaves_memory_with_its_mail(tmp_path: Path) -> None:
    world = World("memory", tmp_path, max_live=1)
    tally = await begun(world, "root")
    _, middle, top = tally.stack("root")
    await world.end()
    await world.begin()
    await world.hub.send_to_run(middle, spoken("later", [["say"]]), source="web")
    await world.rest()
    await world.hub.send_to_run("root", spoken("now", [["complete"]]), source="web")
    await world.rest()
    tally = await world.tally()
    tally.check()
    assert heard(tally, top)[-2:] == ["now", ""]
    assert tally.threads[middle].last_text == "later.0"
    await world.end()


@pytest.mark.spec("I-08")
async def test_a_word_is_obeyed_by_a_root_that_had_left_memory(tmp_path: Path) -> None:
    """The frame is popped while its root still looks for it: the result is not overlooked."""
    world = World("memory", tmp_path, latency=10.0, max_live=2)
    await world.begin()
    await world.hub.open(MAIN, spoken("m", [["use", "ann", [["say"]]], ["say"]]), run_id="root")
    await anyio.sleep(15)  # The frame is at work, its caller waits.
    await world.hub.open(MAIN, spoken("n", [["say"]]), run_id="other")
    await anyio.sleep(0.1)
    assert world.runtime.runs.get("root") is None
    world.hub.interrupt("other")
    await anyio.sleep(0.1)
    await world.hub.send_to_run("root", "/back", source="web")
    await world.rest()
    tally = await world.tally()
    tally.check()
    assert tally.stack("root") == ["root"]
    assert tally.threads["root"].last_text == "m.1"
    await world.end()


@pytest.mark.spec("I-08")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("store", ["memory", "late"])
async def test_each_back_pops_one_frame(store: str, restarts: bool, tmp_path: Path) -> None:
    world = World(store, tmp_path)
    deeper: Program = [["use", "ann", [["use", "bob", [["use", "ann", [["say"]]]]]]]]
    tally = await begun(world, "root", program=deeper)
    assert len(tally.stack("root")) == 4
    if restarts:
        await world.end()
        await world.begin()
    world.hub.send_to_run("root", "/back", source="web")
    world.hub.send_to_run("root", "/back", source="web")
    await world.rest()
    tally = await world.tally()
    tally.check()
    assert len(tally.stack("root")) == 2
    await world.end()


@pytest.mark.spec("I-12")
async def test_a_headless_frames_text_is_its_result_whatever_came_meanwhile(tmp_path: Path) -> None:
    world = World("memory", tmp_path, latency=1.0)
    await world.begin()
    pushes: list[Any] = []
    world.hub.subscribe("session:push", pushes.append)
    program: Program = [["use", "ann", [["say"]]], ["say"]]
    async with anyio.create_task_group() as group:
        group.start_soon(world.runtime.run, MAIN, spoken("m", program))
        await anyio.sleep(1.5)
        note = e.SessionMessage(content="by the way", triggers=False, silent=True)
        await world.hub.pipeline.deliver(note, to=pushes[0].frame_run_id)
    tally = await world.tally()
    (root,) = [x.run_id for x in tally.infos.values() if x.parent_run_id is None]
    calls = [x for x in tally.own[root] if isinstance(x, e.AgentToolComplete)]
    assert [(x.output, x.is_error) for x in calls] == [("m.0.0", False)]
    await world.end()


@pytest.mark.spec("I-13")
async def test_a_conversation_rests_though_an_agents_word_waits_for_the_main_agent(
    tmp_path: Path,
) -> None:
    world = World("memory", tmp_path)
    await begun(world, "root")
    note = e.SessionMessage(content="progress", silent=True, from_run=True)
    await world.hub.pipeline.deliver(note, to="root")
    with anyio.fail_after(10):
        await world.runtime.result("root")
    await world.end()
