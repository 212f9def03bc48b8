"""Hypothesis: stories, scripts, faults and events, drawn."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "arguments_of",
    "events",
    "faults",
    "json_values",
    "opened_agents",
    "register_events",
    "replies",
    "seconds",
    "seeds",
    "steps",
    "stores",
    "texts",
]

_EXPORTS: Final = {
    "hubbub.runtime.simulation.strategies.worlds": (
        "arguments_of",
        "events",
        "faults",
        "json_values",
        "opened_agents",
        "register_events",
        "replies",
        "seconds",
        "seeds",
        "steps",
        "stores",
        "texts",
    ),
}

if TYPE_CHECKING:
    from hubbub.runtime.simulation.strategies.worlds import (
        arguments_of,
        events,
        faults,
        json_values,
        opened_agents,
        register_events,
        replies,
        seconds,
        seeds,
        steps,
        stores,
        texts,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
