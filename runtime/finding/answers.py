"""What can be asked at the address ``runtime``, answered from a store.

A runtime serves these itself; a process that only shares its store serves them by

    hub.serve("runtime", lambda question: answer(reader, question, now))

with the same answers: plain data, as JSON has it.
"""

from typing import Any, Final

import msgspec

from hubbub.hub.errors import BadValue
from hubbub.hub.events.descriptors import (
    CronDescriptor,
    Descriptor,
    HeartbeatDescriptor,
    SubagentDescriptor,
    UserDescriptor,
    encode_descriptor,
    read_descriptor,
)
from hubbub.hub.near_misses import shown
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import StoreReader, info_of
from hubbub.hub.texts import check_label
from hubbub.runtime.finding.conversations import list_conversations
from hubbub.runtime.finding.published import published_agents
from hubbub.runtime.inspection.at_work import list_processes
from hubbub.runtime.schedules.status import NOTES, schedule_statuses

__all__ = ["QUESTIONS", "answer", "find_conversation", "run_info"]

QUESTIONS: Final = (
    '"runs", "run RUN_ID", "find KEY", "conversations {JSON}", "agents", "agent NAME", '
    '"schedules", "workers", "trees {JSON}", "report RUN_ID {JSON}", "prompts {JSON}", "requests", '
    '"state RUN_ID RECORD", "files RUN_ID", "file RUN_ID PATH", "content RUN_ID PATH" or '
    '"test RUN_ID"'
)
"""What ``answer`` answers, in words."""

_FILTERS: Final = frozenset(("agent", "status", "before", "after", "limit"))


def answer(store: StoreReader, question: str, now: int) -> Any:
    """The answer to a question, as JSON has it.

        runs                   every live run, by creation
        run RUN_ID             a run, ended or not; null for none
        find KEY               the open run of a session key, or of a descriptor's JSON; null
        conversations {JSON}   a page: {"conversations": […], "next": CURSOR}; the JSON object
                               has agent, status, before, after, limit, and may be left out
        agents                 the names of the agents that the last runtime had
        agent NAME             name, title and description of one of them; null
        schedules              what the store remembers of each
        workers                who is at work on the store, as ``hubbub workers --json``
        trees {JSON}           trees of runs, the newest first, as ``hubbub runs --json``; the JSON
                               object has ended (also those without a live run) and limit
        report RUN_ID {JSON}   everything about a run, as ``hubbub show --json``; with full, its
                               whole conversation; null
        prompts {JSON}         what people are asked, the oldest first: by all runs, or, with roots,
                               a list of texts, in the trees whose root's id begins with one
        requests               the variables that subagents wait for, the oldest first
        state RUN_ID RECORD    the state of a run after that record of its own lane, or, without a
                               number, as it is; null
        files RUN_ID           its files, also those that wait in its inbox; null
        file RUN_ID PATH       one of them: path, size, digest; null
        content RUN_ID PATH    the bytes of it; null
        test RUN_ID            a regression test of a root: name, text, recording; null

    Raises ``BadValue`` for other questions, and ``StoreFailed`` for what cannot be read.
    ``now`` is µs since the Unix epoch.
    """
    verb, _, argument = question.partition(" ")
    match verb:
        case "runs":
            rows = map(store.row, store.find("", "every"))
            return [_plain(info_of(row)) for row in rows if row is not None]
        case "run":
            return _plain(run_info(store, argument))
        case "find":
            return _plain(find_conversation(store, argument))
        case "conversations":
            return _plain(list_conversations(store, now=now, **_filters(argument)))
        case "agents":
            return [each.name for each in published_agents(store)]
        case "agent":
            found = (x for x in published_agents(store) if x.name == argument)
            return _plain(next(found, None))
        case "schedules":
            statuses = schedule_statuses(store.notes(NOTES), now)
            return [_plain(each) for each in statuses]
        case "workers":
            return _plain(list_processes(store, now))
        case _:
            # Loaded when it is asked for: most programs never look at a store in full.
            from hubbub.runtime.finding.looks import LOOKS, look

            if verb in LOOKS:
                found = look(store, verb, argument, now)
                return found if isinstance(found, bytes) else _plain(found)
            raise BadValue("runtime", f"ask {QUESTIONS}")


def run_info(store: StoreReader, run_id: str) -> RunInfo | None:
    """What the store knows of a run."""
    row = store.row(run_id)
    return None if row is None else info_of(row)


def find_conversation(store: StoreReader, key: str | Descriptor) -> RunInfo | None:
    """The open run of a session key, or of a descriptor or its JSON text.

    A subagent's descriptor finds the run of its id, while that lives.  Raises ``BadValue`` for a
    descriptor of no agent type.
    """
    if isinstance(key, str):
        check_label("key", key)
        if not _is_object(key):
            return _only(store, store.find(key, "key"))
        key = read_descriptor(key)
    elif not isinstance(
        key, UserDescriptor | CronDescriptor | HeartbeatDescriptor | SubagentDescriptor
    ):
        raise BadValue("key", f"expected a session key or a descriptor, not {shown(key)}")
    if isinstance(key, SubagentDescriptor):
        info = run_info(store, key.id)
        return None if info is None or info.status == "ended" else info
    text = bytes(encode_descriptor(key)).decode()
    return _only(store, store.find(text, "descriptor"))


def _is_object(key: str) -> bool:
    """Whether a key is an object of JSON; one that merely begins like it is a key."""
    if not key.lstrip().startswith("{"):
        return False
    try:
        msgspec.json.decode(key)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


def _plain(value: object) -> Any:
    """The value as who reads its JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _only(store: StoreReader, found: Any) -> RunInfo | None:
    return run_info(store, found[0]) if found else None


def _filters(argument: str) -> dict[str, Any]:
    if not argument.strip():
        return {}
    try:
        found = msgspec.json.decode(argument, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadValue("conversations", f"expected a JSON object behind it ({error})") from None
    if unknown := found.keys() - _FILTERS:
        wrong = ", ".join(sorted(unknown))
        raise BadValue("conversations", f"there is no {wrong}; give {', '.join(sorted(_FILTERS))}")
    return found
