"""The hub over HTTP: one ASGI app for browsers, programs and clients of OpenAI.

    from hubbub.channels.http import HttpApp, serve

Reading order: ``app`` (the way of a request), ``wire`` (what is read and answered), ``routes`` (the
table of everything), ``api`` (a file a noun), ``access`` and ``counts`` (who may ask, how often),
``serving`` (servers for it, on both loops).
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

if find_spec("starlette") is None:
    from hubbub.hub.errors import MissingExtra

    raise MissingExtra("hubbub.channels.http", "http")

__all__ = ["HttpApp", "HttpLimits", "serve"]

_EXPORTS: Final = {
    "hubbub.channels.http.app": ("HttpApp",),
    "hubbub.channels.http.serving.serving": ("serve",),
    "hubbub.channels.http.wire.limits": ("HttpLimits",),
}

if TYPE_CHECKING:
    from hubbub.channels.http.app import HttpApp
    from hubbub.channels.http.serving.serving import serve
    from hubbub.channels.http.wire.limits import HttpLimits
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
