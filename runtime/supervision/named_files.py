"""The files that a message names: those of the run it goes to, or it is refused.

    send, open, start, say ──► the store ──► is each in the run's area? ──► accepted, or rejected

The store asks when it decides about the message, in its one order: a file that was written before
is there, whatever is in memory.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from hubbub.agents.code.lifecycle import CodeThread, fold_code
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.area import Area, find_files, place_files, with_files
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub.events import Event, InLane

__all__ = ["NamedFiles"]

REMEDY: Final = "write it first, by the run's handle or PUT …/files, or attach one that is there"


class NamedFiles:
    """Says why a run cannot be sent what names certain files; used in the store's thread."""

    __slots__ = ("_definitions",)

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def refusal(
        self, agent: str, names: Sequence[str], lane: Iterable[Event], waiting: Iterable[InLane]
    ) -> str:
        """Of a run of ``agent`` with this own lane, which is to take what waits before; empty where
        it has, or will have, all of the files."""
        definition = self._definitions.find_agent(agent)
        events = tuple(lane)
        areas: list[Area] = []
        if definition is None or definition.is_code:  # What is unknown may be either.
            code = CodeThread()
            for event in events:
                code = fold_code(code, event)
            areas.append(code.area)
        if definition is None or not definition.is_code:
            areas.append(fold_all(EMPTY, events).area)
        absent = min((_absent(area, names, waiting) for area in areas), key=len)
        if not absent:
            return ""
        return f"the run has no file {', '.join(map(repr, absent))}; {REMEDY}"


def _absent(area: Area, names: Sequence[str], waiting: Iterable[InLane]) -> Sequence[str]:
    """Which of these names no file has, in an area that gets the files of what waits."""
    for item in waiting:
        if files := getattr(item, "files", ()):
            area = with_files(area, place_files(area, files))
    return find_files(area, names)[1]
