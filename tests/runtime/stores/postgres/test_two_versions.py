"""Programs of two adjacent versions are at work on one store; what one of them cannot know is left
to the other."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Final

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.postgres import Server
from support.postgres_formats import DROPPED, NEXT, NOW, run_as_format, version

from hubbub import AgentDefinition, Event, Runtime
from hubbub.hub.errors import HubbubError, OperatorError
from hubbub.hub.events import CustomEvent
from hubbub.hub.store.journal import Commit, Delivery
from hubbub.hub.store.sharing import sharing_of
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.postgres import hearing
from hubbub.runtime.stores.postgres.migrations import Upgrade
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]

NOVEL: Final = Upgrade(to=NOW + 1, beside=NOW, records=("agent:novel",))
"""A version that records what the one before it does not know."""

TTL: Final = 1.5


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Leases are of the server's time."""
    return str(request.param)


async def echo(text: Any, _ctx: Any) -> str:
    return f"heard: {text}"


async def inventor(_input: Any, ctx: Any) -> str:
    """Says something that is new, and stays."""
    ctx.hub.emit(CustomEvent(name="agent:novel"))
    await ctx.ask("What next?")
    return "over"


AGENTS: Final = [
    AgentDefinition(name="echo", execute=echo),
    AgentDefinition(name="inventor", execute=inventor, on_restart="resume"),
    model_agent(echo_model(0.0), name="chat"),
]


@asynccontextmanager
async def at_work(address: str, *steps: Upgrade, name: str = "") -> AsyncIterator[Runtime]:
    """A worker of the version that has these steps."""
    runtime = Runtime(AGENTS, store=PostgresStore(address, name=name, ttl=TTL))
    with ExitStack() as opening:
        opening.enter_context(version(*steps))
        async with runtime:
            opening.close()
            yield runtime


async def wait_until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.05)


async def many(runtime: Runtime, count: int, said: list[str]) -> None:
    for number in range(count):
        outcome = await runtime.run("echo", str(number))
        said.append(str(outcome.output))


@pytest.mark.spec("X-07")
async def test_the_store_is_upgraded_while_others_are_at_work_on_it(server: Server) -> None:
    address = server.dsn()
    schema = address.partition("schema=")[2]
    said: list[str] = []
    async with at_work(address) as old, anyio.create_task_group() as tasks:
        tasks.start_soon(many, old, 30, said)
        await wait_until(lambda: len(said) > 5)
        async with at_work(address, *NEXT) as new:
            tasks.start_soon(many, new, 30, said)
            tasks.start_soon(many, old, 30, said)
            await wait_until(lambda: len(said) == 90)
            found = server.query(f"SELECT value FROM {schema}.meta WHERE key = 'format'")
            assert found == [(str(NOW + 2),)]
            formats = server.query(f"SELECT format FROM {schema}.worker WHERE live")
            assert {*formats} == {(NOW,), (NOW + 2,)}
            assert sorted(said) == sorted(3 * [f"heard: {n}" for n in range(30)])
    with open_reader(address) as reader:
        assert not [*reader.faults(thorough=True)] and reader.count("run") == 90


def owns(runtime: Runtime, run_id: str) -> bool:
    sharing = sharing_of(runtime.hub.journal)
    assert sharing is not None
    return sharing.owns(run_id)


@pytest.mark.spec("X-07")
@pytest.mark.parametrize("versions", [((), (NOVEL,)), ((NOVEL,), ())], ids=["newer", "older"])
async def test_a_conversation_goes_on_in_the_other_version(
    server: Server, versions: tuple[tuple[Upgrade, ...], ...]
) -> None:
    address = server.dsn()
    async with at_work(address, NOVEL):
        pass
    async with at_work(address, *versions[1]) as other:
        async with at_work(address, *versions[0]) as one:
            run = await one.start("chat", "one", session_key="talk")
            assert (await run.result()).output == "echo: one"
        await wait_until(lambda: owns(other, run.run_id))
        there = await other.handle(run.run_id)
        assert (await there.ask("two")).output == "echo: two"


@pytest.mark.spec("X-07")
async def test_a_tree_with_a_record_that_is_new_waits_for_who_knows_it(server: Server) -> None:
    address = server.dsn()
    async with at_work(address) as old:
        async with at_work(address, NOVEL) as new:
            run = await new.start("inventor", session_key="lab")
            await wait_until(lambda: needs(server, address) == [(NOW + 1,)])
            said = await old.start("chat", "hello", session_key="talk")
            assert (await said.result()).output == "echo: hello"
        await anyio.sleep(3 * TTL)  # Some beats; the machine's own time.
        assert not owns(old, run.run_id) and owns(old, said.run_id)
        before = [event async for event in lane(old, run.run_id)]
        async with at_work(address, NOVEL) as new:
            await wait_until(lambda: owns(new, run.run_id))
        assert [event async for event in lane(old, run.run_id)][: len(before)] == before


def needs(server: Server, address: str) -> list[tuple[Any, ...]]:
    schema = address.partition("schema=")[2]
    return server.query(f"SELECT needs FROM {schema}.tree WHERE want = 'inventor'")


async def lane(runtime: Runtime, run_id: str) -> AsyncIterator[Event]:
    for event in await runtime.hub.read(run_id):
        yield event


async def test_an_item_that_is_new_takes_a_tree_from_who_does_not_know_it(server: Server) -> None:
    address = server.dsn()
    async with at_work(address) as old:
        run = await old.start("chat", "one", session_key="talk")
        await run.result()
        assert owns(old, run.run_id)
        async with at_work(address, NOVEL) as new:
            item: Any = CustomEvent(name="agent:novel")
            commit = Commit(deliveries=(Delivery(item, run.run_id),))
            new.hub.journal.submit(commit)
            await new.hub.journal.flush()
            assert commit.deliveries[0].outcome == "accepted"
            # Each hears of it in its own time, and whoever is late changes nothing meanwhile.
            await wait_until(lambda: owns(new, run.run_id) and not owns(old, run.run_id))
            assert not server.query(
                f"SELECT 1 FROM {address.partition('schema=')[2]}.tree WHERE needs <= {NOW}"
            )


async def test_a_claim_is_told_before_what_took_the_tree_away_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the answer to the claim is heard: nobody keeps a tree that he has lost."""
    address = server.dsn()
    claimed, written = anyio.Event(), anyio.Event()
    ask = hearing.Hearing._ask

    async def ask_slowly(self: Any, do: Any) -> Any:
        found = await ask(self, do)
        if getattr(do, "func", None) == self._tail.claim and found[1]:
            claimed.set()
            await written.wait()
            await anyio.sleep(0.5)
        return found

    async with at_work(address) as old, anyio.create_task_group() as group:
        monkeypatch.setattr(hearing.Hearing, "_ask", ask_slowly)
        channel = Runtime(store=PostgresStore(address, is_worker=False, ttl=TTL), role="channel")
        with ExitStack() as opening:
            opening.enter_context(version(NOVEL))
            async with channel:
                opening.close()
                run = await channel.start("chat", "one")
                await claimed.wait()
                item: Any = CustomEvent(name="agent:novel")
                journal = channel.hub.journal
                journal.submit(Commit(deliveries=(Delivery(item, run.run_id),)))
                await journal.flush()
                group.start_soon(old.hub.journal.flush)
                await anyio.sleep(0.2)
                written.set()
                assert owners(server, address) == [(None,)]
                await anyio.sleep(1.0)
                assert not owns(old, run.run_id)


def owners(server: Server, address: str) -> list[tuple[Any, ...]]:
    schema = address.partition("schema=")[2]
    return server.query(f"SELECT owner FROM {schema}.tree WHERE want = 'chat'")


@pytest.mark.spec("X-07")
async def test_no_upgrade_passes_a_live_worker_two_versions_behind(server: Server) -> None:
    address = server.dsn()
    async with at_work(address, name="elder") as old:
        with pytest.raises(OperatorError, match=rf"'elder' \(format {NOW}\); stop it first"):
            async with at_work(address, *NEXT, DROPPED):
                pass
        assert await old.run("echo", "still here")
    async with at_work(address, *NEXT, DROPPED):
        pass


@pytest.mark.spec("X-07")
async def test_a_worker_that_was_left_behind_while_it_slept_says_so_and_writes_nothing(
    server: Server,
) -> None:
    address = server.dsn()
    schema = address.partition("schema=")[2]
    async with at_work(address) as old:
        await old.run("echo", "one")
        # As though it had stood still for longer than a lease lasts.
        server.query(f"UPDATE {schema}.worker SET live = false")
        server.query(
            f"UPDATE {schema}.meta SET value = '{NOW + 3}' WHERE key IN ('format', 'reads')"
        )
        journal: Any = old.hub.journal
        await wait_until(lambda: bool(journal.failure))
        words = f"newer hubbub (format {NOW + 3}; this one knows {NOW}); upgrade hubbub"
        assert words in journal.failure
        count = server.query(f"SELECT count(*) FROM {schema}.event")
        with pytest.raises(HubbubError):
            await old.run("echo", "two")
        assert server.query(f"SELECT count(*) FROM {schema}.event") == count


async def test_two_programs_in_processes_of_their_own(server: Server) -> None:
    address = server.dsn()
    script = (
        "import anyio\n"
        "from hubbub import AgentDefinition, Runtime\n"
        "from hubbub.runtime.stores.postgres.store import PostgresStore\n"
        "async def echo(text, ctx):\n    return f'new: {text}'\n"
        "async def main():\n"
        "    agents = [AgentDefinition(name='echo', execute=echo)]\n"
        "    store = PostgresStore(sys.argv[1])\n"
        "    async with Runtime(agents, store=store, replace_agents=True) as rt:\n"
        "        for n in range(30):\n"
        "            assert (await rt.run('echo', n)).output == f'new: {n}'\n"
        "anyio.run(main, backend=sys.argv[2])\n"
    )
    said: list[str] = []
    async with at_work(address) as old, anyio.create_task_group() as tasks:
        tasks.start_soon(many, old, 80, said)
        for backend in ("asyncio", "trio"):
            command = [*run_as_format("NEXT", script), address, backend]
            with anyio.fail_after(60):
                await anyio.run_process(command, stderr=None)
    assert len(said) == 80
    with open_reader(address) as reader:
        assert not [*reader.faults(thorough=True)] and reader.count("run") == 140
