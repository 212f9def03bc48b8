"""An MCP server in this process that answers with whatever plain data it is given."""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.message import SessionMessage

__all__ = ["RawServer"]

Answer = Callable[[str, dict[str, Any]], Any]
"""Of a method and its parameters: the result, or an exception whose text is the error's."""

_WORD = {"type": "object", "properties": {"word": {"type": "string"}}}
_NONE = {"tools": {"listChanged": True}}


class RawServer:
    """A transport, for ``mcp(…)``, whose server's results nobody has checked.

    ``page`` gives the answer to ``tools/list``, of its cursor; ``result`` that to ``tools/call``,
    of the tool's name; both may be coroutine functions.  It speaks one generation of the protocol
    and refuses the other.  ``about`` stands in the answer by which
    it is opened; None leaves a field out.
    """

    def __init__(
        self,
        era: str = "2025",
        *,
        page: Callable[[str | None], Any],
        result: Callable[[str], Any] = lambda name: {"content": []},
        about: dict[str, Any] | None = None,
    ) -> None:
        self.era = era
        self._page = page
        self._result = result
        self._about = about or {}
        self.lives = 0
        self.cancelled: list[Any] = []
        """The ids of the requests that it was told to cancel, which it does not."""
        self._ids = itertools.count()
        self._asked: dict[Any, anyio.Event] = {}
        self._answers: dict[Any, Any] = {}
        self.lists = 0
        self.calls: list[str] = []
        self._stack: AsyncExitStack | None = None
        self._send: Any = None

    async def __aenter__(self) -> Any:
        self.lives += 1
        self._stack = stack = AsyncExitStack()
        group: TaskGroup = await stack.enter_async_context(anyio.create_task_group())
        self._send, heard = anyio.create_memory_object_stream[Any](0)
        said, asked = anyio.create_memory_object_stream[Any](0)
        for each in (self._send, heard, said, asked):
            stack.push_async_callback(each.aclose)
        group.start_soon(self._serve, asked, group)
        stack.callback(group.cancel_scope.cancel)
        return heard, said

    async def __aexit__(self, *_: object) -> None:
        assert self._stack is not None
        await self._stack.aclose()

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        message = types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        await self._send.send(SessionMessage(message))

    async def ask(self, words: str) -> Any:
        """Ask a user, whoever that is; what the client says to it: a result, or an error."""
        id_, answered = await self.put(words), anyio.Event()
        self._asked[id_] = answered
        await answered.wait()
        return self._answers[id_]

    async def put(self, words: str) -> str:
        """Ask, and do not wait for the answer; the id of the question."""
        id_ = f"q{next(self._ids)}"
        params = {"message": words, "requestedSchema": _WORD}
        message = types.JSONRPCRequest(
            jsonrpc="2.0", id=id_, method="elicitation/create", params=params
        )
        await self._send.send(SessionMessage(message))
        return id_

    async def take_back(self, question: str) -> None:
        """Want no answer to a question any longer."""
        await self.notify("notifications/cancelled", {"requestId": question})

    async def fail(self, words: str) -> None:
        """Say that something is wrong with a request, and not with which."""
        error = types.ErrorData(code=types.PARSE_ERROR, message=words)
        message = types.JSONRPCError(jsonrpc="2.0", id=None, error=error)
        await self._send.send(SessionMessage(message))

    async def _serve(self, asked: Any, group: TaskGroup) -> None:
        async for item in asked:
            message = item.message
            if isinstance(message, types.JSONRPCRequest):
                group.start_soon(self._answer, message)
            elif isinstance(message, types.JSONRPCNotification):
                if message.method == "notifications/cancelled":
                    self.cancelled.append((message.params or {})["requestId"])
            else:
                is_error = isinstance(message, types.JSONRPCError)
                self._answers[message.id] = message.error if is_error else message.result
                if message.id in self._asked:
                    self._asked[message.id].set()

    async def _answer(self, request: types.JSONRPCRequest) -> None:
        found = self._answer_to(request.method, request.params or {})
        if isinstance(found, Awaitable):
            found = await found
        message: Any
        if isinstance(found, types.ErrorData):
            message = types.JSONRPCError(jsonrpc="2.0", id=request.id, error=found)
        else:
            message = types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=found)
        await self._send.send(SessionMessage(message))

    def _answer_to(self, method: str, params: dict[str, Any]) -> Any:
        match method:
            case "server/discover" if self.era == "2026":
                return self._said({
                    "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                    "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                })  # fmt: skip
            case "initialize" if self.era == "2025":
                info = {"name": "raw", "version": "1"}
                return self._said({
                    "protocolVersion": params["protocolVersion"], "capabilities": _NONE,
                    "serverInfo": info,
                })  # fmt: skip
            case "tools/list":
                self.lists += 1
                return self._page(params.get("cursor"))
            case "tools/call":
                self.calls.append(params["name"])
                return self._result(params["name"])
            case _:
                return types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")

    def _said(self, about: dict[str, Any]) -> dict[str, Any]:
        return {key: x for key, x in (about | self._about).items() if x is not None}
