"""What others write is read with the notification of it, and told in its place all the same."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agents import echo_model, model_agent
from support.postgres import Server

from hubbub import AgentDefinition, Event, Hub, Runtime
from hubbub.hub.events import CustomEvent
from hubbub.hub.store.sharing import hear
from hubbub.runtime.stores.postgres import tail as tail_module
from hubbub.runtime.stores.postgres.hearing import Hearing
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.store import PostgresStore
from hubbub.runtime.stores.postgres.tail import Page, Tail

pytestmark = pytest.mark.anyio


class Kept:
    """A store's events by position, each of this process or of others, or gone; and who is told of
    them."""

    failure = ""
    removals = 0

    def __init__(self) -> None:
        self.own: list[bool | None] = []
        self.told: list[int] = []
        self.tip = 0
        self.asked = 0
        self.is_notified = True

    def page(self, after: int, until: int | None, version: int, removals: int) -> Page:
        self.asked += 1
        limit = len(self.own) if until is None else until
        own = next((at for at in range(after + 1, limit + 1) if self.own[at - 1]), limit + 1)
        kept = [at for at in range(after + 1, own) if self.own[at - 1] is False]
        events: list[tuple[int, Event]] = [(at, CustomEvent(name="x", at=at)) for at in kept]
        reached = events[-1][0] if events else after
        reached = limit if until is not None and own > limit else reached
        return Page(after, events, reached, True, (), version, ())

    async def persist(self, do: Callable[[], Any]) -> Any:
        return await do()

    async def run(self, ask: Callable[[], Any]) -> Any:
        return ask()

    def heard(self, page: Page) -> None:
        assert page.after == self.tip
        hear(self, page.after, page.events, page.position)  # type: ignore[arg-type]
        assert self.tip == page.position

    def heard_elsewhere(self, events: list[Event]) -> None:
        for event in events:
            self.tip += 1
            assert event.at == self.tip
            self.told.append(event.at)

    def passed(self, position: int) -> None:
        assert position > self.tip
        self.tip = position

    async def tell_own(self, hearing: Hearing) -> None:
        """The next group of this process's own is told, behind what others wrote before it."""
        ours = [at for at, own in enumerate(self.own, 1) if own and at > self.tip]
        if not ours:
            return
        await hearing.hear(ours[0] - 1)
        while self.tip < len(self.own) and self.own[self.tip]:
            self.tip += 1
            self.told.append(self.tip)


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time where there is a server: it knows no other."""
    return str(getattr(request, "param", "asyncio"))


def hearing_of(kept: Any) -> Hearing:
    made = Hearing.__new__(Hearing)
    made._host = made._tail = made._tailing = made._share = kept
    made._version, made._is_waiting, made._unnotified_since = 0, False, None
    return made


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from([True, False, None])),
        st.sampled_from([("read", None), ("tell", None), ("own", None), ("hear", None)]),
    ),
    min_size=10,
    max_size=40,
)


@given(STEPS)
def test_whenever_a_page_is_read_each_position_is_told_once_and_in_order(
    steps: list[tuple[str, bool | None]],
) -> None:
    async def live() -> None:
        kept, found = Kept(), None
        hearing = hearing_of(kept)
        for what, is_own in steps:
            if what == "write":
                kept.own.append(is_own)
            elif what == "read":
                found = kept.page(kept.tip, None, 0, 0)
            elif what == "tell":
                await hearing.hear(found=found)
            elif what == "own":
                await kept.tell_own(hearing)
            else:
                await hearing.hear()
        kept.own.append(False)
        while kept.tip < len(kept.own):
            await kept.tell_own(hearing)
            await hearing.hear()
        assert kept.told == [at for at, own in enumerate(kept.own, 1) if own is not None]

    anyio.run(live)


async def test_a_page_that_was_read_is_not_read_again_and_an_old_one_is() -> None:
    kept = Kept()
    hearing = hearing_of(kept)
    kept.own = [False, False]
    found = kept.page(0, None, 0, 0)
    await hearing.hear(found=found)
    assert (kept.told, kept.asked) == ([1, 2], 1)
    kept.own.append(False)
    await hearing.hear(found=found)
    assert (kept.told, kept.asked) == ([1, 2, 3], 2)


def test_a_notification_that_came_with_an_answer_is_not_waited_for() -> None:
    """It is in the client's memory then: what is waited for has nothing to read."""

    class Quiet:
        is_lost = False
        descriptor = None

        def take_notifications(self) -> None:
            tail._heard("")

    kept: Any = Quiet()
    tail = Tail(kept, kept)
    since = time.monotonic()
    assert tail.wait(20.0)
    assert time.monotonic() - since < 10
    tail._pause.close()


def agents() -> list[AgentDefinition]:
    return [model_agent(echo_model(0.0), name="chat")]


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], indirect=True)
async def test_values_of_secrets_are_asked_for_only_when_there_are_new_ones(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    whole = PostgresConnection.execute

    def execute(self: PostgresConnection, sql: str, values: Any = (), /) -> Any:
        asked[sql] += 1
        return whole(self, sql, values)

    monkeypatch.setattr(PostgresConnection, "execute", execute)
    address = server.dsn()
    store = PostgresStore(address, is_worker=False)
    async with Runtime(agents(), store=PostgresStore(address)) as one, Hub(journal=store):

        async def talk(**env: str) -> None:
            await (await one.start("chat", "hello", env=env)).result()
            with anyio.fail_after(60):
                while store.tip < one.hub.journal.tip:  # noqa: ASYNC110
                    await anyio.sleep(0.01)

        await talk()
        asked.clear()
        for _ in range(5):
            await talk()
        assert asked[tail_module._SELECT_PAGE] > 0
        assert asked[tail_module._SELECT_SECRETS] == 0
        await talk(TOKEN="its value")
        assert asked[tail_module._SELECT_SECRETS] > 0
        asked.clear()
        for _ in range(5):
            await talk()
        assert asked[tail_module._SELECT_SECRETS] == 0
