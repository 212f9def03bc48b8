"""What only a real server shows: a WebSocket of the hub, and a process that runs out of files."""

import base64
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.served import SERVERS, served_hub

from hubbub import Agent, ScriptedModel
from hubbub.channels.http.serving.serving import ServerName

OUT_OF_FILES = """
import resource, sys
import anyio
from hubbub.channels.http.serving import serve
from hubbub.channels.http.serving import serving

loop, server = sys.argv[1:]
serving._connections = lambda: 1000

async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})

class Print:
    def started(self, address):
        files = 12 + max(map(int, __import__("os").listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        print(address.port, flush=True)

async def main():
    await serve(app, port=0, server=server, task_status=Print())

anyio.run(main, backend=loop)
"""


@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs to count open files")
@pytest.mark.parametrize(("loop", "server"), SERVERS)
def test_a_server_that_runs_out_of_files_goes_on_when_there_are_some_again(
    tmp_path: Path, loop: str, server: str
) -> None:
    script = tmp_path / "serves.py"
    script.write_text(OUT_OF_FILES)
    process = subprocess.Popen(
        [sys.executable, str(script), loop, server], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        many = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        time.sleep(0.5)
        assert process.poll() is None
        for each in many:
            each.close()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(20)
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"hello" in b"".join(iter(lambda: client.recv(4096), b""))
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _is_answered(port: int) -> bool:
    """Whether a client is served now; while there are too many it is cut off."""
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(20)
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b"hello" in b"".join(iter(lambda: client.recv(4096), b""))
    except ConnectionError:
        time.sleep(0.1)
        return False


BURSTS = """
import resource, sys
import anyio
from hubbub.channels.http.serving import serve

loop, server = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})

class Print:
    def started(self, address):
        print(address.port, flush=True)

async def main():
    await serve(app, port=0, server=server, task_status=Print())

anyio.run(main, backend=loop)
"""


@pytest.mark.long
@pytest.mark.spec("W-06")
@pytest.mark.parametrize(("loop", "server"), SERVERS)
def test_clients_that_come_in_a_burst_take_no_more_files_than_there_are(
    tmp_path: Path, loop: str, server: str
) -> None:
    """All that waited were accepted in a row, and then cut off: none was left meanwhile."""
    script, said = tmp_path / "serves.py", tmp_path / "said"
    script.write_text(BURSTS)
    with said.open("w") as told:
        process = subprocess.Popen(
            [sys.executable, str(script), loop, server], stdout=subprocess.PIPE, stderr=told,
            text=True, start_new_session=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        for _ in range(2):
            many = []
            for _ in range(900):
                client = socket.socket()
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
                many.append(client)
            time.sleep(0.5)
            for each in many:
                each.close()
        assert any(_is_answered(port) for _ in range(50)), "it serves, when it has places again"
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert said.read_text() == ""


@pytest.mark.spec("W-03")
@pytest.mark.parametrize(("loop", "server"), SERVERS)
def test_a_socket_carries_commands_and_events_and_a_wrong_subprotocol_is_no_matter(
    loop: str, server: ServerName
) -> None:
    bot = Agent("bot", "You help.", model=ScriptedModel(["Hello."] * 10))
    with served_hub([bot], loop, server) as hub:
        for offered in ("", "nobody.knows, hubbub.v1", "nobody.knows"):
            with _Socket(hub.url, offered) as client:
                client.say({"id": "a", "command": "subscribe", "types": ["agent:text"]})
                client.say({"id": "b", "command": "open", "agent": "bot", "input": "hi"})
                heard = client.hear(lambda got: got["kind"] == "events")
                (item, *_) = heard["events"]
                assert item["event"]["text"] == "Hello."


@pytest.mark.parametrize(("loop", "server"), SERVERS)
def test_no_compression_is_agreed_on_by_which_a_small_frame_becomes_large(
    loop: str, server: ServerName
) -> None:
    with served_hub([], loop, server) as hub:
        offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
        with _Socket(hub.url, "", offer) as client:
            assert b"extensions" not in client.head.lower()


@pytest.mark.parametrize(("loop", "server"), SERVERS)
def test_answers_to_pings_that_nobody_takes_do_not_pile_up(loop: str, server: ServerName) -> None:
    pings = (bytes((0x89, 0x80 | 125)) + b"\x00" * 4 + b"x" * 125) * 2000
    with served_hub([], loop, server) as hub, _Socket(hub.url, "") as client:
        taken = client.send_until_stuck(pings, 64_000_000)
        assert taken < 64_000_000, "all was read, and answered"
    with served_hub([], loop, server) as hub, _Socket(hub.url, "") as client:
        for _ in range(3):
            client.send_and_take(pings)
        client.say({"id": "a", "command": "subscribe", "types": ["agent:text"]})
        assert client.hear(lambda got: got["kind"] == "receipt")["id"] == "a"


class _Socket:
    """A WebSocket, by hand: what a client library does may not be what is tested."""

    def __init__(self, url: str, offered: str, more: str = "") -> None:
        host, port = url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.settimeout(20)
        key = base64.b64encode(os.urandom(16)).decode()
        more += f"Sec-WebSocket-Protocol: {offered}\r\n" if offered else ""
        self._socket.sendall(
            f"GET /api/socket HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            f"{more}\r\n".encode()
        )
        self._rest = b""
        while b"\r\n\r\n" not in self._rest:
            self._receive()
        self.head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        assert b" 101 " in self.head, self.head

    def say(self, command: dict[str, object]) -> None:
        data, mask = json.dumps(command).encode(), b"\x00" * 4
        assert len(data) < 126
        self._socket.sendall(bytes((0x81, 0x80 | len(data))) + mask + data)

    def hear(self, wanted: object) -> dict[str, object]:
        """The first message of the server for which ``wanted`` holds."""
        while True:
            while len(self._rest) < 2:
                self._receive()
            kind, size, begin = self._rest[0] & 15, self._rest[1] & 127, 2
            if size == 126:
                while len(self._rest) < 4:
                    self._receive()
                size, begin = struct.unpack("!H", self._rest[2:4])[0], 4
            while len(self._rest) < begin + size:
                self._receive()
            data, self._rest = self._rest[begin : begin + size], self._rest[begin + size :]
            assert kind in (1, 9, 10), (kind, data)
            if kind == 1 and wanted(got := json.loads(data)):  # type: ignore[operator]
                return got

    def send_until_stuck(self, data: bytes, most: int) -> int:
        """Send again and again without reading; the bytes taken until for a second none are."""
        self._socket.settimeout(1)
        taken = 0
        while taken < most:
            try:
                taken += self._socket.send(data[taken % len(data) :])
            except TimeoutError:
                break
        return taken

    def send_and_take(self, data: bytes) -> None:
        """Send, and read what comes meanwhile."""
        sender = threading.Thread(target=self._socket.sendall, args=(data,))
        sender.start()
        while sender.is_alive():
            self._receive()
        sender.join()

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        assert data, "the server has closed the connection"
        self._rest += data

    def __enter__(self) -> "_Socket":
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()
