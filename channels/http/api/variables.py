"""Variables that a subagent waits for: asked by a program, or by a person with a browser.

The names are shown, a value never is: it goes from the request to the runtime as a ``Secret``.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from hubbub.channels.http.api.variables_page import page
from hubbub.channels.http.api.views import VariableRequestView
from hubbub.channels.http.wire.problems import Refusal, refusal_of
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime, one_word
from hubbub.hub.values import Secret

__all__ = ["ROUTES", "PendingView", "VariablesBody"]


class PendingView(Struct, frozen=True, kw_only=True):
    """Which variables a subagent needs, and which of them have no value yet."""

    request_id: str
    required: tuple[str, ...]
    missing: tuple[str, ...]


class VariablesBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values by name."""

    variables: dict[str, Secret]


class StartedView(Struct, frozen=True, kw_only=True):
    """The run that was started with them."""

    reference: str


class VariableRequests(Struct, frozen=True):
    """What all runs wait for, the oldest first."""

    requests: tuple[VariableRequestView, ...]


async def list_requests(call: HttpCall) -> HttpAnswer:
    """The variables that subagents wait for."""
    return HttpAnswer(content={"requests": await ask_runtime(call.hub, "requests")})


async def show_variables(call: HttpCall) -> HttpAnswer:
    """Which variables are wanted; for a browser, a form."""
    try:
        found = await _pending(call)
    except Exception as error:
        return _failed(call, error, {})
    if _is_browser(call):
        return page(found)
    view = PendingView(
        request_id=found["request_id"], required=found["required"], missing=found["missing"]
    )
    return HttpAnswer(content=view)


async def provide_variables(call: HttpCall) -> HttpAnswer:
    """Give the values and start the subagent, once."""
    values: Mapping[str, Secret] = call.body.variables
    found: Mapping[str, Any] = {}
    try:
        if _is_browser(call):
            found = await _pending(call)
            # What has a value already and was left empty stays as it is.
            values = {
                name: x for name, x in values.items() if x.reveal() or name in found["missing"]
            }
        started = await ask_runtime(
            call.hub, "provide", one_word(call.path["parent"], "unknown-request"),
            call.path["request_id"], given=values,
        )  # fmt: skip
    except Exception as error:
        return _failed(call, error, found)
    return page(found, done=True) if _is_browser(call) else HttpAnswer(content=started)


def form_body(fields: Mapping[str, str]) -> VariablesBody:
    """What a form has sent."""
    return VariablesBody(variables={name: Secret(value) for name, value in fields.items()})


async def _pending(call: HttpCall) -> Any:
    parent = one_word(call.path["parent"], "unknown-request")
    return await ask_runtime(call.hub, "variables", parent, call.path["request_id"])


def _failed(call: HttpCall, error: Exception, found: Mapping[str, Any]) -> HttpAnswer:
    refusal = refusal_of(error)
    if refusal is None or not _is_browser(call):
        raise error
    if refusal.kind == "unknown-run":
        refusal = Refusal("unknown-request", refusal.detail)
    return page(found, refusal=refusal)


def _is_browser(call: HttpCall) -> bool:
    return "text/html" in call.header(b"accept")


_PROBLEMS: Final = (
    "unknown-request", "already-started", "limit-reached", "expired", "parent-ended", "no-runtime",
)  # fmt: skip

ROUTES: Final = (
    Route(
        method="GET", path="/api/variables", summary="The variables that subagents wait for",
        handler=list_requests, answers={200: VariableRequests}, problems=("no-runtime",),
    ),
    Route(
        method="GET", path="/threads/{parent}/variables/{request_id}",
        summary="Which variables a subagent waits for", handler=show_variables,
        answers={200: PendingView}, problems=_PROBLEMS,
    ),
    Route(
        method="POST", path="/threads/{parent}/variables/{request_id}",
        summary="Give the variables and start the subagent", handler=provide_variables,
        body=VariablesBody, form=form_body, answers={200: StartedView}, problems=_PROBLEMS,
    ),
)  # fmt: skip
