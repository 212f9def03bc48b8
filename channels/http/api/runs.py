"""Runs: what there are, what each is at, and how one is opened."""

import hashlib
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct

from hubbub.channels.http.api.limits import LimitsBody, limits_of
from hubbub.channels.http.api.messages import MessageBody, keyed
from hubbub.channels.http.api.views import ReportView, StateView, TreesView
from hubbub.channels.http.wire.host import SOURCE
from hubbub.channels.http.wire.objects import JsonObject, object_in
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.receipts import RECEIPTS, REJECTIONS, answer_of
from hubbub.channels.http.wire.route import Content, HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime, found_by_runtime
from hubbub.channels.http.wire.tools import GivenToolBody, tools_given
from hubbub.hub.events.descriptors import MAX_GIVEN_CHARS
from hubbub.hub.masking.safe_repr import SafeRepr
from hubbub.hub.message import Message
from hubbub.hub.values import Secret

__all__ = ["ROUTES", "OpenBody"]


class RunsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which trees of runs: with ``ended`` also those without a live run."""

    ended: bool = False
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


class ReportQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much: with ``full`` the whole conversation."""

    full: bool = False


class StateQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """After which record of the run's own lane; by default after the last one."""

    record: Annotated[int, Meta(ge=0, le=10**15)] | None = None


class OpenBody(SafeRepr, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run is opened with.

    Without ``agent`` it is the runtime's default agent.  ``session_key``, ``run_id`` or
    ``descriptor`` find the run that there is.  ``input`` is what it is started with, or
    ``message`` is, which has a key.  ``once`` ends it with its first session, ``timeout`` (seconds)
    bounds it.  ``env`` gives it values of variables, which appear nowhere: a run that is found gets
    those that it lacks, and the opening is refused if it has another value of one.  ``history`` is
    what was said before (chat completions form), ``tools`` are external ones that it has beside its
    agent's.  ``limits`` are what it and all runs below it may use, together.

    With the header ``Idempotency-Key`` the same opening again is a duplicate, also when the run is
    over, and another one is refused.
    """

    agent: str = ""
    input: Any = None
    message: MessageBody | None = None
    session_key: str = ""
    run_id: str | None = None
    name: str = ""
    correlation_id: str = ""
    once: bool = False
    timeout: float | None = None
    env: dict[str, Secret] = {}
    descriptor: JsonObject = UNSET
    history: tuple[dict[str, Any], ...] = ()
    tools: tuple[GivenToolBody, ...] = ()
    limits: LimitsBody | None = None


async def list_runs(call: HttpCall) -> HttpAnswer:
    """Trees of runs, the newest first."""
    return HttpAnswer(content=await ask_runtime(call.hub, "trees", _json(call.query)))


async def open_run(call: HttpCall) -> HttpAnswer:
    """Open a run, or find the one that there is."""
    body: OpenBody = call.body
    if body.message is not None and body.input is not None:
        raise Refusal("invalid-value", "give one of input and message")
    descriptor = object_in("descriptor", body.descriptor, MAX_GIVEN_CHARS)
    tools = tools_given(body.tools)
    key = call.key
    said = body.input if body.message is None else keyed(call, body.message)
    if key and isinstance(said, str):
        said = Message(content=said, key=key)
    run_id = body.run_id
    if key and not (run_id or body.session_key or descriptor):
        run_id = _id_of(key)
    receipt = call.hub.open(
        body.agent, said, run_id=run_id, session_key=body.session_key,
        correlation_id=body.correlation_id, name=body.name, once=body.once, timeout=body.timeout,
        descriptor=descriptor, source=SOURCE,
        env={name: value.reveal() or "" for name, value in body.env.items()} or None,
        history=body.history or None, tools=tools or None,
        limits=limits_of(body.limits), request=call.request("runs"),
    )  # fmt: skip
    return await answer_of(receipt)


def _id_of(key: str) -> str:
    """The run that an opening without another address has by its key: a UUID of version 8."""
    digest = hashlib.sha256(f"{SOURCE}\0{key}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-a{digest[17:20]}-{digest[20:32]}"


async def show_run(call: HttpCall) -> HttpAnswer:
    """Everything about a run."""
    return await _about(call, "report", _json(call.query))


async def show_state(call: HttpCall) -> HttpAnswer:
    """The state of a run after one of its records."""
    record = call.query.record
    run_id = call.path["run_id"]
    await found_by_runtime(call.hub, "unknown-run", "run", run_id)
    if record is None:
        return await _about(call, "state")
    found = await ask_runtime(call.hub, "state", run_id, str(record))
    if found is None:
        raise Refusal("unknown-record", f"the run has no record {record}")
    return HttpAnswer(content=found)


async def export_test(call: HttpCall) -> HttpAnswer:
    """The run as a test: a pytest file."""
    found = await found_by_runtime(call.hub, "unknown-run", "test", call.path["run_id"])
    return _file(found["text"], found["name"], "text/x-python; charset=utf-8")


async def export_recording(call: HttpCall) -> HttpAnswer:
    """What the test plays, to be put beside it."""
    found = await found_by_runtime(call.hub, "unknown-run", "test", call.path["run_id"])
    return _file(found["recording"], found["recording_name"], "application/jsonl")


async def _about(call: HttpCall, verb: str, *more: str) -> HttpAnswer:
    run_id = call.path["run_id"]
    return HttpAnswer(content=await found_by_runtime(call.hub, "unknown-run", verb, run_id, *more))


def _file(text: str, name: str, media_type: str) -> HttpAnswer:
    return HttpAnswer(
        content=text.encode(), media_type=media_type,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )  # fmt: skip


def _json(query: Struct) -> str:
    return msgspec.json.encode(query).decode()


ROUTES: Final = (
    Route(
        method="GET", path="/api/runs", summary="Trees of runs, the newest first",
        handler=list_runs, query=RunsQuery, answers={200: TreesView}, problems=("no-runtime",),
    ),
    Route(
        method="POST", path="/api/runs", summary="Open a run, or find the one that there is",
        handler=open_run, body=OpenBody, is_keyed=True, answers=RECEIPTS,
        problems=("unknown-agent", "unknown-file", *REJECTIONS),
    ),
    Route(
        method="GET", path="/api/runs/{run_id}", summary="Everything about a run",
        handler=show_run, query=ReportQuery, answers={200: ReportView},
        problems=("unknown-run", "no-runtime"),
    ),
    Route(
        method="GET", path="/api/runs/{run_id}/state",
        summary="The state of a run after one of its records", handler=show_state,
        query=StateQuery, answers={200: StateView},
        problems=("unknown-run", "unknown-record", "no-runtime"),
    ),
    Route(
        method="GET", path="/api/runs/{run_id}/test", summary="A root as a test of pytest",
        handler=export_test, answers={200: Content("text/x-python", "the test")},
        problems=("unknown-run", "no-runtime"),
    ),
    Route(
        method="GET", path="/api/runs/{run_id}/test/recording",
        summary="What the test plays again", handler=export_recording,
        answers={200: Content("application/jsonl", "the recording")},
        problems=("unknown-run", "no-runtime"),
    ),
)  # fmt: skip
