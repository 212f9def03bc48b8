"""MCP servers in simulated worlds and in recordings."""

import runpy
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import ToolAnnotations
from support.mcp_servers import listing_server, mcp_agent, mcp_in, tool_of

from hubbub import ScriptedModel
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.loading.agents import load_agents
from hubbub.runtime.models.scripted import call
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation import Crash, Open, Setup, Wait, simulate
from hubbub.runtime.simulation.playback.play import replay_recording
from hubbub.runtime.simulation.playback.writing import read_journal, write_recordings


async def slow_answer(name: str, arguments: dict[str, Any]) -> str:
    await anyio.sleep(3)
    return f"{name} done"


def world(era: str, hints: ToolAnnotations | None = None) -> Setup:
    tools = [tool_of("act", hints=hints), tool_of("look")]
    server = mcp_in(era, listing_server(lambda: tools, slow_answer))
    model = ScriptedModel([call("it_act"), call("it_look"), "Done."], latency=1)
    return Setup.of(mcp_agent(model, server))


@pytest.mark.parametrize("era", ["2026", "2025"])
def test_a_world_with_a_server_is_the_same_each_time(era: str) -> None:
    scenario = [Open(agent="helper", input="Go.", key="one"), Wait(seconds=60)]
    histories = [simulate(scenario, lambda: world(era), seed=5) for _ in range(2)]
    assert histories[0].trace() == histories[1].trace()
    assert any("it_act" in line for line in histories[0].trace())


@pytest.mark.parametrize("commit", range(1, 12))
def test_no_crash_at_any_commit_loses_a_run_or_makes_a_call_twice(commit: int) -> None:
    """The invariants of simulated worlds say so."""
    scenario = [Open(agent="helper", input="Go.", key="one"), Wait(seconds=120)]
    simulate(scenario, lambda: world("2026"), faults=[Crash(commit=commit)], seed=commit)


PROGRAM = """
import sys
sys.path.append({tests!r})
from support.mcp_servers import listing_server, mcp_agent, mcp_in, tool_of
from hubbub import ScriptedModel
from hubbub.runtime.models.scripted import call

CALLED = []

async def answer(name, arguments):
    CALLED.append(name)
    return "acted"

SERVER = mcp_in("2026", listing_server(lambda: [tool_of("act")], answer))
helper = mcp_agent(ScriptedModel([call("it_act"), "Done."]), SERVER)
"""


def test_a_command_finds_the_servers_that_prompts_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAM.replace('"Done."]), SERVER)', '"Done."]), "it")')
    (tmp_path / "naming_agents.py").write_text(program.format(tests=str(Path(__file__).parents[2])))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    loaded = load_agents("naming_agents:helper")
    assert [each.name for each in loaded.tools] == ["it"]
    rt = Runtime(loaded.agents, loaded.prompts, loaded.tools, store="memory")
    assert list(rt.definitions.servers) == ["it"]


def test_a_recording_is_played_again_without_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = str(Path(__file__).parents[2])
    (tmp_path / "served_agents.py").write_text(PROGRAM.format(tests=tests))
    made = runpy.run_path(str(tmp_path / "served_agents.py"))

    async def record() -> Path:
        ports = virtual_ports(seed=7)
        store = MemoryJournal(ids=ports.ids)
        async with Runtime([made["helper"]], store=store, ports=ports) as rt:
            await rt.run("helper", "Go.")
        return write_recordings(await read_journal(store), tmp_path, "recording")[0]

    path = anyio.run(record)
    assert made["CALLED"] == ["act"]
    monkeypatch.setattr(sys, "path", [*sys.path])
    playback = replay_recording(path, "served_agents:helper", folder=tmp_path)
    assert not playback.differences
    assert sys.modules["served_agents"].CALLED == []
    playback = replay_recording(path)
    assert not playback.differences
