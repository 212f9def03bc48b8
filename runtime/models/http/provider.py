"""``Provider``: what there is to know of a model provider before one of its models is used.

Each provider's room holds its record (``provider``), its client (``model``), what it makes of
pictures and documents (``parts``), and what reads an answer of it (``answer``);
``hubbub.runtime.models.providers`` is the table of the records.
"""

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from hubbub.agents.model import Model
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import BadValue, MissingExtra, MissingKey
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
    """The provider's own service: the default base URL, and the only one that requires a key.

    A variable in braces is replaced by its value in the environment.
    """
    url_variable: str
    """The environment variable that holds another base URL."""
    key_variable: str
    """The environment variable that holds the key."""
    client: str
    """The class of its models, as ``module:Class``.

    Called as ``Class(name, key=…, base_url=…, **options)``; it makes a ``Model`` and raises
    ``BadValue`` for a key or URL that cannot be one.  If there is one,
    ``Class.problems_at(base_url, settings, name, **options)`` returns what of ``ModelSettings`` a
    model there lacks.
    """
    options: Mapping[str, Any] = {}
    """What the class is told beside these."""
    needs_key: bool = True
    """Whether the provider's own service asks for a key."""
    extra: str = ""
    """The extra of hubbub that installs what the client imports; ``""`` where it needs none."""

    def place(self, url: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
        """The base URL to use and the key that may be sent there; ``url`` may be empty.

        A key goes to the provider's own service, to the host of ``url_variable`` and to this
        machine, and nowhere else.  Raises ``BadValue`` where the environment lacks a part of the
        provider's own URL, and nothing else says where to go.
        """
        told = environ.get(self.url_variable, "").strip()
        own = self._own_url(environ)
        where = url or told or own
        if not where:
            names = " and ".join(_braced(self.url))
            problem = f"set {names} in the environment, or write {self.name}:NAME@https://…"
            raise BadValue("base URL", problem)
        key = environ.get(self.key_variable, "").strip() or None
        known = [_origin(each) for each in (own, told) if each]
        return where, key if _origin(where) in known or is_loopback(where) else None

    def _own_url(self, environ: Mapping[str, str]) -> str:
        """The provider's own URL, as far as the environment knows its parts."""
        url = self.url
        for name in _braced(url):
            value = environ.get(name, "").strip().rstrip("/")
            if not value:
                return ""
            url = url.replace(f"{{{name}}}", value)
        return url

    def make(self, name: str, url: str, environ: Mapping[str, str]) -> Model:
        """A new model of this provider, found as ``place`` says.

        Raises ``MissingKey`` where the provider's own service has no key, ``MissingExtra`` where
        the client cannot be imported, and what the client raises.
        """
        where, key = self.place(url, environ)
        if self.needs_key and key is None and _origin(where) == _origin(self._own_url(environ)):
            raise MissingKey(self.title, self.key_variable)
        model: Model = self._client_class()(name, key=key, base_url=where, **self.options)
        return model

    def settings_problems(
        self, name: str, url: str, environ: Mapping[str, str], settings: ModelSettings
    ) -> Iterable[str]:
        """What of ``settings`` the model lacks; nothing where its client does not say."""
        try:
            ask = getattr(self._client_class(), "problems_at", None)
        except MissingExtra:  # Said when the model is made.
            return ()
        if ask is None:
            return ()
        try:
            where, _ = self.place(url, environ)
        except BadValue:  # Said when the model is made, too.
            where = self.url
        problems: Iterable[str] = ask(where, settings, name, **self.options)
        return problems

    def _client_class(self) -> Any:
        module, _, name = self.client.partition(":")
        try:
            return getattr(import_module(module), name)
        except ImportError as missing:
            if not self.extra:
                raise
            raise MissingExtra(f"models of {self.title}", self.extra) from missing


def _braced(url: str) -> list[str]:
    """The variables that a URL has parts from."""
    return re.findall(r"\{(\w+)\}", url)


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        # Not a URL at all: the model says so.
        return None
