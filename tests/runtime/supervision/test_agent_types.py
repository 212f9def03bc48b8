"""What agents are, on disk and after a restart: seed 004 end to end (P-01 … P-06, P-09, P-13)."""

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.families import Recorder, answers, child, config, heard, parent
from support.restarts import Lives, last_outcome

from hubbub import (
    AgentDefinition,
    Cron,
    Heartbeat,
    Message,
    RestorePolicy,
    RunContext,
    RunState,
    Runtime,
    agent,
    send_agent_message,
)
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelRequest
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, NoAgentFound
from hubbub.hub.events.descriptors import (
    CronDescriptor,
    HeartbeatDescriptor,
    SubagentDescriptor,
    UserDescriptor,
)
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import EPOCH
from hubbub.runtime.models.scripted import call, reply

pytestmark = pytest.mark.anyio

FOREGROUND = "most-recent-foreground"


@pytest.fixture
def lives(tmp_path: Path, ports: Ports) -> Lives:
    return Lives(tmp_path, ports)


@pytest.fixture(params=["left", "killed"])
def any_lives(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Lives:
    return Lives(tmp_path, ports, is_killed=request.param == "killed")


def bot(latency: float = 0, name: str = "assistant") -> AgentDefinition:
    return model_agent(echo_model(latency), name=name)


def read(lives: Lives, run_id: str, name: str) -> Any:
    text = (lives.folder / "agents" / run_id / name).read_text()
    if name.endswith("jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def folders(lives: Lives) -> set[str]:
    return {path.name for path in (lives.folder / "agents").iterdir()}


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """What was logged, of some kind."""
    return [x.getMessage() for x in caplog.records if x.getMessage().startswith(event)]


async def projected(rt: Runtime) -> None:
    await rt.hub.journal.projected()  # type: ignore[attr-defined]


async def open_chat(rt: Runtime, key: str, said: str = "hello", agent: str = "assistant") -> str:
    """A conversation with a person, idle."""
    run = await rt.start(agent, said, session_key=key)
    await last_outcome(rt, run.run_id)
    await anyio.sleep(1)
    return run.run_id


# ── P-01, P-13: shapes, and which runs have them ─────────────────────────────────────────────


@pytest.mark.spec("P-01", "P-13")
async def test_the_four_types_stand_on_disk_in_the_seed_s_shapes(
    lives: Lives, ports: Ports
) -> None:
    helper = child(Recorder(call("finish", result="the fruit")))
    main = parent(Recorder(call("helper", message="Go."), "Thanks."), config())
    schedules = [
        Cron("digest", "* * * * *", "assistant", "Sum up."),
        Heartbeat("assistant", ["Tidy up."], interval=90),
    ]
    async with lives.life(bot(), main, helper, schedules=schedules) as rt:
        user = await open_chat(rt, "telegram_123_456", "Please.", "main")
        await anyio.sleep(120)
        await projected(rt)
        infos = {x.run_id: x for x in await rt.hub.journal.runs(live=False)}
    kinds = {run_id: read(lives, run_id, "descriptor.json") for run_id in folders(lives)}
    assert set(kinds) == set(infos)
    assert kinds[user] == {
        "type": "user", "connector": "telegram", "userId": "456", "channelId": "123",
    }  # fmt: skip
    of = {each["type"]: run_id for run_id, each in kinds.items()}
    assert set(of) == {"user", "cron", "heartbeat", "subagent"}
    assert kinds[of["cron"]] == {"type": "cron", "id": "digest"}
    assert kinds[of["heartbeat"]] == {"type": "heartbeat"}
    assert kinds[of["subagent"]] == {
        "type": "subagent", "id": of["subagent"], "parentAgentId": user, "name": "helper",
    }  # fmt: skip
    for run_id in infos:
        state = read(lives, run_id, "state.json")
        wanted = {
            "agent", "status", "title", "tags", "children", "active_stack", "terminated",
            "createdAt", "updatedAt",
        }  # fmt: skip
        assert wanted <= set(state)
        assert state["createdAt"] >= EPOCH and state["updatedAt"] >= state["createdAt"]
        history = read(lives, run_id, "history.jsonl")
        assert all({"type", "at"} <= set(line) for line in history)
        assert history[0]["type"] in ("start", "user_message")
    lines = {line["type"]: line for line in read(lives, user, "history.jsonl")}
    assert {"text", "files"} <= set(lines["user_message"])
    assert {"text", "files", "toolCalls"} <= set(lines["assistant_message"])
    assert {"toolCallId", "output", "isError"} <= set(lines["tool_result"])
    assert lines["tool_result"]["output"] == "the fruit"
    assert [x["type"] for x in read(lives, of["heartbeat"], "history.jsonl")].count("reset")


@pytest.mark.spec("P-13")
async def test_what_stands_for_nobody_has_no_descriptor_and_no_folder(lives: Lives) -> None:
    @agent("worker")
    async def worker(input: Any, ctx: RunContext) -> str:
        return str((await ctx.spawn("assistant", "hi", name="Bob").result()).output)

    two_sided = child(Recorder(call("finish", result="x")), name="pair")
    async with lives.life(bot(), worker, two_sided) as rt:
        local = (await rt.start("assistant", "hello")).run_id
        code = (await rt.start("worker")).run_id
        pair = (await rt.start("pair", "go")).run_id
        keyed = (await rt.start("pair", "go", session_key="odd key")).run_id
        for run_id in (local, code, pair, keyed):
            await last_outcome(rt, run_id)
        infos = {x.run_id: x for x in await rt.hub.journal.runs(live=False)}
        below = next(x for x in infos.values() if x.parent_run_id == code)
        with pytest.raises(NoAgentFound):
            await rt.agent_for(FOREGROUND)
        await projected(rt)
    for run_id in (local, code, pair):
        assert infos[run_id].descriptor is None
    odd = UserDescriptor(connector="local", user_id="local", channel_id="odd key")
    assert infos[keyed].descriptor == odd
    assert below.descriptor == SubagentDescriptor(id=below.run_id, parent_agent_id=code, name="Bob")
    assert folders(lives) == {keyed, below.run_id}


@pytest.mark.spec("P-13", "R-09")
async def test_an_opening_that_names_no_agent_is_the_default_agent_s(lives: Lives) -> None:
    async with lives.life(bot(), bot(name="other"), default_agent="other") as rt:
        receipt = await rt.hub.open(input="hello", session_key="web_1_2")
        await last_outcome(rt, receipt.run_id)
        await projected(rt)
    assert read(lives, receipt.run_id, "state.json")["agent"] == "other"
    async with lives.life(bot(), bot(name="other")) as rt:
        with pytest.raises(BadValue, match="default_agent"):
            rt.hub.open(input="hello")
        assert (await rt.hub.open("assistant", "b", session_key="web_1_2")).run_id == receipt.run_id
        assert (await last_outcome(rt, receipt.run_id)).output == "echo: b"


@pytest.mark.spec("P-01")
async def test_a_descriptor_is_written_once(any_lives: Lives) -> None:
    async with any_lives.life(bot()) as rt:
        run_id = await open_chat(rt, "web_1_2")
        await projected(rt)
    descriptor = any_lives.folder / "agents" / run_id / "descriptor.json"
    before = descriptor.stat().st_mtime_ns, descriptor.read_bytes()
    for _ in range(2):
        async with any_lives.life(bot()) as rt:
            await rt.hub.send("more", session_key="web_1_2")
            await last_outcome(rt, run_id)
            await projected(rt)
        if any_lives.is_killed:
            descriptor = any_lives.folder / "agents" / run_id / "descriptor.json"
    assert (descriptor.stat().st_mtime_ns, descriptor.read_bytes()) == before


# ── P-05: strategies ─────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-05")
async def test_recency_is_what_users_said_and_nothing_else(any_lives: Lives) -> None:
    @agent("gossip")
    async def gossip(input: str, ctx: RunContext) -> None:
        await ctx.send_agent_message("psst", input)
        await ctx.hub.send_to_run(input, "not so silent")

    helper = child(Recorder(call("finish", result="x"), latency=10))
    delegating = parent(
        Recorder(call("helper", message="Go."), *["Well."] * 9), config(blocking=False), name="lead"
    )
    agents = (bot(), gossip, delegating, helper)
    async with any_lives.life(*agents) as rt:
        with pytest.raises(NoAgentFound):
            await rt.agent_for(FOREGROUND)
        first = await open_chat(rt, "web_1_1", agent="lead")
        second = await open_chat(rt, "web_1_2")
        assert await rt.agent_for(FOREGROUND) == second
        await rt.hub.send_to_run(first, Message("hidden", silent=True))
        await rt.hub.send_to_run(first, Message("said by a program", role="system"))
        await rt.run("gossip", first)
        await anyio.sleep(100)  # The child's result comes.
        await rt.hub.interrupt(first)
        await last_outcome(rt, first)
        assert await rt.agent_for(FOREGROUND) == second
    async with any_lives.life(*agents) as rt:
        assert await rt.agent_for(FOREGROUND) == second
        await rt.hub.send("hello", session_key="web_1_1")
        assert await rt.agent_for(FOREGROUND) == first
        await last_outcome(rt, first)
    async with any_lives.life(*agents) as rt:
        assert rt.runs.in_memory == ()
        assert await rt.agent_for(FOREGROUND) == first, "parked, and not read"
        third = await open_chat(rt, "web_1_3")
        assert await rt.agent_for(FOREGROUND) == third
        await rt.terminate(third)
        assert await rt.agent_for(FOREGROUND) == first
    async with any_lives.life(*agents) as rt:
        assert await rt.agent_for(FOREGROUND) == first
        await rt.terminate(first)
        await rt.terminate(second)
        with pytest.raises(NoAgentFound):
            await rt.agent_for(FOREGROUND)


@pytest.mark.spec("P-05")
async def test_a_refused_message_or_a_context_only_restore_changes_no_recency(
    lives: Lives,
) -> None:
    async with lives.life(bot(100), max_inbox=1) as rt:
        first = (await rt.start("assistant", "a", session_key="web_1_1")).run_id
        await anyio.sleep(1)
        await rt.hub.send_to_run(first, "waits")
        second = (await rt.start("assistant", "a", session_key="web_1_2")).run_id
        assert (await rt.hub.send_to_run(first, "one too many")).rejected
        again = Message("twice", key="k")
        await anyio.sleep(1)
        assert (await rt.hub.send_to_run(second, again)).accepted
        assert await rt.agent_for(FOREGROUND) == second
    async with lives.life(bot(100), restore=RestorePolicy.CONTEXT_ONLY) as rt:
        await anyio.sleep(1000)
        assert await rt.agent_for(FOREGROUND) == second


@pytest.mark.spec("P-05", "P-08")
async def test_the_heartbeat_s_agent_is_found_and_other_strategies_are_refused(
    any_lives: Lives,
) -> None:
    beat = Heartbeat("assistant", ["Tidy up."], interval=60)
    async with any_lives.life(bot()) as rt:
        with pytest.raises(NoAgentFound, match="heartbeat"):
            await rt.agent_for("heartbeat")
        for strategy in ("newest", "", "user", "cron"):
            with pytest.raises(BadValue, match="most-recent-foreground"):
                await rt.agent_for(strategy)
    async with any_lives.life(bot(), schedules=[beat]) as rt:
        await anyio.sleep(70)
        found = await rt.agent_for("heartbeat")
        info = await rt.hub.journal.info(found)
        assert info is not None and info.descriptor == HeartbeatDescriptor()
        with pytest.raises(NoAgentFound, match="foreground"):
            await rt.agent_for(FOREGROUND)
    async with any_lives.life(bot(), schedules=[beat]) as rt:
        assert await rt.agent_for("heartbeat") == found


# ── P-06: a user's messages ──────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-06")
async def test_first_messages_that_come_at_once_make_one_agent(any_lives: Lives) -> None:
    model = Recorder(*["Yes."] * 30)
    async with any_lives.life(model_agent(model)) as rt:
        receipts = [
            rt.hub.open("assistant", str(number), session_key="web_1_2") for number in range(20)
        ]
        found = {(await receipt).run_id for receipt in receipts}
        (run_id,) = found
        await last_outcome(rt, run_id)
        assert heard(model.requests[-1]) == [str(number) for number in range(20)]
    async with any_lives.life(model_agent(model)) as rt:
        more = [rt.hub.open("assistant", f"m{n}", session_key="web_1_2") for n in range(5)]
        assert {(await receipt).run_id for receipt in more} == {run_id}
        await last_outcome(rt, run_id)
        assert heard(model.requests[-1])[20:] == [f"m{n}" for n in range(5)]
        await rt.terminate(run_id)
        fresh = await rt.hub.open("assistant", "again", session_key="web_1_2")
        assert fresh.accepted and fresh.run_id != run_id
        await last_outcome(rt, fresh.run_id)
        assert heard(model.requests[-1]) == ["again"]
        await projected(rt)
    async with any_lives.life(model_agent(model)) as rt:
        assert (await rt.hub.send("hi", session_key="web_1_2")).run_ids == (fresh.run_id,)
        await last_outcome(rt, fresh.run_id)
    assert read(any_lives, run_id, "descriptor.json") == read(
        any_lives, fresh.run_id, "descriptor.json"
    )
    assert read(any_lives, run_id, "state.json")["terminated"]


# ── P-09: agents that speak to agents ────────────────────────────────────────────────────────


@pytest.mark.spec("P-09", "P-13")
@pytest.mark.parametrize("way", ["tool", "state", "ctx"])
async def test_a_subagent_speaks_to_its_parent(way: str, lives: Lives) -> None:
    @tool
    async def tell(state: RunState) -> str:
        return (await state.send_agent_message("half way")).status

    @agent("scout")
    async def scout(input: Any, ctx: RunContext) -> str:
        return (await ctx.send_agent_message("half way")).status

    @tool
    async def send_out(state: RunState) -> str:
        return str((await state.spawn("scout").result()).output)

    speak = call("tell") if way == "state" else call("send_agent_message", text="half way")
    spoken = send_agent_message if way == "tool" else tell
    helper = child(Recorder(speak, call("finish", result="done")), spoken)
    begin = call("send_out") if way == "ctx" else call("helper", message="Go.")
    boss = Recorder(begin, "Thanks.", "I see.", "I see.")
    async with lives.life(parent(boss, config(), send_out), helper, scout) as rt:
        run_id = await open_chat(rt, "web_1_2", "Please.", "main")
        elsewhere = await open_chat(rt, "web_1_3", "Please.", "main")
        await last_outcome(rt, run_id)
        runs = await rt.hub.journal.runs(live=False, root_run_id=run_id)
        await projected(rt)
    below = next(x.run_id for x in runs if x.parent_run_id == run_id)
    lines = [x for x in read(lives, run_id, "history.jsonl") if x["type"] == "system_message"]
    (line,) = [x for x in lines if "half way" in x["text"]]
    assert (line["text"], line["origin"], line["silent"]) == ("half way", below, True)
    assert elsewhere != run_id
    sent = [x for x in lives.seen.all("session:message") if x.content == "half way"]
    assert {(x.source, x.silent, x.metadata["origin"]) for x in sent} >= {(below, True, below)}


@pytest.mark.spec("P-09", "P-05", "P-07")
@pytest.mark.parametrize("way", ["tool", "state"])
async def test_a_cron_agent_speaks_to_whom_the_user_spoke_to_last_or_hears_that_nobody_is_there(
    way: str, lives: Lives
) -> None:
    @tool
    async def tell(text: str, state: RunState) -> str:
        receipt = await state.send_agent_message(text)
        return f"sent to {receipt.run_id}"

    speak = send_agent_message if way == "tool" else tell
    told = Recorder(call(speak.name, text="It is noon."), "Sent.")
    clock = model_agent(told, speak, name="clock")
    noon = Cron("noon", "* * * * *", "clock", "Tell the time.")
    async with lives.life(bot(), clock, schedules=[noon]) as rt:
        await anyio.sleep(61)
        (refused,) = answers(told.requests[-1])
        assert refused.is_error and "no " in refused.output and "\n" not in refused.output
    user_model = Recorder("Hello.", "Thank you.", "Thank you.")
    told2 = Recorder("", "", call(speak.name, text="It is one."), "Sent.")
    clock = model_agent(told2, speak, name="clock")
    async with lives.life(model_agent(user_model), clock, schedules=[noon]) as rt:
        older = await open_chat(rt, "web_1_1")
        run_id = await open_chat(rt, "web_1_2")
        await anyio.sleep(61)
        await last_outcome(rt, run_id)
        assert heard(user_model.requests[-1])[-1] == "It is one."
        assert answers(told2.requests[-1])[-1].output == f"sent to {run_id}"
        assert await rt.agent_for(FOREGROUND) == run_id
        await projected(rt)
    assert not [x for x in read(lives, older, "history.jsonl") if x["type"] == "system_message"]


@pytest.mark.spec("P-09")
async def test_an_agent_that_is_named_is_spoken_to_and_one_that_is_over_is_an_error(
    any_lives: Lives,
) -> None:
    said: list[Any] = []

    @agent("speaker")
    async def speaker(input: str, ctx: RunContext) -> None:
        receipt = await ctx.send_agent_message("to you", input)
        said.append((receipt.status, receipt.reason))

    other = Recorder("Hello.", "I hear.")
    async with any_lives.life(model_agent(other), speaker) as rt:
        named = await open_chat(rt, "web_1_1")
        await open_chat(rt, "web_1_2")
    async with any_lives.life(model_agent(other), speaker) as rt:
        await rt.run("speaker", named)
        await last_outcome(rt, named)
        assert heard(other.requests[-1]) == ["hello", "to you"]
        await rt.terminate(named)
        await rt.run("speaker", named)
        await rt.run("speaker", "nobody")
    assert said == [("accepted", ""), ("rejected", "terminated"), ("rejected", "unknown")]


@pytest.mark.spec("P-09")
@pytest.mark.parametrize("way", ["tool"])
async def test_the_tool_says_that_nobody_of_that_id_is_there(way: str, lives: Lives) -> None:
    script = Recorder(call(send_agent_message.name, text="x", agent_id="nobody"), "Oh.")
    async with lives.life(model_agent(script, send_agent_message)) as rt:
        await open_chat(rt, "web_1_9")
    (refused,) = answers(script.requests[-1])
    assert refused.is_error and "unknown" in refused.output and "\n" not in refused.output


# ── P-02, P-03: the database is gone ─────────────────────────────────────────────────────────


@tool(idempotent=True)
async def keep(state: RunState) -> str:
    """Keep a file and a value."""
    await state.files.write("notes/a.txt", "content")
    await state.kv.set("colour", "red")
    return "kept"


def family(boss: Any, latency: float = 1) -> list[AgentDefinition]:
    work = Recorder(
        call("finish", result="first"), call("finish", result="second"), latency=latency
    )
    return [parent(boss, config(stays=True), keep), child(work), bot()]


def create(name: str = "Ada") -> Any:
    return call("subagent_create", agent="helper", name=name, arguments={"message": "Go."})


@pytest.mark.spec("P-02", "P-03", "P-05", "P-11", "P-13")
async def test_without_the_database_every_agent_is_there_as_it_was(
    lives: Lives, ports: Ports
) -> None:
    script = [reply("Let me see.", create(), call("keep")), "Thanks.", "Later."]
    async with lives.life(*family(Recorder(*script))) as rt:
        chat = await open_chat(rt, "telegram_7_8", "Please.", "main")
        middle = await open_chat(rt, "telegram_7_9")
        newest = await open_chat(rt, "telegram_7_10")
        over = await open_chat(rt, "telegram_7_11")
        await rt.hub.send_to_run(middle, Message("once", key="k"), source="shop")
        await last_outcome(rt, middle)
        await anyio.sleep(1)
        await rt.hub.send_to_run(newest, "and you")
        await last_outcome(rt, newest)
        await rt.terminate(over)
        await rt.finished(over)
        before = {x.run_id: x for x in await rt.hub.journal.runs(live=False)}
        rt.runs.stop()
        rt.phase.is_leaving = True
        await rt.hub.send_to_run(chat, "pending")
        await rt.hub.send_to_run(newest, "pending, too")
    control = Lives(lives.folder.parent / "control", ports)
    shutil.copytree(lives.folder, control.folder)
    lives.forget_database()
    requests: list[list[ModelRequest]] = []
    for each in (control, lives):
        boss = Recorder(*script)
        async with each.life(*family(boss)) as rt:
            assert (await last_outcome(rt, chat)).output == "Later."
            requests.append(boss.requests)
            assert await rt.agent_for(FOREGROUND) == newest
            after = {x.run_id: x for x in await rt.hub.journal.runs(live=False)}
            assert set(after) == set(before)
            for run_id, info in after.items():
                was = before[run_id]
                assert (info.descriptor, info.agent, info.name, info.session_key) == (
                    was.descriptor, was.agent, was.name, was.session_key
                )  # fmt: skip
                assert (info.parent_run_id, info.root_run_id, info.created_at) == (
                    was.parent_run_id, was.root_run_id, was.created_at
                )  # fmt: skip
                assert (info.status, info.inbox) == (was.status, was.inbox)
            found = await rt.runs.look_at(chat)
            assert found is not None
            area = found[1]().area
            assert list(area.files) == ["notes/a.txt"] and list(area.keys) == ["colour"]
            again = await rt.hub.send_to_run(middle, Message("once", key="k"), source="shop")
            assert again.duplicate, "keys hold"
            assert (await rt.hub.send_to_run(over, "x")).reason == "terminated"
            assert (await rt.hub.send("x", session_key="telegram_7_9")).run_ids == (middle,)
    assert requests[0] == requests[1], "the model is shown the same"


@pytest.mark.spec("P-02", "P-03", "C-10", "C-14")
async def test_without_the_database_a_child_at_work_goes_on_and_tells_its_parent(
    lives: Lives,
) -> None:
    async with lives.life(*family(Recorder(create(), "Thanks."), 100)) as rt:
        chat = (await rt.start("main", "Please.", session_key="web_1_2")).run_id
        await anyio.sleep(50)
    lives.forget_database()
    boss = Recorder(create(), "Thanks.")
    async with lives.life(*family(boss, 5)) as rt:
        assert (await last_outcome(rt, chat)).output == "Thanks."
        below = await rt.hub.journal.runs(root_run_id=chat)
        assert len(below) == 2
    assert [x.output for x in answers(boss.requests[-1])] == ["first"]


@pytest.mark.spec("P-02", "P-03", "P-05")
async def test_a_folder_from_elsewhere_is_adopted_and_its_user_goes_on(
    tmp_path: Path, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hubbub")
    here, there = Lives(tmp_path / "here", ports), Lives(tmp_path / "there", ports)
    async with there.life(bot()) as rt:
        moved = await open_chat(rt, "telegram_1_1", "from there")
    async with here.life(bot()) as rt:
        resident = await open_chat(rt, "telegram_2_2", "from here")
    shutil.copytree(there.folder / "agents" / moved, here.folder / "agents" / moved)
    model = Recorder("", "On we go.")
    async with here.life(model_agent(model)) as rt:
        run = await rt.start("assistant", "here I am", session_key="telegram_1_1")
        assert run.run_id == moved
        assert (await last_outcome(rt, moved)).output == "On we go."
        assert await rt.agent_for(FOREGROUND) == moved
        await projected(rt)
    assert heard(model.requests[-1]) == ["from there", "here I am"]
    (told,) = logged(caplog, "agent_folder.adopted")
    assert moved in told
    said = [x["text"] for x in read(here, moved, "history.jsonl") if x["type"] == "user_message"]
    assert said == ["from there", "here I am"]
    async with here.life(model_agent(model)) as rt:
        assert await rt.agent_for(FOREGROUND) == moved
        assert (await rt.hub.send("x", session_key="telegram_2_2")).run_ids == (resident,)


def damage(path: Path, what: str) -> None:
    run = path / "run.jsonl"
    text = run.read_bytes()
    match what:
        case "half created":
            for name in ("run.jsonl", "history.jsonl", "state.json"):
                (path / name).unlink()
        case "of an earlier version":
            run.unlink()
        case "torn last line":
            run.write_bytes(text + b'{"line":"eve')
        case "corrupt last line":
            run.write_bytes(text + b'{"line":"run"nonsense\n')
        case "corrupt middle line":
            lines = text.splitlines(keepends=True)
            run.write_bytes(b"".join([*lines[:2], b"{nonsense\n", *lines[3:]]))
        case "of another run":
            run.write_bytes(text.replace(path.name.encode(), b"other"))
        case "flipped attachment":
            file = path / "files" / "notes" / "a.txt"
            file.unlink()
            file.write_text("tampered")


@pytest.mark.spec("P-02", "P-03", "P-04")
@pytest.mark.parametrize(
    ("what", "file", "is_adopted"),
    [
        ("half created", "run.jsonl: missing; open the database", False),
        ("of an earlier version", "run.jsonl: missing; open the database", False),
        ("torn last line", "run.jsonl:", True),
        ("corrupt last line", "run.jsonl:", True),
        ("corrupt middle line", "run.jsonl:3", False),
        ("of another run", "run.jsonl:1", False),
        ("flipped attachment", "files/notes/a.txt", True),
    ],
)
async def test_one_damaged_folder_is_reported_the_others_load_and_a_repair_brings_it_back(
    what: str, file: str, is_adopted: bool, lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    async with lives.life(*family(Recorder(call("keep"), "Kept."))) as rt:
        hurt = await open_chat(rt, "web_1_1", "Please.", "main")
        sound = await open_chat(rt, "web_1_2")
    lives.forget_database()
    shutil.rmtree(lives.folder / "blobs", ignore_errors=True)
    path = lives.folder / "agents" / hurt
    backup = lives.folder.parent / "backup"
    shutil.copytree(path, backup)
    damage(path, what)
    files = {x: x.read_bytes() for x in path.rglob("*") if x.is_file()}
    async with lives.life(*family(Recorder("", "", "Back."))) as rt:
        await rt.hub.send("hi", session_key="web_1_2")
        assert (await last_outcome(rt, sound)).output == "echo: hi"
        assert (await rt.hub.journal.info(hurt) is not None) == is_adopted
        if is_adopted:
            await rt.hub.send("again", session_key="web_1_1")
            assert (await last_outcome(rt, hurt)).success
    told = [x for x in logged(caplog, "agent_f") if hurt in x and "problem=" in x]
    assert [x for x in told if f"{hurt}/{file}" in x], told
    assert not [x for x in told if r"\n" in x], "one line each"
    if is_adopted:
        return
    assert {x: x.read_bytes() for x in path.rglob("*") if x.is_file()} == files, "files stay"
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    boss = Recorder("", "", "Back.")
    async with lives.life(*family(boss)) as rt:
        run = await rt.start("main", "again", session_key="web_1_1")
        assert run.run_id == hurt
        assert (await last_outcome(rt, hurt)).output == "Back."
    assert heard(boss.requests[-1]) == ["Please.", "again"]


@pytest.mark.spec("P-02", "P-04")
async def test_a_folder_that_a_kill_left_behind_the_database_is_made_up_for(
    tmp_path: Path, ports: Ports
) -> None:
    lives = Lives(tmp_path, ports, is_killed=True)
    async with lives.life(bot()) as rt:
        run_id = await open_chat(rt, "web_1_1")
        await projected(rt)
        before = read(lives, run_id, "history.jsonl")
        await rt.hub.send_to_run(run_id, "unwritten")
        await last_outcome(rt, run_id)
    torn = lives.folder / "agents" / run_id / "history.jsonl"
    assert len(read(lives, run_id, "history.jsonl")) == len(before), "the folder is behind"
    torn.write_bytes(torn.read_bytes() + b'{"type":"assis')
    async with lives.life(bot()) as rt:
        await projected(rt)
        said = [x["text"] for x in read(lives, run_id, "history.jsonl") if "text" in x]
        assert said == ["hello", "echo: hello", "unwritten", "echo: unwritten"]


@pytest.mark.spec("P-03", "T-11")
async def test_context_is_rebuilt_after_the_latest_reset(any_lives: Lives) -> None:
    model = Recorder("one", "two", "three")
    async with any_lives.life(model_agent(model)) as rt:
        run_id = await open_chat(rt, "web_1_1", "old words")
        rt.hub.emit(e.SessionReset(run_id=run_id, message="afresh"))
        await anyio.sleep(5)
        await last_outcome(rt, run_id)
        await projected(rt)
    lines = [x["type"] for x in read(any_lives, run_id, "history.jsonl")]
    assert "reset" in lines and "start" in lines
    if not any_lives.is_killed:
        any_lives.forget_database()
    async with any_lives.life(model_agent(model)) as rt:
        await rt.hub.send("new words", session_key="web_1_1")
        await last_outcome(rt, run_id)
    assert heard(model.requests[-1]) == ["afresh", "new words"]


@pytest.mark.spec("P-13", "P-07", "P-08")
async def test_schedules_find_their_agents_again_without_the_database(lives: Lives) -> None:
    schedules = [
        Cron("digest", "* * * * *", "assistant", "Sum up."),
        Heartbeat("assistant", ["Tidy up."], interval=60),
    ]
    async with lives.life(bot(), schedules=schedules) as rt:
        await anyio.sleep(70)
        before = {x.run_id: x.descriptor for x in await rt.hub.journal.runs()}
    assert set(before.values()) == {CronDescriptor(id="digest"), HeartbeatDescriptor()}
    lives.forget_database()
    async with lives.life(bot(), schedules=schedules) as rt:
        await anyio.sleep(130)
        after = {x.run_id: x.descriptor for x in await rt.hub.journal.runs()}
        assert after == before, "no second agent of one schedule"
        assert len([x for x in await rt.hub.read() if x.type == "schedule:fire"]) >= 2


# ── P-02: what is not adopted, and waits ─────────────────────────────────────────────────────


@pytest.mark.spec("P-02", "P-06", "P-17")
async def test_a_folder_whose_key_is_taken_waits_until_that_run_is_over(
    tmp_path: Path, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = Lives(tmp_path / "here", ports), Lives(tmp_path / "there", ports)
    async with there.life(bot()) as rt:
        moved = await open_chat(rt, "telegram_1_1", "from there")
    async with here.life(bot()) as rt:
        resident = await open_chat(rt, "telegram_1_1", "from here")
    shutil.copytree(there.folder / "agents" / moved, here.folder / "agents" / moved)
    async with here.life(bot()) as rt:
        assert (await rt.hub.send("x", session_key="telegram_1_1")).run_ids == (resident,)
        await rt.terminate(resident)
        await rt.finished(resident)
    (told,) = logged(caplog, "agent_folder.broken")
    assert moved in told and resident in told and "terminate" in told
    async with here.life(bot()) as rt:
        assert (await rt.hub.send("x", session_key="telegram_1_1")).run_ids == (moved,)


@pytest.mark.spec("P-02", "P-17")
async def test_of_two_folders_with_one_key_the_one_heard_from_last_is_adopted(
    tmp_path: Path, ports: Ports
) -> None:
    homes = [Lives(tmp_path / name, ports) for name in ("a", "b")]
    here = Lives(tmp_path / "here", ports)
    moved = []
    for home in homes:
        async with home.life(bot()) as rt:
            moved.append(await open_chat(rt, "telegram_1_1"))
    async with homes[0].life(bot()) as rt:
        await rt.hub.send("later", session_key="telegram_1_1")
        await last_outcome(rt, moved[0])
    for home, run_id in zip(homes, moved, strict=True):
        shutil.copytree(home.folder / "agents" / run_id, here.folder / "agents" / run_id)
    async with here.life(bot()) as rt:
        assert (await rt.hub.send("x", session_key="telegram_1_1")).run_ids == (moved[0],)
        assert await rt.hub.journal.info(moved[1]) is None


@pytest.mark.spec("P-02", "P-03", "C-10")
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("stays", [True, False])
async def test_a_child_waits_for_its_broken_parent_and_tells_it_when_that_is_back(
    blocking: bool, stays: bool, lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    begin = create() if stays else call("helper", message="Go.")

    def agents(boss: Recorder, latency: float) -> list[AgentDefinition]:
        work = Recorder(call("finish", result="the fruit"), latency=latency)
        return [parent(boss, config(blocking=blocking, stays=stays)), child(work), bot()]

    async with lives.life(*agents(Recorder(begin, "Well."), 100)) as rt:
        chat = (await rt.start("main", "Please.", session_key="web_1_1")).run_id
        other = await open_chat(rt, "web_1_2")
        await anyio.sleep(50)
    lives.forget_database()
    file = lives.folder / "agents" / chat / "run.jsonl"
    text = file.read_bytes()
    file.write_bytes(b"{" + text)
    async with lives.life(*agents(Recorder("never"), 5)) as rt:
        await anyio.sleep(100)
        assert [x.run_id for x in await rt.hub.journal.runs(live=False)] == [other]
        assert not lives.seen.all("hub:dead_letter")
    told = logged(caplog, "agent_folder.broken")
    assert len(told) == 2 and any(f"below run {chat}" in x for x in told)
    file.write_bytes(text)
    boss = Recorder(begin, "Well.", "Thanks.")
    async with lives.life(*agents(boss, 5)) as rt:
        await anyio.sleep(100)
        assert (await last_outcome(rt, chat)).success
    said = [x.output for x in answers(boss.requests[-1])] + heard(boss.requests[-1])
    assert len([x for x in said if "the fruit" in x]) == 1


@pytest.mark.spec("P-02", "T-06")
async def test_a_child_whose_parent_is_nowhere_goes_on_alone(tmp_path: Path, ports: Ports) -> None:
    here, there = Lives(tmp_path / "here", ports), Lives(tmp_path / "there", ports)

    def agents(latency: float) -> list[AgentDefinition]:
        boss = Recorder(call("helper", message="Go."), "Thanks.")
        work = Recorder(call("finish", result="the fruit"), latency=latency)
        return [parent(boss, config()), child(work)]

    async with there.life(*agents(100)) as rt:
        chat = (await rt.start("main", "Please.", session_key="web_1_1")).run_id
        await anyio.sleep(50)
        (below,) = await rt.hub.journal.find(chat, "below")
    shutil.copytree(there.folder / "agents" / below, here.folder / "agents" / below)
    async with here.life(*agents(5)) as rt:
        with anyio.fail_after(1000):
            assert (await rt.finished(below)).output == "the fruit"
        info = await rt.hub.journal.info(below)
        assert info is not None and info.parent_run_id is None and info.root_run_id == below
        assert not here.seen.all("hub:dead_letter"), "there is nobody that it could report to"


# ── adoption, late ───────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-05", "P-02")
async def test_adopting_an_older_conversation_makes_it_not_the_most_recent(
    tmp_path: Path, ports: Ports
) -> None:
    here, there = Lives(tmp_path / "here", ports), Lives(tmp_path / "there", ports)
    async with there.life(bot()) as rt:
        moved = await open_chat(rt, "telegram_1_1")
    async with here.life(bot()) as rt:
        resident = await open_chat(rt, "telegram_2_2")
    shutil.copytree(there.folder / "agents" / moved, here.folder / "agents" / moved)
    async with here.life(bot()) as rt:
        assert await rt.agent_for(FOREGROUND) == resident


@pytest.mark.spec("P-02", "S-10")
async def test_without_the_database_a_run_s_time_goes_on(lives: Lives) -> None:
    async with lives.life(bot()) as rt:
        run = await rt.start("assistant", "hello", session_key="web_1_1", timeout=100)
        await run.result()
    lives.forget_database()
    async with lives.life(bot()) as rt:
        await anyio.sleep(1000)
        info = await rt.hub.journal.info(run.run_id)
        assert info is not None and info.status == "ended"


@pytest.mark.spec("P-05")
async def test_an_agent_whose_id_was_chosen_is_no_user_either(lives: Lives) -> None:
    @agent("boss")
    async def boss(input: str, ctx: RunContext) -> None:
        await ctx.hub.send_to_run(input, "from an agent")

    async with lives.life(bot(), boss) as rt:
        first = await open_chat(rt, "web_1_1")
        second = await open_chat(rt, "web_1_2")
        await (await rt.start("boss", first, run_id="chosen-id")).finished()
        assert await rt.agent_for(FOREGROUND) == second
