"""The OpenAPI 3.1 document, made from the table of routes and their types.

    Route.path, .query      ──► parameters          (each field of a query one)
    Route.body              ──► requestBody         (a struct: JSON; ``Content``: its media type)
    Route.answers           ──► responses           (with what an answer has)
    Route.problems          ──► responses           (problem details, several kinds a status)

What every route may answer, because the app looks at each request before, is added to each.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Any, Final

import msgspec

from hubbub.channels.http.wire.bodies import FORM, MAX_KEY
from hubbub.channels.http.wire.problem_kinds import KINDS
from hubbub.channels.http.wire.problems import MEDIA_TYPE, ProblemDetails, Refusal
from hubbub.channels.http.wire.route import JSON, Content, HttpAnswer, HttpCall, Route, mount_of
from hubbub.hub.events.catalogue import CATALOGUE
from hubbub.hub.values import Secret

__all__ = ["document", "document_routes"]

_EVERYWHERE: Final = (
    "invalid-request", "invalid-value", "unauthorized", "foreign-origin", "foreign-host",
    "beyond-loopback", "too-many-requests", "closed", "store-failed", "overloaded",
)  # fmt: skip
_OF_BODIES: Final = ("slow-body", "too-large", "unsupported-media-type")

_WORDS: Final = {
    200: "OK", 202: "Accepted: it is durable", 204: "Done", 304: "Not changed",
    101: "The protocol is switched",
}  # fmt: skip

_DESCRIPTION: Final = """\
Runs of agents, as one hub has them.  All times are microseconds since the Unix epoch, UTC.
A request with a key, or the header `Idempotency-Key`, may be repeated.  Problems are RFC 9457.
What is below `/v1` is OpenAI's interface, which OpenAI documents, and so are its errors."""

_STREAM: Final = "text/event-stream"

_EVENT: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "An event: what every one has, beside the fields of its type.  Fields are left "
    "out where they have their defaults.  Durable ones have a lane.",
    "required": ["type"],
    "properties": {
        "type": {
            "anyOf": [{"enum": sorted(each.type for each in CATALOGUE)}, {"type": "string"}],
            "description": "One of these, or one of the program's own.",
        },
        "at": {"type": "integer"}, "run_id": {"type": "string"}, "root_run_id": {"type": "string"},
        "parent_run_id": {"type": ["string", "null"]}, "agent": {"type": "string"},
        "lane": {"type": "string"}, "seq": {"type": "integer"}, "side": {"type": "string"},
        "label": {"type": "string"}, "turn": {"type": "integer"}, "call_id": {"type": "string"},
    },
}  # fmt: skip


def document(
    routes: Sequence[Route], *, version: str, has_token: bool, server: str = ""
) -> dict[str, Any]:
    """The document of an app's routes; ``server`` is where it is mounted."""
    shown = [route for route in routes if route.is_documented]
    schemas, components = _schemas(shown)
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        path = route.path.replace(":path}", "}")
        paths.setdefault(path, {})[_method_of(route)] = _operation(route, schemas, has_token)
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "hubbub", "version": version, "description": _DESCRIPTION},
        "servers": [{"url": server or "/"}],
        "paths": paths,
        "components": {"schemas": {**components, "Event": _EVENT}},
    }
    if has_token:
        found["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "hubbub_session"},
        }
    return found


def document_routes(table: Callable[[], Sequence[Route]], *, has_token: bool) -> tuple[Route, ...]:
    """The routes of the document itself, and of what is said of each kind of problem."""

    async def show(call: HttpCall) -> HttpAnswer:
        mount = mount_of(call.scope)
        made = document(table(), version=_version(), has_token=has_token, server=mount)
        return HttpAnswer(content=made)

    return (
        Route(
            method="GET", path="/api/openapi.json", summary="This document", handler=show,
            answers={200: dict[str, Any]},
        ),
        Route(
            method="GET", path="/problems/{kind}", summary="What a kind of problem is",
            handler=_show_kind, answers={200: ProblemDetails}, problems=("not-found",),
            is_open=True,
        ),
    )  # fmt: skip


async def _show_kind(call: HttpCall) -> HttpAnswer:
    """The title and the status of a kind of problem."""
    kind = call.path["kind"]
    if kind not in KINDS:
        raise Refusal("not-found", "there is no such kind of problem")
    return HttpAnswer(content=Refusal(kind, KINDS[kind].meaning).details(mount_of(call.scope)))


@cache
def _version() -> str:
    try:
        return metadata.version("hubbub")
    except metadata.PackageNotFoundError:
        return "0"


# ── types ────────────────────────────────────────────────────────────────────────────────────


def _schemas(routes: Iterable[Route]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The schema of each type of the table, and what these refer to."""
    types: dict[Any, None] = {ProblemDetails: None}
    for route in routes:
        for type_ in (route.body, *route.answers.values()):
            if type_ is not None and not isinstance(type_, Content):
                types[type_] = None
    made, components = msgspec.json.schema_components(
        types, schema_hook=_schema_of, ref_template="#/components/schemas/{name}"
    )
    for each in components.values():
        if "description" in each:
            each["description"] = inspect.cleandoc(each["description"])
    return dict(zip(types, made, strict=True)), components


def _schema_of(type_: type) -> dict[str, Any]:
    """What msgspec cannot describe by itself: a value that is written and never read."""
    if type_ is Secret:
        return {"type": "string", "format": "password", "writeOnly": True}
    if type_ is msgspec.Raw:
        return {}
    raise NotImplementedError(f"no schema of {type_.__name__}")


# ── operations ───────────────────────────────────────────────────────────────────────────────


def _operation(route: Route, schemas: Mapping[Any, Any], has_token: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _id_of(route),
        "summary": route.summary,
        "tags": [_tag_of(route)],
        "responses": _responses(route, schemas),
    }
    if parameters := [*_path_parameters(route), *_query_parameters(route), *_headers(route)]:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = _body(route, schemas)
    if has_token:
        needed: list[dict[str, list[str]]] = [{"token": []}, {"session": []}]
        operation["security"] = [] if route.is_open else needed
    return operation


def _method_of(route: Route) -> str:
    """The method of its request: a WebSocket begins as a ``GET``."""
    return "get" if route.method == "WEBSOCKET" else route.method.lower()


def _id_of(route: Route) -> str:
    words = re.findall(r"\w+", route.path.replace(":path}", "}"))
    return "_".join([_method_of(route), *(word for word in words if word != "api")])


def _tag_of(route: Route) -> str:
    words = [part for part in route.path.split("/") if part not in ("", "api")]
    return words[0] if words else "page"


def _path_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)(?::\w+)?}", route.path):
        yield {
            "name": name, "in": "path", "required": True,
            "schema": {"type": "string", "minLength": 1},
        }  # fmt: skip


def _query_parameters(route: Route) -> Iterable[dict[str, Any]]:
    if route.query is None:
        return
    (schema,), components = msgspec.json.schema_components([route.query])
    found = components[schema["$ref"].rpartition("/")[2]]
    required = found.get("required", ())
    for name, described in found["properties"].items():
        if described.get("type") == "boolean":  # ``?full`` and ``?full=1`` say the same as true.
            described = {"enum": [True, False, "1", "0", ""], "default": described["default"]}
        yield {"name": name, "in": "query", "required": name in required, "schema": described}


def _headers(route: Route) -> Iterable[dict[str, Any]]:
    if route.is_keyed:
        yield {
            "name": "Idempotency-Key", "in": "header", "required": False,
            "schema": {"type": "string", "maxLength": MAX_KEY},
            "description": "The same request with the same key is carried out once.",
        }  # fmt: skip


def _body(route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    if isinstance(route.body, Content):
        described: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
        return {"required": True, "content": {route.body.media_type: described}}
    content: dict[str, Any] = {JSON: {"schema": schemas[route.body]}}
    if route.form is not None:
        fields = {"type": "object", "additionalProperties": {"type": "string"}}
        content[FORM] = {"schema": fields}
    return {"required": _is_needed(route.body), "content": content}


def _is_needed(type_: Any) -> bool:
    """Whether nothing at all is no body of this type."""
    try:
        type_()
    except TypeError:
        return True
    return False


def _content(content: Content) -> dict[str, Any]:
    """The schema of what is no JSON."""
    if content.media_type != _STREAM:
        return {}
    return {
        "type": "string", "description": "Server-sent events; each `data:` is an event.",
        "contentMediaType": JSON, "contentSchema": {"$ref": "#/components/schemas/Event"},
    }  # fmt: skip


def _responses(route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, type_ in route.answers.items():
        described: dict[str, Any] = {"description": _WORDS.get(status, "OK")}
        if isinstance(type_, Content):
            described["description"] = type_.description
            described["content"] = {type_.media_type: {"schema": _content(type_)}}
        elif type_ is not None:
            described["content"] = {JSON: {"schema": schemas[type_]}}
        found[str(status)] = described
    kinds = [*route.problems, *_EVERYWHERE, *(_OF_BODIES if route.body is not None else ())]
    of_status: dict[int, list[str]] = {}
    for kind in dict.fromkeys(kinds):
        of_status.setdefault(KINDS[kind].status, []).append(kind)
    for status, names in sorted(of_status.items()):
        described = {"description": "; ".join(f"`{x}`: {KINDS[x].title}" for x in names)}
        described["content"] = {MEDIA_TYPE: {"schema": schemas[ProblemDetails]}}
        found.setdefault(str(status), described)
    return found
