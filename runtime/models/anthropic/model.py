"""``AnthropicModel``: Anthropic's Messages interface and whatever speaks it.

How a request becomes a body (``request_body``), beyond the rules of ``conversation``:

* the results of an assistant turn's calls come first in the user turn that follows;
* thinking goes back with the turns that have calls, signed blocks only: Anthropic asks for it
  there, ignores it elsewhere, and refuses what another provider thought; with every turn to models
  that bind a thought to what was before it (``settings``);
* a system note within the conversation is user text between ``<system>`` tags;
* notes are text blocks behind what they belong to, a message or a result, of which the latter is
  a plain string without them; those of the system stand behind all messages, between the same tags;
* parts come ahead of the text that they were given with, as Anthropic advises, and behind the
  output of a result: images and documents (``parts``); what is neither is named in words;
* ``cache`` puts marks where the next request begins in the same way (``cache``), unless ``options``
  holds such marks;
* settings become what a model's family has (``settings``);
* an ``output`` becomes ``output_config.format`` (``output``); a model that answers by a tool
  instead may choose not to while it thinks, since it cannot be made to call one then;
* ``options`` comes last and wins; a value of ``None`` takes a field out.

The interface's version is 2023-06-01, which every model and every compatible server knows.  The
next one, 2026-10-21, gives nothing that is used here and refuses ``temperature``, ``top_p`` and
``top_k``, which ``options`` may hold; ``headers={"anthropic-version": "2026-10-21"}`` asks for it.

``answer`` turns the answer into a reply.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from hubbub.agents.built_in import FINAL_ANSWER
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelReply,
    ModelRequest,
    OnDelta,
    OutputSpec,
    Thinking,
    UserMessage,
)
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import MissingKey
from hubbub.hub.values import Secret
from hubbub.runtime.models.anthropic.answer import AnthropicAnswer
from hubbub.runtime.models.anthropic.cache import has_marks, mark_cache
from hubbub.runtime.models.anthropic.output import format_of, has_formats
from hubbub.runtime.models.anthropic.parts import part_blocks
from hubbub.runtime.models.anthropic.provider import ANTHROPIC
from hubbub.runtime.models.anthropic.settings import (
    BETA,
    binds,
    default_tokens,
    settings_fields,
    settings_problems,
)
from hubbub.runtime.models.http.address import clean_url
from hubbub.runtime.models.http.client import HttpModel, add_options, opening_headers
from hubbub.runtime.models.http.endpoint import IDLE_SECONDS, Endpoint
from hubbub.runtime.models.http.messages import UserTurn, conversation
from hubbub.runtime.models.http.thoughts import is_bare

__all__ = ["AnthropicModel", "request_body"]

API_VERSION: Final = "2023-06-01"


class AnthropicModel(HttpModel):
    """A model behind the Messages interface.

    ``base_url`` is the address without ``/v1/messages``; only Anthropic's own needs a ``key``.
    ``headers`` are sent along, in place of ours if need be, and treated as secrets.  Usable on
    any event loop, from any number of runs; ``aclose`` frees the connections of the running
    loop.  ``max_tokens`` holds where settings do not say it; if neither does, the default of the
    model's family.  Raises ``MissingKey``, and ``BadValue`` for a URL or key that cannot be one.
    """

    counts_cached_apart: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        *,
        key: str | Secret | None = None,
        base_url: str = ANTHROPIC.url,
        max_tokens: int | None = None,
        idle_timeout: float = IDLE_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        url, basic = clean_url(base_url)
        # With or without the version: both are found in other programs' settings.
        url = url.removesuffix("/v1")
        is_own = url == ANTHROPIC.url
        whose = "Anthropic (pass key=, or name it 'anthropic:NAME')"
        missing = MissingKey(whose, ANTHROPIC.key_variable) if is_own else None
        self._max_tokens = default_tokens(name) if max_tokens is None else max_tokens
        endpoint = Endpoint(
            f"anthropic:{name}",
            f"{url}/v1/messages",
            key_variable=ANTHROPIC.key_variable,
            headers={"anthropic-version": API_VERSION}
            | ({"anthropic-beta": BETA} if binds(name) else {}),
            secret_headers=opening_headers(
                key, basic, headers, missing=missing, header="x-api-key"
            ),
            idle_timeout=idle_timeout,
        )
        super().__init__(name, endpoint, hosted_by="anthropic" if is_own else "")

    @classmethod
    def problems_at(cls, base_url: str, settings: ModelSettings, name: str) -> Iterable[str]:
        """What of ``settings`` the model ``name`` does not have; asks nobody."""
        return settings_problems(settings, name, default_tokens(name))

    def settings_problems(self, settings: ModelSettings) -> Iterable[str]:
        """What of ``settings`` this model does not have, each with the remedy."""
        return settings_problems(settings, self._name, self._max_tokens)

    def takes_output(self, output: OutputSpec, has_tools: bool) -> bool:
        """Whether it can be bound to a schema: a Claude since 4.5, at Anthropic itself."""
        is_able = bool(self._hosted_by) and has_formats(self._name)
        return is_able and format_of(output.schema) is not None

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """One attempt; a cut, refused or unreadable answer raises ``ProviderError``."""
        body = request_body(request, model=self._name, max_tokens=self._max_tokens)
        return await self._ask(body, AnthropicAnswer, on_delta)


def request_body(request: ModelRequest, *, model: str, max_tokens: int) -> dict[str, Any]:
    """The body of ``request``, ready to be encoded.  Pure."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens,
        "stream": True,
        "messages": _messages(request, model),
    }
    if request.system.strip():
        body["system"] = request.system
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in request.tools
        ]
        body["tool_choice"] = _tool_choice(request)
    if request.cache and not has_marks(request.options):
        mark_cache(body, request.cache)
    # The last message is the user's, always.
    body["messages"][-1]["content"].extend(_text_blocks(map(_tagged, request.system_notes)))
    body |= settings_fields(request.settings, model, max_tokens)
    if "thinking" in body:
        _check_thinking(body, request)
    if request.output is not None and (form := format_of(request.output.schema)) is not None:
        body["output_config"] = {**body.get("output_config", {}), "format": form}
    add_options(body, request.options)
    return body


def _check_thinking(body: dict[str, Any], request: ModelRequest) -> None:
    """Take a budget for thinking out for as long as it would be refused: while calls are answered
    that a model made without thinking, be it another one.  While a model thinks, no call of the
    final answer can be demanded of it."""
    if body.get("thinking", {}).get("type") == "enabled":
        said = [each["content"] for each in body["messages"] if each["role"] == "assistant"]
        answers = body["messages"][-1]["content"][0]["type"] == "tool_result"
        if answers and "thinking" not in said[-1][0]["type"]:
            del body["thinking"]
    thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    if thinks and body.get("tools", [{}])[-1].get("name") == FINAL_ANSWER:
        # In a summary as in a step: another choice gives up the cache of all messages.
        body["tool_choice"] = _tool_choice(replace(request, tool_choice="auto"))


def _text_blocks(texts: Iterable[str]) -> list[dict[str, Any]]:
    # A blank block is refused.
    return [{"type": "text", "text": text} for text in texts if text.strip()]


def _tool_choice(request: ModelRequest) -> dict[str, Any]:
    if request.tool_choice == "none":
        return {"type": "none"}
    choice: dict[str, Any]
    if request.tool_choice in ("auto", "any"):
        choice = {"type": request.tool_choice}
    else:
        choice = {"type": "tool", "name": request.tool_choice}
    if not request.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    return choice


def _messages(request: ModelRequest, model: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    told = request.settings
    # Of what is bound to all before it, either everything goes back, or nothing.
    is_off = told is not None and told.thinking == "off"
    whole = binds(model) and not is_off
    for turn in conversation(request.messages):
        if isinstance(turn, AssistantMessage):
            thoughts = () if binds(model) and is_off else turn.thinking
            blocks = _assistant_blocks(turn, thoughts if whole or turn.calls else ())
            messages.append({"role": "assistant", "content": blocks})
            if turn.calls:
                blocks = _result_blocks(turn, request.contents)
                messages.append({"role": "user", "content": blocks})
        elif messages and messages[-1]["role"] == "user":
            messages[-1]["content"].extend(_user_blocks(turn, request.contents))
        else:
            messages.append({"role": "user", "content": _user_blocks(turn, request.contents)})
    return messages


def _user_blocks(turn: UserTurn, contents: Mapping[str, bytes]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for message in turn.messages:
        blocks += part_blocks(message.parts, contents)
        blocks += _text_blocks(_user_texts(message))
    return blocks


def _user_texts(message: UserMessage) -> tuple[str, ...]:
    texts = (message.content, *message.notes)
    return tuple(map(_tagged, texts)) if message.role == "system" else texts


def _tagged(text: str) -> str:
    return f"<system>\n{text}\n</system>" if text.strip() else ""


def _assistant_blocks(turn: AssistantMessage, thoughts: Iterable[Thinking]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for each in thoughts:
        if each.redacted:
            blocks.append({"type": "redacted_thinking", "data": each.redacted})
        elif is_bare(each):
            thought = {"type": "thinking", "thinking": each.text, "signature": each.signature}
            blocks.append(thought)
    if turn.text:
        blocks.append({"type": "text", "text": turn.text})
    for call in turn.calls:
        # As the model wrote it, digits and all; ``conversation`` made sure it is an object.
        arguments = msgspec.Raw(call.arguments.encode())
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return blocks


def _result_blocks(turn: AssistantMessage, contents: Mapping[str, bytes]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for call in turn.calls:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id}
        block["content"] = _result_content(call, contents)
        if call.is_error:
            block["is_error"] = True
        blocks.append(block)
    return blocks


def _result_content(
    call: AnsweredCall, contents: Mapping[str, bytes]
) -> str | list[dict[str, Any]]:
    if call.notes or call.parts:
        texts = _text_blocks((call.output, *call.notes))
        return [*texts, *part_blocks(call.parts, contents)]
    # An error without a text is refused.
    return call.output or ("error" if call.is_error else "")
