"""``OpenAIModel``: OpenAI's Chat Completions and the many servers that speak it.

How a request becomes a body (``request_body``), beyond the rules of ``conversation``:

* an assistant turn's calls are followed by one ``tool`` message each, in call order;
* user messages between two assistant turns are one message, since the templates of many local
  models insist on alternation; a system note keeps the role ``system`` and its place;
* notes of user messages make the content a list of text parts, what was said before the first
  note being one, as it was without it; those of a result follow its output after a blank line,
  since many servers take only a string there; those of the system are system messages behind all
  others;
* parts follow the text that they were given with, in a list of content (``parts``);
* ``cache_key`` goes to OpenAI alone, as ``prompt_cache_key``: other servers refuse what they do not
  know, and cache without it or not at all.  Where it helps, ``options`` may hold it;
* what the model thought is not sent back, since the interface has no field for it, but to those
  services that refuse its calls without (``calls``);
* ``parallel_tool_calls`` and ``tool_choice`` are sent only along with tools;
* settings become what the service calls them (``dialect``);
* an ``output`` becomes ``response_format``, strictly where its schema allows (``output``);
* ``options`` comes last and wins; a value of ``None`` takes a field out, for servers that refuse
  it (``{"stream_options": None}``, ``{"parallel_tool_calls": None}``).

``answer`` turns the answer into a reply.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelReply,
    ModelRequest,
    OnDelta,
    OutputSpec,
    UserMessage,
)
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import MissingKey
from hubbub.hub.values import Secret
from hubbub.runtime.models.http.address import clean_url
from hubbub.runtime.models.http.client import HttpModel, add_options, opening_headers
from hubbub.runtime.models.http.endpoint import IDLE_SECONDS, Endpoint
from hubbub.runtime.models.http.messages import UserTurn, conversation
from hubbub.runtime.models.openai.answer import OpenAIAnswer
from hubbub.runtime.models.openai.calls import sign_calls, with_short_ids
from hubbub.runtime.models.openai.dialect import OPENAI_DIALECT, PLAIN, Dialect
from hubbub.runtime.models.openai.output import has_formats, schema_fields
from hubbub.runtime.models.openai.parts import ShownParts
from hubbub.runtime.models.openai.provider import OPENAI

__all__ = ["OpenAIModel", "request_body"]


class OpenAIModel(HttpModel):
    """A model behind a Chat Completions interface.

    ``base_url`` is the address without ``/chat/completions``, for example
    ``http://localhost:11434/v1``; only OpenAI's own needs a ``key``.  ``headers`` are sent along,
    in place of ours if need be, and treated as secrets.  ``dialect`` says what the service makes
    of settings: OpenAI's at its own address, else one that leaves most of it to the server.
    Usable on any event loop, from any number of runs; ``aclose`` frees the connections of the
    running loop.  Raises ``MissingKey``, and ``BadValue`` for a URL or key that cannot be one.
    """

    def __init__(
        self,
        name: str,
        *,
        key: str | Secret | None = None,
        base_url: str = OPENAI.url,
        idle_timeout: float = IDLE_SECONDS,
        headers: Mapping[str, str] | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        url, basic = clean_url(base_url)
        service = self._dialect = dialect or _dialect_at(url)
        is_hosted = url == service.url
        whose = f"{service.title} (pass key=, or name it '{service.name}:NAME')"
        missing = MissingKey(whose, service.key_variable) if is_hosted else None
        endpoint = Endpoint(
            f"{service.name}:{name}",
            f"{url}/chat/completions",
            key_variable=service.key_variable,
            headers={},
            secret_headers=opening_headers(key, basic, headers, missing=missing),
            idle_timeout=idle_timeout,
        )
        super().__init__(name, endpoint, hosted_by=service.name if is_hosted else "")

    @classmethod
    def problems_at(
        cls, base_url: str, settings: ModelSettings, name: str, *, dialect: Dialect | None = None
    ) -> Iterable[str]:
        """What of ``settings`` the service at ``base_url`` does not have; asks nobody."""
        return (dialect or _dialect_at(base_url)).problems(settings)

    def settings_problems(self, settings: ModelSettings) -> Iterable[str]:
        """What of ``settings`` this model does not have, each with the remedy."""
        return self._dialect.problems(settings)

    def takes_output(self, output: OutputSpec, has_tools: bool) -> bool:
        """Whether the service can bind it to a schema, beside tools if there are some."""
        schemas = self._dialect.schemas
        is_able = schemas == "always" or (schemas == "alone" and not has_tools)
        return is_able and (self._dialect.name != OPENAI.name or has_formats(self._name))

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """One attempt; a cut, refused or unreadable answer raises ``ProviderError``."""
        body = request_body(request, model=self._name, dialect=self._dialect)
        return await self._ask(body, OpenAIAnswer, on_delta)


def _dialect_at(url: str) -> Dialect:
    return OPENAI_DIALECT if url.rstrip("/") == OPENAI.url else PLAIN


def request_body(request: ModelRequest, *, model: str, dialect: Dialect = PLAIN) -> dict[str, Any]:
    """The body of ``request``, ready to be encoded.  Pure."""
    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(request, dialect, model),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if dialect.counts_unasked:
        del body["stream_options"]
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                },
            }
            for tool in request.tools
        ]
        body["tool_choice"] = _tool_choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if dialect.keeps_by_key and request.cache and request.cache_key:
        body["prompt_cache_key"] = request.cache_key
    if request.output is not None:
        form = {"type": "json_schema", "json_schema": schema_fields(request.output)}
        body["response_format"] = form
    if request.settings is not None:
        body |= dialect.fields(request.settings)
    add_options(body, request.options)
    if not body.get("stream"):
        # Refused without streaming.
        body.pop("stream_options", None)
    return body


def _tool_choice(choice: str) -> str | dict[str, Any]:
    match choice:
        case "auto" | "none":
            return choice
        case "any":
            return "required"
        case name:
            return {"type": "function", "function": {"name": name}}


def _messages(request: ModelRequest, dialect: Dialect, model: str) -> list[dict[str, Any]]:
    parts = ShownParts(
        request.contents, dialect.takes, model,
        is_own=dialect is OPENAI_DIALECT, known=dialect is not PLAIN,
    )  # fmt: skip
    messages = _system_messages((request.system,))
    turns = conversation(request.messages)
    for turn in with_short_ids(turns) if dialect.short_ids else turns:
        if isinstance(turn, UserTurn):
            _add_user_messages(messages, turn, parts)
        else:
            messages.append(_assistant_message(turn, dialect))
            messages.extend(
                {"role": "tool", "tool_call_id": call.id, "content": _result_content(call, parts)}
                for call in turn.calls
            )
            if shown := parts.of_results(turn):
                messages.append({"role": "user", "content": shown})
    messages.extend(_system_messages(request.system_notes))
    return messages


def _system_messages(texts: Iterable[str]) -> list[dict[str, Any]]:
    return [{"role": "system", "content": text} for text in texts if text.strip()]


def _add_user_messages(messages: list[dict[str, Any]], turn: UserTurn, parts: ShownParts) -> None:
    for role, said in groupby(turn.messages, key=_role):
        content = _user_content(list(said), parts)
        if role == "user" and messages and messages[-1]["role"] == "user":
            # What the results before it show.
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": content})


def _role(message: UserMessage) -> str:
    # The interface shows nothing to anybody but the user.
    return "system" if message.role == "system" and not message.parts else "user"


def _user_content(messages: list[UserMessage], parts: ShownParts) -> str | list[dict[str, Any]]:
    first = next((at for at, x in enumerate(messages, 1) if x.notes or x.parts), len(messages))
    start = "\n\n".join(each.content for each in messages[:first] if each.content)
    rest = _behind(messages[first - 1], parts)
    for each in messages[first:]:
        rest += [*_text_parts((each.content,)), *_behind(each, parts)]
    return [*_text_parts((start,)), *rest] if rest else start


def _behind(message: UserMessage, parts: ShownParts) -> list[dict[str, Any]]:
    """What follows the text of a message."""
    return [*parts.blocks(message.parts), *_text_parts(message.notes)]


def _text_parts(texts: Iterable[str]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts if text]


def _assistant_message(turn: AssistantMessage, dialect: Dialect) -> dict[str, Any]:
    if not turn.calls:
        return {"role": "assistant", "content": turn.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in turn.calls
    ]
    message = {"role": "assistant", "content": turn.text or None, "tool_calls": calls}
    if dialect.returns_thinking:
        message["reasoning_content"] = "".join(each.text for each in turn.thinking)
    if dialect.signs_calls:
        sign_calls(calls, turn.thinking)
    return message


def _result_content(call: AnsweredCall, parts: ShownParts) -> str:
    if not call.notes and not call.parts:
        return call.output
    texts = (call.output, *call.notes, *parts.words_of(call))
    return "\n\n".join(text for text in texts if text.strip())
