"""What the runs of a recording did, compared with what they did on being played again.

    helper, step 1
        then: refund(order=7) → "paid back"
        now:  refund(order=7) → error "there is no tool 'refund' …"

Run by run: which run of now is which of the recording is known (``counterparts``), and what is
compared are ``actions``.  What a run that was still at work would have done after the recording's
end is no difference.
"""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from typing import Final

from msgspec import Struct

from hubbub.hub import events as e
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.events import Event
from hubbub.runtime.simulation.playback.actions import (
    Action,
    RunLane,
    actions_of,
    names_of,
    unheard,
)
from hubbub.runtime.simulation.playback.counterparts import Counterparts, renaming
from hubbub.runtime.simulation.playback.recording import Recording

__all__ = ["Playback", "WentOtherwise", "compared"]

SHOWN: Final = 3
"""Differences of one run that are shown: what comes later mostly follows from the first ones."""

WIDTH: Final = 240
BEFORE: Final = 60
"""Characters that are shown of a long text, and of these before the first that differs."""

NOTHING: Final = "(nothing)"
RESTARTED: Final = (
    "The process was stopped at work then, which is not played again: that may be the reason."
)


class WentOtherwise(CopiedWhole, AssertionError):
    """A recording that was played again had another course."""

    def __init__(self, name: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join((f"{name}: it went otherwise this time", *problems)))


class Playback(Struct, frozen=True):
    """What the runs did then and now, a line each; see ``actions``."""

    name: str
    recorded: list[str]
    replayed: list[str]
    differences: list[str]
    """The same, where they differ: the run and its step, what it did then, what it did now."""

    def check(self) -> None:
        """Raise ``WentOtherwise``, with the differences, if there are any."""
        __tracebackhide__ = True  # pytest shows the test.
        if self.differences:
            raise WentOtherwise(self.name, self.differences)


def compared(recording: Recording, lanes: list[RunLane], counterparts: Counterparts) -> Playback:
    """The actions of the runs of ``recording`` beside those of the runs of now."""
    pairs = _Pairs(recording, lanes, counterparts)
    then, now = list(pairs.then()), list(pairs.now())
    found = _differences(then, now)
    if found and any(_was_cut_off(x.event) for x in recording.owned()):
        found.append(RESTARTED)
    return Playback(recording.name, [str(x) for x in then], [str(x) for x in now], found)


def _was_cut_off(event: Event) -> bool:
    """Whether the process had stopped while a run was at work."""
    failed = isinstance(event, e.AgentFailed) and event.error_type in ("Interrupted", "CrashLoop")
    return failed or isinstance(event, e.AgentRestore)


class _Pairs:
    """The runs of then and now, under the same names."""

    def __init__(
        self, recording: Recording, lanes: list[RunLane], counterparts: Counterparts
    ) -> None:
        self._recording = recording
        self._counterparts = counterparts
        self._then = {lane.run_id: lane for lane in recording.lanes()}
        self._names = names_of(self._then.values())
        # The recording's order, for the runs that are in it: they may have begun at one time.
        order = {run_id: place for place, run_id in enumerate(self._then)}
        before = {x.run_id: counterparts.then_of(x.run_id) or "" for x in lanes}
        self._before = before
        self._now = sorted(lanes, key=lambda x: order.get(before[x.run_id], len(order)))
        known = {now: self._names[then] for now, then in before.items() if then in self._names}
        self._names_now = names_of(self._now, known, self._names.values())

    def then(self) -> Iterator[Action]:
        named = renaming({x: f"<{name}>" for x, name in self._names.items()})
        for run_id, lane in self._then.items():
            yield from actions_of(lane, self._names[run_id], unheard(lane), named)

    def now(self) -> Iterator[Action]:
        named_then = renaming({x: f"<{name}>" for x, name in self._names.items()})
        known = {now: named_then(then) for then, now in self._counterparts.pairs()}
        named = renaming({**known, **{x: f"<{name}>" for x, name in self._names_now.items()}})
        late: set[str] = set()
        """Runs that had not begun at the end of the recording."""
        for lane in self._now:
            then = self._then.get(self._before[lane.run_id])
            name = self._names_now[lane.run_id]
            actions = list(actions_of(lane, name, {} if then is None else unheard(then), named))
            if lane.parent in late or self._is_late(lane, then, actions):
                late.add(lane.run_id)
            else:
                yield from actions if then is None else self._until_the_end(then, actions)

    def _is_late(self, lane: RunLane, then: RunLane | None, actions: list[Action]) -> bool:
        """Whether a run had not begun: it was opened only, or by one that was still at work."""
        if then is not None:
            return not then.events
        above = self._then.get(self._before.get(lane.parent or "", ""))
        was_at_work = above is not None and not above.is_at_rest
        return was_at_work and all(action.at >= self._recording.ended for action in actions)

    def _until_the_end(self, then: RunLane, actions: list[Action]) -> list[Action]:
        """Without what came after the recording's end, if the run was at work then."""
        if then.is_at_rest:
            return actions
        count = sum(1 for _ in actions_of(then, "", {}, str))
        while len(actions) > count and actions[-1].at >= self._recording.ended:
            actions.pop()
        return actions


# ── what differs ─────────────────────────────────────────────────────────────────────────────


def _differences(then: Iterable[Action], now: Iterable[Action]) -> list[str]:
    """Where the actions of each run differ, a few lines each; a run's in the order of ``then``."""
    by_run: dict[str, tuple[list[Action], list[Action]]] = {}
    for which, actions in enumerate((then, now)):
        for action in actions:
            by_run.setdefault(action.run, ([], []))[which].append(action)
    return [line for one, other in by_run.values() for line in _of_run(one, other)]


def _of_run(then: list[Action], now: list[Action]) -> Iterator[str]:
    found = list(_pairs(then, now))
    for one, other in found[:SHOWN]:
        place = one or other
        assert place is not None
        first, second = _excerpts(one.what if one else NOTHING, other.what if other else NOTHING)
        yield f"{place.place}\n    then: {first}\n    now:  {second}"
    if len(found) > SHOWN:
        yield f"{found[0][0].run if found[0][0] else now[0].run}: {len(found) - SHOWN} more"


def _pairs(then: list[Action], now: list[Action]) -> Iterator[tuple[Action | None, Action | None]]:
    matcher = SequenceMatcher(None, [x.what for x in then], [x.what for x in now], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            yield from zip_longest(then[a:b], now[c:d])


def _excerpts(*texts: str) -> Iterator[str]:
    """Long texts, cut so that the difference stays visible."""
    alike = sum(1 for _ in takewhile(lambda chars: len(set(chars)) == 1, zip(*texts, strict=False)))
    start = max(0, alike - BEFORE) if max(map(len, texts)) > WIDTH else 0
    for text in texts:
        cut = text if text == NOTHING else f"{'…' if start else ''}{text[start:]}"
        yield cut if len(cut) <= WIDTH else f"{cut[:WIDTH]}…"
