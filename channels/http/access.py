"""``Access``: who may ask, of what a request says about where it comes from.

    Host     a name of this server: a page cannot have its own name lead here
    Origin   no page of another site, unless its origin is allowed (CORS)
    token    ``Authorization: Bearer``, or the cookie of a browser's session; without a token at
             all only this machine is served

A session's cookie carries its own end and a signature made with the token: it needs no memory, and
holds over a restart.  One that was ended is remembered until it would have expired.
"""

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import urlsplit

from hubbub.channels.http.wire.limits import HttpLimits
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import header_of, mount_of
from hubbub.hub.errors import BadValue
from hubbub.hub.hub import Hub
from hubbub.hub.values import check_options

__all__ = ["COOKIE", "Access"]

COOKIE: Final = "hubbub_session"

MAX_ENDED: Final = 10_000
"""Sessions that were ended and are remembered."""

SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))


class Access:
    """Checks requests, begins and ends browser sessions.  Raises ``BadValue`` for a token that is
    empty, and for hosts and origins that are none."""

    def __init__(
        self,
        hub: Hub,
        limits: HttpLimits,
        token: str | None,
        hosts: Iterable[str],
        origins: Iterable[str],
    ) -> None:
        self._hub = hub
        self._limits = limits
        self._token = _checked_token(token)
        self._hosts = frozenset(map(_checked_host, check_options("hosts", hosts)))
        self._origins = frozenset(map(_checked_origin, check_options("origins", origins)))
        self._ended: dict[str, int] = {}
        """Sessions that were ended before their time, and when that is."""
        self._wrong: dict[str, tuple[float, int]] = {}
        """Wrong tokens of each client in its current minute."""

    @property
    def has_token(self) -> bool:
        """Whether a token is demanded."""
        return self._token is not None

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def check_place(self, scope: Mapping[str, Any]) -> None:
        """Raise ``Refusal`` for a request to another name, or from another site's page."""
        host = header_of(scope, b"host").lower()
        self._check_host(scope, host)
        origin = header_of(scope, b"origin")
        if origin:
            if urlsplit(origin).netloc.lower() != host and origin not in self._origins:
                raise Refusal("foreign-origin", "pages of other sites are refused; see origins=")
        elif header_of(scope, b"sec-fetch-site") in ("cross-site", "same-site"):
            is_visit = header_of(scope, b"sec-fetch-mode") == "navigate"
            if not (is_visit and scope.get("method") in SAFE):
                raise Refusal("foreign-origin", "pages of other sites are refused; see origins=")

    def _check_host(self, scope: Mapping[str, Any], host: str) -> None:
        name = _name_of(host)
        if self._token is None:
            client = scope.get("client")
            if client and not _is_loopback(client[0]):
                raise Refusal("beyond-loopback", "give HttpApp a token to serve other machines")
            if not _is_loopback(name) and name not in self._hosts and host not in self._hosts:
                raise Refusal("foreign-host", "ask for localhost, or name the host in hosts=")
        elif self._hosts and name not in self._hosts and host not in self._hosts:
            raise Refusal("foreign-host", "name the host in hosts=")

    def check_token(self, scope: Mapping[str, Any]) -> None:
        """Raise ``Refusal`` for a request that has neither the token nor a session."""
        if self._token is None:
            return
        scheme, _, given = header_of(scope, b"authorization").partition(" ")
        if scheme.lower() == "bearer":
            self.check_login(scope, given.strip())
        elif not self._is_session(_cookie_of(scope)):
            raise _unauthorized("give the token: Authorization: Bearer TOKEN")

    def check_login(self, scope: Mapping[str, Any], given: str) -> None:
        """Raise ``Refusal`` for a wrong token, also for a right one after too many wrong ones."""
        client = client_of(scope)
        began, count = self._wrong.get(client, (0.0, 0))
        now = self._hub.ports.clock.monotonic()
        if count and now - began >= 60:
            del self._wrong[client]
            count = 0
        if count >= self._limits.failed_logins:
            raise Refusal(
                "too-many-requests", "too many wrong tokens; wait", headers={"retry-after": "60"}
            )
        if self._is_token(given):
            return
        if len(self._wrong) >= MAX_ENDED:
            self._wrong.clear()
        self._wrong[client] = (began if count else now, count + 1)
        raise _unauthorized("this is not the token")

    def _is_token(self, given: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(
            given.encode("utf-8", "surrogateescape"), self._token.encode("utf-8")
        )

    # ── sessions of browsers ─────────────────────────────────────────────────────────────────

    def begin_session(self, scope: Mapping[str, Any]) -> str:
        """The ``Set-Cookie`` of a new session; the token has been checked."""
        ports = self._hub.ports
        ends = ports.clock.now() // 1_000_000 + self._limits.session_seconds
        content = f"{ends}.{ports.ids.run_id(ports.clock.now())}"
        value = f"{content}.{self._signature(content)}"
        return _cookie(scope, value, self._limits.session_seconds)

    def end_session(self, scope: Mapping[str, Any]) -> str:
        """End the session that a request is of; the ``Set-Cookie`` that has the browser drop it."""
        value = _cookie_of(scope)
        if self._is_session(value):
            now = self._hub.ports.clock.now() // 1_000_000
            self._ended = {key: ends for key, ends in self._ended.items() if ends > now}
            if len(self._ended) < MAX_ENDED:
                self._ended[value] = int(value.partition(".")[0])
        return _cookie(scope, "", 0)

    def _is_session(self, value: str) -> bool:
        content, _, signature = value.rpartition(".")
        ends = content.partition(".")[0]
        if not (ends.isascii() and ends.isdecimal() and len(ends) < 15):
            return False
        if not hmac.compare_digest(signature.encode(), self._signature(content).encode()):
            return False
        return int(ends) > self._hub.ports.clock.now() // 1_000_000 and value not in self._ended

    def _signature(self, content: str) -> str:
        assert self._token is not None
        return hmac.new(
            self._token.encode(), b"hubbub session " + content.encode(), "sha256"
        ).hexdigest()

    # ── other sites ──────────────────────────────────────────────────────────────────────────

    def cors_headers(self, scope: Mapping[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
        """What an allowed page of another site is told with its answer."""
        if not self._origins:
            return ()
        origin = header_of(scope, b"origin")
        if origin not in self._origins:
            return ((b"vary", b"origin"),)
        return (
            (b"vary", b"origin"),
            (b"access-control-allow-origin", origin.encode("latin-1")),
            # Named one by one, never ``*``: only what the operator has listed reads with a cookie,
            # and the cookie itself goes to pages of the same site alone (SameSite=Strict).
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", b"etag, location, retry-after"),
        )

    def is_preflight(self, scope: Mapping[str, Any]) -> bool:
        """Whether a browser asks what an allowed page of another site may do."""
        return (
            scope.get("method") == "OPTIONS"
            and bool(header_of(scope, b"access-control-request-method"))
            and header_of(scope, b"origin") in self._origins
        )


PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, POST, PUT, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, idempotency-key, if-none-match, last-event-id",
    ),
    (b"access-control-max-age", b"600"),
)


def client_of(scope: Mapping[str, Any]) -> str:
    """The address that a request comes from; empty over a socket that has none."""
    client = scope.get("client")
    return client[0] if client else ""


def _unauthorized(detail: str) -> Refusal:
    return Refusal("unauthorized", detail, headers={"www-authenticate": 'Bearer realm="hubbub"'})


def _cookie_of(scope: Mapping[str, Any]) -> str:
    try:
        cookies = SimpleCookie(header_of(scope, b"cookie"))
    except CookieError:
        return ""
    found = cookies.get(COOKIE)
    return found.value if found is not None and found.value.isascii() else ""


def _cookie(scope: Mapping[str, Any], value: str, seconds: int) -> str:
    path = mount_of(scope) or "/"
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{COOKIE}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _name_of(host: str) -> str:
    """A host without its port, ``[::1]`` without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@lru_cache(maxsize=256)
def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _checked_token(token: object) -> str | None:
    if token is None:
        return None
    is_text = isinstance(token, str) and token.isascii() and token.isprintable()
    if isinstance(token, str) and is_text and token and token == token.strip():
        return token
    # Anything else no client could send in a header.
    raise BadValue("token", "expected printable ASCII characters, without blanks around them")


def _checked_host(host: object) -> str:
    if not isinstance(host, str) or not host or not _HOSTS.isdisjoint(host):
        raise BadValue(
            "hosts",
            f"expected names such as 'example.org', not {host!r}; without hosts and with a token "
            "the server may be asked by any name",
        )
    return host.lower()


_HOSTS: Final = frozenset("/*, \t\r\n")
"""What is in no name of a host: each is taken as it is, and none stands for several."""


def _checked_origin(origin: object) -> str:
    parts = urlsplit(origin) if isinstance(origin, str) else None
    if parts is None or not parts.scheme or not parts.netloc or parts.path:
        raise BadValue("origins", f"expected some such as 'https://example.org', not {origin!r}")
    assert isinstance(origin, str)
    return origin.lower()
