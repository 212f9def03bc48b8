"""What every event carries, and the context that fills it in (H-12, H-17)."""

from contextvars import ContextVar

import anyio
import pytest
from msgspec import structs

from hubbub import (
    AgentDefinition,
    CustomEvent,
    Hub,
    PromptDefinition,
    RunState,
    Runtime,
    ScriptedModel,
    SideConfig,
    agent,
    tool,
)
from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentComplete, AgentStart, AgentStatus, AgentText, AgentTextDelta
from hubbub.runtime.models.scripted import call, reply

pytestmark = pytest.mark.anyio


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


def tick(n=0):
    return CustomEvent.of("test:tick", n=n)


def heard(hub, pattern="test:tick"):
    got = []
    hub.subscribe(pattern, got.append)
    return got


# ── scoped fields ────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-12")
async def test_scope_nests_merges_and_reverts(hub):
    got = heard(hub)
    await hub.publish(tick())
    with hub.scoped(run_id="a", agent="one"):
        await hub.publish(tick())
        with hub.scoped(agent="two", turn=3):
            await hub.publish(tick())
        await hub.publish(tick())
    await hub.publish(tick())
    assert [(e.run_id, e.agent, e.turn) for e in got] == [
        ("", "", 0), ("a", "one", 0), ("a", "two", 3), ("a", "one", 0), ("", "", 0),
    ]  # fmt: skip


@pytest.mark.spec("H-12")
async def test_scope_reverts_on_raise(hub):
    got = heard(hub)

    def fail(text):
        raise ValueError(text)

    with hub.scoped(run_id="a"):
        with pytest.raises(ValueError, match="in"), hub.scoped(run_id="b"):
            fail("in")
        await hub.publish(tick())
    with pytest.raises(ValueError, match="out"), hub.scoped(run_id="c"):
        fail("out")
    await hub.publish(tick())
    assert [event.run_id for event in got] == ["a", ""]


@pytest.mark.spec("H-12")
async def test_field_given_to_emit_wins_over_the_scope(hub):
    got = heard(hub, "agent:status")
    with hub.scoped(run_id="a", agent="one", turn=1):
        await hub.publish(AgentStatus(run_id="b", turn=2))
    assert [(e.run_id, e.agent, e.turn) for e in got] == [("b", "one", 2)]


@pytest.mark.spec("H-12")
async def test_every_context_field_may_be_scoped_and_no_other(hub):
    fields = {
        "run_id": "r", "root_run_id": "t", "parent_run_id": "p", "agent": "a", "side": "side_a",
        "label": "Ann", "turn": 2, "call_id": "1.0",
    }  # fmt: skip
    got = heard(hub)
    with hub.scoped(**fields):
        await hub.publish(tick())
    assert {name: getattr(got[0], name) for name in fields} == fields
    for wrong in ("lane", "seq", "at", "type", "colour"):
        with pytest.raises(BadValue, match=wrong), hub.scoped(**{wrong: "x"}):
            pass


@pytest.mark.spec("H-12")
async def test_parallel_tasks_never_mix_their_scopes(hub):
    """3 tasks × 5 events: no misattribution."""
    got = heard(hub)

    async def emit(name):
        with hub.scoped(run_id=name, agent=f"agent of {name}"):
            for n in range(5):
                await anyio.sleep(1)
                with hub.scoped(turn=n + 1):
                    await hub.publish(tick(name))
                    await anyio.sleep(0.1 * n)

    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(emit, name)
    assert len(got) == 15
    for event in got:
        assert (event.run_id, event.agent) == (event.data["n"], f"agent of {event.data['n']}")
    for name in "abc":
        assert [e.turn for e in got if e.run_id == name] == [1, 2, 3, 4, 5]
    await hub.publish(tick())
    assert got[-1].run_id == ""


@pytest.mark.spec("H-12")
async def test_tasks_started_inside_a_scope_inherit_it_and_keep_it(hub):
    got = heard(hub)

    async def emit():
        await anyio.sleep(1)
        await hub.publish(tick())

    async with anyio.create_task_group() as group:
        with hub.scoped(run_id="a"):
            group.start_soon(emit)
    assert [event.run_id for event in got] == ["a"]


@pytest.mark.spec("H-12")
async def test_async_handlers_do_not_see_the_scope_of_who_subscribed(hub, eventually):
    got = heard(hub, "test:echo")

    async def echo(event):
        hub.emit(CustomEvent.of("test:echo"))

    with hub.scoped(run_id="subscriber"):
        hub.subscribe("test:tick", echo)
    with hub.scoped(run_id="emitter"):
        await hub.publish(tick())
    await eventually(lambda: got)
    assert [event.run_id for event in got] == [""]


# ── what every event carries ─────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-12")
async def test_every_event_of_a_run_carries_its_place(journal, ports):
    @agent("leaf")
    async def leaf(input: str, ctx):
        ctx.say("leaf")
        return input

    @agent("root")
    async def root(input: str, ctx):
        async for message in ctx.messages():
            ctx.hub.emit(AgentTextDelta(text="I "))
            ctx.hub.emit(CustomEvent.of("test:tick"))
            ctx.hub.emit(CustomEvent.of("channel:test:tick"))
            child = ctx.spawn("leaf", message.content)
            await child.result()
            return child.run_id
        return None

    async with Runtime(agents=[leaf, root], store=journal, ports=ports) as rt:
        got = heard(rt.hub, "*")
        run = await rt.start("root", "")
        await anyio.sleep(5)
        await run.send("hello")
        child_id = (await run.result()).output
        assert {event.run_id for event in got} == {run.run_id, child_id}
        assert len({event.id for event in got}) == len(got)
        for event in got:
            of_child = event.run_id == child_id
            assert event.type
            assert event.at >= ports.clock.now() - 5_000_000
            assert event.root_run_id == run.run_id
            assert event.parent_run_id == (run.run_id if of_child else None)
            assert event.agent == ("leaf" if of_child else "root")
            assert event.is_durable == (event.lane in ("own", "in"))
            assert event.seq > 0
        assert got[0].at < got[-1].at, "5 s have passed"
        durable = [event for event in got if event.is_durable]
        assert {e.type for e in got} - {e.type for e in durable} == {
            "agent:text:delta", "channel:test:tick",
        }  # fmt: skip
        assert len({(e.run_id, e.lane, e.seq) for e in durable}) == len(durable)
        for run_id in (run.run_id, child_id):
            seqs = [e.seq for e in durable if (e.run_id, e.lane) == (run_id, "own")]
            assert seqs == list(range(1, len(seqs) + 1))
        assert await rt.hub.read() == durable


@pytest.mark.spec("H-12")
async def test_ids_are_unique_across_hubs(journal, ports):
    ids = []
    for _ in range(2):
        async with Hub(ports=ports) as hub:
            hub.subscribe("*", lambda event: ids.append(event.id))
            hub.emit(tick())
            hub.emit(CustomEvent.of("test:delta"))
            hub.open("agent")
    assert len(ids) == len(set(ids)) == 6


@pytest.mark.spec("H-12")
async def test_events_of_a_model_run_name_side_label_turn_and_call(journal, ports):
    @tool
    async def work(state: RunState) -> str:
        """Work."""
        state.hub.emit(CustomEvent.of("test:tick"))
        state.hub.emit(CustomEvent.of("channel:test:tick"))
        return "done"

    rt = Runtime(
        agents=[
            AgentDefinition(
                name="assistant", side_a=SideConfig(prompt="assistant", label="Assistant")
            )
        ],
        prompts=[
            PromptDefinition(name="assistant", prompt="Help.", model="scripted", tools=(work,))
        ],
        models={
            "scripted": ScriptedModel(
                [reply("Let me see.", call("work"), thinking="Hm."), "Done.", "Again."]
            )
        },
        store=journal,
        ports=ports,
    )
    async with rt:
        got = heard(rt.hub, "*")
        run = await rt.start("assistant", "Begin.")
        await run.result()
        await run.send("And now?")
        await run.result()
    said = [e for e in got if e.type in ("agent:text", "agent:thinking", "agent:step")]
    assert {(e.side, e.label) for e in said} == {("side_a", "Assistant")}
    assert [e.turn for e in said if e.type == "agent:step"] == [1, 1, 2]
    deltas = [e for e in got if e.type == "agent:text:delta"]
    assert deltas
    assert {(e.side, e.label) for e in deltas} == {("side_a", "Assistant")}
    of_call = [
        e for e in got if "tool" in e.type or e.type.endswith("test:tick") or "tick" in e.type
    ]
    assert [e.type for e in of_call] == [
        "agent:tool:start", "test:tick", "channel:test:tick", "agent:tool:complete",
    ]  # fmt: skip
    (call_id,) = {e.call_id for e in of_call}
    assert call_id
    assert {e.turn for e in of_call} == {1}


# ── runs start in an empty context ───────────────────────────────────────────────────────────

secret_of_caller: ContextVar[str] = ContextVar("secret_of_caller", default="nothing")


@pytest.mark.spec("H-12")
async def test_nothing_of_the_caller_s_context_leaks_into_a_run(journal, ports):
    @agent("leaf")
    async def leaf(input: str, ctx):
        ctx.hub.emit(AgentText(text="leaf"))
        rt.hub.emit(tick())
        return secret_of_caller.get()

    @agent("looker")
    async def looker(input: str, ctx):
        secret_of_caller.set("the parent's")
        with ctx.hub.scoped(run_id="x", agent="x", turn=99):
            ctx.hub.emit(AgentText(text="scoped"))
            child = ctx.spawn("leaf")
        return [input, (await child.result()).output]

    async with Runtime(agents=[looker, leaf], store=journal, ports=ports) as rt:
        got = heard(rt.hub, ["test:tick", "agent:text"])
        secret_of_caller.set("the caller's")
        with rt.hub.scoped(run_id="caller", agent="caller", turn=7, call_id="9.9"):
            run = await rt.start("looker", "in")
            assert (await run.result()).output == ["in", "nothing"]
        texts = {e.text: e for e in got if e.type == "agent:text"}
        (ticked,) = [e for e in got if e.type == "test:tick"]
        assert (ticked.run_id, ticked.agent, ticked.turn, ticked.call_id) == ("", "", 0, "")
        assert (texts["leaf"].agent, texts["leaf"].turn, texts["leaf"].call_id) == ("leaf", 0, "")
        # The run's own scope applies, but who it is is not its own to say.
        scoped = texts["scoped"]
        assert (scoped.run_id, scoped.agent, scoped.turn) == (run.run_id, "looker", 99)


# ── a run's own events, and what others say about it (H-17) ──────────────────────────────────


@pytest.mark.spec("H-17", "H-12")
async def test_ids_that_an_agent_puts_into_its_events_are_overwritten(journal, ports):
    lie = {
        "run_id": "another", "root_run_id": "another", "parent_run_id": "another",
        "agent": "another", "lane": "in", "seq": 77, "at": 1,
    }  # fmt: skip

    @agent("liar")
    async def liar(input: str, ctx):
        ctx.hub.emit(AgentText(text="x", **lie))
        await ctx.hub.publish(AgentStatus(status="x", **lie))
        ctx.hub.emit(CustomEvent(name="test:durable", **lie))
        ctx.hub.emit(CustomEvent(name="channel:test:tick", **lie))
        ctx.hub.emit(AgentTextDelta(text="x", **lie))

    async with Runtime(agents=[liar], store=journal, ports=ports) as rt:
        got = heard(rt.hub, "*")
        run = await rt.start("liar", "")
        await run.finished()
        assert {e.run_id for e in got} == {run.run_id}
        assert {e.root_run_id for e in got} == {run.run_id}
        assert {e.agent for e in got} == {"liar"}
        assert {e.parent_run_id for e in got} == {None}
        assert min(e.at for e in got) > 1
        own = [e.seq for e in got if e.lane == "own"]
        assert own == list(range(1, len(own) + 1))
        durable = {"test:durable": "own", "channel:test:tick": "", "agent:text:delta": ""}
        assert {e.type: e.lane for e in got if e.type in durable} == durable


@pytest.mark.spec("H-17")
async def test_what_outsiders_say_about_a_run_is_carried_and_is_no_fact(journal, ports):
    @agent("reader")
    async def reader(input: str, ctx):
        async for message in ctx.messages():
            return message.content
        return None

    async with Runtime(agents=[reader], store=journal, ports=ports) as rt:
        got = heard(rt.hub, "agent:*")
        run = await rt.start("reader", "")
        events = run.events()
        await anyio.sleep(1)
        forged = [
            AgentText(run_id=run.run_id, text="I said nothing"),
            AgentComplete(run_id=run.run_id, success=False, outcome="failed"),
            AgentStart(run_id=run.run_id),
        ]
        for event in forged:
            await rt.hub.publish(event)
        assert [(e.type, e.lane) for e in got[-3:]] == [(e.type, "hub") for e in forged]
        assert [e.lane for e in await rt.hub.read(run.run_id, types="agent:complete")] == ["hub"]
        assert rt.hub.statistics().live == 1, "it has not ended"
        await run.send("still here")
        outcome = await run.finished()
        assert (outcome.outcome, outcome.output) == ("completed", "still here")
        own = [e.type for e in await run.read() if e.lane == "own"]
        assert own.count("agent:start") == own.count("agent:complete") == 1
        assert "agent:text" not in own
        with anyio.fail_after(5):
            seen = [event async for event in events]
        assert (seen[-1].type, seen[-1].lane) == ("agent:complete", "own")


@pytest.mark.spec("H-17", "H-12")
async def test_outsider_cannot_give_itself_a_place_in_the_journal(hub):
    await hub.publish(AgentStatus(run_id="r", lane="own", seq=3, at=1))
    await hub.publish(CustomEvent(name="test:tick", lane="in", seq=3, at=1))
    events = await hub.read()
    assert {event.lane for event in events} == {"hub"}
    assert events[1].seq == events[0].seq + 1
    assert min(event.at for event in events) > 1


@pytest.mark.spec("H-12")
async def test_what_a_listener_emits_does_not_carry_the_emitters_scope(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        got = []
        hub.subscribe("test:first", lambda event: hub.emit(CustomEvent.of("test:second")))
        hub.subscribe("test:*", got.append)
        with hub.scoped(run_id="r", call_id="1.0"):
            await hub.publish(CustomEvent.of("test:first"))
            await hub.publish(CustomEvent.of("test:third"))
        assert {event.type: event.run_id for event in got} == {
            "test:first": "r", "test:second": "", "test:third": "r",
        }  # fmt: skip


IDS = ("run_id", "root_run_id", "parent_run_id")
NO_IDS = ("x" * 256, "x" * 5_000, "a\0b", "\ud800", 7)


@pytest.mark.spec("H-12", "H-17", "G-01")
@pytest.mark.parametrize("name", IDS)
async def test_an_event_is_emitted_with_any_id_that_is_a_name_of_bounded_length(hub, name):
    got = heard(hub, "*")
    for id_ in ("a b", "../x", "urn:order:7", "é", "x" * 255):
        for event in (AgentText(text="x"), AgentTextDelta(text="x"), CustomEvent.of("test:it")):
            await hub.publish(structs.replace(event, **{name: id_}))
            with hub.scoped(**{name: id_}):
                await hub.publish(event)
    assert len(got) == 30
    for id_ in NO_IDS:
        for event in (AgentText(text="x"), AgentTextDelta(text="x"), CustomEvent.of("test:it")):
            with pytest.raises(BadValue, match=name):
                hub.emit(structs.replace(event, **{name: id_}))
        with pytest.raises(BadValue, match=name), hub.scoped(**{name: id_}):
            pass
    assert len(got) == 30


@pytest.mark.parametrize("turn", [-1, 2**63, 10**400, True, 1.0, "1"])
async def test_a_turn_that_no_event_can_have_is_refused_by_its_scope(hub, turn):
    with pytest.raises(BadValue, match="turn"), hub.scoped(turn=turn):
        pass


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), float("inf")])
async def test_timeout_that_is_none_is_refused(timeout, ports):
    async with Hub(ports=ports) as hub:
        with pytest.raises(BadValue, match="timeout"):
            hub.open("a", timeout=timeout)
