"""Where a provider is and what opens it: URLs, keys and headers, checked and made safe to show.

Whatever is refused here is refused without being quoted: it may hold a secret.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from hubbub.hub.errors import BadValue
from hubbub.hub.values import Secret

__all__ = ["clean_headers", "clean_key", "clean_url", "is_loopback"]

MAX_URL: Final = 2_000
_HOST: Final = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}(\.[a-z0-9_][a-z0-9_-]{0,62})*\.?", re.ASCII)


def clean_url(url: str) -> tuple[str, Secret | None]:
    """``url`` without userinfo and final slashes, and the userinfo as Basic authorization.

    Raises ``BadValue``, without quoting a secret, for anything but http(s)://HOST[:PORT][/PATH].
    """
    problem = "write http://HOST:PORT/PATH or https://…, without a query"
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    # Raised outside of the handler: its message may quote the whole URL.
    if not host or parts.scheme not in ("http", "https"):
        raise BadValue("base URL", problem)
    if parts.query or parts.fragment or any(c.isspace() or not c.isprintable() for c in url):
        raise BadValue("base URL", problem)
    if len(url) > MAX_URL or not _is_host(host):
        raise BadValue("base URL", problem)
    netloc = f"[{host}]" if ":" in host else host
    if port is not None:
        netloc += f":{port}"
    user_info, at, _ = parts.netloc.rpartition("@")
    clean = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
    return clean, _basic(user_info) if at else None


def _is_host(host: str) -> bool:
    """Whether the client will take it: an address, or a name of letters, digits, '-' and '_'."""
    try:
        if ":" in host:
            return IPv6Address(host).scope_id is None
        if not host.strip("0123456789."):
            return IPv4Address(host) is not None
        if host.isascii() and "xn--" not in host:
            return _HOST.fullmatch(host) is not None
    except ValueError:
        return False
    return _is_international(host)


def _is_international(host: str) -> bool:
    import httpx  # Here alone: few names are of this kind, and it takes a while to load.

    try:
        return bool(httpx.Request("POST", f"http://{host}").url.host)
    except (httpx.InvalidURL, ValueError):
        return False


def _basic(user_info: str) -> Secret:
    name, _, password = user_info.partition(":")
    pair = f"{unquote(name)}:{unquote(password)}".encode()
    return Secret("Basic " + b64encode(pair).decode())


def clean_headers(headers: Mapping[str, str] | None) -> dict[str, Secret]:
    """Headers of the caller's own, as secrets; raises ``BadValue`` like ``clean_key``."""
    return {name.lower(): clean_key(value) or Secret("") for name, value in (headers or {}).items()}


def clean_key(key: str | Secret | None) -> Secret | None:
    """``key`` as a secret without surrounding blanks; ``None`` if nothing is left of it.

    Raises ``BadValue`` for what cannot be in a header, without quoting it.
    """
    text = (key.reveal() if isinstance(key, Secret) else key) or ""
    text = text.strip()
    if not (text.isascii() and text.isprintable()):
        problem = "it has characters that are not allowed; was it pasted completely?"
        raise BadValue("key or header", problem)
    return Secret(text) if text else None


def is_loopback(url: str) -> bool:
    """Whether ``url`` points to this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
