"""Messages to runs and what becomes of them (H-07, H-08, H-14, H-17, H-20)."""

import re
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub import (
    AgentDefinition,
    CustomEvent,
    Hub,
    Message,
    PromptDefinition,
    Runtime,
    ScriptedModel,
    SideConfig,
    agent,
    tool,
)
from hubbub.hub.errors import (
    BadValue,
    CallerError,
    Closed,
    ReservedEvent,
    RunEnded,
    UnknownRun,
)
from hubbub.hub.events import (
    AgentComplete,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionResult,
    SessionTimer,
    SessionVariables,
)
from hubbub.hub.message import MAX_MESSAGE_CHARS
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.receipt import REMEDIES, Receipt
from hubbub.hub.store.journal import Delivery
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import call, reply

pytestmark = pytest.mark.anyio

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


async def open_run(hub, agent="agent", **options):
    receipt = await hub.open(agent, **options)
    assert receipt.accepted
    return receipt.run_id


async def end_run(hub, run_id, seq=0):
    """Write the terminal record, as the run's owner does."""
    lane = OwnLane(
        hub.pipeline, run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="agent", seq=seq
    )
    done = anyio.Event()
    lane.append((AgentComplete(),), status="ended", after=lambda commit: done.set())
    await done.wait()


def letters(hub):
    got = []
    hub.subscribe("hub:dead_letter", got.append)
    return got


async def flush(hub):
    while hub.statistics().uncommitted:
        await hub.journal.flush()


# ── accepted (H-07) ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-07")
async def test_accepted_message_is_an_event_and_waits_in_the_inbox(hub):
    got, dead = [], letters(hub)
    hub.subscribe("session:message", got.append)
    run_id = await open_run(hub)
    receipt = await hub.send_to_run(run_id, "hello", source="web")
    assert receipt.accepted
    assert not receipt.rejected
    assert (receipt.status, receipt.reason, receipt.run_id) == ("accepted", "", run_id)
    (event,) = got
    assert (event.type, event.run_id, event.content, event.source) == (
        "session:message", run_id, "hello", "web",
    )  # fmt: skip
    assert hub.statistics().waiting == 2, "the opening and the message"
    assert dead == []


@pytest.mark.spec("H-07", "H-06")
async def test_receipt_s_cursor_is_the_place_of_the_message(hub):
    run_id = await open_run(hub)
    receipts = [await hub.send_to_run(run_id, f"{n}") for n in range(3)]
    after = await hub.read(after=receipts[1].cursor)
    assert [event.content for event in after] == ["2"]
    async with hub.subscribe("session:message", after=receipts[0].cursor) as events:
        assert [(await anext(events)).content for _ in range(2)] == ["1", "2"]


@pytest.mark.spec("H-07", "H-17")
async def test_sending_acts_at_the_call_whether_the_receipt_is_awaited_or_not(hub):
    got = []
    run_id = await open_run(hub)
    hub.subscribe("session:message", lambda event: got.append(event.content))
    hub.send_to_run(run_id, "one")
    receipt = hub.send_to_run(run_id, "two")
    hub.send_to("agent", "three")
    hub.send("four")
    await flush(hub)
    assert got == ["one", "two", "three", "four"]
    assert receipt.accepted
    assert await receipt is receipt
    assert await receipt is receipt, "awaiting it again is fine"


@pytest.mark.spec("H-17")
async def test_at_once_journal_has_dispatched_before_emit_returns(ports):
    async with Hub(ports=ports) as hub:
        got = []
        run_id = await open_run(hub)
        hub.subscribe("*", got.append)
        hub.emit(CustomEvent.of("test:tick"))
        assert [event.type for event in got] == ["test:tick"]
        assert hub.send_to_run(run_id, "hello").accepted
        assert [event.type for event in got] == ["test:tick", "session:message"]


@pytest.mark.spec("H-17")
async def test_late_journal_dispatches_after_the_commit_and_publish_returns_after_that(ports):
    async with Hub(journal=LateJournal(MemoryJournal()), ports=ports) as hub:
        got = []
        run_id = await open_run(hub)
        hub.subscribe("*", got.append)
        hub.emit(CustomEvent.of("test:one"))
        receipt = hub.send_to_run(run_id, "two")
        with hub.scoped(run_id=NOBODY):
            hub.emit(CustomEvent.of("channel:x:three"))
        assert [event.type for event in got] == ["channel:x:three"], "ephemeral: at once"
        assert receipt.status == "pending"
        assert hub.statistics().uncommitted == 2
        await hub.publish(CustomEvent.of("test:four"))
        assert [event.type for event in got[1:]] == ["test:one", "session:message", "test:four"]
        assert receipt.accepted


@pytest.mark.spec("H-17")
async def test_publish_of_an_ephemeral_event_returns_after_its_dispatch(hub):
    got = []
    hub.subscribe("test:*", lambda event: got.append(event.type))
    with hub.scoped(run_id="r"):
        hub.emit(CustomEvent.of("test:durable"))
        await hub.publish(CustomEvent.of("test:ephemeral", durable=False))
    assert got == ["test:durable", "test:ephemeral"]


@pytest.mark.spec("H-17")
async def test_publish_of_a_message_returns_after_its_dispatch(hub):
    got = []
    run_id = await open_run(hub)
    hub.subscribe("session:message", got.append)
    await hub.publish(SessionMessage(run_id=run_id, content="hello"))
    assert [event.content for event in got] == ["hello"]


@pytest.mark.spec("H-17", "H-07")
async def test_receipt_may_be_awaited_inside_a_listener_s_task(hub, eventually):
    got = []
    run_id = await open_run(hub)

    async def listener(event):
        got.append((await hub.send_to_run(run_id, "answer")).status)

    hub.subscribe("test:tick", listener)
    hub.emit(CustomEvent.of("test:tick"))
    await eventually(lambda: got == ["accepted"])


# ── rejected (H-07) ──────────────────────────────────────────────────────────────────────────


async def unknown_run(hub):
    return NOBODY


async def ended_run(hub):
    run_id = await open_run(hub)
    await end_run(hub, run_id)
    return run_id


async def closing_run(hub):
    run_id = await open_run(hub)
    assert (await hub.close_run(run_id)).accepted
    return run_id


async def terminated_run(hub):
    run_id = await open_run(hub)
    assert (await hub.terminate(run_id)).accepted
    return run_id


async def full_run(hub):
    run_id = await open_run(hub)
    for n in range(3):
        assert (await hub.send_to_run(run_id, f"{n}")).accepted
    return run_id


@pytest.mark.spec("H-07")
@pytest.mark.parametrize(
    ("make_run", "reason", "error"),
    [
        (unknown_run, "unknown", UnknownRun),
        (ended_run, "ended", RunEnded),
        (closing_run, "ended", RunEnded),
        (terminated_run, "terminated", RunEnded),
        (full_run, "inbox full", CallerError),
    ],
)
async def test_rejected_message_has_a_reason_and_becomes_a_dead_letter(
    journal, ports, make_run, reason, error
):
    async with Hub(journal=journal, ports=ports, max_inbox=3) as hub:
        run_id = await make_run(hub)
        dead, messages = letters(hub), []
        hub.subscribe("session:message", messages.append)
        receipt = await hub.send_to_run(run_id, "hello", source="web")
        assert (receipt.status, receipt.reason) == ("rejected", reason)
        assert receipt.rejected
        assert not receipt.cursor
        with pytest.raises(error):
            receipt.raise_if_rejected()
        (letter,) = dead
        assert (letter.to, letter.run_id, letter.reason) == (run_id, run_id, reason)
        assert (letter.message.content, letter.message.source) == ("hello", "web")
        assert messages == [], "it was not said to anybody"


@pytest.mark.spec("H-07", "H-09")
async def test_key_reused_for_other_content_is_rejected_and_a_dead_letter(hub):
    run_id = await open_run(hub)
    dead = letters(hub)
    assert (await hub.send_to_run(run_id, Message("one", key="k"))).accepted
    receipt = await hub.send_to_run(run_id, Message("two", key="k"))
    assert (receipt.status, receipt.reason) == ("rejected", "key reused")
    assert receipt.key == "k"
    assert "('k')" in receipt.explanation and "a key of its own" in receipt.explanation
    assert "'k'" in repr(receipt)
    with pytest.raises(CallerError, match=r"'k'.*a key of its own"):
        receipt.raise_if_rejected()
    assert [letter.message.content for letter in dead] == ["two"]


REASONS = (
    "unknown", "ended", "terminated", "inbox full", "key reused", "ambiguous", "answered",
    "expired", "hub closed", "agent gone", "prompt gone", "tool gone", "unreadable",
)  # fmt: skip


@pytest.mark.spec("H-07")
def test_each_reason_that_is_no_sentence_is_explained_in_the_receipt_and_in_the_docs():
    page = (Path(__file__).parent.parent.parent / "docs" / "errors.md").read_text()
    rows = page.partition("## Why something was rejected")[2].splitlines()
    listed = {name for row in rows for name in re.findall(r"`([a-z ]+)`", row.partition(" | ")[0])}
    assert {*REMEDIES} == {*REASONS} == listed
    for reason in REASONS:
        receipt = Receipt("rejected", reason)
        assert receipt.explanation == f"{reason}: {REMEDIES[reason]}"
        assert f"``{reason}``" in (Receipt.__doc__ or "")
        with pytest.raises(CallerError):
            receipt.raise_if_rejected()
    assert Receipt("rejected", "a sentence").explanation == "a sentence"
    assert Receipt("accepted").explanation == Receipt("duplicate", "").explanation == ""


@pytest.mark.spec("H-07", "H-15")
async def test_closed_hub_rejects_with_that_reason(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        run_id = await open_run(hub)
    calls = [
        partial(hub.send_to_run, run_id, "x"), partial(hub.send_to, "agent", "x"),
        partial(hub.send, "x"), partial(hub.open, "agent"), partial(hub.interrupt, run_id),
        partial(hub.interrupt), partial(hub.close_run, run_id), partial(hub.terminate, run_id),
        partial(hub.reply, "p", "x"),
    ]  # fmt: skip
    for make in calls:
        receipt = await make()
        assert (receipt.status, receipt.reason) == ("rejected", "hub closed")
        with pytest.raises(Closed):
            receipt.raise_if_rejected()


@pytest.mark.spec("H-07")
async def test_rejection_is_never_an_exception_in_a_listener(hub, caplog):
    errors, receipts = [], []
    hub.subscribe("hub:error", errors.append)
    hub.subscribe("test:tick", lambda event: receipts.append(hub.send_to_run(NOBODY, "x")))
    await hub.publish(CustomEvent.of("test:tick"))
    assert (await receipts[0]).reason == "unknown"
    assert errors == []


@pytest.mark.spec("H-07")
async def test_inbox_holds_ten_thousand_messages_by_default(ports):
    async with Hub(ports=ports) as hub:
        run_id = await open_run(hub)
        for n in range(10_000):
            assert hub.send_to_run(run_id, f"{n}").accepted
        assert hub.send_to_run(run_id, "one too many").reason == "inbox full"


@pytest.mark.spec("H-07")
async def test_results_and_replies_are_exempt_from_the_bound(journal, ports):
    async with Hub(journal=journal, ports=ports, max_inbox=1) as hub:
        run_id = await open_run(hub)
        assert (await hub.send_to_run(run_id, "full")).accepted
        lane = OwnLane(
            hub.pipeline, run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="agent"
        )
        for item in (SessionResult(child_run_id=NOBODY), SessionReply(prompt_id="p")):
            delivery = hub.delivery(item, to=run_id)
            lane.append((), deliveries=(delivery,))
            await flush(hub)
            assert isinstance(delivery, Delivery)
            assert delivery.outcome == "accepted"
        assert (await hub.interrupt(run_id)).accepted
        assert (await hub.send_to_run(run_id, "x")).reason == "inbox full"


@pytest.mark.spec("H-07")
async def test_message_left_over_when_its_run_ends_becomes_a_dead_letter(hub):
    run_id = await open_run(hub)
    dead = letters(hub)
    for n in range(3):
        await hub.send_to_run(run_id, f"{n}")
    await end_run(hub, run_id)
    assert [(letter.message.content, letter.reason) for letter in dead] == [
        ("0", "ended"), ("1", "ended"), ("2", "ended"),
    ]  # fmt: skip


@pytest.mark.spec("H-07")
@pytest.mark.parametrize(
    "event", [SessionResult(), SessionTimer(), SessionVariables()], ids=lambda event: event.type
)
async def test_what_only_the_runtime_sends_is_refused(hub, event):
    with pytest.raises(ReservedEvent, match=event.type):
        hub.emit(event)


@pytest.mark.spec("H-07")
async def test_emitting_a_message_sends_it(hub):
    run_id = await open_run(hub)
    dead = letters(hub)
    await hub.publish(SessionMessage(run_id=run_id, content="hello", source="web"))
    hub.emit(SessionMessage(run_id=NOBODY, content="lost"))
    (message,) = await hub.read(run_id, types="session:message")
    assert (message.content, message.lane) == ("hello", "in")
    assert [letter.message.content for letter in dead] == ["lost"]


@pytest.mark.spec("H-07")
async def test_emitted_message_cannot_claim_a_place_in_another_tree(hub):
    run_id = await open_run(hub)
    await hub.publish(
        SessionMessage(
            run_id=run_id, root_run_id=NOBODY, parent_run_id=NOBODY, agent="boss", seq=9,
            lane="own", at=1, content="hello",
        )
    )  # fmt: skip
    (message,) = await hub.read(run_id, types="session:message")
    assert (message.root_run_id, message.parent_run_id, message.agent) == (run_id, None, "agent")
    assert (message.lane, message.seq) == ("in", 2)
    assert message.at > 1


@pytest.mark.spec("H-07")
async def test_emitted_opening_cannot_place_its_run_in_another_tree(hub):
    root = await open_run(hub)
    await hub.publish(
        SessionOpen(run_id=NOBODY, open_agent="agent", root_run_id=root, parent_run_id=root)
    )
    info = await hub.journal.info(NOBODY)
    assert (info.root_run_id, info.parent_run_id) == (NOBODY, None)


# ── by name and by conversation (H-08) ───────────────────────────────────────────────────────


@pytest.mark.spec("H-08")
async def test_name_reaches_the_one_live_run_of_that_name(hub):
    dead = letters(hub)
    none = await hub.send_to("agent", "hello")
    assert (none.status, none.reason, none.run_ids) == ("rejected", "unknown", ())
    one = await open_run(hub)
    await open_run(hub, "another")
    assert (await hub.send_to("agent", "hello")).run_id == one
    two = await open_run(hub)
    several = await hub.send_to("agent", "hello")
    assert (several.status, several.reason) == ("rejected", "ambiguous")
    assert set(several.run_ids) == {one, two}
    await end_run(hub, one)
    assert (await hub.send_to("agent", "hello")).run_id == two
    assert [letter.reason for letter in dead][:2] == ["unknown", "ambiguous"]
    assert {letter.to for letter in dead} == {"agent", one}


@pytest.mark.spec("H-08")
async def test_key_reaches_that_conversation(hub):
    one = await open_run(hub, session_key="chat-1")
    two = await open_run(hub, session_key="chat-2")
    assert (await hub.send("hello", session_key="chat-2")).run_id == two
    assert (await hub.send("hello", session_key="chat-1")).run_id == one
    lost = await hub.send("hello", session_key="chat-3")
    assert (lost.status, lost.reason) == ("rejected", "unknown")


@pytest.mark.spec("H-08")
async def test_without_a_key_the_only_open_conversation_is_reached(hub):
    assert (await hub.send("hello")).reason == "unknown"
    one = await open_run(hub, session_key="chat-1")
    assert (await hub.send("hello")).run_id == one
    two = await open_run(hub, session_key="chat-2")
    several = await hub.send("hello")
    assert (several.status, several.reason) == ("rejected", "ambiguous")
    assert set(several.run_ids) == {one, two}
    await end_run(hub, two)
    assert (await hub.send("hello")).run_id == one


@pytest.mark.spec("H-08")
async def test_parked_run_counts_as_live(journal, ports):
    async with assistant(journal, ports, "Hello.", "You are welcome.") as rt:
        run = await rt.start("assistant", "Hi", session_key="chat")
        await run.result()
        assert rt.hub.statistics().parked == 1
        assert (await rt.hub.send_to("assistant", "Thanks")).run_id == run.run_id
        assert (await run.result()).output == "You are welcome."
        assert (await rt.hub.send("x", session_key="chat")).run_id == run.run_id


def assistant(journal, ports, *script, tools=()):
    return Runtime(
        agents=[AgentDefinition(name="assistant", side_a=SideConfig(prompt="assistant"))],
        prompts=[
            PromptDefinition(
                name="assistant", prompt="You help.", model="scripted", tools=tuple(tools)
            )
        ],
        models={"scripted": ScriptedModel(script)},
        store=journal,
        ports=ports,
    )


# ── order (H-14) ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-14")
@settings(max_examples=examples(40), deadline=None)
@given(
    counts=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    pauses=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    turns=st.integers(0, 2),
)
async def test_every_message_of_every_sender_arrives_once_and_in_its_order(counts, pauses, turns):
    """N senders × M messages, at any pace, to a code agent that takes its time as well."""
    handled, at_work = [], []

    @agent("reader")
    async def reader(input: str, ctx):
        async for message in ctx.messages():
            assert not at_work, "never two at once"
            at_work.append(message)
            await anyio.sleep(pauses[len(handled) % len(pauses)])
            at_work.clear()
            handled.append((message.source, int(message.content)))

    journal = LateJournal(MemoryJournal(), turns=turns) if turns else MemoryJournal()
    async with Runtime(agents=[reader], store=journal, ports=virtual_ports()) as rt:
        run = await rt.start("reader", "")
        receipts = []

        async def send(name, count):
            for n in range(count):
                await anyio.sleep(pauses[n % len(pauses)])
                receipts.append(rt.hub.send_to_run(run.run_id, f"{n}", source=name))

        async with anyio.create_task_group() as group:
            for number, count in enumerate(counts):
                group.start_soon(send, f"sender {number}", count)
        assert all([(await receipt).accepted for receipt in receipts])
        run.close()
        await run.finished()
    assert len(handled) == sum(counts)
    for number, count in enumerate(counts):
        mine = [n for source, n in handled if source == f"sender {number}"]
        assert mine == list(range(count))


@pytest.mark.spec("H-14")
async def test_model_agent_takes_all_that_wait_at_a_step_boundary_together_in_order(journal, ports):
    requests = []

    @tool
    async def work() -> str:
        """Take a while."""
        await anyio.sleep(10)
        return "done"

    def note(request):
        requests.append(request)
        return "Finished."

    script = reply("", call("work")), note
    async with assistant(journal, ports, *script, tools=[work]) as rt:
        run = await rt.start("assistant", "Begin.")
        await anyio.sleep(5)
        for n in range(3):
            assert (await run.send(f"also {n}")).accepted
        await run.result()
        assert [message.content for message in requests[0].messages[-3:]] == [
            "also 0",
            "also 1",
            "also 2",
        ]
        (taken,) = [
            e for e in await run.read()
            if e.type == "session:taken" and any(i.type == "session:message" for i in e.items)
        ]  # fmt: skip
        assert [item.content for item in taken.items] == ["also 0", "also 1", "also 2"]


@pytest.mark.spec("H-14")
async def test_control_comes_before_results_before_messages(journal, ports):
    """What waits when the run comes to it is taken in the order of its kinds."""
    async with Hub(journal=journal, ports=ports) as hub:
        run_id = await open_run(hub, "assistant")
        lane = OwnLane(
            hub.pipeline, run_id=run_id, root_run_id=run_id, parent_run_id=None, agent="assistant"
        )
        hub.send_to_run(run_id, "first message")
        for timer in ("first result", "second result"):
            delivery = hub.delivery(SessionTimer(timer=timer), to=run_id)
            lane.append((), deliveries=(delivery,))
        hub.send_to_run(run_id, "second message")
        hub.close_run(run_id, "first control")
        hub.close_run(run_id, "second control")
        await flush(hub)
    async with assistant(journal, ports, "End.") as rt:
        await rt.finished(run_id)
        taken = [
            item
            for event in await rt.hub.read(run_id, types="session:taken")
            for item in event.items
        ]
    assert [_words(item) for item in taken] == [
        "session:open", "first control", "second control", "first result", "second result",
        "first message", "second message",
    ]  # fmt: skip


def _words(item):
    for field in ("content", "reason", "timer"):
        if getattr(item, field, ""):
            return getattr(item, field)
    return item.type


# ── what a message is (H-20) ─────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-20")
def test_message_has_these_parts_and_defaults():
    message = Message("hello")
    assert (
        message.content, message.role, message.attachments, message.silent, message.metadata,
        message.key,
    ) == ("hello", "user", (), False, {}, None)  # fmt: skip


_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@pytest.mark.spec("H-20")
@settings(max_examples=examples(50), deadline=None)
@given(
    message=st.builds(
        Message,
        st.text(),
        role=st.sampled_from(["user", "system", "assistant"]),
        attachments=st.lists(_names, max_size=3).map(tuple),
        silent=st.booleans(),
        metadata=st.dictionaries(st.text(), st.none() | st.integers(-9, 9) | st.text(), max_size=3),
        key=st.none() | _names,
    )
)
async def test_every_part_of_a_message_arrives(message):
    async with Hub(ports=virtual_ports()) as hub:
        run_id = await open_run(hub)
        assert (await hub.send_to_run(run_id, message)).accepted
        (got,) = await hub.read(run_id, types="session:message")
        assert (
            Message(
                got.content, got.role, got.attachments, got.silent, got.metadata, got.key or None
            )
            == message
        )


@pytest.mark.spec("H-20")
async def test_text_is_a_message(hub):
    run_id = await open_run(hub)
    hub.send_to_run(run_id, "hello")
    hub.send_to_run(run_id, Message("hello"))
    hub.send_to("agent", Message("hello"))
    hub.send(Message("hello"))
    await flush(hub)
    events = await hub.read(run_id, types="session:message")
    assert len(events) == 4
    assert {(e.content, e.role, e.silent, e.key) for e in events} == {("hello", "user", False, "")}


@pytest.mark.spec("H-20")
@pytest.mark.parametrize(
    "bad",
    [
        None, 7, b"bytes", ["a"], [], {"content": "a"}, Message(7), Message("a", role=None),
        Message("a", role=""), Message("a", attachments="file.txt"), Message("a", attachments=[1]),
        Message("a", metadata={"x": object()}), Message("a", metadata=["x"]), Message("a", key=7),
        Message("a", silent="yes"), "x" * (MAX_MESSAGE_CHARS + 1),
        Message("x" * (MAX_MESSAGE_CHARS + 1)),
    ],
    ids=lambda bad: repr(bad)[:40],
)  # fmt: skip
async def test_what_is_no_message_is_refused_with_a_clear_error(hub, bad):
    run_id = await open_run(hub)
    for make in (partial(hub.send_to_run, run_id), partial(hub.send_to, "agent"), hub.send):
        with pytest.raises(BadValue, match=r"^message"):
            make(bad)
    assert hub.statistics().waiting == 1, "only the opening"


@pytest.mark.parametrize("said", [[], [""], ("a", "b")])
async def test_a_list_without_a_part_says_what_a_list_is_for(hub, said):
    run_id = await open_run(hub)
    with pytest.raises(BadValue, match="at least one part, such as Image"):
        hub.send_to_run(run_id, said)


@pytest.mark.spec("G-01")
@pytest.mark.parametrize("where", ["run_id", "root_run_id"])
@pytest.mark.parametrize("value", [bytearray(b"x"), [], 5, "a\0b"], ids=repr)
async def test_whether_anybody_listens_is_asked_of_a_text(hub, where, value):
    with pytest.raises(BadValue, match=where):
        hub.has("test:x", **{where: value})
