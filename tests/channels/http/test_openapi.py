"""The OpenAPI document says what there is, and requests made from it are answered as it says."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from http_apps import served
from hypothesis import HealthCheck, Phase, core, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from hypothesis.internal.conjecture import engine
from hypothesis.vendor import pretty
from support.profiles import examples
from support.schema_requests import schemathesis

from hubbub import Agent, FunctionModel
from hubbub.channels.http import HttpApp, HttpLimits
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports

LIMITS = HttpLimits(rate=1_000_000, burst=1_000_000, file_bytes=1 << 20)


@pytest.mark.anyio
async def test_every_route_is_in_the_document_with_its_parameters_and_statuses(
    ports: Ports,
) -> None:
    async with served(ports, token="t") as (_, app, client):
        answer = await client.get("/api/openapi.json", headers={"Authorization": "Bearer t"})
        found = answer.json()
    for route in app.routes:
        if not route.is_documented:
            continue
        path = route.path.replace(":path}", "}")
        method = route.method.lower().replace("websocket", "get")  # As which it begins.
        operation = found["paths"][path][method]
        named = {x["name"] for x in operation.get("parameters", []) if x["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)", route.path))
        assert {str(status) for status in route.answers} <= set(operation["responses"])
        assert operation["summary"] and operation["operationId"]
    ids = [x["operationId"] for path in found["paths"].values() for x in path.values()]
    assert len(ids) == len(set(ids))
    stream = found["paths"]["/api/events"]["get"]["responses"]["200"]["content"]
    assert stream["text/event-stream"]["schema"]["contentSchema"]["$ref"].endswith("/Event")
    types = found["components"]["schemas"]["Event"]["properties"]["type"]["anyOf"][0]["enum"]
    assert {"agent:text", "agent:text:delta", "hub:gap"} < {*types}
    assert set(found["components"]["schemas"]["Event"]["properties"]) == {
        "type",
        *Event.__struct_fields__,
    }
    bare = [
        (name, field)
        for name, schema in found["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if field in ("status", "phase", "kind", "inbox", "usage")
        and not {"enum", "$ref", "anyOf"} & {*described}
    ]
    # A problem's status is a number, and what a run says of its own state is any text.
    words = {"ProblemDetails", "ScheduleView", "Health", "StateView"}
    assert {name for name, _ in bare} <= words, bare


class Site:
    """An app in a loop of its own, for requests from plain code."""

    def __init__(self, portal: BlockingPortal, app: HttpApp, client: httpx.AsyncClient) -> None:
        self._portal = portal
        self._client = client
        self.document = self.request(method="GET", url="/api/openapi.json").json()
        body = {"agent": "support", "input": "refund", "session_key": "k"}
        self.run_id = self.request(method="POST", url="/api/runs", json=body).json()["run_id"]
        self.app = app

    def request(self, **how: Any) -> httpx.Response:
        return self._portal.call(lambda: self._bounded(how))

    async def _bounded(self, how: dict[str, Any]) -> httpx.Response:
        with anyio.fail_after(20):
            return await self._client.request(**how)


@contextmanager
def site(backend: str) -> Iterator[Site]:
    agent = Agent("support", "You help.", model=FunctionModel(lambda request: "Hello."))
    with start_blocking_portal(backend) as portal:
        opened = served(Ports(), agent, limits=LIMITS)
        with portal.wrap_async_context_manager(opened) as (_, app, client):
            yield Site(portal, app, client)


@pytest.mark.spec("W-02")
@pytest.mark.parametrize("backend", ["asyncio", pytest.param("trio", marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", ["positive", pytest.param("negative", marks=pytest.mark.long)])
def test_whatever_is_asked_is_answered_as_the_document_says(backend: str, mode: str) -> None:
    with schemathesis() as library, site(backend) as opened:
        schema = library.openapi.from_dict(opened.document)
        streams = {route.path for route in opened.app.routes if route.is_stream}
        for result in schema.get_all_operations():
            operation = result.ok()
            needs = operation.definition.raw
            if operation.path in streams or not (needs.get("parameters") or "requestBody" in needs):
                continue
            check(opened, operation, library.GenerationMode(mode))


def check(opened: Site, operation: Any, mode: Any) -> None:
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    @given(case=operation.as_strategy(generation_mode=mode), is_known=st.booleans())
    @settings(
        max_examples=examples(20), deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def answered(case: Any, is_known: bool) -> None:
        for name in ("run_id", "parent"):
            if is_known and name in (case.path_parameters or {}):
                case.path_parameters[name] = opened.run_id
        how = case.as_transport_kwargs(base_url="http://localhost")
        how = {k: v for k, v in how.items() if v is not None and k != "cookies"}
        if isinstance(how.get("data"), bytes | str):
            how["content"] = how.pop("data")
        try:
            answer = opened.request(**how)
        except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError, TypeError):
            return  # No client can send it.
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        # That a name holds no NUL, or is one that there is, no schema says.
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    with suppress(Unsatisfiable):  # Of some there is nothing that a schema would refuse.
        answered()


def test_what_fails_after_it_shows_its_example_and_draws_as_much_as_before() -> None:
    bounds = engine.BUFFER_SIZE, core.BUFFER_SIZE
    with schemathesis():
        assert core.RepresentationPrinter is not pretty.RepresentationPrinter

    @given(drawn=st.text())
    @settings(database=None)
    def fails(drawn: str) -> None:
        assert "b" not in drawn + "b"

    with pytest.raises(AssertionError) as failure:
        fails()
    assert "drawn=''," in str(failure.value.__notes__)
    assert bounds == (engine.BUFFER_SIZE, core.BUFFER_SIZE)
