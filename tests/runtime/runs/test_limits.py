"""Limits of a turn, a run and a tree, as a user of a runtime meets them."""

from collections.abc import Sequence
from typing import Any, Final

import anyio
import msgspec
import pytest
from support.agents import Observer, heard, model_agent
from support.families import config
from support.frames import frame, use

from hubbub import (
    Agent,
    AgentDefinition,
    Cron,
    FunctionModel,
    Limits,
    ModelReply,
    ModelRequest,
    Price,
    PromptDefinition,
    RunContext,
    RunOutcome,
    Runtime,
    ScriptedModel,
    SideConfig,
    Spent,
    Usage,
    agent,
    tool,
)
from hubbub.agents.definitions.tools import Tool
from hubbub.hub.errors import BadValue, CallerError, DefinitionError, RunFailed, UnknownRun
from hubbub.hub.events import SessionLimits
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-05")]

USAGE: Final = Usage(input_tokens=100, output_tokens=10)
PRICES: Final = {"function": Price(input=1, output=10)}
NANOS: Final = 200_000


@tool
async def look(what: str) -> str:
    """Look."""
    return f"a {what}"


@tool(timeout=None)
async def dig(seconds: float) -> str:
    """Dig."""
    await anyio.sleep(seconds)
    return "dug"


class Busy:
    """Calls a tool in every step, until a message asks it to stop."""

    def __init__(self, name: str = "look", **arguments: Any) -> None:
        self.requests: list[ModelRequest] = []
        self._call = call(name, **(arguments or {"what": "tree"}))

    def __call__(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        if "stop" in heard(request)[-1]:
            return ModelReply(text="Stopped.", usage=USAGE)
        return ModelReply(calls=(self._call,), usage=USAGE)

    def agent(self, *tools: Any, latency: float = 0.5, **options: Any) -> AgentDefinition:
        given: Sequence[Any] = tools or (look, dig)
        model = FunctionModel(self, latency=latency)
        return Agent("assistant", "You help.", model=model, tools=given, **options)


def ended(outcome: RunOutcome) -> tuple[str, str]:
    return outcome.outcome, outcome.reason


# ── one turn ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("limits", "name", "steps"),
    [
        (Limits(model_calls=3), "model_calls", 3),
        (Limits(input_tokens=201), "input_tokens", 3),
        (Limits(output_tokens=20), "output_tokens", 2),
        (Limits(cost=0.0007), "cost", 4),
        (Limits(seconds=2.2), "seconds", 4),
        (Limits(model_calls=9, output_tokens=10, cost=1.0), "output_tokens", 1),
    ],
)
async def test_a_turn_ends_by_its_limit_and_says_which(
    journal: Journal, ports: Ports, limits: Limits, name: str, steps: int
) -> None:
    busy = Busy()
    agents = [busy.agent(limits=limits)]
    async with Runtime(agents, store=journal, ports=ports, prices=PRICES) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "Go on.")
        first = await run.result()
        assert ended(first) == ("limit", f"turn.{name}")
        assert not first.success and first.tree.model_calls == steps
        with pytest.raises(RunFailed, match=f"turn.{name}"):
            first.value()
        # The next turn may use as much again.
        second = await run.ask("And on.")
        assert ended(second) == ended(first) and second.tree.model_calls == 2 * steps
        assert (await run.ask("stop")).output == "Stopped."
    assert {len(x.calls) for x in observer.all("agent:step")[:-1]} == {1}
    results = observer.all("agent:tool:complete")
    assert len(results) == 2 * steps, "each call has its one result"


@pytest.mark.parametrize("place", ["turn", "run", "tree"])
async def test_seconds_cut_short_a_tool_and_a_model(
    journal: Journal, ports: Ports, place: str
) -> None:
    limits = Limits(seconds=5)
    options: Any = {"turn": {"limits": limits}, "run": {"run_limits": limits}}.get(place, {})
    digger = Busy("dig", seconds=60)
    agents = [digger.agent(**options)]
    tree = limits if place == "tree" else None
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        began = ports.clock.monotonic()
        outcome = await runtime.run("assistant", "Dig.", limits=tree)
        assert ended(outcome) == ("limit", f"{place}.seconds")
        assert ports.clock.monotonic() - began == pytest.approx(5, abs=0.01)
    (result,) = observer.all("agent:tool:complete")
    assert result.is_error and result.output == f"limit: {place}.seconds"
    slow = Busy().agent(latency=60, **options)
    async with Runtime([slow], store="memory", ports=ports) as runtime:
        began = ports.clock.monotonic()
        outcome = await runtime.run("assistant", "Think.", limits=tree)
        assert ended(outcome) == ("limit", f"{place}.seconds")
        assert ports.clock.monotonic() - began == pytest.approx(5, abs=0.01)


async def test_waiting_for_a_person_takes_no_time(journal: Journal, ports: Ports) -> None:
    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        await anyio.sleep(1)
        return "paid"

    model = ScriptedModel([call("pay"), "Done."], latency=1)
    agents = [model_agent(model, pay, limits=Limits(seconds=4))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "Pay.")
        await anyio.sleep(1000)
        (prompt,) = observer.all("session:prompt")
        await runtime.hub.approve(prompt.prompt_id)
        assert (await run.result()).output == "Done."


async def test_the_time_of_a_run_adds_up_over_turns_and_restarts(
    journal: Journal, ports: Ports
) -> None:
    agents = [Busy().agent(run_limits=Limits(seconds=4))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "stop 1")  # Half a second each.
        for number in range(4):
            assert (await run.ask(f"stop {number}")).success
            await anyio.sleep(100)
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.handle(run.run_id)
        began = ports.clock.monotonic()
        assert ended(await run.ask("Go on.")) == ("limit", "run.seconds")
        assert ports.clock.monotonic() - began == pytest.approx(1.5, abs=0.01)
        assert ended(await run.ask("stop")) == ("limit", "run.seconds")


@tool
async def finish(result: str) -> str:
    """Hand in the result."""
    return result


async def test_the_other_side_gets_the_turn_that_ran_out(journal: Journal, ports: Ports) -> None:
    def reviewer(request: ModelRequest) -> ModelReply:
        return ModelReply(calls=(call("finish", result="fine"),), usage=USAGE)

    busy = Busy()
    worker = PromptDefinition(
        name="worker", prompt="You work.", model=FunctionModel(busy), tools=[look],
        limits=Limits(model_calls=2),
    )  # fmt: skip
    reviews = PromptDefinition(
        name="reviewer", prompt="You review.", model=FunctionModel(reviewer), tools=[finish]
    )
    pair = AgentDefinition(
        name="pair", type="dual_ai", max_session_turns=9, side_a=SideConfig(prompt=worker),
        side_b=SideConfig(prompt=reviews, session_stop="finish"),
    )  # fmt: skip
    async with Runtime([pair], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        outcome = await runtime.run("pair", "Begin.")
    assert outcome.output == "fine" and len(busy.requests) == 2
    (turn,) = observer.all("session:turn")
    assert (turn.side, turn.reason) == ("side_b", "limit")


# ── a run, a tree ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("place", ["run", "tree"])
async def test_what_is_used_up_refuses_further_turns_until_it_is_raised(
    journal: Journal, ports: Ports, place: str
) -> None:
    busy = Busy()

    def life(most: int) -> Runtime:
        limits = Limits(model_calls=most)
        options: Any = {"run_limits": limits} if place == "run" else {}
        tree = limits if place == "tree" else None
        return Runtime([busy.agent(**options)], store=journal, ports=ports, limits=tree)

    async with life(3) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "Go on.")
        assert ended(await run.result()) == ("limit", f"{place}.model_calls")
        for words in ("stop, please", "stop, I said"):
            assert ended(await run.ask(words)) == ("limit", f"{place}.model_calls")
        assert len(busy.requests) == 3
        assert observer.types(run.run_id).count("session:end") == 3, "each turn says so"
    async with life(3) as runtime:
        run = await runtime.handle(run.run_id)
        assert ended(await run.ask("stop")) == ("limit", f"{place}.model_calls")
        assert len(busy.requests) == 3
    async with life(4) as runtime:
        run = await runtime.handle(run.run_id)
        assert (await run.ask("stop at last")).output == "Stopped."
        # What was said meanwhile is not lost.
        assert heard(busy.requests[-1])[-4:] == [
            "stop, please", "stop, I said", "stop", "stop at last",
        ]  # fmt: skip
        assert ended(await run.ask("stop")) == ("limit", f"{place}.model_calls")


def family(*, blocking: bool = True, latency: float = 0.0) -> list[AgentDefinition]:
    """A parent that calls its child once a turn; the child looks twice."""

    def lead(request: ModelRequest) -> ModelReply:
        if request.messages[-1].content and request.messages[-1].__class__.__name__[0] == "U":
            return ModelReply(calls=(call("helper", message="Look."),), usage=USAGE)
        return ModelReply(text="Led.", usage=USAGE)

    def helps(request: ModelRequest) -> ModelReply:
        if len(request.messages) < 3:
            return ModelReply(calls=(call("look", what="tree"),), usage=USAGE)
        return ModelReply(text="Seen.", usage=USAGE)

    tools: list[Tool[..., Any] | Any] = [config(blocking=blocking)]
    helper = Agent(
        "helper",
        "You help.",
        model=FunctionModel(helps, latency=latency),
        tools=[look],
        expose_as_tool=True,
    )
    leads = FunctionModel(lead, latency=latency)
    return [Agent("main", "You lead.", model=leads, tools=tools), helper]


async def test_an_outcome_adds_up_the_tree(journal: Journal, ports: Ports) -> None:
    async with Runtime(family(), store=journal, ports=ports, prices=PRICES) as runtime:
        outcome = await runtime.run("main", "Lead.")
        assert outcome.output == "Led." and outcome.usage == USAGE + USAGE
        assert outcome.tree == Spent(5, 500, 50, 5 * NANOS)
        assert outcome.tree.cost == pytest.approx(0.001)
        run = await runtime.start("main", "Lead.")
        assert (await run.result()).tree.model_calls == 5
        assert (await run.ask("Lead.")).tree.model_calls == 10
        (child,) = {x.run_id for x in await runtime.hub.journal.runs(
            live=False, root_run_id=outcome.run_id) if x.parent_run_id}  # fmt: skip
        assert (await runtime.result(child)).tree == Spent(3, 300, 30, 3 * NANOS)
    async with Runtime(family(), store=journal, ports=ports) as runtime:
        assert (await runtime.result(run.run_id)).tree == Spent(10, 1000, 100, 10 * NANOS)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("most", [1, 2, 3, 4])
async def test_a_tree_ends_wherever_it_is_at_work(
    journal: Journal, ports: Ports, most: int, blocking: bool
) -> None:
    agents = family(blocking=blocking)
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("main", "Lead.", limits=Limits(model_calls=most))
        await anyio.sleep(100)
        last = await run.ask("Lead.")
        assert ended(last) == ("limit", "tree.model_calls")
        # Of runs side by side each may have one call under way.
        assert most <= last.tree.model_calls <= most + (not blocking)
    ends = [x for x in observer.all("session:end") if x.outcome == "limit"]
    assert {x.reason for x in ends} == {"tree.model_calls"}


async def test_limits_of_an_opening_hold_over_a_restart(journal: Journal, ports: Ports) -> None:
    agents = family()
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("main", "Lead.", limits=Limits(model_calls=7))
        assert (await run.result()).success
    async with Runtime(agents, store=journal, ports=ports, limits=Limits(model_calls=1)) as runtime:
        run = await runtime.handle(run.run_id)
        outcome = await run.ask("Lead.")
        assert ended(outcome) == ("limit", "tree.model_calls")
        assert outcome.tree.model_calls == 7
        assert ended(await runtime.run("main", "Lead."))[1] == "tree.model_calls"


async def test_an_operator_raises_what_a_tree_may_use_and_lowers_it(
    journal: Journal, ports: Ports
) -> None:
    busy = Busy()
    agents = [busy.agent()]
    async with Runtime(agents, store=journal, ports=ports, prices=PRICES) as runtime:
        run = await runtime.start("assistant", "Go on.", limits=Limits(model_calls=3))
        assert ended(await run.result()) == ("limit", "tree.model_calls")
        assert (await runtime.limit(run.run_id, Limits(model_calls=5))).accepted
        outcome = await run.ask("Go on.")
        assert (ended(outcome), outcome.tree.model_calls) == (("limit", "tree.model_calls"), 5)
    async with Runtime(agents, store=journal, ports=ports, prices=PRICES) as runtime:
        run = await runtime.handle(run.run_id)
        assert ended(await run.ask("stop")) == ("limit", "tree.model_calls")
        assert (await runtime.limit(run.run_id, None)).accepted
        assert (await run.ask("stop")).output == "Stopped."
        # In the middle of a turn, too.
        waits = await run.send("Go on.")
        assert waits.accepted
        await anyio.sleep(1.2)
        assert (await runtime.limit(run.run_id, Limits(cost=0.0001))).accepted
        assert ended(await run.result()) == ("limit", "tree.cost")
        with pytest.raises(BadValue, match="expected Limits"):
            await runtime.limit(run.run_id, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(model_calls=5), "model_calls"),
        (Limits(output_tokens=50), "output_tokens"),
        (Limits(cost=0.001), "cost"),
        (Limits(seconds=2.5), "seconds"),
    ],
)
@pytest.mark.parametrize("when", ["at work", "restarted", "without a runtime"])
async def test_what_children_have_used_before_counts_when_a_tree_is_limited(
    journal: Journal, ports: Ports, limits: Limits, name: str, when: str
) -> None:
    agents = family(latency=0.5)
    async with Runtime(agents, store=journal, ports=ports, prices=PRICES) as runtime:
        run = await runtime.start("main", "Lead.")
        assert (await run.result()).tree.model_calls == 5
        for each in await runtime.hub.journal.runs(live=False, root_run_id=run.run_id):
            if each.parent_run_id:
                await runtime.terminate(each.run_id)
        if when == "at work":
            observer = Observer(runtime.hub)
            assert (await runtime.limit(run.run_id, limits)).accepted
            outcome = await run.ask("Lead.")
            assert (ended(outcome), outcome.tree.model_calls) == (("limit", f"tree.{name}"), 5)
            assert not observer.all("agent:step")
    if when == "without a runtime":  # As if its process had died before the run could take it.
        async with Hub(journal=journal, ports=ports) as hub:
            assert await hub.pipeline.deliver(SessionLimits(limits=limits), to=run.run_id)
    async with Runtime(agents, store=journal, ports=ports, prices=PRICES) as runtime:
        observer = Observer(runtime.hub)
        if when == "restarted":
            assert (await runtime.limit(run.run_id, limits)).accepted
        run = await runtime.handle(run.run_id)
        outcome = await run.ask("Lead.")
        assert (ended(outcome), outcome.tree.model_calls) == (("limit", f"tree.{name}"), 5)
    assert not observer.all("agent:step")


async def test_limits_are_raised_at_the_root(ports: Ports) -> None:
    async with Runtime(family(), store="memory", ports=ports) as runtime:
        outcome = await runtime.run("main", "Lead.")
        runs = await runtime.hub.journal.runs(live=False, root_run_id=outcome.run_id)
        (child,) = [x.run_id for x in runs if x.parent_run_id]
        with pytest.raises(CallerError, match=f"give them to its root, {outcome.run_id}"):
            await runtime.limit(child, Limits(model_calls=5))
        with pytest.raises(BadValue, match="prices"):
            await runtime.limit(outcome.run_id, Limits(cost=5))
        assert not (await runtime.limit(outcome.run_id, Limits(model_calls=5))).accepted


async def test_children_at_work_meet_the_limit_of_their_root(ports: Ports) -> None:
    busy = Busy()
    helper = Agent(
        "helper", "You help.", model=FunctionModel(busy, latency=1), tools=[look],
        expose_as_tool=True,
    )  # fmt: skip
    async with Runtime([family()[0], helper], store="memory", ports=ports) as runtime:
        run = await runtime.start("main", "Lead.")
        await anyio.sleep(5.5)
        await runtime.limit(run.run_id, Limits(seconds=6.5))
        began = ports.clock.monotonic()
        assert ended(await run.result()) == ("limit", "tree.seconds")
        assert ports.clock.monotonic() - began == pytest.approx(1, abs=0.01)


async def test_code_is_told_by_its_own_conversations_and_by_its_children(
    journal: Journal, ports: Ports
) -> None:
    told: list[str] = []

    @agent("code")
    async def code(input: str, ctx: RunContext) -> str:
        session = ctx.session(model=FunctionModel(Busy()), tools=[look])
        await session.send("Go on.")
        try:
            async for _ in session.receive():
                pass
        except RunFailed as failure:
            told.append(str(failure))
        outcome = await ctx.spawn("helper", "Look.").result()
        told.append(outcome.reason)
        return "done"

    helper = family()[1]
    for place, options in (
        ("tree", {"limits": Limits(model_calls=3)}), ("run", {}),
    ):  # fmt: skip
        told.clear()
        mine = code
        if place == "run":
            mine = msgspec.structs.replace(code, run_limits=Limits(model_calls=2))
        async with Runtime([mine, helper], store="memory", ports=ports, **options) as runtime:
            outcome = await runtime.run("code", "x")
            assert outcome.output == "done"
            assert f"{place}.model_calls" in told[0]
            assert told[1] == ("tree.model_calls" if place == "tree" else "")
            assert outcome.tree.model_calls == (3 if place == "tree" else 5)


# ── cost ─────────────────────────────────────────────────────────────────────────────────────


async def test_what_has_no_price_costs_nobody_knows_how_much(ports: Ports) -> None:
    async with Runtime(family(), store="memory", ports=ports) as runtime:
        assert (await runtime.run("main", "Lead.")).tree.cost is None
    assert Spent().cost == 0.0


def test_a_price_counts_what_was_cached_as_the_provider_does() -> None:
    price = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
    openai = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=400)
    assert price.nanos(openai, cached_apart=False) == 600 * 3000 + 400 * 300 + 100 * 15000
    anthropic = Usage(
        input_tokens=600, output_tokens=100, cache_read_tokens=400, cache_write_tokens=200
    )
    expected = 600 * 3000 + 400 * 300 + 200 * 3750 + 100 * 15000
    assert price.nanos(anthropic, cached_apart=True) == expected
    # Without a price of its own, what is cached costs what other input does.
    plain = Price(input=3, output=15)
    assert plain.nanos(openai, cached_apart=False) == 1000 * 3000 + 100 * 15000
    assert plain.nanos(anthropic, cached_apart=True) == 1200 * 3000 + 100 * 15000
    assert AnthropicModel.counts_cached_apart is True


async def test_input_is_counted_whole_whichever_way_a_provider_counts(ports: Ports) -> None:
    usage = Usage(input_tokens=100, output_tokens=10, cache_read_tokens=60, cache_write_tokens=20)

    def answer(request: ModelRequest) -> ModelReply:
        return ModelReply(text="Yes.", usage=usage)

    class Apart(FunctionModel):
        counts_cached_apart = True

    agents = [
        model_agent(FunctionModel(answer), name="in"), model_agent(Apart(answer), name="apart"),
    ]  # fmt: skip
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        assert (await runtime.run("in", "Well?")).tree.input_tokens == 100
        assert (await runtime.run("apart", "Well?")).tree.input_tokens == 180


@pytest.mark.parametrize(
    ("options", "runtime", "problem"),
    [
        ({"limits": Limits(cost=1)}, {}, "agents.assistant.side_a.limits.cost: a limit of cost"),
        ({"run_limits": Limits(cost=1)}, {}, "agents.assistant.run_limits.cost: a limit of cost"),
        ({}, {"limits": Limits(cost=1)}, "limits.cost: give Runtime(prices=…)"),
        (
            {"limits": Limits(cost=1)},
            {"prices": {"functoin": Price(input=1, output=1)}},
            "needs a price for function; did you mean 'functoin'?",
        ),
    ],
)
def test_a_limit_of_cost_without_a_price_is_refused_when_built(
    options: Any, runtime: Any, problem: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        Runtime([Busy().agent(**options)], store="memory", **runtime)
    assert problem in str(refused.value)
    assert len(refused.value.problems) == 1


async def test_limits_of_a_run_that_there_is_not_are_refused_for_that(ports: Ports) -> None:
    async with Runtime([Busy().agent()], store="memory", ports=ports) as runtime:
        with pytest.raises(UnknownRun):
            await runtime.limit("nope", Limits(cost=1))


async def test_a_limit_of_cost_without_a_price_is_refused_when_opened(ports: Ports) -> None:
    async with Runtime([Busy().agent()], store="memory", ports=ports) as runtime:
        with pytest.raises(CallerError, match="Runtime"):
            await runtime.start("assistant", "x", limits=Limits(cost=1))
        with pytest.raises(CallerError, match="Runtime"):
            await runtime.run("assistant", "x", limits=Limits(cost=1))
        receipt = await runtime.hub.open("assistant", "x", limits=Limits(cost=1))
        assert receipt.status == "rejected" and "prices" in receipt.reason


# ── what is refused ──────────────────────────────────────────────────────────────────────────


COUNT: Final = "expected a whole number, at least 1 and below 10**18"
AMOUNT: Final = "expected a number above 0 and below 10**18"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"model_calls": 0}, f"model_calls: {COUNT}, not 0"),
        ({"input_tokens": 1.5}, f"input_tokens: {COUNT}, not 1.5"),
        ({"output_tokens": True}, f"output_tokens: {COUNT}, not True"),
        ({"model_calls": 10**18}, f"model_calls: {COUNT}, not 1000000000000000000"),
        ({"model_calls": 10**400}, f"model_calls: {COUNT}, not 1000"),
        ({"seconds": 0}, f"seconds: {AMOUNT}, not 0"),
        ({"seconds": float("nan")}, f"seconds: {AMOUNT}, not nan"),
        ({"cost": float("inf")}, f"cost: {AMOUNT}, not inf"),
        ({"cost": 1e308}, f"cost: {AMOUNT}, not 1e+308"),
        ({"cost": 10**400}, f"cost: {AMOUNT}, not 1000"),
        ({"cost": "1"}, f"cost: {AMOUNT}, not '1'"),
    ],
)
def test_what_is_no_limit_is_refused(fields: Any, problem: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        Limits(**fields)
    assert problem in str(refused.value)


async def test_the_largest_limits_hold_nothing_up(ports: Ports) -> None:
    most, amount = 10**18 - 1, 9e17
    large = Limits(
        input_tokens=most, output_tokens=most, model_calls=most, seconds=amount, cost=amount
    )
    agents = [Busy().agent(limits=large, run_limits=large)]
    async with Runtime(
        agents,
        store="memory",
        ports=ports,
        limits=large,
        prices={"function": Price(input=amount, output=0)},
    ) as runtime:
        outcome = await runtime.run("assistant", "stop")
        assert (outcome.output, outcome.tree.cost) == ("Stopped.", 100 * amount / 10**6)


@pytest.mark.parametrize("value", [-1, float("nan"), None, "3", True, float("inf"), 10**18, 1e308])
def test_what_is_no_price_is_refused(value: Any) -> None:
    problem = r"input: expected a number, at least 0 and below 10\*\*18, not"
    with pytest.raises(DefinitionError, match=problem):
        Price(input=value, output=1)


@pytest.mark.parametrize("value", [3, {"model_calls": 3}, "5", Limits])
async def test_what_are_no_limits_is_refused_everywhere(ports: Ports, value: Any) -> None:
    with pytest.raises(DefinitionError, match=r"limits: expected Limits\(…\), not"):
        Busy().agent(limits=value)
    with pytest.raises(DefinitionError, match=r"run_limits: expected Limits\(…\), not"):
        Busy().agent(run_limits=value)
    with pytest.raises(BadValue, match=r"limits: expected Limits\(…\), not"):
        Runtime([Busy().agent()], store="memory", limits=value)
    with pytest.raises(BadValue, match="prices"):
        Runtime([Busy().agent()], store="memory", prices={"function": value})
    async with Runtime([Busy().agent()], store="memory", ports=ports) as runtime:
        for begin in (runtime.start, runtime.run, runtime.hub.open):
            with pytest.raises(BadValue, match=r"limits: expected Limits\(…\), not"):
                await begin("assistant", "x", limits=value)


async def test_limits_belong_to_a_root(ports: Ports) -> None:
    async with Runtime([Busy().agent()], store="memory", ports=ports) as runtime:
        run = await runtime.start("assistant")
        child = {"type": "subagent", "id": "one", "parentAgentId": run.run_id, "name": "one"}
        receipt = await runtime.hub.open(
            "assistant", "x", descriptor=child, limits=Limits(model_calls=1)
        )
        assert receipt.status == "rejected" and "root" in receipt.reason


async def test_scheduled_runs_have_the_limits_of_the_runtime(ports: Ports) -> None:
    schedule = Cron("often", "* * * * *", "assistant", "Go on.")
    async with Runtime(
        [Busy().agent()], store="memory", ports=ports, schedules=[schedule],
        limits=Limits(model_calls=2),
    ) as runtime:  # fmt: skip
        observer = Observer(runtime.hub)
        await anyio.sleep(200)
    ends = {(x.outcome, x.reason) for x in observer.all("session:end")}
    assert ends == {("limit", "tree.model_calls")}


async def test_a_frame_that_runs_out_gives_the_conversation_back(ports: Ports) -> None:
    def lead(request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        if "write" in getattr(last, "content", "") and len(request.messages) < 2:
            return ModelReply(calls=(use("writer", "A page."),), usage=USAGE)
        return ModelReply(text="Here I am again.", usage=USAGE)

    busy = FunctionModel(Busy())
    writer = frame(busy, look, name="writer", limits=Limits(model_calls=2))
    main = frame(FunctionModel(lead), agents=("writer",))
    async with Runtime([main, writer], store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("main", "write")
        assert (await run.result()).output == "Here I am again."
    (popped,) = observer.all("session:pop")
    assert popped.is_error
    assert ("limit", "turn.model_calls") in {
        (x.outcome, x.reason) for x in observer.all("session:end")
    }
