"""Agents with ``output=``: values in the place of words, checked, corrected, and durable."""

import json
from dataclasses import dataclass, field
from typing import Any, TypedDict

import anyio
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import assert_one_life
from support.cached_prefix import BODIES, breaks
from support.crash_journal import CrashJournal
from support.profiles import examples

from hubbub import (
    Agent,
    AgentDefinition,
    Compaction,
    FunctionModel,
    ModelReply,
    ModelRequest,
    ModelSettings,
    RunContext,
    Runtime,
    ScriptedModel,
    agent,
    tool,
)
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, DefinitionError, RunFailed
from hubbub.hub.events import Event
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, call, reply
from hubbub.runtime.simulation import Crash, World, simulate
from hubbub.runtime.simulation.story.setup import Setup

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-03")]


@dataclass
class Weather:
    """What the weather is like."""

    city: str
    degrees: float
    warnings: list[str] = field(default_factory=list)


class WeatherStruct(msgspec.Struct, kw_only=True):
    city: str
    degrees: float
    warnings: list[str] = []


class WeatherDict(TypedDict, total=False):
    city: str
    degrees: float
    warnings: list[str]


class WeatherModel(pydantic.BaseModel):
    city: str
    degrees: float
    warnings: list[str] = []


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
}
ROME: dict[str, Any] = {"city": "Rome", "degrees": 21.5}
FIT = json.dumps(ROME)
SHORT = '{"city": "Rome"}'


@tool(idempotent=True)
def look(city: str) -> str:
    """Look at a thermometer."""
    return f"21.5 degrees in {city}"


class Unbound:
    """A model that cannot be bound to a schema, and keeps what it was asked."""

    name = "unbound"

    def __init__(self, *script: Any) -> None:
        self._script = ScriptedModel(script)
        self.requests: list[ModelRequest] = []

    async def call(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
        self.requests.append(request)
        return await self._script.call(request, on_delta)


def typed(*script: Any, output: Any = Weather, **options: Any) -> AgentDefinition[Any]:
    return Agent("typed", "Say it.", model=ScriptedModel(script), output=output, **options)


async def told(rt: Runtime, run_id: str) -> list[tuple[str, str]]:
    """What was said and what the model was told, in order."""
    found = []
    for each in await rt.hub.read(run_id):
        if isinstance(each, e.AgentText):
            found.append(("said", each.text))
        elif isinstance(each, e.AgentRetry):
            found.append((each.kind, each.error))
    return found


# ── what callers get ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("output", "value"),
    [
        (Weather, Weather("Rome", 21.5)),
        (WeatherStruct, WeatherStruct(city="Rome", degrees=21.5)),
        (WeatherDict, ROME),
        (WeatherModel, WeatherModel(city="Rome", degrees=21.5)),
        (SCHEMA, ROME),
    ],
    ids=["dataclass", "struct", "typeddict", "pydantic", "schema"],
)
async def test_the_output_is_of_the_type_wherever_it_is_asked_for(output: Any, value: Any) -> None:
    model = FunctionModel(lambda _: FIT)
    asker = Agent("typed", "Say it.", model=model, output=output)

    @agent("code")
    async def code(input: Any, ctx: RunContext) -> Any:
        found = (await ctx.spawn(asker, "Rome?").finished()).value()
        assert found == value and type(found) is type(value)
        return "done"

    async with Runtime([asker, code], store="memory") as rt:
        outcome = await rt.run(asker, "Rome?")
        run = await rt.start(asker, "Rome?")
        found = [
            outcome,
            await run.result(),
            await run.ask("And now?"),
            await rt.result(run.run_id),
        ]
        for each in found:
            assert each.output == value and type(each.output) is type(value)
            assert each.value() == value and each.output is not each.output
        assert await rt.executable(asker).execute("Rome?") == value
        assert (await rt.run("code", "x")).value() == "done"
        assert msgspec.json.decode(outcome.output_json)["degrees"] == 21.5


async def test_the_record_is_json_with_the_defaults_in_it() -> None:
    fenced = '```json\n{"degrees": 21.5, "city": "Rome"}\n```'
    async with Runtime([typed(fenced)], store="memory") as rt:
        outcome = await rt.run("typed", "Rome?")
        assert bytes(outcome.output_json) == b'{"city":"Rome","degrees":21.5,"warnings":[]}'
        (end,) = [x for x in await rt.hub.read(outcome.run_id) if isinstance(x, e.SessionEnd)]
        assert end.output == {**ROME, "warnings": []}


async def test_a_byte_order_mark_before_an_answer_costs_no_repair() -> None:
    for text in (
        '{"degrees": 21.5, "city": "Rome"}',
        '```json\n{"degrees": 21.5, "city": "Rome"}\n```',
    ):
        async with Runtime([typed(f"\ufeff{text}")], store="memory") as rt:
            outcome = await rt.run("typed", "Rome?")
            assert bytes(outcome.output_json) == b'{"city":"Rome","degrees":21.5,"warnings":[]}'


async def test_plain_defaults_are_on_record_at_any_depth() -> None:
    @dataclass
    class Inner:
        word: str = "x"

    @dataclass(frozen=True)
    class Outer:
        inner: Inner
        more: dict[str, list[Inner]]
        number: int = 7

    asker = typed('{"inner": {}, "more": {"a": [{}]}}', output=Outer)
    async with Runtime([asker], store="memory") as rt:
        outcome = await rt.run(asker, "x")
        assert outcome.value() == Outer(Inner(), {"a": [Inner()]})
        recorded = msgspec.json.decode(outcome.output_json)
        assert recorded == {"inner": {"word": "x"}, "more": {"a": [{"word": "x"}]}, "number": 7}


async def test_what_a_type_makes_of_its_fields_it_makes_once() -> None:
    class Cents(msgspec.Struct):
        price: float
        names: set[str] = msgspec.field(default_factory=lambda: {"b", "a"})

        def __post_init__(self) -> None:
            if self.price > 100:
                raise ValueError("not in cents, please")
            self.price *= 100

    asker = typed('{"price": 2.0}', output=Cents)
    async with Runtime([asker], store="memory") as rt:
        outcome = await rt.run(asker, "x")
        assert outcome.value().price == outcome.value().price == 200
        assert msgspec.json.decode(outcome.output_json) == {"price": 2.0}


async def test_the_model_may_call_tools_first() -> None:
    asker = typed(call("look", city="Rome"), FIT, tools=[look])
    async with Runtime([asker], store="memory") as rt:
        assert (await rt.run(asker, "Rome?")).value() == Weather("Rome", 21.5)


async def test_agents_without_output_answer_in_words() -> None:
    words = Agent("words", "Say it.", model=ScriptedModel([FIT]))
    async with Runtime([words], store="memory") as rt:
        assert (await rt.run(words, "Rome?")).output == FIT


# ── how models are asked ─────────────────────────────────────────────────────────────────────


async def test_a_model_that_can_be_bound_is_given_the_schema_and_no_tool() -> None:
    seen: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        seen.append(request)
        return FIT

    bound = Agent("bound", "x", model=FunctionModel(answer), tools=[look], output=Weather)
    async with Runtime([bound], store="memory") as rt:
        await rt.run(bound, "Rome?")
    (request,) = seen
    assert request.output is not None and request.output.name == "Weather"
    assert request.output.schema["required"] == ["city", "degrees"]
    assert [x.name for x in request.tools] == ["look"] and request.tool_choice == "auto"


@pytest.mark.parametrize(
    ("choice", "sent"), [("auto", "any"), ("any", "any"), ("none", "final_answer")]
)
async def test_a_model_that_cannot_answers_by_a_tool(choice: str, sent: str) -> None:
    model = Unbound(call("look", city="Rome"), call("final_answer", **ROME))
    asker = Agent("a", "x", model=model, tools=[look], output=Weather, tool_choice=choice)
    async with Runtime([asker], store="memory") as rt:
        outcome = await rt.run(asker, "Rome?")
        assert outcome.value() == Weather("Rome", 21.5)
        # It is said, too: a user of the conversation sees it.
        assert [x for x, _ in await told(rt, outcome.run_id)] == ["said"]
    first, last = model.requests
    assert first.output is None and first.tool_choice == sent
    assert [x.name for x in first.tools] == ["look", "final_answer"]
    assert (first.system, first.tools) == (last.system, last.tools)


async def test_a_text_that_fits_counts_where_a_tool_was_offered() -> None:
    asker = Agent("a", "x", model=Unbound(FIT), output=Weather)
    async with Runtime([asker], store="memory") as rt:
        assert (await rt.run(asker, "Rome?")).value() == Weather("Rome", 21.5)


async def test_a_model_that_must_call_tools_is_not_bound() -> None:
    seen: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        seen.append(request)
        return call("final_answer", **ROME)

    asker = Agent("a", "x", model=FunctionModel(answer), output=Weather, tool_choice="any")
    async with Runtime([asker], store="memory") as rt:
        assert (await rt.run(asker, "Rome?")).value() == Weather("Rome", 21.5)
    assert seen[0].output is None


async def test_what_is_called_behind_the_answer_is_skipped() -> None:
    model = Unbound(reply("", call("final_answer", **ROME), call("look", city="Oslo")))
    asker = Agent("a", "x", model=model, tools=[look], output=Weather, parallel_tool_calls=True)
    async with Runtime([asker], store="memory") as rt:
        outcome = await rt.run(asker, "Rome?")
        assert outcome.value() == Weather("Rome", 21.5)
        done = [x for x in await rt.hub.read(outcome.run_id) if isinstance(x, e.AgentToolComplete)]
        assert [(x.name, x.is_error) for x in done] == [("final_answer", False), ("look", True)]


# ── what does not fit ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bad", [1, 2])
async def test_what_does_not_fit_is_told_and_may_be_corrected(bad: int) -> None:
    seen: list[ModelRequest] = []
    left = [SHORT] * bad

    def answer(request: ModelRequest) -> str:
        seen.append(request)
        return left.pop() if left else FIT

    asker = Agent("a", "x", model=FunctionModel(answer), output=Weather)
    async with Runtime([asker], store="memory") as rt:
        outcome = await rt.run(asker, "Rome?")
        assert outcome.value() == Weather("Rome", 21.5)
        heard = await told(rt, outcome.run_id)
    assert [x for x, _ in heard] == ["said", "output"] * bad + ["said"]
    assert "missing field `degrees`" in heard[1][1]
    last = seen[-1].messages[-1]
    assert isinstance(last, UserMessage) and last.content == heard[1][1] and last.role == "system"
    assert isinstance(seen[-1].messages[-2], AssistantMessage)


async def test_a_third_answer_that_does_not_fit_ends_the_session_with_the_reason() -> None:
    asker = typed(SHORT, "It is warm.", '{"city": "Rome", "degrees": "warm"}', FIT)
    async with Runtime([asker], store="memory") as rt:
        run = await rt.start(asker, "Rome?")
        outcome = await run.result()
        assert (outcome.outcome, outcome.output, outcome.success) == ("failed", None, False)
        assert "3 answers did not fit" in outcome.reason and "degrees" in outcome.reason
        with pytest.raises(RunFailed, match="did not fit"):
            outcome.value()
        # The conversation goes on: the next turn has its own tries.
        assert (await run.ask("Once more.")).value() == Weather("Rome", 21.5)


async def test_calls_that_do_not_fit_count_as_well() -> None:
    bad = call("final_answer", city=5)
    model = Unbound(bad, bad, bad, call("final_answer", **ROME))
    asker = Agent("a", "x", model=model, output=Weather)
    async with Runtime([asker], store="memory") as rt:
        outcome = await rt.run(asker, "Rome?")
        assert outcome.outcome == "failed" and "`city`" in outcome.reason
        events = await rt.hub.read(outcome.run_id)
        assert [x.attempt for x in events if isinstance(x, e.AgentRetry)] == [1, 2]
        done = [x for x in events if isinstance(x, e.AgentToolComplete)]
        assert [x.is_error for x in done] == [True] * 3
    assert len(model.requests) == 3
    # The result says it; nothing is said twice.
    assert all(not isinstance(x, UserMessage) for x in model.requests[-1].messages[1:])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(SHORT, stop_reason="length"), "cut off"),
        (reply(FIT, stop_reason="length"), "cut off"),
        (reply("I would rather not.", stop_reason="refusal"), "refused"),
        (reply("", stop_reason="refusal"), "refused"),
        (
            reply("", e.ToolCall(name="final_answer", arguments='{"city"'), stop_reason="length"),
            "cut off",
        ),
    ],
)
async def test_refusals_and_cuts_are_failures_with_their_reason(answer: Any, reason: str) -> None:
    async with Runtime([typed(answer, FIT)], store="memory") as rt:
        outcome = await rt.run("typed", "Rome?")
        assert (outcome.outcome, outcome.output) == ("failed", None)
        assert reason in outcome.reason


async def test_the_limit_of_steps_holds_for_corrections() -> None:
    async with Runtime([typed(SHORT, SHORT, FIT, max_steps=2)], store="memory") as rt:
        outcome = await rt.run("typed", "Rome?")
        assert (outcome.outcome, outcome.output) == ("limit", None)


async def test_a_types_own_checks_are_told_to_the_model() -> None:
    class Positive(msgspec.Struct):
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("a number from 0 on, please")

    asker = typed('{"number": -1}', '{"number": 1}', output=Positive)
    async with Runtime([asker], store="memory") as rt:
        outcome = await rt.run(asker, "One?")
        assert outcome.value() == Positive(1)
        assert "a number from 0 on, please" in (await told(rt, outcome.run_id))[1][1]


async def test_unknown_fields_are_told_at_any_depth() -> None:
    class Inner(msgspec.Struct):
        at: int

    class Outer(msgspec.Struct):
        inner: Inner

    asker = typed('{"inner": {"at": 1, "on": 2}}', '{"inner": {"at": 1}}', output=Outer)
    async with Runtime([asker], store="memory") as rt:
        outcome = await rt.run(asker, "One?")
        assert outcome.value() == Outer(Inner(1))
        assert "unknown field `on`" in (await told(rt, outcome.run_id))[1][1]


class Loud(pydantic.BaseModel):
    numbers: list[int]

    @pydantic.field_validator("numbers")
    @classmethod
    def none_is_good(cls, numbers: list[int]) -> list[int]:
        raise ValueError("no " * 10_000)


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps({"numbers": [1]}), json.dumps({"numbers": ["x"] * 1000}),
        json.dumps({"numbers": ["x" * 2**20]}), "[" * 5000, '{"numbers": 1e999}', '{"numbers"',
        '{"numbers": "\\ud800"}', "null", "",
    ],
    ids=range(9),
)  # fmt: skip
@pytest.mark.parametrize("is_bound", [True, False])
async def test_whatever_is_answered_is_refused_in_few_words(answer: str, is_bound: bool) -> None:
    said = [answer or " "] * 3
    model: Any = ScriptedModel(said)
    if not is_bound:
        model = Unbound(*[e.ToolCall(name="final_answer", arguments=x) for x in said])
    asker = Agent("a", "x", model=model, output=Loud, settings=ModelSettings(max_tokens=9))
    async with Runtime([asker], store="memory", ports=virtual_ports()) as rt:
        outcome = await rt.run(asker, "x")
        assert outcome.outcome == "failed"
        assert len(outcome.reason) < 20_000
        heard = [text for kind, text in await told(rt, outcome.run_id) if kind == "output"]
        assert len(heard) == (2 if answer or not is_bound else 0)
        assert all(0 < len(text) < 20_000 for text in heard)


async def test_a_fault_is_tried_again_beside_corrections() -> None:
    asker = typed(Fault("rate_limit"), SHORT, Fault("server"), FIT)
    async with Runtime([asker], store="memory", ports=virtual_ports()) as rt:
        outcome = await rt.run(asker, "Rome?")
        assert outcome.value() == Weather("Rome", 21.5)
        kinds = [x for x, _ in await told(rt, outcome.run_id) if x != "said"]
        assert kinds == ["rate_limit", "output", "server"]


# ── others ───────────────────────────────────────────────────────────────────────────────────


async def test_a_parent_gets_its_subagents_value_as_json() -> None:
    heard: list[str] = []

    def lead(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, AssistantMessage) and last.calls:
            heard.append(last.calls[0].output)
            return "done"
        return call("typed", message="Rome?")

    boss = Agent("boss", "x", model=FunctionModel(lead), tools=[typed(FIT).as_tool()])
    async with Runtime([boss], store="memory") as rt:
        assert (await rt.run(boss, "Go.")).output == "done"
    assert [json.loads(x) for x in heard] == [{**ROME, "warnings": []}]


async def test_a_value_on_record_that_no_longer_fits_says_so() -> None:
    journal = MemoryJournal()
    words = Agent("a", "x", model=ScriptedModel(["It is warm."]))
    async with Runtime([words], store=journal) as rt:
        run_id = (await rt.run(words, "Rome?")).run_id
    values = Agent("a", "x", model=ScriptedModel([FIT]), output=Weather)
    async with Runtime([values], store=journal) as rt:
        outcome = await rt.result(run_id)
        with pytest.raises(BadValue, match="no Weather"):
            outcome.value()


@pytest.mark.spec("L-01")
@pytest.mark.parametrize("provider", sorted(BODIES))
@pytest.mark.parametrize("is_bound", [True, False])
async def test_corrections_keep_the_prefix(provider: str, is_bound: bool) -> None:
    script = [SHORT, call("look", city="Rome"), "words", FIT, FIT]
    seen: list[ModelRequest] = []
    scripted = ScriptedModel(script)

    class Model:
        name = "m"

        def takes_output(self, output: Any, has_tools: bool) -> bool:
            return is_bound

        async def call(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
            seen.append(request)
            return await scripted.call(request, on_delta)

    asker = Agent("a", "x", model=Model(), tools=[look], output=Weather)
    async with Runtime([asker], store="memory") as rt:
        run = await rt.start(asker, "Rome?")
        assert (await run.result()).value() == Weather("Rome", 21.5)
        assert (await run.ask("And now?")).value() == Weather("Rome", 21.5)
    assert len(seen) == 5
    assert [*breaks(provider, seen)] == []


async def test_each_model_of_a_list_is_asked_in_its_own_way() -> None:
    seen: list[ModelRequest] = []

    def down(request: ModelRequest) -> Fault:
        seen.append(request)
        return Fault("auth")

    spare = Unbound(call("final_answer", **ROME))
    models = [FunctionModel(down, name="down"), spare]
    asker = Agent("a", "x", model=models, tools=[look], output=Weather)
    async with Runtime([asker], store="memory") as rt:
        assert (await rt.run(asker, "Rome?")).value() == Weather("Rome", 21.5)
    assert seen[0].output is not None and [x.name for x in seen[0].tools] == ["look"]
    (request,) = spare.requests
    assert request.output is None
    assert [x.name for x in request.tools] == ["look", "final_answer"]


async def test_a_summary_is_words() -> None:
    purposes: list[tuple[str, bool]] = []

    def answer(request: ModelRequest) -> Any:
        purposes.append((request.purpose, request.output is not None))
        usage = e.Usage(input_tokens=900, output_tokens=1)
        return reply("In short." if request.purpose == "summary" else FIT, usage=usage)

    asker = Agent(
        "a", "x", model=FunctionModel(answer), output=Weather,
        compaction=Compaction(window=1000, keep=0.1),
    )  # fmt: skip
    async with Runtime([asker], store="memory") as rt:
        run = await rt.start(asker, "Rome?")
        for _ in range(3):
            assert (await run.result()).value() == Weather("Rome", 21.5)
            await run.send("And now?")
    assert ("summary", False) in purposes and ("step", True) in purposes
    assert ("summary", True) not in purposes and ("step", False) not in purposes


# ── any answers at all ───────────────────────────────────────────────────────────────────────


BAD_CALL = call("final_answer", city=5)
ANSWERS: dict[str, Any] = {
    "fit": FIT, "fitting call": call("final_answer", **ROME), "misfit": SHORT,
    "misfitting call": BAD_CALL, "tool": call("look", city="Rome"),
    "tool and misfit": reply("", call("look", city="Rome"), BAD_CALL),
    "two misfits": reply("Well.", BAD_CALL, BAD_CALL), "words": "warm",
    "misfit, then fit": reply("", BAD_CALL, call("final_answer", **ROME)),
    "cut": reply(SHORT, stop_reason="length"), "refused": reply("No.", stop_reason="refusal"),
}  # fmt: skip
OVER = ("fit", "fitting call", "misfit, then fit", "cut", "refused")
CORRECTED = ("misfit", "misfitting call", "tool and misfit", "two misfits", "words")


def expected(answers: list[str], most: int) -> tuple[str, int]:
    """How the session of a plain reader of these answers ends, and after how many corrections."""
    told = 0
    for number, answer in enumerate(answers, 1):
        if answer in OVER:
            return ("failed" if answer in ("cut", "refused") else "completed"), told
        if answer in CORRECTED:
            if told == 2:
                return "failed", told
            if number == most:
                return "limit", told
            told += 1
        if number == most:
            return "limit", told
    return "failed", told  # The script is over: the model fails.


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.sampled_from([*ANSWERS]), min_size=1, max_size=7),
    st.integers(1, 6),
    st.booleans(),
)
def test_any_answers_end_as_a_plain_reader_says(
    answers: list[str], most: int, is_bound: bool
) -> None:
    script = [ANSWERS[each] for each in answers]
    model: Any = ScriptedModel(script) if is_bound else Unbound(*script)
    asker = Agent("a", "x", model=model, tools=[look], output=Weather, max_steps=most)

    async def story() -> None:
        async with Runtime([asker], store="memory", ports=virtual_ports()) as rt:
            outcome = await rt.run(asker, "Rome?")
            kinds = [x for x, _ in await told(rt, outcome.run_id) if x == "output"]
            assert (outcome.outcome, len(kinds)) == expected(answers, most)
            assert outcome.output == (Weather("Rome", 21.5) if outcome.success else None)
            assert_one_life(await rt.hub.read(outcome.run_id), outcome.run_id)

    anyio.run(story)


# ── restarts ─────────────────────────────────────────────────────────────────────────────────


def corrected() -> AgentDefinition[Weather]:
    """A tool, a text and a call that do not fit, and one that does: the same in each life."""
    script = [call("look", city="Rome"), SHORT, call("final_answer", city=5)]
    return Agent(
        "worker", "x", model=Unbound(*script, call("final_answer", **ROME)), tools=[look],
        output=Weather,
    )  # fmt: skip


def record(events: list[Event]) -> list[Any]:
    kinds = (e.AgentStep, e.AgentRetry, e.AgentToolComplete, e.AgentText, e.SessionEnd)
    return [
        (x.type, *(getattr(x, name, None) for name in ("step", "text", "error", "output", "calls")))
        for x in events
        if isinstance(x, kinds)
    ]


@pytest.mark.spec("P-07")
async def test_killed_after_any_commit_the_value_and_the_corrections_are_the_same() -> None:
    async def life(journal: MemoryJournal, after: int | None, ports: Any, run_id: str) -> int:
        store: Any = CrashJournal(journal, after)
        async with Runtime([corrected()], store=store, ports=ports, grace=0) as rt:
            run = await rt.start("worker", "Go.", run_id=run_id, once=True)
            if after is None:
                assert (await run.finished()).output == Weather("Rome", 21.5)
            else:
                await store.crashed.wait()
        commits: int = store.commits
        return commits

    async def lived(*ends: int | None) -> tuple[int, list[Any]]:
        ports, journal = virtual_ports(), MemoryJournal()
        run_id = ports.ids.run_id(ports.clock.now())
        for after in ends:
            commits = await life(journal, after, ports, run_id)
        loaded = await journal.load(run_id)
        assert loaded is not None
        return commits, record(list(loaded.events))

    commits, whole = await lived(None)
    assert [x[0] for x in whole].count("agent:retry") == 2
    for after in range(1, commits):
        assert (await lived(after, None))[1] == whole, after


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
def test_worlds_with_values_hold_their_invariants_through_crashes(store: Any) -> None:
    setup = Setup(agents=(corrected(), typed(SHORT, FIT)))

    async def story(world: World) -> None:
        await world.open("worker", "Go.")
        await world.open("typed", "Go.")
        await world.wait(60.0)

    whole = simulate(story, setup, store=store)
    assert [x for x in whole.events if isinstance(x, e.SessionEnd)]
    for commit in range(1, whole.lives[0].commits, 3):
        history = simulate(story, setup, faults=[Crash(commit=commit)], store=store)
        ends = [x for x in history.events if isinstance(x, e.SessionEnd)]
        assert all(x.success and x.output["city"] == "Rome" for x in ends), commit


# ── what is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"output": str}, "output: str is not a Struct, dataclass, TypedDict or"),
        ({"output": 5}, "output: give a JSON schema"),
        ({"output": list[int]}, "output: give a JSON schema"),
        ({"output": {"type": "string"}}, "output: the top must be"),
        (
            {"output": {"type": "object", "properties": {"a": {"type": "strange"}}}},
            "output.properties.a.type",
        ),
        ({"tool_choice": "look"}, "tool_choice: calls of one tool"),
        ({"skills": ["x"]}, "skills: what takes the conversation over"),
        ({"agents": ["x"]}, "agents: what takes the conversation over"),
    ],
)
def test_what_can_be_no_output_is_refused_when_defined(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        typed(FIT, **{"tools": [look], **options})
    assert any(each.startswith(problem) for each in caught.value.problems), caught.value.problems


@tool
def final_answer(text: str) -> None:
    """One of the user's own."""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"stop_tool": "look"}, "stop_tool: only an answer ends a turn"),
        ({"session_stop": "look"}, "session_stop: only an answer ends a turn"),
        ({"stop_on_response": False}, "stop_on_response: an answer ends the turn"),
        ({"tools": [final_answer]}, "'final_answer' is how an output is given"),
    ],
)
def test_what_would_end_a_turn_without_a_value_is_refused_when_built(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Runtime([typed(FIT, **{"tools": [look], **options})], store="memory")


def test_two_models_and_handoffs_to_other_answers_are_refused_when_built() -> None:
    words = Agent("words", "x", model=ScriptedModel([]), expose_as_tool=True)
    with pytest.raises(DefinitionError, match="'words' can be given the conversation"):
        Runtime([words, typed(FIT, tools=["words"])], store="memory")
    same = Agent("same", "x", model=ScriptedModel([]), output=Weather, expose_as_tool=True)
    Runtime([same, typed(FIT, tools=["same"])], store="memory")
    prompt = typed(FIT).side_a
    assert prompt is not None
    both = AgentDefinition(
        name="both", type="dual_ai", side_a=prompt, side_b=words.side_a, max_session_turns=3
    )
    with pytest.raises(DefinitionError, match="two models end by session_stop"):
        Runtime([both], store="memory")


def test_a_tool_of_that_name_stays_free_without_output() -> None:
    Runtime([Agent("a", "x", model=ScriptedModel([]), tools=[final_answer])], store="memory")
