"""``Refused``: what is wrong with a request, in the form of OpenAI's API.

{"error": {"message": …, "type": …, "param": …, "code": …}}

400  invalid_request_error   what was sent cannot be read, or is not accepted
404  invalid_request_error   model_not_found; no such response
409  invalid_request_error   the run cannot take it now
413  invalid_request_error   too large
429  rate_limit_error        its inbox is full
502  server_error            the agent failed
503  server_error            the hub is closed, its store failed, or nobody runs agents
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.errors import (
    BadValue,
    CallerError,
    Closed,
    OperatorError,
    PromptClosed,
    StoreFailed,
    UnknownAgent,
)
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.receipt import Receipt

__all__ = ["JsonAnswer", "Refused", "error_body", "refused_by", "refused_of", "unknown_model"]


class Refused(CopiedWhole, Exception):
    """A request is refused.

    ``is_heard``: it has had its effects, and would have them again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        is_heard: bool = False,
    ) -> None:
        message = message or HTTPStatus(status).phrase  # A client shows nothing else.
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.is_heard = is_heard


class JsonAnswer:
    """An answer that is JSON, as an ASGI app."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers

    @staticmethod
    def of(refused: Refused) -> "JsonAnswer":
        """The answer that says what is wrong."""
        headers: dict[str, str] = {}
        if refused.status >= 500:
            # The official clients would otherwise repeat what may have had its effects.
            may_retry = refused.status == 503 and not refused.is_heard
            headers["x-should-retry"] = "true" if may_retry else "false"
        if refused.status == 503:
            headers["retry-after"] = "1"
        body = error_body(refused.status, refused.message, refused.param, refused.code)
        return JsonAnswer(body, refused.status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = {
            "content-type": "application/json", "content-length": str(len(self.body)),
            "cache-control": "no-store", "x-content-type-options": "nosniff", **self.headers,
        }  # fmt: skip
        await send({
            "type": "http.response.start", "status": self.status,
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
        })  # fmt: skip
        shown = b"" if scope["method"] == "HEAD" else self.body
        await send({"type": "http.response.body", "body": shown})


def error_body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> bytes:
    """The body of a refusal."""
    type_ = "invalid_request_error"
    if status >= 500:
        type_ = "server_error"
    elif status == 429:
        type_ = "rate_limit_error"
    elif status in (401, 403):
        type_ = "authentication_error" if status == 401 else "permission_error"
    error: dict[str, Any] = {"message": message, "type": type_, "param": param, "code": code}
    return msgspec.json.encode({"error": error})


_REJECTIONS: Final = {
    "unknown": (404, "there is no such run"),
    "ended": (409, "the conversation is over"),
    "terminated": (409, "the conversation is over"),
    "inbox full": (429, "too many messages wait; try again later"),
    "key reused": (409, "the Idempotency-Key was used for something else"),
    "hub closed": (503, "the service is shutting down"),
}


def refused_by(receipt: Receipt) -> Refused:
    """Why something that was sent was rejected."""
    if receipt.failed_store:
        return Refused(503, "the store has failed")
    status, message = _REJECTIONS.get(receipt.reason, (400, receipt.explanation))
    return Refused(status, message)


def refused_of(error: Exception) -> Refused | None:
    """What an error of the hub means for a client; ``None`` where others see to it."""
    match error:
        case Refused():
            return error
        case Refusal():
            return None  # The app answers it.
        case StoreFailed():
            return Refused(503, "the store has failed")
        case Closed() | PromptClosed():
            return Refused(503, "the service is shutting down")
        case UnknownAgent():
            return Refused(404, str(error), param="model", code="model_not_found")
        case BadValue():
            return Refused(400, str(error))
        case CallerError():
            return Refused(400, str(error))
        case OperatorError():
            return Refused(503, "the service cannot do this now; its log says why")
        case _:
            return None


def unknown_model(name: str) -> Refused:
    """There is no such agent."""
    return Refused(
        404, f"The model '{name[:200]}' does not exist: there is no such agent.", param="model",
        code="model_not_found",
    )  # fmt: skip
