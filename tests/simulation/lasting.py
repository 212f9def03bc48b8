"""Worlds of long conversations, whose old turns go beside runs at work: ``keep_turns``.

    l3 [["to", 0, [["say"]]], ["say"]]     one turn more, also of the child that stays

    mate      a child of main's with one side: it stays, and writes bases as its parent does

What has gone lies behind a base, behind which as many turns have come as are kept; what is told
from the base on is what all of it says; and what is to go has gone, when passes have been made.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from msgspec import structs
from support.families import config

from hubbub import AgentDefinition, PromptDefinition, Retention, SideConfig
from hubbub.agents.model import Model
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.runtime.simulation import Open, Restart, Say, Step, Wait
from hubbub.runtime.simulation.story.history import History

__all__ = ["MATE", "kept_turns_of", "lasting_steps", "mate", "turns_went_rightly", "undue_turns"]

MATE: Final = config("mate", stays=True)


def mate(model: Model, *tools: Any) -> AgentDefinition:
    """A child that stays, as long as its conversation."""
    prompt = PromptDefinition(name="p-mate", prompt="mate", model=model, tools=tools)
    return AgentDefinition(
        name="mate", expose_as_tool=True, tool_description="mate",
        side_a=SideConfig(prompt=prompt, max_steps=12),
    )  # fmt: skip


# ── what is drawn ────────────────────────────────────────────────────────────────────────────


def kept_turns_of(random: Random, retention: Retention | None) -> Retention:
    """A retention that keeps a few turns, beside what it says of trees."""
    turns = random.choice((1, 1, 2, 3))
    if retention is None:
        return Retention(keep_turns=turns)
    return structs.replace(retention, keep_turns=turns)


def lasting_steps(random: Random, first: int, spoken: Any, *, may_kill: bool) -> list[Step]:
    """A conversation of many turns, and somebody who reads behind; ``first`` is the number of the
    next run that is opened."""
    begin = spoken("l", [["stay", "mate", [["note"]]], ["say"]])
    steps: list[Step] = [
        Open(agent="dozer", input="z9", user="cleo"), Open(agent="main", input=begin, user="ann")
    ]  # fmt: skip
    said: list[Say] = []
    turns = random.randint(6, 14)
    taken_over = random.randint(turns // 2, turns) if random.random() < 0.3 else -1
    for number in range(turns):
        program = random.choice((
            [["say"]], [["say"]], [["to", 0, [["say"]]], ["say"]], [["to", 0, [["look"]]]],
            [["file"], ["say"]], [["child", "ask", [["look"]]], ["say"]], [["flaky"], ["say"]],
        ))  # fmt: skip
        if number == taken_over:
            program = [["use", "ann", [["look"]]], ["say"]]
        key = f"l{number}" if random.random() < 0.4 else ""
        text = spoken(f"l{number}", program)
        said.append(Say(to=first + 1, text=text, user="ann", key=key))
        steps += [said[-1], Wait(seconds=random.choice((0.3, 3.0, 20.0, 70.0)))]
        if random.random() < 0.15:
            steps.append(Restart(kill=may_kill and random.random() < 0.6))
        if random.random() < 0.25 and (keyed := [each for each in said if each.key]):
            steps.append(random.choice(keyed))  # Somebody's line was bad.
    return steps


# ── what must hold ───────────────────────────────────────────────────────────────────────────


def turns_went_rightly(history: History, retention: Retention | None) -> Iterator[str]:
    """What has gone of a run that lives was to go: nothing in it waited, no agent had the
    conversation, and enough turns had come since."""
    positions = dict(zip((x.id for x in history.events), history.positions, strict=False))
    for gone in history.gone:
        if gone.cut is None or gone.cut.run_id not in history.own:
            continue
        run_id, keep = gone.cut.run_id, retention.keep_turns if retention is not None else None
        own = [x for x in history.own[run_id] if positions[x.id] <= gone.tip]
        before = [x for x in own if x.seq < gone.cut.seq]
        kept = fold_all(EMPTY, own).turn - fold_all(EMPTY, before).turn
        if keep is None:
            yield f"old turns of run {run_id} have gone, and nobody wanted that"
        elif kept < keep:
            yield f"run {run_id} has {kept} turns left, behind {own[-1].id}; {keep} are kept"
        base = next(positions[x.id] for x in own if x.seq == gone.cut.seq)
        for frame in _frames(history, before):
            last = history.own[frame][-1]
            if not isinstance(last, e.AgentComplete) or positions[last.id] > base:
                yield f"old turns of run {run_id} have gone, and {frame} had the conversation"
        done = {  # By then, not only since: else forks of there would miss it.
            item.seq
            for x in history.events  # A frame takes what was said to its conversation.
            if isinstance(x, e.SessionTaken | e.SessionDropped) and positions[x.id] < base
            for item in x.items
            if item.run_id == run_id
        }
        for each in gone.events:
            if each.event.lane == "in" and each.event.seq not in done:
                yield f"run {run_id}: {each.event.id} has gone, and waited"
        yield from _otherwise(run_id, gone.cut.seq, history.own[run_id])


def _frames(history: History, own: Sequence[Event]) -> Iterator[str]:
    """The frames of a conversation, and theirs, by records of its run."""
    for x in own:
        if isinstance(x, e.SessionPush) and history.own.get(x.frame_run_id):
            yield x.frame_run_id
            yield from _frames(history, history.own[x.frame_run_id])


def _otherwise(run_id: str, seq: int, own: Sequence[Event]) -> Iterator[str]:
    """What is left of a run says the same as all that it was."""
    whole, left = _state(own), _state([x for x in own if x.seq >= seq])
    for name in Thread.__struct_fields__:
        if getattr(whole, name) != getattr(left, name):
            yield f"run {run_id} is another one from its base {seq} on: its {name}"


def _state(events: Sequence[Event]) -> Thread:
    return structs.replace(fold_all(EMPTY, events), based=(0, 0))


def undue_turns(history: History, retention: Retention, at: int) -> Iterator[str]:
    """What has not gone, though it was to go, and passes have been made since."""
    gone = {each.event.id for x in history.gone for each in x.events}
    whole = {run_id for x in history.gone for run_id in x.run_ids}
    for run_id, own in history.own.items():
        bases = [x for x in own if isinstance(x, e.AgentBase) and x.at <= at]
        is_kept = run_id in whole or any(
            isinstance(x, e.SessionPush | e.AgentComplete) for x in own
        )
        if is_kept or not bases or retention.keep_turns is None:
            continue
        old = [
            x for x in bases
            if bases[-1].turn - x.turn >= retention.keep_turns and not _had_mail(x, own)
        ]  # fmt: skip
        if old and any(x.id not in gone for x in own if 1 < x.seq < old[-1].seq):
            yield f"run {run_id} has all turns before {old[-1].id}, which are not kept"


def _had_mail(base: e.AgentBase, own: Sequence[Event]) -> bool:
    """Whether something waited at a base that its run has taken since."""
    return any(
        item.run_id == base.run_id and 0 < item.seq <= base.inbox
        for x in own
        if isinstance(x, e.SessionTaken | e.SessionDropped) and x.seq > base.seq
        for item in x.items
    )
