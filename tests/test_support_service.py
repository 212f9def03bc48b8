"""The service of docs/support-service.md, in real processes that are killed with ``kill -9``."""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

pytestmark = pytest.mark.long

PAGE: Final = Path(__file__).parent.parent / "docs" / "support-service.md"
(PROGRAM,) = re.findall(r"```python\n(# service\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
PATIENCE: Final = 20.0


class Service:
    """The page's service in a process, as its users meet it."""

    def __init__(self, folder: Path, url: str, process: "subprocess.Popen[str]", port: int) -> None:
        self.http = httpx.Client(base_url=url, timeout=PATIENCE)
        self._folder = folder
        self._process = process
        self._port = port

    def say(self, text: str, customer: str = "ada") -> str:
        """Say something over HTTP; returns the run's id."""
        said = self.http.post(f"/customers/{customer}/messages", json={"text": text})
        assert said.status_code == 202, said.text
        run_id: str = said.json()["run_id"]
        return run_id

    def over_tcp(self, *lines: str) -> list[str]:
        """Say lines over TCP, each after the answer to the one before."""
        address = ("127.0.0.1", self._port)
        with (
            socket.create_connection(address, timeout=PATIENCE) as wire,
            wire.makefile("rw") as file,
        ):
            answers = []
            for line in lines:
                file.write(f"{line}\n")
                file.flush()
                answers.append(file.readline().rstrip("\n"))
            return answers

    def connected(self) -> socket.socket:
        """A connection over TCP."""
        return socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE)

    def approvals(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/approvals").json()
        return found

    def decide(self, prompt_id: str, **decision: Any) -> int:
        return self.http.post(f"/approvals/{prompt_id}", json=decision).status_code

    def texts(self, run_id: str, count: int, of: str = "support") -> list[str]:
        """The first texts of an agent in a conversation, from its beginning on."""
        found: list[str] = []
        with self.http.stream("GET", f"/runs/{run_id}/events") as response:
            for line in response.iter_lines():
                if line.startswith("data: ") and '"type":"agent:text"' in line:
                    event = httpx.Response(200, text=line.removeprefix("data: ")).json()
                    if event["agent"] == of:
                        found.append(event["text"])
                if len(found) == count:
                    return found
        return found

    def ledger(self) -> list[str]:
        path = self._folder / "ledger.txt"
        return path.read_text().splitlines() if path.exists() else []

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@contextmanager
def serving(folder: Path) -> Iterator[Service]:
    (folder / "service.py").write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "service:app", "--port", "0",
         "--timeout-graceful-shutdown", "1"],
        cwd=folder, env={**os.environ, "SUPPORT_TCP_PORT": str(port)}, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"http://[\d.]+:\d+", line):
                service = Service(folder, found[0], process, port)
                with service.http:
                    yield service
                break
        else:
            pytest.fail(f"it never served: {process.wait()}")
    finally:
        process.kill()
        process.communicate()


def until(holds: Callable[[], Any]) -> Any:
    """What it returns once that is true; real processes are waited for."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)
    return found


@pytest.mark.spec("U-03")
@pytest.mark.spec("P-10")
def test_a_refund_that_waits_survives_a_kill_and_is_paid_once(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        run_id = service.say("refund A7 12.5")
        (asked,) = until(service.approvals)
        assert (asked["tool"], asked["customer"]) == ("refund", "web_ada")
        assert asked["arguments"] == {"order": "A7", "amount": 12.5}
        service.kill()
    with serving(tmp_path) as service:
        assert until(service.approvals) == [asked]
        assert service.ledger() == []
        assert service.decide(asked["prompt_id"], approve=True) == 202
        until(service.ledger)
        service.kill()
    with serving(tmp_path) as service:
        (answer,) = service.texts(run_id, 1)
        assert "paid back" in answer or "may have" in answer
        assert service.ledger() == ["A7 12.5"]
        assert service.approvals() == []
        assert service.decide(asked["prompt_id"], approve=True) == 409


@pytest.mark.spec("U-03")
def test_a_refund_is_denied_with_a_reason_or_by_the_next_message(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        run_id = service.say("refund A7 12.5")
        (asked,) = until(service.approvals)
        assert service.decide(asked["prompt_id"], approve=False, reason="not yours") == 202
        (answer,) = service.texts(run_id, 1)
        assert "not yours" in answer
        service.say("refund B8 1")
        until(service.approvals)
        service.say("leave it")
        assert "leave it" in service.texts(run_id, 2)[1]
        assert service.ledger() == []


def test_research_goes_on_in_the_background_and_reports(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        run_id = service.say("research hubs")
        first, second = service.texts(run_id, 2)
        assert "Found: all about hubs." not in first
        assert "Found: all about hubs." in second


def test_a_form_takes_the_conversation_over_across_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        run_id = service.say("I have moved")
        assert service.texts(run_id, 1, of="address-form") == ["Which street?"]
        service.kill()
    with serving(tmp_path) as service:
        service.say("Main Street 1")
        assert service.texts(run_id, 2, of="address-form")[1] == "Which city?"
        service.say("Springfield")
        assert service.texts(run_id, 1) == ["The new address is Main Street 1, Springfield."]


def test_its_own_channel_answers_on_the_line_and_remembers_the_customer(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert service.over_tcp("bob: where is A7", "bob: thanks") == [
            "A7 was delivered yesterday.",
            "About 'thanks': we are on it.",
        ]
    with serving(tmp_path) as service:
        assert service.over_tcp("bob: where is B8") == ["B8 was delivered yesterday."]


def test_a_port_that_is_taken_ends_its_start(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            [sys.executable, "-m", "uvicorn", "service:app", "--port", "0"],
            cwd=tmp_path, env={**os.environ, "SUPPORT_TCP_PORT": str(taken.getsockname()[1])},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert "Address already in use" in done.stderr and "startup failed" in done.stderr


def test_what_one_connection_does_ends_it_for_nobody_else(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        with service.connected() as wire:
            wire.sendall(b"ada: one\nada: two\nbob: three\n")
            answers = ""  # One for both of ada's, or one for each.
            while not ("three" in answers and ("one" in answers or "two" in answers)):
                answers += read_line(wire)
        with service.connected() as wire:
            wire.sendall(b"\xff\xfe\x00: \x80\xc3\n")
            assert read_line(wire).startswith(("not taken", "About"))
            wire.sendall(b"a b: " + b"x" * 20_000)
            assert wire.recv(100) == b""
        with service.connected() as wire:  # It is reset while its answer is under way.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.sendall(b"cleo: where is A7\n" * 50)
        assert service.over_tcp("bob: thanks") == ["About 'thanks': we are on it."]


def test_the_form_speaks_to_a_customer_on_the_line_and_research_does_not(tmp_path: Path) -> None:
    with serving(tmp_path) as service, service.connected() as wire:
        wire.sendall(b"ada: research hubs\n")
        said = read_line(wire), read_line(wire)
        assert "Found" not in said[0] and said[1].startswith("About")
        wire.sendall(b"ada: I have moved\n")
        assert read_line(wire) == "Which street?\n"


def read_line(wire: socket.socket) -> str:
    line = b""
    while not line.endswith(b"\n"):
        piece = wire.recv(1)
        assert piece, f"it was closed after {line!r}"
        line += piece
    return line.decode()


def test_the_digest_is_planned(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        service.kill()
    listed = subprocess.run(
        [sys.executable, "-m", "hubbub", "schedules"], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert listed.returncode == 0 and "digest" in listed.stdout, listed.stderr
