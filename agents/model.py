"""What passes between an agent and a model: requests, replies, deltas.  Plain data.

The pairing of tool calls with their results is kept by shape: a request is made of
``UserMessage`` and ``AssistantMessage`` only, and every call inside an ``AssistantMessage`` is an
``AnsweredCall`` that *carries* its result.  There is no separate tool-result message that could
be missing, so a history that a provider would refuse cannot be written down.

    ModelRequest ── messages: (UserMessage | AssistantMessage)*
                                                └── calls: AnsweredCall*
    ModelReply   ── thinking*, text, calls: ToolCall*, usage, stop_reason
    Delta        =  TextDelta | ThinkingDelta | CallDelta
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import Struct

from hubbub.hub.events import NO_USAGE, ToolCall, Usage

__all__ = [
    "AnsweredCall",
    "AssistantMessage",
    "CallDelta",
    "Delta",
    "Model",
    "ModelMessage",
    "ModelReply",
    "ModelRequest",
    "OnDelta",
    "TextDelta",
    "Thinking",
    "ThinkingDelta",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "UserMessage",
    "parse_arguments",
    "reply_problem",
]


class AnsweredCall(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A call with its one result; ``id`` is unique within its request.

    ``notes`` follow the output, each as a content block of its own.
    """

    id: str
    name: str
    arguments: str
    output: str
    is_error: bool = False
    notes: tuple[str, ...] = ()


class Thinking(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A block of a model's reasoning; ``signature`` and ``redacted`` are the provider's own."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class UserMessage(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="user"):
    """What the model sees as said to it; ``role="system"`` marks a note of the system's.

    ``notes`` follow the content, each as a content block of its own (attachments, a reason).
    """

    content: str
    role: str = "user"
    notes: tuple[str, ...] = ()


class AssistantMessage(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="assistant"
):
    """What the model itself said in one step, with the calls it made and their results.

    ``is_given`` marks words that count as this side's own but that its model did not write
    (what was said to the other side of a two-sided agent).
    """

    text: str = ""
    thinking: tuple[Thinking, ...] = ()
    calls: tuple[AnsweredCall, ...] = ()
    is_given: bool = False


ModelMessage: TypeAlias = UserMessage | AssistantMessage


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as the model is shown it; ``schema`` is a JSON Schema object."""

    name: str
    description: str
    schema: Mapping[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One model call.

    ``attempt`` counts from 1 and grows with retries of the same step; ``options`` goes to the
    provider's request body unchanged.  ``system_notes`` are further system messages, made anew
    for each step (the registry of children), behind ``system``, which stays the same.
    """

    messages: tuple[ModelMessage, ...]
    system: str = ""
    system_notes: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """``auto``, ``none``, ``any`` (some tool must be called), or a tool's name."""
    parallel_tool_calls: bool = False
    options: Mapping[str, Any] = {}
    attempt: int = 1


class ModelReply(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a model call came to.

    ``stop_reason`` is one of ``end``, ``tools``, ``length``, ``refusal``, ``stop_sequence`` or
    the provider's own word.  A reply with neither text nor calls is *empty*.
    """

    text: str = ""
    thinking: tuple[Thinking, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = NO_USAGE
    stop_reason: str = "end"
    model: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it has neither text nor calls."""
        return not self.calls and not self.text.strip()


def reply_problem(reply: object) -> str:
    """Why what a model returned is no ``ModelReply``, and what is wanted; empty where it is one."""
    if not isinstance(reply, ModelReply):
        return f"expected ModelReply(text=…), not {type(reply).__name__}"
    for name, kind in _WANTED:
        if not isinstance(found := getattr(reply, name), kind):
            return f"its {name} is to be a {kind.__name__}, not {type(found).__name__}"
    for call in reply.calls:
        if not isinstance(call, ToolCall):
            return f"its calls are to be ToolCalls, not {type(call).__name__}"
        for name in ("name", "arguments", "id"):
            if not isinstance(found := getattr(call, name), str):
                return f"the {name} of a call is to be a str, not {type(found).__name__}"
    for block in reply.thinking:
        if not isinstance(block, Thinking):
            return f"its thinking is to be Thinkings, not {type(block).__name__}"
    return ""


_WANTED: Final = (
    ("text", str), ("thinking", tuple), ("calls", tuple), ("usage", Usage), ("stop_reason", str),
    ("model", str),
)  # fmt: skip


class TextDelta(Struct, frozen=True, gc=False, tag="text"):
    """A further piece of the reply's text."""

    text: str


class ThinkingDelta(Struct, frozen=True, gc=False, tag="thinking"):
    """A further piece of reasoning, of block number ``block`` of the reply's ``thinking``."""

    text: str
    block: int = 0


class CallDelta(Struct, frozen=True, gc=False, tag="call"):
    """A further piece of the arguments of call number ``index`` of this reply."""

    index: int
    name: str
    text: str


Delta: TypeAlias = TextDelta | ThinkingDelta | CallDelta
OnDelta: TypeAlias = Callable[[Delta], None]


@runtime_checkable
class Model(Protocol):
    """Something that answers requests.

    ``call`` returns the whole reply; while it works it may hand over pieces through ``on_delta``
    (a plain function that neither blocks nor raises), in order, so that concatenated text deltas
    equal ``reply.text``.  ``on_delta`` is ``None`` when nobody can listen: a model may then skip
    the work.  It raises ``ProviderError`` and nothing else of its own; it must be
    cancellable at any await and hold no resource afterwards.  Retrying is the caller's part.
    """

    @property
    def name(self) -> str:
        """The name in events and errors."""
        ...

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Ask once and return the whole reply; raises ``ProviderError``, see the class."""
        ...


_arguments = msgspec.json.Decoder(dict[str, Any])


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as a dict, a fresh one each time.

    An empty text counts as ``{}`` (several providers send it for calls without parameters).
    Raises ``msgspec.DecodeError`` for malformed JSON or anything but an object.
    """
    return _arguments.decode(text or "{}")
