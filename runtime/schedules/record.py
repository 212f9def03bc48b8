"""``ScheduleRecord``: the note of one schedule, which other processes on the store may write, too.

Where several share the store, what is noted is a conflict unless the note is still as this process
knows it: who comes second has handled nothing, and goes on from what the first one has noted.
"""

from hubbub.hub.hub import Hub
from hubbub.hub.store.journal import Commit
from hubbub.runtime.schedules.status import NOTES, ScheduleNote, read_notes

__all__ = ["Overtaken", "ScheduleRecord"]


class Overtaken(Exception):
    """Another process on the store has handled the schedule meanwhile."""


class ScheduleRecord:
    """Writes the note of a schedule, and reads it again."""

    __slots__ = ("_is_overtaken", "_journal", "_key", "_shares", "_text")

    def __init__(self, hub: Hub, uid: str, text: str) -> None:
        self._journal = hub.journal
        self._key = f"{NOTES}{uid}"
        self._shares = hub.share.sharing is not None
        self._text = text
        """What the store has noted, as far as this process knows."""
        self._is_overtaken = False

    def add_to(self, commit: Commit, text: str) -> None:
        """Have a commit note ``text``; it is to be given to ``check`` when it is done."""
        commit.notes = {self._key: text}
        if self._shares:
            commit.notes_expect = {self._key: self._text}
            self._text = text

    def write(self, text: str) -> None:
        """Note ``text``, by itself: a note alone is nothing that the hub could dispatch."""
        commit = Commit()
        self.add_to(commit, text)
        if self._shares:
            commit.done = self._done
        self._journal.submit(commit)

    def _done(self, commit: Commit) -> None:
        self._is_overtaken = self._is_overtaken or commit.error == "conflict"

    def check(self, commit: Commit | None = None) -> None:
        """Raise ``Overtaken`` where ``commit``, or what was written before, was second."""
        if commit is not None:
            self._done(commit)
        if self._is_overtaken and self._shares:
            raise Overtaken

    async def check_unchanged(self) -> None:
        """Raise ``Overtaken`` where another process has noted something."""
        texts = await self._journal.notes(self._key)
        if self._shares and texts.get(self._key, "") != self._text:
            raise Overtaken

    async def read(self) -> ScheduleNote:
        """What is noted now."""
        texts = await self._journal.notes(self._key)
        self._text, self._is_overtaken = texts.get(self._key, ""), False
        uid = self._key.removeprefix(NOTES)
        return read_notes(texts).get(uid) or ScheduleNote()
