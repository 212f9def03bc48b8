"""The requests and the reply that the checks of a provider are made of."""

from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ContentPart,
    ModelReply,
    ModelRequest,
    OutputSpec,
    PartKind,
    Thinking,
    ToolCall,
    ToolSpec,
    Usage,
    UserMessage,
)
from hubbub.agents.settings import ModelSettings

__all__ = [
    "CONTENTS", "CONVERSATION", "HELLO", "ILLUSTRATED", "NOTED", "OUTPUT", "PARTS", "REPLY",
    "SETTINGS", "WEATHER", "with_notes",
]  # fmt: skip

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

OUTPUT: Final = OutputSpec(name="Weather", schema=WEATHER.schema)
"""What an answer is to be."""

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


def _kept(kind: PartKind, media_type: str, name: str, content: bytes) -> ContentPart:
    digest = sha256(content).hexdigest()
    return ContentPart(
        kind=kind, media_type=media_type, name=name, digest=digest, size=len(content)
    )


_PNG: Final = b"\x89PNG\r\n\x1a\n picture"
_PDF: Final = b"%PDF-1.7 document"
_WAV: Final = b"RIFF\x10\x00\x00\x00WAVEfmt sound"
_OGG: Final = b"OggS sound"
PARTS: Final = (
    _kept("image", "image/png", "shot.png", _PNG),
    _kept("image", "image/jpeg", "", b"\xff\xd8\xff picture"),
    _kept("image", "image/png", "gone.png", b"\x89PNG\r\n\x1a\n no longer kept"),
    ContentPart(kind="image", url="https://example.com/a.png"),
    _kept("document", "application/pdf", "report.pdf", _PDF),
    ContentPart(kind="document", url="https://example.com/a.pdf", name="a.pdf"),
    _kept("audio", "audio/wav", "talk.wav", _WAV),
    _kept("audio", "audio/ogg", "talk.ogg", _OGG),
    ContentPart(kind="audio", media_type="audio/mpeg", url="https://example.com/a.mp3"),
)
"""Parts of every kind: kept, no longer kept, and behind an address."""

CONTENTS: Final = {
    sha256(content).hexdigest(): content
    for content in (_PNG, b"\xff\xd8\xff picture", _PDF, _WAV, _OGG)
}
"""What those hold that are kept."""

ILLUSTRATED: Final = ModelRequest(
    messages=(
        UserMessage(content="What is this?", parts=PARTS),
        AssistantMessage(
            calls=(
                AnsweredCall(
                    id="toolu_1", name="get_weather", arguments="{}", output="a map", parts=PARTS
                ),
                AnsweredCall(id="toolu_2", name="get_weather", arguments="{}", output="sunny"),
            ),
        ),
        UserMessage(content="", parts=PARTS[:1]),
        UserMessage(content="And this?", parts=PARTS[4:5], notes=("It is long.",)),
    ),
    tools=(WEATHER,),
    contents=CONTENTS,
)
"""A history in which everything that can have parts has some."""

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
