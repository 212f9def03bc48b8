"""``hubbub reply``, and what the other commands say of prompts and schedules (U-12)."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Struct

from hubbub.__main__ import main
from hubbub.hub.errors import CallerError, OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.answering import PromptAnswer, answer_prompt
from hubbub.runtime.schedules.schedules import Cron
from hubbub.runtime.stores.open import sqlite_store

sys.path.append(str(Path(__file__).parent))

from support.agents import model_agent
from support.asked import Asked

from hubbub import AgentDefinition, RunState, Runtime, agent, external_tool, tool
from hubbub.hub import events as e
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

pytestmark = pytest.mark.spec("U-12")

NAME = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}

BOTH = reply("", call("refund", order=7), call("pick", what="a\x1b[2J"))
WHICH = call("interrupt", prompt="Which?", options=["red", "blue"])

CHANGED = ["--approve", "--arguments", '{"order": 8}']


class Desk:
    """A program with a store, the runtime of which comes and goes."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.refunded: list[int] = []
        self.asked: list[e.SessionPrompt] = []
        self._capsys = capsys

        @tool(approval=True)
        async def refund(order: int) -> str:
            self.refunded.append(order)
            return f"refunded {order}"

        self.tools = (refund, external_tool("pick", NAME))

    def agent(self, *script: Any) -> AgentDefinition:
        made = model_agent(ScriptedModel(script), *self.tools, parallel_tool_calls=True)
        return AgentDefinition(name=made.name, supports_checkpointing=True, side_a=made.side_a)

    def runtime(self, *script: Any, **options: Any) -> Runtime:
        store = sqlite_store(self.folder, mirror=False)
        return Runtime([self.agent(*script)], store=store, grace=0, **options)

    def ask(self, *script: Any, count: int, **options: Any) -> str:
        """Have the agent ask, and stop the runtime; returns the id of its run."""

        async def work() -> str:
            async with self.runtime(*script, "Done.", **options) as rt:
                seen = Asked(rt.hub)
                run = await rt.start("assistant", "Go.", session_key=f"chat_1_{len(self.asked)}")
                with anyio.fail_after(20):
                    self.asked += await seen.wait(count)
                return run.run_id

        return anyio.run(work)

    def go_on(self, run_id: str) -> list[tuple[str, bool]]:
        """The next runtime; returns the results of the run's calls."""

        async def work() -> list[tuple[str, bool]]:
            async with self.runtime("Done.", "Done.") as rt:
                handle = await rt.handle(run_id)
                with anyio.fail_after(20):
                    await handle.result()
                done = await rt.hub.read(run_id, types="agent:tool:complete")
                return [(x.output, x.is_error) for x in done if isinstance(x, e.AgentToolComplete)]

        return anyio.run(work)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--store", f"sqlite:{self.folder}"])
        told = self._capsys.readouterr()
        return code, told.out, told.err

    def out(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out

    def refusal(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("hubbub: ") and err.count("\n") == 1 and err[:-1].isprintable()
        return err


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path / "store", capsys)


# ── what is asked ────────────────────────────────────────────────────────────────────────────


def test_what_is_asked_is_listed_with_ids_arguments_and_age(desk: Desk) -> None:
    desk.ask(BOTH, count=2)
    desk.ask(WHICH, count=1)
    refund, pick, which = [each.prompt_id for each in desk.asked]
    lines = desk.out("reply").splitlines()
    assert lines[0].split() == [refund, lines[0].split()[1], "s", "assistant", "approval"]
    assert lines[1] == '  refund {"order": 7}'
    assert lines[2].startswith(pick) and lines[2].endswith("assistant  external")
    assert lines[3].isprintable() and "pick" in lines[3] and "[2J" in lines[3]
    assert lines[4].startswith(which) and lines[4].endswith("assistant  question")
    assert lines[5:8] == ["  ? Which?", "    red", "    blue"]
    told = json.loads(desk.out("reply", "--json"))["prompts"]
    assert [(x["prompt_id"], x["kind"], x["tool"]) for x in told] == [
        (refund, "approval", "refund"), (pick, "external", "pick"), (which, "question", ""),
    ]  # fmt: skip
    assert told[0]["arguments"] == {"order": 7} and told[0]["waits_in"] == "record"
    assert told[2]["options"] == ["red", "blue"] and told[2]["expires_at"] > told[2]["since"]


def test_runs_and_show_say_what_is_asked(desk: Desk) -> None:
    run_id = desk.ask(BOTH, count=2)
    other = desk.ask(WHICH, count=1)
    ids = [each.prompt_id for each in desk.asked]
    shown = {("runs",): ids, ("show", run_id): ids[:2], ("show", other): ids[2:]}
    for arguments, asked in shown.items():
        text = desk.out(*arguments)
        assert "asked (hubbub reply answers):" in text
        told = json.loads(desk.out(*arguments, "--json"))["prompts"]
        assert [each["prompt_id"] for each in told] == asked
    assert f'{ids[0]}  assistant  approval: refund {{"order": 7}}' in desk.out("show", run_id)
    assert f"{ids[2]}  assistant  question: Which?" in desk.out("runs")
    desk.out("reply", ids[0], "--approve")
    assert f"{ids[0]}  assistant  approval; answered: refund" in desk.out("runs")


def test_runs_say_what_each_waits_for(desk: Desk) -> None:
    both = desk.ask(BOTH, count=2)
    which = desk.ask(WHICH, count=1)
    lines = {line.split()[0]: line for line in desk.out("runs").splitlines() if line[0].isalnum()}
    assert "waits for approval, a result" in lines[both]
    assert "waits for an answer" in lines[which]
    assert "waits for approval, a result" in desk.out("show", both)


def test_schedules_that_have_not_fired_are_shown(desk: Desk) -> None:
    async def work() -> None:
        yearly = Cron("yearly", "0 0 1 1 *", "assistant", "hi")
        async with desk.runtime("Hi.", schedules=[yearly]):
            pass

    anyio.run(work)
    lines = desk.out("runs").splitlines()
    assert lines[0].startswith("no live runs")
    assert lines[1] == "schedules that have not fired:"
    assert lines[2].startswith("  yearly  cron  assistant  next 20")
    (told,) = json.loads(desk.out("runs", "--json"))["schedules"]
    assert (told["uid"], told["last_fired_at"]) == ("yearly", 0) and told["next_at"]
    assert desk.out("schedules").splitlines()[1].startswith("yearly")


def test_nothing_asked_is_said(desk: Desk) -> None:
    run_id = desk.ask(call("refund", order=7), count=1)
    desk.out("reply", desk.asked[0].prompt_id, "--deny", "")
    desk.go_on(run_id)
    assert desk.out("reply") == "nobody is asked anything\n"
    assert json.loads(desk.out("reply", "--json")) == {"prompts": []}
    assert "asked" not in desk.out("runs") and "asked" not in desk.out("show", run_id)


# ── answers ──────────────────────────────────────────────────────────────────────────────────


def test_answers_are_taken_by_the_next_runtime(desk: Desk) -> None:
    run_id = desk.ask(BOTH, count=2)
    other = desk.ask(WHICH, count=1)
    refund, pick, which = [each.prompt_id for each in desk.asked]
    told = desk.out("reply", refund, "--approve")
    assert told == f"approved {refund}: the next runtime on the store goes on with it\n"
    assert desk.out("reply", pick, "a pear").startswith(f"answered {pick}")
    assert json.loads(desk.out("reply", which, "blue", "--json")) == {
        "prompt_id": which, "run_id": other, "decision": "reply", "text": "blue",
        "arguments": None, "is_error": False,
    }  # fmt: skip
    assert desk.refunded == []
    assert sorted(desk.go_on(run_id)) == [("a pear", False), ("refunded 7", False)]
    assert desk.go_on(other) == [("blue", False)]
    assert desk.refunded == [7]
    assert desk.out("fsck").startswith("all is well")


@pytest.mark.spec("U-03", "U-04")
@pytest.mark.parametrize(
    ("asks", "answer", "result"),
    [
        (call("refund", order=7), ["--deny", "too late"], ("not run: denied: too late", True)),
        (call("refund", order=7), CHANGED, ("refunded 8", False)),
        (call("pick", what="a"), ["none left", "--error"], ("none left", True)),
        (call("pick", what="a"), ["--deny", "no"], ("no result: no", True)),
    ],
)  # fmt: skip
def test_each_kind_is_answered_in_its_ways(
    desk: Desk, asks: Any, answer: list[str], result: tuple[str, bool]
) -> None:
    run_id = desk.ask(asks, count=1)
    desk.out("reply", desk.asked[0].prompt_id[-12:], *answer)
    assert desk.go_on(run_id) == [result]


def test_arguments_that_do_not_fit_run_nothing(desk: Desk) -> None:
    run_id = desk.ask(call("refund", order=7), count=1)
    desk.out("reply", desk.asked[0].prompt_id, "--approve", "--arguments", '{"order": "x"}')
    ((text, is_error),) = desk.go_on(run_id)
    assert is_error and "order" in text
    assert desk.refunded == []


def test_the_first_answer_counts(desk: Desk) -> None:
    run_id = desk.ask(call("refund", order=7), count=1)
    prompt_id = desk.asked[0].prompt_id
    desk.out("reply", prompt_id, "--deny", "no")
    assert "answered already; the next runtime takes" in desk.refusal(
        "reply", prompt_id, "--approve"
    )
    assert "answered; the next runtime takes the answer" in desk.out("reply")
    desk.go_on(run_id)
    assert "it is over (denied)" in desk.refusal("reply", prompt_id, "--approve")
    assert desk.refunded == []


@pytest.mark.spec("U-03", "U-12")
def test_arguments_that_the_tool_does_not_take_are_an_error_when_it_is_run(desk: Desk) -> None:
    run_id = desk.ask(reply("", call("refund", order=1)), count=1)
    unfit = ["--approve", "--arguments", '{"order": "all"}']
    assert "the arguments are checked then" in desk.out("reply", desk.asked[0].prompt_id, *unfit)
    ((output, is_error),) = desk.go_on(run_id)
    assert is_error and "order" in output
    assert desk.refunded == []


@pytest.mark.spec("U-06", "U-12")
def test_what_is_answered_is_waited_for_no_more(desk: Desk) -> None:
    run_id = desk.ask(BOTH, count=2)
    refund, pick = [each.prompt_id for each in desk.asked]

    def listed(*options: str) -> list[tuple[str, list[str]]]:
        page = json.loads(desk.out("conversations", "--json", *options))["conversations"]
        return [(x["status"], [each["prompt_id"] for each in x["waits_for"]]) for x in page]

    assert listed() == [("waiting", [refund, pick])]
    desk.out("reply", refund, "--approve")
    assert listed() == listed("--status", "waiting") == [("waiting", [pick])]
    assert listed("--status", "active") == []
    assert "waits for a result " in desk.out("runs")
    desk.out("reply", pick, "that one")
    assert listed() == listed("--status", "active") == [("active", [])]
    assert listed("--status", "waiting") == []
    assert "has its answer" in desk.out("runs") and "waits for" not in desk.out("runs")
    assert {*desk.go_on(run_id)} == {("refunded 7", False), ("that one", False)}


@pytest.mark.spec("H-10", "U-03")
@pytest.mark.parametrize("second", ["approve", "deny", "reply", "emit"])
def test_a_reply_right_after_the_runtime_is_entered_is_rejected_if_there_is_one(
    desk: Desk, second: str
) -> None:
    desk.ask(reply("", call("refund", order=1)), count=1)
    prompt_id = desk.asked[0].prompt_id
    desk.out("reply", prompt_id, "--approve")

    async def work() -> None:
        async with desk.runtime("Done.", "Done.") as rt:
            letters: list[e.HubDeadLetter] = []
            rt.hub.subscribe(e.HubDeadLetter, letters.append)
            if second == "emit":
                with pytest.raises(CallerError, match="answered"):
                    await rt.hub.publish(e.SessionReply(prompt_id=prompt_id, content="no"))
            else:
                give = {
                    "approve": lambda: rt.hub.approve(prompt_id),
                    "deny": lambda: rt.hub.deny(prompt_id, "no"),
                    "reply": lambda: rt.hub.reply(prompt_id, "no"),
                }[second]
                receipt = await give()
                assert (receipt.status, receipt.reason) == ("rejected", "answered")
            assert {letter.reason for letter in letters} == {"answered"}
            run = await rt.handle(prompt_id.partition(".")[0])
            with anyio.fail_after(20):
                await run.result()

    anyio.run(work)
    assert desk.refunded == [1]


@pytest.mark.spec("H-10")
def test_a_question_of_code_that_has_its_answer_says_so_before_the_code_is_back(
    desk: Desk,
) -> None:
    @agent("asker", on_restart="resume")
    async def asker(input: Any, ctx: Any) -> str:
        return str(await ctx.ask("Which one?"))

    def runtime() -> Runtime:
        return Runtime([asker], store=sqlite_store(desk.folder, mirror=False), grace=0)

    async def ask() -> str:
        async with runtime() as rt:
            seen = Asked(rt.hub)
            await rt.start("asker", "go")
            with anyio.fail_after(20):
                return (await seen.first()).prompt_id

    async def go_on() -> None:
        async with runtime() as rt:
            receipt = await rt.hub.reply(prompt_id, "red")
            assert (receipt.status, receipt.reason) == ("rejected", "answered")
            run = await rt.handle(prompt_id.partition(".")[0])
            with anyio.fail_after(20):
                assert (await run.result()).output == "blue"

    prompt_id = anyio.run(ask)
    desk.out("reply", prompt_id, "blue")
    anyio.run(go_on)


WRONG: list[tuple[Callable[[str], list[str]], str]] = [
    (lambda id_: [id_], "give TEXT, --approve or --deny REASON"),
    (lambda id_: [id_, "yes"], "it is an approval; give --approve, or --deny REASON"),
    (lambda id_: [id_, "yes", "--approve"], "any two are two answers"),
    (lambda id_: [id_, "--approve", "--deny", "x"], "any two are two answers"),
    (lambda id_: [id_, "--deny", "x", "--arguments", "{}"], "give --approve with it"),
    (lambda id_: [id_, "--approve", "--arguments", "[1]"], "--arguments: expected a JSON object"),
    (lambda id_: [id_, "--approve", "--arguments", "{"], "--arguments: expected a JSON object"),
    (lambda id_: [id_, "--error"], "give TEXT with it"),
    (lambda id_: ["--approve"], "name the prompt"),
    (lambda id_: ["abc", "--approve"], "has at least 4 characters"),
    (lambda id_: ["0000\x1b", "--approve"], "no such prompt is open"),
    (lambda id_: [id_[:4], "--approve"], "may be any of"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_is_no_answer_is_one_line_with_the_remedy(
    desk: Desk, arguments: Callable[[str], list[str]], message: str
) -> None:
    desk.ask(reply("", call("refund", order=1), call("refund", order=2)), count=2)
    assert message in desk.refusal("reply", *arguments(desk.asked[0].prompt_id))
    assert desk.out("reply").count("approval") == 2


def test_beside_a_runtime_at_work_the_list_is_there_and_an_answer_is_refused(desk: Desk) -> None:
    @tool
    async def choose(state: RunState) -> str:
        return str(await state.hub.ask("user", "Which one?"))

    desk.tools = (*desk.tools, choose)

    async def work() -> None:
        script = reply("", call("refund", order=7), call("choose"))
        async with desk.runtime(script) as rt:
            seen = Asked(rt.hub)
            await rt.start("assistant", "Go.")
            with anyio.fail_after(20):
                await seen.wait(2)
            asked = {each.kind: each.prompt_id for each in seen.prompts}
            text = await anyio.to_thread.run_sync(desk.out, "reply")
            assert asked["approval"] in text and asked["question"] in text
            assert "only the program at work can take the answer" in text
            error = await anyio.to_thread.run_sync(
                desk.refusal, "reply", asked["approval"], "--approve"
            )
            assert "a runtime is at work on this store; answer in its program" in error

    anyio.run(work)
    assert desk.out("reply").count("question") == 0  # It was lost with its process.


@pytest.mark.spec("U-05")
def test_the_question_of_code_that_is_run_again_is_answered_from_the_command_line(
    desk: Desk,
) -> None:
    heard: list[str] = []

    @agent("asker", on_restart="resume")
    async def asker(input: Any, ctx: Any) -> str:
        answer = await ctx.ask("Which one?", schema={"type": "integer"})
        heard.append(repr(answer))
        return f"{answer}"

    async def ask() -> str:
        async with Runtime([asker], store=sqlite_store(desk.folder, mirror=False), grace=0) as rt:
            seen = Asked(rt.hub)
            await rt.start("asker", "go")
            with anyio.fail_after(20):
                return (await seen.first()).prompt_id

    async def go_on() -> None:
        store = sqlite_store(desk.folder, mirror=False)
        async with Runtime([asker], store=store, grace=0) as rt:
            run = await rt.handle(prompt_id.partition(".")[0])
            with anyio.fail_after(20):
                await run.result()

    prompt_id = anyio.run(ask)
    assert prompt_id in desk.out("reply") and prompt_id in desk.out("runs")
    assert "expected `int`" in desk.refusal("reply", prompt_id, "red")
    assert "is run again" in desk.out("reply", prompt_id, "7")
    anyio.run(go_on)
    assert heard == ["7"]


class Seat(Struct):
    car: int


@pytest.mark.spec("U-05")
def test_the_question_of_a_tool_for_a_struct_is_answered_from_the_command_line(desk: Desk) -> None:
    @tool(idempotent=True)
    async def choose(state: RunState) -> str:
        return repr(await state.ask("Which?", schema=Seat))

    desk.tools = (choose,)
    run_id = desk.ask(call("choose"), count=1)
    prompt_id = desk.asked[0].prompt_id
    assert '  fits {"$ref": "#/$defs/Seat", "$defs": {"Seat": ' in desk.out("reply")
    (conversation,) = json.loads(desk.out("conversations", "--json"))["conversations"]
    assert conversation["waits_for"][0]["schema"]["$defs"]["Seat"]["required"] == ["car"]
    assert "missing field `car`" in desk.refusal("reply", prompt_id, '{"seat": 3}')
    assert "else the question is lost" in desk.out("reply", prompt_id, '{"car": 3}')
    assert desk.go_on(run_id) == [("Seat(car=3)", False)]


def test_an_imported_run_is_answered_before_any_runtime_has_seen_it(
    desk: Desk, tmp_path: Path
) -> None:
    run_id = desk.ask(call("refund", order=7), count=1)
    desk.out("export", run_id, "--out", str(tmp_path / "run.jsonl"))
    desk.folder = tmp_path / "other"
    desk.out("import", str(tmp_path / "run.jsonl"))
    assert desk.asked[0].prompt_id in desk.out("reply")
    desk.out("reply", desk.asked[0].prompt_id, "--approve")
    assert desk.go_on(run_id) == [("refunded 7", False)]


# ── two answers at once ──────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-10")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_of_two_answers_at_once_one_is_accepted_and_the_other_is_told(
    desk: Desk, loop: str
) -> None:
    run_id = desk.ask(call("refund", order=7), count=1)
    refused: list[str] = []

    async def answer(text: str) -> None:
        try:
            given = PromptAnswer(decision="deny", text=text)
            await answer_prompt(f"sqlite:{desk.folder}", desk.asked[0].prompt_id, given, Ports())
        except OperatorError as error:
            refused.append(str(error))

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(answer, "no")
            group.start_soon(answer, "never")

    anyio.run(both, backend=loop)
    assert len(refused) == 1 and "it is answered already" in refused[0]
    assert len([x for x in desk.go_on(run_id) if "denied" in x[0]]) == 1


@pytest.mark.long
@pytest.mark.spec("H-10")
def test_of_two_processes_that_answer_at_once_one_is_accepted_and_the_other_is_told(
    desk: Desk,
) -> None:
    for number in range(6):
        run_id = desk.ask(call("refund", order=number), count=1)
        prompt_id = desk.asked[-1].prompt_id
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "hubbub", "reply", prompt_id, *words,
                 "--store", f"sqlite:{desk.folder}"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for words in (["--approve"], ["--deny", "no"])
        ]  # fmt: skip
        told = [process.communicate(timeout=60) for process in processes]
        codes = [process.returncode for process in processes]
        assert sorted(codes) == [0, 2], told
        first = codes.index(0)
        assert told[first][0].startswith(("approved", "denied")[first])
        assert "it is answered already" in told[1 - first][1]
        assert told[1 - first][1].count("\n") == 1
        results = desk.go_on(run_id)
        wanted = (f"refunded {number}", False) if first == 0 else ("not run: denied: no", True)
        assert results[-1] == wanted
