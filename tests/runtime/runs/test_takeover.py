"""Takeover: an interactive child gets the conversation, and always gives it back (IA)."""

import re
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from support.frames import KEY, Talk, complete, frame, open_runtime, skill, use

from hubbub import AgentDefinition, Hook, Message, PromptDefinition, SideConfig, Skill, tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelRequest, UserMessage
from hubbub.agents.state.family import OPENING
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import Taken
from hubbub.hub import events as e
from hubbub.hub.errors import DefinitionError
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


class Recorder(ScriptedModel):
    """A scripted model that keeps what it was asked."""

    def __init__(self, *script: Any) -> None:
        self.requests: list[ModelRequest] = []
        super().__init__(script)

    async def call(self, request: ModelRequest, on_delta: Any = None) -> Any:
        self.requests.append(request)
        return await super().call(request, on_delta)


def offered(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


def answers(request: ModelRequest) -> list[AnsweredCall]:
    """Every call in the conversation, with its result, in order."""
    told = [m for m in request.messages if isinstance(m, AssistantMessage)]
    return [each for message in told for each in message.calls]


def heard(request: ModelRequest) -> list[str]:
    return [m.content for m in request.messages if isinstance(m, UserMessage)]


@tool(idempotent=True)
async def look(what: str) -> str:
    """Look something up."""
    return f"looked at {what}"


@tool
async def fail() -> str:
    """Fail."""
    raise OSError("the disk is full")


# ── push, text, messages, pop ────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-01")
async def test_a_frame_talks_with_the_user_until_it_completes(
    journal: Journal, ports: Ports
) -> None:
    main = Recorder(use("research", "Python async APIs"), "Main: here they are.", "Main: again.")
    research = Recorder("Which version?", reply("", call("look", what="3.13")), complete("3 APIs"))
    agents = (
        frame(main, agents=("research",)), frame(research, look, name="research"),
    )  # fmt: skip
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("research Python async APIs") == [("research", "Which version?")]
        assert talk.stack == ["main", "research"]
        assert await talk.say("3.13") == [("main", "Main: here they are.")]
        assert talk.stack == []
        assert await talk.say("and now?") == [("main", "Main: again.")]
    assert heard(research.requests[-1]) == ["Python async APIs", "3.13"]
    assert heard(main.requests[-1]) == ["research Python async APIs", "and now?"]
    (answered,) = answers(main.requests[-1])
    assert (answered.name, answered.output, answered.is_error) == ("use_agent", "3 APIs", False)


@pytest.mark.spec("I-01", "I-02")
async def test_nested_frames_cascade_their_results(journal: Journal, ports: Ports) -> None:
    main = Recorder(skill("writer"), "Main: done.")
    writer = Recorder(use("research"), "Writer: is this right?", complete("written"))
    research = Recorder("Research: which?", complete("found"))
    agents = (
        frame(main, skills=(Skill(
            name="writer", description="Writes.", instructions="You write.", tools=("use_agent",),
            model=writer,
        ),)),
        frame(research, name="research"),
    )  # fmt: skip
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("write") == [("research", "Research: which?")]
        assert talk.stack == ["main", "skill:writer", "research"]
        assert await talk.say("that one") == [("skill:writer", "Writer: is this right?")]
        assert talk.stack == ["main", "skill:writer"]
        assert await talk.say("yes") == [("main", "Main: done.")]
        assert talk.stack == []
    assert answers(writer.requests[-1])[0].output == "found"
    assert answers(main.requests[-1])[0].output == "written"
    assert talk.taken("research") == ["that one"]
    assert talk.taken("skill:writer") == ["yes"]


@pytest.mark.spec("I-02")
async def test_a_frame_that_completes_in_its_first_turn_is_pushed_and_popped_at_once(
    journal: Journal, ports: Ports
) -> None:
    agents = (
        frame(ScriptedModel([use("quick"), "Main: ok."]), agents=("quick",)),
        frame(ScriptedModel([complete("fast")]), name="quick"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main: ok.")]
    (push,), (pop,) = talk.of(e.SessionPush), talk.of(e.SessionPop)
    assert (push.depth, pop.depth, pop.is_error) == (2, 1, False)
    assert push.frame_run_id == pop.frame_run_id
    assert talk.results("use_agent") == [("fast", False)]


@pytest.mark.spec("I-02")
async def test_main_resumes_with_more_calls_and_another_frame(
    journal: Journal, ports: Ports
) -> None:
    script = [use("quick", "one"), call("look", what="x"), use("quick", "two"), "Main: ok."]
    agents = (
        frame(ScriptedModel(script), look, agents=("quick",)),
        frame(FunctionModel(lambda r: complete(f"did {heard(r)[0]}")), name="quick"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main: ok.")]
    assert talk.results("use_agent") == [("did one", False), ("did two", False)]
    assert talk.results("look") == [("looked at x", False)]


# ── errors give the conversation back ────────────────────────────────────────────────────────


@pytest.mark.spec("I-02", "I-05")
async def test_a_frame_over_its_limit_is_popped_with_an_error_for_its_caller(
    journal: Journal, ports: Ports
) -> None:
    calls = FunctionModel(lambda _: call("look", what="more"))
    main = Recorder(use("busy"), "Main: it could not.")
    agents = (frame(main, agents=("busy",)), frame(calls, look, name="busy", max_steps=3))
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main: it could not.")]
        assert talk.stack == []
    ((text, is_error),) = talk.results("use_agent")
    assert is_error and "busy" in text and "model calls" in text
    assert len(talk.of(e.AgentStep, "busy")) == 3
    (end,) = talk.of(e.AgentComplete, "busy")
    assert (end.success, end.outcome) == (False, "limit")


@pytest.mark.spec("I-05")
@pytest.mark.parametrize(("max_steps", "calls"), [(None, 25), (7, 7), (80, 25)])
async def test_a_frame_may_make_twenty_five_calls_or_the_smaller_limit_of_its_side(
    max_steps: int | None, calls: int, journal: Journal, ports: Ports
) -> None:
    agents = (
        frame(ScriptedModel([use("busy"), "ok"]), agents=("busy",)),
        frame(FunctionModel(lambda _: call("look", what="x")), look, name="busy",
              max_steps=max_steps),
    )  # fmt: skip
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
    assert len(talk.of(e.AgentStep, "busy")) == calls


@pytest.mark.spec("I-05")
async def test_a_users_message_starts_the_count_anew_and_a_childs_return_does_not(
    journal: Journal, ports: Ports
) -> None:
    # Two steps and a text, then again: never over three in one activation.
    talks = ScriptedModel([call("look", what="1"), call("look", what="2"), "text"] * 3)
    inner = FunctionModel(lambda _: complete("x"))
    nests = ScriptedModel([use("inner"), use("inner"), use("inner"), "never said"])
    agents = (
        frame(ScriptedModel([use("talks"), use("nests"), "over"]), agents=("talks", "nests")),
        frame(talks, look, name="talks", max_steps=3),
        frame(nests, name="nests", max_steps=3, agents=("inner",)),
        frame(inner, name="inner"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        for line in ("a", "b", "c"):
            assert await talk.say(line) == [("talks", "text")]
        assert await talk.say("/back") == [("main", "over")]
    assert len(talk.of(e.AgentStep, "nests")) == 3
    assert talk.results("use_agent")[-1][1] and "nests" in talk.results("use_agent")[-1][0]


@pytest.mark.spec("I-02")
async def test_a_model_error_pops_the_frame_with_an_error_for_its_caller(
    journal: Journal, ports: Ports
) -> None:
    main = Recorder(use("broken"), "Main: sorry.")
    agents = (
        frame(main, agents=("broken",)),
        frame(ScriptedModel([Fault("auth", message="bad key")]), name="broken"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main: sorry.")]
    ((text, is_error),) = talk.results("use_agent")
    assert is_error and text.startswith("broken did not complete")
    assert answers(main.requests[-1])[0].is_error


@pytest.mark.spec("I-02", "I-16")
async def test_an_error_of_the_main_agent_tells_the_user_and_the_conversation_goes_on(
    journal: Journal, ports: Ports
) -> None:
    def answer(request: ModelRequest) -> str:
        if len(heard(request)) == 1:
            raise RuntimeError("bad key")
        return "Main: back."

    async with open_runtime(frame(FunctionModel(answer)), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == []
        assert talk.of(e.SessionEnd)[-1].outcome == "failed"
        assert await talk.say("again") == [("main", "Main: back.")]


@pytest.mark.spec("I-02")
async def test_a_tools_error_is_a_result_and_the_frame_decides_what_is_next(
    journal: Journal, ports: Ports
) -> None:
    worker = Recorder(call("fail"), "It failed; shall I go on?")
    agents = (
        frame(ScriptedModel([use("worker")]), agents=("worker",)),
        frame(worker, fail, name="worker"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("worker", "It failed; shall I go on?")]
        assert talk.stack == ["main", "worker"]
    assert answers(worker.requests[-1])[0].is_error


# ── three tool_uses ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-04")
@pytest.mark.parametrize("parallel", [False, True])
async def test_of_three_calls_the_second_and_third_begin_frames_one_after_the_other(
    parallel: bool, journal: Journal, ports: Ports
) -> None:
    main = Recorder(
        reply("Looking.", call("look", what="x"), use("first"), use("second")), "Main: all done."
    )
    agents = (
        frame(main, look, agents=("first", "second"), parallel_tool_calls=parallel),
        frame(ScriptedModel(["First?", complete("1st")]), name="first"),
        frame(ScriptedModel(["Second?", complete("2nd")]), name="second"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Looking."), ("first", "First?")]
        assert talk.stack == ["main", "first"]
        assert await talk.say("a") == [("second", "Second?")]
        assert talk.stack == ["main", "second"]
        assert await talk.say("b") == [("main", "Main: all done.")]
    results = [(each.name, each.output) for each in answers(main.requests[-1])]
    assert results == [("look", "looked at x"), ("use_agent", "1st"), ("use_agent", "2nd")]
    assert len(talk.of(e.AgentToolStart, "main")) == 3


# ── complete ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-06", "I-14")
async def test_who_is_offered_what(journal: Journal, ports: Ports) -> None:
    seen: dict[str, list[str]] = {}

    def model(name: str, *script: Any) -> FunctionModel:
        left = list(script)

        def answer(request: ModelRequest) -> Any:
            seen.setdefault(name, offered(request))
            return left.pop(0)

        return FunctionModel(answer)

    skills = (
        Skill(name="all", description="d", instructions="i", model=model("all", complete())),
        Skill(name="none", description="d", instructions="i", model=model("none", complete()),
              tools=()),
        Skill(name="one", description="d", instructions="i", model=model("one", complete()),
              tools=("look",)),
    )  # fmt: skip
    main = model("main", skill("all"), skill("none"), skill("one"), use("plain"), "ok")
    agents = (
        frame(main, skills=skills, agents=("plain",)),
        frame(model("plain", complete()), name="plain"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports, tools=(look,)) as runtime:
        assert await Talk(runtime).say("go") == [("main", "ok")]
    assert seen == {
        "main": ["use_agent", "use_skill"],
        "all": ["look", "use_agent", "complete"],
        "none": ["complete"],
        "one": ["look", "complete"],
        "plain": ["complete"],
    }


@pytest.mark.spec("I-06")
async def test_complete_has_the_seeds_words_and_leaves_the_transcript_well_formed(
    journal: Journal, ports: Ports
) -> None:
    child = Recorder(reply("Here.", call("look", what="x"), complete("r"), call("look", what="y")))
    agents = (
        frame(ScriptedModel([use("child"), "ok"]), agents=("child",)),
        frame(child, look, name="child"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("child", "Here."), ("main", "ok")]
        (run_id,) = talk.frames("child")
        events = await runtime.hub.read(run_id)
    (spec,) = [each for each in child.requests[0].tools if each.name == "complete"]
    assert spec.description == "Signal that your task is complete and return a result."
    assert spec.schema["required"] == ["result"]
    results = [(x.name, x.is_error) for x in events if isinstance(x, e.AgentToolComplete)]
    assert results == [("look", False), ("complete", False), ("look", True)]
    assert isinstance(events[-1], e.AgentComplete) and events[-1].output == "r"


@pytest.mark.spec("I-06")
async def test_complete_without_a_result_is_told_what_is_missing(
    journal: Journal, ports: Ports
) -> None:
    child = Recorder(call("complete"), complete("better"))
    agents = (
        frame(ScriptedModel([use("child"), "ok"]), agents=("child",)),
        frame(child, name="child"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
    assert "result" in answers(child.requests[-1])[0].output
    assert talk.results("use_agent") == [("better", False)]


@pytest.mark.spec("I-06")
async def test_main_has_no_complete(journal: Journal, ports: Ports) -> None:
    main = Recorder(complete("x"), "ok")
    async with open_runtime(frame(main), journal=journal, ports=ports) as runtime:
        assert await Talk(runtime).say("go") == [("main", "ok")]
    assert answers(main.requests[-1])[0].is_error


# ── what is refused ──────────────────────────────────────────────────────────────────────────


KEY_VARIABLE = VariableDefinition(name="API_KEY", required=True)

REFUSED = {
    "oneself": (use("main"), "you are main already"),
    "unknown agent": (use("nobody"), "no agent 'nobody'"),
    "an agent not for this prompt": (use("other"), "no agent 'other'"),
    "unknown skill": (skill("nothing"), "no skill 'nothing'"),
    "bad arguments": (call("use_agent", agent="plain"), "name"),
    "no message": (use("plain", " "), "say what it is to do"),
    "missing variables": (skill("keyed"), "API_KEY is not set"),
}


@pytest.mark.spec("I-07", "I-14")
@pytest.mark.parametrize("case", REFUSED)
async def test_nothing_is_begun_by_a_call_that_is_refused(
    case: str, journal: Journal, ports: Ports
) -> None:
    wrong, words = REFUSED[case]
    main = Recorder(wrong, "ok")
    skills = (Skill(name="keyed", description="d", instructions="i", variables=(KEY_VARIABLE,)),)
    agents = (
        frame(main, agents=("main", "plain"), skills=skills),
        frame(ScriptedModel([]), name="plain"),
        frame(ScriptedModel([]), name="other"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "ok")]
    (answered,) = answers(main.requests[-1])
    assert answered.is_error and words in answered.output
    assert not talk.of(e.SessionPush) and not talk.of(e.AgentChild)


@pytest.mark.spec("I-07")
async def test_a_skill_cannot_use_skills(journal: Journal, ports: Ports) -> None:
    model = Recorder(skill("one"), complete("x"))
    one = Skill(name="one", description="d", instructions="i", model=model)
    main = frame(ScriptedModel([skill("one"), "ok"]), skills=(one,))
    async with open_runtime(main, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
    assert "a skill cannot use skills" in answers(model.requests[-1])[0].output
    assert len(talk.of(e.SessionPush)) == 1


@pytest.mark.spec("I-14")
def test_whom_a_prompt_lets_take_over_is_checked_when_it_is_defined() -> None:
    from hubbub.agents.resolution.definitions import Definitions

    hidden = AgentDefinition(
        name="hidden",
        side_a=SideConfig(prompt=PromptDefinition(name="h", prompt="h", model="m")),
    )
    main = frame(ScriptedModel([]), agents=("hidden", "nobody"), skills=("nothing",))
    with pytest.raises(DefinitionError) as raised:
        Definitions([main, hidden])
    text = str(raised.value)
    assert "'hidden' is not exposed" in text
    assert "no agent named 'nobody'" in text
    assert "no skill named 'nothing'" in text


@pytest.mark.spec("I-14")
async def test_an_ai_human_agent_among_tools_is_a_handoff_and_among_agents_a_frame(
    journal: Journal, ports: Ports
) -> None:
    main = ScriptedModel([use("other"), call("other")])
    other = FunctionModel(lambda r: complete("framed") if "complete" in offered(r) else "handed")
    agents = (
        frame(main, "other", agents=("other",)), frame(other, name="other"),
    )  # fmt: skip
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("other", "handed")]
    assert talk.results("use_agent") == [("framed", False)]
    assert [x.to for x in talk.of(e.AgentHandoff)] == ["other"]


# ── words ────────────────────────────────────────────────────────────────────────────────────


def deep(*, research: Any = None) -> tuple[AgentDefinition, ...]:
    """main, writer and research, each of which speaks and then waits."""
    main = FunctionModel(
        lambda r: f"Main: {heard(r)[-1]}" if answers(r) and answers(r)[-1].output else use("writer")
    )
    writer = FunctionModel(lambda r: "Writer." if answers(r) else use("research"))
    return (
        frame(main, agents=("writer",)),
        frame(writer, name="writer", agents=("research",)),
        frame(research or FunctionModel(lambda r: f"Research: {heard(r)[-1]}"), name="research"),
    )


@pytest.mark.spec("I-08", "I-16")
@pytest.mark.parametrize("word", ["cancel", "stop", "/stop", " STOP\n", "Cancel"])
async def test_a_word_unwinds_all_frames_and_main_is_usable(
    word: str, journal: Journal, ports: Ports
) -> None:
    async with open_runtime(*deep(), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("research", "Research: Go.")]
        assert talk.stack == ["main", "writer", "research"]
        assert await talk.say(word) == []
        assert talk.stack == []
        for run_id in (*talk.frames("writer"), *talk.frames("research")):
            await runtime.finished(run_id)
        ends = {x.agent: x.outcome for x in talk.of(e.AgentComplete)}
        assert ends == {"writer": "interrupted", "research": "interrupted"}
        assert [is_error for _, is_error in talk.results("use_agent")] == [True, True]
        assert await talk.say("hello") == [("main", "Main: hello")]
    assert sorted(x.frame_agent for x in talk.of(e.SessionPop)) == ["research", "writer"]
    assert word not in talk.taken("research") + talk.taken("writer")


@pytest.mark.spec("I-08")
async def test_back_pops_one_frame_and_its_caller_goes_on(journal: Journal, ports: Ports) -> None:
    async with open_runtime(*deep(), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        assert await talk.say(" /BACK ") == [("writer", "Writer.")]
        assert talk.stack == ["main", "writer"]
        ((text, is_error),) = talk.results("use_agent")
        assert is_error and "research" in text and "sent back" in text


@pytest.mark.spec("I-08")
async def test_back_said_twice_pops_two(journal: Journal, ports: Ports) -> None:
    async with open_runtime(*deep(), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        first = runtime.hub.send("/back", session_key=KEY)
        await runtime.hub.send("/back", session_key=KEY)
        assert (await first).accepted
        await talk.rest()
        assert talk.stack == []
    assert talk.said()[-1] == ("main", "Main: go")


@pytest.mark.spec("I-08")
async def test_with_no_frame_the_words_are_ordinary_messages(
    journal: Journal, ports: Ports
) -> None:
    main = FunctionModel(lambda r: f"Main: {heard(r)[-1]}")
    async with open_runtime(frame(main), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        for word in ("cancel", "stop", "/stop", "/back"):
            assert await talk.say(word) == [("main", f"Main: {word}")]


@pytest.mark.spec("I-08")
@pytest.mark.parametrize("word", ["/stop", "/back"])
async def test_a_word_does_not_wait_for_a_frame_that_is_at_work(
    word: str, journal: Journal, ports: Ports
) -> None:
    slow = FunctionModel(lambda _: "too late", latency=1000.0)
    async with open_runtime(*deep(research=slow), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        receipt = await runtime.hub.open("main", "go", session_key=KEY)
        talk.root = receipt.run_id
        await anyio.sleep(10)
        assert talk.stack == ["main", "writer", "research"]
        with anyio.fail_after(1):
            await talk.say(word)
        assert talk.stack == ([] if word == "/stop" else ["main", "writer"])
    assert ("research", "too late") not in talk.said()


@pytest.mark.spec("I-08")
@pytest.mark.parametrize("words", [("stop",), ("one", "stop"), ("stop", "one"), ("one", "/back")])
async def test_a_word_said_before_a_frame_is_pushed_ends_the_frame(
    words: tuple[str, ...], journal: Journal, ports: Ports
) -> None:
    """The frame took it along with the other messages, and nothing came of it."""

    def answer(request: ModelRequest) -> Any:
        return f"Main: {heard(request)[1:]}" if answers(request) else use("research")

    research = FunctionModel(lambda r: f"Research: {heard(r)}", latency=10.0)
    agents = (
        frame(FunctionModel(answer, latency=1.0), agents=("research",)),
        frame(research, name="research"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        talk.root = (await runtime.hub.open("main", "go", session_key=KEY)).run_id
        for said in words:
            assert (await runtime.hub.send(said, session_key=KEY)).accepted
        await talk.rest()
        assert talk.stack == []
    said = [word for word in words if word == "one"]
    assert talk.said() == [("main", f"Main: {said}")] if said else talk.said() == []
    assert [x.outcome for x in talk.of(e.AgentComplete, "research")] == ["interrupted"]


@pytest.mark.spec("I-08")
async def test_an_interrupted_frame_stays_and_an_interrupted_root_gets_the_conversation_back(
    journal: Journal, ports: Ports
) -> None:
    def answer(request: ModelRequest) -> Any:
        return "Research: back." if "go on" in heard(request) else call("wait")

    @tool
    async def wait() -> str:
        """Wait."""
        await anyio.sleep(1000)
        return "waited"

    research = frame(FunctionModel(answer), wait, name="research")
    agents = (*deep()[:2], research)
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        receipt = await runtime.hub.open("main", "go", session_key=KEY)
        talk.root = receipt.run_id
        await anyio.sleep(10)
        (top,) = talk.frames("research")
        await runtime.hub.interrupt(top, "Ctrl-C")
        await talk.rest()
        assert talk.stack == ["main", "writer", "research"]
        assert await talk.say("go on") == [("research", "Research: back.")]
        await runtime.hub.interrupt(talk.root, "Ctrl-C")
        await talk.rest()
        assert talk.stack == []
        assert await talk.say("hello") == [("main", "Main: hello")]


# ── the conversation's messages ──────────────────────────────────────────────────────────────


@pytest.mark.spec("I-10", "I-13")
async def test_what_two_users_say_at_once_is_taken_in_order_by_the_frame_on_top(
    journal: Journal, ports: Ports
) -> None:
    research = FunctionModel(lambda r: f"heard {', '.join(heard(r))}", latency=1.0)
    agents = (
        frame(ScriptedModel([use("research", "start")]), agents=("research",)),
        frame(research, name="research"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        one = runtime.hub.send(Message("one", key="1"), session_key=KEY)
        two = runtime.hub.send(Message("two", key="2"), session_key=KEY)
        assert (await one).accepted and (await two).accepted
        await talk.rest()
        assert talk.taken("research") == ["one", "two"]
        assert talk.said()[-1] == ("research", "heard start, one, two")
        # What comes while the model is asked waits for its answer, and is answered then.
        await runtime.hub.send("three", session_key=KEY)
        await anyio.sleep(0.5)
        await runtime.hub.send("four", session_key=KEY)
        await talk.rest()
    assert [text for _, text in talk.said()][-2:] == [
        "heard start, one, two, three", "heard start, one, two, three, four",
    ]  # fmt: skip
    assert talk.taken("main") == []


@pytest.mark.spec("I-13")
async def test_a_message_is_for_whoever_is_on_top_when_it_is_taken(
    journal: Journal, ports: Ports
) -> None:
    def answer(request: ModelRequest) -> Any:
        return complete("r")

    agents = (
        frame(ScriptedModel([use("slow"), "Main: one.", "Main: two."]), agents=("slow",)),
        frame(FunctionModel(answer, latency=10.0), name="slow"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        receipt = await runtime.hub.open("main", "go", session_key=KEY)
        talk.root = receipt.run_id
        await anyio.sleep(5)
        assert talk.stack == ["main", "slow"]
        await runtime.hub.send("for main after all", session_key=KEY)
        await talk.rest()
    assert talk.taken("slow") == []
    assert talk.taken("main") == ["for main after all"]


@pytest.mark.spec("I-13")
async def test_what_a_frame_was_sent_and_has_not_read_moves_to_the_frame_below(
    journal: Journal, ports: Ports
) -> None:
    main = FunctionModel(lambda r: f"Main: {heard(r)}" if answers(r) else use("slow"))
    agents = (
        frame(main, agents=("slow",)),
        frame(FunctionModel(lambda r: complete("r"), latency=10.0), name="slow"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        receipt = await runtime.hub.open("main", "go", session_key=KEY)
        talk.root = receipt.run_id
        await anyio.sleep(5)
        (slow,) = talk.frames("slow")
        for text in ("one", "two"):
            assert (await runtime.hub.send_to_run(slow, Message(text, key=text))).accepted
        await talk.rest()
        assert talk.taken("main") == ["one", "two"]
        again = await runtime.hub.send_to_run(slow, Message("one", key="one"))
        assert not again.accepted
    assert talk.said()[-1] == ("main", "Main: ['go', 'one', 'two']")
    assert not talk.of(e.HubDeadLetter)[:-1]  # But for the last one, which came too late.


@pytest.mark.spec("I-13")
async def test_what_an_agent_tells_the_main_agent_is_not_the_frames(
    journal: Journal, ports: Ports
) -> None:
    agents = (
        frame(ScriptedModel([use("research"), "Main: ok."]), agents=("research",)),
        frame(ScriptedModel(["Which?", complete("r")]), name="research"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        silent = Message("news", silent=True)
        assert (await runtime.hub.send_to_run(talk.root, silent)).accepted
        assert (await talk.say("that"))[-1][0] == "main"
    assert talk.taken("research") == ["that"]
    assert talk.taken("main") == ["news"]


@pytest.mark.spec("I-10")
async def test_text_beside_calls_reaches_the_user_and_an_empty_reply_stalls_nothing(
    journal: Journal, ports: Ports
) -> None:
    empty = FunctionModel(lambda _: "")
    agents = (
        frame(ScriptedModel([reply("One moment.", use("mute")), "Main: it said nothing."]),
              agents=("mute",)),
        frame(empty, name="mute"),
    )  # fmt: skip
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [
            ("main", "One moment."), ("main", "Main: it said nothing."),
        ]  # fmt: skip
    ((text, is_error),) = talk.results("use_agent")
    assert is_error and "mute" in text and "nothing" in text
    assert len(talk.of(e.AgentRetry, "mute")) == 1


@pytest.mark.spec("I-10")
async def test_each_frame_streams(journal: Journal, ports: Ports) -> None:
    agents = (
        frame(ScriptedModel([use("research"), "Main speaks slowly."]), agents=("research",)),
        frame(ScriptedModel(["Research speaks slowly.", complete("r")]), name="research"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        await talk.say("on")
    for agent, text in (("research", "Research speaks slowly."), ("main", "Main speaks slowly.")):
        deltas = [x.text for x in talk.of(e.AgentTextDelta, agent)]
        assert len(deltas) > 1 and "".join(deltas) == text


# ── nobody listens ───────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("I-12")
async def test_a_headless_caller_drives_nested_frames_to_their_end(
    journal: Journal, ports: Ports
) -> None:
    agents = (
        frame(ScriptedModel([use("writer"), "Main: done."]), agents=("writer",)),
        frame(ScriptedModel([use("research"), "I wrote it."]), name="writer", agents=("research",)),
        frame(ScriptedModel(["I found it."]), name="research"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        outcome = await runtime.run("main", "go")
        assert (outcome.success, outcome.output) == (True, "Main: done.")
    assert talk.results("use_agent") == [("I found it.", False), ("I wrote it.", False)]


@pytest.mark.spec("I-12")
async def test_a_passthrough_skill_is_its_tool_and_pushes_nothing(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def run_code(message: str) -> str:
        """Run code."""
        return f"ran {message}"

    skills = (Skill(name="code", description="Runs code.", passthrough=run_code),)
    main = Recorder(skill("code", "1 + 1"), "Main: 2.")
    async with open_runtime(frame(main, skills=skills), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("main", "Main: 2.")]
    assert talk.results("use_skill") == [("ran 1 + 1", False)]
    assert not talk.of(e.SessionPush)
    assert offered(main.requests[0]) == ["use_skill"]


@pytest.mark.spec("I-12")
async def test_a_conversation_that_is_closed_comes_to_an_end(
    journal: Journal, ports: Ports
) -> None:
    async with open_runtime(*deep(), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        assert (await runtime.hub.close_run(talk.root)).accepted
        outcome = await runtime.finished(talk.root)
        assert (outcome.success, outcome.output) == (True, "Main: go")
    assert [is_error for _, is_error in talk.results("use_agent")] == [True, True]
    assert all("closed" in text for text, _ in talk.results("use_agent"))


# ── interrupt ────────────────────────────────────────────────────────────────────────────────


def planner(*script: Any) -> AgentDefinition:
    return frame(ScriptedModel(script), name="main", supports_checkpointing=True)


ASK = call("interrupt", prompt="Which plan?", options=["a", "b"])


async def paused(talk: Talk) -> e.SessionPrompt:
    receipt = await talk.hub.open("main", "go", session_key=KEY)
    talk.root = receipt.run_id
    await anyio.sleep(1)
    (prompt,) = talk.of(e.SessionPrompt)
    return prompt


@pytest.mark.spec("I-15")
async def test_a_pause_is_answered_by_the_reply_to_its_prompt(
    journal: Journal, ports: Ports
) -> None:
    async with open_runtime(planner(ASK, "Plan b it is."), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        prompt = await paused(talk)
        assert (prompt.question, prompt.options) == ("Which plan?", ("a", "b"))
        assert (await runtime.hub.reply(prompt.prompt_id, "b")).accepted
        await talk.rest()
        assert talk.said() == [("main", "Plan b it is.")]
        assert not (await runtime.hub.reply(prompt.prompt_id, "a")).accepted
    assert talk.results("interrupt") == [("b", False)]


@pytest.mark.spec("I-15")
async def test_a_pause_is_answered_by_what_the_user_says_next(
    journal: Journal, ports: Ports
) -> None:
    main = Recorder(ASK, "Plan a.", "And?")
    agent = frame(main, supports_checkpointing=True)
    async with open_runtime(agent, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        prompt = await paused(talk)
        assert await talk.say("a") == [("main", "Plan a.")]
        assert [x.prompt_id for x in talk.of(e.SessionPromptEnd)] == [prompt.prompt_id]
        assert not (await runtime.hub.reply(prompt.prompt_id, "late")).accepted
        assert await talk.say("next") == [("main", "And?")]
    assert talk.results("interrupt") == [("a", False)]
    assert heard(main.requests[-1]) == ["go", "next"]


@pytest.mark.spec("I-15")
@pytest.mark.parametrize("word", ["cancel", "/back"])
async def test_a_word_is_the_error_of_a_pause(word: str, journal: Journal, ports: Ports) -> None:
    async with open_runtime(planner(ASK, "As you like."), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await paused(talk)
        assert await talk.say(word) == [("main", "As you like.")]
    assert talk.results("interrupt") == [("cancelled by the user", True)]


@pytest.mark.spec("I-15")
async def test_a_pause_expires_after_an_hour(journal: Journal, ports: Ports) -> None:
    async with open_runtime(planner(ASK, "On my own."), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        prompt = await paused(talk)
        assert prompt.timeout == 3600
        await anyio.sleep(3597)
        assert not talk.results("interrupt")
        await anyio.sleep(5)
        await talk.rest()
    ((text, is_error),) = talk.results("interrupt")
    assert is_error and "3600" in text
    assert talk.said()[-1] == ("main", "On my own.")


@pytest.mark.spec("I-15")
@pytest.mark.parametrize("how", ["reply", "message", "expiry"])
async def test_a_pause_survives_a_restart(how: str, journal: Journal, ports: Ports) -> None:
    async with open_runtime(planner(ASK), journal=journal, ports=ports) as runtime:
        prompt = await paused(Talk(runtime))
    async with open_runtime(planner(ASK, "Plan a."), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        talk.root = prompt.run_id
        if how == "reply":
            assert (await runtime.hub.reply(prompt.prompt_id, "a")).accepted
        elif how == "message":
            await runtime.hub.send("a", session_key=KEY)
        else:
            await anyio.sleep(3700)
        await talk.rest()
    assert talk.said() == [("main", "Plan a.")]
    ((text, is_error),) = talk.results("interrupt")
    assert is_error if how == "expiry" else (text, is_error) == ("a", False)


@pytest.mark.spec("I-15", "H-10")
@pytest.mark.parametrize("separator", ["?", "."], ids=["before", "now"])
async def test_a_prompt_is_answered_after_a_restart_by_the_id_that_is_on_record(
    separator: str, journal: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions before wrote a ``?``, which is none for URLs and shells."""

    def prompt_of(*, prompt_id: str, **fields: Any) -> e.SessionPrompt:
        return e.SessionPrompt(prompt_id=prompt_id.replace(".call", f"{separator}call"), **fields)

    with monkeypatch.context() as patch:
        patch.setattr("hubbub.agents.turn.calls.SessionPrompt", prompt_of)
        async with open_runtime(planner(ASK), journal=journal, ports=ports) as runtime:
            talk = Talk(runtime)
            prompt = await paused(talk)
            assert separator in prompt.prompt_id
            assert quote(prompt.prompt_id, safe="") == prompt.prompt_id or separator == "?"
    async with open_runtime(planner(ASK, "Plan b."), journal=journal, ports=ports) as runtime:
        assert (await runtime.hub.reply(prompt.prompt_id, "b")).accepted
        outcome = await runtime.result(talk.root)
        assert outcome.output == "Plan b."


@pytest.mark.spec("I-15", "I-08")
async def test_a_frame_that_pauses_is_on_top_and_unwinds_like_any(
    journal: Journal, ports: Ports
) -> None:
    main = FunctionModel(lambda r: "Main: ok." if answers(r) else use("planner"))
    ask = frame(FunctionModel(lambda _: ASK), name="planner", supports_checkpointing=True)
    agents = (frame(main, agents=("planner",)), ask)
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await paused(talk)
        assert talk.stack == ["main", "planner"]
        assert await talk.say("/stop") == []
        assert talk.stack == []
        assert await talk.say("hi") == [("main", "Main: ok.")]
        await runtime.finished(talk.frames("planner")[0])
    assert [x.reason for x in talk.of(e.SessionPromptEnd)]


# ── push and pop for everybody else ──────────────────────────────────────────────────────────


@pytest.mark.spec("I-16")
async def test_pushes_and_pops_are_events_and_log_lines(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hubbub")
    async with open_runtime(*deep(), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        await talk.say("/back")
        await runtime.finished(talk.frames("research")[0])
    assert [(x.frame_agent, x.depth) for x in talk.of(e.SessionPush)] == [
        ("writer", 2), ("research", 3),
    ]  # fmt: skip
    assert [(x.frame_agent, x.depth, x.is_error) for x in talk.of(e.SessionPop)] == [
        ("research", 2, True)
    ]
    told = re.findall(r"(frame\.\w+) .*?agent='(\w+)' depth=(\d)", caplog.text)
    assert told == [
        ("frame.pushed", "writer", "2"), ("frame.pushed", "research", "3"),
        ("frame.popped", "research", "2"),
    ]  # fmt: skip


@pytest.mark.spec("I-16")
async def test_the_last_pop_of_an_unwinding_says_how_many_frames_are_left(
    journal: Journal, ports: Ports
) -> None:
    async with open_runtime(*deep(), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        await talk.say("/stop")
        for run_id in (*talk.frames("writer"), *talk.frames("research")):
            await runtime.finished(run_id)
    assert [(x.frame_agent, x.depth) for x in talk.of(e.SessionPop)] == [
        ("writer", 1), ("research", 1),
    ]  # fmt: skip


@pytest.mark.spec("I-15")
async def test_with_nobody_there_a_pause_is_an_error_at_once(
    journal: Journal, ports: Ports
) -> None:
    async with open_runtime(planner(ASK, "Alone."), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert (await runtime.run("main", "go")).output == "Alone."
    ((text, is_error),) = talk.results("interrupt")
    assert is_error and "nobody is there" in text


@pytest.mark.spec("I-16")
async def test_an_error_below_leaves_no_frame_above(journal: Journal, ports: Ports) -> None:
    async with open_runtime(*deep(), journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        (writer,), (research,) = talk.frames("writer"), talk.frames("research")
        receipt = await runtime.terminate(writer)
        assert set(receipt.run_ids) == {writer, research}
        assert await talk.rest() == [("main", "Main: go")]
        await runtime.finished(research)
        assert talk.stack == []
    assert [is_error for _, is_error in talk.results("use_agent")] == [True, True]


@pytest.mark.spec("I-16")
async def test_a_result_that_nobody_waits_for_any_more_is_the_users(
    journal: Journal, ports: Ports
) -> None:
    agents = (
        frame(FunctionModel(lambda r: "Main." if answers(r) else use("slow")), agents=("slow",)),
        frame(FunctionModel(lambda _: complete("just in time"), latency=5.0), name="slow"),
    )
    async with open_runtime(*agents, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        receipt = await runtime.hub.open("main", "go", session_key=KEY)
        talk.root = receipt.run_id
        await anyio.sleep(1)
        (slow,) = talk.frames("slow")
        loaded = await journal.load(talk.root)
        assert loaded is not None
        thread = fold_all(EMPTY, loaded.events)
        definitions = runtime.definitions
        # The interruption is taken first, and the result that was under way meanwhile then.
        abort = e.SessionAbort(run_id=talk.root, seq=2, reason="Ctrl-C")
        stopped = interpret(thread, Taken((abort,)), definitions)
        result = e.SessionResult(
            run_id=talk.root, seq=3, child_run_id=slow, child_agent="slow",
            content="just in time", answers=(OPENING,), final=True,
        )  # fmt: skip
        came = interpret(fold_all(thread, stopped.events), Taken((result,)), definitions)
    assert [x.is_error for x in stopped.events if isinstance(x, e.AgentToolComplete)] == [True]
    assert [x.text for x in came.events if isinstance(x, e.AgentText)] == ["just in time"]
    assert not [x for x in came.events if isinstance(x, e.AgentToolComplete)]


@pytest.mark.spec("I-16")
async def test_after_session_runs_when_main_has_answered(journal: Journal, ports: Ports) -> None:
    ended: list[str] = []

    def remember(state: Any, value: Any) -> None:
        ended.append(state.agent)

    hook = Hook(id="memory", point="after_session", fn=remember)
    agents = (
        frame(ScriptedModel([use("research"), "Main: ok."]), agents=("research",),
              hooks=("memory",)),
        frame(ScriptedModel(["Which?", complete("r")]), name="research"),
    )  # fmt: skip
    async with open_runtime(*agents, journal=journal, ports=ports, hooks=(hook,)) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        assert ended == []
        await talk.say("that")
        assert ended == ["main"]
        assert talk.stack == []


# ── memory, and what is not there ────────────────────────────────────────────────────────────


@pytest.mark.spec("I-01", "C-17")
@pytest.mark.parametrize("max_live", [1, 2])
async def test_frames_need_no_more_room_in_memory_than_there_is(
    max_live: int, journal: Journal, ports: Ports
) -> None:
    async with open_runtime(*deep(), journal=journal, ports=ports, max_live=max_live) as runtime:
        talk = Talk(runtime)
        assert await talk.say("go") == [("research", "Research: Go.")]
        other = await runtime.start("research", "in between", session_key="telegram_3_4")
        assert (await other.result()).output == "Research: in between"
        for line in ("one", "two"):
            assert await talk.say(line) == [("research", f"Research: {line}")]
        assert await talk.say("/back") == [("writer", "Writer.")]
        assert await talk.say("/stop") == []
        assert await talk.say("hello") == [("main", "Main: hello")]


@pytest.mark.spec("I-01", "P-14")
@pytest.mark.parametrize("line", ["are you there?", "/back"])
@pytest.mark.parametrize("max_live", [1, 20_000])
async def test_whoever_speaks_to_a_frame_that_is_gone_gets_its_caller(
    line: str, max_live: int, journal: Journal, ports: Ports
) -> None:
    main, writer, research = deep()
    async with open_runtime(main, writer, research, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        await talk.say("go")
        (gone,) = talk.frames("research")
    poorer = frame(FunctionModel(lambda r: f"Writer: {heard(r)[-1]}"), name="writer")
    options: Any = {"journal": journal, "ports": ports, "max_live": max_live}
    async with open_runtime(main, poorer, **options) as runtime:
        talk = Talk(runtime)
        said = await talk.say(line)
        assert said[-1] == ("writer", f"Writer: {'Go.' if line == '/back' else line}")
        ((text, is_error),) = talk.results("use_agent")
        assert is_error and "no agent 'research' any more" in text
        assert line not in talk.taken("main")
        assert await talk.say("/back") == [("main", "Main: go")]
        assert (await runtime.finished(gone)).outcome == "interrupted"


@pytest.mark.spec("I-01", "P-14")
async def test_a_frame_that_is_gone_is_unwound_with_the_others(
    journal: Journal, ports: Ports
) -> None:
    main, writer, research = deep()
    async with open_runtime(main, writer, research, journal=journal, ports=ports) as runtime:
        await Talk(runtime).say("go")
    alone = frame(FunctionModel(lambda r: f"Main: {heard(r)[-1]}"))
    async with open_runtime(alone, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("/stop") == []
        assert await talk.say("hello") == [("main", "Main: hello")]
    async with open_runtime(main, writer, research, journal=journal, ports=ports) as runtime:
        talk = Talk(runtime)
        assert await talk.say("again") == [("main", "Main: again")]
        live = await runtime.hub.journal.runs()
        assert [run.agent for run in live] == ["main"]
