"""Worlds of several workers: what a user says is done, whatever happens to those who do it."""

from itertools import pairwise, product

import anyio
import pytest
from hypothesis import given, settings
from msgspec import structs

from hubbub import Agent, FunctionModel, Retention, tool
from hubbub import agent as code_agent
from hubbub.agents.model import UserMessage
from hubbub.hub.errors import BadValue
from hubbub.hub.store.shared.memory import SharedMemory
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.simulation import (
    Approve,
    ChannelFault,
    Crash,
    CutWorker,
    KillWorker,
    ListenerFault,
    Open,
    PauseWorker,
    Restart,
    Say,
    Setup,
    SimulationFailed,
    ToolFault,
    Wait,
    World,
    simulate,
)
from hubbub.runtime.simulation.invariants.sharing import misheard, two_owners
from hubbub.runtime.simulation.loop.seeded import run_seeded
from hubbub.runtime.simulation.loop.stopped import StoppedTasks
from hubbub.runtime.simulation.strategies.worlds import faults, seeds, steps

STORY = [
    Open(agent="echo", input="one"), Open(agent="desk", input="two"),
    Open(agent="echo", input="three"), Wait(seconds=1.5), Say(text="four"), Say(to=1, text="five"),
    Wait(seconds=4), Say(to=2, text="six"), Wait(seconds=10), Say(to=1, text="seven"),
]  # fmt: skip
WORKER_FAULTS = PauseWorker, KillWorker, CutWorker


def setup(*effects: list[str]) -> Setup:
    @tool
    async def work(job: str) -> str:
        """Do a job."""
        for each in effects:
            each.append(job)
        await anyio.sleep(0.4)
        return f"did {job}"

    def desk(request):
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return reply("", call("work", job=last.content))
        return f"it {last.calls[-1].output}"

    echo = FunctionModel(lambda request: f"echo {request.messages[-1].content}", latency=0.5)
    return Setup.of(
        Agent("echo", "Repeat.", model=echo),
        Agent("desk", "Work.", model=FunctionModel(desk, latency=0.3), tools=[work]),
    )


# ── one process is as it was ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [None, 1])
def test_one_worker_is_the_world_that_there_always_was(workers):
    wrong = [Crash(commit=5), ToolFault(kind="crash"), ChannelFault(kind="duplicate")]
    story = [*STORY, Restart(kill=True), Say(text="eight")]
    for seed in range(3):
        plain = simulate(story, setup, seed=seed, faults=wrong)
        one = simulate(story, setup, seed=seed, faults=wrong, workers=workers)
        assert one.trace() == plain.trace()
        assert one.workers is None


# ── several ──────────────────────────────────────────────────────────────────────────────────


def test_runs_are_spread_over_workers_and_the_channel_drives_none():
    history = simulate(STORY, setup, workers=3, seed=4)
    drivers = {history.lives[asked.life].worker for asked in history.requests}
    assert len(drivers) > 1
    assert None not in drivers
    assert [life.worker for life in history.lives] == [0, 1, 2, None]


@pytest.mark.parametrize("kind", WORKER_FAULTS)
def test_everything_is_answered_whichever_worker_fails_and_when(kind):
    for worker, at in product(range(2), (0.0, 0.2, 0.6, 1.8)):
        wrong = [kind(worker=worker, at=at, seconds=9.0)]
        history = simulate(STORY, setup, workers=2, seed=worker, faults=wrong)
        assert history.injected
        heard = [text for run_id in history.runs for text in history.heard_by(run_id)]
        assert sorted(heard) == ["five", "four", "seven", "six"]
        assert all(history.said(run_id) for run_id in history.runs)


def test_same_seed_is_the_same_trace_and_another_seed_another_one():
    wrong = [PauseWorker(worker=1, at=0.2), CutWorker(at=2), KillWorker(worker=2, at=0.6)]
    traces = [
        tuple(simulate(STORY, setup, workers=3, seed=seed, faults=wrong).trace())
        for seed in (0, 1, 2, 0, 1, 2)
    ]
    assert traces[:3] == traces[3:]
    assert len(set(traces)) > 1


def test_worker_that_stood_still_for_long_has_lost_its_runs_and_writes_nothing_more():
    story = [Open(agent="desk", input="job"), Wait(seconds=60)]
    plain = simulate(story, setup, workers=2, seed=1)
    driver = plain.lives[plain.requests[0].life].worker
    wrong = [PauseWorker(worker=driver, at=0.4, seconds=9)]
    history = simulate(story, setup, workers=2, seed=1, faults=wrong)
    (run_id,) = history.runs
    assert history.said(run_id)
    epochs = [epoch for _, epoch, _ in history.writers]
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]


def test_paused_worker_does_nothing_and_goes_on_afterwards():
    ticks = []

    @tool
    async def clock() -> str:
        """Tick."""
        for _ in range(10):
            await anyio.sleep(0.1)
            ticks.append(anyio.current_time())
        return "done"

    def desk(request):
        is_first = isinstance(request.messages[-1], UserMessage)
        return reply("", call("clock")) if is_first else "done"

    made = Setup.of(Agent("desk", "Work.", model=FunctionModel(desk), tools=[clock]))
    wrong = [PauseWorker(worker=n, at=0.55, seconds=3) for n in range(2)]
    history = simulate(
        [Open(agent="desk", input="tick"), Wait(seconds=30)], made, workers=2, faults=wrong
    )
    gaps = [after - before for before, after in pairwise(ticks)]
    assert len(ticks) == 10
    assert max(gaps) > 2.9
    assert sorted(gaps)[-2] < 0.2
    assert [history.said(run_id) for run_id in history.runs] == [["done"]]


def test_effects_are_had_once_where_workers_die():
    for seed in range(4):
        effects: list[str] = []
        wrong = [KillWorker(worker=seed % 2, at=0.2 * seed), Crash(commit=4, life=1 - seed % 2)]
        simulate(STORY, lambda effects=effects: setup(effects), workers=2, seed=seed, faults=wrong)
        assert len(effects) == len(set(effects))


@pytest.mark.parametrize("life", range(4))
def test_crash_is_of_the_life_it_names_be_it_a_worker_or_the_channel(life):
    history = simulate(STORY, setup, workers=3, faults=[Crash(commit=2, life=life)], seed=2)
    assert [x.number for x in history.lives if x.end == "crashed"] == [life]
    assert history.lives[-1].worker == history.lives[life].worker


def test_all_processes_are_restarted_at_once_and_go_on():
    story = [Open(agent="echo", input="one"), Restart(kill=True), Say(text="two"), Restart()]
    history = simulate([*story, Say(text="three")], setup, workers=2)
    assert [life.end for life in history.lives] == ["killed"] * 3 + ["left"] * 6
    (run_id,) = history.runs
    assert history.heard_by(run_id) == ["two", "three"]


@pytest.mark.parametrize("worker", range(3))
def test_worker_that_has_not_begun_again_yet_is_waited_for(worker):
    """Its time to begin is when the world looks whether everything rests."""
    story = [Open(agent="echo", input="one"), Restart(kill=True)]
    history = simulate(
        story, setup, workers=3, faults=[KillWorker(worker=worker, at=3.0, seconds=60.0)]
    )
    (run_id,) = history.runs
    assert history.said(run_id) == ["echo one"]
    assert (history.lives[-1].worker, history.lives[-1].end) == (worker, "left")


def test_prompt_of_a_worker_is_answered_over_the_channel():
    @tool(approval=True)
    def pay(sum: str) -> str:
        """Pay."""
        return "paid"

    def desk(request):
        is_first = isinstance(request.messages[-1], UserMessage)
        return (
            reply("", call("pay", sum="5")) if is_first else request.messages[-1].calls[-1].output
        )

    made = Setup.of(Agent("desk", "Pay.", model=FunctionModel(desk), tools=[pay]))
    story = [Open(agent="desk", input="pay"), Wait(seconds=2), Approve(), Wait(seconds=2)]
    for wrong in ([], [KillWorker(at=1.0)], [KillWorker(worker=1, at=1.0)]):
        history = simulate(story, made, workers=2, faults=wrong)
        assert not history.skipped
        assert [history.said(run_id) for run_id in history.runs] == [["paid"]]


def test_result_of_a_run_is_known_to_a_scenario_whoever_drives_it():
    async def scenario(world: World) -> None:
        run_id = await world.open("echo", "hello")
        outcome = await world.result(run_id)
        assert outcome is not None
        assert outcome.output == "echo hello"
        await world.die()
        await world.say(run_id, "again")
        outcome = await world.result(run_id)
        await world.settle()
        assert (await world.read()).said(run_id) == ["echo hello", "echo again"]

    simulate(scenario, setup, workers=3)


@pytest.mark.parametrize("ends", [World.end, World.die])
def test_no_worker_runs_between_an_end_and_the_next_beginning(ends):
    async def scenario(world: World) -> None:
        run_id = await world.open("echo", "hello")
        held = await world.say(run_id, "held up")
        await ends(world)
        lives = world.lives
        await anyio.sleep(60)
        assert (world.lives, held.status) == (lives, "pending")
        await world.begin()
        await world.settle()
        assert (world.lives, held.status) == (lives + 3, "accepted")

    for seconds in (0.0, 5.0):
        wrong = [ChannelFault(kind="late", seconds=seconds)]
        simulate(scenario, setup, workers=2, faults=wrong)


def test_faults_of_every_other_kind_strike_workers_too():
    wrong = [
        ToolFault(kind="crash"), ToolFault(kind="late", call=2, seconds=2.0),
        ChannelFault(kind="duplicate"), ListenerFault(kind="raise"),
    ]  # fmt: skip
    history = simulate(STORY, setup, workers=2, faults=wrong)
    assert {"tool", "channel"} <= {each[0] for each in history.injected}
    assert any(life.end == "killed" or life.end == "crashed" for life in history.lives)


SETUP = setup()


@settings(max_examples=15, deadline=None)
@given(steps(SETUP, max_size=6), faults(SETUP, *WORKER_FAULTS, Crash, workers=3), seeds())
def test_whatever_happens_every_invariant_holds(story, wrong, seed):
    simulate(story, SETUP, workers=3, faults=wrong, seed=seed)


# ── what is seen of a store that is wrong ────────────────────────────────────────────────────


@pytest.mark.long
def test_store_that_takes_over_nothing_is_found(monkeypatch):
    monkeypatch.setattr(SharedMemory, "_set_free", lambda self, tree: setattr(tree, "owner", 0))
    wrong = [KillWorker(worker=n, at=0.2) for n in range(2)]
    with pytest.raises(SimulationFailed):
        simulate(STORY, setup, workers=2, faults=wrong)


def test_two_owners_of_a_tree_are_seen():
    assert not [*two_owners([("a", 1, 1), ("b", 1, 2), ("a", 2, 2), ("a", 2, 2)])]
    assert [*two_owners([("a", 1, 1), ("a", 1, 2)])]
    assert [*two_owners([("a", 2, 1), ("a", 1, 2)])]


@pytest.mark.parametrize("heard", [["b", "a"], ["a", "c"], ["x"], ["c", "c"], ["a", "b", "c", "d"]])
def test_process_that_has_heard_otherwise_is_seen(heard):
    assert [*misheard(["a", "b", "c"], heard)]
    assert not [*misheard(["a", "b", "c"], ["b", "c"])]


# ── what is refused, and what is printed ─────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": 0}, "workers: counts from 1"),
        ({"workers": True}, "workers: expected a whole number"),
        ({"workers": "3"}, "workers: expected a whole number"),
        ({"workers": 101}, "workers: at most 100"),
        ({"workers": 2, "store": "sqlite"}, "share 'memory'"),
        ({"workers": 2, "faults": [KillWorker(worker=2, at=1)]}, "no worker 2; there are 2"),
        ({"faults": [PauseWorker(at=1)]}, "write workers=2, or more"),
        ({"workers": 1, "faults": [CutWorker(at=1)]}, "write workers=2, or more"),
    ],
)
def test_what_could_mean_nothing_is_refused(arguments, words):
    with pytest.raises(BadValue, match=words):
        simulate(STORY, setup, **arguments)
    with pytest.raises(BadValue, match=words):
        World(setup(), **arguments)


@pytest.mark.parametrize("kind", WORKER_FAULTS)
@pytest.mark.parametrize("wrong", [{"worker": -1}, {"at": -1.0}, {"seconds": float("inf")}])
def test_mistyped_fault_is_refused(kind, wrong):
    with pytest.raises(BadValue, match=rf"{kind.__name__}\."):
        kind(**wrong)


def test_faults_of_workers_are_drawn_only_for_worlds_that_have_some():
    with pytest.raises(BadValue, match="give workers=2, or more"):
        faults(SETUP, KillWorker)
    with pytest.raises(BadValue, match="workers: counts from 1"):
        faults(SETUP, workers=0)


def test_line_that_plays_it_again_says_how_many_workers_there_were():
    def wrong(history):
        yield "always"

    with pytest.raises(SimulationFailed) as failed:
        simulate(
            STORY[:1], setup, workers=3, faults=[PauseWorker(worker=1, at=2.0)],
            invariants={"wrong": wrong},
        )  # fmt: skip
    assert "faults=[PauseWorker(worker=1, at=2.0)], workers=3" in failed.value.replay


# ── stopped tasks ────────────────────────────────────────────────────────────────────────────


def test_stopped_tasks_wait_while_others_run_and_lose_nothing():
    ticks: list[tuple[int, float]] = []

    async def live(stopped: StoppedTasks, number: int) -> None:
        async def tick() -> None:
            while True:
                await anyio.sleep(1)
                ticks.append((number, anyio.current_time()))

        with stopped.life(number):
            assert stopped.here() == number
            async with anyio.create_task_group() as group:
                group.start_soon(tick)

    async def main() -> None:
        stopped = StoppedTasks()
        assert stopped.here() is None
        async with anyio.create_task_group() as group:
            group.start_soon(live, stopped, 1)
            group.start_soon(live, stopped, 2)
            await anyio.sleep(2.5)
            stopped.stop(1)
            stopped.stop(1)
            assert stopped.is_stopped(1)
            await anyio.sleep(3)
            stopped.resume_all()
            stopped.resume(1)
            assert not stopped.is_stopped(1)
            await anyio.sleep(2)
            group.cancel_scope.cancel()

    run_seeded(main)
    mine, other = ([at for number, at in ticks if number == each] for each in (1, 2))
    assert mine[:4] == [1, 2, 5.5, 6.5]
    assert other[:7] == [1, 2, 3, 4, 5, 6, 7]


def test_code_that_waits_for_messages_is_at_rest():
    """Nothing is left to be done, and no beat of a lease is waited for any more."""

    @code_agent("waits", on_restart="resume")
    async def waits(input, ctx):
        async for message in ctx.messages():
            ctx.say(message.content)

    story = [Open(agent="waits", input="one"), Wait(seconds=1), Say(text="two")]
    history = simulate(story, lambda: Setup.of(waits), seed=3, workers=2)
    assert max(life.ended for life in history.lives) < 100
    said = [x.event.text for x in history.heard if x.event.type == "agent:text"]
    assert said == ["two"]


def test_a_retention_has_trees_go_beside_workers_that_die_and_never_by_the_channel():
    wrong = [KillWorker(worker=n, at=4.0 + n, seconds=5.0) for n in range(2)]
    made = structs.replace(setup(), options={"retention": Retention(silent=20, ended=10)})
    history = simulate([*STORY, Wait(seconds=90)], made, workers=2, faults=wrong)
    assert {tree.root_run_id for tree in history.gone} == {*history.runs}.difference(
        {history.events[-1].root_run_id}
    )
    assert {history.lives[tree.life].worker for tree in history.gone} <= {0, 1}
