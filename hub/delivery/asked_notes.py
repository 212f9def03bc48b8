"""``AskedNotes``: which prompts that no run asks are open, as the store notes it.

By that they end although the process that asked has died:

    a store that is one process's    by whoever opens it next
    one that several share           each process notes its own, under the number of its lease; when
                                     that is over, whoever has heard of them ends them, and one does

Each open prompt has a note to itself for as long as it is open, wherever its lease has gone
meanwhile, and who ends it expects it there: so it ends once.  The notes of prompts that have ended
are used again, or go.  What versions before this one have noted is read, too: several ids under one
key.

A process whose lease is over though it lives, for it was paused or cut off, is taken for dead here,
too: it hears that its prompts have ended.
"""

from collections.abc import Callable
from typing import Final

from hubbub.hub.delivery.scope import stamped
from hubbub.hub.errors import HubbubError
from hubbub.hub.events import Event, SessionPrompt, SessionPromptEnd
from hubbub.hub.logs import log
from hubbub.hub.ports import Clock
from hubbub.hub.store.journal import Commit, Journal
from hubbub.hub.store.left_notes import ASKED
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.task_host import TaskHost

__all__ = ["AskedNotes"]

LOST: Final = "lost: the process stopped"

LOOK: Final = 2.0
"""Seconds between two looks at who is at work, while others ask."""


class AskedNotes:
    """The notes of one hub, and what it does about those of others."""

    def __init__(
        self,
        journal: Journal,
        tasks: TaskHost,
        clock: Clock,
        submit: Callable[[Commit], object],
        ended: Callable[[str, str], object],
    ) -> None:
        self._journal = journal
        self._sharing = sharing_of(journal)
        self._tasks = tasks
        self._clock = clock
        self._submit = submit
        self._ended = ended
        """Called with the id of a prompt of a process that has died, and the reason."""
        self._is_wanted = self._is_watching = False
        self._keys: dict[str, str] = {}
        """Where the prompts are noted that are open here, by id."""
        self._lease = ""
        """The end of the keys of new notes."""
        self._unused: list[str] = []
        """Keys under this lease that note nothing any more."""
        self._made = 0
        """How many there are under this lease."""

    async def begin(self) -> None:
        """End what was open when the previous process stopped."""
        if self._sharing is None:
            for key, text in (await self._journal.notes(ASKED)).items():
                self._end_all(key, text)
        else:
            self._is_wanted = await self._look()

    def opens(self, event: SessionPrompt) -> None:
        """Record that a prompt opens."""
        key = self._keys[event.prompt_id] = self._free_key()
        self._submit(Commit(events=self._stamped(event), notes={key: event.prompt_id}))

    def ends(self, event: SessionPromptEnd) -> None:
        """Record that one has ended, unless another process has taken this one for dead, and has
        recorded that already."""
        key = self._forget(event.prompt_id)
        expected = {key: event.prompt_id}
        self._submit(Commit(events=self._stamped(event), notes={key: ""}, notes_expect=expected))

    def ended_elsewhere(self, prompt_id: str) -> None:
        """Another process has recorded it."""
        if prompt_id in self._keys:
            self._forget(prompt_id)

    def _free_key(self) -> str:
        lease = "" if self._sharing is None else f":{self._sharing.number}"
        if lease != self._lease:
            self._lease, self._unused, self._made = lease, [], 0
        if self._unused:
            return self._unused.pop()
        self._made += 1
        return f"{ASKED}:{self._made}{lease}"

    def _forget(self, prompt_id: str) -> str:
        key = self._keys.pop(prompt_id)
        if key.endswith(self._lease):
            self._unused.append(key)
        return key

    def _stamped(self, event: SessionPrompt | SessionPromptEnd) -> tuple[Event, ...]:
        return (stamped(event, self._clock.now()),)

    def watch(self) -> None:
        """Others ask, or may: look from time to time whether they are at work still."""
        self._is_wanted = True
        self.opened()

    def opened(self) -> None:
        """There are tasks from now on."""
        if self._is_wanted and self._tasks.is_open and not self._is_watching:
            self._is_watching = True
            self._tasks.start(self._watch(), name="hubbub asked", steady=True)

    async def _watch(self) -> None:
        try:
            while self._is_wanted:
                await self._clock.sleep(LOOK)
                self._is_wanted = False  # Unless more is asked meanwhile.
                if await self._look():
                    self._is_wanted = True
        except HubbubError as error:  # The store has failed, which others say.
            log.warning("prompts.unwatched", error=str(error))
        finally:
            self._is_watching = False

    async def _look(self) -> bool:
        """End what those asked that are not at work any more; whether others ask still."""
        assert self._sharing is not None
        at_work = await self._sharing.at_work()
        notes = await self._journal.notes(f"{ASKED}:")
        own = {*self._keys.values(), f"{ASKED}:{self._sharing.number}"}
        others = {key: text for key, text in notes.items() if text and key not in own}
        gone = [key for key in others if key.rpartition(":")[2] not in map(str, at_work)]
        for key in gone:
            self._end_all(key, others[key])
        return bool(others)  # Also of those that are gone: to see that this was so.

    def _end_all(self, key: str, text: str) -> None:
        """In one commit, which is nobody's where another process was quicker."""
        ends = [SessionPromptEnd(prompt_id=each, reason=LOST) for each in text.split()]
        for each in ends:
            self._ended(each.prompt_id, each.reason)
        if ends:
            events = tuple([stamped(each, self._clock.now()) for each in ends])
            self._submit(Commit(events=events, notes={key: ""}, notes_expect={key: text}))
