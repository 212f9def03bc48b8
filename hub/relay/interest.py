"""What a process wants to hear of the pieces that others make: what is listened to in it.

``listened_to`` reads it off the audiences of a hub; ``ListenerElsewhere`` stands for it in the hub
of who makes pieces, so that they are made for a listener there as for one here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias

from hubbub.hub.delivery.audience import Audience, Subscription
from hubbub.hub.delivery.patterns import MAX_PATTERNS, Patterns
from hubbub.hub.errors import BadPattern, BadValue
from hubbub.hub.events import KNOWN_TYPES, Event
from hubbub.hub.relay.frames import DeltaWant

__all__ = [
    "Interest",
    "ListenerElsewhere",
    "Scope",
    "bounded",
    "interest_of",
    "listened_to",
    "wanted_of",
]

Scope: TypeAlias = tuple[str | None, str | None]
"""A run, a tree, both or, without either, everything."""

Interest: TypeAlias = dict[Scope, frozenset[str]]
"""The patterns that are listened to in each."""

EVERYTHING: Final[Scope] = (None, None)

DELTA: Final = ":delta"
"""How the types of pieces end."""

MAX_SCOPES: Final = 200
"""Runs and trees that are told apart; if there are more, everything is wanted."""

_DELTAS: Final = tuple(sorted(x for x in KNOWN_TYPES if x.endswith(DELTA)))
_OWN: Final = tuple(sorted({x.partition(":")[0] + ":" for x in KNOWN_TYPES}))
"""How the types of the library's own begin."""


class DeltaPatterns(Patterns):
    """Patterns of which only types of pieces are meant."""

    __slots__ = ()

    def match(self, type_: str) -> bool:
        """Whether a piece of this type is meant."""
        return type_.endswith(DELTA) and super().match(type_)


class ListenerElsewhere(Subscription):
    """The place of those in other processes who listen to the same."""

    __slots__ = ("named",)

    def __init__(
        self, scope: Scope, named: frozenset[str], deliver: Callable[[Event], object],
        leave: Callable[[Subscription], object],
    ) -> None:  # fmt: skip
        self.named = named
        patterns = sorted(named) if len(named) <= MAX_PATTERNS else "*"
        super().__init__(
            DeltaPatterns(patterns), deliver, leave, run_id=scope[0], root_run_id=scope[1]
        )


def listened_to(audiences: Iterable[Audience]) -> Interest:
    """What listeners of this process would get of pieces; bounded."""
    found: Interest = {}
    for audience in audiences:
        for each in audience.subscriptions:
            if each.__class__ is not ListenerElsewhere and (named := _of_deltas(each.patterns)):
                scope = each.run_id, each.root_run_id
                found[scope] = found.get(scope, frozenset()) | named
    return bounded(found)


def bounded(interest: Interest) -> Interest:
    """The same, or more than it where it names too many runs."""
    if len(interest) <= MAX_SCOPES:
        return interest
    return {EVERYTHING: frozenset().union(*interest.values())}


def interest_of(wants: Iterable[DeltaWant]) -> Interest:
    """What another process says, without patterns that are none to this version."""
    found: Interest = {}
    for want in wants:
        if named := frozenset(x for x in want.patterns if _is_known(x)):
            scope = want.run_id, want.root_run_id
            found[scope] = found.get(scope, frozenset()) | named
    return found


def wanted_of(interest: Mapping[Scope, Collection[str]]) -> list[DeltaWant]:
    """An interest, in the form in which it is said."""
    return [
        DeltaWant(tuple(sorted(named)), run_id, root_run_id)
        for (run_id, root_run_id), named in interest.items()
    ]


def _is_known(pattern: str) -> bool:
    try:
        Patterns(pattern)
    except (BadPattern, BadValue):
        return False
    return True


def _of_deltas(patterns: Patterns) -> frozenset[str]:
    """Those that a type of pieces may match."""
    if patterns.everything:
        return frozenset("*")
    named = {each for each in patterns.exact if each.endswith(DELTA)}
    for prefix in patterns.prefixes:
        if not prefix.startswith(_OWN) or any(each.startswith(prefix) for each in _DELTAS):
            named.add(f"{prefix}*")
    return frozenset(named)
