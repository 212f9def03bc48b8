"""Several models of one prompt: the next is asked when one fails for good, and the run stays."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from support.agents import assert_one_life
from support.crash_journal import CrashJournal

from hubbub import (
    Agent,
    AgentDefinition,
    FunctionModel,
    ModelChoice,
    ModelReply,
    ModelRequest,
    ModelSettings,
    PromptDefinition,
    RunContext,
    Runtime,
    SideConfig,
    Skill,
    agent,
    tool,
)
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, DefinitionError, MissingKey
from hubbub.hub.events import Event
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-06")]

Answer = Callable[[ModelRequest], Any]


class Desk:
    """Models that answer with their name, and note that they were asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def model(self, name: str, *instead: Any) -> FunctionModel:
        """Answers its first calls with ``instead``, one each; ``None`` is its name as well."""
        left = list(instead)

        def answer(request: ModelRequest) -> Any:
            self.asked.append(name)
            given = left.pop(0) if left else None
            return f"I am {name}." if given is None else given

        return FunctionModel(answer, name=name)


DOWN = Fault("auth", times=None)


def steps(events: Sequence[Event]) -> list[tuple[int, str, int]]:
    return [(x.step, x.model, x.choice) for x in events if isinstance(x, e.AgentStep)]


def retries(events: Sequence[Event]) -> list[tuple[int, str, int, str]]:
    return [
        (x.attempt, x.kind, x.choice, x.model) for x in events if isinstance(x, e.AgentRetry)
    ]  # fmt: skip


async def conversation(agent: AgentDefinition, *texts: str) -> tuple[list[Any], list[Event]]:
    async with Runtime([agent], store="memory") as rt:
        run = await rt.start(agent.name, texts[0])
        outcomes = [await run.result()]
        for text in texts[1:]:
            await run.send(text)
            outcomes.append(await run.result())
        return outcomes, list(await run.read())


# ── which one is asked ───────────────────────────────────────────────────────────────────────


async def test_the_next_model_is_asked_when_one_fails_for_good_and_the_run_stays_with_it() -> None:
    desk = Desk()
    agent = Agent("a", "x", model=[desk.model("one", DOWN), desk.model("two")])
    outcomes, events = await conversation(agent, "Hello?", "And now?")
    assert [x.output for x in outcomes] == ["I am two.", "I am two."]
    assert desk.asked == ["one", "two", "two"]
    assert steps(events) == [(1, "two", 1), (2, "two", 1)]
    assert retries(events) == [(1, "auth", 1, "two")]


async def test_what_may_pass_is_tried_again_with_the_same_model_first() -> None:
    desk = Desk()
    agent = Agent("a", "x", model=[desk.model("one", *[Fault("server")] * 5), desk.model("two")])
    _, events = await conversation(agent, "Hello?")
    assert desk.asked == ["one"] * 5 + ["two"]
    assert retries(events) == [
        *((at, "server", 0, "") for at in (1, 2, 3, 4)), (5, "server", 1, "two"),
    ]  # fmt: skip
    (step,) = [x for x in events if isinstance(x, e.AgentStep)]
    assert step.attempt == 6, "attempts of a step are counted over all models"


async def test_each_model_has_attempts_of_its_own() -> None:
    seen: list[int] = []

    def second(request: ModelRequest) -> Any:
        seen.append(request.attempt)
        return Fault("server") if request.attempt < 3 else "there"

    models = [Desk().model("one", DOWN), FunctionModel(second)]
    (outcome,), events = await conversation(Agent("a", "x", model=models), "Hello?")
    assert (outcome.output, seen) == ("there", [1, 2, 3])
    assert [at for at, *_ in retries(events)] == [1, 2, 3]


async def test_a_model_that_refuses_to_answer_is_followed_by_the_next() -> None:
    desk = Desk()
    refused = ModelReply(text="I cannot.", stop_reason="refusal")
    agent = Agent("a", "x", model=[desk.model("one", refused), desk.model("two")])
    (outcome,), events = await conversation(agent, "Hello?")
    assert outcome.output == "I am two."
    assert retries(events) == [(1, "refusal", 1, "two")]
    assert [x.text for x in events if isinstance(x, e.AgentText)] == ["I am two."]


async def test_if_all_refuse_the_last_ones_words_are_the_answer() -> None:
    desk = Desk()
    models = [
        desk.model(name, ModelReply(text=f"{name} cannot.", stop_reason="refusal"))
        for name in ("one", "two")
    ]
    (outcome,), events = await conversation(Agent("a", "x", model=models), "Hello?")
    assert outcome.output == "two cannot."
    assert steps(events) == [(1, "two", 1)]


async def test_when_all_have_failed_the_session_has_and_the_next_begins_with_the_first() -> None:
    desk = Desk()
    models = [desk.model("one", DOWN), desk.model("two", DOWN), desk.model("three", DOWN)]
    outcomes, events = await conversation(Agent("a", "x", model=models), "Hello?", "And now?")
    assert [x.success for x in outcomes] == [False, True]
    assert outcomes[0].reason.startswith("three: ")
    assert desk.asked == ["one", "two", "three", "one"]
    assert steps(events) == [(1, "one", 0)]


async def test_after_the_last_model_comes_the_first() -> None:
    desk = Desk()
    models = [desk.model("one", DOWN), desk.model("two", None, DOWN)]
    outcomes, events = await conversation(Agent("a", "x", model=models), "Hello?", "And now?")
    assert [x.output for x in outcomes] == ["I am two.", "I am one."]
    assert steps(events) == [(1, "two", 1), (2, "one", 0)]


async def test_a_model_that_hangs_is_followed_by_the_next() -> None:
    desk = Desk()
    slow = [Fault("hang", times=None)] * 5
    settings = ModelSettings(timeout=5)
    models = [ModelChoice(desk.model("one", *slow), settings), desk.model("two")]
    (outcome,), events = await conversation(Agent("a", "x", model=models), "Hello?")
    assert outcome.output == "I am two."
    assert [kind for _, kind, *_ in retries(events)] == ["timeout"] * 5
    (first, *_) = [x for x in events if isinstance(x, e.AgentRetry)]
    assert first.error == "the model did not answer within 5 s"


async def test_a_key_that_is_missing_is_a_failure_for_good() -> None:
    desk = Desk()
    agent = Agent("a", "x", model=["anthropic:claude-x", desk.model("two")])
    async with Runtime([agent], store="memory", environ={}) as rt:
        assert (await rt.run("a", "Hello?")).output == "I am two."


async def test_the_two_sides_of_a_run_stay_each_with_its_own() -> None:
    desk = Desk()

    def side(name: str, *models: Any) -> SideConfig:
        prompt = PromptDefinition(name=name, prompt="x", model=list(models))
        return SideConfig(prompt=prompt, label=name)

    pair = AgentDefinition(
        name="pair", type="dual_ai", max_session_turns=4,
        side_a=side("left", desk.model("a1", DOWN), desk.model("a2")),
        side_b=side("right", desk.model("b1"), desk.model("b2")),
    )  # fmt: skip
    async with Runtime([pair], store="memory") as rt:
        await rt.run("pair", "Go.")
    assert desk.asked == ["a1", "a2", "b1", "a2", "b1"]


async def test_a_skill_without_a_model_is_read_by_its_callers_models() -> None:
    desk = Desk()
    use = reply("", call("use_skill", name="count", message="Count."))
    skill = Skill(name="count", description="It counts.", instructions="Count.")
    models = [desk.model("one", use, DOWN), desk.model("two")]
    agent = Agent("a", "x", model=models, skills=[skill])
    async with Runtime([agent], store="memory") as rt:
        run = await rt.start("a", "Hello?")
        await run.result()
    assert desk.asked[:3] == ["one", "one", "two"]


# ── what an entry has of its own ─────────────────────────────────────────────────────────────


async def test_entries_may_have_settings_and_options_of_their_own() -> None:
    seen: list[tuple[Any, Any]] = []

    def answer(request: ModelRequest) -> Any:
        seen.append((request.settings, dict(request.options)))
        return Fault("auth") if len(seen) < 3 else "yes"

    own, shared = ModelSettings(temperature=0.5), ModelSettings(seed=7)
    models = [FunctionModel(answer), ModelChoice(FunctionModel(answer), own),
              ModelChoice(FunctionModel(answer), provider_options={"x": 2})]  # fmt: skip
    agent = Agent("a", "x", model=models, settings=shared, provider_options={"x": 1})
    await conversation(agent, "Hello?")
    assert seen == [(shared, {"x": 1}), (own, {"x": 1}), (shared, {"x": 2})]


@pytest.mark.spec("L-07", "U-09")
def test_what_an_entry_lacks_is_refused_with_its_place() -> None:
    seeded = ModelSettings(seed=7)
    listed = ["openai:gpt-5", "anthropic:claude-sonnet-4-6"]
    with pytest.raises(DefinitionError) as caught:
        Runtime([Agent("a", "x", model=listed, settings=seeded)], store="memory", environ={})
    where = "agents.a.side_a.prompt"
    assert caught.value.problems == (
        f"{where}.settings.seed: Anthropic has none; leave it out (anthropic:claude-sonnet-4-6)",
    )
    own = [listed[0], ModelChoice(listed[1], seeded)]
    with pytest.raises(DefinitionError, match=r"prompt.model\[1\].settings.seed: Anthropic has"):
        Runtime([Agent("a", "x", model=own)], store="memory", environ={})
    fitting = [listed[0], ModelChoice(listed[1], ModelSettings())]
    Runtime([Agent("a", "x", model=fitting, settings=seeded)], store="memory", environ={})
    with pytest.raises(DefinitionError, match=r"prompt.model\[1\]: .*did you mean 'openai:x'"):
        Runtime([Agent("a", "x", model=[listed[0], "opnai:x"])], store="memory", environ={})


@pytest.mark.spec("L-07")
async def test_a_conversation_in_code_may_have_settings_and_several_models() -> None:
    desk, seen = Desk(), list[Any]()

    def answer(request: ModelRequest) -> str:
        seen.append(request.settings)
        return "yes"

    told = ModelSettings(seed=7)

    @agent("code")
    async def code(input: str, ctx: RunContext) -> str:
        with pytest.raises(BadValue, match="anthropic:claude-x: seed: Anthropic has none"):
            ctx.session(model="anthropic:claude-x", settings=told)
        models = [desk.model("one", DOWN), FunctionModel(answer)]
        async with ctx.session(model=models, settings=told) as session:
            await session.send("Hello?")
            async for _ in session.receive():
                pass
            return session.text

    async with Runtime([code], store="memory") as rt:
        assert (await rt.run("code", "go")).output == "yes"
    assert (desk.asked, seen) == (["one"], [told])


# ── keys ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("U-09")
async def test_of_a_list_one_key_is_enough() -> None:
    agent = Agent("a", "x", model=["anthropic:claude-x", "openai:gpt-5"])
    async with Runtime([agent], store="memory", environ={"OPENAI_API_KEY": "k"}):
        pass
    with pytest.raises(MissingKey, match="set ANTHROPIC_API_KEY or OPENAI_API_KEY in the"):
        async with Runtime([agent], store="memory", environ={}):
            pass


# ── the definition ───────────────────────────────────────────────────────────────────────────


def test_a_list_of_one_is_the_same_as_the_model() -> None:
    told = ModelSettings(seed=7)
    plain = PromptDefinition(name="p", prompt="x", model="m")
    assert PromptDefinition(name="p", prompt="x", model=["m"]) == plain
    assert PromptDefinition(name="p", prompt="x", model=[ModelChoice("m")]) == plain
    own = PromptDefinition(name="p", prompt="x", model=[ModelChoice("m", told, {"x": 1})])
    assert own == replace(plain, settings=told, provider_options={"x": 1})


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ([], "model: an empty list; give at least one model"),
        (["a", ""], 'model[1]: give "provider:name", a registered name, or a Model'),
        (["a", 7], "model[1]: int has no `call`; give a Model"),
        (["a", ["b"]], "model[1]: ['b'] has no `call`; give a Model"),
        (["a"] * 17, "model: at most 16 models are tried, not 17"),
        (7, "model: int has no `call`; give a Model"),
    ],
)
def test_what_is_no_list_of_models_is_refused(model: Any, problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        PromptDefinition(name="p", prompt="x", model=model)
    assert caught.value.problems == (problem,)


def test_a_wrong_entry_is_refused_where_it_is_made() -> None:
    with pytest.raises(DefinitionError) as caught:
        ModelChoice(7, {"seed": 1}, 3)  # type: ignore[arg-type]
    assert [each.partition(":")[0] for each in caught.value.problems] == [
        "model", "settings", "provider_options",
    ]  # fmt: skip


# ── what is recorded ─────────────────────────────────────────────────────────────────────────


def test_records_without_a_choice_are_of_the_first_model() -> None:
    old = [
        e.SessionStart(session=1), e.AgentRetry(step=1, attempt=1, delay=2.0), e.AgentStep(step=1)
    ]  # fmt: skip
    assert fold_all(EMPTY, old).models == EMPTY.models


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing {where}"


def worker() -> AgentDefinition:
    """Three steps, in which models fail as their requests say: the same in each life."""

    def said(request: ModelRequest) -> int:
        return sum(not hasattr(x, "content") or hasattr(x, "calls") for x in request.messages)

    def one(request: ModelRequest) -> Any:
        return Fault("auth") if said(request) else call("look", where="there")

    def two(request: ModelRequest) -> Any:
        if said(request) == 2:
            return Fault("server", times=None)
        return call("look", where="here")

    def three(request: ModelRequest) -> Any:
        return "Nothing anywhere."

    models = [FunctionModel(each, name=each.__name__) for each in (one, two, three)]
    return Agent("worker", "x", model=models, tools=[look])


def told(events: Sequence[Event]) -> list[Any]:
    """Which model answered each step, and what was said in the end."""
    said = [x.text for x in events if isinstance(x, e.AgentText)]
    return [*steps(events), *said]


@pytest.mark.spec("L-06", "P-07")
async def test_killed_after_any_commit_a_run_goes_on_with_the_model_it_had() -> None:
    async def life(journal: MemoryJournal, after: int | None, ports: Any, run_id: str) -> int:
        store: Any = CrashJournal(journal, after)
        async with Runtime([worker()], store=store, ports=ports, grace=0) as rt:
            if after is None:
                await rt.start("worker", "Go.", run_id=run_id, once=True)
                await rt.result(run_id)
            else:
                await rt.start("worker", "Go.", run_id=run_id, once=True)
                await store.crashed.wait()
        commits: int = store.commits
        return commits

    ports, journal = virtual_ports(), MemoryJournal()
    run_id = ports.ids.run_id(ports.clock.now())
    commits = await life(journal, None, ports, run_id)
    loaded = await journal.load(run_id)
    assert loaded is not None
    whole = told(loaded.events)
    assert whole == [(1, "one", 0), (2, "two", 1), (3, "three", 2), "Nothing anywhere."]
    assert commits > 8
    for after in range(1, commits):
        ports, journal = virtual_ports(), MemoryJournal()
        run_id = ports.ids.run_id(ports.clock.now())
        await life(journal, after, ports, run_id)
        await life(journal, None, ports, run_id)
        loaded = await journal.load(run_id)
        assert loaded is not None
        assert told(loaded.events) == whole, after
        assert assert_one_life(list(loaded.events), run_id).outcome == "completed"
