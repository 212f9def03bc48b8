"""The files that a message names: those of the run it goes to, or it is refused.

    send, open, start, say ──► the store ──► is each in the run's area? ──► accepted, or rejected

The store asks when it decides about the message, in its one order: a file that was written before
is there, whatever is in memory.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from hubbub.agents.code.lifecycle import CodeThread, fold_code
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.area import find_files, place_files, with_files
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
        if definition is not None and definition.is_code:
            code = CodeThread()
            for event in lane:
                code = fold_code(code, event)
            area = code.area
        else:
            area = fold_all(EMPTY, tuple(lane)).area
        for item in waiting:
            if files := getattr(item, "files", ()):
                area = with_files(area, place_files(area, files))
        absent = find_files(area, names)[1]
        if not absent:
            return ""
        return f"the run has no file {', '.join(map(repr, absent))}; {REMEDY}"
