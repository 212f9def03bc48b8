"""Which run a process has died of: the guilty one is found, and no other pays (P-10)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import anyio
import pytest
from support.agents import Observer, echo_model, model_agent
from support.crashes import KILLERS, WAITERS, WORKERS, Lives

from hubbub import AgentDefinition, RunContext, agent
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal

pytestmark = pytest.mark.anyio

MOST = 25
"""Lives that no test should need."""


@pytest.fixture
def lives(journal: Journal, ports: Ports) -> Lives:
    return Lives(journal, ports)


def everybody(*roles: dict[str, Any]) -> list[AgentDefinition]:
    """The agents of these roles, each once."""
    found = [each for role in roles for make in role.values() for each in make()]
    return list({each.name: each for each in found}.values())


async def begin(lives: Lives, agents: Sequence[AgentDefinition], *names: str) -> dict[str, str]:
    """A first life, in which a run of each agent begins; the last ones may kill it."""
    run_ids = {}
    async with lives.life(*agents) as rt:
        for name in names:
            run_ids[name] = rt.hub.open(name, "hello").run_id
            await anyio.sleep(5)
        with anyio.move_on_after(500):
            await lives.died.wait()
        lives.kill()
    return run_ids


async def live_on(lives: Lives, agents: Sequence[AgentDefinition]) -> None:
    """One life after the other, until a process lives on."""
    for _ in range(MOST):
        if not await lives.live(*agents, seconds=1_000):
            return
    raise AssertionError("every process has died")


# ── who waits ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("seconds", [0, 2, 30])
@pytest.mark.parametrize("name", WAITERS)
async def test_a_run_that_waits_outlives_any_number_of_deaths(
    name: str, seconds: float, lives: Lives
) -> None:
    agents = WAITERS[name]()
    run_ids = await begin(lives, agents, name)
    for _ in range(8):
        async with lives.life(*agents):
            await anyio.sleep(seconds)
            lives.kill()
    async with lives.life(*agents):
        await anyio.sleep(50)
    for run in await lives.journal.runs(live=False):
        assert await lives.failure(run.run_id) is None, run.agent
        assert run.status != "ended"
    assert run_ids


# ── who kills ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("kind", KILLERS)
@pytest.mark.parametrize("seconds", [0, 1, 60])
async def test_the_guilty_one_alone_is_found_after_its_third_death(
    kind: str, seconds: float, lives: Lives
) -> None:
    agents = KILLERS[kind]("killer", lives, seconds)
    run_ids = await begin(lives, agents, "killer")
    await live_on(lives, agents)
    assert lives.deaths == 3
    guilty = await guilty_of(lives)
    assert list(guilty) == ["killer-child" if kind == "child" else "killer"]
    assert run_ids["killer"]


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("kind", KILLERS)
@pytest.mark.parametrize("most", [2, 5])
async def test_after_how_many_deaths_a_run_is_given_up_is_an_argument(
    kind: str, most: int, lives: Lives
) -> None:
    agents = [*KILLERS[kind]("killer", lives, 1), *everybody(WORKERS)]
    async with lives.life(*agents, max_crashes=most) as rt:
        for name in ("killer", *WORKERS):
            rt.hub.open(name, "hello")
        await lives.died.wait()
    for _ in range(MOST):
        if not await lives.live(*agents, seconds=1_000, max_crashes=most):
            break
    assert lives.deaths == most
    failed = [await lives.failure(run.run_id) for run in await lives.journal.runs(live=False)]
    (failure,) = [each for each in failed if each is not None]
    assert f"died {most} times" in failure.error


async def guilty_of(lives: Lives) -> dict[str, str]:
    """The agents of the runs that have failed, and of what."""
    found = {}
    for run in await lives.journal.runs(live=False):
        failed = await lives.failure(run.run_id)
        if failed is not None:
            assert failed.error_type == "CrashLoop" and "died 3 times" in failed.error
            found[run.agent] = failed.error
    return found


@pytest.mark.spec("P-10")
@pytest.mark.parametrize("kind", KILLERS)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
async def test_the_guilty_one_among_many_is_found_after_its_third_death(
    kind: str, is_first: bool, lives: Lives
) -> None:
    killers = KILLERS[kind]("killer", lives, 100 if is_first else 0.5)
    agents = [*everybody(WAITERS, WORKERS), *killers]
    names = [*WAITERS, *WORKERS]
    names.insert(0 if is_first else len(names), "killer")
    await begin(lives, agents, *names)
    agents[-len(killers) :] = KILLERS[kind]("killer", lives, 0.5)
    await live_on(lives, agents)
    assert lives.deaths == 3
    assert list(await guilty_of(lives)) == ["killer-child" if kind == "child" else "killer"]


@pytest.mark.spec("P-10")
async def test_two_guilty_ones_are_found_one_after_the_other(lives: Lives) -> None:
    def agents(seconds: float) -> list[AgentDefinition]:
        both = [*KILLERS["tool"]("one", lives, seconds), *KILLERS["code"]("two", lives, seconds)]
        return [*everybody(WAITERS, WORKERS), *both]

    await begin(lives, agents(200), *WAITERS, "one", *WORKERS, "two")
    await live_on(lives, agents(0.5))
    assert lives.deaths == 4, "each twice with everybody, once by itself"
    assert sorted(await guilty_of(lives)) == ["one", "two"]


@pytest.mark.spec("P-10")
async def test_one_that_takes_its_time_is_found_among_others_that_do(lives: Lives) -> None:
    agents = [*everybody(WORKERS), *KILLERS["tool"]("killer", lives, 45)]
    await begin(lives, agents, *WORKERS, "killer")
    await live_on(lives, agents)
    assert lives.deaths < 10
    assert list(await guilty_of(lives)) == ["killer"]


@pytest.mark.spec("P-10")
async def test_one_that_gets_on_between_its_deaths_is_never_condemned(lives: Lives) -> None:
    @agent("persists", on_restart="resume")
    async def persists(input: Any, ctx: RunContext) -> str:
        for number in range(12):
            await ctx.step(f"{number}", int, number)
            if lives.deaths <= number:
                await lives.die(0.1)
        return "done"

    agents = [*everybody(WAITERS, WORKERS), persists]
    run_ids = await begin(lives, agents, *WAITERS, *WORKERS, "persists")
    await live_on(lives, agents)
    assert lives.deaths == 12 and not await guilty_of(lives)
    ended = [x for x in await lives.lane(run_ids["persists"]) if isinstance(x, e.AgentComplete)]
    assert ended[0].output == "done"


# ── one after another ────────────────────────────────────────────────────────────────────────


async def suspected(lives: Lives, agents: Sequence[AgentDefinition], *names: str) -> dict[str, str]:
    """Runs that were at work when their process died, twice."""
    run_ids = await begin(lives, agents, *names)
    async with lives.life(*agents):
        await anyio.sleep(1)
        lives.kill()
    return run_ids


def began(observer: Observer) -> dict[str, float]:
    """When runs were restored, in seconds."""
    return {x.run_id: x.at / 1e6 for x in observer.all("agent:restore")}


@pytest.mark.spec("P-10")
async def test_suspects_are_restored_one_after_another_and_others_first(lives: Lives) -> None:
    agents = everybody(WORKERS, {"echo": lambda: [model_agent(echo_model(3), name="echo")]})
    run_ids = await begin(lives, agents, *WORKERS)
    async with lives.life(*agents) as rt:
        other = rt.hub.open("echo", "hi").run_id
        await anyio.sleep(1)
        lives.kill()
    async with lives.life(*agents) as rt:
        seen, start = Observer(rt.hub), lives.ports.clock.now() / 1e6
        assert (await rt.hub.send_to_run(other, "more")).accepted
        await anyio.sleep(60)
        at = {run_id: at - start for run_id, at in began(seen).items()}
        assert at.pop(other, 0) < 0.1
        turns = sorted(at.values())
        assert len(turns) == len(WORKERS) and set(at) <= set(run_ids.values())
        assert turns[0] >= 2, "others first"
        assert [after - before for before, after in pairwise(turns)] == [
            pytest.approx(10, abs=0.1)
        ] * (len(turns) - 1)


@pytest.mark.spec("P-10")
async def test_the_next_suspect_comes_as_soon_as_the_one_before_has_got_on(lives: Lives) -> None:
    agents = [model_agent(echo_model(2), name=f"echo_{number}") for number in range(5)]
    run_ids: dict[str, str] = {}
    async with lives.life(*agents) as rt:
        for one in agents:
            run_ids[one.name] = rt.hub.open(one.name, "hi").run_id
        await anyio.sleep(1)
        lives.kill()
    async with lives.life(*agents):
        await anyio.sleep(1)
        lives.kill()
    async with lives.life(*agents) as rt:
        start = lives.ports.clock.now()
        for run_id in run_ids.values():
            assert (await rt.result(run_id)).output == "echo: hi"
        assert (lives.ports.clock.now() - start) / 1e6 == pytest.approx(10, abs=0.5)


@pytest.mark.spec("P-10", "H-07")
async def test_new_runs_start_at_once_and_what_is_sent_to_a_suspect_waits_for_its_turn(
    lives: Lives,
) -> None:
    agents = [*everybody(WORKERS), model_agent(echo_model(1), name="echo")]
    agents = [x for x in agents if x.name != "sleeps"]
    run_ids = await suspected(lives, agents, "thinks", "digs")
    async with lives.life(*agents) as rt:
        await anyio.sleep(1)
        (held,) = [x for x in run_ids.values() if not await was_restored(lives, x)]
        start = lives.ports.clock.now()
        assert (await rt.run("echo", "hi")).output == "echo: hi"
        assert (lives.ports.clock.now() - start) / 1e6 < 1.5
        length = len(await lives.lane(held))
        assert (await rt.hub.send_to_run(held, "are you there?")).accepted
        await anyio.sleep(1)
        assert len(await lives.lane(held)) == length
        await anyio.sleep(10)
        assert await was_restored(lives, held)
        info = await lives.journal.info(held)
        assert info is not None
        taken = [x for x in await lives.lane(held) if isinstance(x, e.SessionTaken)]
        assert info.waiting + len(taken) == 2, "it is taken, or waits behind an open call"


async def was_restored(lives: Lives, run_id: str) -> bool:
    return len(await lives.restores(run_id)) == 2


@pytest.mark.spec("P-10", "T-05", "S-10")
@pytest.mark.parametrize("how", ["terminated", "timed_out"])
async def test_a_suspect_can_be_ended_before_its_turn(how: str, lives: Lives) -> None:
    agents = everybody(WORKERS)
    run_ids = {}
    async with lives.life(*agents) as rt:
        for name in WORKERS:
            timeout = 14 if how == "timed_out" else None
            run_ids[name] = (await rt.start(name, "hello", timeout=timeout)).run_id
        await anyio.sleep(5)
        lives.kill()
    async with lives.life(*agents):
        await anyio.sleep(5)
        lives.kill()
    async with lives.life(*agents) as rt:
        await anyio.sleep(1)
        held = [x for x in run_ids.values() if not await was_restored(lives, x)]
        assert len(held) == len(WORKERS) - 1
        start = lives.ports.clock.now()
        for run_id in held:
            if how == "terminated":
                await rt.terminate(run_id)
            with anyio.fail_after(5):
                assert (await rt.finished(run_id)).outcome == how
            assert len(await lives.restores(run_id)) <= 2
        assert (lives.ports.clock.now() - start) / 1e6 < 4


@pytest.mark.spec("P-10", "R-16")
@pytest.mark.parametrize("name", [*WAITERS, *WORKERS])
async def test_leaving_in_order_counts_for_nobody_whatever_he_is_at(
    name: str, lives: Lives
) -> None:
    agents = everybody(WAITERS, WORKERS)
    await begin(lives, agents, name)
    for _ in range(2):
        async with lives.life(*agents):
            await anyio.sleep(1)
        async with lives.life(*agents):
            await anyio.sleep(1)
    async with lives.life(*agents):
        await anyio.sleep(1)
        lives.kill()
    for _ in range(5):
        async with lives.life(*agents):
            await anyio.sleep(30)
    assert not await guilty_of(lives)
