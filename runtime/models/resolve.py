"""``resolve_model``: from what stands in ``model=`` to a model.

    "scripted"                              a name in ``models``, whatever it looks like
    "anthropic:NAME"  "openai:NAME"         the provider's own service, or the one that
                                            ANTHROPIC_BASE_URL / OPENAI_BASE_URL names
    "openai:NAME@http://localhost:11434/v1" any server that speaks the provider's interface
    a model object                          itself

Keys come from ``environ`` (``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY``), which the caller passes
in.  A definition may come from elsewhere, so a key goes only where its owner meant it to go: to
the provider's own service, to the host of the ``*_BASE_URL`` beside it, and to this machine.
For any other ``@URL``, set the base URL variable too, or register a model object with ``key=``.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from hubbub.agents.model import Model
from hubbub.hub.errors import BadValue, MissingKey, UnknownModel
from hubbub.runtime.models.http.address import is_loopback

__all__ = ["KEY_VARIABLES", "PROVIDERS", "resolve_model"]

PROVIDERS: Final = ("anthropic", "openai")

KEY_VARIABLES: Final = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
"""Where the keys of providers stand in the environment."""


def resolve_model(
    spec: str | Model, models: Mapping[str, Model], environ: Mapping[str, str]
) -> Model:
    """The model that ``spec`` names.

    A new object each time for a provider's model, so keep it: it owns its connections, and
    whoever resolved it calls its ``aclose``.  Raises ``UnknownModel`` with the remedy,
    ``MissingKey`` where the service asks for a key and ``environ`` has none.
    """
    if not isinstance(spec, str):
        if isinstance(spec, Model):
            return spec
        raise UnknownModel(type(spec).__name__, "not a model; " + _remedy(models))
    if spec in models:
        return models[spec]
    provider, colon, rest = spec.partition(":")
    if not colon or provider not in PROVIDERS:
        raise UnknownModel(_shown(spec), "no such model; " + _remedy(models))
    name, at, url = rest.partition("@")
    if not name.strip():
        raise UnknownModel(_shown(spec), "the name is missing; " + _remedy(models))
    if at and not url.startswith(("http://", "https://")):
        remedy = f"after '@' comes http://… or https://…, as in {provider}:NAME@http://HOST/v1"
        raise UnknownModel(_shown(spec), remedy)
    problem = ""
    try:
        return _make(provider, name.strip(), url, environ)
    except BadValue as error:
        problem = str(error)
    raise UnknownModel(_shown(spec), problem)


def _make(provider: str, name: str, url: str, environ: Mapping[str, str]) -> Model:
    # Imported where they are needed: "scripted" must not pay for a provider.
    if provider == "anthropic":
        from hubbub.runtime.models.anthropic.model import (
            ANTHROPIC_KEY,
            ANTHROPIC_URL,
            AnthropicModel,
        )

        where, key = _place(url, ANTHROPIC_URL, ANTHROPIC_KEY, environ)
        if key is None and _origin(where) == _origin(ANTHROPIC_URL):
            raise MissingKey("Anthropic", ANTHROPIC_KEY)
        return AnthropicModel(name, key=key, base_url=where)
    from hubbub.runtime.models.openai.model import OPENAI_KEY, OPENAI_URL, OpenAIModel

    where, key = _place(url, OPENAI_URL, OPENAI_KEY, environ)
    if key is None and _origin(where) == _origin(OPENAI_URL):
        raise MissingKey("OpenAI", OPENAI_KEY)
    return OpenAIModel(name, key=key, base_url=where)


def _place(url: str, own: str, variable: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Where to send requests, and the key that may be sent there."""
    usual = environ.get(variable.replace("_API_KEY", "_BASE_URL"), "").strip() or own
    where = url or usual
    key = environ.get(variable, "").strip() or None
    trusted = _origin(where) in (_origin(own), _origin(usual)) or is_loopback(where)
    return where, key if trusted else None


def _origin(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        # Not a URL at all: the model says so.
        return None


def _shown(spec: str) -> str:
    # What follows the '@' may hold a password.
    name, at, _ = spec.partition("@")
    return name + (at and "@…")


def _remedy(models: Mapping[str, Model]) -> str:
    known = ", ".join(sorted(map(repr, models))) or "none"
    forms = " or ".join(f"{provider}:NAME" for provider in PROVIDERS)
    return f"write {forms}, with @URL for a server of your own, or a registered name ({known})"
