"""``ServerConnection``: one server, from the opening of a runtime to its end.

    ┌─► starting ─► open: follows the list, performs calls ─► down ─┐
    └────────────── a growing pause, or somebody calls ◄────────────┘

One task opens the client, uses it and closes it; calls are tasks within it.  What is known of the
server's tools stays known while it is down: a model's list of tools does not change for that, and
a call says that the server is not there.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import Any, Final, Literal

import anyio
import mcp_types as types
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import structs

from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import ToolError, ToolResult, error_text
from hubbub.agents.mcp_server import McpServer
from hubbub.hub.logs import log
from hubbub.hub.masking import Masker
from hubbub.hub.ports import Ports
from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.tasks.raised import is_contained
from hubbub.runtime.mcp.elicitation import answered, why_not_asked
from hubbub.runtime.mcp.failures import ended_call, failed_call, is_refusal, problem_of
from hubbub.runtime.mcp.listing import ServerListing, listing_of
from hubbub.runtime.mcp.opening import opened
from hubbub.runtime.mcp.pages import listed_tools
from hubbub.runtime.mcp.results import result_of
from hubbub.runtime.mcp.server_call import (
    ANY,
    ASKER,
    NONE,
    QUESTION_SECONDS,
    ServerCall,
    ServerCalls,
    still,
)
from hubbub.runtime.mcp.told import Told
from hubbub.runtime.mcp.watching import LIST_CHANGED

__all__ = ["ServerConnection", "State"]

State = Literal["new", "starting", "open", "ending", "down", "closed"]

LIST_SECONDS: Final = 10.0
LISTEN_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
MAX_VAIN_LISTS: Final = 10
"""How often in a row a list that stays the same is read at once; then once in so many seconds."""

MIN_PAUSE: Final = 1.0
MAX_PAUSE: Final = 60.0
LASTING: Final = 60.0
"""Seconds after which a connection that ends has been a good one."""


class SessionGone(ToolError):
    """The server does not know the session any more: the call was not made."""


class Renewed(ToolError):
    """The connection was ended, to be made again, before the call was made."""


class ServerConnection:
    """Opens, follows and calls one server."""

    def __init__(
        self,
        server: McpServer,
        ports: Ports,
        changed: Callable[[], None],
        missed: Callable[[str, str], None],
    ) -> None:
        self.server = server
        self.state: State = "new"
        self.listing = ServerListing()
        self.problem = ""
        """Why the server is down."""
        self.protocol = ""
        self._ports = ports
        self._changed = changed
        """Called when the list is another one."""
        self._missed = missed
        """Called with name and problem, once whenever the server turns out not to be there."""
        self._is_missed = False
        self._mask = Masker(server.secrets)
        self._has_tried = False
        self._is_refused = False
        """Whether the server was there and refused to be spoken to by this protocol."""
        self._doubts = 0
        """How often the list may have changed, or the server may have gone."""
        self._settled_doubts = 0
        """How many of these the last list has answered."""
        self._listed_at = 0.0
        self._vain_lists = 0
        """How often the list was read since it has changed."""
        self._has_ended = False
        self._is_renewing = False
        """Whether it ends to be made again at once."""
        self._calls = ServerCalls(ports.clock.monotonic)
        self._told = self._listened()
        self._closing = anyio.Event()
        self._woken = anyio.Event()
        self._moved = anyio.Event()
        self._group: TaskGroup | None = None
        self._client: Client | None = None

    # ── what runs see ────────────────────────────────────────────────────────────────────────

    async def settled(self) -> None:
        """Return when what the server lists is known, or that it is not there."""
        doubts = self._doubts  # What is doubted later is for a later step to know.
        with anyio.move_on_after(self.server.start_timeout):
            while self._is_unsettled(doubts):
                await self._moved.wait()

    def _is_unsettled(self, doubts: int) -> bool:
        if self.state == "open":
            return doubts > self._settled_doubts
        return self.state in ("new", "starting") and not self._has_tried

    async def call(self, tool: str, arguments: Mapping[str, Any], state: RunState) -> ToolResult:
        """Have the server carry a call out; raises ``ToolError``."""
        is_new = True
        while True:
            try:
                return await self._call(tool, arguments, state)
            except Renewed:
                continue
            except SessionGone:  # The server has refused it as one of a session it has forgotten.
                if not is_new:
                    raise
                is_new = False

    async def _call(self, tool: str, arguments: Mapping[str, Any], state: RunState) -> ToolResult:
        await self._opened()
        if self._group is None:
            why = f": {self.problem}" if self.problem else ""
            raise ToolError(f"the MCP server {self.server.name!r} is not connected{why}")
        call = ServerCall(tool, arguments, state.run_id)
        self._calls.waited_for.append(call)
        try:
            await self._its_turn(call, state)
            if self._group is None:
                call.finish(self._ended_call(call))
            if not call.is_over:
                start_in(self._group, self._perform(call))
            return await call.concluded(partial(answered, self.server.name, state))
        finally:
            call.leave()
            self._calls.leaves(call)

    async def _its_turn(self, call: ServerCall, state: RunState) -> None:
        """Wait until a call may be made; meanwhile its time stands still."""
        timeout = self.server.timeout
        limit = math.inf if timeout is None else timeout + QUESTION_SECONDS
        with still(state) if self._calls.is_to_wait(call) else nullcontext():
            with anyio.move_on_after(limit) as waiting:
                await self._calls.turn(call)
        if waiting.cancelled_caught:
            raise ToolError(
                f"the MCP server {self.server.name!r} does not say for which call it asks, so it "
                f"gets one at a time; those before this one took {limit:g} s: "
                "it was not made; try again later"
            )

    async def _opened(self) -> None:
        """Wait for the connection where it is being made; make it where it is down."""
        is_tried = False
        with anyio.move_on_after(self.server.start_timeout):
            while self.state not in ("open", "closed") or self._has_ended:
                if self.state == "down":
                    if is_tried:
                        return
                    is_tried = True
                    self._wake()
                await self._moved.wait()

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Keep the server connected until ``close``."""
        ASKER.set(ANY)  # Who enters a runtime may be a call of another one's server.
        failures = 0
        try:
            while not self._closing.is_set():
                began = self._ports.clock.monotonic()
                problem = await self._once(is_old=self.server.protocol != "2026")
                if self._is_refused and self.server.protocol != "2025":
                    problem = await self._once(is_old=self.server.protocol == "2026")
                if self._closing.is_set():
                    return
                if self._is_renewing:
                    continue
                lasted = self._ports.clock.monotonic() - began
                failures = 0 if lasted >= LASTING else failures + 1
                self._is_down(problem)
                await self._pause(failures)
        finally:
            self._move("closed")

    def close(self) -> None:
        """End it, in order."""
        self._closing.set()
        self._woken.set()

    async def gone(self) -> None:
        """Return when it has ended."""
        while self.state != "closed":
            await self._moved.wait()

    async def _pause(self, failures: int) -> None:
        seconds = min(MAX_PAUSE, 2.0 ** min(failures, 10)) * (0.5 + self._ports.ids.random() / 2)
        self._woken = anyio.Event()
        with anyio.move_on_after(min(MIN_PAUSE, seconds)):
            await self._closing.wait()
        with anyio.move_on_after(seconds - MIN_PAUSE):
            await self._woken.wait()

    async def _once(self, *, is_old: bool) -> str:
        """Be connected once; returns why it is over."""
        self._move("starting")
        self._has_ended = self._is_refused = self._is_renewing = False
        self._calls.begin()
        self._told = told = self._listened()
        is_spoken = False
        try:
            with anyio.fail_after(self.server.start_timeout) as starting:
                async with opened(
                    self.server, told, self._ports.own_offload, is_old=is_old
                ) as client:
                    is_spoken = True
                    await self._serve(client, starting)
            problem = "the connection has ended"
        except TimeoutError:
            problem = f"it did not answer within {self.server.start_timeout:g} s"
        except BaseException as error:
            if not is_contained(error):
                raise
            problem = problem_of(error, self._mask)
            if not is_spoken:  # Asked for the newer one, some end.
                self._is_refused = is_refusal(error) if is_old else self._has_ended
        finally:
            self._client = self._group = None
            self._calls.end(self._ended_call)
        if said := told.fault or told.noise:
            problem = f"{problem}: {said}"
        return f"{problem}\n{told.tail}".strip()

    async def _serve(self, client: Client, starting: anyio.CancelScope) -> None:
        """Follow the list and perform calls until the connection ends."""
        async with anyio.create_task_group() as group:
            await group.start(self._follow, client)
            await self._list(client)
            starting.deadline = math.inf
            self.protocol = client.protocol_version
            self._client, self._group = client, group
            self._has_tried = True
            self.problem = ""
            self._is_missed = False
            self._move("open")
            try:
                while not (self._has_ended or self._closing.is_set()):
                    if self._doubts > self._settled_doubts and not self._is_too_soon:
                        with anyio.fail_after(LIST_SECONDS):
                            await self._list(client)
                        self._move("open")
                        continue
                    with anyio.move_on_after(AGAIN_SECONDS if self._is_too_soon else math.inf):
                        await self._woken.wait()
                        self._woken = anyio.Event()
            finally:
                self._group = None
                self._move("ending")
                group.cancel_scope.cancel()

    def _is_down(self, problem: str) -> None:
        self.problem = self._mask(problem)
        self._has_tried = True
        self._move("down")
        if not self._is_missed:
            self._is_missed = True
            log.warning("mcp.down", server=self.server.name, problem=self.problem)
            self._missed(self.server.name, self.problem)

    def _move(self, state: State) -> None:
        self.state = state
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def _wake(self) -> None:
        self._woken.set()

    def _listened(self) -> Told:
        return Told(self._ended, self._notified, self._elicit, self.server.admits, self._calls)

    def _ended(self) -> None:
        self._has_ended = True
        self._wake()

    def _renew(self) -> None:
        log.info("mcp.renewed", server=self.server.name)
        self._is_renewing = True
        self._ended()

    # ── the list ─────────────────────────────────────────────────────────────────────────────

    async def _list(self, client: Client) -> None:
        doubts = self._doubts
        before = ASKER.set(NONE)
        try:
            listed, left_out = await listed_tools(client)
        finally:
            ASKER.reset(before)
        found = listing_of(self.server, listed, self.call, left_out)
        found = structs.replace(found, problems=tuple(map(self._mask, found.problems)))
        self._settled_doubts = doubts
        self._listed_at = self._ports.clock.monotonic()
        self._vain_lists += 1
        if found.problems != self.listing.problems:
            for problem in found.problems[:20]:
                log.warning("mcp.tool_left_out", server=self.server.name, problem=problem)
        if found.source != self.listing.source:
            self.listing = found
            self._vain_lists = 0
            self._changed()
        elif found.problems != self.listing.problems:
            # The same tools as before: what models are shown does not change.
            self.listing = structs.replace(self.listing, problems=found.problems)

    @property
    def _is_too_soon(self) -> bool:
        """Whether the list is left alone for a moment, as it is said to change and does not."""
        since = self._ports.clock.monotonic() - self._listed_at
        return self._vain_lists > MAX_VAIN_LISTS and since < AGAIN_SECONDS

    def _doubt(self) -> None:
        """The list is to be read again, which shows whether the server is there, too."""
        self._doubts += 1
        self._wake()

    def _notified(self, method: str) -> None:
        if method == LIST_CHANGED:
            self._doubt()

    async def _follow(self, client: Client, *, task_status: TaskStatus[None]) -> None:
        """Hear of changes, where the server must be asked to tell of them."""
        tools = client.server_capabilities.tools
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not is_modern or tools is None or not tools.list_changed:
            task_status.started()
            return
        has_started, pause = False, 1.0
        while True:
            try:
                async with AsyncExitStack() as stack:
                    with anyio.fail_after(LISTEN_SECONDS):
                        listening = client.listen(tools_list_changed=True)
                        changes = await stack.enter_async_context(listening)
                    if has_started:
                        self._doubt()
                    else:
                        task_status.started()
                    has_started, pause = True, 1.0
                    async for _ in changes:
                        self._doubt()
            except Exception as error:
                words = error_text(error, self._mask)
                log.info("mcp.listening_ended", server=self.server.name, error=words)
            if not has_started:
                task_status.started()
                has_started = True
            await self._ports.clock.sleep(pause)
            pause = min(MAX_PAUSE, pause * 2)

    # ── calls ────────────────────────────────────────────────────────────────────────────────

    async def _perform(self, call: ServerCall) -> None:
        """Make a call, in a task of the connection."""
        with call.scope:
            try:
                call.finish(await self._performed(call))
            except ToolError as error:
                call.finish(error)
            except BaseException as error:
                self._doubt()  # What is cancelled may have been waited for in vain.
                if not is_contained(error):
                    raise
                if isinstance(error, MCPError) and self._told.has_forgotten:
                    self._ended()
                    call.finish(SessionGone(self._failed(error)))
                call.finish(ToolError(self._failed(error)))
            finally:
                call.finish(self._ended_call(call))
                if self._calls.is_to_be_renewed and not self._has_ended:
                    self._renew()

    async def _performed(self, call: ServerCall) -> ToolResult:
        ASKER.set(call)
        client = self._client
        if self._is_renewing or client is None:
            raise self._ended_call(call)
        call.is_sent = True
        answer = await client.call_tool(call.tool, dict(call.arguments))
        return result_of(answer, self.listing.promises.get(call.tool))

    def _failed(self, error: BaseException) -> str:
        """What the model reads of a call that has failed."""
        return failed_call(self.server.name, error, self._mask, self._told.fault)

    def _ended_call(self, call: ServerCall) -> ToolError:
        if call.is_sent:
            return ToolError(ended_call(self.server.name, self._mask(self._told.fault)))
        kind = Renewed if self._is_renewing else ToolError
        name = self.server.name
        return kind(f"the connection to the MCP server {name!r} has ended before the call was made")

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """The server asks; of the call for which it does, the user is asked."""
        call = self._calls.asker()
        if not isinstance(call, ServerCall):
            return types.ErrorData(code=types.INVALID_REQUEST, message=call)
        if problem := why_not_asked(params):
            return types.ErrorData(code=types.INVALID_PARAMS, message=problem)
        return await self._calls.ask(call, params)
