"""``Retention(keep_turns=…)`` in a conversation that an agent has taken over and given back: its
old turns go as those of any other, and its folder keeps the conversation as it was told."""

import json
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from support.frames import KEY, Talk, complete, frame, use
from support.profiles import portion

from hubbub import AgentDefinition, Retention, Runtime
from hubbub.__main__ import main
from hubbub.agents.folders.conversation import (
    begin_context,
    follow_context,
    seen_with,
    stack_of_context,
)
from hubbub.agents.folders.state_file import read_state
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest
from hubbub.agents.state.bases import base_behind_gap
from hubbub.agents.state.thread import Thread
from hubbub.hub.errors import HubbubError
from hubbub.hub.events import AgentBase
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import FunctionModel, reply
from hubbub.runtime.remembered.snapshots import thread_of
from hubbub.runtime.removal import old_turns
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader

pytestmark = pytest.mark.anyio

KEPT = Retention(keep_turns=3)
TURNS = 12
NUMBERS = [f"number {turn}" for turn in range(TURNS)]

WAYS = {
    "it completes": ["the expert", "finish"],
    "it was talked with": ["the expert", "one", "two", "finish"],
    "it is sent back": ["the expert", "one", "/back"],
    "it is stopped": ["the expert", "one", "stop"],
    "another one above it": ["the expert", "the writer", "a word", "finish", "finish"],
    "both are stopped": ["the expert", "the writer", "a word", "stop"],
    "it fails": ["the expert", "fail"],
    "twice": ["the expert", "finish", "the expert", "one", "/back"],
}
"""What a person says, by how an agent gives the conversation back."""


async def slowly(request: ModelRequest) -> ModelReply:
    await anyio.sleep(len(request.messages) % 4 / 10)
    return answer(request)


def answer(request: ModelRequest) -> ModelReply:
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        return reply("so it is")
    match last.content:
        case "the expert":
            return reply("", use("expert"))
        case "the writer":
            return reply("", use("writer"))
        case "finish":
            return reply("", complete("known"))
        case "fail":
            raise HubbubError("the model is not there")
        case said:
            return reply(f"about {said}")


def agents() -> list[AgentDefinition]:
    model = FunctionModel(slowly)
    return [
        frame(model, agents=["expert", "writer"]),
        frame(model, name="expert", agents=["writer"]),
        frame(model, name="writer"),
    ]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryJournal() if request.param == "memory" else f"sqlite:{tmp_path / 'store'}"


def open_runtime(store: Any, ports: Ports, retention: Retention | None = KEPT) -> Runtime:
    return Runtime(agents(), store=store, ports=ports, retention=retention)


async def converse(rt: Runtime, said: list[str]) -> str:
    """Say this, a second apart, as soon as the conversation rests; its root."""
    talk = Talk(rt)
    for line in said:
        await talk.say(line)
        await anyio.sleep(1)
    return talk.root


async def gap_of(rt: Runtime, run_id: str) -> int:
    """The number of the base before which turns of a run have gone, after a pass."""
    await anyio.sleep(61)

    def look(reader: StoreReader) -> int:
        return base_behind_gap(x.event for x in events_in(reader, run_id))

    return await rt.hub.journal.inspect(look)


async def state_of(rt: Runtime, run_id: str) -> Thread:
    thread = await thread_of(rt.hub.journal, run_id)
    assert thread is not None
    return replace(thread, based=(0, 0))


def problems(store: str) -> list[str]:
    """What fsck finds, folders that are behind too."""
    return [x.text for x in StoreCheck(store, thorough=True).problems()]


def sound(store: Any) -> bool:
    return isinstance(store, MemoryJournal) or problems(store) == []


def told(store: str, run_id: str) -> list[str]:
    """The lines of the conversation in its folder."""
    folder = Path(store.removeprefix("sqlite:")) / "agents" / run_id
    return (folder / "context.jsonl").read_text().splitlines()


def heard(lines: list[str]) -> list[str]:
    entries = map(json.loads, lines)
    return [x["content"] for x in entries if x["type"] == "user_message"]


@pytest.mark.parametrize("before", [0, TURNS])
@pytest.mark.parametrize("way", WAYS)
async def test_a_conversation_that_was_given_back_loses_its_old_turns(
    way: str, before: int, store: Any, ports: Ports
) -> None:
    said = [*NUMBERS[:before], *WAYS[way], *NUMBERS]
    async with open_runtime(store, ports) as rt:
        run_id = await converse(rt, said)
        assert await gap_of(rt, run_id) > 0
        assert sound(store)
    async with open_runtime(store, ports) as rt:
        await converse(rt, ["the expert", "one", "finish", "number 5"])
        thread = await state_of(rt, run_id)
    assert thread.transcript[-1] == AssistantMessage(text="about number 5")
    assert sound(store)


@pytest.mark.parametrize("way", WAYS)
async def test_it_comes_to_the_same_with_and_without_its_old_turns(
    way: str, tmp_path: Path, ports: Ports
) -> None:
    said, found = [*NUMBERS, *WAYS[way], *NUMBERS], []
    for name, retention in (("whole", None), ("cut", KEPT)):
        store = f"sqlite:{tmp_path / name}"
        async with open_runtime(store, ports, retention) as rt:
            run_id = await converse(rt, said)
            assert (await gap_of(rt, run_id) > 0) == (retention is not None)
            thread = await state_of(rt, run_id)
        text = "\n".join(told(store, run_id)).replace(run_id, "R")
        found.append((thread.transcript, thread.turn, heard(text.splitlines())))
    assert found[0] == found[1]


async def test_its_folder_keeps_all_that_was_told(tmp_path: Path, ports: Ports) -> None:
    store, said = f"sqlite:{tmp_path / 'store'}", []
    run_id = ""
    for way in WAYS.values():
        said += [*NUMBERS, *way]
        async with open_runtime(store, ports) as rt:
            run_id = await converse(rt, [*NUMBERS, *way])
            assert await gap_of(rt, run_id) >= 0
            state = (tmp_path / "store" / "agents" / run_id / "state.json").read_bytes()
            assert read_state(state).record.took_over
        assert problems(store) == []
        words = [x for x in said if x not in ("/back", "stop")]
        assert [x for x in heard(told(store, run_id)) if x in words] == words
    lines = told(store, run_id)
    (tmp_path / "store" / "hubbub.db").unlink()  # The folders bring all of it back.
    async with open_runtime(store, ports, None) as rt:
        assert base_behind_gap(await rt.hub.read(run_id)) == 0
    assert problems(store) == [] and len(told(store, run_id)) == len(lines)


async def test_a_folder_that_is_written_again_tells_what_is_left(
    tmp_path: Path, ports: Ports
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    async with open_runtime(store, ports) as rt:
        run_id = await converse(rt, [*WAYS["twice"], *NUMBERS])
        assert await gap_of(rt, run_id) > 0
    shutil.rmtree(tmp_path / "store" / "agents")
    async with open_runtime(store, ports) as rt:
        await anyio.sleep(1)
    assert problems(store) == []
    assert heard(told(store, run_id))[-3:] == NUMBERS[-3:]
    async with open_runtime(store, ports) as rt:
        await converse(rt, [*WAYS["it is sent back"], *NUMBERS])
        await gap_of(rt, run_id)
    assert problems(store) == []
    (tmp_path / "store" / "hubbub.db").unlink()
    async with open_runtime(store, ports) as rt:
        await converse(rt, ["number 1"])
        assert (await state_of(rt, run_id)).transcript[-1] == AssistantMessage(
            text="about number 1"
        )
    assert problems(store) == []


async def test_from_its_base_on_it_is_told_the_same_whatever_has_gone_before_it(
    ports: Ports,
) -> None:
    journal = MemoryJournal()
    async with open_runtime(journal, ports) as rt:
        talk = [line for way in WAYS.values() for line in (*way, "number 1", "number 2")]
        run_id = await converse(rt, [*talk[:40], "the expert", "one"])
        reader = ConversationReader(await journal.inspect(lambda reader: reader))
        events, _ = reader.read((run_id,), 0)
    at = [place for place, x in enumerate(events) if isinstance(x, AgentBase)][-1]
    before, entries = follow_context(begin_context(run_id), events[:at])
    whole, entries = follow_context(before, events[at:])
    assert len(stack_of_context(whole)) == 2
    began = next(place for place, x in enumerate(events) if x.run_id == run_id) + 1
    for left in range(began, at - 1):
        begun, _ = follow_context(begin_context(run_id), events[:left])
        found, told = follow_context(begun, events[at:])
        assert told == entries and stack_of_context(found) == stack_of_context(whole)
        wanted = seen_with(whole.speakers[run_id].record, whole)
        record = seen_with(found.speakers[run_id].record, found)
        assert (record.pending, record.took_over) == (wanted.pending, True)
        assert found.speakers.keys() == whole.speakers.keys()


@pytest.mark.parametrize("place", [-1, -3])
async def test_damage_to_what_is_still_told_is_found_and_mended_and_what_has_gone_stays(
    place: int, tmp_path: Path, ports: Ports
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    async with open_runtime(store, ports) as rt:
        run_id = await converse(rt, [*WAYS["it completes"], *NUMBERS])
        assert await gap_of(rt, run_id) > 0
    lines = told(store, run_id)
    file = tmp_path / "store" / "agents" / run_id / "context.jsonl"
    damaged = [*lines]
    damaged[place] = damaged[place].replace("number", "another")
    file.write_text("\n".join(damaged) + "\n")
    (problem,) = problems(store)
    assert f"context.jsonl:{len(lines) + 1 + place}: says something else" in problem
    async with open_runtime(store, ports) as rt:
        await converse(rt, ["number 1"])
    assert told(store, run_id)[: len(lines)] == lines and problems(store) == []


@pytest.mark.parametrize("missing", [1, 4])
async def test_what_is_missing_at_the_end_is_added(
    missing: int, tmp_path: Path, ports: Ports
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"
    async with open_runtime(store, ports) as rt:
        run_id = await converse(rt, [*WAYS["it completes"], *NUMBERS])
        assert await gap_of(rt, run_id) > 0
    lines = told(store, run_id)
    file = tmp_path / "store" / "agents" / run_id / "context.jsonl"
    file.write_text("\n".join(lines[:-missing]) + "\n")
    assert f"{missing} lines are missing from here on" in problems(store)[0]
    async with open_runtime(store, ports) as rt:
        await converse(rt, ["number 1"])
    assert told(store, run_id)[: len(lines)] == lines and problems(store) == []


async def cut_with(rt: Runtime, run_id: str, around: Callable[[bool], Awaitable[None]]) -> None:
    """Have turns of a run go; ``around`` is called before each commit by which some do, and after
    it (``True``)."""
    assert rt._passes is not None and rt._passes._old_turns is not None
    passes = rt._passes._old_turns
    inner = passes._commit

    async def commit(cut: Commit) -> None:
        await around(False)
        await inner(cut)
        await around(True)

    passes._commit = commit
    assert await gap_of(rt, run_id) > 0
    passes._commit = inner


@pytest.mark.parametrize("then", [[], ["one", "finish"]])
async def test_an_agent_may_take_over_while_turns_are_about_to_go(
    then: list[str], tmp_path: Path, ports: Ports
) -> None:
    """Between the look at what may go and the commit by which it goes."""
    store = f"sqlite:{tmp_path / 'store'}"
    async with open_runtime(store, ports) as rt:
        run_id = await converse(rt, NUMBERS)
        said = ["the expert", *then]

        async def take_over(has_gone: bool) -> None:
            if said and not has_gone:
                await converse(rt, said)
                said.clear()

        await cut_with(rt, run_id, take_over)
        assert problems(store) == []
        await converse(rt, [*([] if then else ["finish"]), *NUMBERS])
    assert problems(store) == []


async def test_its_folder_is_sound_after_each_commit_by_which_turns_go(
    tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_turns, "STEP", 10, raising=False)
    store = f"sqlite:{tmp_path / 'store'}"
    async with open_runtime(store, ports, None) as rt:
        await converse(rt, [line for way in WAYS.values() for line in (*way, "number 1")])
    async with open_runtime(store, ports) as rt:
        run_id = await converse(rt, NUMBERS)

        async def look(has_gone: bool) -> None:
            assert problems(store) == []
            if has_gone:
                found.append(len(await rt.hub.read(run_id)))

        found: list[int] = []
        await cut_with(rt, run_id, look)
        assert found
    lines = told(store, run_id)
    async with open_runtime(store, ports) as rt:
        await converse(rt, [*WAYS["it is stopped"], "number 1"])
    assert problems(store) == [] and told(store, run_id)[: len(lines)] == lines


async def test_a_conversation_that_an_agent_has_keeps_its_turns_until_it_gives_it_back(
    store: Any, ports: Ports
) -> None:
    async with open_runtime(store, ports) as rt:
        run_id = await converse(rt, ["the expert", *NUMBERS])
        assert await gap_of(rt, run_id) == 0
        await converse(rt, ["finish", *NUMBERS])
        assert await gap_of(rt, run_id) > 0
    assert sound(store)


async def test_an_export_and_a_fork_go_on_from_what_is_left(tmp_path: Path, ports: Ports) -> None:
    one, two = (f"sqlite:{tmp_path / name}" for name in ("one", "two"))
    async with open_runtime(one, ports) as rt:
        run_id = await converse(rt, [*WAYS["twice"], *NUMBERS, *WAYS["twice"], "number 1"])
        assert await gap_of(rt, run_id) > 0
        fork = await rt.fork(run_id)
        assert (await fork.ask("and now?")).output == "about and now?"
        assert (await rt.start("main", "and here?", session_key=KEY)).run_id == run_id
    assert problems(one) == []
    export, again = tmp_path / "run.jsonl", tmp_path / "again.jsonl"
    assert main(["export", run_id, "--out", str(export), "--store", one]) == 0
    assert main(["import", str(export), "--store", two]) == 0
    assert main(["export", run_id, "--out", str(again), "--store", two]) == 0
    assert again.read_bytes() == export.read_bytes()
    assert problems(two) == []
    async with open_runtime(two, ports) as rt:
        await converse(rt, [*WAYS["another one above it"], *NUMBERS])
        await gap_of(rt, run_id)
    assert problems(two) == []


async def disturb(rt: Runtime, run_id: str, chance: random.Random) -> None:
    """Do one thing to a conversation, and sometimes give it the time to rest."""
    frames = await rt.hub.read(run_id, types="session:push")
    match chance.randrange(12):
        case 0:
            rt.hub.interrupt(run_id)
        case 1 if frames:
            rt.hub.interrupt(chance.choice(frames).frame_run_id)  # type: ignore[attr-defined]
        case 2 if frames:
            rt.hub.terminate(chance.choice(frames).frame_run_id)  # type: ignore[attr-defined]
        case 3:
            rt.hub.reset(run_id, chance.choice(["", "anew"]))
        case _:
            rt.hub.send_to_run(run_id, chance.choice(LINES))
    await anyio.sleep(chance.choice([0, 0.1, 0.5, 5]))


LINES = [*(line for way in WAYS.values() for line in way), *NUMBERS]


@pytest.mark.parametrize("seed", portion(range(20)))
async def test_whatever_becomes_of_its_frames_its_folder_is_sound(
    seed: int, tmp_path: Path, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said to at any time, interrupted and begun anew, while its agents take their time."""
    monkeypatch.setattr(old_turns, "STEP", 10, raising=False)
    chance, store = random.Random(seed), f"sqlite:{tmp_path / 'store'}"
    run_id, cuts = "", 0
    for _ in range(3):
        async with open_runtime(store, ports, Retention(keep_turns=chance.choice([1, 3]))) as rt:
            if not run_id:
                run_id = (await rt.start("main", "number 0", session_key=KEY)).run_id
            for _ in range(40):
                await disturb(rt, run_id, chance)
            await anyio.sleep(chance.choice([0, 70]))
            if chance.random() < 0.5:  # Some files may be written in a moment.
                assert not [x for x in StoreCheck(store).problems() if not x.heals]
            cuts += rt.hub.statistics().removed.cuts  # type: ignore[union-attr]
        # What a frame takes from the root's inbox is in the root's ``run.jsonl`` a moment later.
        assert [x for x in problems(store) if "run.jsonl: the run has changed since" not in x] == []
    assert told(store, run_id) or not cuts
