"""The requests and the reply that the checks of a provider are made of."""

from typing import Final

from msgspec.structs import replace

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
from hubbub.agents.settings import ModelSettings

__all__ = ["CONVERSATION", "HELLO", "NOTED", "REPLY", "SETTINGS", "WEATHER", "with_notes"]

HELLO: Final = ModelRequest(messages=(UserMessage(content="hello"),))
"""The shortest request."""

WEATHER: Final = ToolSpec(
    name="get_weather",
    description="Current weather for a city.",
    schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
"""A tool."""

REPLY: Final = ModelReply(
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
"""A reply with all that there is."""

CONVERSATION: Final = ModelRequest(
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
"""A history with thinking, calls, a failed one, and a queued message."""

NOTED: Final = ModelRequest(
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
"""A history in which everything that can have notes has some."""


SETTINGS: Final = (
    ModelSettings(temperature=0.5),
    ModelSettings(top_p=0.9),
    ModelSettings(max_tokens=5000),
    ModelSettings(stop=("END", "STOP")),
    ModelSettings(seed=7),
    ModelSettings(thinking="low"),
    ModelSettings(thinking="high", max_tokens=5000),
    ModelSettings(thinking=2048, max_tokens=5000),
    ModelSettings(timeout=30.0),
    ModelSettings(service_tier="auto"),
)
"""What a model may be asked to do, most of it alone."""


def with_notes(request: ModelRequest, *notes: str) -> ModelRequest:
    """``request`` with ``notes`` in place of all of its notes."""
    messages = tuple(
        replace(each, notes=notes)
        if isinstance(each, UserMessage)
        else replace(each, calls=tuple(replace(call, notes=notes) for call in each.calls))
        for each in request.messages
    )
    return replace(request, messages=messages, system_notes=notes)
