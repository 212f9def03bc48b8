"""``forked``: a tree at a cut as a new one, whose runs go on from there.

    CutTree  →  other ids, roots that nobody knows yet  →  what is over with the cut  →  FoundTree

Rules
-----
* Every record is as it was, but for the ids of the runs, wherever they stand, also in what a model
  was told of its children.
* The root is a conversation of its own: without the session key, the name, the descriptor and the
  time limit of the old one, and it stays, whatever the old one was opened for.
* What people were asked has ended: calls that waited for an answer are answered with that.
* An approval is for the run in which it was given: a call that has one and has not begun is
  answered with that.  What was to be asked next is asked in the fork, when it is made, and behind
  what the fork is told: that is no answer to it.
* Where another agent goes on, calls that had not begun are skipped, as behind a handoff: they were
  made for other tools, and what asks for an approval among those of the new agent saw none of them.
* What ends with the cut in a run at work has the time of its last record: until it goes on, nobody
  works on it.  So it is restored before anything is asked.
* Calls that were under way are lost calls: who goes on with the run treats them as after a crash.
* What waited in an inbox waits there, in order; but for what would have ended the root.
* What was accepted under a key is known by it, also where it has gone with the run's old turns: the
  same again is a duplicate, and is not said to the fork once more.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.state.bases import changed as changed_base
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.lasting_prompts import kept_prompt, note_of
from hubbub.agents.state.prompts import LASTING, WITHDRAWN, Prompts, ends_of, with_prompt
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.calls import HANDED_OVER, LOST, answer, given_up
from hubbub.agents.turn.crash_limit import FORKED as FORKED_AT_WORK
from hubbub.agents.turn.crash_limit import note_of_left, text_of_left
from hubbub.hub import events as e
from hubbub.hub.addressing import is_minted
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, InLane
from hubbub.hub.events.codec import decode_event, encode_event
from hubbub.hub.events.descriptors import (
    Descriptor,
    SubagentDescriptor,
    descriptor_of_key,
    read_descriptor,
)
from hubbub.hub.events.identities import identity_of
from hubbub.hub.near_misses import shown
from hubbub.hub.store.inbox_rules import number_of
from hubbub.hub.store.journal import FoundRun, FoundTree, NewRun, RunStatus
from hubbub.hub.values import NULL
from hubbub.runtime.timelines.cut import CutRun, CutTree

__all__ = ["ForkedAs", "forked", "names_of"]

FORKED: Final = "forked"

UNANSWERED: Final = "nobody answered: the conversation was forked while this was asked"

APPROVED_ELSEWHERE: Final = (
    "not run: it was approved in the conversation that this one was forked from; call it again to "
    "ask for approval here"
)

_E = TypeVar("_E", bound=Event)

_NAMED: Final = (
    "run_id", "root_run_id", "parent_run_id", "child_run_id", "frame_run_id", "to", "source",
)  # fmt: skip
"""Fields that are the id of a run, or may be."""


class ForkedAs(Struct, frozen=True, kw_only=True):
    """What a fork is from now on: its root's id, its session key, another agent, model or text of
    instructions, and what it is told first."""

    run_id: str
    at: int
    session_key: str = ""
    agent: str = ""
    model: str = ""
    prompt: str = ""
    message: e.SessionMessage | None = None


def names_of(cut: CutTree, given: ForkedAs, new_id: Callable[[], str]) -> dict[str, str]:
    """The ids of a fork's runs, by those of the old ones: also of children that are yet to be
    begun, for which values were provided."""
    first, *others = cut.runs
    awaited = [
        event.child_run_id
        for event in cut.events
        if isinstance(event, e.SessionVariables) and event.child_run_id
    ]
    return {first: given.run_id} | {each: new_id() for each in dict.fromkeys((*others, *awaited))}


def forked(cut: CutTree, given: ForkedAs, names: Mapping[str, str]) -> FoundTree:
    """The tree that goes on from a cut, whose runs have these ids (``names_of``).

    Raises ``BadValue`` for a message under a key of another one.
    """
    first = next(iter(cut.runs))
    if given.message is not None and _is_known(cut, given.message):
        given = replace(given, message=None)
    began = cut.runs[first].thread.phase != "new"
    renamed = _Renamed(names)
    events = [_placed(renamed.of(event), given, began=began) for event in cut.events]
    runs, notes = [], dict[str, str]()
    for run_id, run in cut.runs.items():
        asked = cut.asked if run_id == first else ()
        ending = _Over(run, names[run_id], renamed, given, asked, began=began)
        events += ending.events()
        runs.append(ending.found())
        notes |= ending.notes()
    notes |= _left(runs, events)
    accepted = _accepted(events)
    runs = [replace(run, accepted=accepted.get(run.new.run_id, {})) for run in runs]
    return FoundTree(at=given.at, runs=runs, events=events, notes=notes)


def _left(runs: Sequence[FoundRun], events: Iterable[Event]) -> dict[str, str]:
    """What tells whichever process goes on with these runs that they were forked, and not cut off
    by a death."""
    at_work = {run.new.run_id for run in runs if run.status in ("active", "waiting")}
    root = runs[0].new.root_run_id
    last = {x.run_id: -x.seq for x in events if x.lane == "own" and x.run_id in at_work}
    return {note_of_left(root): text_of_left(last)} if last else {}


def _is_known(cut: CutTree, message: e.SessionMessage) -> bool:
    """Whether the root had accepted this message by the cut."""
    root, known = next(iter(cut.runs)), identity_of(message)
    if not message.key:
        return False
    found = cut.runs[root].settled.get(known, 0)
    for event in cut.events:
        if event.run_id == root and isinstance(event, InLane) and identity_of(event) == known:
            found = number_of(event)
    if found and found != number_of(message):
        what = f"the run has accepted another one under its key {shown(message.key)}"
        raise BadValue("message", f"{what}; give a key of its own")
    return found != 0


def _accepted(events: Iterable[Event]) -> dict[str, dict[tuple[str, str], int]]:
    """Under which sources and keys each inbox has accepted what."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for event in events:
        if event.lane == "in" and (known := identity_of(event))[1]:  # type: ignore[arg-type]
            found.setdefault(event.run_id, {}).setdefault(known, event.seq)
    return found


class _Renamed:
    """Other ids in the place of those of some runs."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._given = {old: new for old, new in names.items() if not is_minted(old)}
        """Of ids that somebody has chosen only what stands in fields of its own is changed: they
        may be words."""
        minted = [re.escape(old).encode() for old in names if is_minted(old)]
        self._minted = re.compile(b"|".join(minted)) if minted else None

    def id_of(self, text: str) -> str:
        """What may be the id of a run: the other one, if it is."""
        return self._names.get(text, text)

    def of(self, event: _E) -> _E:
        """An event with other ids."""
        if self._minted is not None:
            body = self._minted.sub(self._new, encode_event(event))
            event = decode_event(body)  # type: ignore[assignment]
        return self._in_fields(event) if self._given else event

    def _new(self, found: re.Match[bytes]) -> bytes:
        return self._names[found[0].decode()].encode()

    def _in_fields(self, event: _E) -> _E:
        changed: dict[str, Any] = {}
        for name in _NAMED:
            if (new := self._given.get(getattr(event, name, "") or "")) is not None:
                changed[name] = new
        asked = getattr(event, "prompt_id", "")
        asker, dot, rest = asked.partition(".")
        if dot and asker in self._given:
            changed["prompt_id"] = f"{self._given[asker]}.{rest}"
        if isinstance(event, e.SessionTaken | e.SessionDropped):
            changed["items"] = tuple([self._in_fields(item) for item in event.items])
        event = replace(event, **changed) if changed else event
        if isinstance(event, e.AgentBase):
            return changed_base(event, self._in_thread)  # type: ignore[return-value]
        return event

    def _in_thread(self, thread: Thread) -> Thread:
        """The state of a base that names runs by ids that somebody has chosen."""
        new = self._given.get
        origin, family = thread.origin, thread.family
        parent = origin.parent_run_id
        origin = replace(
            origin, run_id=new(origin.run_id, origin.run_id),
            root_run_id=new(origin.root_run_id, origin.root_run_id),
            parent_run_id=None if parent is None else new(parent, parent),
        )  # fmt: skip
        family = replace(
            family,
            children=tuple([replace(x, run_id=new(x.run_id, x.run_id)) for x in family.children]),
            starts=tuple([replace(x, child=new(x.child, x.child)) for x in family.starts]),
            given_up=tuple([(new(child, child), key) for child, key in family.given_up]),
        )
        return replace(thread, origin=origin, family=family)


def _placed(event: _E, given: ForkedAs, *, began: bool) -> _E:
    """What says of the root how it was opened; by whom, if it has not ``began`` yet."""
    if event.run_id != given.run_id:
        return event
    match event:
        case e.SessionOpen():
            opened = event if began else _begun_as(event, given)
            return replace(  # type: ignore[return-value]
                opened, session_key=given.session_key, name="", correlation_id="", timeout=None,
                descriptor_json=NULL, once=False,
            )  # fmt: skip
        case e.AgentStart():
            once = event.once and event.two_sided
            return replace(
                event, session_key=given.session_key, name="", correlation_id="", once=once
            )
        case e.AgentBase():
            return changed_base(event, _begun_anew)  # type: ignore[return-value]
        case e.SessionTaken():
            items = tuple([_placed(item, given, began=began) for item in event.items])
            return replace(event, items=items)
        case _:
            return event


def _begun_anew(thread: Thread) -> Thread:
    """The state of a root that is a conversation of its own."""
    origin = replace(thread.origin, name="", is_conversation=True)
    return replace(thread, once=False, origin=origin)


def _begun_as(opened: e.SessionOpen, given: ForkedAs) -> e.SessionOpen:
    """The opening of a root that has not begun, by whom and as what it is to."""
    if given.agent and given.agent != (opened.open_agent or opened.agent):
        opened = replace(
            opened, agent=given.agent, open_agent=given.agent, model="", prompt=""
        )  # What a fork had in the place of another agent's.
    return replace(opened, model=given.model or opened.model, prompt=given.prompt or opened.prompt)


class _Over:
    """One run of the fork, as it goes on."""

    def __init__(
        self,
        run: CutRun,
        run_id: str,
        renamed: _Renamed,
        given: ForkedAs,
        asked: Sequence[e.SessionPrompt],
        *,
        began: bool,
    ) -> None:
        self._run = run
        self._asked = asked
        self._lane = run.lane
        self._opened = _placed(renamed.of(run.opened), given, began=began)
        self._run_id = run_id
        self._given = given
        self._is_root = run_id == given.run_id
        self._thread = run.thread
        self._renamed = renamed
        self._message = given.message if self._is_root else None
        self._dropped: set[int] = set()
        self._prompts: Prompts = ()

    def events(self) -> Iterator[Event]:
        """What is on record of the run beside what was at the cut."""
        if self._lane.has_ended:
            return
        if self._message is not None:
            told_at = self._given.at - bool(self._asked)  # At the time of a question it answers.
            yield self._stamped(self._message, "in", self._lane.in_seq + 1, told_at)
        at = self._run.at if self._thread.is_at_work else self._given.at
        for seq, event in enumerate(self._over(), self._lane.seq + 1):
            if isinstance(event, e.AgentRestore):
                at = self._given.at
            stamped = self._stamped(self._renamed.of(event), "own", seq, at)
            self._thread = fold_all(self._thread, (event,))
            if isinstance(stamped, e.SessionPrompt):
                self._prompts = with_prompt(self._prompts, stamped)
            yield stamped

    def _over(self) -> Iterator[Event]:
        """What ends with the cut, by the records of the old run, and what is asked then."""
        thread, lane = self._thread, self._lane
        if self._is_root and (ends := [x for x in self._run.ends if x.seq in lane.untaken]):
            self._dropped.update(x.seq for x in ends)
            yield e.SessionDropped(items=tuple(ends), reason=FORKED)
        step, held = thread.open, set()
        for call in step.calls if step is not None else ():
            assert step is not None
            if call.status == "waiting" and not call.child:
                held.add(call.key)
                yield from given_up(thread, step, call, WITHDRAWN)
                yield answer(thread, step, call, UNANSWERED, ran=call.ran)
            elif call.status == "todo" and call.is_approved:
                yield answer(thread, step, call, APPROVED_ELSEWHERE)
            elif call.status == "started" and self._changes_agent:
                yield answer(thread, step, call, LOST, ran=True)
            elif call.status == "todo" and self._changes_agent:
                words = HANDED_OVER.format(self._given.agent)
                yield answer(thread, step, call, f"skipped: {words}")
        left = tuple([each for each in thread.prompts if each.prompt_id not in held])
        yield from ends_of(left, WITHDRAWN, thread.turn)
        if self._asked and not self._changes_agent:
            yield e.AgentRestore(attempt=thread.restarts + 2, reason=FORKED_AT_WORK)
            yield from self._asked
        if self._is_root and thread.phase != "new":
            yield from self._changed()

    def _changed(self) -> Iterator[Event]:
        """What says of the root who goes on, and as what."""
        given, turn = self._given, self._thread.turn
        if self._changes_agent or given.model or given.prompt:
            to = given.agent or self._agent
            yield e.AgentHandoff(to=to, model=given.model, prompt=given.prompt, turn=turn)

    @property
    def _changes_agent(self) -> bool:
        """Whether another agent goes on, whose tools may be others."""
        return self._is_root and self._given.agent not in ("", self._agent)

    @property
    def _agent(self) -> str:
        return self._thread.agent or self._opened.open_agent

    def _stamped(self, event: _E, lane: str, seq: int, at: int) -> _E:
        opened = self._opened
        return replace(
            event, at=at, run_id=self._run_id, root_run_id=opened.root_run_id,
            parent_run_id=opened.parent_run_id, agent=self._agent, lane=lane, seq=seq,
        )  # fmt: skip

    def found(self) -> FoundRun:
        """Its row; after ``events``."""
        opened, lane = self._opened, self._lane
        waiting = set() if lane.has_ended else lane.untaken.keys() - self._dropped
        if self._message is not None:
            waiting.add(lane.in_seq + 1)
        closes = "open" if self._is_root else self._run.closes or "open"
        return FoundRun(
            new=NewRun(
                run_id=self._run_id, root_run_id=opened.root_run_id,
                parent_run_id=opened.parent_run_id, agent=self._agent,
                session_key=opened.session_key, name="" if self._is_root else opened.name,
                wake_at=_wake_at(opened), descriptor=self._descriptor(),
            ),
            created_at=opened.at, status=_status(self._thread, has_ended=lane.has_ended),
            inbox="ended" if lane.has_ended and closes != "terminated" else closes,  # type: ignore[arg-type]
            waiting=frozenset(waiting),
            settled={
                (self._renamed.id_of(source), key): number
                for (source, key), number in self._run.settled.items()
            },
        )  # fmt: skip

    def notes(self) -> dict[str, str]:
        """The notes of what its calls ask; after ``events``."""
        side = self._thread.acts_as
        kept = [kept_prompt(each, self._agent, side) for each in self._prompts]
        return {LASTING + each.prompt_id: note_of(each) for each in kept}

    def _descriptor(self) -> Descriptor | None:
        opened = self._opened
        if self._is_root:
            return descriptor_of_key(opened.session_key) if opened.session_key else None
        if opened.descriptor_json is not NULL:
            return read_descriptor(opened.descriptor_json)
        return SubagentDescriptor(
            id=self._run_id, parent_agent_id=opened.parent_run_id or "",
            name=opened.name or opened.open_agent,
        )  # fmt: skip


def _wake_at(opened: e.SessionOpen) -> int | None:
    return None if opened.timeout is None else opened.at + int(opened.timeout * 1_000_000)


def _status(thread: Thread, *, has_ended: bool) -> RunStatus:
    if has_ended:
        return "ended"
    if thread.parked:
        return "parked"
    return "waiting" if thread.waits else "active"
