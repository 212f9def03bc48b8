"""``hubbub worker``, ``serve``, ``workers`` and ``demo`` as processes on one real server."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.postgres import Server
from support.serve_process import ServeProcess
from support.worker_process import WorkerProcess

from hubbub.__main__ import main

pytestmark = pytest.mark.long

MODULE = """
import os
from hubbub import Agent, FunctionModel, tool
from hubbub.runtime.models.scripted import call, reply

@tool(approval=True)
def refund(order: int) -> str:
    return f"refunded {order} by {os.getpid()}"

def answer(request):
    last = request.messages[-1]
    if getattr(last, "calls", ()):
        return reply(f"It is {last.calls[0].output}.")
    if "refund" in last.content:
        return reply("", call("refund", order=7))
    return reply(f"echo: {last.content}")

ann = Agent("ann", "You help.", model=FunctionModel(answer), tools=[refund])
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "my_agents.py").write_text(MODULE)
    return tmp_path


def workers_of(address: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["workers", "--json", "--store", address]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def until(condition: Any, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        signal.sigtimedwait([], 0.05)
    return found


@pytest.mark.spec("X-05")
def test_a_page_serves_what_a_worker_runs_also_approvals_and_the_list_of_agents(
    here: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    address = server.dsn()
    with (
        WorkerProcess(here, "my_agents", "--store", address, "--name", "one") as worker,
        ServeProcess(here, "--store", address, "--name", "web") as page,
        page.client() as client,
    ):
        worker.wait_for("worker one is at work")
        assert "serving what workers run on postgresql://" in page.said
        assert [x["name"] for x in client.get("/api/agents").json()["agents"]] == ["ann"]
        opened = client.post("/api/runs", json={"agent": "ann", "input": "refund it"})
        assert opened.status_code in (200, 202), opened.text
        (prompt,) = until(lambda: client.get("/api/prompts").json()["prompts"])
        done = client.post(f"/api/prompts/{prompt['prompt_id']}/approve")
        assert done.status_code == 202
        run_id = prompt["run_id"]
        said = f"refunded 7 by {worker.process.pid}"
        until(lambda: said in client.get(f"/api/runs/{run_id}/records").text)
        models = client.get("/v1/models").json()["data"]
        assert [each["id"] for each in models] == ["ann"]
        chat = {"model": "ann", "messages": [{"role": "user", "content": "hi"}]}
        answer = client.post("/v1/chat/completions", json=chat).json()
        assert answer["choices"][0]["message"]["content"] == "echo: hi"
        found = {each["name"]: each for each in workers_of(address, capsys)["processes"]}
        assert found["one"]["is_worker"] and not found["web"]["is_worker"]
        assert found["one"]["trees"] >= 1 and found["one"]["left"] > 0
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert "handed over " in worker.said and worker.said.endswith("left\n")
        found = workers_of(address, capsys)
        assert [each["name"] for each in found["processes"]] == ["web"]
        assert found["free"][0]["agent"] == "ann" and not found["free"][0]["is_known"]


@pytest.mark.spec("X-05")
def test_trees_of_a_worker_that_leaves_or_is_killed_go_to_the_other_one(
    here: Path, server: Server
) -> None:
    address = server.dsn()
    with (
        WorkerProcess(here, "my_agents", "--store", address, "--name", "one") as one,
        ServeProcess(here, "--store", address) as page,
        page.client() as client,
    ):
        one.wait_for("is at work")
        for number in range(4):
            client.post("/api/runs", json={"agent": "ann", "input": f"hi {number}"})
        one.wait_for("claimed")
        with WorkerProcess(here, "my_agents", "--store", address, "--name", "two") as two:
            two.wait_for("is at work")
            began = time.monotonic()
            one.process.send_signal(signal.SIGKILL)
            one.process.wait()
            two.wait_for("claimed")
            assert time.monotonic() - began < 15  # A lease of 6 s, and a busy machine.


@pytest.mark.spec("X-05")
def test_a_name_that_is_taken_and_a_capacity_of_no_use_are_one_line(
    here: Path, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(here)
    address = server.dsn()
    with WorkerProcess(here, "my_agents", "--store", address, "--name", "one") as one:
        one.wait_for("is at work")
        again = subprocess.run(
            [sys.executable, "-m", "hubbub", "worker", "my_agents", "--store", address,
             "--name", "one"],
            capture_output=True, text=True, timeout=60, check=False, cwd=here,
        )  # fmt: skip
        assert again.returncode == 2 and again.stderr.count("\n") == 1
        assert "give another name" in again.stderr and again.stdout == ""


def test_a_worker_leaves_when_its_input_ends(here: Path, server: Server) -> None:
    address = server.dsn()
    process = subprocess.Popen(
        [sys.executable, "-m", "hubbub", "worker", "my_agents", "--store", address,
         "--until-input-ends", "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=here, env=os.environ.copy(),
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        while "worker.joined" not in process.stdout.readline():
            assert process.poll() is None
        process.stdin.close()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_page_whose_store_has_failed_leaves_with_1_and_says_why(
    here: Path, server: Server, backend: str
) -> None:
    schema = server.new_schema()
    with ServeProcess(here, "--store", server.dsn(schema), "--backend", backend) as page:
        server.query(f"DROP SCHEMA {schema} CASCADE")
        assert page.wait() == 1
        assert "does not exist" in page.stderr and "restore it" in page.stderr.splitlines()[-1]
        assert "unexpected" not in page.stderr and "Traceback" not in page.stderr


def test_the_demo_kills_a_worker_cuts_every_connection_and_loses_nothing(
    here: Path, server: Server
) -> None:
    texts = here / "texts"
    texts.mkdir()
    for number in range(24):
        (texts / f"{number:02}.txt").write_text("word " * (number + 1))
    address = server.dsn("hubbub_demo").partition("&schema=")[0]
    done = subprocess.run(
        [sys.executable, "-m", "hubbub", "demo", str(texts), "--workers", "2", "--store", address,
         "--json"],
        capture_output=True, text=True, timeout=200, check=False, cwd=here,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["documents"], verdict["words"], verdict["problems"]) == (24, 300, [])
    assert verdict["messages"] >= 8 and verdict["cut"] >= 4 and verdict["taken_over"] < 15
    left = server.query("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'hubbub%'")
    assert left == []
