"""``hubbub fork``: from an incident to a try with another agent in two commands."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import Agent, FunctionModel, ModelRequest, Runtime
from hubbub.__main__ import main
from hubbub.runtime.inspection.check import StoreCheck


def agent(name: str, words: str) -> Agent:
    def answer(request: ModelRequest) -> str:
        return f"{words} {len(request.messages)}"

    return Agent(name, "You help.", model=FunctionModel(answer))


class Desk:
    """A store with a conversation of three turns, and the command line on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = f"sqlite:{folder}"
        self._capsys = capsys
        self.run_id = anyio.run(self._talk)

    def runtime(self) -> Runtime:
        agents = [agent("desk", "desk says"), agent("better", "better says")]
        return Runtime(agents, store=self.store, grace=0)

    async def _talk(self) -> str:
        async with self.runtime() as rt:
            run = await rt.start("desk", "one", session_key="ann")
            await run.result()
            await run.ask("two")
            await run.ask("three")
            return run.run_id

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--store", self.store])
        told = self._capsys.readouterr()
        return code, told.out, told.err

    def outcome(self, run_id: str) -> Any:
        """What the next runtime makes of a run."""

        async def work() -> Any:
            async with self.runtime() as rt:
                with anyio.fail_after(20):
                    return (await (await rt.handle(run_id)).result()).output

        return anyio.run(work)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path / "store", capsys)


def test_another_agent_is_tried_on_an_incident_and_compared(desk: Desk) -> None:
    code, out, err = desk(
        "fork", desk.run_id[-8:], "6", "--agent", "better", "--message", "again", "--json"
    )
    made = json.loads(out)
    assert (code, err, made["of_run_id"], made["agent"]) == (0, "", desk.run_id, "better")
    assert (made["of_seq"], made["runs"]) == (6, 1)
    assert desk.outcome(made["run_id"]).startswith("better says")
    code, out, err = desk("diff", desk.run_id, made["run_id"])
    assert (code, err) == (0, "") and "they part after" in out and "→ goes on as better" in out
    assert [*StoreCheck(desk.store, thorough=True).problems()] == []


def test_it_says_what_it_has_made_and_the_key_finds_it(desk: Desk) -> None:
    code, out, err = desk("fork", "ann", "--session-key", "bob", "--new-run-id", "mine")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert out.startswith(f"run mine is run {desk.run_id} after its record ")
    code, out, _ = desk("show", "bob", "--json")
    assert code == 0 and json.loads(out)["run"]["run_id"] == "mine"


def test_what_cannot_be_forked_is_one_line(desk: Desk) -> None:
    for arguments, words in (
        (["nobody"], "no such run"),
        ([desk.run_id, "1000"], "they go from 1 to"),
        ([desk.run_id, "--new-run-id", desk.run_id], "is there already"),
        ([desk.run_id, "--session-key", "ann"], "is there already"),
        ([desk.run_id, "x"], "See: hubbub --help"),
    ):
        code, out, err = desk("fork", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1) and words in err, err


def test_beside_a_runtime_the_way_is_told(desk: Desk) -> None:
    async def work() -> tuple[int, str, str]:
        async with desk.runtime():
            return await anyio.to_thread.run_sync(desk, "fork", desk.run_id)

    code, out, err = anyio.run(work)
    assert (code, out) == (2, "") and "rt.fork(" in err and err.count("\n") == 1
