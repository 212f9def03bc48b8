"""The hub over HTTP: one ASGI app for browsers, programs and clients of OpenAI.

    from hubbub.channels.http import HttpApp, serve

Reading order: ``app`` (the way of a request), ``wire`` (what is read and answered), ``routes`` (the
table of everything), ``api`` (a file a noun), ``access`` and ``counts`` (who may ask, how often),
``serving`` (servers for it, on both loops).
"""

from hubbub.hub.errors import MissingExtra

try:
    import starlette  # noqa: F401
except ImportError:
    raise MissingExtra("hubbub.channels.http", "http") from None

from hubbub.channels.http.app import HttpApp
from hubbub.channels.http.serving.serving import serve
from hubbub.channels.http.wire.limits import HttpLimits

__all__ = ["HttpApp", "HttpLimits", "serve"]
