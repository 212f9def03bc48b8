"""What is played again has the summaries and the limits that it had."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulation.test_playback import virtually

from hubbub import Limits
from hubbub.hub.events import SessionCompaction, SessionEnd
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.loading.agents import load_agents
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.playback.play import replay_recording
from hubbub.runtime.simulation.playback.recording import read_recording
from hubbub.runtime.simulation.playback.writing import read_journal, write_recordings

pytestmark = pytest.mark.spec("L-04", "L-05")

AGENTS = """
from hubbub import Agent, Compaction, FunctionModel, ModelReply, Usage

def answer(request):
    shown = sum(len(message.content) for message in request.messages if hasattr(message, "content"))
    usage = Usage(input_tokens=shown, output_tokens=10)
    if request.purpose == "summary":
        return ModelReply(text="In short.", usage=usage)
    return ModelReply(text=f"{request.messages[-1].content}: it is sunny.", usage=usage)

MODEL = FunctionModel(answer, latency=0.5)
main = Agent("main", "x", model=MODEL, compaction=COMPACTION)
"""


@pytest.fixture(autouse=True)
def _path_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What loads agents by name puts the current folder on the path, where it stays."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def module_of(folder: Path, name: str, compaction: str) -> str:
    (folder / f"{name}.py").write_text(AGENTS.replace("COMPACTION", compaction))
    return f"{name}:main"


def recorded(folder: Path, agents: str, story: Callable[[Runtime], Any]) -> Path:
    async def record() -> Path:
        ports = virtual_ports(seed=7)
        store = MemoryJournal(ids=ports.ids)
        async with Runtime(load_agents(agents).agents, store=store, ports=ports) as rt:
            await story(rt)
        return write_recordings(await read_journal(store), folder, "recording")[0]

    sys.path.insert(0, str(folder))
    try:
        path: Path = virtually(record)
    finally:
        sys.path.remove(str(folder))
    return path


def events_of(recording: Path, kind: type[Any]) -> list[Any]:
    owned = [x.event for x in read_recording(recording).owned()]
    return [event for event in owned if isinstance(event, kind)]


async def by_hand(rt: Runtime) -> None:
    """Summaries count as usage, so a limit is reached one turn sooner; then it is raised."""
    run = await rt.start("main", limits=Limits(output_tokens=50))
    for word in ("Oslo", "Rome", "Lima"):
        await run.ask(word)
    assert (await rt.hub.compact(run.run_id)).accepted
    await run.ask("Kyiv")
    assert (await run.ask("Quito")).reason == "tree.output_tokens"
    assert (await rt.limit(run.run_id, Limits(output_tokens=70))).accepted
    for word in ("Cairo", "Delhi"):
        await run.ask(word)
    assert (await run.ask("Hanoi")).reason == "tree.output_tokens"


async def by_itself(rt: Runtime) -> None:
    run = await rt.start("main")
    for word in ("Oslo", "Rome", "Lima", "Kyiv", "Quito", "Cairo", "Delhi", "Hanoi", "Accra"):
        await run.ask(word)


def test_a_summary_by_hand_and_raised_limits_are_played_again(tmp_path: Path) -> None:
    agents = module_of(tmp_path, "agents_compacted", "True")
    recording = recorded(tmp_path, agents, by_hand)
    assert len(events_of(recording, SessionCompaction)) == 1
    assert [x.outcome for x in events_of(recording, SessionEnd)].count("limit") == 2
    replay_recording(recording, agents, folder=tmp_path).check()
    replay_recording(recording).check()


def test_a_summary_that_was_due_is_no_answer_of_a_step(tmp_path: Path) -> None:
    agents = module_of(tmp_path, "agents_outgrown", "Compaction(window=160, keep=0.3)")
    recording = recorded(tmp_path, agents, by_itself)
    made = events_of(recording, SessionCompaction)
    assert made and all(x.summary == "In short." for x in made)
    replay_recording(recording, agents, folder=tmp_path).check()
    replay_recording(recording).check()
