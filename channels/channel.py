"""Channels: how the outside world takes part.

    hub ──► a mailbox per attachment ──► on_start ──► handlers, one event at a time ──► on_complete

Rules
-----
* A channel is a description and holds nothing; what it needs while it is attached is the
  ``state``, a fresh object per attachment.
* The mailbox is open from the moment of attachment, so what happens during an async ``on_start``
  waits for it.  The mailbox is bounded: see ``Channel.lossless``.
* Events come one at a time, in the hub's order.  Every handler whose pattern matches is called,
  in the order given; one that raises keeps no other from its call.
* What raises becomes one ``channel:error``, told to everybody but the channel it is about.  An
  error over a ``channel:error`` is only logged, so that no two channels feed each other.
* ``on_complete`` is called once for every ``on_start`` that succeeded: also when the hub closes
  first, and also when the program is being cancelled.
* A channel keeps no map of its conversations.  ``hub.open(agent, text, session_key=key)``
  finds or creates the run of a key, ``hub.send(text, session_key=key)`` speaks to it, and
  ``agent:start`` tells a run's key; the store keeps the address book.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, Protocol, TypeAlias, TypeVarTuple, Unpack

from msgspec import Struct

from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.errors import BadPattern, DefinitionError
from hubbub.hub.hub import Hub
from hubbub.hub.near_misses import shown
from hubbub.hub.tasks.callables import is_async, yielding_problem
from hubbub.hub.values import COUNTED, is_count

__all__ = [
    "AttachedChannel",
    "Channel",
    "ChannelContext",
    "ChannelHandler",
    "ChannelHook",
    "KeptPlace",
]

Ts = TypeVarTuple("Ts")

ChannelHandler: TypeAlias = Callable[[Any, "ChannelContext"], Any]
"""``handler(event, context)``, sync or async."""

ChannelHook: TypeAlias = Callable[["ChannelContext"], Any]
"""``hook(context)``, sync or async."""

KeptPlace: TypeAlias = Callable[[], str | Awaitable[str | None] | None]
"""Returns the cursor that a channel has kept, ``None`` where it has kept none; sync or async."""


class Channel(Struct, frozen=True):
    """A channel: a name, and what it does about events.

        def show(event, context):
            context.state.lines += 1
            print(event.agent, event.text)

        def begin(context):
            context.state.lines = 0

        printer = Channel("printer", {"agent:text": show}, on_start=begin)

        async with Runtime(agents=[...]) as rt, Channels(rt.hub, printer):
            ...

    * ``handlers``: by pattern (``"agent:*"``) or tuple of patterns; sync or async.
    * ``on_start`` gets ready; a channel whose ``on_start`` raises is not attached.
    * ``on_complete`` tidies up, within 5 seconds.
    * ``state`` makes the state of an attachment (default: an empty ``SimpleNamespace``).
    * A channel that falls more than ``buffer`` events behind (default: the hub's) gets one
      ``hub:gap`` in their place; with ``lossless`` it reads the durable ones from the journal.
    * ``after`` returns the place that an earlier attachment has kept (``ChannelContext.cursor``):
      the handlers get the durable events since then first, from the journal, so that nothing is
      missed while the channel is detached or its process is down.  Without one, or where it
      returns ``None``, they get what happens from the attachment on.  A place that the store does
      not know yields a ``hub:gap`` first.

    Raises ``DefinitionError`` with everything that is wrong.
    """

    name: str
    handlers: Mapping[str | tuple[str, ...], ChannelHandler] = MappingProxyType({})
    on_start: ChannelHook | None = None
    on_complete: ChannelHook | None = None
    state: Callable[[], Any] = SimpleNamespace
    lossless: bool = False
    buffer: int | None = None
    after: KeptPlace | None = None

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise DefinitionError(f"channel {shown(self.name)}", problems)


class AttachedChannel(Protocol):
    """What a context asks of the attachment that it belongs to."""

    @property
    def cursor(self) -> str: ...

    def start_beside(
        self, fn: Callable[[Unpack[Ts]], Awaitable[object]], args: tuple[*Ts]
    ) -> None: ...


class ChannelContext:
    """What the functions of a channel are given besides the event.

    ``hub`` is all a channel needs of the world; ``state`` is this attachment's own; ``name`` is
    the channel's, to be given as ``source`` of what it sends.
    """

    __slots__ = ("_attachment", "hub", "name", "state")

    def __init__(self, attachment: AttachedChannel, hub: Hub, name: str, state: Any) -> None:
        self._attachment = attachment
        self.hub = hub
        self.name = name
        self.state = state

    @property
    def cursor(self) -> str:
        """The place after the last durable event that the handlers were given, opaque text.

        In ``on_start`` it is where they will begin.  A handler that keeps it when its work is done
        and a ``Channel.after`` that returns it give each event at least once: a process that dies
        in between gets that event again, known by its ``id``.
        """
        return self._attachment.cursor

    def start(self, fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts) -> None:
        """Run ``fn(*args)`` beside the handlers, until the channel is detached.

        For what listens to the outside: a poll, a socket.  What it raises is one
        ``channel:error``, and it is not started again: what must go on catches its errors.
        """
        self._attachment.start_beside(fn, args)


def _problems(channel: Channel) -> list[str]:
    problems = []
    if not isinstance(channel.name, str) or not channel.name.strip():
        problems.append("name: expected a text")
    if not isinstance(channel.handlers, Mapping):
        return [*problems, "handlers: expected a mapping from pattern to function"]
    for pattern, handler in channel.handlers.items():
        try:
            Patterns(pattern)
        except BadPattern as error:
            problems.append(f"handlers: {error}")
        if not callable(handler):
            problems.append(f"handlers[{shown(pattern)}]: expected a function (event, context)")
        elif problem := yielding_problem(handler):
            problems.append(f"handlers[{shown(pattern)}]: {problem}")
    for name in ("on_start", "on_complete", "after", "state"):
        function = getattr(channel, name)
        if not callable(function) and not (function is None and name != "state"):
            problems.append(f"{name}: expected a function")
        elif problem := yielding_problem(function):
            problems.append(f"{name}: {problem}")
    if is_async(channel.state):
        problems.append("state: expected a plain function; what takes time belongs into on_start")
    if channel.buffer is not None and not is_count(channel.buffer):
        problems.append(f"buffer: {COUNTED}")
    return problems
