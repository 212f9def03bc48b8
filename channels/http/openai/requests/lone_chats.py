"""Chats of which no session is named: how a run that waits is found by what its client repeats.

    opened for ──► oai-BEGINNING-…, a digest of what its users had said
    asked by   ◄── every beginning of what the users of a later request have said

So of very many that wait only those are read that began alike.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from hubbub.channels.http.openai.requests.extending import seen_by, shown
from hubbub.channels.http.openai.requests.wanted import Entry
from hubbub.channels.http.wire.runtime_answers import ask_runtime
from hubbub.hub.hub import Hub

__all__ = ["lone_run_id", "waiting_chats"]

MOST_LOOKS: Final = 20
"""Of the runs that began alike, how many are compared with a transcript: those first that ask what
it shows."""

MOST_ANSWERS: Final = 500
"""Of what users have said, how many messages may have come behind the beginning of a run."""


def lone_run_id(hub: Hub, entries: Iterable[Entry], key: str) -> str:
    """The id of a run that is opened with these entries; the same for the same ``key``."""
    *_, beginning = _beginnings(entries)
    if key:
        rest = hashlib.sha256(key.encode()).hexdigest()[:32]
    else:
        rest = hub.ports.ids.run_id(hub.ports.clock.now()).replace("-", "")
    return f"{beginning}{rest}"


async def waiting_chats(hub: Hub, entries: Sequence[Entry]) -> list[str]:
    """The runs that wait for an answer and may have been opened with a beginning of these entries,
    the likeliest first."""
    seen = seen_by(entries)
    if not seen or not any(seen[-1].texts):
        return []
    *found, last = _beginnings(entries)
    roots = [*found, last][-MOST_ANSWERS:]
    asked = await ask_runtime(hub, "prompts", msgspec.json.encode({"roots": roots}).decode())
    told = " ".join(seen[-1].texts)
    # Those first that ask what the client was told, and of these the newest.
    ranked = sorted(asked, key=lambda x: (*_is_shown(x, told), x["since"]), reverse=True)
    runs = dict.fromkeys(x["root_run_id"] for x in ranked)
    return list(islice(runs, MOST_LOOKS))


def _beginnings(entries: Iterable[Entry]) -> Iterator[str]:
    """The beginnings of the ids of runs that were opened with the first of the users' messages, the
    first two, and so on; at the least that of one without any."""
    digest = hashlib.sha256()
    count = 0
    for each in entries:
        if each.role == "user" and (text := shown(each.text)):
            count += 1
            digest.update(f"{len(text)}\n{text}".encode())
            yield f"oai-{digest.hexdigest()[:16]}-"
    if not count:
        yield f"oai-{digest.hexdigest()[:16]}-"


def _is_shown(prompt: Mapping[str, Any], told: str) -> tuple[bool, bool]:
    """Whether a text shows a question, and all that it is about."""
    return shown(prompt["question"]) in told, all(x in told for x in _leaves(prompt["arguments"]))


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str | int | float):
        yield shown(str(value).lower() if isinstance(value, bool) else str(value))
