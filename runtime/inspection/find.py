"""``find_run``: the run that people mean by its session key, or by a part of its id."""

from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.texts import check_text

__all__ = ["MIN_PART", "NoOneRun", "ambiguity", "find_run"]

MIN_PART: Final = 4
"""Characters of a run id that may stand for the whole of it."""

MAX_CANDIDATES: Final = 8


class NoOneRun(OperatorError):
    """What was given as a run stands for none, or for several."""

    def __init__(self, given: str, candidates: tuple[str, ...]) -> None:
        self.candidates = candidates
        what = ambiguity(candidates) or "no such run in this store; hubbub runs --all lists them"
        super().__init__(f"run {given!r}: {what}")


def ambiguity(candidates: tuple[str, ...]) -> str:
    """What a part of an id may stand for; empty where that is nothing."""
    if not candidates:
        return ""
    shown = ", ".join(candidates[:MAX_CANDIDATES])
    more = ", …" if len(candidates) > MAX_CANDIDATES else ""
    return f"may be any of {shown}{more}; write more of it"


def find_run(store: StoreReader, given: str) -> str:
    """The run that ``given`` stands for: its id, the session key of an open conversation, or a
    beginning or an end of an id.

    Raises ``NoOneRun``, which lists the candidates, and ``BadValue`` for what is no text.
    """
    check_text("run", given)
    if store.row(given) is not None:
        return given
    keyed = store.find(given, "key") if given else ()
    if len(keyed) == 1:
        return keyed[0]
    if len(given) < MIN_PART:
        known = "a part of a run's id has at least"
        raise OperatorError(f"run {given!r}: {known} {MIN_PART} characters; write more of it")
    found = tuple(store.matching(given, MAX_CANDIDATES + 1))
    if len(found) != 1:
        raise NoOneRun(given, found)
    return found[0]
