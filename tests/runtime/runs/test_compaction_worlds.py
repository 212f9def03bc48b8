"""Conversations whose older messages become summaries, at any point, through crashes, on any store.

Every model here answers from its request alone and says how long that was, so that a world can be
cut off at any commit and goes on in another life.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.anthropic_wire import anthropic_problems
from support.cached_prefix import BODIES, breaks
from support.families import config
from support.openai_wire import openai_problems
from support.profiles import examples, portion
from support.responses_wire import ResponsesWire, responses_problems

from hubbub import (
    AgentDefinition,
    FunctionModel,
    ModelReply,
    ModelRequest,
    PromptDefinition,
    SideConfig,
    Usage,
    tool,
)
from hubbub.agents.compaction import Compaction
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.agents.state.compactions import is_own
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.errors import Closed
from hubbub.hub.events import Event
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.simulation import History, World, simulate
from hubbub.runtime.simulation.story.faults import Crash, ModelFault
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.strategies.worlds import seeds, stores

pytestmark = pytest.mark.spec("L-04")

SMALL = Compaction(window=500, at=0.8, keep=0.3)
RESPONSES = ResponsesWire()
PROBLEMS = {"anthropic": anthropic_problems, "openai": openai_problems}


@tool(idempotent=True)
async def look(what: str) -> str:
    """Look at something."""
    return f"a {what}"


def _size(request: ModelRequest) -> int:
    return len(json.dumps(BODIES["openai"](request)["messages"]))


def _sized(request: ModelRequest, answer: ModelReply | str) -> ModelReply:
    made = reply(answer) if isinstance(answer, str) else answer
    usage = Usage(input_tokens=_size(request), output_tokens=5)
    return ModelReply(
        text=made.text, calls=made.calls, stop_reason=made.stop_reason, usage=usage, model="m"
    )


def _talks(request: ModelRequest) -> ModelReply:
    if request.purpose == "summary":
        return _sized(request, f"{len(request.messages) - 1} messages, in short.")
    last = request.messages[-1]
    if isinstance(last, UserMessage) and "help" in last.content:
        return _sized(request, reply("", call("helper", message="Look around.")))
    if isinstance(last, UserMessage) and len(last.content) % 3:
        calls = [call("look", what=f"tree {n}") for n in range(len(last.content) % 3)]
        return _sized(request, reply("Let me see.", *calls))
    return _sized(request, "Nothing to see here.")


def _works(request: ModelRequest) -> ModelReply:
    if request.purpose == "summary":
        return _sized(request, f"{len(request.messages) - 1} messages of a side.")
    own = request.summarised + sum(map(is_own, request.messages))
    if own >= 6:
        return _sized(request, reply("", call("finish", result="found")))
    if own % 2:
        return _sized(request, f"Step {own}, as you asked.")
    return _sized(request, reply("", call("look", what=f"house {own}")))


@tool
async def finish(result: str) -> str:
    """Hand in the result."""
    return "handed in"


def setup() -> Setup:
    model, work = FunctionModel(_talks, latency=0.5), FunctionModel(_works, latency=0.5)
    desk = PromptDefinition(
        name="desk", prompt="You help.", model=model, tools=(look, config()),
        parallel_tool_calls=True, compaction=SMALL,
    )  # fmt: skip
    sides = {
        side: PromptDefinition(
            name=side, prompt=f"You are {side}.", model=work, tools=(look, finish),
            compaction=SMALL,
        )
        for side in ("worker", "reviewer")
    }  # fmt: skip
    helper = AgentDefinition(
        name="helper", type="dual_ai", expose_as_tool=True, max_session_turns=12,
        side_a=SideConfig(prompt=sides["worker"], session_stop="finish"),
        side_b=SideConfig(prompt=sides["reviewer"], session_stop="finish"),
    )  # fmt: skip
    return Setup.of(AgentDefinition(name="desk", side_a=SideConfig(prompt=desk)), helper)


# ── what must hold ───────────────────────────────────────────────────────────────────────────


def lanes(history: History) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in history.events:
        if event.lane == "own":
            found.setdefault(event.run_id, []).append(event)
    return found


def view_of(thread: Thread, side: str) -> Sequence[Any]:
    return thread.transcript_b if side == "side_b" else thread.transcript


def wrong(history: History) -> Iterator[str]:
    """What must never be: of the records, and of what models were shown."""
    for run_id, lane in lanes(history).items():
        thread, done = EMPTY, set[tuple[str, int, int]]()
        for event in lane:
            if isinstance(event, e.SessionCompaction) and event.summary:
                view = view_of(thread, event.side)
                where = (event.side, event.step, len(view))
                if where in done:
                    yield f"{run_id}: {where} was summarised twice"
                done.add(where)
                if thread.open is not None:
                    yield f"{run_id}: summarised while calls are open"
                if not 2 <= event.covers < len(view):
                    yield f"{run_id}: covers {event.covers} of {len(view)}"
                if not any(map(is_own, view[event.covers :])):
                    yield f"{run_id}: what is not answered was summarised"
            thread = fold(thread, event)
    for asked in history.requests:
        for provider, problems in PROBLEMS.items():
            for problem in problems(BODIES[provider](asked.request)):
                yield f"{asked.run_id}: {provider}: {problem}"
        body = json.loads(RESPONSES.body(asked.request))
        for problem in responses_problems(body):
            yield f"{asked.run_id}: responses: {problem}"


def compactions(history: History, run_id: str = "") -> list[e.SessionCompaction]:
    found = [x for x in history.events if isinstance(x, e.SessionCompaction) and x.summary]
    return [x for x in found if not run_id or x.run_id == run_id]


Act = tuple[str, Any]
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(["Hello.", "Where?", "Do help me.", "x" * 90])),
        st.tuples(st.just("wait"), st.sampled_from([0.2, 0.6, 3.0, 30.0])),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.sampled_from(["interrupt", "reset", "restart"]), st.none()),
    ),
    min_size=4,
    max_size=24,
)


async def play(world: World, acts: Sequence[Act]) -> None:
    run = await world.open("desk", "What is there to see?")
    for verb, value in acts:
        with suppress(Closed):  # Where the process has just died.
            match verb:
                case "say":
                    await world.say(run, value)
                case "wait":
                    await world.wait(value)
                case "compact":
                    world.hub.compact(run)
                case "interrupt":
                    await world.interrupt(run, "enough")
                case "reset":
                    world.hub.emit(e.SessionReset(run_id=run, message="Anew."))
                case "restart":
                    await world.restart()
    await world.wait(100)


@settings(max_examples=examples(150), deadline=None)
@given(
    acts=ACTS,
    crashes=st.lists(
        st.builds(
            Crash, commit=st.integers(1, 40), when=st.sampled_from(["before", "after"]),
            life=st.integers(0, 2),
        ),
        max_size=2,
    ),
    broken=st.lists(
        st.builds(
            ModelFault, agent=st.just("desk"), call=st.integers(1, 12),
            kind=st.sampled_from(["error", "crash"]),
        ),
        max_size=1,
    ),
    seed=seeds(),
    store=stores(),
)  # fmt: skip
def test_whatever_happens_summaries_are_made_once_of_what_was_answered(
    acts: list[Act], crashes: list[Crash], broken: list[ModelFault], seed: int, store: Any
) -> None:
    async def story(world: World) -> None:
        await play(world, acts)

    history = simulate(story, setup, faults=[*crashes, *broken], seed=seed, store=store)
    assert [*wrong(history)] == []


LONG: list[Act] = [
    *[("say", "Where is it?"), ("wait", 9.0)] * 5,
    *[("say", "Do help me now!!"), ("wait", 30.0)],
    *[("compact", None), ("say", "And now?"), ("wait", 9.0)] * 2,
]


def lived(*faults: Any, store: Any = "memory") -> History:
    async def story(world: World) -> None:
        await play(world, LONG)

    return simulate(story, setup, faults=faults, store=store)


def test_a_long_conversation_is_summarised_on_both_sides_of_its_helper() -> None:
    history = lived()
    (desk,) = {x.run_id for x in history.sent}
    assert len(compactions(history, desk)) >= 3
    helpers = {(x.run_id, x.side) for x in compactions(history)} - {(desk, "side_a")}
    assert {side for _, side in helpers} == {"side_a", "side_b"}


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_commit_costs_no_summary_and_makes_none_twice(store: Any, when: Any) -> None:
    (desk,) = {x.run_id for x in lived().sent}
    commits = lived(store=store).lives[0].commits
    for commit in portion(range(1, commits)):
        history = lived(Crash(commit=commit, when=when), store=store)
        assert [*wrong(history)] == [], commit
        asked = [x for x in history.requests if x.request.purpose == "summary"]
        made = compactions(history)
        assert len(made) <= len(asked) <= len(made) + 1, commit
        # The opening itself may be lost with its process.
        assert compactions(history, desk) or not history.events, commit


@pytest.mark.spec("L-01")
def test_a_summary_breaks_the_prefix_once() -> None:
    history = lived()
    for run_id, side in {(x.run_id, x.side) for x in compactions(history)}:
        requests = [
            x.request for x in history.requests
            if x.request.cache_key == f"{run_id}:{side}" and x.request.purpose == "step"
        ]  # fmt: skip
        summaries = [x for x in compactions(history, run_id) if x.side == side]
        before = len([x for x in requests if not x.summarised])
        assert 0 < before <= len(requests)
        for provider in BODIES:
            assert len([*breaks(provider, requests)]) <= len(summaries)


@pytest.mark.spec("L-01")
def test_a_summary_is_asked_for_behind_what_the_model_was_shown_before() -> None:
    """So the provider has it in its cache."""
    history = lived()
    shown: dict[str, ModelRequest] = {}
    for asked in history.requests:
        request = asked.request
        if request.purpose == "summary":
            before = shown[request.cache_key]
            covered = request.messages[:-1]
            assert covered == before.messages[: len(covered)]
            assert (request.system, request.tools) == (before.system, before.tools)
            assert request.tool_choice == before.tool_choice
            assert isinstance(request.messages[-1], UserMessage)
        else:
            shown[request.cache_key] = request
        for message in request.messages:
            assert isinstance(message, AssistantMessage) or message.content
