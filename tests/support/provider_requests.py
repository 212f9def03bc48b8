"""Conversations, given and generated, and what a provider would refuse in them.

``anthropic_problems`` and ``openai_problems`` read a request's body as strictly as the provider
does: with the types of the official clients, and the rules that those types cannot say.
"""

import json
import re
from typing import Any

import anthropic.types
import openai.types.chat
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import TypeAdapter

from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelReply,
    ModelRequest,
    Thinking,
    ToolCall,
    ToolSpec,
    Usage,
    UserMessage,
)

# ── what a provider refuses ──────────────────────────────────────────────────────────────────

_anthropic_message = TypeAdapter(anthropic.types.MessageParam)
_anthropic_system = TypeAdapter(str | list[anthropic.types.TextBlockParam])
_anthropic_tool = TypeAdapter(anthropic.types.ToolParam)
_openai_message = TypeAdapter(openai.types.chat.ChatCompletionMessageParam)
_name = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


def _read(adapter: TypeAdapter[Any], value: Any) -> None:
    """Validate with the official client's own types; raises if they do not fit."""
    todo = [adapter.validate_python(value)]
    while todo:
        # pydantic validates an Iterable only while somebody iterates over it.
        each = todo.pop()
        if isinstance(each, dict):
            todo.extend(each.values())
        elif not isinstance(each, str | bytes) and hasattr(each, "__iter__"):
            todo.extend(each)


def _texts(content: Any) -> list[str]:
    """The texts of a content, be it a string, a list of blocks, or nothing."""
    if isinstance(content, list):
        return [block["text"] for block in content]
    return [content or ""]


def anthropic_problems(body: dict[str, Any]) -> list[str]:
    """What the Messages interface would refuse in ``body``."""
    problems: list[str] = []
    messages = body["messages"]
    known = anthropic.types.message_create_params.MessageCreateParamsStreaming.__annotations__
    problems += [f"unknown field {name}" for name in body if name not in known]
    if "system" in body:
        _read(_anthropic_system, body["system"])
        if not body["system"] or not all(text.strip() for text in _texts(body["system"])):
            problems.append("a blank system prompt")
    roles = [message["role"] for message in messages]
    if roles != (["user", "assistant"] * len(roles))[: len(roles)] or roles[-1:] != ["user"]:
        problems.append(f"roles do not alternate from user to user: {roles}")
    for message in messages:
        _read(_anthropic_message, message)
        if not message["content"]:
            problems.append("a message without content")
        for block in message["content"]:
            if block["type"] == "text" and not block["text"].strip():
                problems.append("a blank text block")
            if block["type"] == "tool_result" and isinstance(block["content"], list):
                texts = _texts(block["content"])
                if not texts or not all(map(str.strip, texts)):
                    problems.append("a blank text block in a result")
            if block["type"] == "thinking" and not block["signature"]:
                problems.append("unsigned thinking")
            if block["type"] == "tool_result" and block.get("is_error") and not block["content"]:
                problems.append("an error result without content")
            if block["type"] == "tool_use" and not _name(block["name"]):
                problems.append(f"tool name {block['name']!r}")
    used: list[str] = []
    for message, following in zip(messages, [*messages[1:], {"content": []}], strict=True):
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        results = [
            block["tool_use_id"]
            for block in following["content"][: len(calls)]
            if block["type"] == "tool_result"
        ]
        if calls != results and message["role"] == "assistant":
            problems.append(f"calls {calls}, but the next turn begins with results {results}")
        used += calls
    total = sum(b["type"] == "tool_result" for m in messages for b in m["content"])
    if len(set(used)) != len(used) or total != len(used) or not all(map(_name, used)):
        problems.append(f"{total} results for calls {used}")
    for tool in body.get("tools", ()):
        _read(_anthropic_tool, tool)
    return problems


def openai_problems(body: dict[str, Any]) -> list[str]:
    """What Chat Completions, and the stricter servers that speak it, would refuse in ``body``."""
    problems: list[str] = []
    known = openai.types.chat.completion_create_params.CompletionCreateParamsStreaming
    problems += [f"unknown field {name}" for name in body if name not in known.__annotations__]
    used: list[str] = []
    open_calls: list[str] = []
    before = ""
    for message in body["messages"]:
        _read(_openai_message, message)
        role = message["role"]
        if role == "tool":
            if not isinstance(message["content"], str):
                problems.append("a result that is no string")
            if not open_calls or message["tool_call_id"] != open_calls.pop(0):
                problems.append(f"a result out of place: {message['tool_call_id']}")
        elif open_calls:
            problems.append(f"no result for {open_calls}")
        if role in ("user", "assistant") and role == before and not used:
            problems.append(f"two {role} messages in a row")
        texts = _texts(message["content"])
        if role in ("user", "system") and not (texts and all(map(str.strip, texts))):
            problems.append("a blank message")
        if role == "assistant" and not message["content"] and not message.get("tool_calls"):
            problems.append("an empty assistant message")
        for call in message.get("tool_calls", ()):
            open_calls.append(call["id"])
            used.append(call["id"])
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                problems.append("arguments are no object")
            if not _name(call["function"]["name"]):
                problems.append(f"tool name {call['function']['name']!r}")
        before = role
    if open_calls or len(set(used)) != len(used) or any(len(each) > 40 for each in used):
        problems.append(f"ids {used}, open {open_calls}")
    if not any(message["role"] == "user" for message in body["messages"]):
        problems.append("no user message")
    return problems


# ── values ───────────────────────────────────────────────────────────────────────────────────

WEATHER = ToolSpec(
    name="get_weather",
    description="Current weather for a city.",
    schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)

REPLY = ModelReply(
    text="Grüße aus 東京 🌤️ - let me look.",
    thinking=(Thinking(text="The user wants weather.", signature="c2ln"),),
    calls=(
        ToolCall(id="toolu_1", name="get_weather", arguments='{"city": "Paris"}'),
        ToolCall(id="toolu_2", name="get_weather", arguments='{"city": "München"}'),
    ),
    usage=Usage(input_tokens=12, output_tokens=34, cache_read_tokens=5, cache_write_tokens=6),
    stop_reason="tools",
    model="the-model-2025",
)

CONVERSATION = ModelRequest(
    system="You help.",
    messages=(
        UserMessage(content="Weather in Paris?"),
        AssistantMessage(
            text="Let me look.",
            thinking=(Thinking(text="Paris.", signature="c2ln"), Thinking(redacted="cmVk")),
            calls=(
                AnsweredCall(
                    id="toolu_1", name="get_weather", arguments='{"city":"Paris"}', output="sunny"
                ),
                AnsweredCall(
                    id="toolu_2",
                    name="get_weather",
                    arguments='{"city":',
                    output="malformed arguments",
                    is_error=True,
                ),
            ),
        ),
        UserMessage(content="And tomorrow?"),
        UserMessage(content="One more message was queued.", role="system"),
    ),
    tools=(WEATHER,),
)

NOTED = ModelRequest(
    system="You help.",
    system_notes=("Children: none.", " ", "Time: noon."),
    messages=(
        AssistantMessage(text="Ask me.", is_given=True),
        UserMessage(content="Look at this.", notes=("<file>a</file>", "", "<file>b</file>")),
        UserMessage(content="And hurry."),
        AssistantMessage(
            calls=(
                AnsweredCall(
                    id="toolu_1", name="get_weather", arguments="{}", output="sunny", notes=("now",)
                ),
                AnsweredCall(
                    id="toolu_2",
                    name="get_weather",
                    arguments="{}",
                    output="",
                    is_error=True,
                    notes=("no city", "try again"),
                ),
            ),
        ),
        UserMessage(content="One more was queued.", role="system", notes=("It is long.",)),
    ),
    tools=(WEATHER,),
)


def with_notes(request: ModelRequest, *notes: str) -> ModelRequest:
    """``request`` with ``notes`` in place of all of its notes."""
    messages = tuple(
        replace(each, notes=notes)
        if isinstance(each, UserMessage)
        else replace(each, calls=tuple(replace(call, notes=notes) for call in each.calls))
        for each in request.messages
    )
    return replace(request, messages=messages, system_notes=notes)


texts = st.one_of(
    st.sampled_from(["", " ", "\n\t", "hello", "half \ud83d", "a\x00b"]), st.text(max_size=8)
)
notes = st.one_of(st.just(()), st.lists(texts, max_size=3).map(tuple))
answered_calls = st.builds(
    AnsweredCall,
    id=st.one_of(
        st.sampled_from(["", "a", "a_2", "toolu_1", "with blank", "x" * 60]), st.text(max_size=4)
    ),
    name=st.sampled_from(["get_weather", "no such tool!", "", "n" * 90]),
    arguments=st.sampled_from(
        [
            *("{}", "", " ", '{"city": "Paris"}', '{"city":', "[1]", "null", "NaN", "[" * 3000),
            *('{"a": 1e999}', '{"a": 123456789012345678901234567890}'),
            *('{"a": "\ud83d"}', '{"a": "\\ud83d"}'),
        ]
    ),
    output=texts,
    is_error=st.booleans(),
    notes=notes,
)
thoughts = st.builds(
    Thinking,
    text=texts,
    signature=st.sampled_from(["", "c2ln"]),
    redacted=st.sampled_from(["", "", "cmVk"]),
)
histories = st.lists(
    st.one_of(
        st.builds(
            UserMessage,
            content=texts,
            role=st.sampled_from(["user", "user", "system"]),
            notes=notes,
        ),
        st.builds(
            AssistantMessage,
            text=texts,
            thinking=st.lists(thoughts, max_size=2).map(tuple),
            calls=st.lists(answered_calls, max_size=3).map(tuple),
            is_given=st.booleans(),
        ),
    ),
    max_size=7,
).map(tuple)
requests = st.builds(
    ModelRequest,
    messages=histories,
    system=texts,
    system_notes=notes,
    tools=st.sampled_from([(), (WEATHER,)]),
    tool_choice=st.sampled_from(["auto", "none", "any", "get_weather"]),
    parallel_tool_calls=st.booleans(),
)
