"""Runs that begin with a history: durable, well-formed, given once (U-13)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.agents import model_agent
from support.profiles import examples

from hubbub import (
    AgentDefinition,
    FunctionModel,
    Message,
    Runtime,
    agent,
    external_tool,
    tool,
)
from hubbub.agents.model import AssistantMessage, ModelRequest, UserMessage
from hubbub.hub import GivenTool, HistoryCall, HistoryMessage
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.events.history import MAX_HISTORY, MAX_HISTORY_BYTES, history_problem, read_history
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.values import encode_value
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.http.messages import conversation
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

HISTORY = [
    HistoryMessage(content="Where is my parcel?"),
    HistoryMessage(
        role="assistant", content="Let me look.",
        calls=(
            HistoryCall(name="track", arguments='{"id": 7}', output="in Rome"),
            HistoryCall(name="track", arguments="{}", output="no id", is_error=True),
        ),
    ),
    HistoryMessage(role="assistant", content="In Rome."),
]  # fmt: skip

CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is my parcel?"},
    {"role": "assistant", "content": "Let me look.", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "track", "arguments": '{"id": 7}'}},
        {"id": "b", "function": {"name": "track"}},
    ]},
    {"role": "tool", "tool_call_id": "b", "content": "no id"},
    {"role": "tool", "tool_call_id": "a", "content": "in Rome"},
    {"role": "assistant", "content": "In Rome."},
]  # fmt: skip


class Desk:
    """An agent that tells what its model was shown."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.agent = model_agent(FunctionModel(self.answer), name="desk")

    def answer(self, request: ModelRequest) -> str:
        self.requests.append(request)
        return f"answer {len(self.requests)}"

    @property
    def seen(self) -> list[tuple[str, ...]]:
        return [
            (x.role, x.content)
            if isinstance(x, UserMessage)
            else ("assistant", x.text, *(f"{y.name}{y.arguments}={y.output}" for y in x.calls))
            for x in self.requests[-1].messages
        ]


SEEN = [
    ("user", "Where is my parcel?"),
    ("assistant", "Let me look.", 'track{"id": 7}=in Rome', "track{}=no id"),
    ("assistant", "In Rome."),
]


@pytest.fixture(params=["memory", "late", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Callable[..., Runtime]:
    """Opens a runtime on the same store, again and again."""
    memory = MemoryJournal()

    def open_again(*agents: AgentDefinition) -> Runtime:
        if request.param == "sqlite":
            return Runtime(agents, store=sqlite_store(tmp_path / "s", ports=ports), ports=ports)
        store = memory if request.param == "memory" else LateJournal(memory)
        return Runtime(agents, store=store, ports=ports)

    return open_again


@pytest.mark.spec("U-13")
@pytest.mark.parametrize("history", [HISTORY, CHAT], ids=["structs", "chat"])
async def test_the_model_sees_the_history_before_the_input(
    opened: Callable[..., Runtime], history: list[Any]
) -> None:
    desk = Desk()
    async with opened(desk.agent) as rt:
        run = await rt.start("desk", "And now?", history=history)
        assert (await run.result()).output == "answer 1"
        assert desk.seen == [*SEEN, ("user", "And now?")]
        assert (await run.ask("Thanks.")).session == 2
        assert desk.seen[3:] == [
            ("user", "And now?"), ("assistant", "answer 1"), ("user", "Thanks."),
        ]  # fmt: skip
        calls = [x.calls for x in desk.requests[-1].messages if isinstance(x, AssistantMessage)]
        ids = [call.id for each in calls for call in each]
        assert len(set(ids)) == 2
        (opening,) = [x for x in await run.read() if isinstance(x, e.SessionOpen)]
        assert opening.history[0] == HISTORY[0] and len(opening.history) == 3


@pytest.mark.spec("U-13")
async def test_a_history_without_input_waits_for_the_first_message_over_a_restart(
    opened: Callable[..., Runtime],
) -> None:
    desk = Desk()
    async with opened(desk.agent) as rt:
        run = await rt.start("desk", history=HISTORY, session_key="k")
        await run.result()
        assert desk.requests == []
    async with opened(desk.agent) as rt:
        found = await rt.find("k")
        assert found is not None
        await found.ask("Hello?")
        assert desk.seen == [*SEEN, ("user", "Hello?")]
        (listed,) = await rt.conversations()
        assert listed.title == "Where is my parcel?"


@pytest.mark.spec("U-13")
async def test_a_history_is_given_once_by_run_id_and_by_key(opened: Callable[..., Runtime]) -> None:
    desk = Desk()
    async with opened(desk.agent) as rt:
        for _ in range(2):
            run = await rt.start("desk", "hi", history=HISTORY, run_id="mine")
        assert run.duplicate
        await run.result()
        opening = Message("hi", key="m1")
        for _ in range(2):
            run = await rt.start("desk", opening, history=HISTORY, session_key="k")
            await run.result()
        assert run.duplicate and len(desk.requests) == 2
        other = await rt.start("desk", "more", history=HISTORY[:1], session_key="k")
        assert other.run_id == run.run_id  # It has its own history.
        await other.result()
        assert desk.seen == [
            *SEEN, ("user", "hi"), ("assistant", "answer 2"), ("user", "more"),
        ]  # fmt: skip


@pytest.mark.spec("U-13", "U-08")
async def test_a_history_that_is_not_used_is_said_in_the_receipt_and_once_in_the_log(
    opened: Callable[..., Runtime], caplog: pytest.LogCaptureFixture
) -> None:
    def warned() -> list[str]:
        return [x.getMessage() for x in caplog.records if "history.unused" in x.getMessage()]

    desk, key = Desk(), {"session_key": "k"}
    pick = external_tool("pick")
    async with opened(desk.agent) as rt:
        for _ in range(2):  # The same opening again is no other one.
            opening = Message("hi", key="m1")
            first = await rt.hub.open("desk", opening, history=HISTORY, **key)
        assert first.duplicate and not first.created
        assert (await rt.start("desk", "alone", history=HISTORY)).created
        assert not (await rt.hub.open("desk", "no history", **key)).created
        assert not (await rt.hub.open("nobody", "hi", history=HISTORY)).created
        assert warned() == []
        other = await rt.hub.open("desk", "more", history=HISTORY[:1], **key)
        assert other.accepted and not other.created and other.run_id == first.run_id
        assert len(warned()) == 1 and first.run_id in warned()[0]
        assert not (await rt.start("desk", "and more", tools=[pick], **key)).created
        assert len(warned()) == 1


@pytest.mark.spec("U-13")
async def test_a_reset_forgets_the_history(opened: Callable[..., Runtime]) -> None:
    desk = Desk()
    async with opened(desk.agent) as rt:
        run = await rt.start("desk", history=HISTORY)
        rt.hub.emit(e.SessionReset(run_id=run.run_id, message="Begin."))
        await run.result()
        assert desk.seen == [("user", "Begin.")]


@pytest.mark.spec("U-13")
async def test_who_has_no_conversation_takes_no_history(opened: Callable[..., Runtime]) -> None:
    @agent("code")
    async def code(input: Any, ctx: Any) -> Any:
        return input

    desk = Desk()
    side = desk.agent.side_a
    pair = AgentDefinition(name="pair", side_a=side, side_b=side, type="dual_ai")
    async with opened(desk.agent, pair, code) as rt:
        for name in ("code", "pair"):
            with pytest.raises(CallerError, match="no conversation that a history or tools"):
                await rt.start(name, "hi", history=HISTORY)
            receipt = await rt.hub.open(name, "hi", history=HISTORY)
            assert receipt.rejected
        assert len(await rt.hub.journal.runs(live=False)) == 0


PICK = external_tool(
    "pick", {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    description="Lets the user pick.",
)  # fmt: skip


class Caller(Desk):
    """An agent that calls ``pick`` with what it is told, and tells what came of it."""

    def answer(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            wrong = "wrong" in last.content
            return reply("", call("pick", **({} if wrong else {"what": last.content})))
        return f"picked {last.calls[0].output}"

    @property
    def offered(self) -> list[str]:
        return [each.name for each in self.requests[-1].tools]


async def prompted(rt: Runtime) -> str:
    """The id of the one prompt that is open."""
    for _ in range(100):
        waits = [wait for each in await rt.conversations() for wait in each.waits_for]
        if waits:
            assert [(wait.kind, wait.tool) for wait in waits] == [("external", "pick")]
            return waits[0].prompt_id
        await anyio.sleep(0.1)
    raise AssertionError("nothing is asked")


@pytest.mark.spec("U-13")
async def test_a_run_has_the_tools_that_it_was_opened_with_and_no_other_run_has(
    opened: Callable[..., Runtime],
) -> None:
    desk = Caller()
    async with opened(desk.agent) as rt:
        run = await rt.start("desk", "one", tools=[PICK], history=HISTORY, session_key="k")
        prompt_id = await prompted(rt)
        assert desk.offered == ["pick"] and desk.requests[-1].tools[0] == PICK.spec
    async with opened(desk.agent) as rt:  # It still waits, with the same prompt.
        assert await prompted(rt) == prompt_id
        await rt.hub.reply(prompt_id, "the red one")
        found = await rt.handle(run.run_id)
        assert (await found.result()).output == "picked the red one"
        assert desk.offered == ["pick"]
        found.send("two")
        await rt.hub.reply(await prompted(rt), "the blue one")
        assert (await found.result()).output == "picked the blue one"
        await (await rt.start("desk", "three")).result()
        assert desk.offered == [] and "no tool named 'pick'" in desk.seen[-1][-1]


@pytest.mark.spec("U-13")
async def test_a_call_that_does_not_fit_a_given_tool_is_shown_to_nobody(
    opened: Callable[..., Runtime],
) -> None:
    desk = Caller()
    async with opened(desk.agent) as rt:
        run = await rt.start("desk", "wrong", tools=[PICK])
        outcome = await run.result()
        assert outcome.output.startswith("picked") and "what" in outcome.output
        assert not [x for x in await run.read() if isinstance(x, e.SessionPrompt)]


@tool
def look() -> str:
    """Look."""
    return "seen"


WRONG_TOOLS: list[tuple[Any, str]] = [
    ("pick", "expected a list of tools, not str"),
    (PICK, "expected a list of tools"),
    (["pick"], r"tools\[0\]: expected external_tool\(…\) or a GivenTool, not str"),
    ([look], "not another tool"),
    ([PICK, PICK], "two tools are named 'pick'"),
    ([GivenTool(name="a b")], "a name is 1 to 64 letters"),
    ([GivenTool(name="\ud800")], r"tools\[0\]"),
    ([GivenTool(name=7)], r"tools\[0\]"),  # type: ignore[arg-type]
    ([GivenTool(name="t", description="\ud800")], r"tools\[0\]"),
    ([GivenTool(name="t", timeout=-1.0)], "seconds above 0"),
    ([GivenTool(name="t", description="x" * 1_000_001)], "more than 1,000,000 bytes"),
    ([GivenTool(name=f"t{number}") for number in range(129)], "more than 128"),
]


async def test_no_pattern_of_a_given_schema_is_ever_tried(
    opened: Callable[..., Runtime],
) -> None:
    """A client may write one that takes longer than the world lasts."""
    schema = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "pattern": "^(a+)+$"},
            "more": {"type": "array", "items": {"type": "string", "pattern": "^(a+)+$"}},
        },
        "required": ["pattern"],
    }
    evil = "a" * 60 + "!"
    seen: list[ModelRequest] = []

    def model(request: ModelRequest) -> Any:
        seen.append(request)
        return call("match", pattern=evil, more=[evil]) if len(seen) == 1 else "Done."

    async with opened(model_agent(FunctionModel(model))) as rt:
        async with rt.hub.subscribe("session:prompt") as prompts:
            given = GivenTool(name="match", schema_json=encode_value("schema", schema))
            run = await rt.start("assistant", "go", tools=[given])
            prompt = await anext(prompts)
        await rt.hub.reply(prompt.prompt_id, "matched")
        assert (await run.result()).output == "Done."
    (spec,) = seen[0].tools
    assert spec.schema["properties"]["pattern"]["pattern"] == "^(a+)+$"


@pytest.mark.spec("U-13", "G-01")
@pytest.mark.parametrize("number", range(len(WRONG_TOOLS)))
async def test_what_is_no_external_tool_is_refused(number: int, ports: Ports) -> None:
    tools, why = WRONG_TOOLS[number]
    async with Runtime([Desk().agent], store="memory", ports=ports) as rt:
        with pytest.raises(BadValue, match=why):
            await rt.start("desk", "hi", tools=tools)
        assert await rt.hub.journal.runs() == []


@pytest.mark.spec("U-13")
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (GivenTool(name="look"), "has a tool named 'look' already"),
        (GivenTool(name="t", schema_json=encode_value("schema", {"type": "array"})), "schema"),
        (GivenTool(name="t", schema_json=encode_value("schema", 7)), "schema"),
    ],
)
async def test_a_tool_that_the_agent_cannot_have_rejects_the_opening(
    given: GivenTool, why: str, ports: Ports
) -> None:
    desk = model_agent(FunctionModel(lambda request: "hi"), look, name="desk")
    async with Runtime([desk], store="memory", ports=ports) as rt:
        with pytest.raises(CallerError, match=why):
            await rt.start("desk", "hi", tools=[given])
        assert (await rt.hub.open("desk", "hi", tools=[given])).rejected
        assert await rt.hub.journal.runs() == []


WRONG: list[tuple[Any, str]] = [
    ("hello", "expected a list of messages, not str"),
    (7, "expected a list of messages, not int"),
    ({"role": "user"}, "expected a list of messages"),
    ([7], r"history\[0\]: expected a HistoryMessage or a mapping, not int"),
    ([{"role": "system", "content": "x"}], r"history\[0\]: the role is"),
    ([{"role": ["user"], "content": "x"}], "the role is"),
    ([{"content": "x"}], "the role is"),
    ([{"role": "user", "content": None}], r"history\[0\].content: expected a text, not NoneType"),
    ([{"role": "user", "content": [{"type": "text"}]}], "expected a text, not list"),
    ([{"role": "user", "content": "x", "name": "y"}], "user messages have no 'name'"),
    ([{"role": "user", "content": "x", "tool_calls": []}], "user messages have no 'tool_calls'"),
    ([{"role": "user", "content": " "}], "it says nothing"),
    ([{"role": "assistant", "content": ""}], "it says nothing"),
    ([{"role": "user", "content": "\ud800"}], "surrogate"),
    ([HistoryMessage(content="\ud800")], r"history\[0\]"),
    ([HistoryMessage(content=7)], r"history\[0\]"),  # type: ignore[arg-type]
    ([HistoryMessage(calls="x")], r"history\[0\]"),  # type: ignore[arg-type]
    ([HistoryMessage(role="tool", content="x")], "the role is 'user' or 'assistant'"),
    ([HistoryMessage(content="x", calls=(HistoryCall(name="t"),))], "only an assistant makes"),
    ([HistoryMessage(role="assistant", calls=(HistoryCall(name="a b"),))], "the name of a tool"),
    ([HistoryMessage(role="assistant", calls=(HistoryCall(name="t", arguments="["),))], "JSON"),
    (
        [HistoryMessage(role="assistant", calls=(HistoryCall(name="t", arguments="[" * 10**5),))],
        "JSON",
    ),
    ([*CHAT[:2]], "before it, the calls 'a', 'b' need results"),
    ([*CHAT[:3]], "the calls 'a' need results"),
    ([*CHAT[:2], CHAT[0]], r"history\[2\]: before it, the calls"),
    ([*CHAT[:2], HISTORY[0]], r"history\[2\]: before it, the calls"),
    ([CHAT[2]], "it is the result of no call of the message before it"),
    ([*CHAT[:3], CHAT[2]], "it is the result of no call"),
    ([{"role": "assistant", "tool_calls": "x"}], "expected a list of calls"),
    ([{"role": "assistant", "tool_calls": ["x"]}], "expected id, and function"),
    ([{"role": "assistant", "tool_calls": [{"id": 1, "function": {}}]}], "id: expected a text"),
    (
        [{"role": "assistant", "tool_calls": [CHAT[1]["tool_calls"][0]] * 2}],
        "an id of its own",
    ),
    ([HISTORY[0]] * (MAX_HISTORY + 1), "more than 10,000 messages"),
    ([HistoryMessage(content="ü" * (MAX_HISTORY_BYTES // 2 + 1))], "more than 8,000,000 bytes"),
]


@pytest.mark.spec("G-01")
@pytest.mark.parametrize("number", range(len(WRONG)))
async def test_a_history_that_is_not_well_formed_is_refused(number: int, ports: Ports) -> None:
    history, why = WRONG[number]
    desk = Desk()
    async with Runtime([desk.agent], store="memory", ports=ports) as rt:
        with pytest.raises(BadValue, match=why):
            rt.hub.open("desk", "hi", history=history)
        with pytest.raises(BadValue, match=why):
            await rt.start("desk", "hi", history=history)
        assert await rt.hub.journal.runs() == []


@pytest.mark.spec("U-13")
async def test_what_is_emitted_by_hand_is_checked_as_well(ports: Ports) -> None:
    desk = Desk()
    wrong = e.SessionOpen(open_agent="desk", history=(HistoryMessage(role="system", content="x"),))
    async with Runtime([desk.agent], store="memory", ports=ports) as rt:
        with pytest.raises(BadValue, match="the role is"):
            rt.hub.emit(wrong)


words = st.text(max_size=8)
calls = st.builds(
    HistoryCall, name=st.sampled_from(["track", "a-b_c"]), output=words, is_error=st.booleans(),
    arguments=st.dictionaries(words, st.integers(), max_size=2).map(json.dumps),
)  # fmt: skip
messages = st.one_of(
    st.builds(HistoryMessage, content=words),
    st.builds(
        HistoryMessage, role=st.just("assistant"), content=words,
        calls=st.lists(calls, max_size=3).map(tuple),
    ),
)  # fmt: skip


@pytest.mark.spec("U-13")
@given(history=st.lists(messages, max_size=6))
@settings(
    max_examples=examples(100), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
async def test_whatever_is_accepted_is_shown_whole_and_as_providers_take_it(
    history: list[HistoryMessage], ports: Ports
) -> None:
    desk = Desk()
    async with Runtime([desk.agent], store=MemoryJournal(), ports=ports) as rt:
        if history_problem(history):
            with pytest.raises(BadValue):
                await rt.start("desk", "hi", history=history)
            return
        run = await rt.start("desk", "hi", history=history)
        await run.result()
    expected: list[tuple[str, ...]] = [
        (x.role, x.content, *(f"{y.name}{y.arguments}={y.output}" for y in x.calls))
        for x in history
    ]
    assert desk.seen == [*expected, ("user", "hi")]
    turns = conversation(desk.requests[-1].messages)
    ids = [call.id for each in turns if isinstance(each, AssistantMessage) for call in each.calls]
    assert len(ids) == len(set(ids))
    assert read_history(history) == tuple(history)


@pytest.mark.spec("I-13", "U-13")
async def test_the_agents_folder_shows_the_history_and_brings_it_back(
    tmp_path: Path, ports: Ports
) -> None:
    desk, folder = Desk(), tmp_path / "s"
    async with Runtime([desk.agent], store=sqlite_store(folder, ports=ports), ports=ports) as rt:
        run = await rt.start("desk", "And now?", history=CHAT, session_key="web_1_2")
        await run.result()
    (lines,) = folder.glob("agents/*/history.jsonl")
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    kinds = ["start", "user_message", "assistant_message", "tool_result", "tool_result"]
    assert [x["type"] for x in told][:5] == kinds
    assert [x["type"] for x in told][5:8] == [
        "assistant_message", "user_message", "assistant_message",
    ]  # fmt: skip
    calls = {x["id"] for x in told[2]["toolCalls"]}
    assert {told[3]["toolCallId"], told[4]["toolCallId"]} == calls and len(calls) == 2
    assert [x["text"] for x in told if x.get("given")] == [
        "Where is my parcel?", "Let me look.", "In Rome.",
    ]  # fmt: skip
    for path in (folder / "hubbub.db", folder / "hubbub.db-wal", folder / "hubbub.db-shm"):
        path.unlink(missing_ok=True)
    async with Runtime([desk.agent], store=sqlite_store(folder, ports=ports), ports=ports) as rt:
        found = await rt.find("web_1_2")
        assert found is not None
        await found.ask("Still there?")
        assert desk.seen == [
            *SEEN, ("user", "And now?"), ("assistant", "answer 1"), ("user", "Still there?"),
        ]  # fmt: skip
    assert [str(x) for x in StoreCheck(f"sqlite:{folder}", thorough=True).problems()] == []
