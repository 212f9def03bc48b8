"""Problems: what is wrong with a request, as RFC 9457 has it.

    a handler raises ──► ``refusal_of`` ──► Refusal(kind, detail) ──► application/problem+json

A problem's ``type`` is ``/problems/KIND`` below where the app is mounted, and its status that of
its kind (``problem_kinds``).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.channels.http.wire.problem_kinds import KINDS
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

__all__ = ["MEDIA_TYPE", "ClientGone", "ProblemDetails", "Refusal", "refusal_of"]

MEDIA_TYPE: Final = "application/problem+json"


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


class ClientGone(Exception):
    """The client has left, in the middle of its body or of the answer: there is nobody to tell."""


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

    def details(self, mount: str = "") -> ProblemDetails:
        """What is answered by an app that is mounted there (``mount_of``)."""
        found = KINDS[self.kind]
        return ProblemDetails(
            type=f"{mount}/problems/{self.kind}", title=found.title, status=found.status,
            detail=self.detail, **self.more,
        )  # fmt: skip

    def body(self, mount: str = "") -> bytes:
        """What is answered, as JSON."""
        return msgspec.json.encode(self.details(mount))


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
