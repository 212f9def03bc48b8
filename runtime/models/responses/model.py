"""``ResponsesModel``: OpenAI's Responses interface and the servers that speak it.

How a request becomes a body (``request_body``), beyond the rules of ``conversation``:

* nothing is kept at the provider (``store: false``): each request has the whole conversation;
* what the model thought goes back with its turn, encrypted as it came, so that it continues its
  thoughts from step to step; thoughts of other models stay out;
* an assistant turn is its thoughts, its text and its calls, in this order; then come the results,
  with their notes behind a blank line;
* user messages between two assistant turns are one, a part for each text; a system note keeps the
  role ``system`` and its place; those of the system prompt stand behind all messages;
* parts follow the text, or the output, that they were given with (``parts``);
* ``cache_key`` goes to OpenAI alone, as ``prompt_cache_key``;
* an ``output`` becomes ``text.format``, strictly where its schema allows;
* settings become its own fields; it has neither ``stop`` nor ``seed``;
* ``options`` comes last and wins; a value of ``None`` takes a field out.

``answer`` turns the answer into a reply.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

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
from hubbub.runtime.models.http.thoughts import owned
from hubbub.runtime.models.openai.dialect import EFFORTS, OPENAI_DIALECT
from hubbub.runtime.models.openai.output import has_formats, schema_fields
from hubbub.runtime.models.responses.answer import OWNER, ResponsesAnswer
from hubbub.runtime.models.responses.parts import ShownItems
from hubbub.runtime.models.responses.provider import RESPONSES

__all__ = ["ResponsesModel", "request_body", "settings_problems"]

_LACKS: Final = ("stop", "seed")


class ResponsesModel(HttpModel):
    """A model behind the Responses interface.

    ``base_url`` is the address without ``/responses``; only OpenAI's own needs a ``key``.
    ``headers`` are sent along, in place of ours if need be, and treated as secrets.  Usable on
    any event loop, from any number of runs; ``aclose`` frees the connections of the running
    loop.  Raises ``MissingKey``, and ``BadValue`` for a URL or key that cannot be one.
    """

    def __init__(
        self,
        name: str,
        *,
        key: str | Secret | None = None,
        base_url: str = RESPONSES.url,
        idle_timeout: float = IDLE_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        url, basic = clean_url(base_url)
        self._keeps_by_key = url == RESPONSES.url
        whose = f"OpenAI (pass key=, or name it '{RESPONSES.name}:NAME')"
        missing = MissingKey(whose, RESPONSES.key_variable) if self._keeps_by_key else None
        endpoint = Endpoint(
            f"{RESPONSES.name}:{name}",
            f"{url}/responses",
            key_variable=RESPONSES.key_variable,
            headers={},
            secret_headers=opening_headers(key, basic, headers, missing=missing),
            idle_timeout=idle_timeout,
        )
        super().__init__(name, endpoint, hosted_by="openai" if self._keeps_by_key else "")

    @classmethod
    def problems_at(cls, base_url: str, settings: ModelSettings, name: str) -> Iterable[str]:
        """What of ``settings`` the interface does not have; asks nobody."""
        return settings_problems(settings)

    def settings_problems(self, settings: ModelSettings) -> Iterable[str]:
        """What of ``settings`` this model does not have, each with the remedy."""
        return settings_problems(settings)

    def takes_output(self, output: OutputSpec, has_tools: bool) -> bool:
        """Whether it can be bound to a schema: a model of OpenAI's, since GPT-4o."""
        return bool(self._hosted_by) and has_formats(self._name)

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """One attempt; a cut, refused or unreadable answer raises ``ProviderError``."""
        body = request_body(request, model=self._name, keeps_by_key=self._keeps_by_key)
        return await self._ask(body, ResponsesAnswer, on_delta)


def settings_problems(settings: ModelSettings) -> Iterable[str]:
    """What of ``settings`` the Responses interface does not have, each with the remedy."""
    for name in _LACKS:
        if name in settings.given:
            yield (
                f"{name}: OpenAI's Responses interface has none; leave it out, or name the model "
                "openai:NAME, which is Chat Completions"
            )
    for problem in OPENAI_DIALECT.problems(settings):
        if not problem.startswith(_LACKS):
            yield problem


def request_body(
    request: ModelRequest, *, model: str, keeps_by_key: bool = False
) -> dict[str, Any]:
    """The body of ``request``, ready to be encoded; with its ``cache_key``, if told.  Pure."""
    body: dict[str, Any] = {
        "model": model,
        "input": list(_items(request, ShownItems(request.contents, model))),
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if request.system.strip():
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
                # Strict, which is the default here, refuses most schemas.
                "strict": False,
            }
            for tool in request.tools
        ]
        body["tool_choice"] = _tool_choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if keeps_by_key and request.cache and request.cache_key:
        body["prompt_cache_key"] = request.cache_key
    if request.output is not None:
        body["text"] = {"format": {"type": "json_schema", **schema_fields(request.output)}}
    if request.settings is not None:
        body |= _setting_fields(request.settings)
    add_options(body, request.options)
    return body


def _setting_fields(settings: ModelSettings) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: value
        for name, value in (
            ("temperature", settings.temperature),
            ("top_p", settings.top_p),
            ("max_output_tokens", settings.max_tokens),
            ("service_tier", settings.service_tier),
        )
        if value is not None
    }
    if isinstance(settings.thinking, str):
        fields["reasoning"] = {"effort": EFFORTS[settings.thinking]}
        if settings.thinks:  # Else what it thought cannot be read at all.
            fields["reasoning"]["summary"] = "auto"
    return fields


def _tool_choice(choice: str) -> str | dict[str, Any]:
    match choice:
        case "auto" | "none":
            return choice
        case "any":
            return "required"
        case name:
            return {"type": "function", "name": name}


def _items(request: ModelRequest, shown: ShownItems) -> Iterator[dict[str, Any]]:
    for turn in conversation(request.messages):
        if isinstance(turn, UserTurn):
            yield from _user_items(turn, shown)
        else:
            yield from _assistant_items(turn, shown)
    for text in request.system_notes:
        if text.strip():
            yield {"role": "system", "content": _texts((text,))}


def _user_items(turn: UserTurn, shown: ShownItems) -> Iterator[dict[str, Any]]:
    for role, messages in groupby(turn.messages, key=_role):
        content: list[dict[str, Any]] = []
        for each in messages:
            content += [*_texts((each.content,)), *shown.content(each.parts), *_texts(each.notes)]
        yield {"role": role, "content": content}


def _role(message: UserMessage) -> str:
    return "system" if message.role == "system" else "user"


def _texts(texts: Iterable[str]) -> list[dict[str, Any]]:
    return [{"type": "input_text", "text": text} for text in texts if text]


def _assistant_items(turn: AssistantMessage, shown: ShownItems) -> Iterator[dict[str, Any]]:
    for thought in turn.thinking:
        id_, _, encrypted = owned(thought, OWNER).partition(":")
        if encrypted:
            summary = [{"type": "summary_text", "text": thought.text}] if thought.text else []
            yield {
                "type": "reasoning", "id": id_, "summary": summary, "encrypted_content": encrypted,
            }  # fmt: skip
    if turn.text:
        yield {"role": "assistant", "content": turn.text}
    for call in turn.calls:
        yield {
            "type": "function_call", "call_id": call.id, "name": call.name,
            "arguments": call.arguments,
        }  # fmt: skip
    for call in turn.calls:
        output = _result(call, shown)
        yield {"type": "function_call_output", "call_id": call.id, "output": output}


def _result(call: AnsweredCall, shown: ShownItems) -> str | list[dict[str, Any]]:
    if call.parts:
        return [*_texts((call.output, *call.notes)), *shown.content(call.parts)]
    return "\n\n".join([call.output, *call.notes]) if call.notes else call.output
