"""``Mailbox``: what waits in a model run's inbox while the run is in memory.

The frame that has a conversation also takes what people say to its root: the root's mailbox is
*lent* to it, which takes nothing from it but what a person said.  Everything else in it,
a child's words or an agent's, is the root's own.  So is all of it while a word that unwinds all
frames waits there: the root takes that word at once, and what else was said is for the root.
"""

from collections.abc import Container, Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from hubbub.agents.state.commands import command_of
from hubbub.agents.state.prompts import Prompts, for_code
from hubbub.agents.turn.decide import KIND_OF, Kind
from hubbub.hub.addressing import is_from_user
from hubbub.hub.events import InLane, SessionMessage, SessionResult

__all__ = ["ANSWER", "KINDS", "SAID", "Mailbox"]

_ORDER: Final[tuple[Kind, ...]] = (
    "control", "result", "message", "said", "stop", "back", "answer", "reply",
)  # fmt: skip

KINDS: Final[tuple[frozenset[Kind], ...]] = tuple(
    frozenset([kind for bit, kind in enumerate(_ORDER) if bits >> bit & 1])
    for bits in range(1 << len(_ORDER))
)
"""Which kinds wait, by one bit each, so that asking the core allocates nothing."""

SAID: Final = 8
ANSWER: Final = 64
_REPLY: Final = 128
_RESULTS: Final = 2
_MESSAGES: Final = 4
_SAID: Final = {"": 8, "stop": 24, "back": 40}
_STOP: Final = 16


Items: TypeAlias = list[InLane] | tuple[()]
"""What waits, in order.  Nothing costs no list of its own: most runs wait with three of these
empty."""


class Mailbox(Struct, eq=False, gc=False):
    """The untaken items of one run, in order; each is noted once."""

    control: "Items" = ()
    results: "Items" = ()
    kept: "Items" = ()
    """Results that are not to be taken yet."""
    messages: "Items" = ()
    said: int = 0
    """What people have said of the messages, as bits of ``KINDS``."""
    seen: int = 0
    """The number of the last item."""

    def put(self, item: InLane) -> None:
        """Note an item of the inbox; one that was noted before is passed over."""
        if item.seq <= self.seen:
            return
        self.seen = item.seq
        match KIND_OF[item.__class__]:
            case "control":
                self.control = items = self.control or []
            case "result":
                self.results = items = self.results or []
            case _:
                self.messages = items = self.messages or []
                self.said |= _bits(item)
        items.append(item)

    def keep(self, children: Container[str]) -> None:
        """Let the results of these children wait, and no others any more."""
        items = sorted((*self.kept, *self.results), key=_number)
        kept: list[InLane] = [
            x for x in items if isinstance(x, SessionResult) and x.child_run_id in children
        ]
        self.results = [item for item in items if item not in kept] or ()
        self.kept = kept or ()

    def awaited(self, prompts: Prompts) -> int:
        """The bits of the results there are: some may end what code asks by one of these."""
        if not prompts:
            return _RESULTS
        replies = len(for_code(prompts, self.results))
        return _REPLY * (replies > 0) | _RESULTS * (replies < len(self.results))

    @property
    def lends(self) -> int:
        """The bits of what the frame that has the conversation may take out of here."""
        return 0 if not self.said or self.said & _STOP else _MESSAGES | self.said

    def waiting(
        self, kind: Kind, lent: "Mailbox | None" = None, prompts: Prompts = ()
    ) -> tuple[InLane, ...]:
        """What waits of a kind, the conversation's messages among it, by when they came.

        ``prompts``: those that are open, where there are any.
        """
        if kind == "control":
            return tuple(self.control)
        if kind == "reply":
            return for_code(prompts, self.results)
        if kind == "result":
            replies = for_code(prompts, self.results) if prompts else ()
            return tuple([x for x in self.results if x not in replies])
        items = tuple(self.messages)
        if lent is not None:
            items = tuple(sorted((*items, *filter(_bits, lent.messages)), key=_came_at))
        if kind == "message":
            return items
        if kind == "said":
            return tuple([item for item in items if _bits(item)])
        words = tuple([item for item in items if command_of(item) == kind])
        return words if kind == "stop" else words[:1]

    def take(
        self, kind: Kind, lent: "Mailbox | None" = None, prompts: Prompts = ()
    ) -> tuple[InLane, ...]:
        """The same, and they wait no longer."""
        if lent is None and not self.said and not prompts:
            if kind == "control":
                items, self.control = self.control, ()
            elif kind == "result":
                items, self.results = self.results, ()
            else:
                items, self.messages = self.messages, ()
            return tuple(items)
        taken = self.waiting(kind, lent, prompts)
        self.remove(taken)
        if lent is not None:
            lent.remove(taken)
        return taken

    def remove(self, items: Iterable[InLane]) -> None:
        """These items wait no longer, as far as they are here."""
        gone = {(item.run_id, item.seq) for item in items}

        def left(waiting: Items) -> Items:
            return [item for item in waiting if (item.run_id, item.seq) not in gone] or ()

        self.control, self.results = left(self.control), left(self.results)
        self.messages = left(self.messages)
        self.said = 0
        for item in self.messages:
            self.said |= _bits(item)


def _bits(item: InLane) -> int:
    """The bits of what a person said; 0 for every other item."""
    if not (isinstance(item, SessionMessage) and is_from_user(item)):
        return 0
    return _SAID[command_of(item)]


def _came_at(item: InLane) -> int:
    return item.at


def _number(item: InLane) -> int:
    return item.seq
