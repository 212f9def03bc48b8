"""Addresses at which a thread answers: what is an MCP server in part, or nothing of the kind."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["answering", "at_calls", "plain"]


def plain(status: int, body: bytes, kind: str, **headers: str) -> Any:
    """Everything is answered so."""

    def answer(handler: Any, asked: Any) -> None:
        handler.put(status, body, kind, **headers)

    return answer


def at_calls(answer: Any) -> Any:
    """An MCP server but for its answers to calls."""

    def answered(handler: Any, asked: Any) -> None:
        method, id_ = asked.get("method"), asked.get("id")
        if method == "tools/call":
            answer(handler, asked)
        elif method == "initialize":
            about = {
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {}, "serverInfo": {"name": "x", "version": "1"},
            }  # fmt: skip
            handler.say(id_, result=about)
        elif method == "tools/list":
            handler.say(id_, result={"tools": [{"name": "act", "inputSchema": {"type": "object"}}]})
        elif id_ is None:
            handler.put(202, b"", "text/plain")
        else:
            handler.say(id_, error={"code": -32601, "message": "unknown"})

    return answered


@contextmanager
def answering(answer: Any, get: Any = None) -> Iterator[tuple[str, list[Any]]]:
    """A service of this thread's; its address, and the headers of what it was asked.

    ``get`` answers to GET, which is refused otherwise.
    """
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            seen.append(dict(self.headers))
            answer(self, json.loads(body or b"{}"))

        def do_GET(self) -> None:
            if get is None:
                self.put(405, b"", "text/plain")
            else:
                get(self)

        def do_DELETE(self) -> None:
            self.put(405, b"", "text/plain")

        def put(self, status: int, body: bytes, kind: str, **headers: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def say(self, id_: Any, **said: Any) -> None:
            body = json.dumps({"jsonrpc": "2.0", "id": id_, **said}).encode()
            # Who gets no session opens no stream.
            session = {} if get is None else {"mcp-session-id": "s"}
            self.put(200, body, "application/json", **session)

        def log_message(self, *_: Any) -> None:
            return None

    service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.daemon_threads = True
    thread = threading.Thread(target=service.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{service.server_port}/mcp", seen
    finally:
        service.shutdown()
        thread.join()
        service.server_close()
