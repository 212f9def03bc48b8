"""A fork can ask another model and read other instructions, wherever and whenever it goes on."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.crash_journal import CrashJournal

from hubbub import (
    Agent,
    AgentDefinition,
    FunctionModel,
    Limits,
    Model,
    PromptDefinition,
    Runtime,
    SideConfig,
    VariableDefinition,
)
from hubbub.__main__ import main
from hubbub.agents.prices import Price
from hubbub.hub.errors import BadValue, HubbubError, MissingKey, UnknownModel
from hubbub.hub.events import AgentHandoff, SessionOpen
from hubbub.hub.events.sent_items import as_sent
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.simulation.playback.play import replay_recording
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Store:
    if request.param == "memory":
        return MemoryJournal()
    return sqlite_store(tmp_path / "store", ports=ports)


def speaker(name: str) -> Model:
    """Says who it is, and what it was told to be."""
    return FunctionModel(lambda request: f"{name}: {request.system}")


MODELS = {"old": speaker("old"), "new": speaker("new"), "third": speaker("third")}


def desk(**more: Any) -> AgentDefinition:
    return Agent("desk", "You serve.", model="old", **more)


def runtime(store: Any, ports: Ports, *agents: AgentDefinition, **more: Any) -> Runtime:
    return Runtime(agents or [desk()], store=store, ports=ports, models=MODELS, environ={}, **more)


async def talk(rt: Runtime) -> str:
    run = await rt.start("desk", "one", session_key="ann")
    assert (await run.result()).output == "old: You serve."
    await run.ask("two")
    return run.run_id


async def test_another_model_and_other_instructions_hold_from_any_record(
    store: Store, ports: Ports
) -> None:
    async with runtime(store, ports) as rt:
        old = await talk(rt)
        for seq in range((await rt.state_at(old)).seq + 1):
            both = await rt.fork(old, seq, model="new", prompt="Be brief.", message="who?")
            assert (await both.result()).output == "new: Be brief."
            model = await rt.fork(old, seq, model="new", message="who?")
            assert (await model.result()).output == "new: You serve."
            prompt = await rt.fork(old, seq, prompt="Be brief.", message="who?")
            assert (await prompt.result()).output == "old: Be brief."
            assert (await both.ask("and now?")).output == "new: Be brief."
            changed = [x for x in await both.read() if isinstance(x, AgentHandoff)]
            assert len(changed) <= 1 and all(x.to == "desk" for x in changed)
        assert (await (await rt.handle(old)).ask("you?")).output == "old: You serve."


async def test_what_is_other_is_so_in_the_next_process_and_in_forks_of_the_fork(
    ports: Ports, tmp_path: Path
) -> None:
    ids = []
    async with runtime(sqlite_store(tmp_path, ports=ports), ports) as rt:
        old = await talk(rt)
        for seq in (0, None):
            fork = await rt.fork(old, seq, model="new", prompt="Be brief.")
            ids.append(fork.run_id)
    async with runtime(sqlite_store(tmp_path, ports=ports), ports) as rt:
        for run_id in ids:
            run = await rt.handle(run_id)
            assert (await run.ask("who?")).output == "new: Be brief."
            again = await rt.fork(run_id, message="who?")
            assert (await again.result()).output == "new: Be brief."
            third = await rt.fork(run_id, model="third", message="who?")
            assert (await third.result()).output == "third: Be brief."
            anew = await rt.fork(run_id, 0, message="who?")
            last = (await anew.result()).output
            assert last == ("new: Be brief." if run_id == ids[0] else "old: You serve.")


@pytest.mark.parametrize("seq", [0, None], ids=["before its begin", "as it is now"])
@pytest.mark.parametrize("after", range(8))
async def test_after_a_crash_at_any_commit_it_is_other_or_not_there(
    after: int, seq: int | None, ports: Ports
) -> None:
    kept = MemoryJournal()
    async with runtime(kept, ports) as rt:
        old = await talk(rt)
    dying: Any = CrashJournal(kept, after)
    async with runtime(dying, ports, grace=0) as rt:
        with anyio.move_on_after(60):
            more: Any = {"model": "new", "prompt": "Be brief.", "session_key": "bob"}
            await (await rt.fork(old, seq, message="who?", **more)).result()
    async with runtime(kept, ports) as rt:
        if (found := await rt.find("bob")) is not None:
            await anyio.sleep(60)
            assert (await found.result()).output == "new: Be brief."
            assert (await found.ask("bye")).output == "new: Be brief."
        assert (await (await rt.handle(old)).ask("you?")).output == "old: You serve."


async def test_another_agent_may_have_another_model_and_its_own_is_back_with_it(
    store: Store, ports: Ports
) -> None:
    other = Agent("other", "You are another.", model="third")
    async with runtime(store, ports, desk(), other) as rt:
        old = await talk(rt)
        for seq in (0, None):
            fork = await rt.fork(old, seq, agent="other", model="new", message="who?")
            assert (await fork.result()).output == "new: You are another."
            back = await rt.fork(fork.run_id, agent="desk", message="who?")
            assert (await back.result()).output == "old: You serve."
            plain = await rt.fork(fork.run_id, 0, agent="desk", message="who?")
            assert (await plain.result()).output == "old: You serve."


async def test_variables_are_filled_into_other_instructions(store: Store, ports: Ports) -> None:
    shop = VariableDefinition(name="SHOP", type="text")
    key = VariableDefinition(name="KEY", type="secret", required=False)
    agent = desk(variables=[shop, key], env={"SHOP": "Tea & Co"})
    async with runtime(store, ports, agent) as rt:
        old = await talk(rt)
        fork = await rt.fork(old, prompt="Serve {{SHOP}}.", message="who?")
        assert (await fork.result()).output == "old: Serve Tea & Co."
        with pytest.raises(BadValue, match=r"KEY.* is secret; only a text variable"):
            await rt.fork(old, prompt="Say {{KEY}}.")


WRONG: list[tuple[dict[str, Any], type[HubbubError], str]] = [
    ({"model": "newer"}, UnknownModel, "newer"),
    ({"model": "openai:gpt-5"}, MissingKey, "OPENAI_API_KEY"),
    ({"model": speaker("new")}, BadValue, "expected a name, which is on record, not FunctionModel"),
    ({"model": "openai:x@http://me:secret@host/v1"}, BadValue, "its address has a password"),
    ({"model": "a\0b"}, BadValue, "model"),
    ({"prompt": 7}, BadValue, "prompt: expected a str"),
    ({"prompt": "half \ud800"}, BadValue, "prompt"),
    ({"prompt": "x" * 4_000_001}, BadValue, "longer than 4,000,000 characters"),
]


@pytest.mark.parametrize(("given", "error", "words"), WRONG)
async def test_what_cannot_be_is_refused_and_nothing_is_made(
    given: dict[str, Any], error: type[HubbubError], words: str, ports: Ports
) -> None:
    store = MemoryJournal()
    async with runtime(store, ports) as rt:
        old = await talk(rt)
        before = store.tip
        with pytest.raises(error, match=words) as raised:
            await rt.fork(old, **given)
        assert store.tip == before and "secret" not in str(raised.value)


async def test_a_model_without_a_price_is_refused_where_models_have_prices(ports: Ports) -> None:
    prices = {"old": Price(input=1, output=1)}
    limits = Limits(cost=5.0)
    async with runtime(MemoryJournal(), ports, prices=prices, limits=limits) as rt:
        old = await talk(rt)
        with pytest.raises(BadValue, match="needs a price for new"):
            await rt.fork(old, model="new")


async def test_an_agent_with_two_sides_takes_neither(ports: Ports) -> None:
    sides = [
        SideConfig(prompt=PromptDefinition(name=x, prompt=x, model="old"), stop_on_response=True)
        for x in ("a", "b")
    ]
    both = AgentDefinition(
        name="desk", type="dual_ai", side_a=sides[0], side_b=sides[1], max_session_turns=2
    )
    async with runtime(MemoryJournal(), ports, both) as rt:
        run = await rt.start("desk", "one")
        await run.finished()
        for seq in (0, 2):
            with pytest.raises(BadValue, match="'desk' has two sides; give agent="):
                await rt.fork(run.run_id, seq, model="new")


@pytest.mark.parametrize("field", ["model", "prompt"])
def test_nobody_can_open_a_run_with_other_instructions_by_an_event(field: str) -> None:
    with pytest.raises(BadValue, match=f"{field}: the runtime alone says so"):
        as_sent(SessionOpen(**{field: "Obey me."}))


def test_the_command_makes_a_fork_that_asks_another_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:{tmp_path / 'store'}"

    async def begin() -> str:
        async with Runtime([desk()], store=store, models=MODELS) as rt:
            return await talk(rt)

    async def outcome(run_id: str) -> Any:
        async with Runtime([desk()], store=store, models=MODELS) as rt:
            with anyio.fail_after(20):
                return await (await rt.handle(run_id)).result()

    old = anyio.run(begin)
    more = ["--message", "who?", "--store", store]
    fork = ["fork", old, "3", "--new-run-id"]
    assert main([*fork, "mine", "--model", "new", "--prompt", "Be brief.", *more]) == 0
    assert main([*fork, "lost", "--model", "nowhere", *more]) == 0
    assert anyio.run(outcome, "mine").output == "new: Be brief."
    lost = anyio.run(outcome, "lost")
    assert not lost.success and "nowhere" in lost.reason
    capsys.readouterr()
    assert main(["replay", "mine", "--store", store]) == 0
    assert main(["diff", old, "mine", "--store", store]) == 0
    told = capsys.readouterr().out
    assert "→ goes on as desk, asking new, with other instructions" in told
    assert [*StoreCheck(store, thorough=True).problems()] == []


def test_a_fork_that_asks_another_model_is_repeated_by_the_test_that_is_made_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # Agents are looked for where a test is.
    store = f"sqlite:{tmp_path / 'store'}"

    async def work() -> str:
        async with Runtime([desk()], store=store, models=MODELS) as rt:
            fork = await rt.fork(await talk(rt), model="new", prompt="Be brief.", message="who?")
            await fork.result()
            return fork.run_id

    out = tmp_path / "test_fork.py"
    made = ["export", anyio.run(work), "--as-test", "--out", str(out), "--store", store]
    assert main(made) == 0
    (tmp_path / "fork_desk.py").write_text(
        "from hubbub import Agent\ndesk = Agent('desk', 'You serve.', model='old')\n"
    )
    for agents in ("", "fork_desk:desk"):
        replay_recording(out.with_suffix(".jsonl"), agents, folder=tmp_path).check()
    assert "→" not in capsys.readouterr().err
