"""Conversations, agents and schedules are found in a store, with a runtime and without (U-06)."""

import copy
import json
import pickle
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Struct
from support.agents import echo_model, model_agent
from support.frames import complete, frame, use

from hubbub import (
    Cron,
    FunctionModel,
    Message,
    RunContext,
    Runtime,
    ScriptedModel,
    agent,
    external_tool,
    tool,
)
from hubbub.agents.definitions.run_state import RunState
from hubbub.hub.errors import BadValue, UnknownRun
from hubbub.hub.events.descriptors import SubagentDescriptor, UserDescriptor
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.store import Store
from hubbub.runtime.finding.answers import answer
from hubbub.runtime.finding.conversations import (
    MAX_LOOKED_AT,
    Conversations,
    list_conversations,
)
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import open_reader, sqlite_store

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}

Ask = Callable[[str], Awaitable[Any]]


@tool
async def inquire(question: str, state: RunState) -> str:
    """Ask the user."""
    return str(await state.hub.ask("user", question, options=("yes", "no")))


@tool
async def delegate(state: RunState) -> str:
    """Have a child do it."""
    return str((await state.spawn("slow", "work").result()).output)


def agents() -> list[Any]:
    @agent("job", description="Does jobs.")
    async def job(input: Any, ctx: Any) -> Any:
        return input

    def obeys(request: Any) -> Any:
        said = request.messages[-1]
        match getattr(said, "content", ""):
            case "ask":
                return reply("", call("inquire", question="Really?"))
            case "delegate":
                return reply("", call("delegate"))
            case _:
                return "yes"

    bot = model_agent(FunctionModel(obeys), inquire, delegate, name="bot")
    return [bot, model_agent(echo_model(100.0), name="slow"), job]


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Store:
    if request.param == "sqlite":
        return sqlite_store(tmp_path / "store", ports=ports)
    return MemoryJournal() if request.param == "memory" else LateJournal(MemoryJournal())


@pytest.fixture(params=["with a runtime", "without"])
def asked(
    request: pytest.FixtureRequest, store: Store, ports: Ports, tmp_path: Path
) -> Callable[..., Any]:
    """A runtime at work, and how it is asked: by its hub, or from its store by another process."""

    @asynccontextmanager
    async def opened(*more: Any, **options: Any) -> AsyncIterator[tuple[Runtime, Ask]]:
        async def by_hub(question: str) -> Any:
            return await rt.hub.ask("runtime", question)

        async def by_store(question: str) -> Any:
            await rt.hub.journal.flush()
            now = ports.clock.now()
            if isinstance(store, MemoryJournal | LateJournal):
                return answer(store.reader(), question, now)
            with open_reader(f"sqlite:{tmp_path / 'store'}") as reader:
                return answer(reader, question, now)

        async with Runtime([*agents(), *more], store=store, ports=ports, **options) as rt:
            yield rt, by_hub if request.param == "with a runtime" else by_store

    return opened


async def listed(ask: Ask, **which: Any) -> list[tuple[str, str, str, str]]:
    page = await ask(f"conversations {json.dumps(which)}")
    return [(x["key"], x["agent"], x["status"], x["title"]) for x in page["conversations"]]


@pytest.mark.spec("U-06")
async def test_conversations_are_listed_the_one_spoken_to_last_first(
    asked: Callable[..., Any],
) -> None:
    async with asked() as (rt, ask):
        one = await rt.start("bot", "Where is  my\nparcel? " + "x" * 100, session_key="web_1_2")
        await one.result()
        await anyio.sleep(1)
        two = await rt.start("slow", session_key="web_1_3")
        await two.result()
        await anyio.sleep(1)
        await (await rt.start("job", {"n": 1})).result()
        await rt.run("bot", "once")
        await anyio.sleep(1)
        await two.send("How long?")
        title = "Where is my parcel? " + "x" * 59 + "…"
        assert await listed(ask) == [
            ("web_1_3", "slow", "active", "How long?"), ("", "job", "ended", '{"n":1}'),
            ("web_1_2", "bot", "parked", title),
        ]  # fmt: skip
        await one.send("Hello?")
        await one.result()
        assert [key for key, *_ in await listed(ask)] == ["web_1_2", "web_1_3", ""]
        assert [key for key, *_ in await listed(ask, agent="slow")] == ["web_1_3"]
        assert [key for key, *_ in await listed(ask, status="parked")] == ["web_1_2"]
        assert await listed(ask, status="ended", agent="bot") == []
        (found, *_) = (await ask("conversations"))["conversations"]
        assert found["run_id"] == one.run_id
        # A clock that stands still would make two of them alike.
        assert 0 <= found["last_activity"] - found["created_at"] - 3_000_000 <= 10
        assert found["waits_for"] == []


@pytest.mark.spec("U-06")
async def test_pages_follow_each_other_without_gap_or_repetition(
    asked: Callable[..., Any],
) -> None:
    async with asked() as (rt, ask):
        for number in range(23):
            await rt.start("job" if number % 4 else "bot", session_key=f"k{number}")
        keys = [f"k{number}" for number in reversed(range(23))]
        for which in ({}, {"agent": "bot"}):
            wanted = keys if not which else [key for key in keys if int(key[1:]) % 4 == 0]
            seen: list[str] = []
            page: Any = {"next": ""}
            while not seen or page["next"]:
                page = await ask(
                    f"conversations {json.dumps({**which, 'limit': 5, 'before': page['next']})}"
                )
                seen += [x["key"] for x in page["conversations"]]
            assert seen == wanted
            back: list[str] = []
            cursor = page["conversations"][-1]["cursor"]
            while True:
                filters = json.dumps({**which, "limit": 5, "after": cursor})
                before = (await ask(f"conversations {filters}"))["conversations"]
                if not before:
                    break
                back = [x["key"] for x in before] + back
                cursor = before[0]["cursor"]
            assert back == wanted[:-1]


@pytest.mark.spec("U-06")
async def test_a_conversation_says_what_it_waits_for(asked: Callable[..., Any]) -> None:
    async with asked() as (rt, ask):
        run = await rt.start("bot", "ask", session_key="k")
        await anyio.sleep(1)
        (wait,) = (await ask("conversations"))["conversations"][0]["waits_for"]
        assert wait.pop("run_id") == run.run_id
        prompt_id = wait.pop("prompt_id")
        assert (wait["kind"], wait["question"]) == ("question", "Really?")
        assert list(wait["options"]) == ["yes", "no"]
        await rt.hub.reply(prompt_id, "yes")
        await run.result()
        assert (await ask("conversations"))["conversations"][0]["waits_for"] == []
        assert await listed(ask) == [("k", "bot", "parked", "ask")]


class Seat(Struct):
    car: int


@tool(idempotent=True)
async def choose(state: RunState) -> str:
    """Choose."""
    return repr(await state.ask("Which?", schema=Seat))


@agent("asker", on_restart="resume")
async def asker(input: Any, ctx: RunContext) -> str:
    return str(await ctx.ask("How many?", schema={"type": "integer"}))


@pytest.mark.spec("U-05", "U-06")
async def test_the_schema_of_a_question_is_there_to_draw_its_form(
    asked: Callable[..., Any],
) -> None:
    desk = model_agent(ScriptedModel([reply("", call("choose")), "Done."]), choose, name="desk")
    async with asked(desk, asker) as (rt, ask):
        await rt.start("desk", "Choose.", session_key="k")
        await anyio.sleep(1)
        await rt.start("asker", "x", session_key="code")
        await anyio.sleep(1)
        page = (await ask("conversations"))["conversations"]
        (number,), (seat,) = [x["waits_for"] for x in page]
        assert number["schema"] == {"type": "integer"}
        assert seat["schema"]["$ref"] == "#/$defs/Seat"
        assert seat["schema"]["$defs"]["Seat"]["properties"] == {"car": {"type": "integer"}}
        assert [x.waits_for[0].schema for x in await rt.conversations()] == [
            number["schema"], seat["schema"],
        ]  # fmt: skip


@pytest.mark.spec("U-06")
async def test_who_has_asked_a_person_waits(asked: Callable[..., Any]) -> None:
    script = [reply("", call("choose")), reply("", call("inquire", question="?"))]
    desk = model_agent(ScriptedModel(script), choose, inquire, name="desk")
    async with asked(desk, asker) as (rt, ask):
        await rt.start("bot", "Hi.", session_key="parked")
        await (await rt.start("job", 1)).result()
        for name in ("desk", "asker"):
            await rt.start(name, "x", session_key=name)
            await anyio.sleep(1)
        await rt.start("desk", "x", session_key="by hub")
        await anyio.sleep(1)
        waiting = ["by hub", "asker", "desk"]
        assert [key for key, *_ in await listed(ask, status="waiting")] == waiting
        assert await listed(ask, status="active") == []
        assert [key for key, *_ in await listed(ask, status="parked")] == ["parked"]
        assert [x[2] for x in await listed(ask)].count("waiting") == 3
        (found,) = await rt.conversations(status="waiting", agent="asker")
        await rt.hub.reply(found.waits_for[0].prompt_id, "3")
        await anyio.sleep(1)
        assert [key for key, *_ in await listed(ask, status="waiting")] == ["by hub", "desk"]


@pytest.mark.spec("U-06")
async def test_approvals_and_external_calls_are_waited_for(asked: Callable[..., Any]) -> None:
    @tool(approval=True)
    async def refund(order: int) -> str:
        """Pay back."""
        return f"refunded {order}"

    script = [reply("", call("refund", order=7), call("pick", what="it")), "Done."]
    desk = model_agent(ScriptedModel(script), refund, external_tool("pick", SCHEMA), name="desk")
    async with asked(desk) as (rt, ask):
        run = await rt.start("desk", "Refund 7.", session_key="k")
        await anyio.sleep(1)
        waits = (await ask("conversations"))["conversations"][0]["waits_for"]
        assert [(x["kind"], x["tool"], x["arguments"]) for x in waits] == [
            ("approval", "refund", {"order": 7}), ("external", "pick", {"what": "it"}),
        ]  # fmt: skip
        page = await rt.conversations(status="waiting")
        assert [x.arguments for x in page[0].waits_for] == [{"order": 7}, {"what": "it"}]
        await rt.hub.approve(waits[0]["prompt_id"])
        await anyio.sleep(1)
        (left,) = (await ask("conversations"))["conversations"][0]["waits_for"]
        assert left == waits[1]
        await rt.hub.reply(left["prompt_id"], "this")
        assert (await run.result()).output == "Done."
        assert (await ask("conversations"))["conversations"][0]["waits_for"] == []


@pytest.mark.spec("U-06")
async def test_a_conversation_shows_the_questions_of_its_children_and_frames(
    store: Store, ports: Ports
) -> None:
    main = ScriptedModel([reply("", use("booking")), "Done."])
    script = ["Which city?", reply("", call("inquire", question="Sure?")), complete("booked")]
    booking = frame(ScriptedModel(script), inquire, name="booking")
    async with Runtime([frame(main, agents=("booking",)), booking], store=store, ports=ports) as rt:
        run = await rt.start("main", "book", session_key="telegram_1_2")
        await run.result()
        (found,) = await rt.conversations()
        assert (found.status, found.waits_for) == ("waiting", ())  # The frame waits for the user.
        run.send("Rome")
        await anyio.sleep(1)
        (found,) = await rt.conversations()
        (wait,) = found.waits_for
        assert (wait.question, wait.run_id != run.run_id) == ("Sure?", True)
        await rt.hub.reply(wait.prompt_id, "yes")
        await run.result()
        (found,) = await rt.conversations()
        assert (found.status, found.waits_for) == ("parked", ())


@pytest.mark.spec("U-06")
async def test_runs_are_found_by_key_by_descriptor_and_by_id(asked: Callable[..., Any]) -> None:
    user = UserDescriptor(connector="web", channel_id="1", user_id="2")
    spelled = '{"type":"user","connector":"web","userId":"2","channelId":"1"}'
    async with asked() as (rt, ask):
        run = await rt.start("bot", "hi", session_key="web_1_2")
        await run.result()
        for key in ("web_1_2", spelled):
            assert (await ask(f"find {key}"))["run_id"] == run.run_id
        for key in ("web_1_2", spelled, user):
            found = await rt.find(key)
            assert found is not None and found.run_id == run.run_id and found.agent == "bot"
            assert (await found.ask("and?")).output == "yes"
        assert (await ask(f"run {run.run_id}"))["session_key"] == "web_1_2"
        handle = await rt.handle(run.run_id)
        for key in ("nobody", spelled.replace("web", "tv")):
            assert await ask(f"find {key}") is None and await rt.find(key) is None
        assert await ask("run nobody") is None
        with pytest.raises(UnknownRun):
            await rt.handle("nobody")
        assert len(await ask("runs")) == 1  # Nothing was started.
        await run.terminate()
        assert await rt.find("web_1_2") is None  # The key is free again.
        assert (await handle.finished()).outcome == "terminated"
        assert (await (await rt.handle(run.run_id)).finished()).outcome == "terminated"
        braces = await rt.start("bot", "hi", session_key="{x}")  # A key, and no JSON.
        await braces.result()
        assert (await ask("find {x}"))["run_id"] == braces.run_id


@pytest.mark.spec("U-06")
async def test_children_are_handled_and_no_conversations(asked: Callable[..., Any]) -> None:
    async with asked() as (rt, ask):
        run = await rt.start("bot", "delegate", session_key="k")
        await anyio.sleep(1)
        (child,) = [x for x in await ask("runs") if x["parent_run_id"] == run.run_id]
        handle = await rt.handle(child["run_id"])
        assert not handle.is_root
        given = SubagentDescriptor(id=handle.run_id, parent_agent_id=run.run_id, name="slow")
        found = await rt.find(given)
        assert found is not None and found.run_id == handle.run_id
        assert len((await ask("conversations"))["conversations"]) == 1
        assert (await handle.result()).output == "echo: work"


@pytest.mark.spec("U-06")
async def test_agents_and_schedules_are_published(asked: Callable[..., Any]) -> None:
    cron = Cron("daily", "0 9 * * *", "bot", "Report.")
    async with asked(schedules=[cron]) as (rt, ask):
        await anyio.sleep(1)
        assert await ask("agents") == ["bot", "slow", "job"] == list(rt.definitions.names)
        assert await ask("agent job") == {"name": "job", "description": "Does jobs."}
        assert await ask("agent nobody") is None
        (schedule,) = await ask("schedules")
        assert (schedule["uid"], schedule["agent"], schedule["last_fired_at"]) == (
            "daily", "bot", 0,
        )  # fmt: skip
        assert schedule["next_at"] > ports_now(rt)


def ports_now(rt: Runtime) -> int:
    return rt.ports.clock.now()


@pytest.mark.spec("U-06")
async def test_agents_of_a_new_runtime_take_the_place_of_the_last_ones(
    tmp_path: Path, ports: Ports
) -> None:
    for names in (["a", "b"], ["c"]):
        bots = [model_agent(echo_model(), name=name) for name in names]
        async with Runtime(bots, store=sqlite_store(tmp_path / "s", ports=ports), ports=ports):
            with open_reader(f"sqlite:{tmp_path / 's'}") as reader:
                assert answer(reader, "agents", 0) == names
    with open_reader(f"sqlite:{tmp_path / 's'}") as reader:
        assert answer(reader, "agents", 0) == ["c"]


@pytest.mark.spec("U-06")
@pytest.mark.parametrize(
    "question",
    [
        "", "conversation", "conversations [1]", "conversations {", 'conversations {"by": 1}',
        'conversations {"limit": 0}', 'conversations {"limit": true}', 'find {"type": "tv"}',
        'conversations {"limit": "5"}', 'conversations {"before": "x"}', "find a\0b",
        'conversations {"before": "1.2", "after": "1.2"}', 'conversations {"status": "idle"}',
        'conversations {"before": 3}', 'conversations {"agent": 3}',
        'conversations {"after": "99999999999999999999999999999999999999.1"}',
    ],
)  # fmt: skip
async def test_what_cannot_be_answered_is_refused(
    question: str, store: Store, ports: Ports
) -> None:
    async with Runtime(agents(), store=store, ports=ports) as rt:
        with pytest.raises(BadValue):
            await rt.hub.ask("runtime", question)


@tool
async def note(state: RunState) -> str:
    """Write a note."""
    await state.files.write("notes/one.txt", "a note")
    return "written"


@pytest.mark.spec("U-06")
async def test_runs_are_shown_in_full(
    asked: Callable[..., Any], store: Store, request: pytest.FixtureRequest
) -> None:
    desk = model_agent(ScriptedModel([reply("", call("note")), "Done."]), note, name="desk")
    async with asked(desk) as (rt, ask):
        run = await rt.start("desk", "Note it.", session_key="k")
        await run.result()
        asking = await rt.start("bot", "ask")
        await anyio.sleep(1)
        trees = await ask('trees {"limit": 1}')
        assert [x["run_id"] for x in trees["runs"]] == [asking.run_id] and trees["more"] == 1
        assert [x["question"] for x in trees["prompts"]] == ["Really?"]
        assert await ask("prompts") == trees["prompts"]
        for roots in ([asking.run_id], ["x", asking.run_id[:9]], [""]):
            assert await ask(f"prompts {json.dumps({'roots': roots})}") == trees["prompts"]
        for roots in ([], ["x"], [asking.run_id + "x"]):
            assert await ask(f"prompts {json.dumps({'roots': roots})}") == []
        report = await ask(f'report {run.run_id} {{"full": true}}')
        assert report["run"]["session_key"] == "k"
        assert [x["path"] for x in report["files"]] == ["notes/one.txt"]
        assert report["conversation"][-1]["text"] == "Done."
        last = await ask(f"state {run.run_id}")
        assert last["seq"] == report["seq"]
        assert [(await ask(f"state {run.run_id} {n}"))["seq"] for n in range(4)] == [0, 1, 2, 3]
        assert await ask(f"state {run.run_id} {last['seq'] + 1}") is None
        (file,) = await ask(f"files {run.run_id}")
        assert file == await ask(f"file {run.run_id} /attachments/notes/one.txt")
        in_ports = store.blobs is None  # The contents are elsewhere.
        if not in_ports or request.node.callspec.params["asked"] == "with a runtime":
            assert await ask(f"content {run.run_id} notes/one.txt") == b"a note"
        assert await ask(f"content {run.run_id} notes/two.txt") is None
        made = await ask(f"test {run.run_id}")
        assert made["recording_name"] in made["text"] and made["recording"].count("\n") > 5
        for verb in ("report", "state", "files", "file", "content", "test"):
            assert await ask(f"{verb} nobody x") is None
        for wrong in (
            "trees {", 'trees {"limit": 0}', 'trees {"other": 1}', f"report {run.run_id} [",
            'prompts {"roots": "x"}', f"state {run.run_id} -1", f"state {run.run_id} ²",
        ):  # fmt: skip
            with pytest.raises(BadValue):
                await ask(wrong)


class Counting:
    """A reader that counts the rows it gives, and the events."""

    def __init__(self, inner: StoreReader) -> None:
        self._inner = inner
        self.rows = self.events = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def spoken_to(self, limit: int, **place: Any) -> Any:
        found = self._inner.spoken_to(limit, **place)
        self.rows += len(found)
        return found

    def lanes(self, run_id: str, limit: int, **how: Any) -> Any:
        found = self._inner.lanes(run_id, limit, **how)
        self.events += len(found)
        return found


@pytest.mark.spec("U-06")
async def test_the_work_for_a_page_is_bounded(store: Store, ports: Ports) -> None:
    async with Runtime(agents(), store=store, ports=ports) as rt:
        for number in range(300):
            rt.hub.open("job", number)
        long = await rt.start("bot", "hi", session_key="long")
        for number in range(100):
            long.send(f"message {number}")
        await long.result()
        await store.flush()
        reader = Counting(store.reader())
        page = list_conversations(reader, limit=10)  # type: ignore[arg-type]
        assert len(page) == 10 and page.next
        assert reader.rows <= 200 and reader.events <= 10 * 520
        assert list_conversations(reader, agent="nobody").next == ""  # type: ignore[arg-type]
        assert reader.rows <= 200 + MAX_LOOKED_AT + 100
        reader.close()


@pytest.mark.spec("U-06")
async def test_a_page_is_found_by_an_index_also_in_a_store_of_before(
    tmp_path: Path, ports: Ports
) -> None:
    async with Runtime(agents(), store=sqlite_store(tmp_path / "s", ports=ports), ports=ports):
        pass
    with sqlite3.connect(tmp_path / "s" / "hubbub.db") as db:
        db.execute("DROP INDEX run_spoken_to")  # As an older program has left it.
    db.close()
    with open_reader(f"sqlite:{tmp_path / 's'}") as reader:
        assert len(list_conversations(reader)) == 0
    async with Runtime(agents(), store=sqlite_store(tmp_path / "s", ports=ports), ports=ports):
        with sqlite3.connect(tmp_path / "s" / "hubbub.db") as db:
            plan = db.execute(
                "EXPLAIN QUERY PLAN SELECT * FROM run WHERE parent_run_id IS NULL AND "
                "kind IN ('', 'user') AND (recent, born) < (5, 5) ORDER BY recent DESC, born DESC"
            ).fetchall()
        db.close()
    assert [detail for *_, detail in plan] == [
        "SEARCH run USING INDEX run_spoken_to ((recent,born)<(?,?))"
    ]


@pytest.mark.spec("U-06")
async def test_a_damaged_conversation_keeps_no_other_from_being_listed(
    tmp_path: Path, ports: Ports
) -> None:
    async with Runtime(
        agents(), store=sqlite_store(tmp_path / "s", ports=ports), ports=ports
    ) as rt:
        for key in ("one", "two"):
            await (await rt.start("bot", f"about {key}", session_key=key)).result()
    with sqlite3.connect(tmp_path / "s" / "hubbub.db") as db:
        db.execute("UPDATE event SET body = 'torn' WHERE body LIKE '%about one%'")
    db.close()
    with open_reader(f"sqlite:{tmp_path / 's'}") as reader:
        assert [(x.key, x.title) for x in list_conversations(reader)] == [
            ("two", "about two"), ("one", ""),
        ]  # fmt: skip


@pytest.mark.spec("U-06")
async def test_what_the_runtime_says_and_what_its_store_says_never_differ(
    store: Store, ports: Ports
) -> None:
    async with Runtime(agents(), store=store, ports=ports) as rt:
        for number in range(30):
            key = f"k{number % 3}"
            said = Message(("hi", "ask", "delegate")[number % 3], key=str(number))
            rt.hub.open("slow" if number % 2 else "bot", said, session_key=key)
            listed = await rt.conversations()
            with_reader = await store.inspect(list_conversations)
            assert {x.key for x in listed} >= {key}
            assert [x.key for x in listed] == [x.key for x in with_reader]
            assert [x.last_activity for x in listed] == [x.last_activity for x in with_reader]
            assert listed[0].key == key  # It was spoken to just now.


def test_a_page_of_conversations_says_how_it_is_read() -> None:
    page = Conversations(conversations=())
    assert list(page) == [] and not hasattr(page, "items")
    with pytest.raises(AttributeError, match=r"'items': go through the page itself"):
        page.items  # type: ignore[attr-defined]  # noqa: B018
    assert copy.deepcopy(page) == pickle.loads(pickle.dumps(page)) == page
