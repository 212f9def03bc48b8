"""What the runs of a store wait for people to answer, as their store knows it.

waits_in   whose                                           found by             who takes the answer
─────────  ──────────────────────────────────────────────  ───────────────────  ────────────────────
record     a call's of the model: approvals, interrupts …  the prompt's note    the next runtime
code       a tool's or code agent's, on record by number   its run, at work     the same, if it is
                                                                                run again
process    any other's, while a runtime is at work         its run, at work     that runtime alone

Of a run without a note only the last events are read, and of one that rests nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from hubbub.agents.state.prompts import LASTING
from hubbub.hub.delivery.ended_prompts import asker_of
from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.events import PromptKind, SessionPrompt, SessionPromptEnd
from hubbub.hub.store.reader import RunRow, StoreReader, answered_prompts, damage_said, decoded
from hubbub.hub.values import Json
from hubbub.runtime.inspection.find import ambiguity

__all__ = ["NoOnePrompt", "ShownPrompt", "find_prompt", "open_prompts", "runs_below"]

MIN_PART: Final = 4
"""Characters of a prompt's id that may stand for the whole of it."""


LAST_EVENTS: Final = 500
"""Among so many events of a run at work those prompts are looked for of which there is no note."""


WaitsIn: TypeAlias = Literal["record", "code", "process"]

_TYPES: Final = frozenset({SessionPrompt.type, SessionPromptEnd.type})


class ShownPrompt(Struct, frozen=True, kw_only=True):
    """A prompt that waits; ``since`` and ``expires_at`` are µs since the Unix epoch.

    ``kind`` is ``question``, ``approval`` (may ``tool`` run with these ``arguments``?) or
    ``external`` (the result of ``tool``).  ``waits_in`` says who takes the answer, see above.
    ``is_answered``: an answer waits in its run's inbox.
    """

    prompt_id: str
    run_id: str
    root_run_id: str
    agent: str
    kind: PromptKind
    question: str
    options: tuple[str, ...]
    tool: str
    arguments: Json
    schema: Json
    since: int
    expires_at: int | None
    waits_in: WaitsIn
    is_answered: bool


class NoOnePrompt(OperatorError):
    """What was given as a prompt stands for none that is open, or for several."""

    def __init__(self, given: str, candidates: tuple[str, ...]) -> None:
        self.candidates = candidates
        none = "no such prompt is open in this store; hubbub reply lists those that are"
        what = ambiguity(candidates) or none
        super().__init__(f"prompt {given!r}: {what}")


def open_prompts(
    store: StoreReader,
    run_ids: Iterable[str] | None = None,
    damage: dict[str, str] | None = None,
) -> tuple[ShownPrompt, ...]:
    """What people are asked by these runs, or by any, the oldest first; answered or not.

    What a damaged run asks is left out; ``damage`` is told what of it cannot be read.
    """
    found: list[ShownPrompt] = []
    with store.one_moment():
        look = _Look(store)
        for run_id in look.asking(run_ids):
            try:
                found += look.at(run_id)
            except StoreFailed as error:
                if damage is not None:
                    damage.setdefault(run_id, damage_said(store, error))
    return tuple(sorted(found, key=lambda each: (each.since, each.prompt_id)))


def runs_below(store: StoreReader, beginnings: Iterable[str]) -> list[str]:
    """The live runs of the trees whose root's id begins like one of these."""
    by_size: dict[int, set[str]] = {}
    for each in beginnings:
        by_size.setdefault(len(each), set()).add(each)
    return [
        run_id
        for root in store.find("", "every")
        if any(root[:size] in found for size, found in by_size.items())
        for run_id in (root, *store.find(root, "below"))
    ]


def find_prompt(store: StoreReader, given: str) -> ShownPrompt:
    """The open prompt that ``given`` stands for: its id, or a beginning or an end of it.

    Raises ``NoOnePrompt``, which lists the candidates, or says how an earlier one has ended.
    """
    damage: dict[str, str] = {}
    prompts = open_prompts(store, damage=damage)
    for each in prompts:
        if each.prompt_id == given:
            return each
    if over := _ending(store, given):
        raise OperatorError(f"prompt {given!r}: it is over ({over}); hubbub reply lists open ones")
    if len(given) < MIN_PART:
        known = "a part of a prompt's id has at least"
        raise OperatorError(f"prompt {given!r}: {known} {MIN_PART} characters; write more of it")
    found = [x for x in prompts if x.prompt_id.startswith(given) or x.prompt_id.endswith(given)]
    for run_id in damage if not found else ():
        raise OperatorError(f"prompt {given!r}: may be of run {run_id}: {damage[run_id]}")
    if len(found) != 1:
        raise NoOnePrompt(given, tuple([each.prompt_id for each in found]))
    return found[0]


def _ending(store: StoreReader, prompt_id: str) -> str:
    """Why a prompt with just this id has ended; empty where it has not, or never was."""
    run_id = asker_of(prompt_id)
    row = store.row(run_id) if run_id != prompt_id else None
    if row is None:
        return ""
    for event in _asked_by(store, row.run_id):
        if event is not None and event.prompt_id == prompt_id:
            return event.reason if isinstance(event, SessionPromptEnd) else "its run is over"
    return ""


def _asked_by(store: StoreReader, run_id: str) -> Iterator[SessionPrompt | SessionPromptEnd | None]:
    """Events of a run, the last one first: its prompts and their ends, ``None`` for others."""
    for row in store.event_rows((run_id,), backwards=True):
        event = None
        if row.lane == "own" and row.type in _TYPES:
            event = decoded(store, row.position, row.body)
        yield event if isinstance(event, SessionPrompt | SessionPromptEnd) else None


class _Look:
    """One look at a store."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._is_at_work = store.is_at_work()
        self._noted: dict[str, set[str]] = {}
        """The prompts of each run that outlive a process."""
        for key, note in store.notes(LASTING).items():
            if note:
                prompt_id = key.removeprefix(LASTING)
                self._noted.setdefault(asker_of(prompt_id), set()).add(prompt_id)

    def asking(self, run_ids: Iterable[str] | None) -> Iterable[str]:
        """Those among these runs, or all, that may ask."""
        if run_ids is not None:
            return run_ids
        return {*self._noted, *self._store.find("", "every")}

    def at(self, run_id: str) -> Iterator[ShownPrompt]:
        """What one run asks."""
        row = self._store.row(run_id)
        if row is None or row.status == "ended":
            return
        noted = self._noted.get(run_id, set())
        is_active = row.status == "active"
        if not (noted or is_active):
            return
        answered = answered_prompts(self._store, run_id) if row.waiting else frozenset()
        for event in self._open(run_id, set(noted), LAST_EVENTS if is_active else 0):
            place: WaitsIn | None = None
            if event.prompt_id in noted:
                place = "record"
            elif event.ordinal:
                place = "code"
            elif self._is_at_work and is_active:
                place = "process"
            if place is not None:
                yield _shown(row, event, place, event.prompt_id in answered)

    def _open(self, run_id: str, noted: set[str], at_least: int) -> Iterator[SessionPrompt]:
        """The prompts of a run that are not over: all that are noted, and those among its last
        events."""
        ended: set[str] = set()
        for count, event in enumerate(_asked_by(self._store, run_id)):
            if not noted and count >= at_least:
                return
            if isinstance(event, SessionPromptEnd):
                ended.add(event.prompt_id)
            elif event is not None and event.prompt_id not in ended:
                noted.discard(event.prompt_id)
                if event.to == "user":
                    yield event


def _shown(row: RunRow, event: SessionPrompt, waits_in: WaitsIn, is_answered: bool) -> ShownPrompt:
    timeout = event.timeout
    return ShownPrompt(
        prompt_id=event.prompt_id, run_id=row.run_id, root_run_id=row.root_run_id,
        agent=event.agent or row.agent, kind=event.kind, question=event.question,
        options=event.options, tool=event.tool, arguments=event.arguments_json,
        schema=event.schema_json, since=event.at, waits_in=waits_in, is_answered=is_answered,
        expires_at=None if timeout is None else event.at + int(timeout * 1_000_000),
    )  # fmt: skip
