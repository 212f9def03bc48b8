"""What is wrong with a base: why no run could go on from it, or from it and the records before it.

Whoever takes in records that others have written asks it of every base, whether older records are
still there or not: what is read of a run in passing (its limits, what it has used) is read of its
last base, and its older records may go at any time.

Between versions a base and the records before it may come to different states: events may come to
something else (``fold_version``), and an older base lacks the newer fields.  So what is compared
is what all versions tell alike.
"""

from collections.abc import Iterator
from typing import Final

from hubbub.agents.state.area import Area, key_problem
from hubbub.agents.state.bases import files_in, parts_in, thread_of
from hubbub.agents.state.thread import Thread, origin_of
from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentBase, SessionOpen

__all__ = ["base_problem", "contradiction"]

_OF_ALL: Final = ("run_id", "root_run_id", "parent_run_id")
_ORIGIN: Final = (*_OF_ALL, "depth", "receives", "reports", "name", "frame")
_ALIKE: Final = ("session", "turn", "step", "agent", "limits")


def base_problem(base: AgentBase, opened: SessionOpen | None) -> str:
    """Why the run that ``opened`` has opened, as far as that is known, could not go on from a base;
    empty if it could."""
    try:
        thread = thread_of(base)
    except BadValue as error:
        return str(error).removeprefix(f"run {base.run_id}: ").removesuffix("; see fsck")
    return next(_problems(base, thread, opened), "")


def contradiction(base: AgentBase, before: Thread) -> str:
    """Why a base is not that of a run whose records before it come to ``before``; empty if it
    can be."""
    told = thread_of(base)
    for name in _ALIKE:
        said, counted = getattr(told, name), getattr(before, name)
        if said != counted:
            return f"its base says {name} {said!r}, its records before that {counted!r}"
    return ""


def _problems(base: AgentBase, thread: Thread, opened: SessionOpen | None) -> Iterator[str]:
    origin = base if opened is None else origin_of(opened)
    for name in _OF_ALL if opened is None else _ORIGIN:
        said, is_so = getattr(thread.origin, name), getattr(origin, name)
        if said != is_so:
            yield f"its base says {name} {said!r} of its origin, which is {is_so!r}"
    if thread.turn != base.turn:
        yield f"its base is of turn {base.turn}, and holds a state of turn {thread.turn}"
    is_busy = thread.in_session or thread.closing or thread.open is not None or thread.prompts
    if thread.phase != "live" or is_busy or thread.terminated is not None:
        yield "its base holds a state in which a run does not rest"
    if not set(files_in(thread)) <= set(base.files) or not set(parts_in(thread)) <= set(base.parts):
        yield "its base holds a state with files or parts that it does not name"
    if not {child.run_id for child in thread.family.children} <= set(base.children):
        yield "its base holds a state with children that it does not name"
    yield from _misnamed(thread.area)


def _misnamed(area: Area) -> Iterator[str]:
    for path, ref in area.files.items():
        if path != ref.path:
            yield f"its base has a file {ref.path!r} under the name {path!r}"
    for key in area.keys:
        if what := key_problem(key):
            yield f"its base has a value under {key!r}: {what}"
