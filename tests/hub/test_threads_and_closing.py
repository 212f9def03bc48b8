"""Other threads, the end of a hub, and its figures (H-15, H-16)."""

import threading
from functools import partial

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from hubbub import CustomEvent, Hub, Runtime, agent
from hubbub.hub import pipeline
from hubbub.hub.errors import Closed, WrongThread
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


def tick(n=0, **fields):
    event = CustomEvent.of("test:tick", n=n)
    return CustomEvent(name=event.name, data_json=event.data_json, **fields)


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


# ── other threads (H-15) ─────────────────────────────────────────────────────────────────────


def in_a_thread(call):
    """What ``call`` raises in a thread that knows nothing of the loop."""
    caught = []

    def run():
        try:
            call()
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return caught


@pytest.mark.spec("H-15")
async def test_call_from_another_thread_raises_a_clear_error_and_does_nothing(hub):
    got = []
    hub.subscribe("*", got.append)
    run_id = (await hub.open("agent")).run_id
    del got[:]
    calls = {
        "emit": lambda: hub.emit(tick()),
        "subscribe": lambda: hub.subscribe("*", got.append),
        "send_to_run": lambda: hub.send_to_run(run_id, "x"),
        "reply": lambda: hub.reply("p", "x"),
        "serve": lambda: hub.serve("address", len),
    }
    for name, call in calls.items():
        (error,) = in_a_thread(call)
        assert isinstance(error, WrongThread)
        assert f"{name} was called from another thread" in str(error)
        assert f"anyio.from_thread.run_sync(hub.{name}" in str(error)
    for call in (
        lambda: hub.send_to("agent", "x"), lambda: hub.send("x"), lambda: hub.open("agent"),
        lambda: hub.interrupt(run_id), lambda: hub.close_run(run_id), lambda: hub.terminate(run_id),
    ):  # fmt: skip
        (error,) = in_a_thread(call)
        assert isinstance(error, WrongThread)
    for make in (
        lambda: hub.publish(tick()), lambda: hub.ask("user", "?"), lambda: hub.read(),
    ):  # fmt: skip
        (error,) = in_a_thread(lambda make=make: make().send(None))
        assert isinstance(error, WrongThread)
    assert got == []
    assert hub.statistics().subscribers == 1
    assert hub.statistics().waiting == 1


@pytest.mark.spec("H-15")
async def test_portal_takes_calls_from_worker_threads(hub):
    got = []
    hub.subscribe("*", lambda event: got.append((event.type, threading.get_ident())))
    run_id = (await hub.open("agent")).run_id
    here = threading.get_ident()

    async def settled(receipt):
        return await receipt

    def work():
        anyio.from_thread.run_sync(hub.emit, tick())
        anyio.from_thread.run(hub.publish, tick())
        receipt = anyio.from_thread.run_sync(hub.send_to_run, run_id, "from a thread")
        return anyio.from_thread.run(settled, receipt)

    receipt = await anyio.to_thread.run_sync(work)
    assert receipt.accepted
    types = ["session:open", "test:tick", "test:tick", "session:message"]
    assert got == [(type_, here) for type_ in types]


@pytest.mark.spec("H-15")
async def test_blocking_portal_takes_calls_from_any_thread(hub):
    got = []
    hub.subscribe("test:tick", lambda event: got.append(event.data["n"]))
    async with anyio.from_thread.BlockingPortal() as portal:

        def work():
            for n in range(3):
                portal.call(hub.emit, tick(n))

        def in_plain_thread():
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        await anyio.to_thread.run_sync(in_plain_thread)
    await hub.journal.flush()
    assert got == [0, 1, 2]


# ── the end (H-15) ───────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-15")
async def test_after_close_every_call_fails_clearly(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        run_id = (await hub.open("agent")).run_id
    assert hub.is_closed
    for call in (
        lambda: hub.emit(tick()), lambda: hub.subscribe("*", print), lambda: hub.subscribe("*"),
        lambda: hub.serve("a", len),
    ):  # fmt: skip
        with pytest.raises(Closed, match="the hub is closed"):
            call()
    for make in (
        partial(hub.publish, tick()), partial(hub.ask, "user", "?"), partial(hub.ask, run_id, "?"),
        hub.read, hub.__aenter__,
    ):  # fmt: skip
        with pytest.raises(Closed, match="the hub is closed"):
            await make()
    for send in (
        partial(hub.send_to_run, run_id), partial(hub.send_to, "agent"), hub.send, hub.open,
        partial(hub.reply, "p"),
    ):  # fmt: skip
        receipt = await send("x")
        assert (receipt.status, receipt.reason) == ("rejected", "hub closed")
    for stop in (hub.interrupt, hub.close_run, hub.terminate):
        assert (await stop(run_id)).reason == "hub closed"


@pytest.mark.spec("H-15")
async def test_after_close_no_listener_runs(journal, ports):
    got = []

    async def late(event):
        await anyio.sleep(1)
        got.append("async")

    async with Hub(journal=journal, ports=ports) as hub:
        hub.subscribe("test:tick", lambda event: got.append("sync"))
        hub.subscribe("test:tick", late)
        hub.subscribe("test:tick", late)
        await hub.publish(tick())
        await hub.publish(tick())
        assert got == ["sync", "sync"]
        hub.emit(tick())
        hub.close()
        at_close = list(got)
        await journal.flush()
        await anyio.sleep(0.5)
        assert got == at_close, "not even for what was submitted before"


@pytest.mark.spec("H-15")
async def test_leaving_commits_and_dispatches_what_was_submitted(journal, ports):
    got = []
    async with Hub(journal=journal, ports=ports) as hub:
        hub.subscribe("test:tick", lambda event: got.append(event.data["n"]))
        for n in range(5):
            hub.emit(tick(n))
    assert got == [0, 1, 2, 3, 4]


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request, ports, tmp_path):
    if request.param == "sqlite":
        return sqlite_store(tmp_path / "store", ports=ports)
    return MemoryJournal() if request.param == "memory" else LateJournal(MemoryJournal())


async def numbers_on_record(store):
    """The numbers of the ticks in a store, which is opened once more."""
    async with Hub(journal=store) as hub:
        return [event.data["n"] for event in await hub.read(types="test:tick")]


@pytest.mark.spec("H-15", "G-02")
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_leaving_ends_though_a_listener_answers_each_event_with_another(
    store, ports, is_cancelled, monkeypatch
):
    """As a log of what happened does that listens to everything, itself included."""
    monkeypatch.setattr(pipeline, "MAX_NESTED", 1_000)  # Within one dispatch, in memory.
    emitted = []

    def note(event):
        hub.emit(tick(len(emitted)))
        emitted.append(len(emitted))  # It was accepted: so it is kept.

    with anyio.CancelScope() as scope:
        async with Hub(journal=store, ports=ports) as hub:
            hub.subscribe("*", note)
            hub.emit(CustomEvent.of("test:first"))
            if is_cancelled:
                scope.cancel()
    at_the_end = len(emitted)
    assert await numbers_on_record(store) == emitted
    assert len(emitted) == at_the_end, "no listener runs any more"


@pytest.mark.spec("H-15", "G-02")
async def test_leaving_ends_though_tasks_emit_and_publish_without_a_pause(store, ports):
    """Each of them gets ``Closed`` in the end, and what had returned before is on record."""
    published, ended = [], []

    async def publish_on(first):
        number = first
        try:
            while True:
                await hub.publish(tick(number))
                published.append(number)
                number += 3
        except Closed:
            ended.append(first)

    async def emit_on():
        try:
            while True:
                hub.emit(tick(-1))
                await anyio.lowlevel.checkpoint()
        except Closed:
            ended.append("emits")

    async with anyio.create_task_group() as group, Hub(journal=store, ports=ports) as hub:
        for first in range(3):
            group.start_soon(publish_on, first)
        group.start_soon(emit_on)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
    assert sorted(ended, key=str) == [0, 1, 2, "emits"]
    assert len(published) > 3
    assert set(published) <= set(await numbers_on_record(store))


@pytest.mark.spec("H-15")
async def test_closing_is_idempotent(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        hub.close()
        hub.close()
        await hub.aclose()
    await hub.aclose()
    hub.close()
    never_entered = Hub(ports=ports)
    await never_entered.aclose()
    await never_entered.aclose()


@pytest.mark.spec("H-15")
async def test_no_task_outlives_the_hub(journal, ports):
    """(Every test here checks it, too.)"""

    async def never(event):
        await anyio.sleep_forever()

    before = {task.id for task in anyio.get_running_tasks()}
    async with Hub(journal=journal, ports=ports) as hub:
        for _ in range(5):
            hub.subscribe("test:tick", never)
            hub.subscribe("test:tick", lambda event: None, after="start")
        await hub.publish(tick())
        await anyio.sleep(1)
        assert len(anyio.get_running_tasks()) > len(before)
    await anyio.sleep(1)
    assert {task.id for task in anyio.get_running_tasks()} == before


@pytest.mark.spec("H-15")
async def test_hub_is_left_in_order_when_its_body_raises(journal, ports):
    async def never(event):
        await anyio.sleep_forever()

    hub = Hub(journal=journal, ports=ports)

    async def body():
        async with hub:
            hub.subscribe("test:tick", never)
            await hub.publish(tick())
            raise ValueError("body")

    with pytest.raises(ValueError, match="body"):
        await body()
    assert hub.is_closed


@pytest.mark.spec("H-15")
async def test_hub_is_left_in_order_when_it_is_cancelled(journal, ports):
    with anyio.move_on_after(5) as scope:
        async with Hub(journal=journal, ports=ports) as hub:
            hub.emit(tick())
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert hub.is_closed


# ── figures (H-16) ───────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-15", "H-04")
@pytest.mark.parametrize("store", ["journal", "sqlite"])
async def test_what_was_submitted_just_before_a_cancellation_is_committed_all_the_same(
    store, journal, ports, tmp_path
):
    """On Trio the store's tasks lie in the scope that is cancelled."""
    if store == "sqlite":
        journal = sqlite_store(tmp_path, ports=ports)
    receipts = []
    with anyio.CancelScope() as scope:
        async with Hub(journal=journal, ports=ports) as hub:
            receipts.append(hub.open("worker", "hello"))
            scope.cancel()
            receipts.append(hub.send_to_run(receipts[0].run_id, "and one more"))
    assert [receipt.status for receipt in receipts] == ["accepted"] * 2


@pytest.mark.spec("H-16")
async def test_statistics_of_a_new_hub_are_all_zero(hub):
    figures = hub.statistics()
    assert {name: getattr(figures, name) for name in figures.__struct_fields__} == {
        "subscribers": 0, "buffered": 0, "dropped": 0, "live": 0, "parked": 0, "waiting": 0,
        "uncommitted": 0, "removed": None,
    }  # fmt: skip


@pytest.mark.spec("H-16")
async def test_statistics_count_subscribers_of_every_kind(hub):
    async def handler(event):
        pass

    subscriptions = [
        hub.subscribe("*", lambda event: None), hub.subscribe("*"), hub.subscribe("*", handler),
        hub.subscribe("*", lambda event: None, run_id="r"), hub.subscribe("*", root_run_id="t"),
    ]  # fmt: skip
    assert hub.statistics().subscribers == 5
    for left, subscription in zip(range(4, -1, -1), subscriptions, strict=True):
        subscription.close()
        assert hub.statistics().subscribers == left


@pytest.mark.spec("H-16")
async def test_statistics_count_what_is_buffered_and_dropped(hub):
    stream = hub.subscribe("test:tick", buffer=3)
    lossless = hub.subscribe("test:tick", buffer=3, lossless=True)
    for n in range(5):
        await hub.publish(tick(n))
    figures = hub.statistics()
    assert (figures.buffered, figures.dropped) == (6, 2)
    assert (stream.buffered, stream.dropped, lossless.dropped) == (3, 2, 0)
    await anext(stream)
    assert hub.statistics().buffered == 5
    stream.close()
    lossless.close()
    assert hub.statistics().dropped == 2


@pytest.mark.spec("H-16")
async def test_statistics_count_runs_and_what_waits_for_them(journal, ports):
    @agent("reader")
    async def reader(input: str, ctx):
        async for _ in ctx.messages():
            await anyio.sleep(10)

    async with Runtime(agents=[reader], store=journal, ports=ports) as rt:
        runs = [await rt.start("reader", "") for _ in range(3)]
        await anyio.sleep(1)
        assert (rt.hub.statistics().live, rt.hub.statistics().waiting) == (3, 0)
        for _ in range(4):
            await runs[0].send("x")
        await anyio.sleep(1)
        assert rt.hub.statistics().waiting == 4, "the one at work is not consumed yet"
        await anyio.sleep(20)
        assert rt.hub.statistics().waiting == 2
        info = await rt.hub.ask("runtime", f"run {runs[0].run_id}")
        assert info["waiting"] == 2, "the depth of one inbox"
        await rt.terminate(runs[0].run_id)
        await runs[0].finished()
        figures = rt.hub.statistics()
        assert (figures.live, figures.waiting, figures.parked) == (2, 0, 0)
        for run in runs[1:]:
            await run.terminate()


@pytest.mark.spec("H-16")
async def test_statistics_count_what_is_not_committed_yet(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        for _ in range(3):
            hub.emit(tick())
        late = isinstance(journal, LateJournal)
        assert hub.statistics().uncommitted == (3 if late else 0)
        await hub.publish(tick())
        assert hub.statistics().uncommitted == 0


@pytest.mark.spec("H-16")
async def test_statistics_are_a_snapshot(hub):
    before = hub.statistics()
    hub.subscribe("*", lambda event: None)
    assert before.subscribers == 0
    with pytest.raises(AttributeError):
        before.subscribers = 7
