"""What is played again does what it did, whatever the ids, unless the agents have changed."""

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from contextvars import copy_context
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hubbub.__main__ import main as command
from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentRetry, AgentStep, SessionEnd
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.loading.agents import CannotLoad, load_agents
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.playback.play import Playback, WentOtherwise, replay_recording
from hubbub.runtime.simulation.playback.recording import read_recording
from hubbub.runtime.simulation.playback.writing import read_journal, write_recordings
from hubbub.runtime.stores.open import sqlite_store

AGENTS = '''
import json, re, sys
sys.path.append({tests!r})

import anyio
from support.families import answers, child, config, heard
from support.frames import frame
from hubbub import Agent, AgentDefinition, Skill, agent, tool
from hubbub.agents.definitions.run_state import RunState
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply

CALLED = []
MODES = dict(
    waiter=config("waiter"), goer=config("goer", blocking=False),
    stayer=config("stayer", stays=True), roamer=config("roamer", blocking=False, stays=True),
)

@tool
async def refund(order: str) -> str:
    """Pay back."""
    CALLED.append(order)
    return f"paid back {{order}}"

@tool
async def start(state: RunState) -> str:
    """Start an errand."""
    run = state.spawn("errand", "go")
    await anyio.sleep(2)
    return f"started {{run.run_id}}"

@tool
async def give(state: RunState) -> str:
    """Give the conversation away."""
    state.use_agent("writer", "A page.")

def known(request):
    """The references that the model has seen, in order."""
    said = [*(c.output for c in answers(request)), *request.system_notes, *heard(request)]
    found = re.findall(r"[0-9a-f]{{8}}-[0-9a-f-]{{27}}", " ".join(said))
    return list(dict.fromkeys(found)) or ["nobody"]

def leads(request):
    """The last line of the user is a program: one step after the other, then a word."""
    program, done = [], 0
    for message in request.messages:
        if hasattr(message, "calls"):
            done += not message.is_given
        elif message.content.startswith("["):
            program, done = [*json.loads(message.content), ["say", 0]], 0
    if done >= len(program):
        return "Noted."
    what, number = program[done]
    references = known(request)
    one = references[number % len(references)]
    match what:
        case "say":
            return f"There is {{one}}."
        case "waiter" | "goer":
            return reply("So.", call(what, message=f"m{{number}} of {{one}}"))
        case "stayer" | "roamer":
            return call("subagent_create", agent=what, name=f"n{{number}}",
                        arguments={{"message": f"m{{number}}"}})
        case "message":
            return call("subagent_message", reference=one, message=f"more {{number}}")
        case "writer":
            return call("use_agent", name="writer", message=f"about {{one}}")
        case "check":
            return call("use_skill", name="check", message="look")
        case "refund":
            return reply("", call("refund", order=one), call("refund", order=f"o{{number}}"))
        case "flaky":
            return Fault("server", seconds=1) if request.attempt < 3 else f"At last, {{one}}."
        case _:
            return call(what)

def works(request):
    said = [*heard(request), "?"]
    return call("finish", result=f"done: {{said[-1]}} for {{known(request)[0]}}")

def talks(request):
    return call("complete", result="written") if answers(request) else call("refund", order="w")

def refunds(request):
    return "Paid." if answers(request) else call("refund", order=heard(request)[0])

LEAD = FunctionModel(leads, latency=0.5)
WORK = FunctionModel(works, latency=0.7)
TALK = FunctionModel(talks, latency=0.3)
TEXTS = FunctionModel(lambda request: f"done: {{heard(request)[-1]}}", latency=0.7)
STARTS = FunctionModel(lambda request: "Ok." if answers(request) else call("start"), latency=0.3)
PAYS = FunctionModel(refunds, latency=0.3)

async def works_in_code(input, ctx):
    await anyio.sleep(1)
    return f"done: {{input}}"

names = ("waiter", "goer", "stayer", "roamer")
waiter, goer, stayer, roamer = (child(WORK, name=name) for name in names)
writer = frame(TALK, refund, name="writer")
check = Skill(
    name="check", description="Checks.", instructions="Check.", model=TALK, tools=(refund,)
)
DOWN = FunctionModel(lambda request: Fault("auth"), name="down")
spare = Agent("spare", "x", model=[DOWN, TEXTS], expose_as_tool=True)
picky = Agent("picky", "x", model=FunctionModel(
    lambda request: Fault("request", status=400, times=None)
    if any("poison" in each.content for each in request.messages) else "Yes."
))
SCHEMA = {{"type": "object", "properties": {{"n": {{"type": "integer"}}}}, "required": ["n"]}}
ANSWERS = [
    "words", call("final_answer", n="x"), '{{"n": 1}}', call("refund", order="v"),
    call("final_answer", n=2), '```json\\n{{"n": 3}}\\n```', "a", "b", "c",
    reply('{{"n"', stop_reason="length"), Fault("auth"),
]
valuer = Agent("valuer", "x", model=ScriptedModel(ANSWERS, latency=0.3), tools=[refund],
               output=SCHEMA)
main = frame(LEAD, *MODES.values(), refund, start, give, skills=[check], agents=("writer",),
             parallel_tool_calls=True)

@agent("errand")
async def errand(input, ctx):
    await anyio.sleep(1)
    return f"run by {{ctx.run_id}}"

@agent("listener")
async def listener(input, ctx):
    async for message in ctx.messages():
        ctx.say(f"heard {{message.content}}")
        if message.content.startswith("last"):
            return

@agent("pair")
async def pair(input, ctx):
    """Two things at once: a tool of a model at work, and code that starts and tells a child."""
    async def converse():
        async with ctx.session(model=STARTS, tools=[start]) as session:
            await session.send("Go.")
            async for _ in session.receive():
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(converse)
        await anyio.sleep(1)
        child = ctx.spawn("listener", "x")
        for word in ("one", "two", f"last of {{child.run_id}}"):
            await ctx.hub.send_to_run(child.run_id, word)
            await anyio.sleep(0.5)
        await child.result()

@agent("boss")
async def boss(input, ctx):
    errands = [ctx.spawn("errand", f"{{input}} {{n}}") for n in range(3)]
    ctx.say("started " + ", ".join(x.run_id for x in errands))
    await ctx.kv.set("errands", [x.run_id for x in errands])
    async with ctx.session(model=PAYS, tools=[refund, start]) as session:
        await session.send(f"Pay {{errands[1].run_id}}.")
        async for _ in session.receive():
            pass
    async for message in ctx.messages():
        ctx.say(f"{{message.content}}: {{await ctx.hub.ask('user', errands[0].run_id)}}")
        break
    return {{"errands": [x.run_id for x in errands], "last": (await errands[-1].result()).output}}
'''

Story = Callable[[Runtime], Any]
steps = st.tuples(
    st.sampled_from(
        ["stayer", "roamer", "message", "message", "waiter", "goer", "writer", "check", "refund",
         "start", "give", "say", "flaky"]
    ),
    st.integers(0, 3),
).map(list)  # fmt: skip
programs = st.lists(st.lists(steps, max_size=4), min_size=1, max_size=4)


class Project:
    """A folder with a module of agents, and what was recorded of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module = "agents_played"
        self.write()

    def write(self, *changes: tuple[str, str]) -> None:
        """The module, with changes."""
        text = AGENTS.format(tests=str(Path(__file__).parents[1]))
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        (self.folder / f"{self.module}.py").write_text(text)
        self.forget()

    def forget(self) -> None:
        sys.modules.pop(self.module, None)
        source = self.folder / f"{self.module}.py"
        Path(cache_from_source(str(source))).unlink(missing_ok=True)

    def runtime(self, store: Any, ports: Any, **options: Any) -> Runtime:
        sys.path.insert(0, str(self.folder))
        loaded = load_agents(f"{self.module}:main")
        sys.path.remove(str(self.folder))
        return Runtime(
            loaded.agents,
            tools=loaded.tools,
            skills=loaded.skills,
            store=store,
            ports=ports,
            **options,
        )

    def record(self, story: Story, seed: int = 7) -> Path:
        """Let something happen in memory; returns the recording of its first root."""

        async def main() -> Path:
            ports = virtual_ports(seed=seed)
            store = MemoryJournal(ids=ports.ids)
            async with self.runtime(store, ports) as rt:
                await story(rt)
            files = write_recordings(await read_journal(store), self.folder, "recording")
            return files[0]

        return virtually(main)

    def export(self, story: Story, below: str = ".") -> Path:
        """Let something happen on the disk; returns the test that the command line makes of it."""

        async def main() -> str:
            ports = virtual_ports(seed=7)
            store = sqlite_store(self.folder / "store", ports=ports, mirror=False)
            async with self.runtime(store, ports) as rt:
                await story(rt)
                infos = await rt.hub.journal.runs(live=False)
            return next(info.run_id for info in infos if info.parent_run_id is None)

        root = virtually(main)
        out = self.folder / below / "test_it.py"
        out.parent.mkdir(parents=True, exist_ok=True)
        store, agents = f"sqlite:{self.folder / 'store'}", f"{self.module}:main"
        sys.path.insert(0, str(self.folder))
        given = ["--as-test", "--store", store, "--out", str(out), "--agents", agents]
        assert command(["export", root, *given]) == 0
        sys.path.remove(str(self.folder))
        return out

    def play(self, recording: Path, **options: Any) -> Playback:
        return replay_recording(recording, f"{self.module}:main", folder=self.folder, **options)


def virtually(main: Callable[[], Any]) -> Any:
    clock = trio.testing.MockClock(autojump_threshold=0)
    return anyio.run(main, backend="trio", backend_options={"clock": clock})


def run_test(test: Path) -> None:
    """What pytest would do with it."""
    functions = runpy.run_path(str(test))
    (name,) = (name for name in functions if name.startswith("test_"))
    functions[name]()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    made = Project(tmp_path)
    yield made
    made.forget()


def talk(*programs: Any, agent: str = "main", pause: float = 20) -> Story:
    """A user says one program after the other."""

    async def story(rt: Runtime) -> None:
        for program in programs:
            await rt.hub.open(agent, json.dumps(program), session_key="web_1")
            await anyio.sleep(pause)

    return story


async def boss(rt: Runtime) -> None:
    run = await rt.start("boss", "go")
    asked: list[Any] = []
    rt.hub.subscribe("session:prompt", asked.append)
    await anyio.sleep(10)
    await run.send("how is it?")
    await anyio.sleep(1)
    rt.hub.reply(asked[0].prompt_id, "fine")
    await run.finished()


# ── unchanged agents ─────────────────────────────────────────────────────────────────────────


def test_a_resumable_child_gets_its_second_message(project: Project) -> None:
    story = talk([["roamer", 1]], [["message", 0], ["message", 0]], [["stayer", 2], ["message", 1]])
    run_test(project.export(story))


@pytest.mark.spec("L-02")
def test_a_tool_that_showed_something_shows_it_again(project: Project) -> None:
    project.write(
        ("from hubbub import Agent,", "from hubbub import Image, Agent,"),
        (
            'return f"paid back {order}"',
            'return [f"paid back {order}", Image(b"\\x89PNG\\r\\n\\x1a\\n receipt")]',
        ),
    )
    recording = project.record(talk([["refund", 0]]))
    assert "image/png" in recording.read_text()
    project.play(recording).check()
    replay_recording(recording).check()


OF_ONE_MODEL = (
    "(child(WORK, name=name) for name in names)",
    """(
    Agent(name, "You work.", model=TEXTS, expose_as_tool=True) for name in names
)""",
)
OF_CODE = (
    "(child(WORK, name=name) for name in names)",
    """(
    agent(name, expose_as_tool=True)(works_in_code) for name in names
)""",
)


@pytest.mark.spec("D-05")
@pytest.mark.parametrize("headless", [OF_ONE_MODEL, OF_CODE])
def test_children_of_one_model_and_of_code_do_what_they_did(
    headless: tuple[str, str], project: Project
) -> None:
    project.write(headless)
    story = talk(
        [["waiter", 1], ["goer", 1]], [["roamer", 1], ["message", 2]],
        [["stayer", 2], ["message", 1]],
    )  # fmt: skip
    recording = project.record(story)
    project.play(recording).check()
    replay_recording(recording).check()
    run_test(project.export(story))


@settings(max_examples=25, deadline=None)
@example(programs=[[["roamer", 0]]], pause=0.6, on_disk=False)
@example(programs=[[["writer", 0], ["stayer", 0]], []], pause=0.6, on_disk=False)
@example(programs=[[["give", 0]]], pause=0.6, on_disk=False)
@given(programs=programs, pause=st.sampled_from([0.6, 3.0, 20.0]), on_disk=st.booleans())
def test_unchanged_agents_do_what_they_did(
    programs: list[Any], pause: float, on_disk: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = Project(tmp_path_factory.mktemp("project"))
    kept = [*sys.path]
    try:
        story = talk(*programs, pause=pause)
        if on_disk:
            run_test(project.export(story))
        else:
            recording = project.record(story)
            project.play(recording).check()
            replay_recording(recording).check()
    finally:
        sys.path[:] = kept
        project.forget()


def test_a_model_that_failed_fails_again_and_hears_meanwhile_what_it_heard(
    project: Project,
) -> None:
    recording = project.record(talk([["goer", 0], ["flaky", 0]]))
    retries = [x for x in read_recording(recording).owned() if isinstance(x.event, AgentRetry)]
    assert len(retries) == 2
    project.play(recording).check()


@pytest.mark.spec("L-06")
def test_a_model_that_was_followed_by_another_is_so_again(project: Project) -> None:
    async def story(rt: Runtime) -> None:
        run = await rt.start("spare", "one")
        await run.result()
        await run.send("two")
        await run.result()

    recording = project.record(story)
    owned = [x.event for x in read_recording(recording).owned()]
    assert [x.choice for x in owned if isinstance(x, AgentRetry)] == [1]
    assert [x.choice for x in owned if isinstance(x, AgentStep)] == [1, 1]
    project.play(recording).check()
    replay_recording(recording).check()


@pytest.mark.spec("T-12")
def test_what_a_model_refused_is_left_out_again(project: Project) -> None:
    async def story(rt: Runtime) -> None:
        run = await rt.start("picky", "one")
        for word in ("a poison", "two", "poison: again", "three"):
            await run.result()
            await run.send(word)
        await run.result()

    recording = project.record(story)
    owned = [x.event for x in read_recording(recording).owned()]
    left = [len(x.left_out) for x in owned if isinstance(x, SessionEnd)]
    assert left == [0, 1, 0, 1, 0]
    project.play(recording).check()
    replay_recording(recording).check()


@pytest.mark.spec("L-03")
def test_values_and_answers_that_did_not_fit_come_again(project: Project) -> None:
    async def story(rt: Runtime) -> None:
        run = await rt.start("valuer", "1")
        for word in "23456":
            await run.result()
            await run.send(word)
        await run.result()

    recording = project.record(story)
    owned = [x.event for x in read_recording(recording).owned()]
    assert [x.kind for x in owned if isinstance(x, AgentRetry)] == ["output"] * 4
    ends = [(x.outcome, x.output) for x in owned if isinstance(x, SessionEnd)]
    assert ends[:3] == [("completed", {"n": n}) for n in (1, 2, 3)]
    assert [outcome for outcome, _ in ends[3:]] == ["failed"] * 3
    project.play(recording).check()
    replay_recording(recording).check()


def test_code_that_does_two_things_at_once_does_each_once(project: Project) -> None:
    async def story(rt: Runtime) -> None:
        await rt.run("pair", "go")

    recording = project.record(story)
    playback = project.play(recording)
    playback.check()
    assert [x for x in playback.recorded if "listener: says" in x] == [
        'pair/listener: says "heard one"', 'pair/listener: says "heard two"',
        'pair/listener: says "heard last of <pair/listener>"',
    ]  # fmt: skip
    replay_recording(recording).check()


@pytest.mark.parametrize("seed", range(5))
def test_code_that_says_ids_of_its_children_says_those_of_now(project: Project, seed: int) -> None:
    recording = project.record(boss)
    playback = project.play(recording, seed=seed)
    playback.check()
    assert (
        'boss: says "started <boss/errand>, <boss/errand 2>, <boss/errand 3>"' in playback.replayed
    )
    replay_recording(recording, seed=seed).check()


def test_a_recording_of_a_simulation_with_the_same_seed_has_other_ids(project: Project) -> None:
    """Its root would have the id that its first child gets now."""
    for seed in range(3):
        recording = project.record(talk([["roamer", 0], ["goer", 1]]), seed=seed)
        project.play(recording, seed=seed).check()


def test_what_was_under_way_at_the_end_of_a_recording_is_no_difference(project: Project) -> None:
    cut = talk([["goer", 1], ["stayer", 2], ["writer", 0]])
    for pause in (0.0, 0.5, 0.9, 1.3, 2.2):
        recording = project.record(talk(pause=pause) if pause < 0 else _cut(cut, pause))
        project.play(recording).check()


def test_what_waited_in_an_inbox_at_the_end_of_a_recording_is_no_difference(
    project: Project,
) -> None:
    """A runtime that is left wakes nobody, but lets those at work come to an end."""
    recording = project.record(talk([["stayer", 0]], [["roamer", 0]], [["message", 1]], pause=0.7))
    waiting = [run.agent for run in read_recording(recording).runs.values() if run.has_mail]
    assert "stayer" in waiting
    project.play(recording).check()
    replay_recording(recording).check()


def test_a_message_that_was_still_on_its_way_is_heard_no_sooner_than_it_was(
    project: Project,
) -> None:
    """It is in the inbox before the result of a tool, and was not seen with it."""
    project.write(("    CALLED.append(order)", "    while CALLED: CALLED.pop()()"))

    async def story(rt: Runtime) -> None:
        user = copy_context()  # Not the tool's: what that says comes from its run.
        program = '[["refund", 7]]'
        sys.modules[project.module].CALLED.append(
            lambda: user.run(rt.hub.open, "main", program, session_key="web_1")
        )
        await rt.hub.open("main", program, session_key="web_1")
        await anyio.sleep(20)

    test = project.export(story)
    ends = [
        x.event
        for x in read_recording(test.with_suffix(".jsonl")).owned()
        if isinstance(x.event, SessionEnd)
    ]
    assert len(ends) == 2
    run_test(test)


def _cut(story: Story, seconds: float) -> Story:
    async def cut(rt: Runtime) -> None:
        with anyio.move_on_after(seconds):
            await story(rt)

    return cut


# ── changed agents ───────────────────────────────────────────────────────────────────────────

REFUNDED = [["refund", 7]], [["roamer", 1], ["message", 0]], [["waiter", 0]], [["writer", 0]]


@pytest.fixture
def refunded(project: Project) -> Path:
    return project.record(talk(*REFUNDED))


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        (
            "main = frame(LEAD, *MODES.values(), refund,", "main = frame(LEAD, *MODES.values(),",
            ["main, step 1\n", '    then: refund(order="nobody") → "paid back nobody"\n',
             '    now:  refund(order="nobody") → error "there is no tool named'],
        ),
        (
            "async def refund(order: str)", "async def refund(order: str, reason: str)",
            ["main, step 1\n", 'now:  refund(order="nobody") → error "Bad arguments for refund'],
        ),
        (
            'config("roamer", blocking=False', 'config("roamer", blocking=True',
            ["then: starts <main/roamer> (non-blocking, resumable)",
             "now:  starts <main/roamer> (blocking, resumable)"],
        ),
        (
            'waiter=config("waiter"), ', "",
            ['now:  waiter(message="m0 of', "main/waiter\n", "now:  (nothing)"],
        ),
        (
            'agents=("writer",),', "",
            ["main/writer\n", "then: <main/writer> takes over as frame 2"],
        ),
        (
            'agents=("writer",),', 'agents=("writer",), max_steps=1,',
            ["now:  session 1: limit"],
        ),
    ],
    ids=["a tool is gone", "arguments no longer fit", "a mode", "a child is gone",
         "a takeover is gone", "a limit"],
)  # fmt: skip
def test_what_has_changed_for_the_worse_fails_and_says_where(
    project: Project, refunded: Path, old: str, new: str, differs: list[str]
) -> None:
    project.write((old, new))
    with pytest.raises(WentOtherwise) as failure:
        project.play(refunded).check()
    for each in differs:
        assert each in str(failure.value)
    # No run is named by its id.
    assert "-7" not in str(failure.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Pay back."""', '"""Give money back, politely."""'),
        ("LEAD = FunctionModel(leads, latency=0.5)", "LEAD = FunctionModel(lambda _: 'no')"),
        ("async def refund(order: str)", "async def refund(order: str, reason: str = '')"),
        ("    CALLED.append(order)", "    raise ValueError('no tool is called')"),
        ("skills=[check],", "skills=[check], max_steps=100,"),
    ],
    ids=["words", "a model", "a new argument", "a tool's body", "room"],
)
def test_what_may_change_changes_nothing(
    project: Project, refunded: Path, old: str, new: str
) -> None:
    project.write((old, new))
    project.play(refunded).check()


def test_a_code_agent_that_does_something_else_is_told_of(project: Project) -> None:
    recording = project.record(boss)
    project.write(("for n in range(3)", "for n in range(2)"))
    found = "\n".join(project.play(recording).differences)
    assert "then: starts <boss/errand 3> (non-blocking), named" in found
    assert 'then: says "started <boss/errand>, <boss/errand 2>, <boss/errand 3>"' in found
    assert 'now:  says "started <boss/errand>, <boss/errand 2>"' in found


def test_a_restart_that_is_not_played_again_is_named_as_a_reason(project: Project) -> None:
    async def story() -> Path:
        ports = virtual_ports(seed=7)
        store = MemoryJournal(ids=ports.ids)
        async with project.runtime(store, ports, grace=0) as rt:
            run = await rt.start("main", '[["start", 0]]')
            await anyio.sleep(1)
        async with project.runtime(store, ports) as rt:
            await rt.result(run.run_id)
        return write_recordings(await read_journal(store), project.folder, "recording")[0]

    playback = project.play(virtually(story))
    assert playback.differences and "was stopped at work then" in playback.differences[-1]


# ── real tools ───────────────────────────────────────────────────────────────────────────────


def test_no_tool_is_called_but_those_that_are_named(project: Project, refunded: Path) -> None:
    called(project)  # By what was recorded.
    project.play(refunded).check()
    assert called(project) == []
    project.play(refunded, real_tools=["refund"]).check()
    assert called(project) == ["nobody", "o7", "w"]
    project.write(('f"paid back {{order}}"'.replace("{{", "{").replace("}}", "}"), '"no money"'))
    project.play(refunded).check()
    found = project.play(refunded, real_tools=["refund"]).differences
    assert 'now:  refund(order="nobody") → "no money"' in found[0]


def called(project: Project) -> list[str]:
    """What the tool was called with, since the last time."""
    module = sys.modules[project.module]
    found, module.CALLED[:] = [*module.CALLED], []
    return found


def test_a_real_tool_that_starts_a_child_or_gives_the_conversation_away_does(
    project: Project,
) -> None:
    recording = project.record(talk([["start", 0]], [["give", 0]]))
    project.play(recording, real_tools=["start", "give"]).check()


def test_models_and_tools_of_code_are_not_asked(project: Project) -> None:
    recording = project.record(boss)
    project.write(
        ('    return "Paid." if answers(request)', "    raise ValueError; return 0 if 1"),
    )
    project.play(recording).check()
    assert called(project) == []
    project.play(recording, real_tools=["refund"]).check()
    assert len(called(project)) == 1


def test_a_tool_that_is_not_there_is_named(project: Project, refunded: Path) -> None:
    with pytest.raises(BadValue, match="agents_played:main has no tool nothing"):
        project.play(refunded, real_tools=["nothing", "refund"])


# ── where agents are found ───────────────────────────────────────────────────────────────────


def test_a_test_finds_its_agents_from_wherever_it_is_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    test = project.export(talk([["refund", 1]]), below="tests/regression")
    assert test.parent == project.folder / "tests" / "regression"
    assert "FOLDER = Path(__file__).parent / '../..'\n" in test.read_text()
    project.forget()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    run_test(test)


def test_a_module_that_has_moved_is_one_line_with_the_remedy(
    project: Project, refunded: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("empty")
    project.forget()
    with pytest.raises(CannotLoad) as failure:
        replay_recording(refunded, "agents_played:main", folder=folder)
    message = f"agents_played:main: no module in {folder}; give its present folder: folder="
    assert str(failure.value) == message
