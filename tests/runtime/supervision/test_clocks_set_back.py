"""A clock that is set back (NTP, a machine restored from a snapshot) while a store lives.

What is written later then has the earlier time: nothing may take that for damage, or for an order.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import Observer, echo_model, model_agent
from support.asked import Asked
from support.families import Recorder, answers, child, config, parent

from hubbub import RestorePolicy, RunState, Runtime, tool
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import LoopClock, virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = pytest.mark.anyio

HOUR = 3_600_000_000


class SetClock(LoopClock):
    """A clock that somebody sets."""

    offset = 0

    def now(self) -> int:
        return super().now() + self.offset


class Clocked:
    """Lives of one store, by a clock that is set between them or in their middle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: Ports = virtual_ports()
        self.clock = self.ports.clock = SetClock()

    def life(self, *agents: Any, **options: Any) -> Runtime:
        store = sqlite_store(self.folder, ports=self.ports)
        return Runtime(agents, store=store, ports=self.ports, grace=0, **options)

    def set_back(self) -> None:
        self.clock.offset -= HOUR

    @property
    def problems(self) -> list[str]:
        return [problem.text for problem in StoreCheck(f"sqlite:{self.folder}").problems()]


def exports(folder: Path) -> Iterator[list[bytes]]:
    with open_reader(f"sqlite:{folder}") as store:
        for run_id in store.roots():
            yield [*export_run(store, run_id)]


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.mark.spec("P-05", "P-10", "G-04", "G-08")
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("users", [(), ("ann", "ben")], ids=["a program", "and users"])
async def test_a_store_whose_clock_was_set_back_is_sound_and_goes_elsewhere(
    users: Sequence[str], is_restarted: bool, tmp_path: Path
) -> None:
    """A program's runs count for no user's recency, which is counted on from the store's."""
    lives = Clocked(tmp_path / "one")
    agents = [model_agent(echo_model())]
    async with lives.life(*agents) as rt:
        runs = [await rt.start("assistant", "hello", timeout=60.0 * 60 * 24)]
        runs += [await rt.start("assistant", "hi", session_key=f"web_x_{user}") for user in users]
        for run in runs:
            await run.result()
        lives.set_back()
        if not is_restarted:
            for run in runs:
                await run.send("again")
                await run.result()
    async with lives.life(*agents) as rt:
        if is_restarted:
            for run in runs:
                await rt.hub.send_to_run(run.run_id, "again")
                assert (await rt.result(run.run_id)).output == "echo: again"
    assert not lives.problems
    other = Clocked(tmp_path / "other")
    for lines in exports(lives.folder):
        import_runs(f"sqlite:{other.folder}", "x", lines, ports=other.ports)
    assert not [x for x in other.problems if "brought in line" not in x]
    assert [*exports(other.folder)] == [*exports(lives.folder)]
    async with other.life(*agents) as rt:
        for run in runs:
            await rt.hub.send_to_run(run.run_id, "there")
            assert (await rt.result(run.run_id)).output == "echo: there"
        newest = runs[-1:] if users else []
        assert [*await rt.hub.journal.find("user", "newest")] == [x.run_id for x in newest]


@pytest.mark.spec("T-09")
async def test_what_waited_at_a_context_only_boot_is_not_handled_whatever_its_time(
    tmp_path: Path,
) -> None:
    lives = Clocked(tmp_path)
    agents = [model_agent(echo_model(latency=100))]
    async with lives.life(*agents) as rt:
        run = await rt.start("assistant", "hello")
        await anyio.sleep(5)
        await run.send("before")
    lives.set_back()
    async with lives.life(*agents, restore=RestorePolicy.CONTEXT_ONLY) as rt:
        seen = Observer(rt.hub)
        rt.hub.send_to_run(run.run_id, "after")
        await anyio.sleep(500)
        assert (await rt.result(run.run_id)).output == "echo: hello, after"
        assert [x.message.content for x in seen.all("hub:dead_letter")] == ["before"]


@pytest.mark.spec("U-03")
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
async def test_what_is_said_after_a_child_asked_answers_it_whatever_its_time(
    is_restarted: bool, tmp_path: Path
) -> None:
    lives = Clocked(tmp_path)
    below = Recorder(call("pay", amount=1), call("finish", result="child is done"))
    main = Recorder(call("helper", message="Pay it."), "All done.")
    agents = [parent(main, config()), child(below, pay)]

    async def say(rt: Runtime, run_id: str) -> None:
        lives.set_back()
        await rt.hub.send_to_run(run_id, "Not so much!")
        with anyio.fail_after(10_000):
            assert (await rt.result(run_id)).output == "All done."

    async with lives.life(*agents) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        await asked.first()
        if not is_restarted:
            await say(rt, run.run_id)
    if is_restarted:
        async with lives.life(*agents) as rt:
            await say(rt, run.run_id)
    told = [(x.output, x.is_error) for x in answers(below.requests[-1])]
    assert told == [("not run: denied: Not so much!", True)]


@pytest.mark.parametrize("is_below", [False, True], ids=["itself", "a child"])
async def test_what_was_said_before_somebody_asked_answers_nothing_whatever_its_time(
    is_below: bool, tmp_path: Path
) -> None:
    lives = Clocked(tmp_path)

    @tool
    async def wonder(state: RunState) -> str:
        """Think for a minute, and ask."""
        await anyio.sleep(60)
        return await state.ask("Sure?")

    asking = Recorder(call("wonder"), call("finish", result="done") if is_below else "Done.", "Oh.")
    main = Recorder(call("helper", message="Go."), "Done.", "Oh.")
    agents = [parent(main, config()), child(asking, wonder)]
    if not is_below:
        agents = [model_agent(asking, wonder, name="main")]
    async with lives.life(*agents) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("main", "Go.")
        await anyio.sleep(30)
        await rt.hub.send_to_run(run.run_id, "By the way!")
        lives.set_back()
        await asked.first()
        await anyio.sleep(10)
        assert len(asking.requests) == 1
        await rt.hub.send_to_run(run.run_id, "Yes.")
        await anyio.sleep(10)
    assert [x.output for x in answers(asking.requests[1])] == ["Yes."]


@pytest.mark.spec("U-03")
async def test_the_time_for_an_answer_does_not_grow_over_a_restart(tmp_path: Path) -> None:
    lives = Clocked(tmp_path)

    @tool(approval=True, approval_timeout=600)
    async def buy(amount: int) -> str:
        """Buy."""
        return f"bought {amount}"

    model = Recorder(call("buy", amount=1), "Well then.")
    agents = [model_agent(model, buy)]
    async with lives.life(*agents) as rt:
        asked = Asked(rt.hub)
        run = await rt.start("assistant", "Buy.")
        await asked.first()
    lives.set_back()
    async with lives.life(*agents) as rt:
        await anyio.sleep(601)
        with anyio.fail_after(1):
            assert (await rt.result(run.run_id)).output == "Well then."
