"""The library's logger.

structlog is imported at the first message, not with the package, and is never configured here:
that is the application's part.  Until the application configures structlog, messages go to the
standard library's logging under the name ``hubbub``, each record with ``hubbub_event`` and
``hubbub_fields``.  No handler is attached to that: a program that configures nothing sees warnings
and errors by logging's last resort, on stderr.

Nothing that is logged raises: neither what an exception's class does, nor the application's part.

A simulated world takes what is logged in its thread (``divert``): it belongs to its history.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import local
from typing import Any, Final, TypeAlias

from hubbub.hub.masking import Masker

__all__ = ["Log", "LogSink", "log"]

LogSink: TypeAlias = Callable[[str, str, Mapping[str, Any]], object]
"""Takes level, event and fields of a message."""


class Log:
    """``log.info("run.started", run_id=…)``: events are ``noun.verb`` in the past tense."""

    def __init__(self) -> None:
        self._here = _Here()

    def divert(self, sink: LogSink) -> Callable[[], None]:
        """Hand what this thread logs to ``sink`` and to nobody else.

        Until what is returned is called, which may be done in any order and more than once: of
        several sinks the latest that is left takes it all.
        """
        sinks = self._here.sinks

        def end() -> None:
            sinks[:] = [each for each in sinks if each is not sink]

        sinks.append(sink)
        return end

    @contextmanager
    def ended_diversions(self) -> Iterator[None]:
        """End at the end whatever was diverted within, also by what was cut off before it could."""
        sinks = self._here.sinks
        before = [*sinks]
        try:
            yield
        finally:
            sinks[:] = before

    @cached_property
    def _logger(self) -> Any:
        import structlog

        return structlog

    def _emit(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if (error := fields.get("exc_info")) is not None:
            fields["exc_info"] = _AS_IT_IS.error(error)
        if self._here.sinks:
            self._here.sinks[-1](level, event, fields)
            return
        # What an application does with its messages ends no run of it.
        with suppress(Exception):
            self._hand_over(level, event, fields)

    def _hand_over(self, level: str, event: str, fields: dict[str, Any]) -> None:
        structlog = self._logger
        if structlog.is_configured():
            getattr(structlog.get_logger("hubbub"), level)(event, **fields)
            return
        import logging

        error = fields.pop("exc_info", None)
        text = " ".join((event, *(f"{name}={value!r}" for name, value in fields.items())))
        parts = {"hubbub_event": event, "hubbub_fields": fields}
        logging.getLogger("hubbub").log(_LEVELS[level], "%s", text, exc_info=error, extra=parts)

    def debug(self, event: str, **fields: Any) -> None:
        self._emit("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._emit("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._emit("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._emit("error", event, fields)

    def held(self, by: str, at: str) -> None:
        """Warn of a function that holds the event loop, and of the line it has got to."""
        remedy = "await what takes long, or let it run in a thread (a plain def tool does)"
        self.warning("event_loop.held", by=by, at=at, remedy=remedy)


class _Here(local):
    """Who takes what is logged in the current thread."""

    def __init__(self) -> None:
        self.sinks: list[LogSink] = []


_AS_IT_IS: Final = Masker(())
"""Shows what has been masked already, or holds no secrets, and can be shown."""

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

log = Log()
