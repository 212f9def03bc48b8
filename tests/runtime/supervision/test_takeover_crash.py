"""Killed after any commit, a conversation three frames deep comes to the same end (I-04, I-09)."""

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.profiles import portion
from support.programs import MAIN, Program, spoken
from support.stored_runs import StoredRuns
from support.worlds import World, traces

from hubbub import Message
from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e

pytestmark = pytest.mark.anyio

SCRIPT: list[Program] = [
    # main: of three calls the second and third begin frames.
    [["three", ["ann", [["tell"], ["say"]]], ["bob", [["say"]]]], ["note"], ["say"]],
    # The writer: again, for two pieces of research.
    [["three", ["bob", [["say"]]], ["bob", [["note"], ["complete"]]]], ["say"]],
    [["note"], ["complete"]],  # The first piece of research; the second completes at once.
    [["complete"]],  # The writer; the main agent's third call begins its frame.
    [["flaky"]],  # That frame.
    [["last"]],
    [["say"]],  # The main agent again.
]
DEPTHS = [2, 3, 2, 2, 2, 1, 1]
"""How many frames there are when each of these has been dealt with."""

ROOT = "root-1"


async def hold(world: World) -> None:
    """What the user does; everything has a key, so that it may be said again."""
    for number, program in enumerate(SCRIPT):
        text = spoken(f"m{number}", program)
        if not number:
            await world.hub.open(MAIN, text, run_id=ROOT)
        else:
            await world.hub.send_to_run(ROOT, Message(text, key=f"m{number}"), source="web")
        await world.runtime.result(ROOT)


async def live(world: World, after: int | None = None) -> bool:
    """One process: until all is said, or it is dead.  Was it all?"""
    over = False
    await world.begin()
    if after is not None:
        world.crash_after(after)

    async def go() -> None:
        nonlocal over
        await hold(world)
        over = True
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(go)
        with anyio.fail_after(10_000):
            await world.store.crashed.wait()
        group.cancel_scope.cancel()
    await world.end()
    return over


def texts(tally: StoredRuns) -> list[str]:
    """What the user was told."""
    return [x.text for x in tally.events if isinstance(x, e.AgentText) and x.lane == "own"]


def results(tally: StoredRuns) -> Counter[Any]:
    """What every frame came to, for its caller."""
    items = (x for items in tally.inbox.values() for x in items if isinstance(x, e.SessionResult))
    return Counter((x.child_agent, x.outcome, x.content) for x in items)


def lost(tally: StoredRuns) -> int:
    own = (x for lane in tally.own.values() for x in lane)
    return sum(isinstance(x, e.AgentToolComplete) and x.output == LOST for x in own)


def honest(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Traces in which a note that may have been made counts as one."""
    return {
        name: [x.replace("note error", "note ok") for x in trace] for name, trace in found.items()
    }


@pytest.mark.spec("I-01", "I-13")
async def test_the_conversation_is_three_frames_deep(tmp_path: Path) -> None:
    world = World("memory", tmp_path, latency=1.0, idempotent=False)
    await world.begin()
    depths = []
    for number, program in enumerate(SCRIPT):
        text = spoken(f"m{number}", program)
        if number:
            await world.hub.send_to_run(ROOT, text)
        else:
            await world.hub.open(MAIN, text, run_id=ROOT)
        await world.runtime.result(ROOT)
        depths.append(len((await world.tally()).stack(ROOT)))
    assert depths == DEPTHS
    await world.end()


@pytest.mark.spec("I-04", "I-09", "I-10", "I-13")
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
async def test_killed_after_any_commit_the_conversation_comes_to_the_same_end(
    store: str, tmp_path: Path
) -> None:
    whole = World(store, tmp_path / "whole", latency=1.0, idempotent=False)
    assert await live(whole)
    expected, commits = await whole.tally(), whole.store.commits
    expected.check()
    assert commits > 50
    for after in portion(range(commits)):
        world = World(store, tmp_path / str(after), latency=1.0, idempotent=False)
        over = await live(world, after)
        assert not over or store == "sqlite"  # It commits in groups: there may be fewer.
        if not over:
            assert await live(world)
        tally = await world.tally()
        try:
            tally.check()
            assert not world.letters
            assert texts(tally) == texts(expected)
            assert honest(traces(tally)) == honest(traces(expected))
            assert results(tally) == results(expected)
            assert [x.agent for x in tally.infos.values()] == [
                x.agent for x in expected.infos.values()
            ], "no frame is lost, or started twice"
            assert lost(tally) <= 1
            assert max(Counter(world.programs.noted).values()) == 1
            assert set(world.programs.noted) == set(whole.programs.noted)
        except AssertionError as error:
            error.add_note(f"killed after {after} of {commits} commits")
            raise
