"""What holds over a restart, on the store that ships: left in order, or killed (R-16, P-10)."""

import shutil
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs
from support.agents import assert_one_life, echo_model, model_agent
from support.families import Recorder, answers, child, config, heard, only, parent
from support.restarts import Lives, last_outcome

from hubbub import (
    AgentDefinition,
    Message,
    PromptDefinition,
    Resumable,
    RunContext,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
    VariableDefinition,
    agent,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.agents.state.family import FAILURE, RESULT
from hubbub.hub import events as e
from hubbub.hub.errors import Closed, LimitExceeded, ModelRefused, VariablesRefused
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader

pytestmark = pytest.mark.anyio

SECRET = "planted-4be1c2f7"


@pytest.fixture(params=["left", "killed"])
def lives(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Lives:
    return Lives(tmp_path, ports, is_killed=request.param == "killed")


def names(events: Iterable[Event]) -> list[tuple[str, str, int]]:
    return [(x.run_id, x.lane, x.seq) for x in events]


async def own_lane(rt: Runtime, run_id: str) -> list[Any]:
    return [x for x in await rt.hub.read(run_id) if x.lane == "own"]


def bot(latency: float = 1) -> AgentDefinition:
    return model_agent(echo_model(latency))


# ── H-06: cursors ────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-06")
async def test_a_cursor_taken_before_a_restart_goes_on_after_it(lives: Lives) -> None:
    async with lives.life(bot()) as rt:
        run_id = (await rt.start("assistant", "one")).run_id
        await last_outcome(rt, run_id)
        cursor = rt.hub.cursor((await rt.hub.read(run_id))[3])
        rest = await rt.hub.read(run_id, after=cursor)
        assert rest
    async with lives.life(bot()) as rt:
        assert await rt.hub.read(run_id, after=cursor) == rest
        async with rt.hub.subscribe("*", run_id=run_id, after=cursor) as events:
            rt.hub.send_to_run(run_id, "two")
            got = []
            async for event in events:
                if event.lane in ("own", "in"):
                    got.append(event)
                if event.type == "agent:park" and event.seq > rest[-1].seq:
                    break
        assert "hub:gap" not in lives.seen.types(run_id)
        assert names(got) == names(await rt.hub.read(run_id, after=cursor))
        assert names(got)[: len(rest)] == names(rest)


@pytest.mark.spec("H-06")
async def test_a_cursor_that_an_older_copy_of_the_store_never_had_begins_with_a_gap(
    tmp_path: Path, ports: Ports
) -> None:
    lives = Lives(tmp_path, ports)
    async with lives.life(bot()) as rt:
        run_id = (await rt.start("assistant", "one")).run_id
        await last_outcome(rt, run_id)
        backup = lives.copy()
        await rt.hub.send_to_run(run_id, "two")
        await last_outcome(rt, run_id)
        cursor = rt.hub.cursor((await rt.hub.read(run_id))[-1])
    older = Lives(tmp_path / "older", ports)
    shutil.copytree(backup, older.folder)
    async with (
        older.life(bot()) as rt,
        rt.hub.subscribe("*", run_id=run_id, after=cursor) as events,
    ):
        async for event in events:
            assert isinstance(event, e.HubGap)
            break


# ── H-07, H-09: what was accepted, and under which key ───────────────────────────────────────


@pytest.mark.spec("H-07", "T-02", "P-10")
async def test_what_was_accepted_before_is_handled_after_once_and_in_order(lives: Lives) -> None:
    async with lives.life(bot(100)) as rt:
        run_id = (await rt.start("assistant", "0")).run_id
        await anyio.sleep(5)
        for number in range(1, 6):
            assert (await rt.hub.send_to_run(run_id, str(number))).accepted
    model = Recorder("first", "second")
    async with lives.life(model_agent(model)) as rt:
        rt.hub.send_to_run(run_id, "6")
        assert (await last_outcome(rt, run_id)).success
    assert heard(model.requests[-1]) == list("0123456")


@pytest.mark.spec("H-07", "P-15")
async def test_a_code_agent_gets_what_waited_for_it_in_order(lives: Lives) -> None:
    got: list[tuple[str, bool]] = []

    @agent("reader", on_restart="resume")
    async def reader(input: str, ctx: RunContext) -> None:
        async for message in ctx.messages():
            got.append((message.content, message.redelivered))
            if message.content == "b":
                await anyio.sleep(100)

    async with lives.life(reader) as rt:
        run_id = (await rt.start("reader")).run_id
        for content in "abcd":
            await rt.hub.send_to_run(run_id, content)
        await anyio.sleep(5)
    assert got == [("a", False), ("b", False)]
    got.clear()
    async with lives.life(reader) as rt:
        await rt.hub.send_to_run(run_id, "e")
        rt.hub.close_run(run_id)
        with anyio.fail_after(1000):
            assert (await rt.finished(run_id)).success
    assert [content for content, _ in got] == list("abcde")
    assert got[0][1] and not any(again for _, again in got[2:])


@pytest.mark.spec("H-09")
@pytest.mark.parametrize("state", ["parked", "at work", "waiting in the inbox"])
async def test_a_key_used_before_is_used_after(state: str, lives: Lives) -> None:
    async with lives.life(bot(0 if state == "parked" else 100)) as rt:
        run_id = (await rt.start("assistant", "hello")).run_id
        if state == "waiting in the inbox":
            await anyio.sleep(5)
        first = await rt.hub.send_to_run(run_id, Message("pay", key="k"), source="shop")
        assert first.accepted
        if state == "parked":
            await last_outcome(rt, run_id)
        else:
            await anyio.sleep(5)
    model = Recorder("one", "two", "three")
    async with lives.life(model_agent(model)) as rt:
        for _ in range(2):
            again = await rt.hub.send_to_run(run_id, Message("pay", key="k"), source="shop")
            assert again.duplicate
        other = await rt.hub.send_to_run(run_id, Message("pay twice", key="k"), source="shop")
        assert (other.status, other.reason) == ("rejected", "key reused")
        await last_outcome(rt, run_id)
        elsewhere = await rt.hub.send_to_run(run_id, Message("more", key="k"), source="bank")
        assert elsewhere.accepted, "a key is its source's own"
        await last_outcome(rt, run_id)
    assert [x for x in heard(model.requests[-1]) if x != "hello"] == ["pay", "more"]


@pytest.mark.spec("H-09", "R-09")
async def test_an_opening_repeated_after_a_restart_opens_nothing(lives: Lives) -> None:
    async with lives.life(bot(100)) as rt:
        receipt = rt.hub.open("assistant", "hello", run_id="chosen-by-the-channel")
        assert (await receipt).accepted
    async with lives.life(bot()) as rt:
        again = await rt.hub.open("assistant", "hello", run_id="chosen-by-the-channel")
        assert again.duplicate
        await last_outcome(rt, again.run_id)
        opened = [x for x in await rt.hub.read(again.run_id) if x.type == "session:open"]
        assert len(opened) == 1


# ── R-16: leaving in the middle ──────────────────────────────────────────────────────────────


async def answer(rt: Runtime, prompt_id: str, content: str) -> None:
    """Reply to a prompt as soon as the run that asked is back."""
    for _ in range(60):
        if (await rt.hub.reply(prompt_id, content)).accepted:
            return
        await anyio.sleep(1)
    pytest.fail("it never came back")


@pytest.mark.spec("R-16")
async def test_leaving_ends_no_run_tells_who_waits_and_the_next_boot_goes_on(
    lives: Lives, eventually: Callable[[Callable[[], bool]], Any]
) -> None:
    @agent("asker", on_restart="resume")
    async def asker(input: str, ctx: RunContext) -> str:
        return await ctx.ask("Really?")

    told: list[str] = []

    async def wait(name: str, what: Any) -> None:
        try:
            await what
        except Closed:
            told.append(name)

    async with anyio.create_task_group() as tasks:
        async with lives.life(bot(100), asker) as rt:
            run_id = (await rt.start("assistant", "hello")).run_id
            asking = (await rt.start("asker", "x")).run_id
            tasks.start_soon(wait, "result", rt.result(run_id))
            tasks.start_soon(wait, "finished", rt.finished(asking))
            tasks.start_soon(wait, "ask", rt.hub.ask("user", "Anybody?"))
            tasks.start_soon(wait, "run", rt.run("assistant", "one question"))
            await anyio.sleep(5)
            seen = lives.seen
        assert not seen.all("agent:complete") and not seen.all("agent:failed")
    assert sorted(told) == ["ask", "finished", "result", "run"]
    async with lives.life(bot(), asker) as rt:
        live = await rt.hub.journal.runs()
        assert len(live) == 3
        assert (await last_outcome(rt, run_id)).output == "echo: hello"
        (prompt,) = [x for x in seen.all("session:prompt") if x.run_id == asking]
        await answer(rt, prompt.prompt_id, "yes")
        assert (await last_outcome(rt, asking)).output == "yes"
        asked = only(live, lambda info: info.run_id not in (run_id, asking))
        assert (await last_outcome(rt, asked.run_id)).output == "echo: one question"
        for info in live:
            lane = await own_lane(rt, info.run_id)
            assert [x.type for x in lane].count("agent:start") == 1


# ── T-02, T-03, T-04: parked runs ────────────────────────────────────────────────────────────


def speaker(model: Any) -> AgentDefinition:
    @tool(idempotent=True)
    async def look(state: RunState) -> str:
        await state.files.write("seen.txt", "x")
        await state.kv.set("seen", [1, 2])
        return "a tree"

    return model_agent(model, look)


def script() -> Recorder:
    return Recorder(reply("Let me see.", call("look")), "A tree.", call("look"), "Again.", "Yes.")


async def hear_the_rest(rt: Runtime, run_id: str) -> None:
    for content in ("And now?", "Sure?"):
        await rt.hub.send_to_run(run_id, content)
        await last_outcome(rt, run_id)


@pytest.mark.spec("T-04", "P-11")
async def test_a_parked_run_comes_back_with_the_same_context(lives: Lives, ports: Ports) -> None:
    unbroken = script()
    async with Runtime([speaker(unbroken)], store="memory", ports=ports) as rt:
        run = await rt.start("assistant", "What is there?")
        await run.result()
        await hear_the_rest(rt, run.run_id)
    before, after = script(), script()
    async with lives.life(speaker(before)) as rt:
        run_id = (await rt.start("assistant", "What is there?")).run_id
        await last_outcome(rt, run_id)
    async with lives.life(speaker(after)) as rt:
        await anyio.sleep(100)
        assert rt.runs.in_memory == (), "a parked run is not even read"
        await hear_the_rest(rt, run_id)
        await anyio.sleep(1)
        assert rt.runs.in_memory == ()
    asked = [*before.requests, *after.requests]
    # The run's id is in the key by which a provider finds what it has read before.
    assert {each.cache_key for each in asked} == {f"{run_id}:side_a"}
    key = unbroken.requests[0].cache_key
    assert [structs.replace(each, cache_key=key) for each in asked] == unbroken.requests


@pytest.mark.spec("T-03", "T-02")
async def test_mail_that_a_parked_run_got_as_its_runtime_was_left_wakes_it(lives: Lives) -> None:
    async with lives.life(bot(0)) as rt:
        run_id = (await rt.start("assistant", "hello")).run_id
        await last_outcome(rt, run_id)
        rt.runs.stop()
        rt.phase.is_leaving = True
        for content in ("a", "b", "c"):
            assert (await rt.hub.send_to_run(run_id, content)).accepted
    model = Recorder("hello", "for all three", "never")
    async with lives.life(model_agent(model)) as rt:
        assert (await last_outcome(rt, run_id)).output == "for all three"
    assert len(model.requests) == 1, "what waited makes one turn"
    assert heard(model.requests[0]) == ["hello", "a", "b", "c"]


@pytest.mark.spec("T-01", "T-07", "T-04")
async def test_files_and_values_survive(lives: Lives) -> None:
    found: list[Any] = []

    @tool
    async def look(state: RunState) -> str:
        found.append(await state.files.read("seen.txt"))
        found.append(state.kv.get("seen"))
        await state.files.delete("seen.txt")
        return "looked"

    async with lives.life(speaker(script())) as rt:
        run_id = (await rt.start("assistant", "What is there?")).run_id
        await last_outcome(rt, run_id)
    for _ in range(2):
        model = Recorder("", "", call("look"), "done", call("look"), "done")
        async with lives.life(model_agent(model, look)) as rt:
            await rt.hub.send_to_run(run_id, "look")
            await last_outcome(rt, run_id)
    assert len(found) == 2 and found[1] == [1, 2]
    assert found[0] in ("x", b"x")
    (gone,) = [x for x in answers(model.requests[-1]) if x.name == "look" and x.is_error]
    assert "seen.txt" in gone.output


# ── T-09, T-12 ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-09", "T-05")
async def test_what_waits_for_a_run_that_is_being_terminated_becomes_one_letter_each(
    tmp_path: Path, ports: Ports
) -> None:
    lives = Lives(tmp_path, ports, is_killed=True)
    async with lives.life(bot(100)) as rt:
        run_id = (await rt.start("assistant", "hello")).run_id
        await anyio.sleep(5)
        for content in ("a", "b"):
            await rt.hub.send_to_run(run_id, content)
        rt.hub.set_owner(None)  # Nobody is told of it any more: the process dies here.
        assert (await rt.hub.terminate(run_id, "enough")).accepted
        assert (await rt.hub.send_to_run(run_id, "c")).reason == "terminated"
    async with lives.life(bot()) as rt:
        with anyio.fail_after(1000):
            assert (await rt.finished(run_id)).outcome == "terminated"
        letters = [(x.reason, x.message.content) for x in lives.seen.all("hub:dead_letter")]
        assert letters == [("terminated", "a"), ("terminated", "b")]
        assert_one_life(await own_lane(rt, run_id), run_id)
    async with lives.life(bot()) as rt:
        await anyio.sleep(10)
        assert not lives.seen.all("hub:dead_letter"), "told once"
        assert (await rt.hub.send_to_run(run_id, "d")).rejected


@pytest.mark.spec("T-12", "M-03")
async def test_a_message_whose_handling_fails_ends_its_turn_only(lives: Lives) -> None:
    def choose(request: ModelRequest) -> str:
        if heard(request)[-1] == "bad":
            raise ModelRefused("scripted", "a message", "no")
        return f"fine: {heard(request)[-1]}"

    async with lives.life(model_agent(FunctionModel(choose, latency=100))) as rt:
        run_id = (await rt.start("assistant", "bad")).run_id
        await anyio.sleep(5)
        await rt.hub.send_to_run(run_id, "good")
        await anyio.sleep(5)
    async with lives.life(model_agent(FunctionModel(choose, latency=0))) as rt:
        assert (await last_outcome(rt, run_id)).output == "fine: good"
        await rt.hub.send_to_run(run_id, "bad")
        assert not (await last_outcome(rt, run_id)).success
    async with lives.life(model_agent(FunctionModel(choose, latency=0))) as rt:
        await rt.hub.send_to_run(run_id, "better")
        assert (await last_outcome(rt, run_id)).output == "fine: better"


# ── C-10: a child's result, exactly once ─────────────────────────────────────────────────────


def mode(blocking: bool, stays: bool) -> Any:
    return pytest.param(
        blocking, stays,
        id=f"{'blocking' if blocking else 'free'}-{'stays' if stays else 'once'}",
    )  # fmt: skip


MODES = [mode(blocking, stays) for blocking in (True, False) for stays in (True, False)]


def delegate(stays: bool) -> Any:
    if stays:
        return call("subagent_create", agent="helper", name="Ada", arguments={"message": "Go."})
    return call("helper", message="Go.")


def told_of(request: ModelRequest, text: str) -> list[str]:
    """Where a model reads ``text``: in results of calls, and in what it is told."""
    said = [x.output for x in answers(request)] + heard(request)
    return [x for x in said if text in x]


@pytest.mark.spec("C-10", "C-11", "C-18")
@pytest.mark.parametrize(("blocking", "stays"), MODES)
@pytest.mark.parametrize(
    ("of_parent", "of_child", "at"),
    [
        pytest.param(0, 100, 50, id="child at work"),
        pytest.param(60, 100, 130, id="child ended, parent at work"),
        pytest.param(60, 10, 65, id="both at work"),
        pytest.param(0, 0, 50, id="all is told"),
    ],
)
async def test_a_child_s_result_reaches_its_parent_once(
    blocking: bool, stays: bool, of_parent: float, of_child: float, at: float, lives: Lives
) -> None:
    def agents(boss: Recorder, latency: float) -> list[AgentDefinition]:
        work = Recorder(call("finish", result="the fruit"), latency=latency)
        return [parent(boss, config(blocking=blocking, stays=stays)), child(work)]

    boss = Recorder(delegate(stays), "Well.", "Thanks.", latency=of_parent)
    async with lives.life(*agents(boss, of_child)) as rt:
        run_id = (await rt.start("main", "Please.")).run_id
        await anyio.sleep(at)
    requests = boss.requests
    for _ in range(2):
        boss = Recorder(delegate(stays), "Well.", "Thanks.", latency=1)
        async with lives.life(*agents(boss, 5)) as rt:
            await anyio.sleep(300)
            assert (await last_outcome(rt, run_id)).success
        requests = [*requests, *boss.requests]
    async with lives.life(*agents(boss := Recorder("", "", "", ""), 5)) as rt:
        await rt.hub.send_to_run(run_id, "What is it?")
        await last_outcome(rt, run_id)
        lane = await own_lane(rt, run_id)
    (told,) = told_of(boss.requests[-1], "the fruit")
    started = [x for x in lane if isinstance(x, e.AgentChild)]
    assert len(started) == 1
    full = RESULT.format(started[0].child_run_id, "the fruit")
    assert told == ("the fruit" if blocking else full)
    assert len(told_of(requests[-1], "the fruit")) == 1


@pytest.mark.spec("C-10", "C-09", "P-15")
@pytest.mark.parametrize(("blocking", "stays"), MODES)
async def test_a_child_s_failure_reaches_its_parent_once(
    blocking: bool, stays: bool, lives: Lives
) -> None:
    def agents(boss: Recorder, latency: float) -> list[AgentDefinition]:
        work = Recorder(call("give_up", reason="too hard"), latency=latency)
        return [parent(boss, config(blocking=blocking, stays=stays)), child(work)]

    async with lives.life(*agents(Recorder(delegate(stays), "Well."), 100)) as rt:
        run_id = (await rt.start("main", "Please.")).run_id
        await anyio.sleep(50)
    boss = Recorder(delegate(stays), "Well.", "I see.")
    async with lives.life(*agents(boss, 5)) as rt:
        await anyio.sleep(300)
        lane = await own_lane(rt, run_id)
    (told,) = told_of(boss.requests[-1], "too hard")
    (reference,) = [x.child_run_id for x in lane if isinstance(x, e.AgentChild)]
    assert told == ("too hard" if blocking else FAILURE.format(reference, "too hard"))


@pytest.mark.spec("C-10", "R-13", "P-15")
async def test_a_code_parent_gets_its_child_s_result_by_the_handle(lives: Lives) -> None:
    ran: list[int] = []

    @agent("digger", on_restart="resume")
    async def digger(input: int, ctx: RunContext) -> int:
        ran.append(input)
        await anyio.sleep(100)
        return input * 2

    @agent("boss", on_restart="resume")
    async def boss(input: Any, ctx: RunContext) -> list[int]:
        first = ctx.spawn("digger", 1)
        second = ctx.spawn("digger", 2)
        found = [(await first.result()).output, (await second.result()).output]
        await anyio.sleep(100)
        return found

    async with lives.life(digger, boss) as rt:
        run_id = (await rt.start("boss")).run_id
        await anyio.sleep(50)
    async with lives.life(digger, boss) as rt:  # Both children begin again; the parent, too.
        await anyio.sleep(150)
    async with lives.life(digger, boss) as rt:
        assert (await last_outcome(rt, run_id)).output == [2, 4]
        runs = await rt.hub.journal.runs(live=False, root_run_id=run_id)
        assert len(runs) == 3
    assert sorted(ran) == [1, 1, 2, 2]


# ── C-14: the registry ───────────────────────────────────────────────────────────────────────


@pytest.mark.spec("C-14")
async def test_the_registry_says_after_a_restart_what_the_children_are(lives: Lives) -> None:
    seen: list[dict[str, Any]] = []

    @tool
    async def look(state: RunState) -> str:
        seen.append({child.thread_name: child for child in state.children})
        return "looked"

    @tool
    async def end(name: str, state: RunState) -> str:
        entry = only(state.children, lambda child: child.thread_name == name)
        thread = await state.get_child_thread(entry.reference)
        assert thread is not None
        await thread.terminate("no longer needed")
        return "ended"

    def create(name: str) -> Any:
        return call("subagent_create", agent="helper", name=name, arguments={"message": name})

    def work(request: ModelRequest) -> Any:
        told = heard(request)[0]
        if told == "Speaker" and not answers(request):
            return call("report", status="half way")
        return call("finish", result=f"done {told}")

    def agents(*script: Any, latency: float = 0) -> list[AgentDefinition]:
        async def slow(request: ModelRequest) -> Any:
            if heard(request)[0] in ("Worker", "Speaker") and (
                heard(request)[0] == "Worker" or answers(request)
            ):
                await anyio.sleep(latency)
            return work(request)

        boss = Recorder(*script)
        stays = config(stays=True, blocking=False)
        return [parent(boss, stays, look, end), child(FunctionModel(slow))]

    begin = [
        reply("", *(create(name) for name in ("Idle", "Gone", "Worker", "Speaker"))),
        "Started.", *["Noted."] * 4,
    ]  # fmt: skip
    async with lives.life(*agents(*begin, latency=1000)) as rt:
        run_id = (await rt.start("main", "Please.")).run_id
        await anyio.sleep(50)
        infos = {x.name: x for x in await rt.hub.journal.runs(root_run_id=run_id)}
        await rt.terminate(infos["Gone"].run_id)
        await anyio.sleep(1)

    def spoken(request: ModelRequest) -> Any:
        return call("look") if isinstance(request.messages[-1], UserMessage) else "Fine."

    async with lives.life(*agents(*[spoken] * 40, latency=100)) as rt:
        rt.hub.send_to_run(run_id, "How are they?")
        await anyio.sleep(50)
        during = seen[-1]
        await anyio.sleep(1000)
        assert not rt.runs.in_memory
    async with lives.life(*agents(*[spoken] * 40)) as rt:
        rt.hub.send_to_run(run_id, "How are they?")
        await last_outcome(rt, run_id)
        after = seen[-1]
        state = await rt.runs.look_at(run_id)
        assert state is not None
    # What is at work is at work again, by its own word since the restart.
    assert {name: x.status for name, x in during.items()} == {
        "Idle": "idle", "Gone": "terminated", "Worker": "running", "Speaker": "half way",
    }  # fmt: skip
    assert {name: x.status for name, x in after.items()} == {
        "Idle": "idle", "Gone": "terminated", "Worker": "idle", "Speaker": "idle",
    }  # fmt: skip
    for name, entry in after.items():
        before = during[name]
        assert (entry.reference, entry.created_at, entry.spawn_group_id) == (
            before.reference, before.created_at, before.spawn_group_id,
        )  # fmt: skip
        assert entry.reference == infos[name].run_id and entry.created_at


# ── C-15: budgets ────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("C-15")
@pytest.mark.parametrize(
    ("limits", "refused"),
    [({"max_spawns": 2}, "spawns"), ({"max_descendants": 1}, "live"), ({"max_depth": 1}, "depth")],
    ids=["spawns", "live", "depth"],
)
async def test_a_tree_s_budget_counts_on(
    limits: dict[str, Any], refused: str, lives: Lives
) -> None:
    said: list[str] = []

    async def one_more(ctx: RunContext) -> None:
        await anyio.sleep(100)
        try:
            ctx.spawn("leaf", "one too many")
        except LimitExceeded as error:
            said.append(str(error))

    @agent("leaf", on_restart="resume")
    async def leaf(input: Any, ctx: RunContext) -> None:
        if input == "deeper":
            await one_more(ctx)
        elif input == "stay":
            await anyio.sleep(10_000)

    @agent("boss", on_restart="resume")
    async def boss(input: Any, ctx: RunContext) -> None:
        if refused == "depth":
            await ctx.spawn("leaf", "deeper").result()
            return
        ctx.spawn("leaf", "stay")
        if refused == "spawns":
            await ctx.spawn("leaf", "x").result()
        await one_more(ctx)

    async with lives.life(leaf, boss, **limits) as rt:
        run_id = (await rt.start("boss")).run_id
        await anyio.sleep(50)
        before = await rt.hub.journal.runs(live=False, root_run_id=run_id)
    async with lives.life(leaf, boss, **limits) as rt:
        with anyio.fail_after(1000):
            assert (await rt.finished(run_id)).success
        after = await rt.hub.journal.runs(live=False, root_run_id=run_id)
    assert len(said) == 1
    assert [x.run_id for x in after] == [x.run_id for x in before]


@pytest.mark.spec("C-15", "C-07")
async def test_max_instances_counts_on(lives: Lives) -> None:
    stays = config(stays=True, max_instances=1)
    helper = child(Recorder(*[call("finish", result="x")] * 9))
    async with lives.life(parent(Recorder(delegate(True), "ok"), stays), helper) as rt:
        run_id = (await rt.start("main", "Please.")).run_id
        await last_outcome(rt, run_id)
    boss = Recorder("", "", delegate(True), "no")
    async with lives.life(parent(boss, stays), helper) as rt:
        await rt.hub.send_to_run(run_id, "Another.")
        await last_outcome(rt, run_id)
        children = [x for x in await own_lane(rt, run_id) if isinstance(x, e.AgentChild)]
    refused = answers(boss.requests[-1])[-1]
    assert refused.is_error and children[0].child_run_id in refused.output
    assert len([x for x in children if not x.error]) == 1


# ── deadlines ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-10", "R-04")
@pytest.mark.parametrize("downtime", [30, 500], ids=["before", "past"])
@pytest.mark.parametrize("is_parked", [True, False], ids=["parked", "at work"])
async def test_a_run_s_time_goes_on_while_nothing_runs(
    is_parked: bool, downtime: float, lives: Lives, ports: Ports
) -> None:
    async with lives.life(bot(0 if is_parked else 10_000)) as rt:
        began = ports.clock.now()
        run_id = (await rt.start("assistant", "hello", timeout=100)).run_id
        await anyio.sleep(60)
    await anyio.sleep(downtime)
    async with lives.life(bot(10_000)) as rt:
        with anyio.fail_after(1000):
            outcome = await rt.finished(run_id)
        assert outcome.outcome == "timed_out"
        expected = 100 if downtime < 40 else 60 + downtime
        assert (ports.clock.now() - began) / 1e6 == pytest.approx(expected, abs=1)
        assert (await rt.hub.send_to_run(run_id, "more")).rejected


# ── H-10: prompts ────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("U-05", "P-15")
async def test_a_question_of_code_that_was_open_is_open_again_under_its_id(
    lives: Lives, eventually: Callable[[Callable[[], bool]], Any]
) -> None:
    @agent("asker", on_restart="resume")
    async def asker(input: Any, ctx: RunContext) -> list[str]:
        name = await ctx.step("name", ctx.ask, "Your name?")
        sure = await ctx.ask("Sure?")
        return [name, sure]

    async def prompt(question: str) -> str:
        def found() -> list[Any]:
            return [x for x in lives.seen.all("session:prompt") if x.question == question]

        await eventually(lambda: bool(found()))
        return str(found()[0].prompt_id)

    async with lives.life(asker) as rt:
        run_id = (await rt.start("asker")).run_id
        await rt.hub.reply(await prompt("Your name?"), "Ada")
        old = await prompt("Sure?")
    async with lives.life(asker) as rt:
        await answer(rt, old, "yes")
        assert (await last_outcome(rt, run_id)).output == ["Ada", "yes"]
        assert not lives.seen.all("session:prompt"), "what has been asked is not asked again"


@pytest.mark.spec("H-10", "P-10")
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_tool_s_open_question_is_asked_again_only_if_it_may_run_again(
    idempotent: bool, lives: Lives
) -> None:
    @tool(idempotent=idempotent, timeout=None)
    async def confirm(state: RunState) -> str:
        return str(await state.hub.ask("user", "Sure?"))

    def agents() -> AgentDefinition:
        return model_agent(Recorder(call("confirm"), "Fine."), confirm)

    async with lives.life(agents()) as rt:
        run_id = (await rt.start("assistant", "go")).run_id
        await anyio.sleep(5)
        assert len(lives.seen.all("session:prompt")) == 1
    async with lives.life(agents()) as rt:
        await anyio.sleep(5)
        prompts = lives.seen.all("session:prompt")
        assert len(prompts) == idempotent
        if prompts:
            await rt.hub.reply(prompts[0].prompt_id, "sure")
        assert (await last_outcome(rt, run_id)).output == "Fine."
        (done,) = [x for x in await own_lane(rt, run_id) if isinstance(x, e.AgentToolComplete)]
    assert (done.output == "sure", done.is_error) == (idempotent, not idempotent)


# ── P-17: addresses ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-17", "H-08", "R-09")
async def test_names_and_session_keys_resolve_after_a_restart(lives: Lives) -> None:
    agents = [bot(), model_agent(echo_model(), name="other")]
    async with lives.life(*agents) as rt:
        keyed = (await rt.start("assistant", "a", session_key="chat_1_2")).run_id
        second = (await rt.start("assistant", "a", session_key="chat_1_3")).run_id
        other = (await rt.start("other", "a")).run_id
        closed = (await rt.start("assistant", "a", session_key="chat_1_4")).run_id
        for run_id in (keyed, second, other, closed):
            await last_outcome(rt, run_id)
        await rt.terminate(closed)
        await rt.finished(closed)
    async with lives.life(*agents) as rt:
        assert (await rt.hub.send("b", session_key="chat_1_2")).run_ids == (keyed,)
        assert (await rt.hub.send_to("other", "b")).run_ids == (other,)
        several = await rt.hub.send_to("assistant", "b")
        assert several.rejected and sorted(several.run_ids) == sorted([keyed, second])
        assert (await rt.hub.send("b", session_key="nobody")).rejected
        found = await rt.start("assistant", "c", session_key="chat_1_3")
        assert found.run_id == second
        fresh = await rt.start("assistant", "c", session_key="chat_1_4")
        assert fresh.run_id != closed
        assert (await rt.hub.send_to_run(closed, "b")).reason == "terminated"
        assert (await last_outcome(rt, second)).output == "echo: c"


# ── V-02, V-03: variables ────────────────────────────────────────────────────────────────────


class Deferring:
    """A parent whose child lacks a secret."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []

    def agents(self, *script: Any) -> list[AgentDefinition]:
        @tool(idempotent=True)
        def look(state: RunState) -> str:
            self.seen.append(dict(state.env))
            return "looked"

        @tool(idempotent=True)
        def finish(result: str) -> str:
            return result

        needs = VariableDefinition(name="TOKEN", scoped=True, required=True)
        worker = PromptDefinition(
            name="a", prompt="Work.", variables=(needs,), tools=(look, finish),
            model=Recorder(call("look"), call("finish", result="helped")),
        )  # fmt: skip
        other = PromptDefinition(name="b", prompt="Check.", model=Recorder())
        ends = SessionToolBinding("finish", message_property="result")
        helper = AgentDefinition(
            name="helper", type="dual_ai", expose_as_tool=True, max_session_turns=4,
            side_a=SideConfig(prompt=worker, session_stop=ends), side_b=SideConfig(prompt=other),
        )  # fmt: skip
        stays = SubagentToolConfig(name="helper", resumable=Resumable(receives_messages="side_a"))
        self.boss = Recorder(*script)
        return [parent(self.boss, stays), helper]

    async def ask(self, rt: Runtime) -> tuple[str, str]:
        own = {"OWN": SECRET + "-own"}
        run_id = (await rt.start("main", "Please.", session_key="web_1_2", env=own)).run_id
        await last_outcome(rt, run_id)
        lane = await own_lane(rt, run_id)
        (wanted,) = [x for x in lane if isinstance(x, e.SessionVariables)]
        return run_id, wanted.request_id


def find_secret(folder: Path) -> list[str]:
    """Every place outside the table of secrets where the planted text stands."""
    found = []
    for path in folder.rglob("*"):
        is_database = path.name.startswith("hubbub.db")
        if path.is_file() and not is_database and SECRET.encode() in path.read_bytes():
            found.append(str(path))
    db = sqlite3.connect(f"file:{folder / 'hubbub.db'}?mode=ro", uri=True)
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for row in db.execute(f'SELECT * FROM "{table}"'):
            text = "\n".join(x.decode() if isinstance(x, bytes) else str(x) for x in row)
            if SECRET in text and table != "secret":
                found.append(f"{table}: {text}")
    db.close()
    return found


@pytest.mark.spec("V-02", "V-03", "H-19")
async def test_a_deferred_child_is_booted_once_after_a_restart_and_values_stand_nowhere(
    lives: Lives,
) -> None:
    story = Deferring()
    script = [delegate(True), "I wait.", "Thanks."]
    async with lives.life(*story.agents(*script)) as rt:
        run_id, request_id = await story.ask(rt)
    async with lives.life(*story.agents(*script)) as rt:
        pending = await rt.pending_variables(run_id, request_id)
        assert (pending.required, pending.missing) == (("TOKEN",), ("TOKEN",))
        provided = await rt.provide_variables(run_id, request_id, {"TOKEN": SECRET})
    for number in range(2):
        async with lives.life(*story.agents(*script)) as rt:
            await last_outcome(rt, provided.run_id)
            await last_outcome(rt, run_id)
            with pytest.raises(VariablesRefused) as refused:
                await rt.provide_variables(run_id, request_id, {"TOKEN": "other"})
            assert refused.value.kind == "booted"
            booted = [x for x in await own_lane(rt, run_id) if isinstance(x, e.AgentChild)]
            assert [x.child_run_id for x in booted if not x.error] == [provided.run_id], number
            if number:
                await rt.hub.send_to_run(provided.run_id, "Look again.")
                await last_outcome(rt, provided.run_id)
    assert story.seen and all(env["TOKEN"] == SECRET for env in story.seen)
    async with lives.life(*story.agents("", "", "", "")) as rt:
        await rt.hub.send_to_run(run_id, "What has it said?")
        await last_outcome(rt, run_id)
    helped = RESULT.format(provided.run_id, "helped")
    assert told_of(story.boss.requests[-1], "helped") == [helped]
    assert (lives.folder / "agents" / run_id / "history.jsonl").exists()
    assert find_secret(lives.folder) == []
    with open_reader(f"sqlite:{lives.folder}") as file:
        assert not [line for line in export_run(file, run_id) if SECRET.encode() in line]


@pytest.mark.spec("V-02")
@pytest.mark.parametrize("downtime", [0, 3000])
async def test_an_hour_is_an_hour_whoever_was_there(downtime: float, lives: Lives) -> None:
    story = Deferring()
    script = [delegate(True), "I wait.", "Thanks."]
    async with lives.life(*story.agents(*script)) as rt:
        run_id, request_id = await story.ask(rt)
        await anyio.sleep(500)
    await anyio.sleep(downtime)
    async with lives.life(*story.agents(*script)) as rt:
        assert await rt.pending_variables(run_id, request_id)
        await anyio.sleep(3100 - downtime)
        with pytest.raises(VariablesRefused) as refused:
            await rt.provide_variables(run_id, request_id, {"TOKEN": SECRET})
        assert refused.value.kind == "expired"
    assert find_secret(lives.folder) == []


@pytest.mark.spec("V-03", "D-07")
async def test_a_run_s_own_values_survive_and_go_with_its_end(lives: Lives) -> None:
    seen: list[Any] = []

    @tool
    async def look(state: RunState) -> str:
        seen.append(dict(state.env))
        state.set_env("LATER", SECRET + "-later")
        return "looked"

    def agents(*script: Any) -> AgentDefinition:
        return model_agent(Recorder(*script), look)

    async with lives.life(agents(call("look"), "one")) as rt:
        run_id = (await rt.start("assistant", "go", env={"FIRST": SECRET})).run_id
        await last_outcome(rt, run_id)
    async with lives.life(agents("", "", call("look"), "two")) as rt:
        await rt.hub.send_to_run(run_id, "go on")
        await last_outcome(rt, run_id)
    assert seen == [{"FIRST": SECRET}, {"FIRST": SECRET, "LATER": SECRET + "-later"}]
    assert find_secret(lives.folder) == []
    async with lives.life(agents()) as rt:
        await rt.terminate(run_id)
        await rt.finished(run_id)
    db = sqlite3.connect(f"file:{lives.folder / 'hubbub.db'}?mode=ro", uri=True)
    assert db.execute("SELECT count(*) FROM secret").fetchone() == (0,)
    db.close()
