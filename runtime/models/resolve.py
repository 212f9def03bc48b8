"""``resolve_model``: from the value of ``model=`` to a model.

    "scripted"                              a name in ``models``, whatever it looks like
    "anthropic:NAME"  "openai:NAME"         the provider's own service, or the one that
                                            ANTHROPIC_BASE_URL / OPENAI_BASE_URL names
    "groq:NAME"  "ollama:NAME"  …           a service of ``services``, or the one that
                                            GROQ_BASE_URL names
    "openai:NAME@http://localhost:11434/v1" any server that speaks the provider's interface
    a model object                          itself

Keys come from ``environ`` (``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY``), which the caller passes
in.  A definition may come from elsewhere, so a key goes only where its owner meant it to go: to
the provider's own service, to the host of the ``*_BASE_URL`` beside it, and to this machine.
For any other ``@URL``, set the base URL variable too, or register a model object with ``key=``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from hubbub.agents.model import Model, is_model
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import BadValue, UnknownModel
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.near_misses import kind_of, nearest
from hubbub.runtime.models.http.provider import Provider
from hubbub.runtime.models.providers import PROVIDERS

__all__ = ["check_model", "resolve_model", "settings_problems"]

_CALLED: Final = {
    "grok": "xai", "x.ai": "xai", "claude": "anthropic", "gpt": "openai", "chatgpt": "openai",
    "google": "gemini",
}  # fmt: skip
"""What people call providers."""

_MAKERS: Final = (
    (r"claude-", "anthropic"), (r"(gpt-|chatgpt-|o[1-9]($|-))", "openai"), (r"gemini-", "gemini"),
    (r"grok-", "xai"), (r"deepseek-", "deepseek"),
    (r"(mistral|magistral|ministral|codestral)-", "mistral"),
)  # fmt: skip
"""Who serves models whose names begin so."""


def resolve_model(
    spec: str | Model,
    models: Mapping[str, Model],
    environ: Mapping[str, str],
    providers: Mapping[str, Provider] = PROVIDERS,
) -> Model:
    """The model that ``spec`` names: one of ``models``, or one of a provider.

    A new object each time for a provider's model, so keep it: it owns its connections, and the
    caller closes it with ``aclose``.  Raises ``UnknownModel`` with the remedy, ``MissingKey``
    where the service asks for a key and ``environ`` has none, and ``MissingExtra`` where what the
    provider's client imports is not installed.
    """
    check_model(spec, models, providers)
    if not isinstance(spec, str):
        return spec
    if spec in models:
        return models[spec]
    provider, _, rest = spec.partition(":")
    name, _, url = rest.partition("@")
    problem = ""
    try:
        return providers[provider].make(name.strip(), url, environ)
    except BadValue as error:
        problem = str(error)
    raise UnknownModel(_shown(spec), problem)


def check_model(
    spec: object, models: Mapping[str, Model], providers: Mapping[str, Provider] = PROVIDERS
) -> None:
    """Raise ``UnknownModel`` for what is no model and cannot name one, whatever the environment."""
    if is_model(spec) or (isinstance(spec, str) and spec in models):
        return
    if not isinstance(spec, str):
        raise UnknownModel(kind_of(spec), "not a model; " + _remedy(models, providers))
    provider, colon, rest = spec.partition(":")
    if not colon or provider not in providers:
        remedy = _meant(_shown(spec), models, providers) + _remedy(models, providers)
        raise UnknownModel(_shown(spec), "no such model; " + remedy)
    name, at, url = rest.partition("@")
    if not name.strip():
        raise UnknownModel(_shown(spec), "the name is missing; " + _remedy(models, providers))
    if at and not url.startswith(("http://", "https://")):
        remedy = f"after '@' comes http://… or https://…, as in {provider}:NAME@http://HOST/v1"
        raise UnknownModel(_shown(spec), remedy)


def settings_problems(
    spec: str | Model,
    settings: ModelSettings,
    models: Mapping[str, Model],
    environ: Mapping[str, str],
    providers: Mapping[str, Provider] = PROVIDERS,
) -> Iterable[str]:
    """What of ``settings`` the model that ``spec`` names lacks; nothing of one that says nothing.

    ``spec`` is one that ``check_model`` accepts.  Needs no key.
    """
    model = models.get(spec, spec) if isinstance(spec, str) else spec
    if isinstance(model, str):
        provider, _, rest = model.partition(":")
        name, _, url = rest.partition("@")
        return providers[provider].settings_problems(name.strip(), url, environ, settings)
    ask = getattr(model, "settings_problems", None)
    try:  # A model of a user's own.
        return () if ask is None else [str(each) for each in ask(settings)]
    except Exception as error:
        return [f"the model's settings_problems raised {class_name_of(error)}: {words_of(error)}"]


def _meant(shown: str, models: Mapping[str, Model], providers: Mapping[str, Provider]) -> str:
    """A registered name that is like it, its provider in the right form, or the provider of such
    models: the beginning of what is said, or nothing."""
    found = nearest(shown, models)
    prefix = re.match(r"([\w.-]+)[:/](.+)", shown)
    if found is None and prefix is not None:
        names = {each: each for each in providers} | _CALLED
        provider = names.get(nearest(prefix[1], names) or "")
        found = f"{provider}:{prefix[2]}" if provider in providers else None
    elif found is None:
        makers = (maker for form, maker in _MAKERS if re.match(form, shown, re.IGNORECASE))
        maker = next(makers, "")
        found = f"{maker}:{shown}" if maker in providers else None
    return "" if found is None else f"did you mean {found!r}? If not, "


def _shown(spec: str) -> str:
    # What follows the '@' may hold a password.
    name, at, _ = spec.partition("@")
    return name + (at and "@…")


def _remedy(models: Mapping[str, Model], providers: Mapping[str, Provider]) -> str:
    known = ", ".join(sorted(map(repr, models))) or "none"
    *others, last = (f"{provider}:NAME" for provider in providers)
    forms = f"{', '.join(others)} or {last}" if others else last
    return f"write {forms}, with @URL for a server of your own, or a registered name ({known})"
