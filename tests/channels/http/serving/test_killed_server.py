"""A server that is killed with -9 and started again: its clients go on where they were."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from support.serve_process import ServeProcess

pytestmark = [pytest.mark.spec("W-03", "W-04"), pytest.mark.long]

MODULE = """
import anyio
from hubbub import agent

@agent("counter", on_restart="resume")
async def counter(input, ctx):
    for number in range(int(input)):
        await ctx.step(f"number {number}", count, ctx, number)

async def count(ctx, number):
    ctx.say(str(number))
    await anyio.sleep(0.02)
"""

WANTED = {"types": "agent:text,agent:complete"}


class Frame(NamedTuple):
    id: str
    type: str
    data: Any


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HUBBUB_TOKEN", raising=False)
    (tmp_path / "my_counter.py").write_text(MODULE)
    return tmp_path


def frames(answer: httpx.Response) -> Iterator[Frame]:
    """The frames with data, until the stream ends or is cut."""
    fields: dict[str, str] = {}
    try:
        for line in answer.iter_lines():
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif not line and "data" in fields:
                data = json.loads(fields["data"])
                yield Frame(fields.get("id", ""), fields.get("event", ""), data)
                fields = {}
    except httpx.RemoteProtocolError:
        return  # It was cut.


def begin(served: ServeProcess, numbers: int) -> str:
    """Start a run that counts; returns its id."""
    with served.client() as client:
        answer = client.post("/api/runs", json={"agent": "counter", "input": str(numbers)})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_client_goes_on_after_the_server_was_killed_without_gap_or_duplicate(
    here: Path, backend: str
) -> None:
    seen: list[Frame] = []
    port, run_id, head = 0, "", {}
    for life in range(3):
        with (
            ServeProcess(here, "my_counter", "--backend", backend, port=port) as served,
            served.client() as client,
        ):
            port = served.port
            run_id = run_id or begin(served, 150)
            with client.stream(
                "GET", f"/api/runs/{run_id}/events", params={**WANTED, "after": "start"},
                headers=head,
            ) as answer:  # fmt: skip
                for count, frame in enumerate(frames(answer)):
                    assert frame.type != "hub:gap"
                    seen.append(frame)
                    if life < 2 and count == 30:
                        served.signal(signal.SIGKILL)
            head = {"Last-Event-ID": [frame for frame in seen if frame.id][-1].id}
            if life < 2:
                assert seen[-1].type != "hubbub:end", "it looks as if it had ended in order"
                continue
            records = client.get(
                f"/api/runs/{run_id}/records", params={**WANTED, "limit": 1000}
            ).json()["records"]
    assert seen[-1] == Frame("", "hubbub:end", {"reason": "run ended"})
    assert [frame.id for frame in seen[:-1]] == [each["position"] for each in records]
    texts = [each["text"] for each in records if each["type"] == "agent:text"]
    assert sorted(set(map(int, texts))) == list(range(150))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_signal_ends_an_open_stream_with_its_last_frame_and_the_run_goes_on_later(
    here: Path, backend: str
) -> None:
    with (
        ServeProcess(here, "my_counter", "--backend", backend) as served,
        served.client() as client,
    ):
        run_id = begin(served, 10_000)
        with client.stream("GET", f"/api/runs/{run_id}/events", params=WANTED) as answer:
            found = frames(answer)
            assert next(found).type == "agent:text"
            began = time.monotonic()
            served.signal(signal.SIGTERM)
            *_, last = found
        assert last == Frame("", "hubbub:end", {"reason": "shutdown"})
        assert served.wait() == 0
        assert time.monotonic() - began < 10
        assert served.stderr == ""
    with (
        ServeProcess(here, "my_counter", "--backend", backend) as served,
        served.client() as client,
        client.stream(
            "GET", f"/api/runs/{run_id}/events", params=WANTED,
        ) as answer,
    ):  # fmt: skip
        assert next(frames(answer)).type == "agent:text"
