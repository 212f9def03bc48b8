"""``register_events``: ``st.from_type(SomeEvent)`` knows every event.

Hypothesis calls it while it is being imported: it is an entry point of the group ``hypothesis``.
So this module stays small and imports Hypothesis only when called.  Strategies are made on demand.
"""

from functools import partial
from typing import Any, Final

from msgspec import Struct

from hubbub.hub.events import (
    CATALOGUE,
    ContentPart,
    CustomEvent,
    Event,
    FileRef,
    ToolCall,
    Usage,
    Variable,
)
from hubbub.hub.values import Secret

__all__ = ["register_events"]

EVENTS: Final[tuple[type[Event], ...]] = (*CATALOGUE, CustomEvent)
PARTS: Final[tuple[type[Struct], ...]] = (
    Usage, ToolCall, Variable, FileRef, ContentPart,
)  # fmt: skip


def register_events() -> None:
    """Make ``st.from_type`` know every event of the catalogue and what events are made of.

    ``Event`` itself stands for any of them.  Who asks for a type that is none of these, such as
    ``object``, is given none of them.  Calling it again changes nothing; needed only where
    ``HYPOTHESIS_NO_PLUGINS`` is set.
    """
    from hypothesis import strategies as st

    known: tuple[type[Any], ...] = (*EVENTS, *PARTS, Event, Secret)
    for cls in known:
        st.register_type_strategy(cls, partial(_strategy_for, cls))


def _strategy_for(cls: type[Any], asked: Any) -> Any:
    """The strategy of a class for who asks for it, and not for a base of it."""
    if asked is not cls:
        return NotImplemented
    from hubbub.runtime.simulation.strategies.event_strategies import values_like

    return values_like(cls)
