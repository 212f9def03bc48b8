"""Invariants say nothing of what is right, and name what is wrong in one line.

What is right is lived: by real runtimes, on real stores, through crashes.  What is wrong is
planted: by editing what was lived.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from journals.record import FOLDER
from msgspec import Struct, structs
from support.histories import STORIES, Story, lived
from support.profiles import portion
from support.restarts import Lives

from hubbub import AgentDefinition, Limits
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.events import Event, SessionMessage
from hubbub.hub.events.codec import decode_event
from hubbub.hub.ports import Ports
from hubbub.runtime.simulation.invariants.all import INVARIANTS
from hubbub.runtime.simulation.story.budgets import Budgets, held
from hubbub.runtime.simulation.story.faults import Crash
from hubbub.runtime.simulation.story.history import Heard, History
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.world.reading import read_store
from hubbub.runtime.stores.open import sqlite_store

STORES = ("memory", "late", "sqlite")


def violations(history: History) -> list[str]:
    return [
        f"{name}: {line}" for name, invariant in INVARIANTS.items() for line in invariant(history)
    ]


# ── what is right ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("story", STORIES)
def test_nothing_is_said_of_a_history_as_the_contract_has_it(story, store):
    history = lived(STORIES[story], store=store)
    assert history.events
    assert not violations(history)


@pytest.mark.spec("P-10", "T-09", "S-07")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("story", STORIES)
def test_nothing_is_said_of_a_history_with_crashes(story, when):
    store = STORES[len(story) % 3]
    commits = lived(STORIES[story], store=store).lives[0].commits
    # The last one is the note of a runtime that is left, when nothing strikes any more.
    for number, commit in portion([*enumerate(range(1, commits, max(1, commits // 8)))]):
        faults = [Crash(commit=commit, when=when), Crash(commit=2 + number % 5, life=1)]
        history = lived(STORIES[story], faults=faults, store=store)
        assert len(history.lives) > 1
        assert not violations(history), (commit, store)


@pytest.mark.parametrize("journal", sorted(FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
def test_nothing_is_said_of_a_recorded_journal(journal):
    """It has own lanes only: who reads an export may not see the inboxes that items came from."""
    events = [decode_event(line) for line in journal.read_bytes().splitlines()[1:]]
    events.sort(key=lambda event: event.at)
    assert not violations(History(events=events))


@pytest.mark.anyio
@pytest.mark.parametrize("keeps_database", [True, False], ids=["as it was", "adopted"])
async def test_nothing_is_said_of_runs_that_were_adopted_from_their_folders(
    tmp_path, ports: Ports, keeps_database, anyio_backend_name
):
    from support.agents import echo_model, model_agent
    from support.frames import complete, frame, use

    from hubbub import ScriptedModel

    main = frame(ScriptedModel([use("ann"), "Well.", use("ann"), "Well."]), agents=["ann"])
    agents = (main, frame(ScriptedModel(["Hm?", complete("x")]), name="ann"))
    lives = Lives(tmp_path, ports)
    async with lives.life(*agents, model_agent(echo_model(), name="echo")) as rt:
        for line in ("Hello", "this", "that"):
            run = await rt.start("main", line, session_key="telegram_1_2")
            await run.result()
        other = await rt.start("echo", "one", session_key="telegram_1_3")
        await rt.hub.send_to_run(other.run_id, "two")
        await other.result()
    if not keeps_database:
        lives.forget_database()
    async with lives.life(*agents, model_agent(echo_model(), name="echo")) as rt:
        await rt.hub.send_to_run(other.run_id, "three")
        await rt.result(other.run_id)
    history = History(is_settled=True)
    await read_store(sqlite_store(lives.folder, ports=ports), history)
    assert len(history.runs) >= 3
    assert violations(history) == []


@pytest.mark.spec("H-04", "H-06")
def test_listeners_hear_in_the_order_of_the_store_when_a_parent_is_terminated_above_its_children():
    async def scenario(world: Any) -> None:
        run = await world.open("main", "Please.")
        await world.wait(3.7)
        await world.terminate(run)

    history = lived(Story(STORIES["children"].setup, scenario))
    assert not list(INVARIANTS["replay_equals_live"](history))


@pytest.mark.spec("T-09")
def test_a_run_that_a_tick_made_go_on_is_compared_with_its_journal_up_to_then():
    history = lived(STORIES["tools"])
    run_id, lane = next(iter(history.own.items()))
    then = {run_id: fold_all(EMPTY, lane[:5])}
    at = structs.replace(history, live=then, live_seq={run_id: 5})
    assert not list(INVARIANTS["replay_equals_live"](at))
    assert list(INVARIANTS["replay_equals_live"](structs.replace(at, live_seq={run_id: 6})))


def test_letters_that_a_dead_process_could_not_send_are_not_missed():
    story = STORIES["cut short"]
    history = lived(story)
    (end,) = [x for x in history.events if isinstance(x, e.AgentComplete)]
    assert history.dead_letters
    commits = [n for n in range(1, 60) if _ends_at(story, n, end)]
    assert commits
    for commit in commits:
        cut = lived(story, faults=[Crash(commit=commit, when="after")])
        assert not [x for x in cut.dead_letters if x.message and x.message.seq]
        assert not violations(cut)


def _ends_at(story: Any, commit: int, end: Event) -> bool:
    """Whether a run ends with a commit that nobody hears of."""
    history = lived(story, faults=[Crash(commit=commit, when="after")])
    heard = {x.event.type for x in history.heard}
    return end.type not in heard and any(x.type == end.type for x in history.events)


# ── what is wrong ────────────────────────────────────────────────────────────────────────────


class Plant(Struct, frozen=True):
    """A violation: where it is planted, how, and what must be said of it."""

    invariant: str
    story: str
    edit: Callable[[History], History]
    says: str


def edited(history: History, events: Sequence[Event], **more: Any) -> History:
    return structs.replace(history, events=tuple(events), **more)


def without(kind: type[Event], nth: int = 0, **fields: Any) -> Callable[[History], History]:
    """Drop an event of a class."""

    def edit(history: History) -> History:
        gone = _found(history, kind, nth, fields)
        return edited(history, [x for x in history.events if x is not gone])

    return edit


def twice(kind: type[Event], nth: int = 0, **changes: Any) -> Callable[[History], History]:
    """Write an event again, behind everything of its run."""

    def edit(history: History) -> History:
        again = _found(history, kind, nth, {})
        lane = [x for x in history.events if (x.run_id, x.lane) == (again.run_id, again.lane)]
        again = structs.replace(again, **{"seq": 1 + len(lane), **changes})
        return edited(history, [*history.events, again])

    return edit


def changed(kind: type[Event], nth: int = 0, /, **fields: Any) -> Callable[[History], History]:
    def edit(history: History) -> History:
        one = _found(history, kind, nth, {})
        other = structs.replace(one, **fields)
        return edited(history, [other if x is one else x for x in history.events])

    return edit


def _found(history: History, kind: type[Event], nth: int, fields: dict[str, Any]) -> Any:
    found = [
        x for x in history.events
        if isinstance(x, kind) and all(getattr(x, name) == value for name, value in fields.items())
    ]  # fmt: skip
    return found[nth]


def _untaken(history: History, wanted: Callable[[Any], bool]) -> History:
    """Take an item out of the record of what was taken."""
    events: list[Event] = []
    for event in history.events:
        if isinstance(event, e.SessionTaken):
            items = tuple(item for item in event.items if not wanted(item))
            event = structs.replace(event, items=items)
        events.append(event)
    return edited(history, events)


def untaken(text: str) -> Callable[[History], History]:
    return lambda history: _untaken(
        history, lambda item: isinstance(item, SessionMessage) and item.content.startswith(text)
    )


def never_came(text: str) -> Callable[[History], History]:
    """What was accepted is nowhere."""

    def edit(history: History) -> History:
        history = untaken(text)(history)
        return without(SessionMessage, content=text)(history)

    return edit


def never_moved(history: History) -> History:
    """A message to a frame is not moved when the frame is popped (I-13)."""
    history = untaken("f2")(history)
    _, copy = [
        x for x in history.events if isinstance(x, SessionMessage) and x.content.startswith("f2")
    ]
    return edited(history, [x for x in history.events if x is not copy])


def a_gap(history: History) -> History:
    return structs.replace(without(e.AgentRetry)(history), heard=[])


def taken_again(history: History) -> History:
    first = next(
        x for x in history.events
        if isinstance(x, e.SessionTaken) and isinstance(x.items[0], SessionMessage)
    )  # fmt: skip
    last = [x for x in history.events if isinstance(x, e.SessionTaken)][-1]
    again = structs.replace(last, items=(*last.items, first.items[0]))
    return edited(history, [again if x is last else x for x in history.events])


def swapped(history: History) -> History:
    """Two messages of one sender change their places in what was taken."""
    one, two = [
        x for x in history.events
        if isinstance(x, e.SessionTaken) and isinstance(x.items[0], SessionMessage)
        and x.items[-1].source == "ann"
    ][:2]  # fmt: skip
    new = {
        one.id: structs.replace(one, items=(*one.items[:-1], two.items[-1])),
        two.id: structs.replace(two, items=(one.items[-1], *two.items[:-1])),
    }
    return edited(history, [new.get(x.id, x) for x in history.events])


def keys_swapped(history: History) -> History:
    one, two = [x for x in history.events if isinstance(x, SessionMessage) and x.key][-2:]
    assert one.run_id == two.run_id
    new = {one.id: structs.replace(one, key=two.key), two.id: structs.replace(two, key=one.key)}
    return edited(history, [new.get(x.id, x) for x in history.events])


def with_letters(change: Callable[[list[Heard]], list[Heard]]) -> Callable[[History], History]:
    def edit(history: History) -> History:
        letters = [
            x for x in history.heard
            if isinstance(x.event, e.HubDeadLetter) and x.event.message and x.event.message.seq
        ]  # fmt: skip
        others = [x for x in history.heard if x not in letters]
        return structs.replace(history, heard=[*others, *change(letters)])

    return edit


def letter_of_taken(history: History) -> History:
    item = next(x for x in history.events if isinstance(x, SessionMessage))
    letter = e.HubDeadLetter(to=item.run_id, reason="ended", message=item)
    return structs.replace(history, heard=[*history.heard, Heard(event=letter, life=0)])


def letter_of_an_end(history: History) -> History:
    result = next(x for x in history.events if isinstance(x, e.SessionResult))
    end = structs.replace(result, session=0, answers=(), final=True)
    letter = e.HubDeadLetter(to=end.run_id, reason="ended", message=end)
    return structs.replace(history, heard=[*history.heard, Heard(event=letter, life=0)])


def one_session_too_many(history: History) -> History:
    child = next(x for x in history.events if isinstance(x, e.SessionOpen) and x.reports and x.once)
    events: list[Any] = []
    for event in history.events:
        events.append(event)
        is_end = isinstance(event, e.SessionEnd) and event.run_id == child.run_id
        is_result = isinstance(event, e.SessionResult) and event.child_run_id == child.run_id
        if is_end or is_result:
            more = {"final": False} if is_result else {}
            events.append(structs.replace(event, session=2, **more))  # type: ignore[call-arg]
    return structs.replace(history, events=events)


def shown_twice(history: History) -> History:
    asked = next(x for x in history.requests if getattr(x.request.messages[-1], "calls", ()))
    messages = (*asked.request.messages, asked.request.messages[-1])
    other = structs.replace(asked, request=structs.replace(asked.request, messages=messages))
    return structs.replace(history, requests=[other])


def heard_only(history: History) -> History:
    """A listener was told of something that the store lost: told before it was committed."""
    lost = [x for x in history.events if isinstance(x, e.AgentPark)][-1]
    return edited(history, [x for x in history.events if x is not lost], runs={})


def heard_in_another_order(history: History) -> History:
    heard = list(history.heard)
    durable = [n for n, x in enumerate(heard) if x.event.lane]
    one, two = durable[3], durable[4]
    heard[one], heard[two] = heard[two], heard[one]
    return structs.replace(history, heard=heard)


def another_in_memory(history: History) -> History:
    run_id, thread = next(iter(history.threads.items()))
    return structs.replace(history, live={run_id: structs.replace(thread, step=99)})


def _limited(history: History, limits: Limits, **end: Any) -> History:
    """The root was opened with these limits, and its last turn ended otherwise."""
    end_of = [x for x in history.events if isinstance(x, e.SessionEnd)][-1]
    root = next(x for x in history.events if isinstance(x, e.SessionOpen))
    events: list[Event] = []
    for event in history.events:
        if event is end_of and end:
            event = structs.replace(event, **end)
        elif isinstance(event, e.SessionTaken):
            items = [structs.replace(x, limits=limits) if x == root else x for x in event.items]
            event = structs.replace(event, items=tuple(items))
        events.append(event)
    return edited(history, events)


def one_step_too_many(history: History) -> History:
    steps = sum(isinstance(x, e.AgentStep) for x in history.events)
    return _limited(history, Limits(model_calls=steps - 1))


def ended_too_soon(history: History) -> History:
    end: Any = {"outcome": "limit", "reason": "tree.cost"}
    return _limited(history, Limits(cost=3), **end)


def still_in_its_turn(history: History) -> History:
    """It has reached its limit with its last step, and does nothing any more."""
    steps = [x for x in history.events if isinstance(x, e.AgentStep)]
    end = next(n for n, x in enumerate(history.events) if x is steps[-1])
    limited = _limited(history, Limits(model_calls=len(steps)))
    own = [x for x in limited.events[end + 1 :] if x.lane != "own"]
    return edited(limited, [*limited.events[: end + 1], *own])


def store_says(**fields: Any) -> Callable[[History], History]:
    def edit(history: History) -> History:
        run_id, info = next(iter(history.runs.items()))
        return structs.replace(history, runs={run_id: structs.replace(info, **fields)})

    return edit


def written_by(*writes):
    def edit(history):
        return structs.replace(history, writers=[(history.roots[0], *each) for each in writes])

    return edit


def told_in_another_order(history):
    one, two, three = [event.id for event in history.events[:3]]
    life = structs.replace(history.lives[0], told=[one, three, two])
    return structs.replace(history, workers=2, lives=[life])


PLANTS = [
    Plant("start_before_everything", "tools", without(e.AgentStart), "began with agent:text"),
    Plant("start_before_everything", "tools", twice(e.AgentStart), "started 2 times"),
    Plant("one_terminal_event", "cut short", twice(e.AgentComplete), "ended 2 times"),
    Plant("one_terminal_event", "cut short", twice(e.AgentText), "went on after its end"),
    Plant("one_terminal_event", "cut short", without(e.AgentComplete), "calls it ended"),
    Plant(
        "one_terminal_event", "cut short", changed(e.AgentComplete, outcome="completed"),
        "was terminated",
    ),
    Plant("one_terminal_event", "tools", store_says(status="ended"), "has no agent:complete"),
    Plant("no_message_lost", "tools", never_came("Go on."), "'Go on.' was accepted 1 times"),
    Plant("no_message_lost", "tools", taken_again, "was taken 2 times"),
    Plant("no_message_lost", "closed", untaken("And besides?"), "was lost when its run ended"),
    Plant("no_message_lost", "children", without(e.SessionResult), "taken (ID), but never came"),
    Plant("no_message_lost", "cut short", with_letters(lambda _: []), "without a dead letter"),
    Plant("no_message_lost", "cut short", with_letters(lambda x: x * 2), "has 2 dead letters"),
    Plant("no_message_lost", "tools", letter_of_taken, "is a dead letter, but was taken"),
    Plant("no_message_lost", "to frames", never_moved, "(ID) was lost when its run ended"),
    Plant("order_kept", "tools", swapped, "after in"),
    Plant("order_kept", "children", keys_swapped, "came as"),
    Plant("no_idle_run_with_mail", "tools", untaken("Well?"), "is idle, but has mail"),
    Plant("no_idle_run_with_mail", "waiting frame", untaken("m2"), "is idle, but its conversation"),
    Plant(
        "valid_history_at_every_model_call", "tools", without(e.AgentToolComplete, 1),
        "before call 1.1 (look) had its result",
    ),
    Plant("valid_history_at_every_model_call", "tools", shown_twice, "was shown 2 calls call_"),
    Plant(
        "one_completion_per_invocation", "tools", twice(e.AgentToolComplete, 1),
        "call 1.1 (look) has 2 results",
    ),
    Plant(
        "one_completion_per_invocation", "cut short", without(e.AgentToolComplete, -1),
        "is over, but call",
    ),
    Plant(
        "one_completion_per_invocation", "tools", without(e.AgentToolComplete, -1),
        "is at rest, but call",
    ),
    Plant(
        "one_completion_per_invocation", "tools", twice(e.AgentToolComplete, index=7),
        "which nobody made",
    ),
    Plant("one_completion_per_invocation", "children", twice(e.SessionResult, 3), "2 times"),
    Plant("one_completion_per_invocation", "children", without(e.SessionResult, 3), "not reported"),
    Plant("one_completion_per_invocation", "stack", without(e.SessionResult), "not reported"),
    Plant(
        "one_completion_per_invocation", "children", twice(e.SessionResult, 3, session=9),
        "session 9 is reported, but has not come",
    ),
    Plant(
        "one_completion_per_invocation", "children", one_session_too_many,
        "was opened for one session, and had 2",
    ),
    Plant(
        "one_completion_per_invocation", "children", letter_of_an_end,
        "its end is a dead letter, besides its last session",
    ),
    Plant("takeover_stack", "stack", without(e.SessionPop), "pushed and not popped"),
    Plant("takeover_stack", "stack", without(e.SessionPush), "not on top"),
    Plant("takeover_stack", "stack", twice(e.SessionPush), "again"),
    Plant("takeover_stack", "stack", changed(e.SessionPop, call_id="9.9"), "does not stand beside"),
    Plant("takeover_stack", "beside", changed(e.AgentStep, parallel=False), "not of one parallel"),
    Plant("takeover_stack", "beside", changed(e.AgentStep, step=9), "not of one parallel"),
    Plant("takeover_stack", "beside", without(e.SessionPop, 1), "pushed and not popped"),
    Plant("takeover_stack", "beside", without(e.SessionPush, 1), "open calls wait for frames"),
    Plant("takeover_stack", "beside", without(e.AgentComplete, 1), "was popped"),
    Plant("budgets_held", "tools", changed(e.AgentRetry, attempt=5), "is tried again"),
    Plant(
        "budgets_held", "tools", changed(e.AgentRetry, kind="output", attempt=3),
        "corrected 3 times",
    ),
    Plant("budgets_held", "children", changed(e.SessionOpen, 1, depth=17), "17 deep"),
    Plant("budgets_held", "stack", changed(e.SessionPush, max_iterations=1), "the limit is 1"),
    Plant("limits_held", "tools", one_step_too_many, "though tree.model_calls was used up"),
    Plant("limits_held", "tools", ended_too_soon, "ended by tree.cost"),
    Plant("limits_held", "tools", still_in_its_turn, "is at rest in a turn, but tree.model_calls"),
    Plant("replay_equals_live", "tools", a_gap, "is due"),
    Plant("replay_equals_live", "tools", heard_only, "was dispatched, but is not stored"),
    Plant("replay_equals_live", "tools", heard_in_another_order, "was dispatched after"),
    Plant("replay_equals_live", "tools", changed(e.AgentText, text="?"), "otherwise than it is"),
    Plant("replay_equals_live", "tools", another_in_memory, "in memory than in the journal: step"),
    Plant("replay_equals_live", "tools", store_says(agent="else"), "'else' in the store"),
    Plant("replay_equals_live", "tools", store_says(waiting=1), "the store counts 1"),
    Plant(
        "no_leaked_task", "tools", lambda h: structs.replace(h, tasks=("pump",)), "'pump' was still"
    ),
    Plant("one_owner_at_a_time", "tools", written_by((1, 1), (1, 2)), "by two processes under"),
    Plant("one_owner_at_a_time", "tools", written_by((2, 2), (1, 1)), "1, after 2"),
    Plant(
        "no_tree_left_alone", "tools", lambda h: structs.replace(h, unowned=(h.roots[0],)),
        "is driven by no worker",
    ),
    Plant("workers_hear_alike", "tools", told_in_another_order, "where ID is due"),
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS, ids=lambda x: f"{x.invariant}: {x.says}")
def test_what_is_wrong_is_named_in_one_line(plant):
    history = lived(STORIES[plant.story])
    lines = list(INVARIANTS[plant.invariant](plant.edit(history)))
    assert len(lines) >= 1, "not found"
    named = [re.sub(r"[\w-]{36}/\w+/\d+", "ID", line) for line in lines]
    assert [x for x in named if plant.says in x], named
    assert len(lines) == 1, lines
    assert re.search(r"[\w-]{36}|task", lines[0]), "whose it is"


def test_every_invariant_finds_something():
    assert {plant.invariant for plant in PLANTS} == set(INVARIANTS)


LIMITS = {
    "max_depth": (Budgets(max_depth=0), "children", "1 deep"),
    "max_descendants": (Budgets(max_descendants=1), "children", "2 runs live below"),
    "max_spawns": (Budgets(max_spawns=5), "children", "6 runs were started below"),
    "max_inbox": (Budgets(max_inbox=1), "tools", "2 messages wait"),
    "max_steps": (Budgets(max_steps={"main": 2}), "tools", "step 3 of a turn"),
    "max_session_turns": (Budgets(max_session_turns={"pair": 2}), "two sides", "turn 3"),
}


@pytest.mark.spec("C-15", "H-07", "S-06")
@pytest.mark.parametrize("limit", LIMITS)
def test_limits_of_ones_own_are_held_to(limit):
    budgets, story, says = LIMITS[limit]
    lines = list(held(budgets)(lived(STORIES[story])))
    assert lines
    assert all(says in line for line in lines[:1]), lines


def test_budgets_of_a_setup_are_those_of_its_runtime_and_its_agents():
    story = STORIES["two sides"]
    setup = Setup.of(*story.setup().agents, max_depth=3)
    budgets = Budgets.of(setup)
    assert (budgets.max_depth, budgets.max_spawns) == (3, 10_000)
    assert budgets.max_session_turns == {"pair": 3}
    assert all(isinstance(agent, AgentDefinition) for agent in setup.agents)
    assert not list(held(budgets)(lived(story)))
