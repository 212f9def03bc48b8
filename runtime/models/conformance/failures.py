"""What a model makes of refusals, broken streams and its caller's leaving; what it never shows."""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import msgspec

from hubbub.agents.model import Delta
from hubbub.hub.errors import ModelGarbled, ModelRefused, ModelUnavailable, ProviderError
from hubbub.runtime.models.conformance.samples import HELLO, REPLY
from hubbub.runtime.models.conformance.server import ServerAnswer, serving
from hubbub.runtime.models.conformance.wire import (
    ClosableModel,
    ProviderCheck,
    ProviderWire,
    model_at,
)
from hubbub.runtime.models.http.sse import EventTooLarge

__all__ = ["FAILURE_CHECKS"]

KEY: Final = "sk-very-secret-0123456789"
MAX_SECONDS: Final = 5
"""What a call may take that is to fail at once."""

_STATUSES: Final = {
    301: (ModelRefused, "request"),
    400: (ModelRefused, "request"),
    401: (ModelRefused, "auth"),
    403: (ModelRefused, "auth"),
    404: (ModelRefused, "request"),
    408: (ModelUnavailable, "timeout"),
    409: (ModelUnavailable, "server"),
    413: (ModelRefused, "request"),
    422: (ModelRefused, "request"),
    425: (ModelUnavailable, "server"),
    429: (ModelUnavailable, "rate_limit"),
    500: (ModelUnavailable, "server"),
    503: (ModelUnavailable, "server"),
    504: (ModelUnavailable, "timeout"),
    529: (ModelUnavailable, "server"),
}


async def check_each_status_has_one_meaning(wire: ProviderWire) -> None:
    """Refused or worth another try; the provider's words are quoted without the key."""
    body = b'{"type":"error","error":{"type":"x","message":"because of %s"}}' % KEY.encode()
    headers = {"content-type": "application/json", "retry-after": "7", "location": "/elsewhere"}
    for status, (error, kind) in _STATUSES.items():
        found = await _failure(wire, ServerAnswer([body], status=status, headers=headers))
        assert type(found) is error, status
        assert (found.kind, found.status) == (kind, status)
        assert found.retry_after == (7.0 if error is ModelUnavailable else None), status
        if kind == "auth":
            assert wire.provider.key_variable in str(found)
        # A 401 often quotes a part of the key.
        assert ("because of ***" in str(found)) == (status != 401)
        if status == 404:
            assert "check the model's name and the base URL" in str(found)


async def check_a_stream_cut_at_any_event_is_worth_another_try(wire: ProviderWire) -> None:
    """However the connection ends, and be it inside of an event."""
    events = wire.stream(wire.carried(REPLY))
    complete = len(events) - wire.final_events
    few = sorted({0, 1, complete // 2, complete})
    for end, places in {"close": range(complete + 1), "whole": few, "cut": few}.items():
        answers = [ServerAnswer(events[:place], end=end) for place in places]
        answers.append(ServerAnswer([*events[:2], events[2][:20]], end=end))
        async with serving(*answers) as server, model_at(wire, server, key=KEY) as model:
            for place in (*places, "inside"):
                found = await _failed_call(model)
                assert (type(found), found.kind) == (ModelUnavailable, "cut"), (end, place)


async def check_what_cannot_be_read_is_garbled(wire: ProviderWire) -> None:
    """The call ends at once, not when the server hangs up."""
    first = wire.stream(REPLY)[0]
    for bad in (b"data: {not json}\n\n", b"data: \xff\xfe\n\n", *wire.unreadable):
        found = await _failure(wire, ServerAnswer([first, bad], end="hold"))
        assert type(found) is ModelGarbled, bad
        assert "event 2" in str(found)


async def check_a_server_that_is_not_there_is_named(wire: ProviderWire) -> None:
    """The sentence has the address and asks the obvious question."""
    async with serving() as server:
        gone = server
    async with model_at(wire, gone, key=KEY) as model:
        found = await _failed_call(model)
    assert (type(found), found.kind) == (ModelUnavailable, "connection")
    assert gone.url in str(found)
    assert "is the server running" in str(found)


async def check_cancellation_closes_the_connection(wire: ProviderWire) -> None:
    """Before the first event and amid the stream."""
    for sent in (0, 2):
        answer = ServerAnswer(wire.stream(REPLY)[:sent], end="hold")
        async with serving(answer) as server, model_at(wire, server) as model:
            with anyio.fail_after(MAX_SECONDS):
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as group:
                        group.start_soon(model.call, HELLO)
                        await server.asked.wait()
                        await anyio.wait_all_tasks_blocked()
                        scope.cancel()
                await server.client_left.wait()
            assert scope.cancelled_caught


async def check_a_listener_that_raises_ends_the_call(wire: ProviderWire) -> None:
    """With its own exception."""

    def broken(_: Delta) -> None:
        raise ZeroDivisionError

    answer = ServerAnswer(wire.stream(REPLY), end="hold")
    async with serving(answer) as server, model_at(wire, server) as model:
        with anyio.fail_after(MAX_SECONDS):
            try:
                await model.call(HELLO, broken)
            except ZeroDivisionError:
                return
    raise AssertionError("the exception of on_delta is lost")


async def check_the_key_reaches_the_provider_and_nobody_else(wire: ProviderWire) -> None:
    """Not the log, not the model's ``repr``, no error and no traceback with local variables."""
    answers = (
        ServerAnswer(wire.stream(REPLY)), ServerAnswer(status=500), ServerAnswer(end="cut")
    )  # fmt: skip
    with _logged() as records:
        async with serving(*answers) as server, model_at(wire, server, key=KEY) as model:
            await model.call(HELLO)
            for _ in range(2):
                await _failed_call(model)
            parts = [vars(each) for each in vars(model).values() if hasattr(each, "__dict__")]
            shown = f"{model} {model!r} {vars(model)} {parts}"
            sent = server.requests[0]
    assert KEY not in shown
    assert KEY not in repr([(record.getMessage(), vars(record)) for record in records])
    assert sent.headers[wire.key_header].endswith(KEY)
    assert KEY not in sent.body.decode()


async def _failure(wire: ProviderWire, answer: ServerAnswer) -> ProviderError:
    """The error that ``answer`` comes to."""
    async with serving(answer) as server, model_at(wire, server, key=KEY) as model:
        found = await _failed_call(model)
        assert len(server.requests) == 1, "one attempt a call"
    return found


async def _failed_call(model: ClosableModel) -> ProviderError:
    """The error of a call, from which nobody learns the key."""
    with anyio.fail_after(MAX_SECONDS):
        try:
            reply = await model.call(HELLO)
        except ProviderError as error:
            _check_no_key_in(error)
            return error
    raise AssertionError(f"no error, but {reply!r}")


def _check_no_key_in(error: BaseException) -> None:
    """Not in the error, nor in what a traceback with local variables would print."""
    assert KEY not in f"{error} {error!r} {vars(error)}"
    assert error.__cause__ is None
    # No exception of an HTTP client behind it either: those hold the request with its headers.
    assert isinstance(error.__context__, msgspec.DecodeError | UnicodeError | EventTooLarge | None)
    own = __name__.rpartition(".")[0]
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    theirs = [f.f_locals for f in frames if not f.f_globals["__name__"].startswith(own)]
    assert theirs
    assert KEY not in repr(theirs)


class _Keeping(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@contextmanager
def _logged() -> Iterator[list[logging.LogRecord]]:
    """What is logged meanwhile, at every level."""
    records: list[logging.LogRecord] = []
    root = logging.getLogger()
    handler = _Keeping(records)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield records
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


FAILURE_CHECKS: Final[tuple[ProviderCheck, ...]] = (
    check_each_status_has_one_meaning,
    check_a_stream_cut_at_any_event_is_worth_another_try,
    check_what_cannot_be_read_is_garbled,
    check_a_server_that_is_not_there_is_named,
    check_cancellation_closes_the_connection,
    check_a_listener_that_raises_ends_the_call,
    check_the_key_reaches_the_provider_and_nobody_else,
)
"""What ends a call, and what is never shown."""
