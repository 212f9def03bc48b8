"""What a store does with what is said again at once: it counts once, whatever comes in between.

Part of ``hub/conformance/journal.py``.  A store that takes in many commits together has to know of
each what those before it have come to, also once it has searched for a run, or opened one.  So
keyed messages, requests, openings and addresses are mixed here, submitted in one turn of the event
loop, and what each has come to is compared with a few dicts (``PlainInboxes``).
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from hubbub.hub.conformance.steps import (
    A_RUN,
    B_RUN,
    Check,
    MakeJournal,
    open_journal,
    open_run,
)
from hubbub.hub.events import SessionMessage, SessionOpen, SessionTerminate
from hubbub.hub.message import session_message
from hubbub.hub.store.journal import Commit, Delivery, Journal, NewRun, RequestKey
from hubbub.hub.store.store import Store

__all__ = ["REPEAT_CHECKS"]

MIXES: Final = 6
"""How many orders are tried, in each way of submitting them."""
BATCHES: Final = 3
"""How many batches a store is given, one after the other."""
MANY: Final = 30
"""Deliveries in each."""

RUNS: Final = (A_RUN, B_RUN)
CONVERSATIONS: Final = ("one", "two", "three")
TEXTS: Final = ("yes", "yes", "yes", "no")
KEYS: Final = ("", "k1", "k2")
REQUESTS: Final = ("", "", "r1", "r2")

Kind: TypeAlias = Literal["message", "search", "open", "every", "end"]
KINDS: Final[tuple[Kind, ...]] = (
    "message", "message", "message", "search", "search", "open", "open", "open", "every", "end",
)  # fmt: skip


class Saying(Struct, frozen=True):
    """Something that is said, for a run or for a conversation."""

    kind: Kind
    run: str
    conversation: str
    text: str
    key: str
    request: str
    new_run: str
    """The run that it opens, if none is found."""


class SayingOutcome(Struct, frozen=True):
    """What that is to come to."""

    outcome: str
    reason: str = ""
    run_ids: tuple[str, ...] = ()


class PlainInboxes(Struct):
    """Who has been told what: the same rules, in plain data."""

    runs: dict[str, list[str]] = field(default_factory=lambda: {run: [] for run in RUNS})
    conversations: dict[str, str] = field(default_factory=dict)
    """The open runs by key."""
    over: set[str] = field(default_factory=set)
    """Runs that are terminated."""
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    """Texts, by run and key."""
    requests: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Runs and texts, by request."""

    def say(self, said: Saying) -> SayingOutcome:
        """What comes of something that is said next."""
        if said.kind == "every":
            told = tuple([run for run in self.runs if run not in self.over])
            for run in told:
                self.runs[run].append(said.text)
            return SayingOutcome("accepted", run_ids=told)
        if said.request in self.requests:
            run, text = self.requests[said.request]
            if text == said.text:
                return SayingOutcome("duplicate", run_ids=(run,))
            return SayingOutcome("rejected", "key reused", (run,))
        run = self._run_of(said)
        if not run:
            return SayingOutcome("rejected", "unknown")
        came_to = self._judged(said, run)
        if came_to.outcome == "accepted":
            self._take(said, run)
        return came_to

    def _run_of(self, said: Saying) -> str:
        if said.kind == "message":
            return said.run
        found = self.conversations.get(said.conversation, "")
        return found or (said.new_run if said.kind == "open" else "")

    def _judged(self, said: Saying, run: str) -> SayingOutcome:
        if (known := self.keys.get((run, said.key))) is not None:
            if known == said.text:
                return SayingOutcome("duplicate", run_ids=(run,))
            return SayingOutcome("rejected", "key reused", (run,))
        if run in self.over:
            return SayingOutcome("rejected", "terminated", (run,))
        return SayingOutcome("accepted", run_ids=(run,))

    def _take(self, said: Saying, run: str) -> None:
        if run == said.new_run:
            self.conversations[said.conversation] = run
        self.runs.setdefault(run, []).append(said.text)
        if said.key:
            self.keys[run, said.key] = said.text
        if said.request:
            self.requests[said.request] = run, said.text
        if said.kind == "end":
            self.over.add(run)
            del self.conversations[said.conversation]


def _mixed(mix: int, batch: int) -> Iterator[Saying]:
    """A batch, in an order that looks like none and is the same each time."""
    for number in range(MANY):
        dice = iter(blake2b(f"{mix} {batch} {number}".encode()).digest())

        def one_of(some: Sequence[str], dice: Iterator[int] = dice) -> str:
            return some[next(dice) % len(some)]

        kind = KINDS[next(dice) % len(KINDS)]
        is_plain = kind in ("every", "end")
        yield Saying(
            kind,
            one_of(RUNS),
            one_of(CONVERSATIONS),
            "" if kind == "end" else one_of(TEXTS),
            "" if is_plain else one_of(KEYS),
            "" if is_plain else one_of(REQUESTS),
            f"00000000-0000-7000-8000-{mix:04d}{batch:04d}{number:04d}",
        )


def _delivery(said: Saying) -> Delivery:
    """What the store is given of it."""
    if said.kind == "every":
        return Delivery(session_message(said.text), "", by="every")
    if said.kind == "end":
        return Delivery(SessionTerminate(), said.conversation, by="key", closes="terminated")
    request = RequestKey(said.request, said.text) if said.request else None
    source = "shop" if said.key else ""
    message, to, by = session_message(said.text, source=source), said.run, "run"
    if said.kind == "search":
        to, by = said.conversation, "key"
    if said.kind != "open":
        return Delivery(message, to, by=by, source=source, key=said.key, request=request)  # type: ignore[arg-type]
    new = NewRun(
        run_id=said.new_run, root_run_id=said.new_run, parent_run_id=None, agent="echo",
        session_key=said.conversation, found=message,
    )  # fmt: skip
    opening = SessionOpen(open_agent="echo", session_key=said.conversation, message=message)
    return Delivery(opening, said.new_run, source=source, key=said.key, new=new, request=request)


def _one_by_one(deliveries: Sequence[Delivery]) -> list[Commit]:
    return [Commit(deliveries=(each,)) for each in deliveries]


def _all_in_one(deliveries: Sequence[Delivery]) -> list[Commit]:
    return [Commit(deliveries=tuple(deliveries))]


async def _counts_once(
    mix: int,
    commits_of: Callable[[Sequence[Delivery]], list[Commit]],
    make_journal: MakeJournal,
) -> None:
    """What is said again in the same batch, or in a later one, counts once, as in plain dicts."""
    async with open_journal(make_journal) as journal:
        for run in RUNS:
            await open_run(journal, run)
        told = PlainInboxes()
        for batch in range(BATCHES):
            await _is_as_told(journal, told, list(_mixed(mix, batch)), commits_of)


async def _is_as_told(
    journal: Store,
    told: PlainInboxes,
    some: Sequence[Saying],
    commits_of: Callable[[Sequence[Delivery]], list[Commit]],
) -> None:
    deliveries = [_delivery(said) for said in some]
    commits = commits_of(deliveries)
    for commit in commits:
        journal.submit(commit)
    await journal.flush()
    assert not journal.failure, journal.failure
    assert not [commit.error for commit in commits if commit.error]
    for said, delivery in zip(some, deliveries, strict=True):
        found = SayingOutcome(delivery.outcome, delivery.reason, tuple(delivery.run_ids))
        assert found == told.say(said), said
    for run, texts in told.runs.items():
        assert await _waiting(journal, run) == texts, run


async def _waiting(journal: Journal, run_id: str) -> list[str]:
    """What waits for a run, but for an opening that says nothing."""
    loaded = await journal.load(run_id)
    assert loaded is not None
    found: list[str] = []
    for item in loaded.waiting:
        said = item.message if isinstance(item, SessionOpen) else item
        if isinstance(said, SessionMessage | SessionTerminate):
            found.append(said.content if isinstance(said, SessionMessage) else "")
    return found


def _check(mix: int, commits_of: Callable[[Sequence[Delivery]], list[Commit]]) -> Check:
    async def check(make_journal: MakeJournal) -> None:
        await _counts_once(mix, commits_of, make_journal)

    check.__name__ = f"check_what_is_said_again_counts_once: {mix}{commits_of.__name__}"
    check.__doc__ = _counts_once.__doc__
    return check


REPEAT_CHECKS: Final[tuple[Check, ...]] = tuple(
    _check(mix, commits_of) for commits_of in (_one_by_one, _all_in_one) for mix in range(MIXES)
)
"""What is said again, mixed with what is searched for."""
