"""A child or a frame whose record is damaged: as in a folder, with a server."""

from typing import Any

import anyio
import pytest
from support.families import answers, heard
from support.frames import Talk, frame, use
from support.postgres import Server

from hubbub import FunctionModel, ModelRequest, Runtime
from hubbub.agents.definitions.agent import AgentDefinition

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.spec("P-03", "G-07")]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: the server knows no other."""
    return str(request.param)


def stack() -> list[AgentDefinition]:
    def main(request: ModelRequest) -> Any:
        return f"Main: {heard(request)[-1]}" if answers(request) else use("writer")

    writer = FunctionModel(lambda request: f"Writer: {heard(request)[-1]}")
    return [frame(FunctionModel(main), agents=("writer",)), frame(writer, name="writer")]


async def test_a_damaged_frame_gives_the_conversation_back(server: Server) -> None:
    schema = server.new_schema()
    async with Runtime(stack(), store=server.dsn(schema)) as rt:
        talk = Talk(rt)
        assert (await talk.say("go"))[-1] == ("writer", "Writer: Go.")
        (gone,) = talk.frames("writer")
        root = talk.root
    server.query(
        f"UPDATE {schema}.event SET body = replace(body, '\"items\":[', '\"items\":{{') "
        f"WHERE type = 'session:taken' AND run = (SELECT number FROM {schema}.run "
        f"WHERE run_id = '{gone}') RETURNING 1"
    )
    async with Runtime(stack(), store=server.dsn(schema)) as rt:
        talk = Talk(rt)
        with anyio.fail_after(30):
            assert (await talk.say("one"))[-1] == ("main", "Main: one")
            assert await talk.say("two") == [("main", "Main: two")]
        assert talk.root == root
        ((text, is_error),) = talk.results("use_agent")
        assert is_error and "its record" in text
