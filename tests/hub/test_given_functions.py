"""One rule wherever a function is given: what is async is awaited, what yields is refused, and a
plain one that returns a coroutine is reported.  Nothing is passed over in silence."""

import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import Any, Final

import anyio
import pytest
from support.agents import Observer

from hubbub import Agent, Hub, RunContext, RunState, Runtime, ScriptedModel, agent, tool
from hubbub.agents.definitions.hooks import Hook
from hubbub.channels import Channel, Channels
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, CallerError, DefinitionError
from hubbub.hub.ports import Ports
from hubbub.testing import ctx_for, run_code, state_for

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-01")]

Called = list[str]
Make = Callable[[Called], Callable[..., Any]]


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def an_async_one(called: Called) -> Callable[..., Any]:
    async def handle(*_: Any) -> None:
        called.append("")

    return handle


def an_object(called: Called) -> Callable[..., Any]:
    class Handler:
        async def __call__(self, *_: Any) -> None:
            called.append("")

    return Handler()


ASYNC: Final[dict[str, Make]] = {
    "async def": an_async_one,
    "partial": lambda called: partial(an_async_one(called), 1),
    "object": an_object,
    "method": lambda called: an_object(called).__call__,  # type: ignore[operator]
    "decorated": lambda called: passed_on(an_async_one(called)),
    "decorated twice": lambda called: passed_on(partial(passed_on(an_async_one(called)), 1)),
}


async def yields_later(*_: Any) -> AsyncIterator[int]:
    yield 1


def yields(*_: Any) -> Iterator[int]:
    yield 1


YIELDING: Final = (
    yields_later, yields, partial(yields, 1), passed_on(yields_later), passed_on(yields),
)  # fmt: skip


@pytest.mark.parametrize("make", ASYNC.values(), ids=ASYNC)
async def test_an_async_listener_is_awaited_however_it_is_dressed(make: Make, ports: Ports) -> None:
    called: Called = []
    async with Hub(ports=ports) as hub:
        seen = Observer(hub)
        hub.subscribe("agent:*", make(called))
        await hub.publish(e.AgentText(text="a"))
        await anyio.wait_all_tasks_blocked()
        assert called == [""]
        assert not [x for x in seen.events if x.type == "hub:error"]


async def test_a_plain_listener_that_returns_a_coroutine_is_reported_and_named(
    ports: Ports,
) -> None:
    called: Called = []
    post = an_async_one(called)
    async with Hub(ports=ports) as hub:
        seen = Observer(hub)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            hub.subscribe("agent:*", lambda event: post(event))
            hub.subscribe("agent:*", lambda event: yields_later(event))
            await hub.publish(e.AgentText(text="a"))
        reports = [x for x in seen.events if isinstance(x, e.HubErrorEvent)]
        assert [x.error for x in reports] == [
            "it returned a coroutine, which nobody awaits; make it `async def`",
            "it returned a generator, which nobody goes through; make it `async def`",
        ]
        assert all("<lambda>" in x.listener for x in reports)
        assert called == []


async def test_a_plain_listener_may_return_what_runs_by_itself(ports: Ports) -> None:
    async with Hub(ports=ports) as hub:
        seen = Observer(hub)
        given: list[Any] = []
        hub.subscribe("agent:*", lambda event: given.append(hub.send_to("nobody", "x")) or given[0])
        hub.subscribe("agent:*", lambda event: "a value")
        await hub.publish(e.AgentText(text="a"))
        assert len(given) == 1
        assert not [x for x in seen.events if x.type == "hub:error"]


async def test_a_runs_own_listener_that_returns_a_coroutine_is_reported(ports: Ports) -> None:
    async def post() -> None: ...

    @agent("listens")
    async def listens(input: str, ctx: RunContext) -> None:
        ctx.hub.subscribe(("session:message", "agent:status"), lambda event: post())
        ctx.status("busy")

    async with Runtime([listens], store="memory", ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.run("listens", "x")
        errors = [x.error for x in seen.events if isinstance(x, e.HubErrorEvent)]
        assert errors == ["it returned a coroutine, which nobody awaits; make it `async def`"]


@pytest.mark.parametrize("wrong", YIELDING)
async def test_what_yields_is_refused_where_it_is_given(wrong: Any, ports: Ports) -> None:
    async with Hub(ports=ports) as hub:
        for subscribe in (
            lambda: hub.subscribe("agent:*", wrong),
            lambda: hub.subscribe("agent:*", wrong, after="start"),
            lambda: hub.serve("svc", wrong),
        ):
            with pytest.raises(BadValue, match=r"yields, so a call of it does nothing"):
                subscribe()
        with pytest.raises(BadValue, match="until: expected a plain function of an event"):
            hub.subscribe_until("agent:*", wrong)
    for define in (
        lambda: Channel("c", {"agent:*": wrong}),
        lambda: Channel("c", on_start=wrong),
        lambda: Channel("c", on_complete=wrong),
        lambda: Channel("c", after=wrong),
        lambda: Channel("c", state=wrong),
        lambda: Hook("h", "after_session", wrong),
        lambda: tool(approval=wrong)(looks_up),
    ):
        with pytest.raises(DefinitionError, match="yields"):
            define()


def looks_up() -> str:
    """Look it up."""
    return ""


async def test_what_is_asked_for_at_once_is_no_async_function(ports: Ports) -> None:
    async def later(*_: Any) -> bool:
        return True

    with pytest.raises(DefinitionError, match="state: expected a plain function"):
        Channel("c", state=later)
    async with Hub(ports=ports) as hub:
        with pytest.raises(BadValue, match="until: expected a plain function of an event"):
            hub.subscribe_until("agent:*", later)  # type: ignore[arg-type]


def in_a_lambda(called: Called) -> Callable[..., Any]:
    post = an_async_one(called)
    return lambda *_: post()


@pytest.mark.parametrize("make", [*ASYNC.values(), in_a_lambda])
async def test_channels_hooks_services_tools_and_steps_await_them_too(
    make: Make, ports: Ports
) -> None:
    called: Called = []
    given = make(called)

    @agent("works")
    async def works(input: str, ctx: RunContext) -> None:
        await ctx.step("one", given)
        await ctx.hub.ask("svc", "?")

    chats = Agent(
        "chats", "Help.", model=ScriptedModel(["Hello."]),
        hooks=["h"],
    )  # fmt: skip
    hook = Hook("h", "before_create_message", given)
    async with Runtime([works, chats], hooks=[hook], store="memory", ports=ports) as rt:
        rt.hub.serve("svc", given)
        channel = Channel("c", {"session:end": given}, on_start=given, on_complete=given)
        assert (await rt.run("works", "x")).success
        assert len(called) == 2
        async with Channels(rt.hub, channel):
            assert len(called) == 3
            assert (await rt.run("chats", "x")).success
            await anyio.wait_all_tasks_blocked()
            assert len(called) >= 5
            before = len(called)
        assert len(called) == before + 1


async def test_a_unit_test_awaits_the_stand_ins_of_children_and_no_answers(ports: Ports) -> None:
    @agent("asks")
    async def asks(input: str, ctx: RunContext) -> Any:
        return (await ctx.spawn("judge", input).result()).output

    async def judge(said: Any) -> str:
        return f"judged {said}"

    async with ctx_for(children={"judge": judge}) as ctx:
        assert await run_code(asks, "x", ctx) == "judged x"

    async def ask(state: RunState) -> str:
        return await state.ask("Which?")

    with pytest.raises(CallerError, match="returned a coroutine"):
        async with state_for(answers=judge) as state:
            await ask(state)
