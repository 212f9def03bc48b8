"""Servers for the app, on both event loops, inside the caller's task group.

Reading order: ``serving`` (how it begins and ends), ``listening``, ``requests`` (streams are told
to end), ``lifespan``; ``uvicorn_server`` and ``anycorn_server`` are loaded when they are used.
"""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = ["Address", "CannotServe", "serve"]

_EXPORTS: Final = {
    "hubbub.channels.http.serving.listening": ("Address", "CannotServe"),
    "hubbub.channels.http.serving.serving": ("serve",),
}

if TYPE_CHECKING:
    from hubbub.channels.http.serving.listening import Address, CannotServe
    from hubbub.channels.http.serving.serving import serve
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
