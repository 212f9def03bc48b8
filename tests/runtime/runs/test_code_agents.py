"""Code agents: an async function is an agent, its run an actor (R-01, R-02, R-06)."""

from datetime import date
from typing import Any

import anyio
import pytest
from msgspec import Struct
from support.agents import Observer, assert_one_life, echo_model, model_agent

from hubbub import AgentDefinition, CustomEvent, RunContext, Runtime, agent
from hubbub.hub.errors import BadValue, DefinitionError, RunFailed, UnknownAgent
from hubbub.hub.events import AgentStatus, AgentText
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal

pytestmark = pytest.mark.anyio


class Order(Struct):
    item: str
    amount: int = 1
    due: date | None = None


@pytest.mark.spec("R-01", "R-06")
async def test_an_async_function_is_an_agent(journal: Journal, ports: Ports) -> None:
    seen: list[Any] = []

    async def execute(input: str, ctx: RunContext) -> str:
        seen.append((input, ctx.run_id, ctx.hub.hub is runtime.hub))
        return input.upper()

    definition = AgentDefinition(name="upper", execute=execute)
    assert definition.emits_start_complete is False
    async with Runtime([definition], store=journal, ports=ports) as runtime:
        assert await runtime.executable("upper").execute("hello") == "HELLO"
        run = await runtime.start("upper", "again")
        assert (await run.result()).output == "AGAIN"
    assert seen[0][0::2] == ("hello", True)
    assert seen[1] == ("again", run.run_id, True)


@pytest.mark.spec("R-01")
async def test_the_decorator_makes_the_same_definition(journal: Journal, ports: Ports) -> None:
    @agent("greet", emits_start_complete=True, on_restart="resume")
    async def greet(input: str, ctx: RunContext) -> str:
        """Says hello."""
        return f"hello {input}"

    assert isinstance(greet, AgentDefinition)
    assert (greet.name, greet.emits_start_complete, greet.on_restart) == ("greet", True, "resume")
    assert greet.description == "Says hello."
    async with Runtime([greet], store=journal, ports=ports) as runtime:
        assert await runtime.executable(greet).execute("Ada") == "hello Ada"


@pytest.mark.spec("R-01")
@pytest.mark.parametrize(
    "value", [None, 7, 1.5, True, "text", [1, [2]], {"a": {"b": None}}, b"bytes"], ids=repr
)
async def test_input_and_output_are_what_msgspec_encodes(
    value: Any, journal: Journal, ports: Ports
) -> None:
    @agent("same")
    async def same(input: Any, ctx: RunContext) -> Any:
        return input

    async with Runtime([same], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("same", value)
    expected = "Ynl0ZXM=" if value == b"bytes" else value
    assert outcome.output == expected


@pytest.mark.spec("R-01")
async def test_an_input_has_the_type_that_the_function_declares(
    journal: Journal, ports: Ports
) -> None:
    @agent("order")
    async def order(input: Order, ctx: RunContext) -> Order:
        assert isinstance(input, Order)
        return Order(item=input.item, amount=input.amount + 1, due=input.due)

    async with Runtime([order], store=journal, ports=ports) as runtime:
        made = await runtime.executable("order").execute(Order("tea", due=date(2026, 1, 2)))
        assert made == {"item": "tea", "amount": 2, "due": "2026-01-02"}
        assert (await runtime.run("order", {"item": "tea"})).output["amount"] == 2
        for misfit in ({"item": 7}, {}, "tea"):
            with pytest.raises(BadValue, match="input of order"):
                await runtime.start("order", misfit)


@pytest.mark.spec("R-01")
async def test_what_cannot_be_encoded_is_refused_at_the_start(
    journal: Journal, ports: Ports
) -> None:
    ran = []

    @agent("any")
    async def any_(input: Any, ctx: RunContext) -> Any:
        ran.append(input)
        return object()

    async with Runtime([any_], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        for value in (object(), {1, object()}, float.__add__):
            with pytest.raises(BadValue, match="input"):
                await runtime.start("any", value)
        assert ran == []
        assert observer.events == []
        with pytest.raises(UnknownAgent, match="known agents: any"):
            await runtime.start("nobody")
        # An output cannot be known before: the run fails, its caller sees why.
        with pytest.raises(BadValue, match="output"):
            await runtime.executable("any").execute(1)
        (run_id,) = observer.run_ids
        assert assert_one_life(observer.events, run_id).outcome == "failed"


@pytest.mark.spec("R-01")
def test_a_definition_without_a_function_or_with_two_bodies_is_refused() -> None:
    async def execute(input: Any, ctx: RunContext) -> None: ...

    with pytest.raises(DefinitionError, match="give one of them"):
        AgentDefinition(name="none")
    side = model_agent(echo_model()).side_a
    with pytest.raises(DefinitionError, match="not both"):
        AgentDefinition(name="both", execute=execute, side_a=side)
    with pytest.raises(DefinitionError, match="an async function"):
        AgentDefinition(name="text", execute="execute")  # type: ignore[arg-type]


@pytest.mark.spec("R-02")
async def test_runs_of_one_agent_at_once_never_mix(journal: Journal, ports: Ports) -> None:
    @agent("worker")
    async def worker(input: int, ctx: RunContext) -> int:
        for number in range(5):
            ctx.hub.emit(CustomEvent.of("agent:worked", worker=input, number=number))
            await anyio.sleep((input * 7 + number * 3) % 5)
            ctx.say(f"{input}")
            # Whatever ids an agent makes up are overwritten.
            ctx.hub.emit(AgentStatus(status=f"{input}", run_id="somebody-else", agent="boss"))
        return input

    async with Runtime([worker], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        runs = [await runtime.start("worker", number) for number in range(8)]
        for number, run in enumerate(runs):
            assert (await run.result()).output == number
    assert len({run.run_id for run in runs}) == 8
    assert observer.run_ids == {run.run_id for run in runs}
    for number, run in enumerate(runs):
        own = observer.of(run.run_id)
        assert_one_life(own, run.run_id)
        assert {x.agent for x in own} == {"worker"}
        assert {x.text for x in own if isinstance(x, AgentText)} == {str(number)}
        assert {x.status for x in own if isinstance(x, AgentStatus)} == {str(number)}
        worked = [x.data for x in own if isinstance(x, CustomEvent)]
        assert worked == [{"worker": number, "number": n} for n in range(5)]


@pytest.mark.spec("R-06")
async def test_workflow_code_sees_a_name_and_execute(journal: Journal, ports: Ports) -> None:
    @agent("double")
    async def double(input: int, ctx: RunContext) -> int:
        return input * 2

    @agent("broken")
    async def broken(input: str, ctx: RunContext) -> None:
        raise ZeroDivisionError(input)

    async with Runtime([double, broken], store=journal, ports=ports) as runtime:
        executable = runtime.executable(double)
        assert executable.name == "double"
        assert [await executable.execute(n) for n in (1, 2)] == [2, 4]
        with pytest.raises(ZeroDivisionError, match="why"):
            await runtime.executable("broken").execute("why")
        with pytest.raises(UnknownAgent):
            runtime.executable("nobody")


@pytest.mark.spec("R-06")
async def test_executing_a_model_agent_is_one_session_and_then_the_terminal_event(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        assert await runtime.executable("assistant").execute("one") == "echo: one"
        (run_id,) = observer.run_ids
        end = assert_one_life(observer.events, run_id)
        assert (end.outcome, end.output) == ("completed", "echo: one")
        assert len(observer.all("session:end")) == 1


@pytest.mark.spec("R-06")
async def test_execute_raises_for_every_other_ending_than_success(
    journal: Journal, ports: Ports
) -> None:
    @agent("long")
    async def long(input: None, ctx: RunContext) -> None:
        await anyio.sleep_forever()

    async with Runtime([long], store=journal, ports=ports) as runtime:
        runtime.hub.subscribe(
            "agent:start", lambda event: runtime.hub.terminate(event.run_id, "enough")
        )
        with pytest.raises(RunFailed, match="enough") as caught:
            await runtime.executable("long").execute()
        assert caught.value.outcome == "terminated"
