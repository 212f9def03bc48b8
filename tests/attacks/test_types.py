"""Values of wrong types in structs that users build: refused where they enter, or readable.

Structs, fields and parameters are found by introspection, and wrong values are drawn by what a
field is declared to be: a new one is attacked by itself.
"""

import contextlib
import enum
import inspect
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Struct, structs
from support.profiles import portion

from attacks.hostile_texts import HALF, World, opened
from attacks.test_texts import HELD, methods, refusal, sane
from hubbub import (
    AgentDefinition,
    Message,
    PromptDefinition,
    RunState,
    ScriptedModel,
    SideConfig,
    agent,
    tool,
)
from hubbub.agents import model as models
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.tools import ToolError, ToolResult
from hubbub.agents.model import (
    AssistantMessage,
    CallDelta,
    ModelReply,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    Usage,
    UserMessage,
)
from hubbub.hub.errors import HubbubError, ModelUnavailable
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event, encode_event
from hubbub.hub.events.descriptors import (
    CronDescriptor,
    HeartbeatDescriptor,
    SubagentDescriptor,
    UserDescriptor,
)
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01", "G-07")]


@pytest.fixture(autouse=True)
def store_is_found_well(tmp_path: Path) -> Iterator[None]:
    """By the check of a store, once it is closed."""
    yield
    if (tmp_path / "store").exists():
        assert not list(StoreCheck(f"sqlite:{tmp_path / 'store'}").problems())


class Word(enum.Enum):
    A = "a"


class Text(str):
    """Of a library's own kind."""


VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 2**63, -(2**80), 0.5, 12.0, float("nan"), float("inf"), "", "yes", "12",
    Text("x"), HALF, b"x", bytearray(b"x"), Decimal(5), Word.A, [], ["x"], (), (5,), ("x",),
    (None,), {}, {"a": 1}, {5}, object(), Usage(), Usage, msgspec.Raw(b'{"a":'),
    [msgspec.Raw(b"nul")], {"a": msgspec.Raw(b'"\xff"')},
)  # fmt: skip


def wrong_values(kind: Any) -> Iterator[Any]:
    """Those of ``VALUES`` that are none of a field's; where anything goes, all."""
    for value in VALUES:
        try:
            is_right = kind is not Any and msgspec.convert(value, kind) == value
        except Exception:
            is_right = False
        if not is_right or value == HALF:
            yield value


def spoilt(given: Struct) -> Iterator[tuple[str, Any]]:
    """``given`` with each field of each wrong value, for people of some, and what is wrong."""
    kind = type(given)
    for field in structs.fields(kind):
        for value in portion((*wrong_values(field.type), -1, 2**63)):
            parts = {each: getattr(given, each) for each in kind.__struct_fields__}
            yield f"{kind.__name__}.{field.name}={value!r}", kind(**{**parts, field.name: value})


async def everything_can_be_read(world: World) -> None:
    """What is in the journal comes back as it was said, and others go on."""
    for event in await world.rt.hub.read():
        assert decode_event(encode_event(event)) == event
    for run_id in {event.run_id for event in await world.rt.hub.read() if event.lane == "own"}:
        await world.rt.hub.journal.load(run_id)
    await world.is_well()


# ── what models say ──────────────────────────────────────────────────────────────────────────


def spoilt_replies() -> Iterator[tuple[str, ModelReply]]:
    whole = ModelReply(text="hi")
    yield from spoilt(whole)
    for what, usage in spoilt(Usage()):
        yield what, structs.replace(whole, usage=usage)
    for what, block in spoilt(Thinking(text="hm")):
        yield what, structs.replace(whole, thinking=(block,))
    for what, made in spoilt(ToolCall(name="t")):
        yield what, structs.replace(whole, calls=(made,))


class Odd:
    """A model that says or raises what it is given, once, and then speaks sense."""

    name = "odd"

    def __init__(self) -> None:
        self.answers: list[Any] = []

    async def call(self, request: Any, on_delta: Any = None) -> ModelReply:
        if not self.answers:
            return ModelReply(text="sense")
        answer = self.answers.pop()
        if isinstance(answer, BaseException):
            raise answer
        if on_delta is not None and isinstance(answer, models.Delta):
            on_delta(answer)
            return ModelReply(text="sense")
        return answer  # type: ignore[no-any-return]


async def said_of(model: Odd, answers: Iterator[tuple[str, Any]], world: World) -> dict[str, str]:
    """How a turn ends with each answer, in a conversation that then goes on."""
    ended: dict[str, str] = {}
    for number, (what, answer) in enumerate(answers):
        with anyio.fail_after(30):
            if number % 10 == 0:
                run = await world.rt.start("bot", "go")
                await run.result()
            model.answers = [answer]
            assert (await run.send("again")).accepted, what
            ended[what] = (await run.result()).outcome
            assert (await run.send("and now?")).accepted, what
            assert (await run.result()).output == "sense", what
    return ended


def bot_of(model: Any, **prompt: Any) -> AgentDefinition:
    given = PromptDefinition(name="p", prompt="", model=model, **prompt)
    return AgentDefinition(name="bot", side_a=SideConfig(prompt=given))


async def test_what_a_model_replies_is_of_its_form_or_fails_the_step(
    store: Journal, ports: Ports
) -> None:
    model = Odd()
    async with opened(store, ports, bot_of(model)) as world:
        ended = await said_of(model, spoilt_replies(), world)
        of_usage = [what for what in ended if what.startswith("Usage.")]
        assert of_usage and all(ended[what] == "failed" for what in of_usage)
        await everything_can_be_read(world)


async def test_what_a_model_raises_is_of_its_form_or_fails_the_step(
    store: Journal, ports: Ports
) -> None:
    def errors() -> Iterator[tuple[str, Exception]]:
        for value in portion(VALUES):
            for name in ("kind", "status", "retry_after"):
                error = ModelUnavailable("odd", "server", "no")
                setattr(error, name, value)  # Most are refused where it is made.
                error.retryable = False
                yield f"{name}={value!r}", error
            error = ModelUnavailable("odd", "server", "no")
            error.retryable = value
            if not value or not isinstance(value, bool):
                yield f"retryable={value!r}", error

    model = Odd()
    async with opened(store, ports, bot_of(model)) as world:
        await said_of(model, errors(), world)
        await everything_can_be_read(world)


async def test_pieces_of_an_answer_that_are_none_are_left_out(store: Journal, ports: Ports) -> None:
    def deltas() -> Iterator[tuple[str, Any]]:
        for each in (TextDelta("x"), ThinkingDelta("x"), CallDelta(0, "t", "x")):
            yield from spoilt(each)

    model = Odd()
    heard: list[Event] = []
    async with opened(store, ports, bot_of(model)) as world:
        world.rt.hub.subscribe(["agent:text:delta", "agent:thinking:delta"], heard.append)
        await said_of(model, deltas(), world)
        for event in heard:
            assert decode_event(encode_event(event)) == event
        await everything_can_be_read(world)


# ── what tools and hooks return ──────────────────────────────────────────────────────────────


async def test_what_a_tool_returns_is_of_its_form_or_an_error_result(
    store: Journal, ports: Ports
) -> None:
    results: list[ToolResult] = []

    @tool
    async def act() -> Any:
        """Act."""
        return results.pop()

    async with opened(
        store, ports, bot_of(ScriptedModel([call("act"), "x"], repeat=True), tools=[act])
    ) as world:
        for what, result in spoilt(ToolResult("fine")):
            results.append(result)
            outcome = await world.rt.run("bot", "go")
            assert outcome.output == "x", what
            (done,) = await world.rt.hub.read(outcome.run_id, types="agent:tool:complete")
            if "is_error" in what:
                assert done.is_error and "is_error must be a bool" in done.output  # type: ignore[attr-defined]
        await everything_can_be_read(world)


POINTS: Mapping[str, tuple[Struct, ...]] = {
    "before_store_tool_result": (ToolResult("fine"),),
    "after_tool_call_success": (ToolResult("fine"),),
    "before_create_message": (
        UserMessage(content="hi"), AssistantMessage(text="hi"),
        AssistantMessage(text="hi", thinking=(Thinking(text="hm"),)),
    ),
    "filter_messages": (UserMessage(content="hi"), AssistantMessage(text="hi")),
}  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
async def test_what_a_hook_returns_is_of_its_form_or_passed_over(
    point: str, store: Journal, ports: Ports
) -> None:
    values: list[Any] = []

    def replace(state: Any, given: Any) -> Any:
        if point == "filter_messages":
            return (*given, *values)
        return values[0] if type(given) is type(values[0]) else None

    @tool
    async def act() -> str:
        """Act."""
        return "done"

    hook = Hook("h", point, replace)  # type: ignore[arg-type]
    model = ScriptedModel([call("act"), "x"], repeat=True)
    bot = bot_of(model, tools=[act], hooks=["h"])
    async with opened(store, ports, bot, hooks=[hook]) as world:
        for given in POINTS[point]:
            for what, value in spoilt(given):
                values[:] = [value]
                with anyio.fail_after(30):
                    assert (await world.rt.run("bot", "go")).success, what
        for what, block in spoilt(Thinking(text="hm")):
            values[:] = [AssistantMessage(text="hi", thinking=(block,))]
            with anyio.fail_after(30):
                assert (await world.rt.run("bot", "go")).success, what
        await everything_can_be_read(world)


# ── what is sent, and whom it is for ─────────────────────────────────────────────────────────


async def test_what_is_sent_is_of_its_form_or_refused(store: Journal, ports: Ports) -> None:
    async with opened(store, ports, bot_of(ScriptedModel(["x"], repeat=True))) as world:
        hub = world.rt.hub
        for _, message in spoilt(Message("hi")):
            for say in (
                lambda: hub.send_to_run(world.other, message),  # noqa: B023
                lambda: hub.open("echo", message),  # noqa: B023
                lambda: world.rt.run("bot", message),  # noqa: B023
            ):
                with anyio.fail_after(30):
                    with contextlib.suppress(HubbubError):
                        await say()  # type: ignore[no-untyped-call]
        await everything_can_be_read(world)


async def test_a_descriptor_is_of_its_form_or_refused(store: Journal, ports: Ports) -> None:
    given = (
        UserDescriptor(connector="web", user_id="u", channel_id="c"), CronDescriptor(id="c"),
        HeartbeatDescriptor(), SubagentDescriptor(id="i", parent_agent_id="p", name="n"),
    )  # fmt: skip
    async with opened(store, ports) as world:
        for each in given:
            for _, descriptor in spoilt(each):
                with contextlib.suppress(HubbubError):
                    await world.rt.hub.open("echo", "x", descriptor=descriptor)
        await everything_can_be_read(world)


# ── every argument of every call ─────────────────────────────────────────────────────────────


INWARD = {"has", "open_prompt", "end_prompt"}
"""Calls of hubbub's own rooms, and one that only looks."""


def arguments(kind: type) -> Iterator[tuple[str, inspect.Signature, str, Any]]:
    for name, signature in methods(kind):
        for parameter in list(signature.parameters.values())[1:]:
            if parameter.kind is parameter.VAR_POSITIONAL:
                continue
            values: Any = wrong_values(parameter.annotation)
            if parameter.kind is parameter.VAR_KEYWORD:
                if name != "scoped":
                    continue
                fields = [f for f in structs.fields(Event) if f.name not in ("at", "lane", "seq")]
                values = [{f.name: v} for f in fields for v in wrong_values(f.type)]
            for value in values:
                yield name, signature, parameter.name, value


async def try_all(world: World, holder: Any) -> list[str]:
    """Every wrong value for every parameter; those that raised something of Python's own."""
    raw: list[str] = []
    kind = type(holder)
    for name, signature, parameter, value in arguments(kind):
        given: dict[str, Any] = {}
        for each in list(signature.parameters.values())[1:]:
            is_several = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
            if each.name != parameter and each.default is each.empty and not is_several:
                given[each.name] = sane(each.name, world)
        error = await refusal(holder, name, signature, parameter, value, given)
        known = isinstance(error, HubbubError | ToolError) or name in INWARD
        if error is not None and not known:
            raw.append(f"{kind.__name__}.{name}({parameter}={value!r}): {error!r}")
    return raw


@pytest.mark.parametrize("kind", HELD, ids=lambda kind: kind.__name__)
async def test_every_argument_is_of_its_type_or_refused(
    kind: type, store: Journal, ports: Ports
) -> None:
    worlds: list[World] = []
    raw: list[str] = []

    @agent("attacker")
    async def attacker(input: Any, ctx: Any) -> None:
        raw.extend(
            await try_all(
                worlds[0],
                ctx if HELD[kind] == "code" and kind.__name__ == "RunContext" else ctx.hub,
            )
        )

    @tool
    async def attack_from_within(state: RunState) -> str:
        """Attack."""
        holders = {"ThreadState": state, "FileArea": state.files, "KeyArea": state.kv}
        raw.extend(await try_all(worlds[0], holders[kind.__name__]))
        return "done"

    model = ScriptedModel([reply("", call("attack_from_within")), "over"])
    async with opened(store, ports, attacker, bot_of(model, tools=[attack_from_within])) as world:
        worlds.append(world)
        match HELD[kind]:
            case "hub":
                raw += await try_all(world, world.rt.hub)
            case "runtime":
                raw += await try_all(world, world.rt)
            case "run":
                raw += await try_all(world, await world.rt.start("other"))
            case "code":
                assert (await world.rt.run("attacker")).success
            case _:
                assert (await world.rt.run("bot", "go")).output == "over"
        await everything_can_be_read(world)
    assert not raw, "\n".join(raw)


RETRIED = {"text": True, "a call's name": False, "why it stopped": False}


@pytest.mark.parametrize("where", RETRIED)
async def test_only_words_that_are_no_text_are_worth_another_try(
    where: str, store: Journal, ports: Ports
) -> None:
    replies = {
        "text": ModelReply(text=HALF),
        "a call's name": ModelReply(calls=(ToolCall(name=HALF),)),
        "why it stopped": ModelReply(text="x", stop_reason=HALF),
    }
    model = Odd()
    model.answers = [replies[where]]
    async with opened(store, ports, bot_of(model)) as world:
        outcome = await world.rt.run("bot", "go")
        retries = await world.rt.hub.read(outcome.run_id, types="agent:retry")
    assert bool(retries) == outcome.success == RETRIED[where]
