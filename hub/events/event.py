"""``Event``: what every event has, and the small values that events carry."""

import re
import sys
from typing import Any, ClassVar, Final, Literal, TypeAlias, dataclass_transform

import msgspec
from msgspec import Struct, structs

from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.values import NULL, Json, Secret, decode_value, encode_value

__all__ = [
    "KNOWN_TYPES",
    "NO_USAGE",
    "ContentPart",
    "CustomEvent",
    "DecisionName",
    "Event",
    "EventMeta",
    "FileRef",
    "Home",
    "OutcomeName",
    "PartKind",
    "PromptKind",
    "ToolCall",
    "Usage",
    "Variable",
    "ending_words",
    "home_of",
    "place_of_call",
]

Home: TypeAlias = Literal["own", "in", "hub", "none", "scope"]
"""Where events of a class are kept; see ``catalogue``."""
OutcomeName: TypeAlias = Literal[
    "completed", "failed", "interrupted", "terminated", "timed_out", "limit"
]
"""How a run can end."""
PromptKind: TypeAlias = Literal["question", "approval", "external"]
"""What a prompt asks a person for: an answer, a permission, or the result of a tool."""
PartKind: TypeAlias = Literal["image", "document", "audio"]
"""What a part of a message is, for a model."""
DecisionName: TypeAlias = Literal["", "approve", "deny"]
"""What a reply decides, where it is not simply an answer."""


def ending_words(outcome: OutcomeName, reason: str) -> str:
    """An ending in a few words; a reason that is the outcome's own name is said once."""
    return f"{outcome}: {reason}" if reason and reason != outcome else outcome


_MUTABLE = re.compile(r"\b(list|dict|set|bytearray|Any|List|Dict|Set|MutableMapping)\b")
_SECRET = re.compile(r"\bSecret\b")


def _own_annotations(cls: Any, namespace: dict[str, Any]) -> dict[str, Any]:
    found = namespace.get("__annotations__")
    if found is None and sys.version_info >= (3, 14):
        found = cls.__annotations__  # Made when asked for, since PEP 649.
    return found or {}


# Events hold plain values and can be part of no cycle: the garbage collector may leave the many
# that a journal keeps alone.
_CONFIG: Final = {"frozen": True, "kw_only": True, "omit_defaults": True, "gc": False}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class EventMeta(msgspec.StructMeta):
    """Makes a subclass of ``Event`` frozen and keyword-only, and gives it its ``type``.

    ``class OrderPlaced(Event, tag="shop:order"): order_id: str`` is all a user's event needs;
    ``home="none"`` makes it ephemeral.
    """

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any
    ) -> Any:
        home = config.pop("home", None)
        config = {**_CONFIG, **config}
        cls: Any = super().__new__(mcls, name, bases, namespace, **config)
        if "tag" in config:
            cls.type = config["tag"]
            cls.home = home or ("none" if cls.type.endswith(":delta") else cls.home)
            cls.is_partial = cls.type.endswith(":delta") and hasattr(cls, "after_seq")
        kinds = {
            field: kind if isinstance(kind, str) else repr(kind)
            for field, kind in _own_annotations(cls, namespace).items()
        }
        mutable = [
            f"{field}: {kind} can be changed by a listener; use a tuple, a frozen Struct or Json"
            for field, kind in kinds.items()
            if "ClassVar" not in kind and _MUTABLE.search(kind)
        ]
        if mutable:
            raise DefinitionError(f"event {name}", mutable)
        inherited = getattr(bases[0], "secret_fields", ()) if bases else ()
        own = tuple(field for field, kind in kinds.items() if _SECRET.search(kind))
        cls.secret_fields = (*inherited, *own)
        return cls


class Event(Struct, metaclass=EventMeta, tag_field="type", tag="event"):
    """What every event carries; leave these fields out when you emit.

    ``at`` is µs since the Unix epoch, UTC.  ``lane`` and ``seq`` are set on durable events and
    with ``run_id`` identify them; on ephemeral ones ``lane`` is empty and ``seq`` is unique to
    the hub.  ``call_id`` names the tool call at work, ``turn`` and ``side`` the speaker.
    """

    type: ClassVar[str] = "event"
    home: ClassVar[Home] = "scope"
    is_partial: ClassVar[bool] = False
    """Whether it is a delta, which later records of its run overtake."""
    secret_fields: ClassVar[tuple[str, ...]] = ()

    at: int = 0
    run_id: str = ""
    root_run_id: str = ""
    parent_run_id: str | None = None
    agent: str = ""
    lane: str = ""
    seq: int = 0
    side: str = ""
    label: str = ""
    turn: int = 0
    call_id: str = ""

    @property
    def id(self) -> str:
        """Unique everywhere; for durable events ``run_id/lane/seq``."""
        return f"{self.run_id}/{self.lane or '~'}/{self.seq}"

    @property
    def is_durable(self) -> bool:
        """Whether the event is in the journal."""
        return bool(self.lane)

    def __repr__(self) -> str:
        """The fields that differ from their defaults, values decoded."""
        shown = []
        for field in structs.fields(self.__class__):
            value = getattr(self, field.name)
            if value != field.default:
                text = decode_value(value) if isinstance(value, Json) else value
                shown.append(f"{field.encode_name}={text!r}")
        return f"{self.__class__.__name__}({', '.join(shown)})"


KNOWN_TYPES: set[str] = set()
"""The catalogue's own types, filled in at the end of this module."""


class CustomEvent(Event, tag="custom"):
    """An event of a type the catalogue does not know.

    Make one with ``CustomEvent.of("shop:order", order_id=7)``; ``event.type`` is the given
    text, ``event.data`` a fresh dict each time.  Types ending in ``:delta`` and ``channel:*``
    are ephemeral unless ``durable=True``.
    """

    name: str = ""
    data_json: Json = msgspec.field(name="data", default=NULL)
    durable: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise BadValue("CustomEvent", f"its name is text, not {type(self.name).__name__}")
        if self.name in KNOWN_TYPES:
            raise BadValue("CustomEvent", f"{self.name} is in the catalogue; use its own class")

    @property
    def data(self) -> Any:
        """The data, decoded again at each access."""
        return decode_value(self.data_json)

    @classmethod
    def of(cls, type_: str, /, *, durable: bool | None = None, **data: Any) -> "CustomEvent":
        """An event named ``type_``; raises ``BadValue`` for data that JSON cannot hold."""
        return cls(name=type_, data_json=encode_value(type_, data), durable=durable)


def _name_as_type(self: CustomEvent) -> str:
    return self.name


# A property of this name in the class body would become part of the struct's definition.
CustomEvent.type = property(_name_as_type)  # type: ignore[assignment]


def home_of(event: Event) -> Home:
    """Where an event belongs: the ``home`` of its class, except for what users say of their own."""
    if event.__class__ is not CustomEvent:
        return event.home
    durable = getattr(event, "durable", None)
    if durable is None:
        return (
            "none" if event.type.endswith(":delta") or event.type.startswith("channel:") else "hub"
        )
    return "hub" if durable else "none"


# ── parts ────────────────────────────────────────────────────────────────────────────────────


class Usage(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Tokens of one or more model calls, as the provider counted them; 0 where it did not say.

    Providers differ in what ``input_tokens`` holds.  Anthropic leaves out what was read from its
    cache or written to it: the whole input is the sum of all three.  OpenAI, and servers that
    speak its interface, count the whole input there, cached or not, and ``cache_read_tokens`` says
    how much of it was read from the cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


NO_USAGE = Usage()
"""No tokens at all."""


class ToolCall(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A call that a model asks for.

    ``arguments`` is the JSON text exactly as the model wrote it, which may be malformed; ``id``
    is the provider's id, data that is neither unique nor trusted.
    """

    name: str
    arguments: str = "{}"
    id: str = ""


class Variable(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A variable's value on its way to the runtime; ``scoped`` ones reach the run they are given
    to and its descendants, whatever is declared."""

    name: str
    value: Secret
    scoped: bool = False


class FileRef(Struct, frozen=True, gc=False, kw_only=True):
    """A file of a run's area: its name there, and its content by digest."""

    path: str
    digest: str
    size: int


class ContentPart(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What a message or a tool's result has beside its text: an image, a document, a recording.

    Its content is kept by ``digest`` (SHA-256), as those of files are; or it is behind ``url``,
    which the provider of a model reads, and hubbub never does.
    """

    kind: PartKind
    media_type: str = ""
    name: str = ""
    digest: str = ""
    size: int = 0
    url: str = ""

    @property
    def words(self) -> str:
        """It in words, for people and for models that cannot read it: ``image a.png (image/png,
        12.3 kB)``."""
        facts = (self.media_type, _size_words(self.size) if self.size else "")
        said = " ".join(filter(None, (self.kind, self.name, self.url)))
        about = ", ".join(filter(None, facts))
        return f"{said} ({about})" if about else said


def _size_words(size: int) -> str:
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def place_of_call(call_id: str) -> tuple[int, ...]:
    """By which calls of one run are in order: the step and the place in it; one that is no such
    id, as an import may bring, comes first."""
    parts = call_id.split(".")
    return tuple(map(int, parts)) if all(map(str.isdecimal, parts)) else ()
