"""The library's logger.

structlog is imported at the first message, not with the package, and is never configured here:
that is the application's part.  Until the application configures structlog, messages go to the
standard library's logging under the name ``hubbub``, which prints nothing by itself below
``WARNING`` and to which a ``NullHandler`` is attached: a library writes to no stream (R-15).
"""

from functools import cached_property
from typing import Any

__all__ = ["Log", "log"]


class Log:
    """``log.info("run.started", run_id=…)``: events are ``noun.verb`` in the past tense."""

    @cached_property
    def _logger(self) -> Any:
        import logging

        import structlog

        logging.getLogger("hubbub").addHandler(logging.NullHandler())
        return structlog

    def _emit(self, level: str, event: str, fields: dict[str, Any]) -> None:
        structlog = self._logger
        if structlog.is_configured():
            getattr(structlog.get_logger("hubbub"), level)(event, **fields)
            return
        import logging

        error = fields.pop("exc_info", None)
        text = " ".join((event, *(f"{name}={value!r}" for name, value in fields.items())))
        logging.getLogger("hubbub").log(_LEVELS[level], "%s", text, exc_info=error)

    def debug(self, event: str, **fields: Any) -> None:
        self._emit("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._emit("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._emit("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._emit("error", event, fields)


_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

log = Log()
