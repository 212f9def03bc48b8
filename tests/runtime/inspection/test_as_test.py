"""``hubbub export RUN --as-test``: what went on in production, as a test that runs as it is."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing

from hubbub import AgentDefinition, PromptDefinition, RunState, Runtime, SideConfig, Skill, tool
from hubbub.__main__ import main
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import ScriptedModel, call, reply
from hubbub.runtime.simulation import Crash, ModelFault, ToolFault, simulate
from hubbub.runtime.simulation.playback.play import replay_recording
from hubbub.runtime.simulation.playback.recording import BadRecording, read_recording
from hubbub.runtime.simulation.playback.writing import write_recordings
from hubbub.runtime.stores.open import sqlite_store

sys.path.append(str(Path(__file__).parents[2]))

from journals.record import STORIES
from support.agents import model_agent
from support.feature_stories import FEATURES
from support.frames import complete, frame, skill, use
from support.simulations import busy_day, desk
from support.stores import SECRET, Filled, fill

AGENTS = '''
from hubbub import AgentDefinition, PromptDefinition, SideConfig, tool

@tool
async def look_up(city: str) -> str:
    """The weather."""
    raise RuntimeError("a test must not call it")

prompt = PromptDefinition(
    name="p", prompt="You help.", model="anthropic:no-such-model", tools=[look_up]
)
helper = AgentDefinition(name="helper", side_a=SideConfig(prompt=prompt))
'''


def virtually(main: Callable[[], Any]) -> Any:
    clock = trio.testing.MockClock(autojump_threshold=0)
    return anyio.run(main, backend="trio", backend_options={"clock": clock})


class Made:
    """A store in a folder of its own, and the command line in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def play(self, story: Callable[[Any, Any], Any]) -> list[str]:
        """Let something happen on the store; returns its roots."""

        async def main() -> list[str]:
            ports = virtual_ports()
            store = sqlite_store(self.folder / "store", ports=ports, mirror=False)
            await story(store, ports)
            store = sqlite_store(self.folder / "store", ports=ports, mirror=False)
            await store.open()
            infos = await store.runs(live=False)
            await store.aclose()
            return [info.run_id for info in infos if info.parent_run_id is None]

        return list(virtually(main))

    def export(self, run_id: str, *arguments: str) -> tuple[int, str, str]:
        store = f"sqlite:{self.folder / 'store'}"
        code = main(["export", run_id, "--as-test", "--store", store, *arguments])
        told = self._capsys.readouterr()
        return code, told.out, told.err

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture
def made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Made]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield Made(tmp_path, capsys)
    for name in {*sys.modules} - before:  # Another test may have another module of that name.
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


async def weather(store: Any, ports: Any) -> None:
    """A conversation with a tool, a second message while the model is at work, and an interrupt."""

    @tool
    async def look_up(city: str) -> str:
        """The weather."""
        await anyio.sleep(5)
        return f"sun in {city}"

    script = [reply("Let me see.", call("look_up", city="Rome")), "Sun.", "And fine.", "Again."]
    model = ScriptedModel(script, latency=2)
    async with Runtime(
        [model_agent(model, look_up, name="helper")], store=store, ports=ports
    ) as rt:
        run = await rt.start("helper", "How is Rome?", session_key="telegram_1_2")
        await anyio.sleep(4)
        await run.send("And tomorrow?")
        await run.result()
        await run.send("Well?")
        await anyio.sleep(1)
        rt.hub.interrupt(run.run_id, "enough")
        await anyio.sleep(1)
        await run.send("Once more.")
        await run.result()


# One of them writes into its store behind the back of its runtime: in memory only.
@pytest.mark.parametrize("name", sorted({*STORIES} - {"future"}))
def test_every_recorded_story_is_a_test_that_passes_with_stand_ins(name: str, made: Made) -> None:
    root = made.play(STORIES[name])[0]
    code, out, err = made.export(root, "--out", "test_story.py")
    assert (code, err) == (0, "")
    assert out.startswith("wrote test_story.py and test_story.jsonl: ")
    playback = replay_recording("test_story.jsonl")
    assert playback.replayed == playback.recorded
    assert playback.recorded or name == "paused"


# In the other one several children report at one moment, which is told in other turns again.
@pytest.mark.parametrize("name", sorted({*FEATURES} - {"code"}))
def test_every_feature_is_a_test_that_passes_with_stand_ins(name: str, made: Made) -> None:
    roots = made.play(FEATURES[name])
    for number, root in enumerate(roots):
        code, _, err = made.export(root, "--out", f"test_story_{number}.py")
        assert (code, err) == (0, "")
        playback = replay_recording(f"test_story_{number}.jsonl")
        assert playback.replayed == playback.recorded, str(playback.differences)


ASKING = '''
from hubbub import Agent, RunState, ScriptedModel, VariableDefinition, tool
from hubbub.runtime.models.scripted import call

KEY = VariableDefinition(name="PHARMACY_KEY", required=True)

@tool(approval=lambda amount: amount > 10, variables=[KEY])
def refund(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"

@tool
async def wonder(state: RunState) -> str:
    """Ask."""
    answer = await state.ask("Which?", options=["a", "b"])
    return f"{answer} {await state.ask('How many?', schema=int)}"

script = [call("refund", amount=5), call("refund", amount=50), call("wonder"), "Done."]
desk = Agent("desk", "You help {{SHOP}}.", model=ScriptedModel(script), tools=[refund, wonder],
             variables=[VariableDefinition(name="SHOP", type="text", required=True)])
'''


@pytest.mark.parametrize("arguments", [(), ("--agents", "asking:desk")])
def test_what_people_were_asked_is_asked_again(arguments: tuple[str, ...], made: Made) -> None:
    (made.folder / "asking.py").write_text(ASKING)
    sys.path.insert(0, str(made.folder))
    from asking import desk as asking_desk  # type: ignore[import-not-found]

    async def talk(store: Any, ports: Any) -> None:
        env = {"PHARMACY_KEY": SECRET, "SHOP": "a shop"}
        async with Runtime([asking_desk], store=store, ports=ports, env=env) as rt:
            asked: list[str] = []
            rt.hub.subscribe("session:prompt", lambda event: asked.append(event.prompt_id))
            run = await rt.start("desk", "go")
            for answer in ("", "b", "3"):
                await anyio.sleep(10)
                prompt_id = asked[-1]
                receipt = rt.hub.reply(prompt_id, answer) if answer else rt.hub.approve(prompt_id)
                assert (await receipt).accepted
            assert (await run.result()).output == "Done."

    root = made.play(talk)[0]
    assert made.export(root, *arguments, "--out", "test_it.py")[0] == 0
    done = made.pytest("test_it.py")
    assert done.returncode == 0, done.stdout


def test_a_file_runs_as_it_is_with_the_agents_of_a_module(made: Made) -> None:
    root = made.play(weather)[0]
    (made.folder / "desk.py").write_text(AGENTS)
    assert made.export(root, "--agents", "desk:helper")[0] == 0
    (file,) = made.folder.glob("test_*.py")
    assert file.name == f"test_helper_{root[-8:]}.py"
    done = made.pytest(file.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    recorded = read_recording(file.with_suffix(".jsonl")).transcript()
    assert recorded == [
        "helper: Let me see.", "helper: Sun.", "helper: And fine.",
    ]  # fmt: skip


def test_a_change_for_the_worse_fails_and_shows_what_differs(made: Made) -> None:
    root = made.play(weather)[0]
    changed = AGENTS.replace("SideConfig(prompt=prompt)", "SideConfig(prompt=prompt, max_steps=1)")
    (made.folder / "desk.py").write_text(changed)
    made.export(root, "--agents", "desk:helper", "--out", "test_it.py")
    done = made.pytest("test_it.py")
    assert done.returncode == 1
    assert "helper\nE           then: " in done.stdout
    assert 'now:  session 1: limit, "' in done.stdout


def test_the_same_recording_plays_the_same_each_time(made: Made) -> None:
    made.export(made.play(weather)[0], "--out", "test_it.py")
    one, two = (replay_recording("test_it.jsonl", seed=seed) for seed in (1, 1))
    assert one == two


async def frames(store: Any, ports: Any) -> None:
    """Takeover by an agent, by a skill and by one tool; each frame talks with the user."""

    @tool
    async def count(message: str, state: RunState) -> str:
        """Count letters."""
        await state.kv.set("counted", len(message))
        return str(len(message))

    main = ScriptedModel([
        use("writer", "A page."), "Done?", skill("check", "Look."), "Fine.",
        skill("count", "four"), "Four.",
    ])  # fmt: skip
    writer = ScriptedModel(["Which?", complete("a page")])
    check = ScriptedModel(["Really?", complete("checked")])
    skills = (
        Skill(name="check", description="Checks.", instructions="Check.", model=check, tools=()),
        Skill(name="count", description="Counts.", passthrough=count),
    )
    agents = (frame(main, agents=("writer",), skills=skills), frame(writer, name="writer"))
    async with Runtime(agents, store=store, ports=ports) as rt:
        for line in ("Write.", "This one.", "Check it.", "Yes.", "Count."):
            receipt = await rt.hub.open("main", line, session_key="telegram_1_2")
            await rt.result(receipt.run_id)


def test_takeover_frames_are_played_again(made: Made) -> None:
    root = made.play(frames)[0]
    made.export(root, "--out", "test_it.py")
    playback = replay_recording("test_it.jsonl")
    assert playback.replayed == playback.recorded
    said = read_recording(made.folder / "test_it.jsonl").transcript()
    assert "main/writer: Which?" in said
    assert "main/skill:check: Really?" in said
    assert said[:3] == ["main: Done?", "main: Fine.", "main: Four."]


def test_no_secret_stands_in_either_file(made: Made) -> None:
    filled: Filled = anyio.run(fill, made.folder / "store")
    assert made.export(filled.chat, "--out", "test_it.py")[0] == 0
    for name in ("test_it.py", "test_it.jsonl"):
        assert SECRET not in (made.folder / name).read_text()


def test_what_cannot_be_made_a_test_is_one_line_with_the_remedy(made: Made) -> None:
    roots = made.play(STORIES["children"])
    children = [run_id for run_id in _runs(made, roots[0]) if run_id != roots[0]]
    (made.folder / "other.py").write_text(AGENTS)
    for arguments, message in [
        ((children[0],), f"make a test of its root, {roots[0]}"),
        ((roots[0], "--out", "test.txt"), "name one that ends in .py"),
        ((roots[0], "--out", "missing/test.py"), "there is no folder missing; make it first"),
        ((roots[0], "--agents", ""), "--agents: write MODULE:AGENT"),
        ((roots[0], "--agents", "nowhere:agent"), "no module 'nowhere'"),
        ((roots[0], "--agents", "other:helper"), "the run also used goer, main"),
        ((roots[0], "--context"), "give one of them"),
        ((roots[0], "--out", "test_family.py"), "test_family.py is there already"),
    ]:
        code, out, err = made.export(*arguments)
        assert (code, out) == (2, "")
        assert message in err and err.count("\n") == 1
    assert not list(made.folder.glob("*.jsonl"))


def _runs(made: Made, root: str) -> list[str]:
    made.export(root, "--out", "test_family.py")
    runs = list(read_recording(made.folder / "test_family.jsonl").runs)
    (made.folder / "test_family.jsonl").unlink()
    return runs


def test_agents_without_as_test_are_refused(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "abcd", "--agents", "a:b"]) == 2
    assert "give --as-test" in capsys.readouterr().err


def test_a_recording_that_is_none_says_so(tmp_path: Path) -> None:
    for content, problem in (
        ("", "incomplete"),
        ("noise\n", "line 1"),
        ('{"line":"end","lines":0}', "incomplete"),
    ):
        (tmp_path / "x.jsonl").write_text(content)
        with pytest.raises(BadRecording, match=problem):
            replay_recording(tmp_path / "x.jsonl")
    with pytest.raises(BadRecording, match="No such file"):
        replay_recording(tmp_path / "missing.jsonl")


def test_agents_that_ask_more_of_their_model_are_told_so(made: Made) -> None:
    """A call that was not made then has no answer now; it fails in words."""
    prompt = PromptDefinition(name="p", prompt="", model=ScriptedModel(["One."]))

    async def story(store: Any, ports: Any) -> None:
        agent = AgentDefinition(name="helper", side_a=SideConfig(prompt=prompt))
        async with Runtime([agent], store=store, ports=ports) as rt:
            await rt.run("helper", "Go.")

    made.export(made.play(story)[0], "--out", "test_it.py")
    (made.folder / "asks_more.py").write_text(
        AGENTS.replace('name="helper", ', 'name="helper", type="dual_ai", side_b=SideConfig('
                       'prompt=PromptDefinition(name="b", prompt="", model="x")), ')
    )  # fmt: skip
    playback = replay_recording("test_it.jsonl", "asks_more:helper")
    assert "call 2 of this run, and the recording has 1" in playback.differences[-1]


CODE = """
import anyio
from hubbub import AgentDefinition, PromptDefinition, ScriptedModel, SideConfig, agent

prompt = PromptDefinition(name="p", prompt="", model=ScriptedModel(["Hello."]))
echo = AgentDefinition(name="echo", side_a=SideConfig(prompt=prompt))

@agent("worker")
async def worker(input, ctx):
    child = ctx.spawn("echo", input)
    ctx.say((await child.result()).output)
    async for message in ctx.messages():
        await anyio.sleep(60)
        ctx.say(f"heard {message.content}")
        if message.content == "stop":
            break
    return "over"
"""


def test_code_agents_run_again_with_their_children(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    (made.folder / "coded_agents.py").write_text(CODE)
    monkeypatch.syspath_prepend(made.folder)
    import coded_agents  # type: ignore[import-not-found]

    async def story(store: Any, ports: Any) -> None:
        agents = [coded_agents.worker, coded_agents.echo]
        async with Runtime(agents, store=store, ports=ports) as rt:
            run = await rt.start("worker", "hi")
            await run.send("one")
            await anyio.sleep(600)
            await run.send("stop")
            await run.finished()

    made.export(made.play(story)[0], "--agents", "coded_agents:worker", "--out", "test_it.py")
    for agents in ("coded_agents:worker", ""):
        playback = replay_recording("test_it.jsonl", agents)
        assert playback.replayed == playback.recorded == [
            'worker: begins with "hi"',
            'worker: starts <worker/echo> (non-blocking), named "echo"',
            'worker: says "Hello."', 'worker: says "heard one"', 'worker: says "heard stop"',
            'worker: session 1: completed, "over"', 'worker: ends: completed, "over"',
            'worker/echo: begins with "hi"', 'worker/echo, step 1: says "Hello."',
            'worker/echo: session 1: completed, "Hello."', 'worker/echo: ends: completed, "Hello."',
        ]  # fmt: skip


@pytest.mark.parametrize(
    "faults",
    [
        (), (Crash(commit=7),), (Crash(commit=12, when="before"),),
        (ModelFault(call=2, kind="error"),), (ModelFault(call=3, kind="bad_arguments"),),
        (ModelFault(call=2, kind="unknown_tool"),), (ToolFault(call=2, kind="hang"),),
    ],
)  # fmt: skip
def test_what_went_wrong_is_played_again_too(faults: tuple[Any, ...], tmp_path: Path) -> None:
    for seed in range(3):
        history = simulate(busy_day, desk, seed=seed, faults=faults, invariants={})
        files = write_recordings(history, tmp_path, f"seed_{seed}")
        assert len(files) == 4
        for file in files:
            playback = replay_recording(file)
            assert playback.replayed == playback.recorded
