"""The stop ladder: what a step stops, for every combination of what can hold at once.

``expected`` below is the ladder once more, in plain Python and in the order of the seed (SA 5); it
knows nothing of threads, events or definitions.
"""

from itertools import permutations, product
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelReply, ToolCall, UserMessage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import DEFAULT_MAX_STEPS, DEFAULT_MAX_TURNS
from hubbub.agents.retry import Failure
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.state.transcript import NO_MESSAGE
from hubbub.agents.turn.calls import HANDED_OVER
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.request import CONTINUE, build_request
from hubbub.agents.turn.signals import (
    Decision,
    ModelFailed,
    ModelReplied,
    Restored,
    Signal,
    Taken,
    ToolFinished,
)
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.values import encode_value
from hubbub.runtime.models.scripted import ScriptedModel

NOBODY = ScriptedModel([])
"""The model of these agents: their replies are made here."""


@tool
def approve(summary: str = "", attachments: list[str] | None = None) -> None: ...


@tool
def give_up(reason: str = "") -> None: ...


@tool
def hand_in(note: str = "") -> None: ...


@tool
def look() -> None: ...


@tool
def report(status: str = "") -> None: ...


TOOLS = (approve, give_up, hand_in, look, report)


def side(name: str, *, parallel: bool = False, tools: Any = TOOLS, **config: Any) -> SideConfig:
    prompt = PromptDefinition(
        name=name, prompt="", model=NOBODY, tools=tools, parallel_tool_calls=parallel
    )
    return SideConfig(prompt=prompt, **config)


def agent(
    name: str, *, two_sided: bool = True, max_turns: int | None = None, **options: Any
) -> AgentDefinition:
    """An agent whose side A is made of ``options``; side B of nothing."""
    if not two_sided:
        return AgentDefinition(
            name=name, side_a=side(name, **options), max_session_turns=max_turns,
            expose_as_tool=True,
        )  # fmt: skip
    return AgentDefinition(
        name=name, type="dual_ai", max_session_turns=max_turns,
        side_a=side(name, **options), side_b=side(f"{name}-b", label="Bob"),
    )  # fmt: skip


class Story:
    """A thread that has taken its first message, and what came of it."""

    def __init__(self, definitions: Definitions, name: str, input: Any = "go") -> None:
        self.definitions = definitions
        self.thread: Thread = EMPTY
        self.events: list[Event] = []
        opening = e.SessionOpen(
            open_agent=name, agent=name, seq=1, input_json=encode_value("", input)
        )
        self.then(Taken((opening,)))

    def then(self, signal: Signal) -> Decision:
        decision = interpret(self.thread, signal, self.definitions)
        self.events += decision.events
        self.thread = fold_all(self.thread, decision.events)
        return decision

    def says(self, text: str = "", *calls: str | ToolCall, stop: str = "end") -> Decision:
        made = tuple(ToolCall(name=c) if isinstance(c, str) else c for c in calls)
        reply = ModelReply(text=text, calls=made, stop_reason=stop)
        return self.then(ModelReplied(reply, self.thread.turn))

    def finishes(self, output: str, *, is_error: bool = False, ran: bool = True) -> Decision:
        """The call that is under way; in these steps it is never more than one."""
        step = self.thread.open
        assert step is not None
        (index,) = (call.index for call in step.calls if call.status == "started")
        return self.then(ToolFinished(step.number, index, output, is_error, ran=ran))

    @property
    def last(self) -> Any:
        return self.events[-1]


def one(name: str = "one", **options: Any) -> Story:
    """A story of one agent of its own."""
    return Story(Definitions([agent(name, **options)]), name)


# ── S-03: every combination ──────────────────────────────────────────────────────────────────

How: TypeAlias = Literal["well", "badly", "not at all"]
"""How a call goes: it succeeds, it fails, or its arguments are bad and it does not run."""


class Case(NamedTuple):
    calls: tuple[tuple[str, How], ...]
    text: str
    stop_on_response: bool
    steps_are_over: bool
    turns_are_over: bool
    two_sided: bool
    parallel: bool


class Expected(NamedTuple):
    what: str
    """``nothing``, ``turn`` or ``session``."""

    why: str = ""
    said: str | None = None
    """What is handed over, or comes out."""

    skipped: int = 0
    """So many calls at the end do not run."""


def expected(case: Case) -> Expected:
    """SA 5 in plain Python."""
    ran: list[tuple[str, How]] = []
    session = ""
    for name, how in case.calls:
        if session:
            break
        ran.append((name, how))
        if how == "well" and name in ("approve", "give_up"):
            session = name
    skipped = len(case.calls) - len(ran)
    # 1. session-level terminal bindings
    if session == "approve":
        return Expected("session", "completed", "approved so", skipped)
    if session == "give_up":
        return Expected("session", "failed", "give_up went well", skipped)
    # 2. side-level stop bindings  3. response stop  4. safety limits
    handed = [how for name, how in ran if name == "hand_in" and how != "not at all"]
    if handed:
        said = "the note" if handed[0] == "well" else "hand_in went badly"
        turn = Expected("turn", "stop_tool", said)
    elif case.text and not case.calls and case.stop_on_response:
        turn = Expected("turn", "response", "")
    elif case.steps_are_over:
        turn = Expected("turn", "limit", "" if case.text else NO_MESSAGE)
    else:
        return Expected("nothing")
    if case.two_sided and case.turns_are_over:
        return Expected("session", "limit", case.text or None)
    if not case.two_sided:  # The turn of the only side is the session.
        outcome = "limit" if turn.why == "limit" else "completed"
        said = turn.said if turn.why == "stop_tool" else case.text or None
        return Expected("session", outcome, said)
    return turn


BOUND = ("approve", "give_up", "hand_in")
HOWS: tuple[How, ...] = ("well", "badly", "not at all")

ORDERS: list[tuple[tuple[str, How], ...]] = [
    tuple(zip(names, hows, strict=True))
    for count in range(len(BOUND) + 1)
    for names in permutations(BOUND, count)
    for hows in product(HOWS, repeat=count)
]
"""Every choice of bound calls, in every order, each going in every way."""

FLAGS = (False, True)


def ladder_agent(*flags: bool) -> AgentDefinition:
    stop_on_response, steps_are_over, turns_are_over, two_sided, parallel = flags
    return agent(
        name_of(flags),
        two_sided=two_sided,
        max_turns=1 if turns_are_over else 9,
        parallel=parallel,
        stop_on_response=stop_on_response,
        max_steps=1 if steps_are_over else 9,
        session_stop=SessionToolBinding("approve", message_property="summary"),
        session_fail="give_up",
        stop_tool="hand_in",
        stop_tool_response_property="note",
    )


def name_of(flags: tuple[bool, ...]) -> str:
    return "agent-" + "".join(str(int(flag)) for flag in flags)


LADDER = Definitions([ladder_agent(*flags) for flags in product(FLAGS, repeat=5)])

OUTPUT = {"hand_in": '{"note": "the note", "more": 1}'}
ARGUMENTS = {"approve": '{"summary": "approved so"}'}


def play(case: Case) -> tuple[Expected, Story]:
    """The step in the engine, and what became of it."""
    story = Story(LADDER, name_of(tuple(case[2:])))
    begun = len(story.events)
    calls = [ToolCall(name=name, arguments=ARGUMENTS.get(name, "{}")) for name, _ in case.calls]
    story.says(case.text, *calls)
    for name, how in case.calls:
        if story.thread.open is None:
            break
        output = f"{name} went {how}"
        if how == "well":
            output = OUTPUT.get(name, output)
        story.finishes(output, is_error=how != "well", ran=how != "not at all")
    events = story.events[begun:]
    skipped = sum(x.output.startswith("skipped: ") for x in answers(events))
    turns = [x for x in events if isinstance(x, e.SessionTurn)]
    ends = [x for x in events if isinstance(x, e.SessionEnd)]
    assert len(turns) + len(ends) <= 1, "a step stops one thing"
    for turn in turns:
        assert (turn.side, turn.turn) == ("side_b", 2)
        return Expected("turn", turn.reason, turn.content, skipped), story
    for end in ends:
        assert end.success is (end.outcome == "completed")
        return Expected("session", end.outcome, end.output, skipped), story
    return Expected("nothing", skipped=skipped), story


def answers(events: list[Event]) -> list[e.AgentToolComplete]:
    return [x for x in events if isinstance(x, e.AgentToolComplete)]


@pytest.mark.spec("S-03", "S-05", "S-07")
@pytest.mark.parametrize("two_sided", FLAGS, ids=["ai_human", "dual_ai"])
@pytest.mark.parametrize("text", ["", "words"])
def test_whatever_holds_at_once_the_ladder_is_gone_down_in_the_seeds_order(
    text: str, two_sided: bool
) -> None:
    seen = set()
    for calls in ORDERS if text else ORDERS[1:]:
        for stop, steps, turns, parallel in product(FLAGS, repeat=4):
            case = Case(calls, text, stop, steps, turns, two_sided, parallel)
            found, story = play(case)
            assert found == expected(case), case
            seen.add((found.what, found.why))
            # Whatever it stopped: each call has one result, in the order of the calls.
            assert [x.index for x in answers(story.events)] == list(range(len(calls)))
            assert story.thread.open is None
            over = two_sided and found.what == "session"
            assert (story.thread.phase == "ended") is over
    assert ("session", "completed") in seen
    assert ("session", "failed") in seen
    assert ("session", "limit") in seen
    assert (("turn", "stop_tool") in seen) is two_sided
    assert (("turn", "limit") in seen) is two_sided
    assert (("turn", "response") in seen) is (two_sided and bool(text))


# ── S-04 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-04")
def test_words_beside_a_call_stop_nothing() -> None:
    story = one()
    story.says("let me look", "look")
    story.finishes("seen")
    assert story.last.type == "agent:tool:complete"
    assert (story.thread.side, story.thread.turn) == ("side_a", 1)


@pytest.mark.spec("S-04")
@pytest.mark.parametrize("two_sided", FLAGS, ids=["ai_human", "dual_ai"])
def test_without_stop_on_response_the_same_side_steps_again_and_is_told_to_continue(
    two_sided: bool,
) -> None:
    story = one(two_sided=two_sided, stop_on_response=False)
    for number in range(3):
        decision = story.says(f"thought {number}")
        assert [x.type for x in decision.events] == ["agent:text", "agent:step"]
        request = build_request(story.thread, story.definitions.side("one"), ())
        assert request.messages[-1] == CONTINUE == UserMessage(content="(continue)")
        said = [m.text for m in request.messages if isinstance(m, AssistantMessage)]
        assert said == [f"thought {n}" for n in range(number + 1)]
        assert CONTINUE not in story.thread.transcript, "it is not stored"
        assert (story.thread.side, story.thread.turn) == ("side_a", 1)
    assert request.messages.count(CONTINUE) == 1


@pytest.mark.spec("S-04")
@pytest.mark.parametrize(
    ("output", "found"),
    [
        ('{"note": "a text"}', "a text"),
        ('{"note": {"deep": [1, 2]}}', '{"deep":[1,2]}'),
        ('{"note": 7}', "7"),
        ('{"other": 1}', '{"other": 1}'),
        ('["note"]', '["note"]'),
        ("no JSON at all", "no JSON at all"),
    ],
)
def test_the_other_side_gets_the_property_of_the_result_or_all_of_it(
    output: str, found: str
) -> None:
    story = one(stop_tool="hand_in", stop_tool_response_property="note")
    story.says("", "hand_in")
    story.finishes(output)
    assert isinstance(story.last, e.SessionTurn)
    assert (story.last.reason, story.last.content) == ("stop_tool", found)
    assert story.thread.view[-1] == UserMessage(content=found)
    whole = one(stop_tool="hand_in")
    whole.says("", "hand_in")
    whole.finishes(output)
    assert whole.last.content == output


@pytest.mark.spec("S-04", "S-07")
def test_a_stop_tool_does_not_end_its_batch() -> None:
    story = one(stop_tool="hand_in", parallel=True)
    story.says("", "hand_in", "look", "ghost", "hand_in")
    for output in ("first", "seen", "second"):
        assert story.thread.turn == 1
        story.finishes(output)
    assert [x.output[:8] for x in answers(story.events)] == [
        "first", "seen", "there is", "second"
    ]  # fmt: skip
    assert (story.last.type, story.last.content) == ("session:turn", "first")


@pytest.mark.spec("S-04")
def test_a_stop_tool_that_did_not_run_ends_nothing() -> None:
    story = one(stop_tool="hand_in")
    story.says("words", ToolCall(name="hand_in", arguments="{"))
    story.finishes("Bad arguments", is_error=True, ran=False)
    assert story.last.type == "agent:tool:complete"
    assert story.thread.turn == 1


# ── S-05 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-05")
@pytest.mark.parametrize("binding", ["approve", SessionToolBinding("approve")])
def test_without_a_message_property_the_payload_is_the_tools_result(binding: Any) -> None:
    story = one(session_stop=binding)
    story.says("nearly", ToolCall(name="approve", arguments='{"summary": "unread"}'))
    story.finishes('{"as": "it is"}')
    assert story.thread.outcome is not None
    assert (story.last.outcome, story.last.output) == ("completed", '{"as": "it is"}')


@pytest.mark.spec("S-05")
@pytest.mark.parametrize(
    ("arguments", "payload"),
    [('{"summary": "all good"}', "all good"), ('{"summary": ""}', None), ("{}", None)],
)
def test_with_a_message_property_the_payload_is_that_argument(
    arguments: str, payload: str | None
) -> None:
    story = one(session_stop=SessionToolBinding("approve", "summary"))
    story.says("nearly", ToolCall(name="approve", arguments=arguments))
    story.finishes("unread")
    assert (story.last.outcome, story.last.output) == ("completed", payload)


@pytest.mark.spec("S-05")
def test_a_session_that_fails_says_why_and_raises_nothing() -> None:
    story = one(session_fail=SessionToolBinding("give_up", "reason"))
    story.says("", ToolCall(name="give_up", arguments='{"reason": "no paint"}'))
    decision = story.finishes("noted")
    end, last = decision.events[-2:]
    assert isinstance(end, e.SessionEnd) and isinstance(last, e.AgentComplete)
    for each in (end, last):
        assert (each.success, each.outcome, each.reason) == (False, "failed", "no paint")
        assert each.output == "no paint"
    assert not any(isinstance(x, e.AgentFailed) for x in story.events)


@pytest.mark.spec("S-05")
@pytest.mark.parametrize(("is_error", "ran"), [(True, True), (True, False)])
def test_a_bound_tool_that_fails_ends_nothing_and_skips_nothing(is_error: bool, ran: bool) -> None:
    story = one(session_stop="approve", session_fail="give_up", parallel=True)
    story.says("", "approve", "look")
    story.finishes("cannot", is_error=is_error, ran=ran)
    story.finishes("seen")
    assert [x.output for x in answers(story.events)] == ["cannot", "seen"]
    assert story.thread.in_session and story.thread.turn == 1


@pytest.mark.spec("S-05")
@pytest.mark.parametrize(
    ("binding", "text"),
    [("report", "as returned"), (SessionToolBinding("report", "status"), "half done")],
)
def test_a_status_is_published_and_ends_nothing(binding: Any, text: str) -> None:
    story = one(session_status=binding)
    arguments = '{"status": "half done"}'
    story.says("", ToolCall(name="report", arguments=arguments))
    decision = story.finishes("as returned")
    assert [x.type for x in decision.events] == ["agent:tool:complete", "agent:status"]
    assert isinstance(story.last, e.AgentStatus) and story.last.status == text
    assert (story.thread.status, story.thread.in_session) == (text, True)
    story.says("", ToolCall(name="report", arguments=arguments))
    decision = story.finishes("broken", is_error=True)
    assert [x.type for x in decision.events] == ["agent:tool:complete"], "only if it succeeded"


@pytest.mark.spec("S-05")
@pytest.mark.parametrize(
    ("named", "found"),
    [('"a.txt"', ["a.txt"]), ('["b.txt", "a.txt"]', ["b.txt", "a.txt"]), ("[]", []), ('""', [])],
)
def test_attachments_are_a_path_or_a_list_of_them(named: str, found: list[str]) -> None:
    @tool
    def ship(files: str | list[str] = "") -> None: ...

    binding = SessionToolBinding("ship", attachments_property="files")
    story = one(tools=(ship,), session_stop=binding)
    story.says("", ToolCall(name="ship", arguments=f'{{"files": {named}}}'))
    files = tuple(e.FileRef(path=path, digest="0", size=1) for path in ("a.txt", "b.txt"))
    story.thread = fold_all(story.thread, [e.AgentFile(files=files)])
    decision = story.finishes("shipped")
    (end,) = [x for x in decision.events if isinstance(x, e.SessionEnd)]
    assert [ref.path for ref in end.files] == found


# ── S-06, S-09 ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-06")
def test_max_steps_counts_the_model_calls_of_one_turn() -> None:
    story = one(max_steps=3)
    for number in range(3):
        assert story.thread.turn == 1
        story.says(f"step {number}", "look")
        story.finishes("seen")
    assert (story.last.type, story.last.reason, story.last.content) == ("session:turn", "limit", "")
    story.says("I am Bob")
    assert (story.thread.side, story.thread.turn_steps) == ("side_a", 0)
    for number in range(3):
        assert story.thread.turn == 3
        story.says(f"step {number}", "look")
        story.finishes("seen")
    assert story.thread.turn == 4, "counted anew in each turn"


@pytest.mark.spec("S-06")
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_max_session_turns_counts_the_turns_of_both_sides(limit: int) -> None:
    story = one(max_turns=limit)
    for number in range(1, limit):
        story.says(f"turn {number}")
        assert (story.last.type, story.last.turn) == ("session:turn", number + 1)
    decision = story.says(f"turn {limit}")
    end, last = decision.events[-2:]
    assert isinstance(end, e.SessionEnd) and isinstance(last, e.AgentComplete)
    for each in (end, last):
        assert (each.success, each.outcome, each.reason) == (False, "limit", "limit")
        assert each.output == f"turn {limit}"


@pytest.mark.spec("S-06")
def test_both_limits_are_250_where_none_is_given() -> None:
    assert (DEFAULT_MAX_STEPS, DEFAULT_MAX_TURNS) == (250, 250)
    talk = one()
    for _ in range(249):
        talk.says("and you?")
    assert talk.thread.in_session and talk.thread.turn == 250
    talk.says("enough")
    assert talk.thread.outcome is not None and talk.thread.outcome.outcome == "limit"
    work = one()
    for _ in range(250):
        assert work.thread.turn == 1
        work.says("", "look")
        work.finishes("seen")
    assert (work.thread.turn, work.last.reason) == (2, "limit")


@pytest.mark.spec("S-06", "M-03")
def test_a_model_that_fails_ends_the_session_of_both_sides() -> None:
    story = one()
    story.says("your turn")
    failure = Failure(kind="auth", error="no key", retryable=False)
    decision = story.then(ModelFailed(failure, story.thread.turn))
    assert [x.type for x in decision.events] == ["session:end", "agent:complete"]
    assert (story.last.success, story.last.outcome, story.last.reason) == (
        False, "failed", "no key",
    )  # fmt: skip


@pytest.mark.spec("S-03", "S-06")
def test_no_mail_keeps_a_session_of_two_sides_open_nor_does_the_ladder_look_at_it() -> None:
    waiting: frozenset[Kind] = frozenset({"message", "result"})
    for story, text in ((one(max_turns=1), "the last turn"), (one(max_steps=1), "a step")):
        reply = ModelReply(text=text, calls=())
        with_mail = interpret(story.thread, ModelReplied(reply, 1), story.definitions, waiting)
        assert with_mail == story.says(text)
    ended = one(max_turns=1).says("the last turn")
    assert [x.type for x in ended.events][-2:] == ["session:end", "agent:complete"]


@pytest.mark.spec("S-09")
@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_turn_that_ends_with_nothing_said_hands_over_no_message(blank: str) -> None:
    story = one(max_steps=1)
    story.says(blank, "look")
    story.finishes("seen")
    assert (story.last.reason, story.last.content) == ("limit", "(no message)")
    assert story.thread.view[1:] == (UserMessage(content="(no message)"),)
    # Also where the tool that stops has nothing to say, or the model refuses without a word.
    quiet = one(stop_tool="hand_in")
    quiet.says(blank, "hand_in")
    quiet.finishes(blank)
    assert (quiet.last.reason, quiet.last.content) == ("stop_tool", "(no message)")
    refused = one()
    refused.says(blank, stop="refusal")
    assert (refused.last.reason, refused.last.content) == ("response", "(no message)")


@pytest.mark.spec("S-09")
def test_what_was_said_earlier_in_the_turn_is_something() -> None:
    story = one(stop_tool="hand_in", max_steps=2)
    story.says("I shall look", "look")
    story.finishes("seen")
    story.says("", "hand_in")
    story.finishes("")
    assert (story.last.type, story.last.content) == ("session:turn", "")
    story.says("ah")
    story.says("", "look")
    story.finishes("seen")
    assert story.thread.turn == 3
    story.says("", "look")
    story.finishes("seen")
    assert story.last.content == "(no message)", "but not what was said in an earlier turn"


@pytest.mark.spec("S-09")
def test_a_user_is_sent_nothing_but_is_told_the_reason() -> None:
    limit = one(two_sided=False, max_steps=1)
    limit.says("", "look")
    limit.finishes("seen")
    assert (limit.last.outcome, limit.last.reason, limit.last.output) == ("limit", "limit", None)
    quiet = one(two_sided=False, stop_tool="hand_in")
    quiet.says("", "hand_in")
    quiet.finishes("")
    assert (quiet.last.outcome, quiet.last.reason, quiet.last.output) == (
        "completed", "stop_tool", None,
    )  # fmt: skip
    refused = one(two_sided=False)
    refused.says("", stop="refusal")
    assert refused.last.output is None and refused.last.reason
    for story in (limit, quiet, refused):
        assert not any(isinstance(x, e.AgentText) for x in story.events)
    spoken = one(two_sided=False)
    spoken.says("there you are")
    assert (spoken.last.reason, spoken.last.output) == ("", "there you are")


@pytest.mark.spec("S-04")
def test_what_the_other_side_would_get_is_said_to_the_user() -> None:
    story = one(two_sided=False, stop_tool="hand_in", stop_tool_response_property="note")
    story.says("", "hand_in")
    decision = story.finishes('{"note": "for you"}')
    said = [x.text for x in decision.events if isinstance(x, e.AgentText)]
    assert (said, story.last.output) == (["for you"], "for you")


# ── S-07, S-08 ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-07")
@pytest.mark.parametrize("parallel", FLAGS, ids=["in order", "parallel"])
def test_the_first_terminal_call_wins_and_the_later_ones_are_skipped(parallel: bool) -> None:
    story = one(session_stop="approve", session_fail="give_up", parallel=parallel)
    story.says("", "look", "give_up", "approve", "look", "ghost")
    story.finishes("seen")
    story.finishes("no paint")
    outputs = [x.output for x in answers(story.events)]
    assert outputs[:2] == ["seen", "no paint"]
    assert outputs[2:] == ["skipped: the session ended with give_up"] * 3
    assert [x.is_error for x in answers(story.events)] == [False, False, True, True, True]
    starts = [x.name for x in story.events if isinstance(x, e.AgentToolStart)]
    assert starts == ["look", "give_up"], "what is skipped never starts"
    assert (story.last.outcome, story.last.reason) == ("failed", "no paint")


NAMES = ("approve", "give_up", "hand_in", "report", "look", "ghost", "other")


@pytest.mark.spec("S-07", "S-08")
@given(st.lists(st.sampled_from(NAMES), min_size=2, max_size=5))
def test_a_batch_with_a_bound_tool_runs_in_order_even_where_parallel_calls_are_enabled(
    names: list[str],
) -> None:
    story = Story(BATCHES, "batch")
    story.says("", *names)
    step = next(x for x in story.events if isinstance(x, e.AgentStep))
    bound = {"approve", "give_up", "hand_in", "report", "other"} & set(names)
    assert step.parallel is (not bound)
    started = [x.index for x in story.events if isinstance(x, e.AgentToolStart)]
    real = [index for index, name in enumerate(names) if name != "ghost"]
    assert started == (real[:1] if bound else real)


BATCHES = Definitions(
    [
        agent(
            "batch",
            two_sided=False,
            parallel=True,
            tools=(*TOOLS, "other"),
            session_stop="approve",
            session_fail="give_up",
            session_status="report",
            stop_tool="hand_in",
        ),
        agent("other", two_sided=False),
    ]
)


# ── handoff (D-10, S-07) ─────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-07", "D-10")
@pytest.mark.parametrize("parallel", FLAGS, ids=["in order", "parallel"])
def test_a_handoff_is_terminal_its_result_names_the_new_agent(parallel: bool) -> None:
    known = Definitions(
        [
            agent("desk", two_sided=False, tools=(look, "billing", "sales"), parallel=parallel),
            agent("billing", two_sided=False, tools=(hand_in,)),
            agent("sales", two_sided=False),
        ]
    )
    story = Story(known, "desk")
    story.says("", "look", "billing", "sales", "look")
    decision = story.finishes("seen")
    assert [x.type for x in decision.events] == [
        "agent:tool:complete", "agent:tool:start", "agent:handoff", "agent:tool:complete",
        "agent:tool:complete", "agent:tool:complete",
    ]  # fmt: skip
    outputs = [(x.output, x.is_error) for x in answers(story.events)]
    skipped = "skipped: the conversation was handed over to billing"
    assert outputs == [
        ("seen", False), (HANDED_OVER.format("billing"), False), (skipped, True), (skipped, True),
    ]  # fmt: skip
    assert (decision.agent, story.thread.agent) == ("billing", "billing")
    assert (story.thread.in_session, story.thread.turn) == (True, 1), "the same turn goes on"
    refused = story.says("", "look")
    (answer,) = answers(list(refused.events))
    assert answer.output == "there is no tool named 'look'; available tools: hand_in"


@pytest.mark.spec("D-10", "S-07")
def test_a_handoff_to_itself_is_refused_and_the_batch_goes_on() -> None:
    known = Definitions([agent("desk", two_sided=False, tools=(look, "desk"))])
    story = Story(known, "desk")
    story.says("", "desk", "look")
    story.finishes("seen")
    first, second = answers(story.events)
    assert (first.is_error, first.output) == (True, "you are desk already; go on yourself")
    assert (second.is_error, second.output) == (False, "seen")
    assert not any(isinstance(x, e.AgentHandoff) for x in story.events)


@pytest.mark.spec("D-10", "S-07")
def test_a_handoff_behind_a_lost_call_follows_the_calls_honest_result() -> None:
    known = Definitions(
        [
            agent("desk", two_sided=False, tools=(look, "billing")),
            agent("billing", two_sided=False, tools=()),
        ]
    )
    story = Story(known, "desk")
    story.says("", "look", "billing")
    decision = story.then(Restored())
    assert [x.type for x in decision.events] == [
        "agent:restore", "agent:tool:complete", "agent:tool:start", "agent:handoff",
        "agent:tool:complete",
    ]  # fmt: skip
    assert decision.agent == "billing"


@pytest.mark.spec("S-03", "S-07", "D-10")
def test_a_handoff_ends_no_session_but_a_session_stop_before_it_does() -> None:
    known = Definitions(
        [
            agent("desk", two_sided=False, tools=(approve, "billing"), session_stop="approve"),
            agent("billing", two_sided=False, tools=()),
        ]
    )
    story = Story(known, "desk")
    story.says("", "approve", "billing")
    story.finishes("fine")
    assert (story.last.outcome, story.last.output) == ("completed", "fine")
    assert story.thread.agent == "desk"
    again = Story(known, "desk")
    again.says("", "billing", "approve")
    assert answers(again.events)[-1].output.startswith("skipped: ")
    assert again.thread.in_session and again.thread.agent == "billing"
