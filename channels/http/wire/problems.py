"""Problems: what is wrong with a request, as RFC 9457 has it.

    a handler raises ──► ``refusal_of`` ──► Refusal(kind, detail) ──► application/problem+json

``KINDS`` is all there are.  A problem's ``type`` is ``/problems/KIND``, and its status that of its
kind.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.hub.errors import (
    BadPath,
    BadPattern,
    BadValue,
    CallerError,
    Closed,
    LimitExceeded,
    NoSuchFile,
    OperatorError,
    PromptClosed,
    RunEnded,
    UnknownAgent,
    UnknownRun,
    VariablesRefused,
)

__all__ = ["KINDS", "MEDIA_TYPE", "ProblemDetails", "ProblemKind", "Refusal", "refusal_of"]

MEDIA_TYPE: Final = "application/problem+json"


class ProblemKind(Struct, frozen=True):
    """A kind of problem: its status and its title."""

    status: int
    title: str


KINDS: Final[Mapping[str, ProblemKind]] = {
    "invalid-request": ProblemKind(400, "The request cannot be read"),
    "invalid-value": ProblemKind(400, "A value is not accepted"),
    "unauthorized": ProblemKind(401, "A token is needed"),
    "foreign-origin": ProblemKind(403, "Another site's page may not ask this"),
    "foreign-host": ProblemKind(403, "This server does not go by that name"),
    "beyond-loopback": ProblemKind(403, "Without a token only this machine is served"),
    "not-found": ProblemKind(404, "There is nothing here"),
    "unknown-run": ProblemKind(404, "There is no such run"),
    "unknown-agent": ProblemKind(404, "There is no such agent"),
    "unknown-conversation": ProblemKind(404, "There is no such open conversation"),
    "unknown-prompt": ProblemKind(404, "There is no such prompt"),
    "unknown-file": ProblemKind(404, "There is no such file"),
    "unknown-record": ProblemKind(404, "There is no such record"),
    "unknown-request": ProblemKind(404, "There is no such request for variables"),
    "method-not-allowed": ProblemKind(405, "The method is not offered here"),
    "slow-body": ProblemKind(408, "The body did not come in time"),
    "run-ended": ProblemKind(409, "The run is over"),
    "key-reused": ProblemKind(409, "The key was used for something else"),
    "ambiguous": ProblemKind(409, "There is more than one"),
    "prompt-over": ProblemKind(409, "The prompt is over"),
    "already-started": ProblemKind(409, "It has been started already"),
    "limit-reached": ProblemKind(409, "A limit of the runtime is reached"),
    "refused": ProblemKind(409, "It is refused"),
    "expired": ProblemKind(410, "It has expired"),
    "parent-ended": ProblemKind(410, "The run that asked is over"),
    "too-large": ProblemKind(413, "The body is too large"),
    "unsupported-media-type": ProblemKind(415, "A body of this type is not read"),
    "inbox-full": ProblemKind(429, "The run's inbox is full"),
    "too-many-requests": ProblemKind(429, "Too many requests"),
    "too-many-streams": ProblemKind(429, "Too many streams"),
    "internal-error": ProblemKind(500, "A defect in hubbub or in the program"),
    "closed": ProblemKind(503, "The hub is closed"),
    "no-runtime": ProblemKind(503, "No runtime is at work"),
    "store-failed": ProblemKind(503, "The store does not work"),
    "overloaded": ProblemKind(503, "Too much is at work"),
}
"""Every kind of problem that is ever answered."""


class ProblemDetails(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong, as RFC 9457 has it.

    ``type`` is a reference that names the kind of problem, ``detail`` a sentence about this one.
    ``names`` are the variables, and ``run_ids`` the runs, that it is about.
    """

    type: str
    title: str
    status: int
    detail: str = ""
    names: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()


class Refusal(CallerError):
    """A request is refused: the kind of problem, and a sentence about it."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more
        super().__init__(f"{kind}: {detail}")

    @property
    def status(self) -> int:
        """The status of the answer."""
        return KINDS[self.kind].status

    @property
    def details(self) -> ProblemDetails:
        """What is answered."""
        found = KINDS[self.kind]
        return ProblemDetails(
            type=f"/problems/{self.kind}", title=found.title, status=found.status,
            detail=self.detail, **self.more,
        )  # fmt: skip

    @property
    def body(self) -> bytes:
        """What is answered, as JSON."""
        return msgspec.json.encode(self.details)


_OF_VARIABLES: Final = {
    "unknown": "unknown-request", "booted": "already-started", "expired": "expired",
    "ended": "parent-ended", "cap": "limit-reached",
}  # fmt: skip

_OF_ERRORS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnknownRun, "unknown-run"),
    (UnknownAgent, "unknown-agent"),
    (RunEnded, "run-ended"),
    (Closed, "closed"),
    (NoSuchFile, "unknown-file"),
    (BadPath, "invalid-value"),
    (BadPattern, "invalid-value"),
    (BadValue, "invalid-value"),
    (LimitExceeded, "limit-reached"),
    (PromptClosed, "no-runtime"),
    (CallerError, "refused"),
    (OperatorError, "store-failed"),
)


def refusal_of(error: Exception) -> Refusal | None:
    """What an exception of the hub or of a runtime says; ``None`` for others, which are defects."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, VariablesRefused):
        kind = _OF_VARIABLES.get(error.kind, "invalid-value")
        return Refusal(kind, str(error), names=error.names)
    for type_, kind in _OF_ERRORS:
        if isinstance(error, type_):
            return Refusal(kind, str(error))
    return None
