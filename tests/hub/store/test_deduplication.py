"""A key is accepted once per run and source (H-09)."""

import anyio
import pytest

from hubbub import Hub, Message, Runtime, agent
from hubbub.hub.events import SessionMessage
from hubbub.hub.store.journal import RequestKey
from hubbub.hub.store.memory import MemoryJournal

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-09")]


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


async def said(hub, run_id):
    return [e.content for e in await hub.read(run_id, types="session:message")]


async def open_run(hub):
    return (await hub.open("agent")).run_id


async def test_second_send_is_a_duplicate_and_delivered_once(hub):
    run_id = await open_run(hub)
    dead = []
    hub.subscribe("hub:dead_letter", dead.append)
    message = Message("hello", key="k", metadata={"a": 1})
    statuses = [(await hub.send_to_run(run_id, message, source="web")).status for _ in range(3)]
    assert statuses == ["accepted", "duplicate", "duplicate"]
    assert await said(hub, run_id) == ["hello"]
    assert dead == []


async def test_sends_that_are_not_awaited_are_deduplicated_too(hub):
    run_id = await open_run(hub)
    receipts = [hub.send_to_run(run_id, Message("hello", key="k")) for _ in range(3)]
    assert [(await receipt).status for receipt in receipts] == [
        "accepted", "duplicate", "duplicate",
    ]  # fmt: skip


async def test_key_is_unique_per_run_source_and_key_only(hub):
    one, two = await open_run(hub), await open_run(hub)
    for run_id in (one, two):
        for source in ("web", "telegram", ""):
            for key in ("1", "2"):
                message = Message("hello", key=key)
                assert (await hub.send_to_run(run_id, message, source=source)).accepted
    assert len(await said(hub, one)) == 6


@pytest.mark.parametrize(
    "other",
    [
        Message("other", key="k"), Message("hello", key="k", role="system"),
        Message("hello", key="k", silent=True), Message("hello", key="k", metadata={"a": 1}),
        Message("hello", key="k", attachments=("a.txt",)),
    ],
    ids=["content", "role", "silent", "metadata", "attachments"],
)  # fmt: skip
async def test_same_key_with_other_content_is_rejected(hub, other):
    run_id = await open_run(hub)
    assert (await hub.send_to_run(run_id, Message("hello", key="k"))).accepted
    receipt = await hub.send_to_run(run_id, other)
    assert (receipt.status, receipt.reason) == ("rejected", "key reused")
    assert await said(hub, run_id) == ["hello"]


async def test_message_without_a_key_is_never_a_duplicate(hub):
    run_id = await open_run(hub)
    for message in ("hello", Message("hello"), Message("hello", key="")):
        assert (await hub.send_to_run(run_id, message)).accepted


async def test_key_counts_however_the_run_is_addressed(hub):
    run_id = await open_run(hub)
    message = Message("hello", key="k")
    assert (await hub.send_to_run(run_id, message)).accepted
    assert (await hub.send_to("agent", message)).duplicate
    assert (await hub.send(message)).duplicate
    await hub.publish(SessionMessage(run_id=run_id, content="hello", key="k"))
    assert await said(hub, run_id) == ["hello"]


async def test_key_is_remembered_when_the_message_has_been_handled(journal, ports, eventually):
    handled = []

    @agent("reader")
    async def reader(input: str, ctx):
        async for message in ctx.messages():
            handled.append(message.content)  # noqa: PERF401

    async with Runtime(agents=[reader], store=journal, ports=ports) as rt:
        run = await rt.start("reader", "")
        assert (await run.send(Message("hello", key="k"))).accepted
        await eventually(lambda: handled == ["hello"])
        await anyio.sleep(86_400)
        assert (await run.send(Message("hello", key="k"))).duplicate
        run.close()
        await run.finished()
    assert handled == ["hello"]


async def test_runs_that_send_are_sources_of_their_own(journal, ports):
    @agent("reader")
    async def reader(input: str, ctx):
        return [m.content async for m in ctx.messages(idle_timeout=60)]

    @agent("sender")
    async def sender(to: str, ctx):
        message = Message(f"from {ctx.run_id}", key="1")
        one = await ctx.hub.send_to_run(to, message)
        two = await ctx.hub.send_to_run(to, message)
        return [one.status, two.status]

    async with Runtime(agents=[reader, sender], store=journal, ports=ports) as rt:
        target = await rt.start("reader", "")
        senders = [await rt.start("sender", target.run_id) for _ in range(2)]
        for run in senders:
            assert (await run.result()).output == ["accepted", "duplicate"]
        assert sorted((await target.result()).output) == sorted(
            f"from {run.run_id}" for run in senders
        )


async def test_what_was_accepted_is_a_duplicate_also_when_the_run_takes_no_more(journal, ports):
    """Who repeats it after a lost answer must not be told that it will not be handled."""
    async with Hub(journal=journal, ports=ports, max_inbox=1) as hub:
        dead = []
        hub.subscribe("hub:dead_letter", dead.append)
        run_id = await open_run(hub)
        message = Message("hello", key="k")
        assert (await hub.send_to_run(run_id, message)).accepted
        assert (await hub.send_to_run(run_id, "another")).reason == "inbox full"
        assert (await hub.send_to_run(run_id, message)).duplicate
        await hub.close_run(run_id)
        assert (await hub.send_to_run(run_id, message)).duplicate
        assert [letter.message.content for letter in dead] == ["another"]


async def test_a_request_counts_as_long_as_the_run_that_has_accepted_it_is_kept(ports):
    """In memory as many ended runs are kept as are asked for, and nothing is left of others."""
    journal = MemoryJournal(keep=2)

    @agent("done")
    async def done(input, ctx):
        return input

    async with Runtime([done], store=journal, ports=ports) as rt:
        found = []
        for n in (0, 0, 1, 1, 2, 2, 2, 0):
            receipt = await rt.hub.open("done", n, request=RequestKey(f"r{n}"))
            found.append(receipt.status)
            await anyio.sleep(1)
        assert found == [
            "accepted", "duplicate", "accepted", "duplicate", "accepted", "duplicate", "duplicate",
            "accepted",
        ]  # fmt: skip
        assert len(journal._rows.requests) == 2
