"""``Tally``: what a process that drives nothing hears of the demo, and what must be true of it.

every event it hears ─► Tally ─► verdict: each document counted once, each message answered
"""

from collections import Counter
from collections.abc import Sequence

import anyio
import msgspec
from msgspec import Struct

from hubbub.hub.events import AgentComplete, AgentToolComplete, Event
from hubbub.runtime.demo.survey_model import many
from hubbub.runtime.demo.workers.agents import COUNTER, SAID, Counted

__all__ = ["SentMessage", "Tally", "Verdict"]


class SentMessage(Struct, frozen=True, kw_only=True):
    """A message that was accepted."""

    run_id: str
    text: str


class Verdict(Struct, frozen=True, kw_only=True):
    """What came of the demo; ``problems`` is empty where nothing was lost or done twice."""

    trees: int
    documents: int
    words: int
    messages: int
    """That were accepted, each answered once or reported as not handled."""
    unhandled: int
    """Those that were reported."""
    taken_over: float
    """Seconds from the end of the worker that was killed until others drove all of its trees."""
    cut: int
    """Connections that were cut."""
    problems: tuple[str, ...]


class Tally:
    """Takes events as they are heard."""

    def __init__(self, documents: int) -> None:
        self.documents = documents
        self.counted: Counter[str] = Counter()
        self.words = 0
        self.by: Counter[int] = Counter()
        """How many documents each process has counted, by its number."""
        self.reports: dict[str, list[AgentComplete]] = {}
        self.dead: list[str] = []
        """The runs that dead letters were for."""
        self._changed = anyio.Event()

    def take(self, event: Event) -> Counted | None:
        """Go on with the next event; what was counted with it."""
        found = None
        if isinstance(event, AgentToolComplete) and not event.is_error:
            found = msgspec.json.decode(event.output, type=Counted)
            self.counted[found.uri] += 1
            self.by[found.process] += 1
            self.words += found.words
        elif isinstance(event, AgentComplete) and event.agent == COUNTER:
            self.reports.setdefault(event.run_id, []).append(event)
        elif event.type == "hub:dead_letter":
            self.dead.append(event.run_id)
        else:
            return None
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
        return found

    async def wait_counted(self, count: int) -> None:
        """Return when so many documents are counted."""
        while self.counted.total() < min(count, self.documents):
            await self._changed.wait()

    async def wait_over(self, run_ids: Sequence[str]) -> None:
        """Return when all of these runs are over."""
        while any(run_id not in self.reports for run_id in run_ids):
            await self._changed.wait()

    def problems(
        self, run_ids: Sequence[str], words: int, sent: Sequence[SentMessage]
    ) -> list[str]:
        """What is not as it must be; ``words`` are those of all documents."""
        found = [f"{uri} was counted {n} times" for uri, n in self.counted.items() if n > 1]
        if missing := self.documents - len(self.counted):
            found.append(f"{many(missing, 'document')} never counted")
        elif words != self.words:
            found.append(f"{self.words:,} words were counted, there are {words:,}")
        for run_id in run_ids:
            reports = self.reports.get(run_id, [])
            if [each.success for each in reports] != [True]:
                found.append(f"run {run_id} ended {len(reports)} times, or failed")
        found += self._of_messages(sent)
        return found

    def _of_messages(self, sent: Sequence[SentMessage]) -> list[str]:
        answers: Counter[tuple[str, str]] = Counter()
        for run_id, reports in self.reports.items():
            for line in "\n".join(str(each.output) for each in reports).splitlines():
                if line.startswith(SAID):
                    answers[run_id, line.removeprefix(SAID)] += 1
        left = Counter(self.dead)
        found = []
        for each in sent:
            count = answers[each.run_id, each.text]
            if not count and left[each.run_id]:
                left[each.run_id] -= 1
            elif count != 1:
                found.append(f"the message {each.text!r} was answered {count} times")
        return found
