"""The demo of several workers, as far as it needs no server: what it says, and what it would see.

With a server: ``tests/runtime/stores/postgres/test_processes.py``.
"""

from typing import Any

import anyio
import msgspec
import pytest

from hubbub import Runtime
from hubbub.__main__ import main
from hubbub.hub import events as e
from hubbub.hub.values import encode_value
from hubbub.runtime.demo.documents import list_documents
from hubbub.runtime.demo.workers.agents import COUNTER, SAID, STORY, Counted, agents, task_of_tree
from hubbub.runtime.demo.workers.demo_store import without_password
from hubbub.runtime.demo.workers.tally import SentMessage, Tally

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--workers", "2"], "several workers share a PostgreSQL server; start one"),
        (["--workers", "2", "--store", "sqlite:x"], "name it: --store postgresql://"),
        (["--workers", "2", "--store", "postgresql://u@127.0.0.1:1/x"], "docker compose up -d"),
        (["--workers", "1", "--store", "postgresql://u@h/x"], "--workers 1: expected a number of"),
        (["--store", "postgresql://u@h/x"], "give their number: --workers 2"),
        (["--workers", "2", "--resume"], "leave --resume and --record out"),
        (["--workers", "2", "--store", "postgresql://u:p@w@h/x"], "with %40 for an @"),
    ],
)
def test_without_a_server_it_is_one_line_how_to_get_one(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and problem in shown.err and shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("store", "shown", "password"),
    [
        ("postgresql://u:p%40w@h:1/d?schema=s", "postgresql://u@h:1/d?schema=s", "p@w"),
        ("postgresql://u@/d?host=/tmp/x&password=q", "postgresql://u@/d?host=/tmp/x", "q"),
        ("postgresql://h/d", "postgresql://h/d", ""),
    ],
)
def test_no_password_is_given_on_a_command_line(store: str, shown: str, password: str) -> None:
    assert without_password(store) == (shown, password)


async def test_its_agents_count_and_repeat_what_they_are_told_meanwhile(tmp_path, ports) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("one two three " * (number + 1))
    uris = [each.uri for each in list_documents(tmp_path).documents]
    tally = Tally(3)
    async with Runtime(agents, store="memory", ports=ports) as rt:
        rt.hub.subscribe(["agent:tool:complete", "agent:complete"], tally.take)
        run = await rt.start(COUNTER, task_of_tree(uris), once=True)
        assert (await run.send("Hello.")).accepted
        report = (await run.finished()).output
        assert report == f"3 documents, 18 words.\n{SAID}Hello."
        story = await rt.start(STORY, "It begins.", run_id=STORY)
        assert (await story.result()).output == "Written down, as number 1."
        with anyio.fail_after(60):
            await tally.wait_over([run.run_id])
        sent = [SentMessage(run_id=run.run_id, text="Hello.")]
        assert tally.problems([run.run_id], 18, sent) == []


def _counted(uri: str, words: int = 2) -> Any:
    output = msgspec.json.encode(Counted(uri=uri, words=words, process=1)).decode()
    return e.AgentToolComplete(run_id="r", agent=COUNTER, output=output)


def _ended(*said: str, success: bool = True) -> Any:
    text = "\n".join(["2 documents, 4 words.", *(f"{SAID}{each}" for each in said)])
    return e.AgentComplete(
        run_id="r", agent=COUNTER, success=success, output_json=encode_value("output", text)
    )


SENT = [SentMessage(run_id="r", text="one"), SentMessage(run_id="r", text="two")]
LETTER = e.HubDeadLetter(run_id="r")


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([_counted("a"), _counted("b"), _ended("one", "two")], ""),
        ([_counted("a"), _counted("b"), _ended("one"), LETTER], ""),
        ([_counted("a"), _counted("b"), _counted("b"), _ended("one", "two")], "b was counted 2"),
        ([_counted("a"), _ended("one", "two")], "1 document never counted"),
        ([_counted("a"), _counted("b", 3), _ended("one", "two")], "5 words were counted"),
        ([_counted("a"), _counted("b"), _ended("one")], "'two' was answered 0 times"),
        ([_counted("a"), _counted("b"), _ended("one", "two", "two")], "'two' was answered 2"),
        ([_counted("a"), _counted("b"), *[_ended("one", "two")] * 2], "ended 2 times"),
        ([_counted("a"), _counted("b"), _ended("one", "two", success=False)], "or failed"),
        ([_counted("a"), _counted("b")], "ended 0 times"),
    ],
)
async def test_what_is_lost_or_done_twice_is_seen(events: list[Any], problem: str) -> None:
    tally = Tally(2)
    for each in events:
        tally.take(each)
    found = " / ".join(tally.problems(["r"], 4, SENT))
    assert problem in found if problem else found == ""
