"""``ServerCall``: one call of a server's tool, between the run that makes it and the connection.

the run's task             the connection's task
──────────────────────     ─────────────────────────────────────
``concluded`` waits    ◄── ``ask``: what the server wants to know, until it takes that back
asks its user          ──► the answer
returns, or raises     ◄── ``finish``: the result, or what went wrong
is cancelled           ──► ``scope``: the server is told

``ServerCalls``: those that a server may be at work on, and for which of them it asks.

sent ──► waited for ──► answered: the server is done with it
            └► given up on ──► the server may still be at work on it, and ask for it,
                               until its answer comes or the connection ends

Once a server has asked, and it could not be told for which of several calls, one is made at a time
(``turn``), so that it may ask again.  Who is asked may take long, and keeps others out for only so
long.  What is made then goes on beside that call: what the server asks meanwhile is refused.

Over HTTP a question belongs to the request in whose answer it comes.  Elsewhere an older server
does not say for which call it asks.  A call is given up on when it takes too long, when its run is
interrupted, or when its answer cannot be had; the server is told so, and may go on all the same.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import anyio
import mcp_types as types

from hubbub.agents.definitions.tools import ToolError, ToolResult
from hubbub.runtime.mcp.elicitation import CANCELLED

__all__ = [
    "ANY",
    "ASKER",
    "NONE",
    "QUESTION_SECONDS",
    "Answering",
    "ServerCall",
    "ServerCalls",
    "still",
]


@runtime_checkable
class _WithTime(Protocol):
    """The state of a run whose call has a time limit."""

    def standing_still(self) -> AbstractContextManager[None]: ...


def still(state: object) -> AbstractContextManager[None]:
    """Inside, the time of the call does not pass for which a tool has this state."""
    return state.standing_still() if isinstance(state, _WithTime) else nullcontext()


Answering = Callable[[types.ElicitRequestParams], Awaitable[types.ElicitResult]]

QUESTION_SECONDS: Final = 30.0
"""How long a question that nobody has answered keeps the calls of others out."""

QUIET_SECONDS: Final = 600.0
"""A server that has asked nothing for so long gets several calls at a time again."""

_SOON: Final = 0.01
"""Seconds that a wait takes at least, so that the clock moves."""

MAX_AT_WORK: Final = 10_000
"""Calls without an answer that are remembered, of one connection; for more, nobody is asked."""

OVER: Final = "nobody is asked: the call that this question is for is over"
NONE: Final = "nobody is asked: the server has no call that this question could be for"
SEVERAL: Final = (
    "it cannot be told whose call this question is for; "
    "from now on the server gets one call at a time, so that it may ask again"
)
OTHERS: Final = (
    "it cannot be told whose call this question is for, as the server is also at work on a call of "
    "somebody else; it may ask again once that call is over"
)
GIVEN_UP: Final = (
    "it cannot be told whose call this question is for, as the server may still be at work on one "
    "that was cancelled; it is connected to again once it has no other call, and may then ask again"
)


class _Question:
    """What the server asks during the call."""

    __slots__ = ("answer", "answered", "asking", "params", "since")

    def __init__(self, params: types.ElicitRequestParams, since: float) -> None:
        self.params = params
        self.since = since
        self.asking: anyio.CancelScope | None = None
        """In which the user is asked; None until it is this one's turn."""
        self.answered = anyio.Event()
        self.answer = CANCELLED

    def close(self) -> None:
        """Nobody wants the answer any longer."""
        if self.asking is not None:
            self.asking.cancel()
        self.answered.set()


class ServerCall:
    """A call under way."""

    __slots__ = (
        "_failure", "_questions", "_result", "_woken", "arguments", "has_turn", "is_sent",
        "request", "run_id", "scope", "tool",
    )  # fmt: skip

    def __init__(self, tool: str, arguments: Mapping[str, Any], run_id: str) -> None:
        self.tool = tool
        self.arguments = arguments
        self.run_id = run_id
        self.scope = anyio.CancelScope()
        """What the connection does for it."""
        self.has_turn = False
        """Whether it may be made."""
        self.is_sent = False
        """Whether the server may know of it."""
        self.request = ""
        """The id of the request by which the server was asked for it last."""
        self._result: ToolResult | None = None
        self._failure: Exception | None = None
        self._questions: deque[_Question] = deque()
        self._woken = anyio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it has its result."""
        return self._result is not None or self._failure is not None

    @property
    def asks_since(self) -> float | None:
        """When the question came that its user is asked now; None where there is none."""
        return self._questions[0].since if self._questions else None

    def finish(self, outcome: ToolResult | Exception) -> None:
        """It has come to this; the first outcome counts."""
        if self.is_over:
            return
        if isinstance(outcome, Exception):
            self._failure = outcome
        else:
            self._result = outcome
        for each in self._questions:  # The server need not wait for an answer any longer.
            each.close()
        self._woken.set()

    def leave(self) -> None:
        """Nobody waits for it any longer."""
        self.finish(ToolError("nobody waits for the call any longer"))
        self.scope.cancel()

    async def ask(self, params: types.ElicitRequestParams, now: float) -> types.ElicitResult:
        """Have the run ask its user; where this is cancelled, the server has taken it back."""
        question = _Question(params, now)
        if self.is_over:
            return question.answer
        self._questions.append(question)
        self._woken.set()
        try:
            await question.answered.wait()
        except BaseException:
            if question.asking is None and question in self._questions:
                self._questions.remove(question)  # Nobody has been shown it.
            question.close()
            raise
        return question.answer

    async def concluded(self, answering: Answering) -> ToolResult:
        """Wait for the result, and ask meanwhile what is to be asked, one after another."""
        while not self.is_over:
            await self._woken.wait()
            self._woken = anyio.Event()
            while self._questions and not self.is_over:
                question = self._questions[0]
                with anyio.CancelScope() as question.asking:
                    question.answer = await answering(question.params)
                self._questions.popleft()
                question.answered.set()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result


Asker: TypeAlias = ServerCall | str
"""A call; else why nobody is asked, or ``ANY``."""

ANY: Final = ""
ASKER: ContextVar[Asker] = ContextVar("hubbub_mcp_asker", default=ANY)
"""For which call a request is made, or a question is asked, in this task."""


class ServerCalls:
    """The calls of one server."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._exclusive_until = -math.inf
        """Up to when one call is made at a time: else nobody could say for which one it asks."""
        self._moved = anyio.Event()
        self.waited_for: list[ServerCall] = []
        """In the order in which they came."""
        self._at_work: dict[str, str] = {}
        """The runs of the calls without an answer, by the ids of the requests."""
        self._has_forgotten = False
        """Whether there are more of them."""
        self._is_in_doubt = False
        """Whether somebody was not asked for the sake of those that were given up on."""

    def begin(self) -> None:
        """There is another connection: no question of an earlier one comes by it."""
        self._at_work.clear()
        self._has_forgotten = self._is_in_doubt = False

    async def turn(self, call: ServerCall) -> None:
        """Return when a call may be made, or is over; it does not wait for those of its own run."""
        while not call.is_over and (seconds := self._seconds_before(call)) > 0:
            with anyio.move_on_after(max(seconds, _SOON)):
                await self._moved.wait()
        call.has_turn = True

    def _seconds_before(self, call: ServerCall) -> float:
        """In how many seconds a call may be made, if nothing happens until then."""
        now = self._clock()
        alone = self._exclusive_until - now
        seconds, comes_before = 0.0, True
        if alone <= 0:
            return 0.0
        for each in self.waited_for:
            if each is call:
                comes_before = False
            elif each.run_id == call.run_id or each.is_over:
                continue
            elif each.has_turn:
                if each.asks_since is None:
                    return alone
                seconds = max(seconds, each.asks_since + QUESTION_SECONDS - now)
            elif comes_before:
                return alone
        return min(seconds, alone)

    def is_to_wait(self, call: ServerCall) -> bool:
        """Whether it is not a call's turn yet."""
        return self._seconds_before(call) > 0

    def leaves(self, call: ServerCall) -> None:
        """Nothing more is done for a call."""
        if call in self.waited_for:
            self.waited_for.remove(call)
        self._stir()

    def _stir(self) -> None:
        """Have those that wait for their turn look again."""
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def ask(self, call: ServerCall, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Have the run of a call ask its user."""
        self._stir()
        return await call.ask(params, self._clock())

    def end(self, failure: Callable[[ServerCall], Exception]) -> None:
        """The connection is over, and so are its calls."""
        for call in self.waited_for:
            call.finish(failure(call))
        self.waited_for.clear()
        self._stir()

    def sent(self, request: str) -> None:
        """A request is made; in the task of a call, it is that one's."""
        call = ASKER.get()
        if not isinstance(call, ServerCall):
            return
        if len(self._at_work) >= MAX_AT_WORK:
            del self._at_work[next(iter(self._at_work))]
            self._has_forgotten = True
        self._at_work[request] = call.run_id
        call.request = request

    def answered(self, request: str) -> None:
        """The server has answered a request."""
        self._at_work.pop(request, None)
        if self._is_in_doubt:
            self._is_in_doubt = self._are_others_at_work({x.run_id for x in self._sent()})

    def are_among(self, requests: Collection[str]) -> bool:
        """Whether the server is at work on none but these."""
        return not self._has_forgotten and all(each in requests for each in self._at_work)

    def tell_asker(self) -> None:
        """The server asks now, in this context: have ``ASKER`` say for which call, or why nobody is
        asked."""
        ASKER.set(self.asker())

    def asker(self) -> Asker:
        """For which call the server asks in this context, or why nobody is asked."""
        own = ASKER.get()
        if isinstance(own, ServerCall):
            return OVER if own.is_over else own
        if own != ANY:
            return own
        sent = self._sent()
        if not sent:
            return NONE
        runs = {each.run_id for each in sent}
        was_exclusive = self._clock() < self._exclusive_until
        if was_exclusive or len(runs) > 1:
            self._exclusive_until = self._clock() + QUIET_SECONDS
        if len(runs) > 1:
            return OTHERS if was_exclusive else SEVERAL
        if self._are_others_at_work(runs):
            self._is_in_doubt = True
            return GIVEN_UP
        return sent[-1]

    @property
    def is_to_be_renewed(self) -> bool:
        """Whether the connection is to end, as only then questions can be asked again, and no call
        is lost by that."""
        if not self._is_in_doubt or any(x.is_sent and not x.is_over for x in self.waited_for):
            return False
        return self._are_others_at_work(())

    def _are_others_at_work(self, runs: Collection[str]) -> bool:
        """Whether the server may be at work for other runs."""
        return self._has_forgotten or any(each not in runs for each in self._at_work.values())

    def _sent(self) -> list[ServerCall]:
        """Those that are waited for and that the server has not answered."""
        return [x for x in self.waited_for if not x.is_over and x.request in self._at_work]
