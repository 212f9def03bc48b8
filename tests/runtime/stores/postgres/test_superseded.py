"""A worker that has stood still past its lease, and goes on as if it had it: it changes nothing."""

from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.postgres import Server

from hubbub import AgentDefinition, Runtime
from hubbub.hub.conformance.members import Member, members_of
from hubbub.hub.conformance.steps import A_RUN, B_RUN, open_run, read_all, send, write
from hubbub.hub.events import AgentComplete, AgentStatus
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import Delivery
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.spec("X-02")]

TTL = 1.5


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    return str(request.param)


class Schema:
    """A new store, with the journals of its processes."""

    ttl = TTL

    def __init__(self, server: Server) -> None:
        self.server = server
        self.schema = server.new_schema()

    def journal(self, *, is_worker: bool = True) -> PostgresStore:
        return PostgresStore(self.server.dsn(self.schema), is_worker=is_worker, ttl=self.ttl)

    def secrets(self) -> list[tuple[Any, ...]]:
        return self.server.query(f"SELECT key, value FROM {self.schema}.secret ORDER BY key")


def stand_still(store: PostgresStore) -> None:
    """It renews nothing and hears nothing, and its own clock does not tell it."""

    async def look() -> None:
        await anyio.sleep(0.1)

    async def hear(until: int | None = None, *, found: object = None) -> None:
        if until is not None:
            await hears(until)

    hears = store._hearing.hear
    store._hearing.look = look  # type: ignore[method-assign]
    store._hearing.hear = hear  # type: ignore[method-assign]
    store._share._ttl = 1e5


def journal_of(member: Member) -> PostgresStore:
    assert isinstance(member.journal, PostgresStore)
    return member.journal


async def test_what_it_writes_is_refused_whole(server: Server) -> None:
    """Events, items taken, deliveries by its lane, notes that it finds as expected, an end."""
    store = Schema(server)
    async with members_of(store) as (one, other):
        await open_run(one.journal, A_RUN)
        await send(one.journal, A_RUN, "hello")
        await open_run(other.journal, B_RUN)
        journal_of(one).secrets.put(f"{A_RUN}/KEY", "planted")
        await one.journal.flush()
        stand_still(journal_of(one))
        with anyio.fail_after(20):
            await other.until(lambda: other.trees == {A_RUN})
        assert one.share.owns(A_RUN), "as far as it knows"
        before = await read_all(other.journal), store.secrets()
        for status in ("running", "parked", "ended"):
            said = Delivery(session_message("late"), B_RUN)
            event = AgentComplete() if status == "ended" else AgentStatus()
            commit = await write(
                one.journal, A_RUN, 0, event, taken=(1, 2), status=status, deliveries=(said,),
                notes={"tick": "1"}, notes_expect={"tick": ""},
                leave_to=B_RUN if status == "ended" else "",
            )  # fmt: skip
            assert (commit.error, commit.written, said.outcome) == ("conflict", [], "")
        assert (await read_all(other.journal), store.secrets()) == before
        assert await other.journal.notes("tick") == {}
        assert not one.share.owns(A_RUN)
        loaded = await other.journal.load(A_RUN)
        assert loaded is not None
        assert [item.seq for item in loaded.waiting] == [1, 2]
        assert not (await write(other.journal, A_RUN, 0, AgentStatus(), taken=(1, 2))).error


class GatedModel:
    """Answers when it may."""

    name = "gated"

    def __init__(self, text: str) -> None:
        self.gate, self.is_asked = anyio.Event(), False
        self._inner = FunctionModel(lambda _: text)

    async def call(self, request: Any, on_delta: Any = None) -> Any:
        self.is_asked = True
        await self.gate.wait()
        return await self._inner.call(request, on_delta)

    def agents(self) -> list[AgentDefinition]:
        return [model_agent(self, name="gated")]  # type: ignore[arg-type]


async def test_a_run_that_it_ends_late_goes_on_where_it_is(server: Server) -> None:
    store = Schema(server)
    late, present = GatedModel("late"), GatedModel("present")
    journal = store.journal()

    async def until(is_so: Any) -> None:
        with anyio.fail_after(30):
            while not is_so():  # noqa: ASYNC110  # A server has its own time.
                await anyio.sleep(0.01)

    async with (
        Runtime(late.agents(), store=journal, grace=0) as one,
        Runtime(present.agents(), store=store.journal()) as other,
    ):
        run = await one.start("gated", "go", once=True, env={"KEY": "planted"})
        await until(lambda: late.is_asked)
        kept = store.secrets()
        assert kept
        stand_still(journal)
        await until(lambda: present.is_asked)
        late.gate.set()
        await until(lambda: not journal.sharing.trees())
        await journal.flush()
        assert store.secrets() == kept
        handle = await other.handle(run.run_id)
        events = await handle.read()
        assert not any(isinstance(x, AgentComplete) for x in events)
        present.gate.set()
        assert (await handle.result()).output == "present"
        events = await handle.read()
        assert sum(isinstance(x, AgentComplete) for x in events) == 1
