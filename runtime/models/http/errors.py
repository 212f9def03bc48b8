"""What a provider's refusals and a broken connection mean, as ``ProviderError``.  Pure.

    status                        raised             kind
    ───────────────────────────   ────────────────   ──────────
    401, 403                      ModelRefused       auth
    408, 504                      ModelUnavailable   timeout
    429                           ModelUnavailable   rate_limit
    409, 425, 5xx (529 too)       ModelUnavailable   server
    3xx and every other           ModelRefused       request

    no connection, DNS, TLS       ModelUnavailable   connection
    any of httpx's timeouts       ModelUnavailable   timeout
    stream ends before its end    ModelUnavailable   cut
    JSON or events unreadable     ModelGarbled       garbled

No text made here holds a key: URLs are shown without userinfo, headers never, and what a provider
says is searched for the key before it is quoted.  Nor is the exception of httpx chained, since it
carries the request with its headers.
"""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from msgspec import Struct

from hubbub.hub.errors import ModelGarbled, ModelRefused, ModelUnavailable, ProviderError
from hubbub.hub.masking import Masker
from hubbub.hub.ports import SystemClock
from hubbub.hub.texts import readable
from hubbub.hub.values import Secret
from hubbub.runtime.models.http.halves import UNREADABLE, AnswerDecoder, encoded

__all__ = ["MAX_ERROR_BYTES", "ProviderOrigin", "error_message", "retry_after"]

MAX_ERROR_BYTES: Final = 64 * 1024
"""The most that is read of an error's body, or of an error inside an answer."""

MAX_QUOTE: Final = 500
"""The most characters quoted from a provider's own message."""

MAX_SCRUBBED: Final = 10_000
"""The most characters of it that are looked at, as blanks are left out of what is quoted."""

_decode_any: Final[AnswerDecoder[Any]] = AnswerDecoder(Any)


class ProviderOrigin(Struct, frozen=True):
    """Where an answer came from: what the sentences of errors need to know."""

    model: str
    url: str
    key_variable: str
    keyed: bool = False
    """Whether a key is sent along."""
    secrets: tuple[Secret, ...] = ()
    """What must not be quoted."""

    def refusal(
        self, status: int, message: str = "", headers: Mapping[str, str] | None = None
    ) -> ProviderError:
        """The error for an answer with ``status``; ``message`` is the provider's own."""
        said = self._quote(message)
        wait = retry_after(headers or {})
        if status in (401, 403):
            return ModelRefused(self.model, "auth", self._about_key(status, said), status=status)
        if status in (408, 409, 425, 429) or status >= 500:
            kind = {408: "timeout", 504: "timeout", 429: "rate_limit"}.get(status, "server")
            problem = f"{self.url} answered {status}{said}"
            return ModelUnavailable(self.model, kind, problem, status=status, retry_after=wait)
        remedy = ""
        if status == 404:
            remedy = "; check the model's name and the base URL"
        elif 300 <= status < 400:
            remedy = "; redirects are not followed, check the base URL"
        problem = f"{self.url} refused the request ({status}){said}{remedy}"
        return ModelRefused(self.model, "request", problem, status=status)

    def unreachable(self, kind: str, problem: str) -> ProviderError:
        return ModelUnavailable(self.model, kind, f"{self.url}: {self._scrub(problem)}")

    def unwritable(self, problem: str) -> ProviderError:
        return ModelRefused(self.model, "request", f"the request cannot be sent: {problem}")

    def not_a_model(self) -> ProviderError:
        problem = f"{self.url} answered with a web page; check the base URL"
        return ModelRefused(self.model, "request", problem)

    def cut(self, detail: str = "") -> ProviderError:
        problem = f"the stream from {self.url} ended early{self._quote(detail)}"
        return ModelUnavailable(self.model, "cut", problem)

    def garbled(self, detail: str) -> ProviderError:
        problem = f"{self.url} sent what cannot be read{self._quote(detail)}"
        return ModelGarbled(self.model, "garbled", problem)

    def too_large(self, most: int) -> ProviderError:
        return self.garbled(f"the answer is larger than {most} bytes")

    def _about_key(self, status: int, said: str) -> str:
        variable = self.key_variable
        if not self.keyed:
            return (
                f"{self.url} asks for a key ({status}) and none was sent; set {variable}, and "
                "the base URL's variable beside it, or pass key="
            )
        # A 401 often quotes a part of the key, so only a 403 is repeated.
        quoted = said if status == 403 else ""
        return f"{self.url} refused the key ({status}){quoted}; check {variable} or key="

    def _quote(self, message: str) -> str:
        text = " ".join(_without_control(self._scrub(message)).split())
        if len(text) > MAX_QUOTE:
            text = text[:MAX_QUOTE] + "…"
        return f": {text}" if text else ""

    def _scrub(self, text: str) -> str:
        """The beginning of ``text``, without a secret that begins in it, nor a part of one."""
        return Masker([secret.reveal() or "" for secret in self.secrets])(text, MAX_SCRUBBED)


def _without_control(text: str) -> str:
    """Nothing that a terminal would obey."""
    return "".join([each if each.isprintable() else " " for each in text])


def error_message(body: bytes) -> str:
    """The provider's own words out of an error's body, in any of the usual shapes; of one that is
    larger than ``MAX_ERROR_BYTES``, its beginning."""
    body = body[:MAX_ERROR_BYTES]
    try:
        found = _decode_any(body)
    except UNREADABLE:
        return body.decode(errors="replace")
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(name):
            found = found[name]
    return readable(found) if isinstance(found, str) else encoded(found).decode()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds a provider asks to wait: ``retry-after-ms``, else ``retry-after``."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        if (text := headers.get(name)) is None:
            continue
        try:
            seconds = float(text.encode("ascii")) / scale
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    date = _timestamp(headers.get("retry-after"))
    if date is None:
        return None
    # The provider's own clock, where it tells it: then ours may be wrong by hours.
    sent = _timestamp(headers.get("date"))
    return max(date - (SystemClock().now() / 1e6 if sent is None else sent), 0.0)


def _timestamp(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
