"""A served app ends by signals: in order by the first, at once by the second.  Real processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.served import SERVERS

SCRIPT = """
import sys
import anyio
from hubbub.channels.http.serving import serve

loop, server, path = sys.argv[1:]
ending = None

async def app(scope, receive, send):
    assert scope["type"] == "http"
    scope["extensions"]["hubbub.ending"](lambda: ending.set())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    if scope["path"] == "/deaf":
        await anyio.sleep_forever()
    await ending.wait()
    await send({"type": "http.response.body", "body": b"last"})

class Print:
    def started(self, address):
        print(address.port, flush=True)

async def main():
    global ending
    ending = anyio.Event()
    await serve(app, port=0, server=server, grace=60, task_status=Print())
    print("left in order", flush=True)

anyio.run(main, backend=loop)
"""


class Served:
    """A process that serves, and one client of it."""

    def __init__(self, folder: Path, loop: str, server: str, path: str) -> None:
        script = folder / "serves.py"
        script.write_text(SCRIPT)
        self.process = subprocess.Popen(
            [sys.executable, str(script), loop, server, path],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.client = socket.create_connection(("127.0.0.1", int(self.process.stdout.readline())))
        self.client.settimeout(20)
        self.client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.read(b"first")

    def read(self, wanted: bytes) -> None:
        found = b""
        while wanted not in found:
            data = self.client.recv(4096)
            assert data, f"no {wanted!r} in {found!r}"
            found += data

    def wait(self) -> tuple[int, str]:
        code = self.process.wait(20)
        assert self.process.stdout is not None
        return code, self.process.stdout.read()

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.client.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("loop", "server"), SERVERS)
def test_a_signal_ends_streams_with_a_last_frame_and_then_the_server(
    tmp_path: Path, loop: str, server: str, number: signal.Signals
) -> None:
    with Served(tmp_path, loop, server, "/stream") as served:
        served.process.send_signal(number)
        served.read(b"last")
        assert served.wait() == (0, "left in order\n")


@pytest.mark.parametrize(("loop", "server"), SERVERS)
def test_a_second_signal_cuts_off_what_does_not_end(tmp_path: Path, loop: str, server: str) -> None:
    with Served(tmp_path, loop, server, "/deaf") as served:
        served.process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # Two that come together are one to the system.
        assert served.process.poll() is None
        served.process.send_signal(signal.SIGINT)
        code, said = served.wait()
        assert code == 0
        assert said.endswith("left in order\n")
