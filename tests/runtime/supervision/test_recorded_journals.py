"""Journals recorded by earlier versions fold as they did then, and go on (P-11, P-12).

``tests/journals/record.py`` records new ones; those that are there stay as they are, forever.
"""

from collections import defaultdict
from pathlib import Path

import anyio
import msgspec
import pytest
from journals.record import FOLDER, STORIES, Recording, essentials, lines_of
from support.agents import echo_model, model_agent
from support.shared_stores import owner_of

from hubbub import CustomEvent, Runtime
from hubbub.hub.events import Event
from hubbub.hub.events.codec import UnknownEvent, decode_event, encode_event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.open import sqlite_store

JOURNALS = sorted(FOLDER.glob("*.jsonl"))


def read(journal: Path) -> tuple[Recording, dict[str, list[bytes]]]:
    """What was recorded: what the runs folded to, and their lanes as bytes."""
    first, *lines = journal.read_bytes().splitlines()
    lanes: dict[str, list[bytes]] = defaultdict(list)
    for line in lines:
        lanes[msgspec.json.decode(line)["run_id"]].append(line)
    return msgspec.json.decode(first, type=Recording), lanes


def agent_of(lane: list[Event]) -> str:
    return next(event.agent for event in lane if event.type == "agent:start")


def test_every_story_is_recorded() -> None:
    assert {read(journal)[0].name for journal in JOURNALS} >= set(STORIES)


@pytest.mark.spec("P-11", "P-12")
@pytest.mark.parametrize("journal", JOURNALS, ids=lambda journal: journal.stem)
def test_a_recorded_journal_folds_to_what_it_folded_to_when_it_was_recorded(journal: Path) -> None:
    recording, lanes = read(journal)
    assert set(lanes) <= set(recording.runs)
    for run_id, expected in recording.runs.items():
        lane = [decode_event(line) for line in lanes[run_id]]
        assert [event.seq for event in lane] == list(range(1, len(lane) + 1))
        is_code = bool(lane) and agent_of(lane) in recording.code_agents
        assert essentials(lane, is_code=is_code) == expected, run_id


@pytest.mark.spec("P-12", "H-13")
@pytest.mark.parametrize("journal", JOURNALS, ids=lambda journal: journal.stem)
def test_a_recorded_event_survives_being_read_and_written(journal: Path) -> None:
    for lane in read(journal)[1].values():
        for line in lane:
            written = encode_event(decode_event(line))
            assert msgspec.json.decode(line).items() <= msgspec.json.decode(written).items()
            assert decode_event(written) == decode_event(line)


def test_the_recorded_journals_hold_what_they_were_recorded_for() -> None:
    """One that has lost its point, for a change of the story before it was recorded, says so."""
    wanted = {
        "conversation": ("agent:retry", "agent:tool:complete", "agent:complete"),
        "interrupted": ("agent:interrupted",), "two_sides": ("session:turn", "session:end"),
        "children": ("agent:child", "agent:file"), "deferred": ("agent:child", "session:taken"),
        "handoff": ("agent:handoff",), "files_and_values": ("agent:file", "agent:key"),
        "code_agent": ("agent:record", "agent:restore", "my:event"),
        "restored": ("agent:restore",), "failed": ("agent:complete",), "reset": ("session:taken",),
        "future": ("agent:foresight",),
    }  # fmt: skip
    for name, types in wanted.items():
        _, lanes = read(FOLDER / f"{name}.jsonl")
        found = {decode_event(line).type for lane in lanes.values() for line in lane}
        assert found.issuperset(types), name
    texts = {name: (FOLDER / f"{name}.jsonl").read_text() for name in wanted}
    assert '"type":"session:reset"' in texts["reset"]
    assert '"type":"session:variables"' in texts["deferred"] and "a secret" not in texts["deferred"]
    modes = {mode for mode in ("waiter", "goer", "stayer", "roamer") if mode in texts["children"]}
    assert len(modes) == 4


@pytest.mark.anyio
@pytest.mark.parametrize("name", STORIES)
async def test_a_story_that_is_told_anew_has_no_types_that_were_not_recorded(name: str) -> None:
    """Who adds an event to a story records it anew."""
    _, *lines = await lines_of(name)
    told = {msgspec.json.decode(line)["type"] for line in lines}
    recorded = {
        decode_event(line).type
        for journal in JOURNALS if read(journal)[0].name == name
        for lane in read(journal)[1].values() for line in lane
    }  # fmt: skip
    assert told <= recorded


@pytest.mark.anyio
@pytest.mark.spec("P-12", "H-13")
async def test_a_store_that_holds_an_unknown_type_of_event_opens_and_goes_on(
    tmp_path: Path, ports: Ports
) -> None:
    def runtime() -> Runtime:
        agents = [model_agent(echo_model())]
        return Runtime(agents, store=sqlite_store(tmp_path, ports=ports), ports=ports)

    async with runtime() as rt:
        run = await rt.start("assistant", "One.")
        await run.result()
    text = b'{"type":"agent:foresight","run_id":"%s","lane":"own","seq":%d,"wisdom":{"depth":42}}'
    store = sqlite_store(tmp_path, ports=ports)
    async with owner_of(store, ports, "assistant"):
        loaded = await store.load(run.run_id)
        assert loaded is not None
        seq = loaded.events[-1].seq
        unknown = decode_event(text % (run.run_id.encode(), seq + 1))
        assert isinstance(unknown, UnknownEvent)
        commit = Commit(run.run_id, (unknown,), expect=seq)
        store.submit(commit)
        store.submit(Commit(events=(CustomEvent.of("mine:own", a=1),)))
        await store.flush()
    assert commit.error == ""
    async with runtime() as rt:
        await rt.hub.send_to_run(run.run_id, "Two.")
        with anyio.fail_after(1000):
            await rt.result(run.run_id)
        events = await rt.hub.read()
        assert [x.fields for x in events if isinstance(x, UnknownEvent)] == [
            {"wisdom": {"depth": 42}}
        ]
        assert [x.text for x in events if x.type == "agent:text"] == ["echo: One.", "echo: Two."]  # type: ignore[attr-defined]
        assert any(x.type == "mine:own" for x in events)
