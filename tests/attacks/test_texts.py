"""Hostile texts through every public entry: whoever sends one is told, and nobody else notices.

The entries are found by introspection.  A new public parameter that takes text is attacked by
itself; one whose kind this module does not know fails it, until it is put where it belongs.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import anyio
import msgspec
import pytest
from support.signatures import signature_of

from attacks.hostile_texts import HALF, NUL, World, echo, opened
from hubbub import (
    AgentDefinition,
    CustomEvent,
    Hub,
    Message,
    PromptDefinition,
    RunState,
    Runtime,
    ScriptedModel,
    SessionToolBinding,
    SideConfig,
    Skill,
    SubagentToolConfig,
    agent,
    external_tool,
    tool,
)  # fmt: skip
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.hub.errors import (
    BadPath,
    BadPattern,
    BadValue,
    DefinitionError,
    ReservedEvent,
    VariablesRefused,
)  # fmt: skip
from hubbub.hub.events import CATALOGUE, Event, HistoryCall, HistoryMessage
from hubbub.hub.ports import Ports
from hubbub.hub.run_hub import RunHub
from hubbub.hub.store.journal import Journal, RequestKey
from hubbub.runtime.activities.files import FileArea, KeyArea
from hubbub.runtime.activities.thread_state import ThreadState
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.runs.context import RunContext
from hubbub.runtime.schedules.schedules import Cron, Heartbeat, HeartbeatTask

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-01")]

REFUSALS = (BadValue, BadPath, BadPattern, DefinitionError, VariablesRefused)
"""How a call says that it takes no such text."""

LABELS = frozenset((
    "address", "after", "agent", "agent_id", "agent_name", "before", "call_id", "correlation_id",
    "folder", "key", "kind", "new_run_id",
    "name", "parent_run_id", "path", "pattern", "prompt_id", "reference", "request", "request_id",
    "root_run_id", "run_id", "session_key", "source", "strategy", "type_", "types",
))  # fmt: skip
"""Parameters that name something: NUL is refused, too."""

TEXTS = frozenset((
    "arguments", "content", "default", "descriptor", "env", "fields", "history", "input", "message",
    "metadata", "model", "options", "prompt", "question", "reason", "status", "system", "text",
    "value", "values",
))  # fmt: skip
"""Parameters that say something."""

OTHERS = frozenset((
    "args", "buffer", "enders", "event", "fn", "given", "handler", "idle_timeout", "is_error",
    "is_new", "kwargs", "limit", "limits", "lossless", "max_steps", "number", "settings", "once",
    "owner", "parallel_tool_calls", "part", "partial", "redelivered", "result", "run_ids",
    "schema", "error", "timeout", "seq", "tools", "type", "until",
))  # fmt: skip
"""Parameters that take no text of their own; what events hold is attacked by itself."""

HARMLESS = {
    "KeyArea.get(default)": "it is given back as it is",
    "Hub.has(type_)": "it looks whether anybody listens, and keeps nothing",
    "Hub.has(run_id)": "as above",
    "Hub.has(root_run_id)": "as above",
    "RunHub.has(type_)": "as above",
    "RunContext.spawn(input)": "the child's, like start",
}


def sane(parameter: str, world: "World") -> Any:
    """A value that a call takes, for the parameters that are not under attack."""
    known: dict[str, Any] = {
        "address": "runtime", "agent": "echo", "agent_name": "echo", "arguments": {},
        "content": "hello",
        "event": CustomEvent.of("test:sane"), "fn": lambda: 1, "handler": lambda event: None,
        "key": "key", "kind": "test:sane", "limits": None,
        "message": "hello", "model": ScriptedModel(["hi"]), "name": "NAME",
        "owner": None, "parent_run_id": world.other, "path": "a.txt", "pattern": "test:sane",
        "prompt_id": "none", "question": "statistics", "reference": "none", "request_id": "none",
        "run_id": world.other, "status": "busy", "strategy": "heartbeat", "text": "hello",
        "type_": "test:sane", "until": lambda event: True, "value": "value", "values": {},
    }  # fmt: skip
    if parameter not in known:
        raise AssertionError(f"teach this module a sane value for the parameter {parameter!r}")
    return known[parameter]


def hostile(parameter: str, text: str) -> Iterator[Any]:
    """What an attacker gives for a parameter."""
    match parameter:
        case "arguments" | "metadata":
            yield from ({"a": text}, {"a": [text]}, {text: 1})
        case "env" | "values":
            yield {"NAME": text}
            yield {text: "value"}
        case "history":
            yield [{"role": "user", "content": text}]
            yield [{"role": text, "content": "hi"}]
            yield [HistoryMessage(content=text)]
            for call_ in (
                HistoryCall(name=text), HistoryCall(name="t", output=text),
                HistoryCall(name="t", arguments=text),
            ):  # fmt: skip
                yield [HistoryMessage(role="assistant", calls=(call_,))]
        case "options" | "types":
            yield [text]
        case "fields":
            yield {"agent": text}
        case "input" | "value":
            yield from (text, {"a": [text]}, {text: 1})
            if parameter == "input":
                yield Message(text)
                yield Message("hi", key=text)
        case "message":
            yield from (text, Message(text), Message("hi", key=text), Message("hi", role=text))
            yield Message("hi", metadata={"a": text})
            yield Message("hi", attachments=(text,))
        case "descriptor":
            yield {"type": "user", "connector": text, "userId": "u", "channelId": "c"}
        case "request":
            yield from (RequestKey(text), RequestKey("name", text), RequestKey(3), text)
        case "pattern" | "kind":
            yield from (text, [text])
        case _:
            yield text


# ── every method of every object that users hold ─────────────────────────────────────────────


LEFT_OUT = {
    "aclose", "close", "set_owner", "delivery", "deliveries", "linger", "changed",
    "progressed", "remember_error", "remember_return", "run_ended", "check_store",
    "is_mail_under_way", "cursor", "execute", "wait_release", "has_read",
}  # fmt: skip
"""Methods without texts, or of hubbub's own rooms for each other."""


def methods(kind: type) -> Iterator[tuple[str, inspect.Signature]]:
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and name not in LEFT_OUT:
            yield name, signature_of(function)


def attacked(kind: type) -> Iterator[tuple[str, str]]:
    """Each method of a class with each parameter that takes text."""
    for name, signature in methods(kind):
        for parameter in list(signature.parameters)[1:]:
            known = (parameter in LABELS) + (parameter in TEXTS) + (parameter in OTHERS)
            assert known == 1, f"{kind.__name__}.{name}({parameter}): say whether it takes text"
            is_forwarded = signature.parameters[parameter].kind is inspect.Parameter.VAR_KEYWORD
            if parameter not in OTHERS and not (is_forwarded and parameter == "options"):
                yield name, parameter


async def attack(world: World, holder: Any, name: str, parameter: str) -> None:
    """Every hostile text for one parameter; each must be refused at the call."""
    kind = type(holder)
    where = f"{kind.__name__}.{name}({parameter})"
    signature = dict(methods(kind))[name]
    for text in (HALF, NUL) if parameter in LABELS else (HALF,):
        for value in hostile(parameter, text):
            given: dict[str, Any] = {}
            for each in list(signature.parameters.values())[1:]:
                if each.name == parameter or each.kind is each.VAR_POSITIONAL:
                    continue
                if each.default is each.empty and each.kind is not each.VAR_KEYWORD:
                    given[each.name] = sane(each.name, world)
            error = await refusal(holder, name, signature, parameter, value, given)
            if where not in HARMLESS:
                assert isinstance(error, REFUSALS), f"{where}: {value!r} gave {error!r}"


async def refusal(
    holder: Any, name: str, signature: inspect.Signature, parameter: str, value: Any,
    given: dict[str, Any],
) -> Exception | None:  # fmt: skip
    """What a call raises; ``None`` where it takes what it is given."""
    positional = [
        value if each.name == parameter else given.pop(each.name)
        for each in list(signature.parameters.values())[1:]
        if each.kind is each.POSITIONAL_ONLY and (each.name == parameter or each.name in given)
    ]
    attacked_kind = signature.parameters[parameter].kind
    if attacked_kind is inspect.Parameter.VAR_KEYWORD:
        given |= value
    elif attacked_kind is not inspect.Parameter.POSITIONAL_ONLY:
        given[parameter] = value
    try:
        with anyio.move_on_after(5):
            answer = getattr(holder, name)(*positional, **given)
            if hasattr(answer, "__aenter__"):
                async with answer:
                    return None
            if hasattr(answer, "__enter__"):
                with answer:
                    return None
            if inspect.isawaitable(answer):
                await answer
    except Exception as error:
        return error
    return None


HELD: Mapping[type, str] = {
    Hub: "hub", Runtime: "runtime", Run: "run", RunContext: "code", RunHub: "code",
    ThreadState: "tool", FileArea: "tool", KeyArea: "tool",
}  # fmt: skip


@pytest.mark.parametrize("kind", HELD, ids=lambda kind: kind.__name__)
async def test_every_call_refuses_what_is_no_text(kind: type, store: Journal, ports: Ports) -> None:
    problems: list[str] = []

    async def attack_all(world: World, holder: Any) -> None:
        for name, parameter in attacked(kind):
            try:
                await attack(world, holder, name, parameter)
            except AssertionError as error:
                problems.append(str(error))
        await world.is_well()

    worlds: list[World] = []

    @agent("attacker")
    async def attacker(input: Any, ctx: Any) -> None:
        await attack_all(worlds[0], ctx if kind is RunContext else ctx.hub)

    @tool
    async def attack_from_within(state: RunState) -> str:
        """Attack."""
        holders = {ThreadState: state, FileArea: state.files, KeyArea: state.kv}
        await attack_all(worlds[0], holders[kind])
        return "done"

    model = ScriptedModel([reply("", call("attack_from_within")), "over"])
    prompt = PromptDefinition(name="p", prompt="", model=model, tools=[attack_from_within])
    bot = AgentDefinition(name="bot", side_a=SideConfig(prompt=prompt))
    async with opened(store, ports, attacker, bot) as world:
        worlds.append(world)
        match HELD[kind]:
            case "hub":
                await attack_all(world, world.rt.hub)
            case "runtime":
                await attack_all(world, world.rt)
            case "run":
                await attack_all(world, await world.rt.start("other"))
            case "code":
                assert (await world.rt.run("attacker")).success
            case _:
                assert (await world.rt.run("bot", "go")).output == "over"
        await world.is_well()
    assert not problems, "\n".join(problems)


# ── every event ──────────────────────────────────────────────────────────────────────────────


def is_refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (*REFUSALS, ReservedEvent):
        return True
    return False


def hostile_events() -> Iterator[tuple[str, Event]]:
    for kind in CATALOGUE:
        for field in msgspec.structs.fields(kind):
            where = f"{kind.__name__}.{field.name}"
            if field.type is str or str(field.type) == "str | None":
                yield where, kind(**{field.name: HALF})
            elif str(field.type) == "tuple[str, ...]":
                yield where, kind(**{field.name: (HALF,)})
            elif field.type is msgspec.Raw:
                for raw in (b'"\\ud800"', b"{oops", b'"\xff"'):
                    yield where, kind(**{field.name: msgspec.Raw(raw)})
            elif field.type is int:
                yield where, kind(**{field.name: "no number"})
    yield "CustomEvent.run_id", CustomEvent(name="test:x", run_id=HALF)
    yield "CustomEvent.name", CustomEvent(name=HALF)
    yield "CustomEvent.name", CustomEvent(name=NUL)
    yield "CustomEvent.data", CustomEvent(name="test:x", data_json=msgspec.Raw(b'"\\ud800"'))


async def test_every_event_is_looked_at_where_it_is_emitted(store: Journal, ports: Ports) -> None:
    async with opened(store, ports) as world:
        for where, event in hostile_events():
            is_kept = event.home != "none" or isinstance(event, CustomEvent)
            # What nobody keeps may hold what JSON cannot, but its texts are texts.
            if is_kept or HALF in msgspec.structs.astuple(event):
                assert is_refused(lambda: world.rt.hub.emit(event)), where  # noqa: B023
        assert is_refused(lambda: CustomEvent.of("test:x", a=HALF))
        await world.is_well()


# ── every definition ─────────────────────────────────────────────────────────────────────────


def definitions() -> Mapping[type, dict[str, Any]]:
    """What definitions are made of, each with what it needs."""
    return {
        AgentDefinition: {"name": "a", "side_a": SideConfig(prompt="p")},
        PromptDefinition: {"name": "p", "prompt": "x", "model": "m"},
        SubagentToolConfig: {"name": "a", "blocking": True},
        Skill: {"name": "s", "description": "d", "instructions": "i"},
    }


@pytest.mark.parametrize("kind", definitions(), ids=lambda kind: kind.__name__)
def test_every_definition_refuses_what_is_no_text(kind: Any) -> None:
    for field in msgspec.structs.fields(kind):
        for value in (HALF, (HALF,), {"a": HALF}, {HALF: 1}):
            given = {**definitions()[kind], field.name: value}
            made: list[Any] = []
            is_told = is_refused(lambda: made.append(kind(**given)))  # noqa: B023
            # A mapping given for a list is read as its keys.
            assert is_told or "ud800" not in ascii(made), f"{kind.__name__}.{field.name}: {value!r}"


def test_parts_of_definitions_are_looked_at_too() -> None:
    def nothing(state: Any, value: Any) -> None: ...

    async def act(text: str) -> str:
        return text

    side = SideConfig(prompt="p", label=HALF)
    bound = SideConfig(prompt="p", session_stop=SessionToolBinding("t", HALF))
    attempts: list[Callable[[], object]] = [
        lambda: AgentDefinition(name="a", side_a=side),
        lambda: AgentDefinition(name="a", side_a=bound),
        lambda: agent(HALF)(act),
        lambda: Hook(HALF, "filter_messages", nothing),
        lambda: tool(act, name=HALF),
        lambda: tool(act, description=HALF),
        lambda: tool(act, variables=[VariableDefinition(name="A", description=HALF)]),
        lambda: external_tool(HALF),
        lambda: external_tool("pick", description=HALF),
        lambda: external_tool("pick", {"type": "object", "properties": {HALF: {}}}),
        lambda: external_tool("pick", {"type": "object", "title": HALF}),
        lambda: Runtime([echo], env={"A": HALF}, store="memory"),
        lambda: Runtime([echo], models={HALF: ScriptedModel([])}, store="memory"),
        lambda: Runtime([echo], default_agent=HALF, store="memory"),
        lambda: Runtime([echo], store=f"sqlite:{NUL}"),
        lambda: Runtime([echo], schedules=[Cron(HALF, "* * * * *", "echo", "x")], store="memory"),
        lambda: Runtime([echo], schedules=[Cron("c", "* * * * *", "echo", HALF)], store="memory"),
        lambda: Runtime([echo], schedules=[Heartbeat("echo", [HALF])], store="memory"),
        lambda: Runtime(
            [echo], schedules=[Heartbeat("echo", [HeartbeatTask("t", HALF)])], store="memory"
        ),
    ]
    for number, attempt in enumerate(attempts):
        assert is_refused(attempt), number


def test_a_harmless_parameter_is_one_that_there_is() -> None:
    there = {f"{kind.__name__}.{m}({p})" for kind in HELD for m, p in attacked(kind)}
    assert set(HARMLESS) <= there
