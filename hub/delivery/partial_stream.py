"""Streams that also give the text so far of answers under way."""

from typing import Any

from hubbub.hub.delivery.answers import KINDS, DeltaEvent, PartialAnswer, ReceivedText
from hubbub.hub.delivery.dispatch import Dispatcher
from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.events import Event

__all__ = ["PartialStream"]


class PartialStream(EventStream[Any]):
    """A stream that gives each part of an answer once, from its beginning on.

    When it begins, and whenever it goes live again, it first gets the text so far of each answer
    under way as one delta.  What it has missed of an answer since then follows in one piece, as
    long as the answer is under way; nothing is left out for being overtaken.
    """

    __slots__ = ("_received",)

    def __init__(self, dispatcher: Dispatcher, patterns: Patterns, **options: Any) -> None:
        self._received = ReceivedText(dispatcher.answers)
        super().__init__(dispatcher, patterns, **options)

    def _is_void(self, event: Event) -> bool:
        return False

    def _attach(self) -> None:
        super()._attach()
        place = self.subscription
        for answer in self._dispatcher.answers.within(place.run_id, place.root_run_id):
            if answer.is_shown:
                self._catch_up(answer)
            else:
                answer.late.append(self._catch_up)

    def _catch_up(self, answer: PartialAnswer) -> None:
        for block in answer.blocks:
            if self.subscription.patterns.match(block[0].type):
                self._push_delta(self._received.rest_of(answer, block))

    def _push(self, event: Event) -> None:
        if isinstance(event, KINDS):
            self._push_delta(self._received.new_of(event))
        else:
            super()._push(event)

    def _push_delta(self, event: DeltaEvent | None) -> None:
        if event is None or self._closed:
            return
        if not event.seq:
            event = self._numbered(event)
        if len(self._buffer) < self._room:
            self._received.give(event)
        super()._push(event)
