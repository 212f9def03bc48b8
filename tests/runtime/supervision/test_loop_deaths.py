"""A run whose loop dies, wherever it stands, begins again or fails; nobody waits without end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import AgentDefinition, PromptDefinition, RunContext, Runtime, SideConfig, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelReply, ModelRequest, UserMessage
from hubbub.hub.errors import CallerError, OperatorError
from hubbub.hub.events import HubErrorEvent, SessionClose, SessionTaken
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit, Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.kernel.mailbox import Mailbox
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.runs import code_run, model_run
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

SIGNALS = ("Taken", "ModelReplied", "ToolFinished", "Concluded", "Parked")
"""What each run here meets; ``Concluded`` ends a session where a child's result is due."""


@pytest.fixture(params=["memory", "late", "later", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Journal:
    match request.param:
        case "memory":
            return MemoryJournal()
        case "late":
            return LateJournal(MemoryJournal())
        case "later":
            return LateJournal(MemoryJournal(), turns=7)
        case _:
            return sqlite_store(tmp_path / "store", ports=ports)


@tool(idempotent=True)
async def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


def answer(request: ModelRequest) -> ModelReply | str:
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return reply("", call("look", where=last.content))
    return "done"


def bot() -> AgentDefinition:
    prompt = PromptDefinition(name="bot", prompt="", model=FunctionModel(answer), tools=[look])
    return AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))


def flawed(
    real: Callable[..., Any], times: int, applies: Callable[..., bool] = lambda *_: True
) -> Callable[..., Any]:
    """``real``, which raises the first few times that it is called with such arguments."""
    left = times

    def call(*args: Any, **options: Any) -> Any:
        nonlocal left
        if left and applies(*args):
            left -= 1
            raise OSError("injected")
        return real(*args, **options)

    return call


@pytest.mark.spec("T-12", "G-07")
@pytest.mark.parametrize("times", [1, 3, 99])
@pytest.mark.parametrize("signal", SIGNALS)
async def test_a_run_whose_loop_dies_at_any_signal_has_an_outcome(
    store: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch, signal: str, times: int
) -> None:
    def applies(_thread: Any, met: Any, *_rest: Any) -> bool:
        return type(met).__name__ == signal

    monkeypatch.setattr(model_run, "interpret", flawed(model_run.interpret, times, applies))
    async with Runtime([bot()], store=store, ports=ports) as rt:
        with anyio.fail_after(1000):
            run = await rt.start("bot", "here", once=signal == "Concluded")
            await has_outcome(run.result, is_fine=times <= 3)
            if times <= 3:
                await has_outcome((await rt.start("bot", "there")).result, is_fine=True)
            await has_outcome(lambda: rt.run("bot", "now"), is_fine=times <= 3)


async def has_outcome(ask: Callable[[], Any], *, is_fine: bool) -> None:
    """``ask`` comes back: with what was to come out, or, where it may, with what went wrong."""
    if is_fine:
        outcome = await ask()
        assert (outcome.outcome, outcome.output) == ("completed", "done"), outcome
        return
    try:
        await ask()
    except OperatorError as error:
        words = str(error)
    else:
        words = "injected"
    assert "injected" in words


@pytest.mark.spec("T-12")
@pytest.mark.parametrize("name", ["decide", "fold_all"])
async def test_a_run_whose_loop_dies_in_any_part_of_the_core_begins_again(
    store: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with Runtime([bot()], store=store, ports=ports) as rt:
        monkeypatch.setattr(model_run, name, flawed(getattr(model_run, name), 2))
        with anyio.fail_after(1000):
            await has_outcome((await rt.start("bot", "here")).result, is_fine=True)
            await has_outcome((await rt.start("bot", "there")).result, is_fine=True)


@pytest.mark.spec("T-12", "P-15")
async def test_a_code_run_that_cannot_take_an_item_begins_again_and_stops_nobody(
    store: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    @agent("code", on_restart="resume")
    async def code(input: str, ctx: RunContext) -> list[str]:
        return [message.content async for message in ctx.messages()]

    async with Runtime([code, bot()], store=store, ports=ports) as rt:
        run = await rt.start("code", "x")
        other = await rt.start("code", "x")
        await run.send("one")
        monkeypatch.setattr(code_run, "fold_code", flawed(code_run.fold_code, 1, takes_a_close))
        with anyio.fail_after(1000):
            rt.hub.close_run(run.run_id)
            rt.hub.close_run(other.run_id)
            assert (await run.finished()).output == ["one"]
            assert (await other.finished()).output == []
            await has_outcome((await rt.start("bot", "there")).result, is_fine=True)


@pytest.mark.spec("T-12", "G-07")
@pytest.mark.parametrize("times", [1, 99])
async def test_a_run_that_cannot_be_put_into_memory_has_an_outcome(
    store: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    async with Runtime([bot()], store=store, ports=ports) as rt:
        with monkeypatch.context() as patch, anyio.fail_after(1000):
            patch.setattr(Mailbox, "put", flawed(Mailbox.put, times))
            run = await rt.start("bot", "here")
            await has_outcome(run.result, is_fine=times == 1)
        await has_outcome((await rt.start("bot", "there")).result, is_fine=True)


@pytest.mark.spec("T-12", "G-07")
async def test_a_run_whose_mailbox_fails_keeps_neither_its_sender_nor_its_caller(
    store: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runtime([bot()], store=store, ports=ports) as rt:
        run = await rt.start("bot", "here")
        with monkeypatch.context() as patch, anyio.fail_after(1000):
            patch.setattr(Mailbox, "put", flawed(Mailbox.put, 1))
            assert (await run.send("there")).accepted
            await has_outcome(run.result, is_fine=False)


def takes_a_close(_thread: Any, event: Any) -> bool:
    return isinstance(event, SessionTaken) and isinstance(event.items[0], SessionClose)


class Conflicting(MemoryJournal):
    """Refuses some of what owners of runs write, as a store does that knows better."""

    def __init__(self, which: Callable[[Commit], bool]) -> None:
        super().__init__()
        self._which = which

    def submit(self, commit: Commit) -> None:
        if commit.run_id and self._which(commit):
            commit.taken = (*commit.taken, 1_000_000)
        super().submit(commit)


@pytest.mark.spec("T-12", "G-07")
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("is_late", [False, True])
async def test_a_run_whose_record_is_refused_begins_again_from_the_journal(
    ports: Ports, number: int, is_late: bool
) -> None:
    count = 0

    def which(_commit: Commit) -> bool:
        nonlocal count
        count += 1
        return count == number + 1

    store = Conflicting(which)
    async with Runtime([bot()], store=LateJournal(store) if is_late else store, ports=ports) as rt:
        with anyio.fail_after(1000):
            await has_outcome((await rt.start("bot", "here")).result, is_fine=True)
    assert count > number


@pytest.mark.spec("T-12", "G-07")
async def test_a_run_whose_every_record_is_refused_is_told_of_and_nobody_waits_for_it(
    ports: Ports,
) -> None:
    told: list[HubErrorEvent] = []
    async with Runtime([bot()], store=Conflicting(lambda _: True), ports=ports) as rt:
        rt.hub.subscribe("hub:error", told.append)
        with anyio.fail_after(1000):
            run = await rt.start("bot", "here")
            with pytest.raises(Exception, match="conflict"):
                await run.result()
    assert [x.run_id for x in told] == [run.run_id]


async def test_a_run_that_begins_before_its_opening_is_refused_leaves_nothing_behind(
    ports: Ports,
) -> None:
    class Closed(MemoryJournal):
        def submit(self, commit: Commit) -> None:
            if not commit.run_id and commit.deliveries:
                commit.error = "it cannot be written"
                if commit.done is not None:
                    commit.done(commit)
                return
            super().submit(commit)

    told: list[HubErrorEvent] = []
    async with Runtime([bot()], store=LateJournal(Closed()), ports=ports) as rt:
        rt.hub.subscribe("hub:error", told.append)
        with pytest.raises(CallerError):
            await rt.start("bot", "here")
        await anyio.sleep(10)
        assert rt.hub.statistics().live == 0
        assert rt.runs.in_memory == ()
    assert len(told) == 1
