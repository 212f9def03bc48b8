"""``Attachment``: a channel at work on a hub; ``Channels``: those of one hub.

    subscribe ─► after ─► on_start ─► a handler for each event ─► on_complete

See ``channel`` for the rules.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Final, Literal, Self, TypeVarTuple, Unpack

import anyio

from hubbub.channels.channel import Channel, ChannelContext, KeptPlace
from hubbub.hub.delivery.listening import next_of
from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.errors import BadValue
from hubbub.hub.events import ChannelComplete, ChannelError, ChannelStart, Event, HubGap
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.tasks.cancelling import absorb_cancellation, cancellations, is_on_asyncio
from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.tasks.raised import is_contained
from hubbub.hub.tasks.waits import REMEDY, held_up_by, telling
from hubbub.hub.values import check_grace

__all__ = ["Attachment", "Channels"]

Ts = TypeVarTuple("Ts")

_REMEDIES: Final = dict.fromkeys(
    ("after", "on_start"), "let it return, and start what goes on by context.start"
)
"""For what the other channels are kept waiting for."""

GRACE: Final = 5.0
"""Seconds that a channel is given to handle what waits, and again to run ``on_complete``."""


class Attachment:
    """A channel at work on a hub."""

    __slots__ = (
        "_context", "_during", "_group", "_hub", "_is_leaving", "_over", "_release", "_rows",
        "_scope", "_started", "_stream", "_task", "channel", "error", "status",
    )  # fmt: skip

    def __init__(self, hub: Hub, channel: Channel) -> None:
        """Open the mailbox and begin; raises ``BadValue`` when the hub has such a channel."""
        self.channel = channel
        self.status: Literal["starting", "running", "failed", "over"] = "starting"
        self.error: BaseException | None = None
        """What ``after`` or ``on_start`` raised."""
        self._hub = hub
        self._is_leaving = False
        self._rows = [(Patterns(pattern), handler) for pattern, handler in channel.handlers.items()]
        self._release = _reserve(hub, channel.name)
        self._stream = self._subscribe()
        self._stream.outlive_store()  # A channel may say that the store has failed.
        self._started = anyio.Event()
        self._over = anyio.Event()
        self._scope = anyio.CancelScope()
        self._group: anyio.abc.TaskGroup | None = None
        self._task = 0
        self._context: ChannelContext | None = None
        self._during = "after"
        """Which of the channel's functions comes first, or is at work."""
        try:
            hub.tasks.start(self._live(), name=f"channel {channel.name}")
        except BaseException:
            self._stream.close()
            self._release()
            raise

    @property
    def cursor(self) -> str:
        """The place after the last durable event that the handlers were given."""
        return self._stream.cursor

    async def wait_started(self) -> None:
        """Return when ``on_start`` is done, well or not."""
        with telling(self._tell, self._hub.tasks.is_watched):
            await self._started.wait()

    async def stop(self, grace: float = GRACE) -> None:
        """Handle what waits, for at most ``grace`` seconds, then detach; idempotent.

        Returns when ``on_complete`` is done.  Called by one of the channel's own functions it
        returns at once, and the channel ends when that function has returned.  Raises ``BadValue``
        for what is no time to wait.
        """
        check_grace("grace", grace)
        self._is_leaving = True
        self._stream.close()
        if self._task == anyio.get_current_task().id:
            return
        try:
            with anyio.move_on_after(grace):
                await self._over.wait()
        finally:
            self._scope.cancel()
            with anyio.CancelScope(shield=True), telling(self._tell, self._hub.tasks.is_watched):
                await self._over.wait()

    # ── the channel's task ───────────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        self._task = anyio.get_current_task().id
        try:
            with self._scope:
                async with anyio.create_task_group() as self._group:
                    if await self._begin():
                        await self._attend()
                    self._group.cancel_scope.cancel()
        finally:
            self._group = None
            self._stream.close()
            self._started.set()
            try:
                if self.status == "running":
                    await self._complete()
            finally:
                if self.status != "failed":
                    self.status = "over"
                self._release()
                self._over.set()

    def _subscribe(self, after: str | None = None) -> EventStream[Event]:
        channel = self.channel
        patterns = {part for pattern in channel.handlers for part in _parts(pattern)}
        return self._hub.subscribe(
            sorted(patterns) or [ChannelError.type],
            after=after,
            lossless=channel.lossless,
            buffer=channel.buffer,
        )

    async def _begin(self) -> bool:
        channel = self.channel
        try:
            if channel.after is not None:
                await self._continue(channel.after)
            self._during = "on_start"
            context = ChannelContext(self, self._hub, channel.name, channel.state())
            self._context = context
            if channel.on_start is not None:
                await _called(channel.on_start(context))
        except BaseException as error:
            if not is_contained(error):
                raise
            self.status, self.error = "failed", error
            self._report(error, self._during)
            return False
        self.status, self._during = "running", "handlers"
        self._emit(ChannelStart(channel=channel.name))
        self._started.set()
        return True

    async def _continue(self, after: KeptPlace) -> None:
        """Have the mailbox begin at the place that was kept, if one was."""
        place = await _called(after())
        if place is not None and not self._is_leaving:
            stream = self._subscribe(place)  # Before the other one is closed: nothing is missed.
            self._stream.close()
            self._stream = stream

    async def _attend(self) -> None:
        name = self.channel.name
        while (event := await next_of(self._stream)) is not None:
            if isinstance(event, ChannelError) and event.channel == name:
                continue
            if isinstance(event, HubGap):
                log.warning("channel.lagged", channel=name, dropped=event.dropped)
            for patterns, handler in self._rows:
                if patterns.match(event.type):
                    try:
                        await _called(handler(event, self._context))  # type: ignore[arg-type]
                    except BaseException as error:
                        if not is_contained(error):
                            raise
                        self._report(error, event.type, event)

    async def _complete(self) -> None:
        """Run ``on_complete``, whatever is being cancelled around it."""
        hook = self.channel.on_complete
        self._during = "on_complete"
        if hook is not None:
            before = cancellations()
            with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE) as limit:
                try:
                    await _called(hook(self._context))  # type: ignore[arg-type]
                except BaseException as error:
                    if not is_contained(error, since=before):
                        raise
                    self._report(error, "on_complete")
            if limit.cancelled_caught:
                late = TimeoutError(f"on_complete was not done within {GRACE:g} s")
                self._report(late, "on_complete")
        self._emit(ChannelComplete(channel=self.channel.name))

    def start_beside(self, fn: Callable[[Unpack[Ts]], Awaitable[object]], args: tuple[*Ts]) -> None:
        """See ``ChannelContext.start``; raises ``BadValue`` when the channel is over."""
        if self._group is None:
            raise BadValue(f"channel {self.channel.name}", "it is over; nothing more can start")
        start_in(self._group, self._guarded(fn, args), name=f"channel {self.channel.name}")

    async def _guarded(
        self, fn: Callable[[Unpack[Ts]], Awaitable[object]], args: tuple[*Ts]
    ) -> None:
        try:
            await fn(*args)
        except BaseException as error:
            if not is_contained(error):
                raise
            self._report(error, getattr(fn, "__qualname__", repr(fn)))
        if is_on_asyncio():
            await absorb_cancellation()

    # ── what goes wrong ──────────────────────────────────────────────────────────────────────

    def _report(self, error: BaseException, during: str, event: Event | None = None) -> None:
        name = self.channel.name
        mask = self._hub.masker(event.run_id if event is not None else "")
        kind = mask(class_name_of(error))
        log.error(
            "channel.failed", channel=name, during=during, error=kind, exc_info=mask.error(error)
        )
        if during == ChannelError.type:
            return
        about: dict[str, Any] = {}
        if event is not None:
            about = {
                "run_id": event.run_id,
                "root_run_id": event.root_run_id,
                "parent_run_id": event.parent_run_id,
                "agent": event.agent,
            }
        self._emit(
            ChannelError(
                channel=name, error=mask(words_of(error), 2000), error_type=kind, during=during,
                **about,
            )
        )  # fmt: skip

    def _tell(self, seconds: float) -> None:
        """Log which function of the channel somebody has waited for so long."""
        held_by = held_up_by(self, Attachment._live.__code__)
        log.warning(
            "channel.waits", channel=self.channel.name, during=self._during, seconds=seconds,
            held_by=held_by, remedy=_REMEDIES.get(self._during, REMEDY),
        )  # fmt: skip

    def _emit(self, event: Event) -> None:
        if not self._hub.is_closed:
            self._hub.emit(event)


class Channels:
    """The channels of a hub.  ``async with Channels(hub, one, another) as channels:``

    * ``start`` returns when every channel's ``on_start`` is done, ``stop`` when every
      ``on_complete`` is; both do nothing the second time.  They may be used again in turn; each
      attachment begins with a fresh state.
    * A channel that fails to start takes no other down: ``attached[name].error`` says why.
    * Names are unique on a hub: ``BadValue`` for a second channel of one name, and for a ``grace``
      that is no number of seconds.
    """

    def __init__(self, hub: Hub, *channels: Channel, grace: float = GRACE) -> None:
        check_grace("grace", grace)
        self._hub = hub
        self._grace = grace
        self._channels: dict[str, Channel] = {}
        self._attached: dict[str, Attachment] = {}
        self._is_started = False
        for channel in channels:
            self._register(channel)

    @property
    def attached(self) -> Mapping[str, Attachment]:
        """The attachments by name; empty before ``start`` and after ``stop``."""
        return MappingProxyType(self._attached)

    async def start(self) -> None:
        """Attach every channel, side by side."""
        self._hub.pipeline.home.check("starting channels")
        if self._is_started:
            for attachment in tuple(self._attached.values()):
                await attachment.wait_started()
            return
        self._is_started = True
        try:
            for channel in self._channels.values():
                self._attached[channel.name] = Attachment(self._hub, channel)
            for attachment in tuple(self._attached.values()):
                await attachment.wait_started()
        except BaseException:  # Cancelled on the way in: nobody will come to stop them.
            await self._cut_off(*self._attached.values())
            self._is_started = False
            self._attached = {}
            raise

    async def stop(self) -> None:
        """Detach every channel, side by side; each has ``grace`` seconds for what waits."""
        if self._hub.pipeline.home.is_left("stopping channels"):
            return
        if self._attached:
            self._hub.tasks.refuse_stranded("stopping channels")
        self._is_started = False
        attached, self._attached = self._attached, {}
        await self._stop(*attached.values())

    async def add(self, channel: Channel) -> None:
        """Register a channel; if the others are started, start it at once.

        Returns when its ``on_start`` is done, well or not.
        """
        self._hub.pipeline.home.check("adding a channel")
        self._register(channel)
        if not self._is_started:
            return
        try:
            attachment = self._attached[channel.name] = Attachment(self._hub, channel)
            await attachment.wait_started()
        except BaseException:
            del self._channels[channel.name]
            if (begun := self._attached.pop(channel.name, None)) is not None:
                await self._cut_off(begun)
            raise

    async def remove(self, name: str) -> None:
        """Detach a channel and forget it; nothing happens if there is none of that name."""
        self._hub.pipeline.home.check("removing a channel")
        self._channels.pop(name, None)
        attachment = self._attached.pop(name, None)
        if attachment is not None:
            await self._stop(attachment)

    def _register(self, channel: Channel) -> None:
        if channel.name in self._channels:
            raise BadValue("Channels", f"there is a channel {channel.name!r} already; rename one")
        self._channels[channel.name] = channel

    async def _cut_off(self, *attachments: Attachment) -> None:
        """Detach at once, whatever waits; also while the caller is being cancelled."""
        with anyio.CancelScope(shield=True):
            await self._stop(*attachments, grace=0)

    async def _stop(self, *attachments: Attachment, grace: float | None = None) -> None:
        grace = self._grace if grace is None else grace
        own = anyio.get_current_task().id
        async with anyio.create_task_group() as group:
            for attachment in attachments:
                if attachment._task == own:
                    await attachment.stop(grace)
                else:
                    start_in(group, attachment.stop(grace))

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # Cancelled on the way in: nobody will come to stop them.
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()


async def _called(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def _parts(pattern: str | tuple[str, ...]) -> tuple[str, ...]:
    return (pattern,) if isinstance(pattern, str) else pattern


def _reserve(hub: Hub, name: str) -> Callable[[], None]:
    """Take the channel's name on this hub: it is the source of what the channel sends."""
    try:
        return hub.serve(f"channel:{name}", lambda question: name)
    except BadValue:
        raise BadValue(
            "Channels", f"the hub has a channel {name!r} already; stop it, or rename one"
        ) from None
