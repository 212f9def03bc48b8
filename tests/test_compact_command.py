"""``hubbub compact``: the next runtime on the store summarises."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import Agent, FunctionModel, ModelReply, ModelRequest, Runtime
from hubbub.__main__ import main
from hubbub.hub.events import SessionCompaction

pytestmark = pytest.mark.spec("L-04")


def answer(request: ModelRequest) -> ModelReply:
    return ModelReply(text="In short." if request.purpose == "summary" else "It is sunny there.")


class Chat:
    """A program with a store, the runtime of which comes and goes."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:{folder}"

    def runtime(self) -> Runtime:
        talker = Agent("support", "You help.", model=FunctionModel(answer))
        return Runtime([talker], store=self.store, grace=0)

    def talk(self) -> str:
        async def work() -> str:
            async with self.runtime() as rt:
                run = await rt.start("support", session_key="ann")
                for place in ("Oslo", "Rome", "Lima"):
                    await run.ask(f"How is the weather in {place}?")
                return run.run_id

        return anyio.run(work)

    def go_on(self, run_id: str) -> list[Any]:
        """What the next runtime has summarised by its first answer."""

        async def work() -> list[Any]:
            async with self.runtime() as rt:
                with anyio.fail_after(20):
                    await (await rt.handle(run_id)).ask("And in Kyiv?")
                return [*await rt.hub.read(run_id, types=SessionCompaction.type)]

        return anyio.run(work)

    def __call__(self, *arguments: str) -> int:
        return main(["compact", *arguments, "--store", self.store])


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    return Chat(tmp_path / "store")


@pytest.mark.parametrize("named", ["id", "end", "key"])
def test_the_next_runtime_summarises_what_was_said(
    chat: Chat, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    run_id = chat.talk()
    assert chat({"id": run_id, "end": run_id[-6:], "key": "ann"}[named]) == 0
    assert capsys.readouterr().out == (
        f"run {run_id}: its older messages are summarised by the next runtime\n"
    )
    (made,) = chat.go_on(run_id)
    assert (made.summary, made.error) == ("In short.", "")


def test_a_run_that_is_over_or_unknown_and_a_runtime_at_work_are_refused_with_the_remedy(
    chat: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = chat.talk()

    def refusal(*arguments: str) -> str:
        assert chat(*arguments) == 2
        told = capsys.readouterr()
        assert told.out == "" and told.err.startswith("hubbub: ") and told.err.count("\n") == 1
        return told.err

    assert "no such run in this store" in refusal("nobody")

    async def beside() -> None:
        async with chat.runtime() as rt:
            told = await anyio.to_thread.run_sync(lambda: refusal(run_id))
            assert f"POST /api/runs/{run_id}/compact" in told and "at work" in told
            await rt.terminate(run_id)

    anyio.run(beside)
    assert "terminated; nothing was sent" in refusal(run_id)
