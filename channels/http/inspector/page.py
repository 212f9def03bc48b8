"""The page of the inspector and its files, read once and served from memory.

    /                     the page
    /inspector/{name}     what it consists of: scripts, style sheets, its icon

The files are served as they lie in ``assets``; nothing is built.  The page loads from its own
origin alone and runs no inline script, which its Content-Security-Policy makes sure of.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import Route, header_of

__all__ = ["CONTENT_SECURITY_POLICY", "inspector_routes"]

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

PAGE: Final = "index.html"
_MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What else lies beside them, licences for example, is not served."""
_PRELOADED: Final = "<!-- modules -->"
_LATE: Final = frozenset(("vendor/uplot.js",))
"""What the page asks for only when it is wanted."""


class Asset(Struct, frozen=True):
    """A file of the page, with what is said about it."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    etag: str


def inspector_routes() -> tuple[Route, ...]:
    """The routes of the page.  Reads its files at once, so call it at start-up.

    All are open: whoever has no session sees a form that asks for the token, and nothing else.
    """
    assets = _read(Path(__file__).with_name("assets"))
    page, files = assets.pop(PAGE), AssetFiles(assets)

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        await _serve(page, scope, send)

    return (
        Route(method="GET", path="/", summary="The inspector", asgi=show, is_open=True,
              is_documented=False),
        Route(method="GET", path="/inspector/{name:path}", summary="A file of the inspector",
              asgi=files, is_open=True, is_documented=False),
    )  # fmt: skip


class AssetFiles:
    """Serves the files by name; a name that is none of theirs is no path on any disk."""

    def __init__(self, assets: Mapping[str, Asset]) -> None:
        self._assets = assets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; raises ``Refusal`` for a name that there is not."""
        asset = self._assets.get(scope["path_params"]["name"])
        if asset is None:
            raise Refusal("not-found", "the inspector has no such file")
        await _serve(asset, scope, send)


async def _serve(asset: Asset, scope: Scope, send: Send) -> None:
    known = header_of(scope, b"if-none-match")
    is_known = asset.etag in (each.strip().removeprefix("W/") for each in known.split(","))
    headers = [*asset.headers]
    if not is_known:
        headers.append((b"content-length", str(len(asset.body)).encode()))
    status = 304 if is_known else 200
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = b"" if is_known or scope["method"] == "HEAD" else asset.body
    await send({"type": "http.response.body", "body": body})


# ── reading ──────────────────────────────────────────────────────────────────────────────────


def _read(folder: Path) -> dict[str, Asset]:
    """The files to serve, by their paths in the folder."""
    bodies = dict(_bodies(folder))
    modules = (name for name in sorted(bodies) if name.endswith(".js") and name not in _LATE)
    links = "\n".join(f'<link rel="modulepreload" href="inspector/{name}">' for name in modules)
    bodies[PAGE] = bodies[PAGE].replace(_PRELOADED.encode(), links.encode())
    return {name: _asset(name, body) for name, body in bodies.items()}


def _bodies(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in _MEDIA_TYPES:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _asset(name: str, body: bytes) -> Asset:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {
        "content-type": _MEDIA_TYPES[Path(name).suffix],
        "etag": etag,
        # Asked for again each time, and sent again only when it has changed.
        "cache-control": "no-cache",
        "content-security-policy": CONTENT_SECURITY_POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    return Asset(
        body=body,
        headers=tuple((key.encode(), value.encode()) for key, value in headers.items()),
        etag=etag,
    )
