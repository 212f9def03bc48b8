"""A child, or a frame, whose record is damaged: its caller is told, and nobody waits for it."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.families import answers, heard
from support.frames import Talk, frame, use
from support.histories import give

from hubbub import Agent, AgentDefinition, FunctionModel, Limits, ModelRequest, Run, Runtime
from hubbub.agents.definitions.tools import tool
from hubbub.hub import events as e
from hubbub.hub.errors import HubbubError
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-03", "G-07")]

DAMAGED = "its record in the store is damaged"
A_BODY = (
    "UPDATE event SET body = replace(body, '\"items\":[', '\"items\":{') WHERE type = ? AND run = "
)
A_ROW = "UPDATE run SET descriptor = CAST(? AS TEXT) WHERE number = "


def damage(folder: Path, run_id: str, *, is_row: bool = False) -> None:
    """Change a run's first record, or its row, as a bit of the disk might."""
    statement, value = (A_ROW, "{") if is_row else (A_BODY, "session:taken")
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        done = db.execute(f"{statement}(SELECT number FROM run WHERE run_id = ?)", (value, run_id))
        assert done.rowcount >= 1
        db.commit()


def rows_of(folder: Path, run_id: str, lane: str) -> list[Any]:
    """What is on record of a run."""
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        of_run = "run = (SELECT number FROM run WHERE run_id = ?)"
        found = db.execute(f"SELECT * FROM event WHERE {of_run} AND lane = ?", (run_id, lane))
        return found.fetchall()


# ── children ─────────────────────────────────────────────────────────────────────────────────


@tool(approval=True)
def pay(amount: str) -> str:
    """Pay."""
    return f"paid {amount}"


def family(kind: str, *, asks: bool) -> list[AgentDefinition]:
    """A parent that has its helper started by the first thing it hears, and repeats the rest."""

    def lead(request: ModelRequest) -> Any:
        said, results = heard(request), answers(request)
        if not results:
            return call("helper", message="Pay.") if said[-1] == "help" else "Hello."
        last = request.messages[-1]
        return f"Main: {said[-1] if getattr(last, 'content', '') else results[-1].output}"

    def work(request: ModelRequest) -> Any:
        return "I tried." if answers(request) else call("pay", amount="3")

    model = FunctionModel(work, latency=0 if asks else 10_000)
    helper = Agent("helper", "You help.", model=model, tools=[pay], description="Helps.")
    as_tool = helper.as_tool(blocking=kind == "blocking")
    main = Agent("main", "You lead.", model=FunctionModel(lead), tools=[as_tool])
    return [main, helper]


def opened(folder: Path, ports: Ports, agents: list[AgentDefinition], **options: Any) -> Runtime:
    store = sqlite_store(folder, ports=ports)
    return Runtime(agents, store=store, ports=ports, grace=0, **options)


async def child_of(rt: Runtime, run_id: str) -> str:
    (found,) = await rt.hub.journal.find(run_id, "below")
    return found


async def with_damaged_child(tmp_path: Path, ports: Ports, agents: Any) -> tuple[Run, str]:
    """A conversation that waits for a child, whose record has been damaged since."""
    async with opened(tmp_path, ports, agents) as rt:
        run = await rt.start("main", "help", session_key="web_ada_1")
        await anyio.sleep(5)
        child = await child_of(rt, run.run_id)
    damage(tmp_path, child)
    return run, child


@pytest.mark.parametrize("limits", [None, Limits(model_calls=100, seconds=100_000)])
@pytest.mark.parametrize("asks", [True, False], ids=["asks a person", "is at work"])
@pytest.mark.parametrize("kind", ["blocking", "in the background"])
async def test_a_parent_learns_that_the_record_of_its_child_is_damaged(
    kind: str, asks: bool, limits: Limits | None, tmp_path: Path, ports: Ports
) -> None:
    agents = family(kind, asks=asks)
    async with opened(tmp_path, ports, agents, limits=limits) as rt:
        run = await rt.start("main", "help", session_key="web_ada_1")
        await anyio.sleep(5)
        child = await child_of(rt, run.run_id)
    damage(tmp_path, child)
    before = rows_of(tmp_path, child, "own")
    for time in range(2):  # What was told once is not told again when the store is opened again.
        async with opened(tmp_path, ports, agents, limits=limits) as rt:
            told: list[e.HubErrorEvent] = []
            rt.hub.subscribe("hub:error", told.append)
            run = await rt.find("web_ada_1")
            with anyio.fail_after(100):
                await run.ask("are you there?")
                await anyio.sleep(5)
                assert (await run.ask("and now?")).output == "Main: and now?"
                assert (await run.result()).output == "Main: and now?"
            assert {event.run_id for event in told} <= {child} and len(told) + time >= 1
            assert len([x for x in told if x.error_type == "unreadable"]) <= 1
            results = await rt.hub.read(run.run_id, types="session:result")
            assert [(x.outcome, x.final) for x in results] == [("failed", True)]
            assert DAMAGED in results[0].reason and "fsck" in results[0].reason
            if kind == "blocking":
                (done,) = await rt.hub.read(run.run_id, types="agent:tool:complete")
                assert done.is_error and DAMAGED in done.output
            else:
                texts = await rt.hub.read(run.run_id, types="agent:text")
                assert any(DAMAGED in text.text for text in texts)
    assert rows_of(tmp_path, child, "own") == before, "its record stays as it is"
    assert any(child in str(problem) for problem in StoreCheck(f"sqlite:{tmp_path}").problems())


@pytest.mark.parametrize("is_row", [False, True], ids=["an event", "its row"])
@pytest.mark.parametrize("kind", ["blocking", "in the background"])
async def test_a_child_that_is_damaged_while_it_sleeps_in_an_open_store_is_told_of(
    kind: str, is_row: bool, tmp_path: Path, ports: Ports
) -> None:
    async with opened(tmp_path, ports, family(kind, asks=True), max_live=1) as rt:
        run = await rt.start("main", "help", session_key="web_ada_1")
        await anyio.sleep(5)
        child = await child_of(rt, run.run_id)
        other = await rt.start("main", "hi", session_key="web_bob_1")
        await other.result()
        damage(tmp_path, child, is_row=is_row)
        with anyio.fail_after(100):
            await run.ask("are you there?")
            await anyio.sleep(5)
            assert (await run.ask("and now?")).output == "Main: and now?"
            assert (await run.result()).output == "Main: and now?"
        results = await rt.hub.read(run.run_id, types="session:result")
        assert [x.outcome for x in results] == ["failed"]


async def test_a_run_that_nobody_talks_with_goes_on_without_its_damaged_child(
    tmp_path: Path, ports: Ports
) -> None:
    agents = family("blocking", asks=False)
    async with opened(tmp_path, ports, agents) as rt:
        run = await rt.start("main", "help", once=True)
        await anyio.sleep(5)
        child = await child_of(rt, run.run_id)
    damage(tmp_path, child)
    async with opened(tmp_path, ports, agents) as rt:
        with anyio.fail_after(100):
            assert DAMAGED in str((await rt.finished(run.run_id)).output)


async def test_a_parent_that_was_interrupted_hears_no_more_of_its_damaged_child(
    tmp_path: Path, ports: Ports
) -> None:
    agents = family("blocking", asks=True)
    run, _ = await with_damaged_child(tmp_path, ports, agents)
    async with opened(tmp_path, ports, agents) as rt:
        with anyio.fail_after(100):
            await rt.hub.interrupt(run.run_id)
            assert (await rt.result(run.run_id)).outcome == "interrupted"
            await anyio.sleep(5)
            assert not await rt.hub.read(run.run_id, types="agent:text")
            assert (await (await rt.find("web_ada_1")).ask("two")).output == "Main: two"
            await rt.hub.terminate(run.run_id)
            assert (await rt.finished(run.run_id)).outcome == "terminated"


@pytest.mark.parametrize("is_damaged_above", [False, True])
async def test_a_damaged_child_is_told_of_up_to_the_first_run_that_can_be_read(
    is_damaged_above: bool, tmp_path: Path, ports: Ports
) -> None:
    def ask(name: str) -> FunctionModel:
        return FunctionModel(
            lambda r: str(answers(r)[-1].output) if answers(r) else call(name, message="Pay.")
        )

    helper = family("blocking", asks=True)[1]
    middle = Agent("middle", "You pass it on.", model=ask("helper"), tools=[helper.as_tool()],
                   description="Passes it on.")  # fmt: skip
    main = Agent("main", "You lead.", model=ask("middle"), tools=[middle.as_tool()])
    agents = [main, middle, helper]
    async with opened(tmp_path, ports, agents) as rt:
        await rt.start("main", "help", session_key="web_ada_1")
        await anyio.sleep(5)
        ids = {x.agent: x.run_id for x in await rt.hub.journal.runs()}
    damage(tmp_path, ids["helper"])
    if is_damaged_above:
        damage(tmp_path, ids["middle"])
    async with opened(tmp_path, ports, agents) as rt:
        with anyio.fail_after(100):
            assert DAMAGED in (await (await rt.find("web_ada_1")).ask("one")).output
    async with opened(tmp_path, ports, agents) as rt:
        with anyio.fail_after(100):
            assert DAMAGED in (await (await rt.find("web_ada_1")).ask("two")).output


# ── frames ───────────────────────────────────────────────────────────────────────────────────


def stack(*, is_slow: bool = False) -> list[AgentDefinition]:
    """main, writer and research, each of which speaks and then waits."""

    def main(request: ModelRequest) -> Any:
        return f"Main: {heard(request)[-1]}" if answers(request) else use("writer")

    def writer(request: ModelRequest) -> Any:
        return f"Writer: {heard(request)[-1]}" if answers(request) else use("research")

    research = FunctionModel(lambda r: f"Research: {heard(r)[-1]}", latency=1000 * is_slow)
    return [
        frame(FunctionModel(main), agents=("writer",)),
        frame(FunctionModel(writer), name="writer", agents=("research",)),
        frame(research, name="research"),
    ]


@pytest.mark.parametrize("line", ["one", "/back", "/stop"])
@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "asleep"])
@pytest.mark.parametrize(("broken", "caller"), [("research", "writer"), ("writer", "main")])
async def test_a_damaged_frame_gives_the_conversation_back_to_its_caller(
    broken: str, caller: str, is_open: bool, line: str, tmp_path: Path, ports: Ports
) -> None:
    async def go_on(talk: Talk) -> None:
        said = await talk.say(line)
        if is_open and said == [("research", "Research: one")] and broken == "writer":
            said = await talk.say("/back")  # Who had the conversation can go on with it.
            assert said[-1] == (caller, "Main: go")
        elif line != "/stop":
            words = line if line != "/back" else "Go." if caller == "writer" else "go"
            assert said[-1] == (caller, f"{caller.title()}: {words}")
            assert line not in talk.taken(broken)
        speaks = "main" if line == "/stop" else caller
        assert await talk.say("two") == [(speaks, f"{speaks.title()}: two")]

    async with opened(tmp_path, ports, stack(), max_live=1) as rt:
        talk = Talk(rt)
        assert (await talk.say("go"))[-1] == ("research", "Research: Go.")
        (gone,) = talk.frames(broken)
        if is_open:
            await (await rt.start("research", "hi", session_key="web_bob_1")).result()
            damage(tmp_path, gone)
            with anyio.fail_after(100):
                await go_on(talk)
            return
    damage(tmp_path, gone)
    before = rows_of(tmp_path, gone, "own")
    async with opened(tmp_path, ports, stack()) as rt:
        with anyio.fail_after(100):
            await go_on(Talk(rt))
    assert rows_of(tmp_path, gone, "own") == before, "its record stays as it is"
    async with opened(tmp_path, ports, stack()) as rt:
        with anyio.fail_after(100):
            said = await Talk(rt).say("three")
        assert said[-1][1].endswith("three")


async def test_a_frame_that_was_at_work_gives_the_conversation_back_when_the_store_is_opened(
    tmp_path: Path, ports: Ports
) -> None:
    async with opened(tmp_path, ports, stack(is_slow=True)) as rt:
        talk = Talk(rt)
        receipt = await rt.hub.open("main", "go", session_key="telegram_1_2")
        await anyio.sleep(5)
        (gone,) = talk.frames("research")
    damage(tmp_path, gone)
    async with opened(tmp_path, ports, stack(is_slow=True)) as rt:
        talk = Talk(rt)
        with anyio.fail_after(100):
            assert (await rt.result(receipt.run_id)).output == "Writer: Go."
        ((text, is_error),) = talk.results("use_agent")
        assert is_error and text.startswith("research did not complete") and DAMAGED in text


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_damaged_frame_beside_others_gives_the_conversation_back_at_once_too(
    place: int, tmp_path: Path, ports: Ports
) -> None:
    three = [call("give", who="research", message="Go.")] * 3
    main = FunctionModel(lambda r: "Main." if answers(r) else reply("", *three))
    research = FunctionModel(lambda r: f"Research: {heard(r)[-1]}", latency=1000)
    agents = [
        frame(main, give, agents=("research",), parallel_tool_calls=True),
        frame(research, name="research"),
    ]  # fmt: skip
    async with opened(tmp_path, ports, agents) as rt:
        talk = Talk(rt)
        await rt.hub.open("main", "go", session_key="telegram_1_2")
        await anyio.sleep(5)
        pushes = {x.call_id: x.frame_run_id for x in talk.of(e.SessionPush)}
    damage(tmp_path, pushes[f"1.{place}"])
    async with opened(tmp_path, ports, agents) as rt:
        talk = Talk(rt)
        await anyio.sleep(10)
        ((text, is_error),) = talk.results("give")
        assert is_error and text.startswith("research did not complete") and DAMAGED in text
        assert [x.call_id for x in talk.of(e.SessionPop)] == [f"1.{place}"]


async def test_a_child_that_is_mended_later_goes_on_and_does_not_disturb_its_parent(
    tmp_path: Path, ports: Ports
) -> None:
    agents = family("blocking", asks=True)
    run, child = await with_damaged_child(tmp_path, ports, agents)
    async with opened(tmp_path, ports, agents) as rt:
        await rt.hub.send_to_run(run.run_id, "one")
        await anyio.sleep(5)
        assert (await rt.hub.ask("runtime", f"run {child}"))["waiting"] == 1
    with closing(sqlite3.connect(tmp_path / "hubbub.db")) as db:
        db.execute("""UPDATE event SET body = replace(body, '"items":{', '"items":[')""")
        db.commit()
    assert not list(StoreCheck(f"sqlite:{tmp_path}").problems())
    async with opened(tmp_path, ports, agents) as rt:
        await anyio.sleep(5)
        assert (await rt.hub.ask("runtime", f"run {child}"))["waiting"] == 0
        assert (await rt.hub.read(child, types="session:reply"))[0].content == "one"
        assert (await rt.hub.read(child, types="agent:text"))[-1].text == "I tried."
        with anyio.fail_after(100):
            assert (await (await rt.find("web_ada_1")).ask("two")).output == "Main: two"
        (done,) = await rt.hub.read(run.run_id, types="agent:tool:complete")
        assert DAMAGED in done.output
    assert not list(StoreCheck(f"sqlite:{tmp_path}").problems())


# ── whichever record it is ───────────────────────────────────────────────────────────────────

KINDS = {
    "its body": "UPDATE event SET body = replace(body, '{', '[') WHERE position = ?",
    "its number": "UPDATE event SET seq = seq + 1000 WHERE position = ?",
    "its lane": "UPDATE event SET lane = 'owo' WHERE position = ?",
    "all of it": "DELETE FROM event WHERE position = ?",
}


@pytest.mark.parametrize("change", KINDS)
@pytest.mark.parametrize("story", ["a child", "a child in the background", "frames"])
async def test_whoever_speaks_to_a_conversation_is_answered_or_told_whatever_is_damaged(
    story: str, change: str, tmp_path: Path, ports: Ports
) -> None:
    kind = "blocking" if story == "a child" else "in the background"
    agents = stack() if story == "frames" else family(kind, asks=True)
    async with opened(tmp_path / "sound", ports, agents) as rt:
        run = await rt.start("main", "help", session_key="web_ada_1")
        await anyio.sleep(5)
    with closing(sqlite3.connect(tmp_path / "sound" / "hubbub.db")) as db:
        positions = [at for (at,) in db.execute("SELECT position FROM event")]
    for position in positions:
        folder = tmp_path / str(position)
        shutil.copytree(tmp_path / "sound", folder)
        with closing(sqlite3.connect(folder / "hubbub.db")) as db:
            db.execute(KINDS[change], (position,))
            db.commit()
        async with opened(folder, ports, agents) as rt:
            for word in ("one", "/back", "two", "/stop", "three"):
                told = ""
                with anyio.move_on_after(100) as waits:
                    try:
                        run = await rt.find("web_ada_1")
                        await run.ask(word)
                        await run.result()
                    except HubbubError as error:
                        told = str(error)
                assert not waits.cancelled_caught, (position, word)
                assert not told or "fsck" in told or "backup" in told, (position, word, told)
        shutil.rmtree(folder)
