"""Deaths: why a run comes back, how often in a row, and which run its process died of.

    its process died, it was at work      counted      three in a row: ``crash_loop``
    its process died, it waited           not counted  for a person, a child, a message, a timer
    its loop raised                       counted      four in a row
    its runtime was left                  not counted  any number of times
    it came in as a fork, at work         not counted  nothing has died

Rules
-----
* Three is ``max_crashes`` where nobody says otherwise; then two is one less.
* A process that dies does not say which run was the cause.  So the first two deaths count for every
  run that was at work, and those that have two, the *suspects*, are then restored one after
  another, or in groups where they are many: each is *tried* until it has made progress, waits, is
  over, or its time has passed.  A third death counts for one that was being tried alone, and for no
  other.
* Where nobody was being tried, or more than one, it is not known whose death it was.  Such a one
  counts for no suspect; of a group, smaller ones are tried next.
* "In a row" ends when a run makes progress, or has come as far as to wait.
* Why a run came back is in its ``agent:restore``; what is counted is read from the lane.
* Notes of the store say which runs were left in the middle of something, though no process died:
  ``runs:left`` in a store that one process has to itself, ``runs:left:ROOT`` of one tree.  They
  say how far runs had come, by their own events, and hold for one that has come no further since;
  a number below zero is that of a run that was forked while it was at work.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final

import msgspec

from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = [
    "CONTEXT_ONLY",
    "CRASH_LOOP",
    "FORKED",
    "LEFT",
    "LEFT_RUNS",
    "MAX_CRASHES",
    "OTHERS",
    "UNDECIDED",
    "WAITED",
    "crash_cause",
    "crash_limit_failure",
    "is_suspect",
    "note_of_left",
    "questions",
    "text_of_left",
    "trial_seconds",
    "waited",
]

LEFT: Final = "the runtime was left in order"
"""The reason of a restore that is no death."""

LEFT_RUNS: Final = "runs:left"
"""The key, or the beginning of the key, of a note that says so."""

CONTEXT_ONLY: Final = "restored without pending messages"
"""The reason of a restore by which nothing is retried, and of the letters it leaves."""

WAITED: Final = "the process died while this run waited"
OTHERS: Final = "the process died while another run was being tried"
UNDECIDED: Final = "the process died, and it is not known of which run"

FORKED: Final = "forked while this run was at work"

_NOT_COUNTED: Final = frozenset((LEFT, CONTEXT_ONLY, FORKED, WAITED, OTHERS, UNDECIDED))

CRASH_LOOP: Final = "CrashLoop"
"""The type of failure of a run whose process has died of it too often."""

MAX_CRASHES: Final = 3
"""Deaths of the process in a row after which a run fails."""

MAX_LOOPS: Final = 4
"""Deaths of its own loop in a row after which a run fails."""

TRIAL: Final = 10.0
"""Seconds before it is the next one's turn; the least for which a suspect is tried."""

MAX_TRIAL: Final = 1_280.0


def crash_cause(
    before: tuple[str, ...],
    run_id: str,
    *,
    is_waiting: bool,
    is_blamed: bool,
    is_held: bool,
    tried: Set[str],
    max_crashes: int = MAX_CRASHES,
) -> str:
    """Why a run comes back whose process died: empty where that counts.

    ``before`` is why it came back since it last made progress; ``tried`` are the runs that were
    being tried when the process died; ``is_blamed``: this one was, alone; ``is_held``: its turn
    had not come, so that it comes back for the death before.
    """
    if is_waiting:
        return WAITED
    if is_blamed:
        return ""
    if tried and not is_held:
        return UNDECIDED if run_id in tried else OTHERS
    return "" if before.count("") < max_crashes - 1 else UNDECIDED


def is_suspect(causes: tuple[str, ...], max_crashes: int = MAX_CRASHES) -> bool:
    """Whether a run that comes back for these causes is to be tried by itself."""
    return causes.count("") >= max_crashes - 1


def trial_seconds(lived: float) -> float:
    """How long a suspect is tried, where a process has lived so long before it died."""
    return min(max(TRIAL, 2 * lived), MAX_TRIAL)


def crash_limit_failure(causes: tuple[str, ...], max_crashes: int = MAX_CRASHES) -> str:
    """Why a run restored for these causes, the last one just now, fails; empty if it continues."""
    deaths = [cause for cause in causes if cause not in _NOT_COUNTED]
    crashes = deaths.count("")
    if crashes >= max_crashes:
        return (
            f"crash_loop: the process died {crashes} times in a row while this run was at work; "
            "look at what it does after its last event"
        )
    loops = len(deaths) - crashes
    if loops >= MAX_LOOPS:
        last = next(cause for cause in reversed(deaths) if cause)
        return f"it died {loops} times in a row without a finished step: {last}"
    return ""


def questions(events: Iterable[Event]) -> dict[str, str]:
    """The prompts that a run was waiting for when its lane ends, by id: the calls that asked."""
    asked: dict[str, str] = {}
    lasting: dict[str, str] = {}
    for event in events:
        match event:
            case e.AgentRestore():
                asked.clear()
            case e.AgentPark():  # It has come as far as to wait again.
                asked |= lasting
            case e.SessionPrompt():
                asked[event.prompt_id] = event.call_id
                if event.ordinal:
                    lasting[event.prompt_id] = event.call_id
            case e.SessionPromptEnd():
                asked.pop(event.prompt_id, None)
                lasting.pop(event.prompt_id, None)
            case e.SessionTaken():
                for item in event.items:
                    if isinstance(item, e.SessionReply):
                        asked.pop(item.prompt_id, None)
                        lasting.pop(item.prompt_id, None)
    return asked


def waited(thread: Thread, events: Iterable[Event]) -> bool:
    """Whether a model run, by its own lane, did nothing but wait for people."""
    if not thread.in_session:
        return True
    step = thread.open
    if step is None:
        return False
    at_work = [f"{step.number}.{call.index}" for call in step.calls if call.status == "started"]
    if not step.parallel:
        at_work = at_work[:1]
    return bool(at_work) and set(at_work) <= set(questions(events).values())


def note_of_left(root_run_id: str) -> str:
    """The key of the note of one tree."""
    return f"{LEFT_RUNS}:{root_run_id}"


def text_of_left(left: Mapping[str, int]) -> str:
    """The text of such a note: own events by run id, as JSON."""
    return msgspec.json.encode(left).decode()
