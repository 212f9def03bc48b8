"""The files that a message names, or brings: the run has them, or has none of the name.

    send, open, start, say ──► the store ──► is each in the run's area? ──► accepted, or rejected
    PUT …/files/NAME ────────► the store ──► is its name free there? ─────► accepted, or rejected

The store asks when it decides about the message, in its one order: a file that was written or sent
before is there, whatever is in memory.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from hubbub.agents.code.lifecycle import CodeThread, fold_code
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.area import Area, find_files, new_file_problem, with_waiting
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub.events import Event, InLane
from hubbub.hub.store.journal import RefusalOfFiles

__all__ = ["NamedFiles"]

REMEDY: Final = "write it first, by the run's handle or PUT …/files, or attach one that is there"


class NamedFiles:
    """Says why a run cannot be sent what names or brings certain files; used in the store's
    thread."""

    __slots__ = ("_definitions",)

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def refusal(
        self, agent: str, names: Sequence[str], lane: Iterable[Event], waiting: Iterable[InLane]
    ) -> str:
        """Of a run of ``agent`` with this own lane, which is to take what waits before; empty where
        it has, or will have, all of the files."""
        areas = self._areas(agent, lane, waiting)
        absent = min((find_files(area, names)[1] for area in areas), key=len)
        if not absent:
            return ""
        return f"the run has no file {', '.join(map(repr, absent))}; {REMEDY}"

    def refusal_of_new(self, path: str) -> RefusalOfFiles:
        """As ``refusal``, of a message that brings a file: why none of this name can come."""

        def refusal(
            agent: str, _: Sequence[str], lane: Iterable[Event], waiting: Iterable[InLane]
        ) -> str:
            problems = (new_file_problem(x.files, path) for x in self._areas(agent, lane, waiting))
            return next(filter(None, problems), "")

        return refusal

    def _areas(
        self, agent: str, lane: Iterable[Event], waiting: Iterable[InLane]
    ) -> Iterable[Area]:
        """What the run has when it has taken what waits; of an unknown agent, who may be either,
        as code and as one with a model."""
        definition = self._definitions.find_agent(agent)
        events = tuple(lane)
        if definition is None or definition.is_code:
            code = CodeThread()
            for event in events:
                code = fold_code(code, event)
            yield with_waiting(code.area, waiting, is_code=True)
        if definition is None or not definition.is_code:
            yield with_waiting(fold_all(EMPTY, events).area, waiting, is_code=False)
