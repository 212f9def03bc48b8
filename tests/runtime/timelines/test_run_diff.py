"""Two runs are compared by what they say and do; ids, times, tokens and restarts do not count."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from hubbub import Agent, FunctionModel, ModelReply, ModelRequest, Runtime, ScriptedModel, tool
from hubbub.__main__ import main
from hubbub.agents.model import Usage
from hubbub.hub.errors import UnknownRun
from hubbub.hub.events import NO_USAGE, SessionPrompt
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.timelines.run_diff import RunDiff, diff_runs

pytestmark = pytest.mark.anyio

COST = Usage(input_tokens=7, output_tokens=1)


@tool
def weather(city: str) -> str:
    """How the weather is."""
    return f"sunny in {city}"


def desk(*script: ModelReply, name: str = "desk") -> Agent:
    """An agent that says these in turn, whoever it talks to."""
    left = iter(script)
    return Agent(name, "You help.", model=FunctionModel(lambda _: next(left)), tools=[weather])


def said(text: str, usage: Usage = NO_USAGE) -> ModelReply:
    return ModelReply(text=text, usage=usage)


def asked(city: str, usage: Usage = NO_USAGE) -> ModelReply:
    return reply("", call("weather", city=city), usage=usage)


async def two(
    one: Sequence[ModelReply], other: Sequence[ModelReply], told: tuple[str, str], ports: Ports
) -> RunDiff:
    """Two runs of one agent, compared in their store."""
    store = MemoryJournal()
    async with Runtime([desk(*one, *other)], store=store, ports=ports) as rt:
        runs = [await rt.run("desk", text) for text in told]
        with closing(store.reader()) as reader:
            return diff_runs(reader, runs[0].run_id, runs[1].run_id)


async def test_runs_that_say_the_same_are_the_same(ports: Ports) -> None:
    found = await two(
        [asked("Rome"), said("It is sunny.")],
        [asked("Rome", COST), said("It is sunny.")],
        ("how is Rome?", "how is Rome?"), ports,
    )  # fmt: skip
    assert found.same and not found.differences and found.left_parted is None
    assert found.alike == found.left.records == found.right.records
    assert (found.left.usage.input_tokens, found.right.usage.input_tokens) == (0, 7)


@pytest.mark.parametrize("new_run_id", ["", "same", "a-fork-of-it"])
async def test_a_run_and_its_fork_are_the_same_whatever_its_id_and_whoever_was_asked(
    ports: Ports, new_run_id: str
) -> None:
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    clerk = Agent("clerk", "You pay.", model=ScriptedModel([call("pay"), "Paid."]), tools=[pay])
    store = MemoryJournal()
    async with Runtime([clerk], store=store, ports=ports) as rt:
        rt.hub.subscribe(SessionPrompt, lambda asked: rt.hub.approve(asked.prompt_id))
        run = await rt.start("clerk", "pay", session_key="ann")
        await run.result()
        fork = await rt.fork(run.run_id, new_run_id=new_run_id)
        with closing(store.reader()) as reader:
            assert diff_runs(reader, run.run_id, fork.run_id).same


async def test_the_first_record_that_differs_is_named_and_what_follows(ports: Ports) -> None:
    found = await two(
        [asked("Rome"), said("It is sunny.")],
        [asked("Oslo"), said("It is sunny.")],
        ("how is it?", "how is it?"), ports,
    )  # fmt: skip
    assert not found.same and found.left_parted is not None and found.right_parted is not None
    assert found.left_parted.type == found.right_parted.type == "agent:step"
    assert found.left_parted.seq == found.alike + 1
    told = [(x.kind, x.left, x.right) for x in found.differences]
    assert [kind for kind, _, _ in told] == ["call", "tool"]
    assert "Rome" in str(told[0][1]) and "Oslo" in str(told[0][2])
    assert told[1][1:] == ("weather: sunny in Rome", "weather: sunny in Oslo")
    assert (found.left.outcome, bytes(found.left.output)) == ("completed", b'"It is sunny."')


async def test_what_only_one_run_has_done_stands_alone(ports: Ports) -> None:
    found = await two(
        [asked("Rome"), said("It is sunny.")], [said("It is sunny.")],
        ("how is Rome?", "how is Rome?"), ports,
    )  # fmt: skip
    told = [(x.kind, x.left is None, x.right is None) for x in found.differences]
    assert told == [("call", False, True), ("tool", False, True)]
    assert (found.left.steps, found.right.steps) == (2, 1)


async def test_what_was_said_to_them_differs_from_the_start(ports: Ports) -> None:
    found = await two([said("Hello.")], [said("Hello.")], ("I am Ann", "I am Bob"), ports)
    (only,) = found.differences
    assert (only.kind, only.left, only.right) == ("user", "input: I am Ann", "input: I am Bob")


async def test_children_and_restarts_do_not_part_runs(ports: Ports) -> None:
    store = MemoryJournal()
    child = desk(*[said("Done.")] * 2, name="child")
    leads = ScriptedModel([call("child", message="go"), "All done."])
    boss = Agent("boss", "You lead.", model=leads, tools=[child.as_tool()])
    async with Runtime([boss, child], store=store, ports=ports) as rt:
        runs = [await rt.run("boss", "go") for _ in range(2)]
        with closing(store.reader()) as reader:
            assert len([*reader.rows()]) == 4
            found = diff_runs(reader, *(run.run_id for run in runs))
            assert found.same, found
            assert diff_runs(reader, runs[0].run_id, runs[0].run_id).same
            with pytest.raises(UnknownRun):
                diff_runs(reader, runs[0].run_id, "nobody")


async def test_a_run_that_went_on_in_another_process_is_the_same(
    tmp_path: Path, ports: Ports
) -> None:
    def answer(request: ModelRequest) -> ModelReply:
        return ModelReply(text="Hello.")

    def runtime() -> Runtime:
        talker = Agent("desk", "You help.", model=FunctionModel(answer))
        return Runtime([talker], store=f"sqlite:{tmp_path}", ports=ports, grace=0)

    async with runtime() as rt:
        one, other = [await rt.start("desk", "first", session_key=key) for key in "ab"]
        await one.ask("second")
        await other.result()
    async with runtime() as rt:
        await (await rt.handle(other.run_id)).ask("second")
    with open_reader(f"sqlite:{tmp_path}") as reader:
        assert diff_runs(reader, one.run_id, other.run_id).same


class Command:
    """Two conversations in a store that part at their second message, and the command."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = f"sqlite:{folder}"
        self._capsys = capsys
        self.runs = anyio.run(self._talk)

    async def _talk(self) -> list[str]:
        made = []
        async with Runtime([desk(*[said("It is sunny.")] * 4)], store=self.store) as rt:
            for name in ("Rome", "Oslo"):
                run = await rt.start("desk", "how are you?", session_key=name)
                await run.result()
                await run.ask(f"how is {name}?\x1b[31m")
                made.append(run.run_id)
        return made

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main(["diff", *arguments, "--store", self.store])
        told = self._capsys.readouterr()
        return code, told.out, told.err


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path / "store", capsys)


def test_the_command_says_it_in_lines_and_as_json(command: Command) -> None:
    left, right = command.runs
    code, out, err = command(left, right[-8:])
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"- {left}  desk: ") and lines[1].startswith(f"+ {right}  desk: ")
    assert lines[2].startswith("they part after ") and "how is Rome" in out and "\x1b" not in out
    code, out, err = command(left, right, "--json")
    told: Any = json.loads(out)
    assert (code, err, told["same"]) == (0, "", False)
    assert told["left"]["run_id"] == left and told["differences"][0]["kind"] == "user"
    assert command(left, left)[1].splitlines()[-1].startswith("the same: ")


@pytest.mark.parametrize("given", [("nobody", "nobody"), ("x", "y")])
def test_runs_that_are_not_there_are_one_line(command: Command, given: tuple[str, str]) -> None:
    code, out, err = command(*given)
    assert (code, out) == (2, "") and err.count("\n") == 1 and "run" in err
