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
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeGuard, runtime_checkable

import msgspec
from msgspec import Struct

from hubbub.agents.settings import ModelSettings
from hubbub.hub.events import NO_USAGE, ContentPart, PartKind, ToolCall, Usage
from hubbub.hub.near_misses import kind_of
from hubbub.hub.values import Form

__all__ = [
    "AnsweredCall",
    "AssistantMessage",
    "CallDelta",
    "ContentPart",
    "Delta",
    "Model",
    "ModelMessage",
    "ModelReply",
    "ModelRequest",
    "OnDelta",
    "OutputSpec",
    "PartKind",
    "TextDelta",
    "Thinking",
    "ThinkingDelta",
    "ToolCall",
    "ToolSpec",
    "Usage",
    "UserMessage",
    "garbled_words",
    "is_model",
    "parse_arguments",
    "reply_problem",
]


class AnsweredCall(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A call with its one result; ``id`` is unique within its request.

    ``notes`` follow the output, each as a content block of its own, and so do ``parts``.
    ``is_left_out``: the output stands for one that the model's provider refused.
    """

    id: str
    name: str
    arguments: str
    output: str
    is_error: bool = False
    notes: tuple[str, ...] = ()
    parts: tuple[ContentPart, ...] = ()
    is_left_out: bool = False


class Thinking(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A block of a model's reasoning; ``signature`` and ``redacted`` are the provider's own."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class UserMessage(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="user"):
    """What the model sees as said to it; ``role="system"`` marks a note of the system's.

    ``notes`` follow the content, each as a content block of its own (attachments, a reason), and
    so do ``parts``: images, documents, recordings.  ``is_left_out``: it stands for one that the
    model's provider refused.
    """

    content: str
    role: str = "user"
    notes: tuple[str, ...] = ()
    parts: tuple[ContentPart, ...] = ()
    is_left_out: bool = False


class AssistantMessage(
    Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag="assistant"
):
    """What the model itself said in one step, with the calls it made and their results.

    ``is_given`` marks words that count as this side's own but that its model did not write
    (what was said to the other side of a two-sided agent); ``is_left_out``, that they stand for
    such words, which the model's provider refused.
    """

    text: str = ""
    thinking: tuple[Thinking, ...] = ()
    calls: tuple[AnsweredCall, ...] = ()
    is_given: bool = False
    is_left_out: bool = False

    @property
    def content(self) -> str:
        """Its text, by the name that a user's has."""
        return self.text


ModelMessage: TypeAlias = UserMessage | AssistantMessage


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as the model is shown it; ``schema`` is a JSON Schema object."""

    name: str
    description: str
    schema: Mapping[str, Any]


class OutputSpec(Struct, frozen=True, kw_only=True):
    """What the text of an answer is to be: JSON that fits ``schema``, a JSON Schema object."""

    name: str
    schema: Mapping[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True, gc=False):
    """One model call.

    ``attempt`` counts from 1 and grows with retries of the same step; ``options`` goes to the
    provider's request body unchanged.  ``system_notes`` are further system messages, made again
    for each step (the registry of children).  They reach the provider behind the messages: so what
    comes before them is the beginning of the next request too, which the provider can cache.
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
    cache: Literal["", "5m", "1h"] = ""
    """For how long the provider may keep what it read, for the next request; empty: not at all."""
    cache_key: str = ""
    """The same in all requests that continue one another: those of one side of a run."""
    contents: Mapping[str, bytes] = {}
    """What the parts of the messages hold, by digest; one that is not kept any more is missing."""
    settings: ModelSettings | None = None
    """How to answer; a model of your own reads of it what it has."""
    purpose: Literal["step", "summary"] = "step"
    """``summary``: the answer is to be a text that will take the place of ``messages``."""
    summarised: int = 0
    """How many messages of the model's own a summary among ``messages`` stands for."""
    output: OutputSpec | None = None
    """What the answer is to be, for a model that ``takes_output``; others answer by a tool."""


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
        return f"expected ModelReply(text=…), not {kind_of(reply)}"
    try:
        if _read(_write(reply)) == reply:
            usage = reply.usage
            if usage is NO_USAGE:
                return ""
            for name in usage.__struct_fields__:
                if not 0 <= getattr(usage, name) < MAX_TOKENS:
                    return f"its usage.{name} is to be from 0 to 2**63 - 1"
            return ""
    except Exception:  # Which field it is, is looked for now.
        pass
    return _problem_of_form(reply)


def _problem_of_form(reply: ModelReply) -> str:
    problem = _REPLY.problem(reply)
    if not problem:  # Made of subclasses: what is read back says the same.
        return reply_problem(_read(_write(reply)))
    if problem.startswith("its usage"):
        problem += "; what the server does not count is 0 or left out"
    return problem


def garbled_words(reply: object) -> str:
    """Why what a reply says is no text; else empty.  Asked again a model may say it better, while
    of another form its reply is each time."""
    if not isinstance(reply, ModelReply):
        return ""
    words: list[object] = [reply.text]
    for parts, name in ((reply.thinking, "text"), (reply.calls, "arguments")):
        if isinstance(parts, tuple):
            words += [getattr(part, name, "") for part in parts]
    for text in words:
        try:
            if isinstance(text, str):
                text.encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            return f"its answer is no text: {half} is half of a surrogate pair"
    return ""


MAX_TOKENS: Final = 2**63
_REPLY: Final = Form(ModelReply)
_read: Final = _REPLY.read
_write: Final = _REPLY.write


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

    A model may have a ``window``, how many tokens it can be shown: then the older messages of a
    long conversation become a summary (``PromptDefinition.compaction``).

    ``counts_cached_apart = True`` says that in its replies ``usage.input_tokens`` leaves out what
    was read from a cache or written to it, so that limits and costs count that as well.

    A model may have ``settings_problems(settings)`` as well, which returns what of
    ``ModelSettings`` it lacks, a sentence each: a runtime that is built with them is refused.

    A model may have ``takes_output(output, has_tools)``, which says whether it can be bound to the
    schema of an ``OutputSpec``, beside tools or alone; one that has not, or says no, answers by
    calling the tool ``final_answer``, or with a text that fits all the same.
    """

    @property
    def name(self) -> str:
        """The name in events and errors."""
        ...

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Ask once and return the whole reply; raises ``ProviderError``, see the class."""
        ...


def is_model(value: object) -> TypeGuard[Model]:
    """Whether it is a model object; its class alone, which has the same methods, is none."""
    return isinstance(value, Model) and not isinstance(value, type)


_arguments = msgspec.json.Decoder(dict[str, Any])


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as a dict, a fresh one each time.

    An empty text counts as ``{}`` (several providers send it for calls without parameters).
    Raises ``msgspec.DecodeError`` for malformed JSON or anything but an object.
    """
    return _arguments.decode(text or "{}")
