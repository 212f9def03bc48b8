"""What is only to end needs nobody who knows its agent: with real workers, one of them killed."""

import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import psycopg
import pytest
from support.postgres import Server
from support.worker_process import WorkerProcess

from hubbub import Runtime

pytestmark = [pytest.mark.anyio, pytest.mark.long]

MODULE = """
from hubbub import Agent, FunctionModel

known = Agent("known", "You help.", model=FunctionModel(lambda request: "helped"))
"""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    return str(request.param)


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not is_so():  # noqa: ASYNC110  # A server has its own time.
            await anyio.sleep(0.05)


async def test_a_run_of_an_agent_nobody_knows_is_terminated_though_who_ends_it_is_killed(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(MODULE)
    schema = server.new_schema()
    address = server.dsn(schema)
    with WorkerProcess(tmp_path, "own", "--store", address) as one:
        one.wait_for("is at work")
        async with Runtime(role="channel", store=address) as channel:
            run = await channel.start("typo", "hello", session_key="k")
            await run.terminate("bye")
            assert (await run.finished()).outcome == "terminated"
            again = await channel.start("typo", "hello", session_key="k")
            assert again.run_id != run.run_id

            def owned() -> bool:
                return server.query(f"SELECT owner IS NOT NULL FROM {schema}.tree") == [(True,)]

            one.signal(signal.SIGSTOP)
            await again.terminate("bye")
            # No group of commits has its turn: the tree is claimed, and its end is not written.
            with psycopg.connect(address.replace(f"&schema={schema}", "")) as db:
                db.execute(f"SELECT 1 FROM {schema}.head FOR UPDATE")
                one.signal(signal.SIGCONT)
                await until(owned)
                one.signal(signal.SIGKILL)
                one.wait()
            with WorkerProcess(tmp_path, "own", "--store", address) as other:
                other.wait_for("is at work")
                with anyio.fail_after(30):
                    assert (await again.finished()).outcome == "terminated"
            assert server.query(f"SELECT count(*) FROM {schema}.tree") == [(0,)]
