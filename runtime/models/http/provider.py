"""``Provider``: what there is to know of a model provider before one of its models is used.

Each provider's room holds its record (``provider``), its client (``model``) and what reads an
answer of it (``answer``); ``hubbub.runtime.models.providers`` is the table of the records.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from hubbub.agents.model import Model
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import MissingExtra, MissingKey
from hubbub.runtime.models.http.address import is_loopback

__all__ = ["Provider"]


class Provider(Struct, frozen=True, kw_only=True):
    """How a provider's models are named, where they are reached, and what they need.

    A record imports nothing of its client: ``client`` is imported when its first model is made.
    """

    name: str
    """The part before the colon in ``model="name:MODEL"``."""
    title: str
    """The provider's name in sentences."""
    url: str
    """The provider's own service: the default base URL, and the only one that requires a key."""
    url_variable: str
    """The environment variable that holds another base URL."""
    key_variable: str
    """The environment variable that holds the key."""
    client: str
    """The class of its models, as ``module:Class``.

    Called as ``Class(name, key=…, base_url=…)``; it makes a ``Model`` and raises ``BadValue`` for
    a key or URL that cannot be one.  ``Class.problems_at(base_url, settings, name)``, if there is
    one, returns what of ``ModelSettings`` a model there lacks.
    """
    extra: str = ""
    """The extra of hubbub that installs what the client imports; ``""`` where it needs none."""

    def place(self, url: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
        """The base URL to use and the key that may be sent there; ``url`` may be empty.

        A key goes to the provider's own service, to the host of ``url_variable`` and to this
        machine, and nowhere else.
        """
        usual = environ.get(self.url_variable, "").strip() or self.url
        where = url or usual
        key = environ.get(self.key_variable, "").strip() or None
        trusted = _origin(where) in (_origin(self.url), _origin(usual)) or is_loopback(where)
        return where, key if trusted else None

    def make(self, name: str, url: str, environ: Mapping[str, str]) -> Model:
        """A new model of this provider, found as ``place`` says.

        Raises ``MissingKey`` where the provider's own service has no key, ``MissingExtra`` where
        the client cannot be imported, and what the client raises.
        """
        where, key = self.place(url, environ)
        if key is None and _origin(where) == _origin(self.url):
            raise MissingKey(self.title, self.key_variable)
        model: Model = self._client_class()(name, key=key, base_url=where)
        return model

    def settings_problems(
        self, name: str, url: str, environ: Mapping[str, str], settings: ModelSettings
    ) -> Iterable[str]:
        """What of ``settings`` the model lacks; nothing where its client does not say."""
        try:
            ask = getattr(self._client_class(), "problems_at", None)
        except MissingExtra:  # Said when the model is made.
            return ()
        where, _ = self.place(url, environ)
        problems: Iterable[str] = () if ask is None else ask(where, settings, name)
        return problems

    def _client_class(self) -> Any:
        module, _, name = self.client.partition(":")
        try:
            return getattr(import_module(module), name)
        except ImportError as missing:
            if not self.extra:
                raise
            raise MissingExtra(f"models of {self.title}", self.extra) from missing


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        # Not a URL at all: the model says so.
        return None
