"""``ServerCall``: one call of a server's tool, between the run that makes it and the connection.

the run's task             the connection's task
──────────────────────     ─────────────────────────────────────
``concluded`` waits    ◄── ``ask``: what the server wants to know
asks its user          ──► the answer
returns, or raises     ◄── ``finish``: the result, or what went wrong
is cancelled           ──► ``scope``: the server is told
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import mcp_types as types

from hubbub.agents.definitions.tools import ToolResult
from hubbub.runtime.mcp.elicitation import CANCELLED

__all__ = ["Answering", "ServerCall"]

Answering = Callable[[types.ElicitRequestParams], Awaitable[types.ElicitResult]]


class _Question:
    """What the server asks during the call."""

    __slots__ = ("answer", "answered", "params")

    def __init__(self, params: types.ElicitRequestParams) -> None:
        self.params = params
        self.answered = anyio.Event()
        self.answer = CANCELLED


class ServerCall:
    """A call under way."""

    __slots__ = (
        "_asking", "_failure", "_questions", "_result", "_woken", "arguments", "is_sent", "run_id",
        "scope", "tool",
    )  # fmt: skip

    def __init__(self, tool: str, arguments: Mapping[str, Any], run_id: str) -> None:
        self.tool = tool
        self.arguments = arguments
        self.run_id = run_id
        self.scope = anyio.CancelScope()
        """What the connection does for it."""
        self.is_sent = False
        """Whether the server may know of it."""
        self._result: ToolResult | None = None
        self._failure: Exception | None = None
        self._questions: deque[_Question] = deque()
        self._woken = anyio.Event()
        self._asking: anyio.CancelScope | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has its result."""
        return self._result is not None or self._failure is not None

    def finish(self, outcome: ToolResult | Exception) -> None:
        """It has come to this; the first outcome counts."""
        if self.is_over:
            return
        if isinstance(outcome, Exception):
            self._failure = outcome
        else:
            self._result = outcome
        if self._asking is not None:
            self._asking.cancel()
        self._woken.set()

    async def ask(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Have the run ask its user."""
        question = _Question(params)
        self._questions.append(question)
        self._woken.set()
        await question.answered.wait()
        return question.answer

    async def concluded(self, answering: Answering) -> ToolResult:
        """Wait for the result, and ask meanwhile what is to be asked, one after another."""
        while not self.is_over:
            await self._woken.wait()
            self._woken = anyio.Event()
            while self._questions and not self.is_over:
                question = self._questions.popleft()
                with anyio.CancelScope() as self._asking:
                    question.answer = await answering(question.params)
                self._asking = None
                question.answered.set()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result
