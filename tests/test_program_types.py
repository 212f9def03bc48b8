"""The programs of README and docs/, and what they say in prose, pass strict type checkers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LISTENING = """
from collections.abc import Sequence
from typing import assert_type
from hubbub import Event, Hub, Run
from hubbub.hub.delivery.audience import Subscription
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.events import AgentStep, AgentText, SessionPrompt
from hubbub.hub.run_hub import RunHub

def hear(event: Event) -> None: ...
def hear_text(event: AgentText) -> None: ...
async def hear_later(event: Event) -> None: ...

async def listen(hub: Hub, own: RunHub, run: Run, kinds: Sequence[type[Event]]) -> Event:
    assert_type(hub.subscribe(kinds), EventStream[Event])
    assert_type(hub.subscribe([AgentText]), EventStream[AgentText])
    assert_type(run.events(kinds), EventStream[Event])
    assert_type(run.events([AgentText]), EventStream[AgentText])
    async with run.events([SessionPrompt, AgentText]) as own_events:
        await anext(own_events)
    assert_type(hub.subscribe(kinds, hear), Subscription)
    assert_type(hub.subscribe([AgentText], hear_text), Subscription)
    assert_type(own.subscribe([SessionPrompt, AgentText], hear), Subscription)
    assert_type(own.subscribe([SessionPrompt, AgentText, AgentStep], hear_later), Subscription)
    assert_type(hub.subscribe(["agent:text", "agent:step"]), EventStream[Event])
    assert_type(hub.subscribe((AgentText, AgentStep)), EventStream[AgentText | AgentStep])
    async with own.subscribe([SessionPrompt, AgentText, AgentStep]) as events:
        await anext(events)
    async with hub.subscribe([SessionPrompt, AgentText]) as stream:
        return await anext(stream)
"""
"""What listens to events of several classes, which docs/ say in a sentence."""

TYPED = """
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from pydantic import BaseModel
from hubbub import Agent, AgentDefinition, RunContext, RunOutcome, Run, Runtime, SideConfig

@dataclass
class Weather:
    city: str

class Place(TypedDict):
    city: str

class Model(BaseModel):
    city: str

reporter = Agent("reporter", "x", model="m", output=Weather)
schema: dict[str, Any] = {"type": "object", "properties": {}}

Either = AgentDefinition | str

async def asked(rt: Runtime, ctx: RunContext, side: SideConfig, either: Either) -> None:
    assert_type(reporter, AgentDefinition[Weather])
    assert_type(await rt.run(reporter, "x"), RunOutcome[Weather])
    assert_type((await rt.run(reporter, "x")).output, Weather)
    assert_type((await rt.run(reporter, "x")).value(), Weather)
    run = await rt.start(reporter, "x")
    assert_type(run, Run[Weather])
    assert_type((await run.result()).output, Weather)
    assert_type((await run.finished()).value(), Weather)
    assert_type((await run.ask("x")).value(), Weather)
    assert_type((await ctx.spawn(reporter, "x").finished()).value(), Weather)
    assert_type(await rt.executable(reporter).execute("x"), Weather)
    assert_type((await rt.run(Agent("a", "x", model="m", output=Place), "x")).value(), Place)
    assert_type((await rt.run(Agent("a", "x", model="m", output=Model), "x")).value(), Model)
    of_schema = Agent("a", "x", model="m", output=schema)
    assert_type((await rt.run(of_schema, "x")).value(), dict[str, Any])
    assert_type((await rt.run(Agent("a", "x", model="m"), "x")).value(), str)
    long: AgentDefinition[Weather] = AgentDefinition(name="a", side_a=side)
    assert_type((await rt.run(long, "x")).value(), Weather)
    assert_type((await rt.run("reporter", "x")).value(), Any)
    assert_type((await rt.run(either, "x")).value(), Any)
    bare: AgentDefinition = reporter
    assert_type((await rt.run(bare, "x")).value(), Any)
    agents: list[AgentDefinition] = [reporter, of_schema, bare]
    Runtime(agents)
"""
"""What callers know of an agent's output."""

PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)

pytestmark = [pytest.mark.long, pytest.mark.spec("U-10", "L-03")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each program, named for its page."""
    folder = tmp_path_factory.mktemp("programs")
    for page in PAGES:
        for number, text in enumerate(PROGRAM.findall(page.read_text())):
            (folder / f"{page.stem.replace('-', '_')}_{number}.py").write_text(text)
    (folder / "listening.py").write_text(LISTENING)
    (folder / "typed.py").write_text(TYPED)
    return folder


def test_every_program_passes_mypy_in_its_strict_mode(programs: Path, tmp_path: Path) -> None:
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT / '.links'}\n")
    command = [
        sys.executable, "-m", "mypy", "--config-file", str(settings),
        "--cache-dir", str(tmp_path / "cache"), *sorted(str(each) for each in programs.iterdir()),
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=programs, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_program_passes_pyright(programs: Path) -> None:
    """As far as hubbub is concerned: what it lacks in the types of other libraries is theirs."""
    settings = {
        "include": [str(programs)],
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT / ".links")],
        "reportUnusedFunction": False,
        "reportMissingModuleSource": False,
    }
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable, "-m", "pyright", "-p", str(programs / "pyrightconfig.json"),
        "--pythonpath", sys.executable, "--outputjson",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=programs, capture_output=True, text=True, timeout=500, check=False
    )
    found = [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in json.loads(done.stdout)["generalDiagnostics"]
        if each["severity"] == "error"
    ]
    assert found == [], "\n".join(found)
