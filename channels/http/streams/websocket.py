"""A WebSocket: events out, commands in, as a plain ASGI app.

    in   {"id", "command": "subscribe" | "open" | "send" | …}      see ``commands``
    out  {"kind": "events", "selection", "events": [{"position", "event"}, …]}
         {"kind": "receipt", "id", "status", …}        what became of a command
         {"kind": "error", "id", "problem"}            a command that was refused, or not understood
         {"kind": "ping"}                              after 15 s of silence at the latest
         {"kind": "end", "reason"}                     before the close of a regular end

Each command is answered once, under the client's id.  What waits of a selection goes out as one
frame of about 64 KiB at most.  A regular close has the code 1001 (the server ends), 1008 (frames
that are refused, one after the other), or 1013 (the store does not work).
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import anyio
import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from hubbub.channels.http.streams.commands import (
    HubCommand,
    SocketCommand,
    Subscribe,
    Unsubscribe,
    perform,
    read_command,
    unknown_to,
)
from hubbub.channels.http.streams.connections import (
    STORE_FAILED,
    AsgiMessage,
    Connection,
    Connections,
    Work,
)
from hubbub.channels.http.streams.frames import Frames, batches, item_of
from hubbub.channels.http.streams.positions import cursor_of_position, position_of
from hubbub.channels.http.streams.wanted import Wanted, WantedEvents, patterns
from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.problems import ProblemDetails, Refusal, refusal_of
from hubbub.channels.http.wire.receipts import refusal_of_receipt
from hubbub.channels.http.wire.route import mount_of
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import Event
from hubbub.hub.logs import log
from hubbub.hub.masking import class_name_of
from hubbub.hub.near_misses import shown
from hubbub.hub.receipt import Receipt

__all__ = ["SUBPROTOCOL", "EventSocket"]

SUBPROTOCOL: Final = "hubbub.v1"

CODES: Final = {"refused": 1008, STORE_FAILED: 1013}
"""The code of a close by the reason of the end; else it is 1001."""

MAX_FAULTS: Final = 20
"""Refused frames in a row after which a client is left."""

MAX_WAITING: Final = 64
"""Commands whose receipts are waited for; meanwhile nothing more is read."""

MAX_NAME: Final = 200
"""Characters of a selection's name."""


class SocketReceipt(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="receipt"
):
    """What became of a command: ``accepted``, ``duplicate``, or ``rejected`` with the problem."""

    id: str
    status: str
    run_id: str = ""
    run_ids: tuple[str, ...] = ()
    cursor: str = ""
    created: bool = False
    agent: str = ""
    selection: str = ""
    problem: ProblemDetails | None = None


class SocketError(Struct, frozen=True, kw_only=True, tag_field="kind", tag="error"):
    """A command that was refused before it did anything; ``id`` is null where it has none."""

    id: str | None
    problem: ProblemDetails


class SocketEnd(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="end"):
    """The end of a selection, or, without one, of everything."""

    reason: str
    selection: str = ""


Said: TypeAlias = SocketReceipt | SocketError | SocketEnd

PING: Final[AsgiMessage] = {"type": "websocket.send", "text": '{"kind":"ping"}'}


class EventSocket:
    """The endpoint.  A subprotocol is accepted only where the client has offered it."""

    def __init__(self, host: Host, connections: Connections) -> None:
        self._host = host
        self._connections = connections
        self._frames = Frames(host.hub, item_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hold one connection."""
        if (await receive())["type"] != "websocket.connect":
            return
        self._host.hub.check_store()
        offered = scope.get("subprotocols", ())
        chosen = SUBPROTOCOL if SUBPROTOCOL in offered else None
        await send({"type": "websocket.accept", "subprotocol": chosen, "headers": []})
        session = SocketSession(
            self._host, self._frames, send, receive, self._connections.rest, mount_of(scope)
        )
        try:
            await self._connections.serve(
                scope, session.connection, session.work, session.listen, PING
            )
        finally:
            session.close()


class SocketSession:
    """One client's commands and selections."""

    def __init__(
        self,
        host: Host,
        frames: Frames,
        send: Send,
        receive: Receive,
        rest: Work,
        mount: str,
    ) -> None:
        self._rest = rest
        self._mount = mount
        self.connection = Connection(send, self._end)
        self._host = host
        self._hub = host.hub
        self._frames = frames
        self._receive = receive
        self._selections: dict[str, WantedEvents] = {}
        self._unsubscribed: dict[str, str] = {}
        """Selections that are ending, and the commands by which."""
        self._over = anyio.Event()
        self._empty = anyio.Event()
        """Whether the last selection has ended, after ``_over``."""
        self._waiting = anyio.Semaphore(MAX_WAITING)
        self._turns = Turns(host)
        self._faults = 0

    def _end(self) -> None:
        self._over.set()
        self.close()
        if not self._selections:
            self._empty.set()

    def close(self) -> None:
        """End every selection after what is buffered."""
        for listening in self._selections.values():
            listening.stream.close()

    async def work(self) -> None:
        """Return when the connection has ended in order."""
        await self._over.wait()
        await self._empty.wait()
        reason = self.connection.reason
        await self._say(SocketEnd(reason=reason))
        code = CODES.get(reason, 1001)
        await self.connection.write({"type": "websocket.close", "code": code, "reason": reason})

    async def _say(self, said: Said) -> None:
        text = msgspec.json.encode(said).decode()
        await self.connection.write({"type": "websocket.send", "text": text})

    # ── what the client says ─────────────────────────────────────────────────────────────────

    async def listen(self) -> None:
        """Read commands until the client has left."""
        while (message := await self._receive())["type"] != "websocket.disconnect":
            if not self._over.is_set():
                await self._hear(message.get("text"))

    async def _hear(self, text: str | None) -> None:
        limit = self._host.limits.command_chars
        if text is None:
            await self._refuse(None, Refusal("invalid-request", "send commands as text"))
        elif len(text) > limit:
            await self._refuse(None, Refusal("too-large", f"at most {limit:,} characters"))
        else:
            command_id, command = read_command(text)
            if isinstance(command, Refusal):
                await self._refuse(command_id, command)
            elif not self._turns.take():
                rate = self._host.limits.command_rate
                refusal = Refusal("too-many-requests", f"at most {rate:,} a second")
                await self._say_refused(command_id, refusal)  # It is told to wait, and no fault.
            else:
                await self._obey(command)

    async def _refuse(self, id: str | None, refusal: Refusal) -> None:
        self._faults += 1
        await self._say_refused(id, refusal)
        if self._faults >= MAX_FAULTS:
            self.connection.end("refused")

    async def _say_refused(self, id: str | None, refusal: Refusal) -> None:
        await self._say(SocketError(id=id, problem=refusal.details(self._mount)))

    async def _obey(self, command: SocketCommand) -> None:
        try:
            match command:
                case Subscribe():
                    await self._subscribe(command)
                case Unsubscribe():
                    self._unsubscribe(command)
                case _:
                    await self._perform(command)
        except Exception as error:
            await self._refuse(command.id, refusal_of(error) or self._defect(error))
        else:
            self._faults = 0

    def _defect(self, error: Exception) -> Refusal:
        mask = self._hub.masker()
        kind = mask(class_name_of(error))
        log.error("socket.failed", error=kind, exc_info=mask.error(error))
        return Refusal("internal-error", "see the log of the program")

    # ── commands of the hub ──────────────────────────────────────────────────────────────────

    async def _perform(self, command: HubCommand) -> None:
        receipt = perform(self._hub, command)
        if receipt.status != "pending":
            await self._acknowledge(command, receipt)
            return
        await self._waiting.acquire()
        self.connection.start(self._await(command, receipt))

    async def _await(self, command: HubCommand, receipt: Receipt) -> None:
        try:
            await receipt
        finally:
            self._waiting.release()
        await self._acknowledge(command, receipt)

    async def _acknowledge(self, command: HubCommand, receipt: Receipt) -> None:
        problem = None
        if receipt.rejected:
            refusal = refusal_of_receipt(receipt, unknown=unknown_to(command))
            problem = refusal.details(self._mount)
        await self._say(
            SocketReceipt(
                id=command.id, status=receipt.status,
                run_id=receipt.run_id, run_ids=receipt.run_ids,
                cursor=position_of(receipt.cursor), created=receipt.created,
                agent=receipt.agent, problem=problem,
            )
        )  # fmt: skip

    # ── selections ───────────────────────────────────────────────────────────────────────────

    async def _subscribe(self, command: Subscribe) -> None:
        name, most = command.selection or command.id, self._host.limits.selections
        if len(name) > MAX_NAME:
            raise Refusal("invalid-value", f"selection: at most {MAX_NAME} characters")
        if name in self._selections:
            raise Refusal("refused", f"there is a selection {name!r}; unsubscribe it first")
        if len(self._selections) >= most:
            raise Refusal("too-many-streams", f"at most {most} selections; unsubscribe one")
        listening = Wanted(
            types=patterns(_several(command.types)), run_ids=_several(command.run_id),
            root_run_ids=_several(command.root_run_id),
            after=cursor_of_position(command.after) if command.after else None,
        ).listen(self._hub)  # fmt: skip
        if command.live:
            listening.mark_live()
        self._selections[name] = listening
        self.connection.start(self._pour(command.id, name, listening))

    def _unsubscribe(self, command: Unsubscribe) -> None:
        name = command.selection
        if name not in self._selections or name in self._unsubscribed:
            raise Refusal("not-found", f"there is no selection {shown(name)}")
        self._unsubscribed[name] = command.id
        self._selections[name].stream.close()

    async def _pour(self, id: str, name: str, listening: WantedEvents) -> None:
        """Write what a selection has, from the receipt of its beginning to that of its end."""
        begins_at = listening.position if listening.is_new else ""
        try:
            async with listening:
                await self._say(
                    SocketReceipt(id=id, status="accepted", selection=name, cursor=begins_at)
                )
                await self._write(name, listening)
        except OperatorError:  # The journal cannot be read or written any more.
            await self._say(SocketEnd(selection=name, reason=STORE_FAILED))
            self.connection.end(STORE_FAILED)
        finally:
            del self._selections[name]
            if self._over.is_set() and not self._selections:
                self._empty.set()
        if (ended_by := self._unsubscribed.pop(name, None)) is not None:
            await self._say(SocketReceipt(id=ended_by, status="accepted", selection=name))

    async def _write(self, name: str, listening: WantedEvents) -> None:
        head = b'{"kind":"events","selection":' + msgspec.json.encode(name) + b',"events":['
        write_next = self.connection.write_next
        while (events := await listening.take()) is not None:
            messages = self._messages(head, events)
            while await write_next(messages):
                pass
            await self._rest()

    def _messages(self, head: bytes, events: Iterable[Event]) -> Iterator[AsgiMessage]:
        for batch in batches(map(self._frames.of, events), joint=b","):
            yield {"type": "websocket.send", "text": (head + batch + b"]}").decode()}


class Turns:
    """How often one client may command: so often a second, and so often at once."""

    __slots__ = ("_clock", "_last", "_left", "_limits")

    def __init__(self, host: Host) -> None:
        self._clock = host.hub.ports.clock
        self._limits = host.limits
        self._left = float(host.limits.command_burst)
        self._last = self._clock.monotonic()

    def take(self) -> bool:
        """Whether the client may command now; counts it if so."""
        now, limits = self._clock.monotonic(), self._limits
        earned = (now - self._last) * limits.command_rate
        self._left, self._last = min(limits.command_burst, self._left + earned), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _several(value: tuple[str, ...] | str) -> tuple[str, ...]:
    return ((value,) if value else ()) if isinstance(value, str) else value
