"""When a failed model call is tried again, and after how long.

* Only what may pass is retried: rate limits, server errors, lost connections, cut streams,
  timeouts, garbled answers; a refusal never.
* At most ``MAX_RETRIES`` times a step; an empty answer once.
* The provider's ``Retry-After`` is honoured up to ``MAX_WAIT``; a longer one fails the step at
  once, so that nobody waits for an hour unawares.  Otherwise the delay doubles, with jitter; it
  does so, too, where the provider asks for less than that is at least, maybe for no wait at all.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from hubbub.hub.values import Form

__all__ = [
    "MAX_RETRIES", "MAX_WAIT", "REQUEST", "SETUP", "Failure", "Refused", "failure_problem",
    "refused_by", "retry_delay",
]  # fmt: skip

MAX_RETRIES: Final = 4
MAX_WAIT: Final = 120.0
SETUP: Final = "setup"
"""The kind of what fails before a model is asked, as it would with any other."""
REQUEST: Final = "request"
"""The kind of what a provider does not accept as it is."""
_OF_CONTENT: Final = (400, 413, 422)
"""The statuses that say so of what is in it: not of its key, its address or its model."""
_TOO_LONG: Final = (
    "context length", "context_length", "context window", "prompt is too long", "input is too long",
    "too many tokens", "maximum number of tokens", "request_too_large", "reduce the length",
    "string_above_max_length",
)  # fmt: skip
"""What providers say of a request that is too long, in small letters."""
_FIRST: Final = 0.5
_LONGEST: Final = 30.0


Refused: TypeAlias = Literal["", "request", "length"]
"""What a provider has refused: nothing, a request for what is in it, or for how long it is."""


class Failure(Struct, frozen=True, gc=False, kw_only=True):
    """A failed model call, as data.  ``jitter`` is a random number in [0, 1)."""

    kind: str
    error: str
    retryable: bool
    retry_after: float | None = None
    jitter: float = 0.0
    refused: Refused = ""


_FAILURE: Final = Form(Failure)


def failure_problem(failure: Failure) -> str:
    """Why what a model raised says nothing that could be kept; else empty."""
    return _FAILURE.problem(failure)


def refused_by(kind: str, status: int | None, words: str) -> Refused:
    """What a provider has refused that failed with these."""
    if kind != REQUEST or status not in _OF_CONTENT:
        return ""
    said = words.lower()
    return "length" if status == 413 or any(each in said for each in _TOO_LONG) else "request"


def retry_delay(failure: Failure, attempt: int) -> float | None:
    """Seconds until the attempt after ``attempt``, or ``None`` when there is none."""
    limit = 1 if failure.kind == "empty" else MAX_RETRIES
    if not failure.retryable or attempt > limit:
        return None
    least = min(_FIRST * 2.0 ** (attempt - 1), _LONGEST) / 2
    if failure.retry_after is not None and failure.retry_after >= least:
        return failure.retry_after if failure.retry_after <= MAX_WAIT else None
    return least * (1 + failure.jitter)
