"""Audiences: who listens to what.

An ``Audience`` is everybody who listens to one thing (all events, one run, one tree of runs).
It keeps a row of subscriptions per event type, found on first use.  A row is an immutable tuple,
so that subscribing or unsubscribing during a dispatch never shifts anybody else, and what is
removed becomes ignore_event at once by losing its ``deliver``.
"""

from collections.abc import Callable
from typing import Self

from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.events import Event

__all__ = ["Audience", "Subscription", "ignore_event"]


def ignore_event(event: Event) -> None:
    """What a removed subscription delivers to."""


def _stay(subscription: "Subscription") -> None:
    """What a subscription calls whose listener has left."""


class Subscription:
    """A listener's place; call it, or ``close()``, to leave.  Leaving twice is a no-op."""

    __slots__ = (
        "_leave", "by", "deliver", "handler", "patterns", "root_run_id", "run_id",
    )  # fmt: skip

    def __init__(
        self,
        patterns: Patterns,
        deliver: Callable[[Event], object],
        leave: "Callable[[Subscription], object]",
        *,
        run_id: str | None = None,
        root_run_id: str | None = None,
        handler: object = None,
    ) -> None:
        self._leave = leave
        self.patterns = patterns
        self.deliver = deliver
        self.run_id = run_id
        self.root_run_id = root_run_id
        self.handler = handler
        self.by = ""
        """The run whose code listens, if it is one's."""

    def close(self) -> None:
        """Leave: nothing is delivered from now on, by no dispatch at work either."""
        self.deliver = ignore_event
        self._leave(self)

    def forget(self) -> None:
        """Deliver nothing from now on, and refer to the listener no more, which has left."""
        self.deliver = ignore_event
        self._leave = _stay

    def __call__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Audience:
    """Those who listen to all events, to one run, or to one tree."""

    __slots__ = ("rows", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: tuple[Subscription, ...] = ()
        self.rows: dict[str, tuple[Subscription, ...]] = {}

    def add(self, subscription: Subscription) -> None:
        """Let one more listen."""
        self.subscriptions += (subscription,)
        self.rows.clear()

    def remove(self, subscription: Subscription) -> None:
        """Let one listen no more."""
        self.subscriptions = tuple(s for s in self.subscriptions if s is not subscription)
        self.rows.clear()

    def row(self, type_: str) -> tuple[Subscription, ...]:
        """Find and remember who listens to ``type_``."""
        row = tuple(s for s in self.subscriptions if s.patterns.match(type_))
        if len(self.rows) > 10_000:  # Types are the emitters' to invent: bounded.
            self.rows.clear()
        self.rows[type_] = row
        return row

    def row_of(self, event: Event) -> tuple[Subscription, ...]:
        """Who listens to ``event``; a listener to a run may also name the tree it must be in."""
        row = self.rows.get(event.type)
        if row is None:
            row = self.row(event.type)
        for subscription in row:
            if subscription.root_run_id not in (None, event.root_run_id):
                return tuple(s for s in row if s.root_run_id in (None, event.root_run_id))
        return row

    def stop_all(self) -> None:
        """Let no listener be called again, not even by a dispatch at work."""
        for subscription in self.subscriptions:
            subscription.deliver = ignore_event
