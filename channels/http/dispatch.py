"""``Paths``: which route a request is for.

Paths are split before they are decoded, so that an encoded slash is part of a name.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import Route, mount_of

__all__ = ["Paths"]


class _Node:
    """One place in a path: what may come next, and the routes that end here by their methods."""

    __slots__ = ("literals", "rest", "routes", "variable")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.variable: _Node | None = None
        self.rest: _Node | None = None
        """Takes what is left of a path."""
        self.routes: dict[str, tuple[Route, tuple[str, ...]]] = {}
        """With the names of the variable parts."""


class Paths:
    """The routes by path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for part in route.path.split("/")[1:]:
            if not part.startswith("{"):
                node = node.literals.setdefault(part, _Node())
                continue
            name, _, kind = part[1:-1].partition(":")
            names.append(name)
            if kind == "path":
                node.rest = node.rest or _Node()
                node = node.rest
            else:
                node.variable = node.variable or _Node()
                node = node.variable
        if route.method in node.routes:
            raise ValueError(f"there are two routes {route.name}")
        node.routes[route.method] = route, tuple(names)

    def find(self, scope: Mapping[str, Any]) -> tuple[Route, dict[str, str]]:
        """The route of a request, and the variable parts of its path.

        Raises ``Refusal`` where there is none, or none of its method.
        """
        parts = _parts_of(scope)
        found = _walk(self._root, parts, 0, ())
        if found is None:
            listed = f"{mount_of(scope)}/api/openapi.json"
            raise Refusal("not-found", f"no such path; {listed} lists what there is")
        node, values = found
        method = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
        row = node.routes.get(method) or (node.routes.get("GET") if method == "HEAD" else None)
        if row is None and method == "GET" and "WEBSOCKET" in node.routes:
            raise Refusal(
                "upgrade-required", "only a WebSocket is served here",
                headers={"upgrade": "websocket"},
            )  # fmt: skip
        if row is None:
            allowed = ", ".join(sorted(node.routes.keys() - {"WEBSOCKET"})) or "GET"
            raise Refusal("method-not-allowed", f"use {allowed}", headers={"allow": allowed})
        route, names = row
        return route, dict(zip(names, map(_decoded, values), strict=True))


def _walk(
    node: _Node, parts: list[str], at: int, values: tuple[str, ...]
) -> tuple[_Node, tuple[str, ...]] | None:
    """What a path leads to: its own names first, then names that vary, then the rest of it."""
    if at == len(parts):
        return (node, values) if node.routes else None
    part = parts[at]
    literal = node.literals.get(part)
    if literal is not None and (found := _walk(literal, parts, at + 1, values)):
        return found
    if node.variable is not None and part:
        found = _walk(node.variable, parts, at + 1, (*values, part))
        if found:
            return found
    if node.rest is not None and part:
        return node.rest, (*values, "/".join(parts[at:]))
    return None


def _parts_of(scope: Mapping[str, Any]) -> list[str]:
    """The parts of the path below where the app is mounted, as they were sent."""
    root: str = scope.get("root_path", "")
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    sent: list[str] = raw.partition(b"?")[0].decode("latin-1").split("/")
    return sent[1 + root.rstrip("/").count("/") :]


def _decoded(part: str) -> str:
    if "%" not in part and part.isascii():
        return part
    try:
        return unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise Refusal("invalid-request", "the path is no UTF-8") from None
