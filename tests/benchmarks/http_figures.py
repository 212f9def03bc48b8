"""The figures of the app: a message from its request to its 202, beside a bare Starlette route.

The floor does by hand what a durable 202 takes: it reads the JSON, has a thread of its own commit
one row, flushed to the disk (``synchronous=FULL``), together with the rows of the requests that
came meanwhile, and answers.  Both are called as ASGI apps in this process, without a server.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from figures import Aim, Figure, Loop, on_loop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from hubbub import Runtime, agent
from hubbub.channels.http import HttpApp, HttpLimits
from hubbub.hub.ports import ThreadWorker
from hubbub.runtime.stores.open import sqlite_store

__all__ = ["post", "post_together"]

BODY = b'{"content": "Where is my parcel? It was to be here on Monday."}'
UNLIMITED = HttpLimits(rate=1_000_000_000, burst=1_000_000_000)


@agent("listener")
async def listener(input: object, ctx: Any) -> None:
    """Lets its messages wait."""
    await anyio.sleep_forever()


async def _request(app: Any, path: str) -> int:
    """One request and the status of its answer."""
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "root_path": "", "query_string": b"", "scheme": "http", "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8700), "http_version": "1.1", "state": {},
        "headers": [
            (b"host", b"127.0.0.1:8700"), (b"content-type", b"application/json"),
            (b"content-length", str(len(BODY)).encode()), (b"accept", b"*/*"),
            (b"user-agent", b"bench"),
        ],
    }  # fmt: skip
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    return status


async def _requests(app: Any, path: str, count: int, at_once: int) -> float:
    """Requests a second."""

    async def some(number: int) -> None:
        for _ in range(number):
            assert await _request(app, path) == 202

    await some(20)
    start = perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(some, count // at_once)
    return count / (perf_counter() - start)


@contextmanager
def _folder() -> Iterator[Path]:
    # Beside this file, not in /tmp, which may be memory.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".store-") as folder:
        yield Path(folder)


async def _ours(count: int, at_once: int) -> float:
    with _folder() as folder:
        store = sqlite_store(folder / "store", mirror=False)
        rt = Runtime([listener], store=store, max_inbox=10_000_000, grace=0)
        app = HttpApp(rt.hub, limits=UNLIMITED)
        async with rt, app:
            run = await rt.start("listener", "x")
            return await _requests(app, f"/api/runs/{run.run_id}/messages", count, at_once)


class Rows:
    """A table, and a thread that commits to it what has come together."""

    def __init__(self, path: Path) -> None:
        self._worker = ThreadWorker("floor")
        self._path = path
        self._waiting: list[tuple[str, anyio.Event]] = []
        self._is_writing = False

    async def open(self) -> None:
        await self._worker.run(self._open)

    def _open(self) -> None:
        self._db = sqlite3.connect(self._path, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=0"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("CREATE TABLE row (position INTEGER PRIMARY KEY, body TEXT)")

    async def commit(self, body: str) -> None:
        done = anyio.Event()
        self._waiting.append((body, done))
        if not self._is_writing:
            self._is_writing = True
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._worker.run(lambda batch=batch: self._write(batch))  # type: ignore[misc]
                for _, each in batch:
                    each.set()
            self._is_writing = False
        await done.wait()

    def _write(self, batch: list[tuple[str, anyio.Event]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO row (body) VALUES (?)", [(x,) for x, _ in batch])
        self._db.execute("COMMIT")

    async def aclose(self) -> None:
        await self._worker.run(lambda: self._db.close())
        self._worker.close()


async def _floor(count: int, at_once: int) -> float:
    with _folder() as folder:
        rows = Rows(folder / "floor.db")
        await rows.open()

        async def send(request: Request) -> JSONResponse:
            body = await request.json()
            await rows.commit(body["content"])
            run_id = request.path_params["run_id"]
            return JSONResponse({"status": "accepted", "run_id": run_id}, status_code=202)

        app = Starlette(routes=[Route("/api/runs/{run_id}/messages", send, methods=["POST"])])
        try:
            return await _requests(app, "/api/runs/x/messages", count, at_once)
        finally:
            await rows.aclose()


def _versus(loop: Loop, rounds: int, count: int, at_once: int) -> tuple[float, float]:
    pairs = []
    for _ in range(rounds):
        ours = on_loop(loop, _ours, count, at_once)
        pairs.append((ours, on_loop("asyncio", _floor, count, at_once)))
    pairs.sort(key=lambda pair: pair[0] / pair[1])
    return pairs[len(pairs) // 2]


def post(loop: Loop, rounds: int, scale: float) -> Figure:
    """Messages over HTTP, one after another."""
    ours, floor = _versus(loop, rounds, max(20, int(1000 * scale)), 1)
    return Figure(
        what="POST message → 202, one at a time", loop=loop, unit="requests/s", value=ours,
        floor=floor, aim=Aim(">=", 0.5, of_floor=True), note="durable; without a server",
    )  # fmt: skip


def post_together(loop: Loop, rounds: int, scale: float) -> Figure:
    """Messages over HTTP, fifty at once."""
    ours, floor = _versus(loop, rounds, max(100, int(10_000 * scale)), 50)
    return Figure(
        what="POST message → 202, 50 at once", loop=loop, unit="requests/s", value=ours,
        floor=floor, aim=Aim(">=", 0.5, of_floor=True), note="durable; without a server",
    )  # fmt: skip
