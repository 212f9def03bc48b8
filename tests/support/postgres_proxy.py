"""``Proxy``: what stands between a process and its server, and can fail as a network does."""

import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final

__all__ = ["Proxy", "running_proxy"]

COMMITTED: Final = b"C\x00\x00\x00\x0bCOMMIT\x00"
"""What a server says of a transaction that it has committed."""

PIECE: Final = 1 << 16


class _Way:
    """One direction of a connection."""

    def __init__(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        self.source, self.target, self.is_answer = source, target, is_answer
        self.waiting: deque[tuple[float, bytes]] = deque()
        """What is under way, and when it arrives."""


class Proxy:
    """Carries connections to a port of 127.0.0.1; each fault holds until ``heal``.

    It works in a thread of its own; what is asked of it holds when the call returns, but for what
    was passed on before.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self._lock = threading.Lock()
        self._ways: dict[socket.socket, _Way] = {}
        self._dead: set[socket.socket] = set()
        """Clients whose answers are dropped, and what they say is, too."""
        self._delay = 0.0
        self._is_down = False
        self._commits_left = -1
        self._to_hold = 0
        self.held = 0
        """Connections that were made and heard nothing."""
        self.swallowed = 0
        """Connections that have gone silent after the server had committed."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._ends = False
        self._thread = threading.Thread(target=self._carry, name="proxy", daemon=True)
        self._thread.start()

    # ── what can fail ────────────────────────────────────────────────────────────────────────

    def cut(self) -> int:
        """Reset all connections; others can be made.  How many there were."""
        with self._lock:
            clients = [way.target for way in self._ways.values() if way.is_answer]
            for client in clients:
                self._reset(client)
            return len(clients)

    def refuse(self, *, cuts: bool = True) -> None:
        """Reset each new connection; ``cuts``: and all that there are."""
        self._is_down = True
        if cuts:
            self.cut()

    def silence(self) -> None:
        """Pass nothing on any more of the connections that there are; both ends stay open."""
        with self._lock:
            self._dead |= {way.target for way in self._ways.values() if way.is_answer}

    def swallow_after_commit(self, count: int = 1) -> None:
        """Let the server commit so many transactions more; the answer to the last one, and all
        that would come on its connection, is lost."""
        self._commits_left = count

    def hold(self, count: int) -> None:
        """Accept so many connections more, and pass nothing on of them."""
        self._to_hold = count

    def half_open(self) -> int:
        """Forget all connections without a word: the server's ends are closed, the clients' stay
        open and hear nothing.  How many there were."""
        with self._lock:
            ways = [way for way in self._ways.values() if way.is_answer]
            for way in ways:
                self._dead.add(way.target)
                with suppress(OSError):
                    way.source.shutdown(socket.SHUT_RDWR)
            return len(ways)

    def delay(self, seconds: float) -> None:
        """Have everything take so long, in each direction."""
        self._delay = seconds

    def heal(self) -> None:
        """Let everything through again; what was swallowed stays lost."""
        self._is_down = False
        self._commits_left = -1
        self._delay = 0.0
        self._to_hold = 0

    def close(self) -> None:
        self._ends = True
        self._thread.join(10)
        self._listener.close()
        for end in {*self._ways}:
            end.close()

    # ── carrying ─────────────────────────────────────────────────────────────────────────────

    def _carry(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._ends:
                for key, _ in selector.select(self._time_left()):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    if end is self._listener:
                        self._accept(selector)
                        continue
                    self._receive(end)
                with self._lock:
                    self._deliver()
                self._close_ended(selector)

    def _close_ended(self, selector: selectors.BaseSelector) -> None:
        for key in list(selector.get_map().values()):
            end = key.fileobj
            assert isinstance(end, socket.socket)
            if end is not self._listener and end not in self._ways:
                selector.unregister(end)
                end.close()

    def _time_left(self) -> float:
        with self._lock:
            due = [way.waiting[0][0] for way in self._ways.values() if way.waiting]
        return max(0.0, min([*due, monotonic() + 0.02]) - monotonic())

    def _accept(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self.target), 5)
        except OSError:
            _reset(client)
            return
        if self._is_down:
            _reset(client)
            server.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(end, selectors.EVENT_READ)
        with self._lock:
            if self._to_hold:
                self._to_hold -= 1
                self.held += 1
                self._dead.add(client)
            self._ways[client] = _Way(client, server, is_answer=False)
            self._ways[server] = _Way(server, client, is_answer=True)

    def _receive(self, end: socket.socket) -> None:
        with self._lock:
            way = self._ways.get(end)
            if way is None:
                return
            client = way.target if way.is_answer else end
            try:
                piece = end.recv(PIECE)
            except OSError:
                piece = b""
            if not piece and client not in self._dead:
                self._end(way)
                return
            if not piece:  # The client's end of a connection that is forgotten stays open.
                self._ways.pop(end, None)
                if end is client:
                    self._dead.discard(client)
                return
            if client in self._dead or (way.is_answer and self._is_lost(piece, client)):
                return
            way.waiting.append((monotonic() + self._delay, piece))

    def _is_lost(self, piece: bytes, client: socket.socket) -> bool:
        """Whether an answer is swallowed."""
        if self._commits_left > 0:
            self._commits_left -= piece.count(COMMITTED)
            if self._commits_left <= 0:
                self._commits_left = -1
                self._dead.add(client)
                self.swallowed += 1
                return True
        return False

    def _deliver(self) -> None:
        now = monotonic()
        for way in [*self._ways.values()]:
            while way.waiting and way.waiting[0][0] <= now:
                _, piece = way.waiting.popleft()
                try:
                    way.target.sendall(piece)
                except OSError:
                    self._end(way)
                    break

    def _end(self, way: _Way) -> None:
        """Close a connection in order, after what is under way."""
        for _, piece in way.waiting:
            with suppress(OSError):
                way.target.sendall(piece)
        for end in (way.source, way.target):
            if self._ways.pop(end, None) is not None:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._dead.discard(end)

    def _reset(self, client: socket.socket) -> None:
        way = self._ways.pop(client, None)
        self._dead.discard(client)
        if way is not None:
            self._ways.pop(way.target, None)
            for end in (client, way.target):
                _linger(end)
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def _linger(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _reset(end: socket.socket) -> None:
    _linger(end)
    end.close()


@contextmanager
def running_proxy(port: int) -> Iterator[Proxy]:
    """A proxy to a port, until this is left."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
