"""``listen``: the socket on which an app is served, and who may reach it."""

import errno
import ipaddress
import os
import socket
from typing import Any, Final

import anyio
from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.hub.near_misses import shown
from hubbub.hub.values import is_count

__all__ = ["BACKLOG", "Address", "CannotServe", "is_loopback", "listen"]

BACKLOG: Final = 2048
"""Connections that may wait to be accepted: as many clients may come back at once."""


class CannotServe(OperatorError):
    """An app cannot be served as asked."""


class Address(Struct, frozen=True):
    """Where an app is served."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address as a browser takes it: that of this machine where all are listened on."""
        host = self.host
        if host in ("", "0.0.0.0", "::"):
            host = "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether ``host`` can be reached by this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


async def listen(host: str, port: int) -> tuple[socket.socket, Address]:
    """A socket that listens, and its address: with port 0 the system chooses one.

    Raises ``CannotServe`` with the remedy.
    """
    if not is_count(port, 0) or port > 65535:
        raise CannotServe(f"port {shown(port)}: expected a number from 0 to 65535")
    family, at = await _resolved(host, port)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # Elsewhere it would let two servers have one port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(at)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise CannotServe(_problem(host, port, error)) from None
    return listener, Address(host, listener.getsockname()[1])


async def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """The address of ``host``; that of IPv4 where it has several."""
    if host in ("", "localhost"):
        return socket.AF_INET, ("127.0.0.1" if host else "", port)
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise CannotServe(f"host {host!r} has no address; serve on 127.0.0.1") from None
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    family, _, _, _, at = found[0]
    return family, at


def _problem(host: str, port: int, error: OSError) -> str:
    where = f"{host or '*'}:{port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{where} is in use; stop what listens there, or choose another port (0: any)"
        case errno.EACCES:
            return f"{where} is for administrators; choose a port above 1023"
        case errno.EADDRNOTAVAIL:
            return f"{where} is no address of this machine; serve on 127.0.0.1"
        case _:
            return f"{where} cannot be listened on: {error.strerror}"
