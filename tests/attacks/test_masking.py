"""Values of variables and keys, in every form, wherever users' code and providers may fail.

Each place raises a chain of exceptions that quotes the value in every form: in messages, causes,
contexts, notes and members of groups.  Nothing of it may be in an event, dispatched or stored, or
in what is logged.
"""

import json
import logging
import reprlib
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pydantic
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.agents import Observer, model_agent
from support.profiles import examples
from support.secrets import FORMS, NASTY, in_every_form, leaks, texts_in

from attacks.hostile_exceptions import HOSTILE
from attacks.scale import scale
from hubbub import (
    AgentDefinition,
    RunState,
    Runtime,
    ScriptedModel,
    VariableDefinition,
    agent,
    tool,
)
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.tools import ToolError, ToolResult, render_failure
from hubbub.channels.attachment import Channels
from hubbub.channels.channel import Channel
from hubbub.hub.errors import ModelUnavailable
from hubbub.hub.events.codec import encode_event
from hubbub.hub.logs import log
from hubbub.hub.masking import LONG, MASK, MAX_CHARS, Masker, class_name_of
from hubbub.hub.masking.readings import MAX_WORK
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import call

G06 = pytest.mark.spec("G-06")

characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from("\"'\\/%+ &\n=é😀{}")
values = st.text(characters, min_size=6, max_size=60).filter(lambda v: len(v.strip()) >= 6)


# ── texts ────────────────────────────────────────────────────────────────────────────────────


@G06
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=scale(examples(25), 2000), deadline=None)
@given(value=values)
def test_a_value_is_masked_in_each_form_as_a_whole(form: str, value: str) -> None:
    mask = Masker([value])
    assume(mask("«:»") == "«:»")
    assert mask(f"«{FORMS[form](value)}»") == f"«{MASK}»"


@G06
@settings(max_examples=scale(examples(100), 5000), deadline=None)
@given(value=values, others=st.lists(values, max_size=5), noise=st.text(max_size=20))
def test_nothing_of_a_value_is_left_in_what_quotes_it(
    value: str, others: list[str], noise: str
) -> None:
    mask = Masker([*others, value])
    for text in in_every_form(value):
        assert not leaks(mask(f"{noise} {text} {noise}"), value)


@G06
@settings(max_examples=scale(examples(100), 5000), deadline=None)
@given(
    value=st.text("abcXYZ019_é-", min_size=14, max_size=60),
    kept=st.tuples(st.integers(LONG, 30), st.integers(LONG, 30)),
    dots=st.sampled_from(["...", "…", ".."]),
    noise=st.text("ab .", max_size=8),
)
def test_both_ends_of_a_value_that_was_cut_are_masked(
    value: str, kept: tuple[int, int], dots: str, noise: str
) -> None:
    cut = f"{value[: kept[0]]}{dots}{value[-kept[1] :]}"
    assert Masker([value])(f"{noise}'{cut}'{noise}") == f"{noise}'{MASK}{dots}{MASK}'{noise}"


@given(value=st.text(characters, min_size=60, max_size=600).filter(lambda v: len(v.strip()) >= 60),
       shown=st.integers(50, 600), form=st.sampled_from((str, repr, json.dumps)),
       after=st.sampled_from(("", "'", " is no number", "\n")))  # fmt: skip
@settings(max_examples=examples(200))
def test_nothing_is_left_of_a_long_value_that_was_cut_without_a_sign(
    value: str, shown: int, form: Callable[[str], str], after: str
) -> None:
    quoted = form(value[:shown])
    masked = Masker([value])(f"invalid: {quoted}{after}")
    assert value[:40] not in masked
    assert len(masked) < len("invalid: ") + len(MASK) + len(after) + 8


def test_what_python_quotes_of_a_value_that_is_no_number_is_masked() -> None:
    value = "".join(f"{chr(97 + i * 7 % 26)}{i % 10}" for i in range(150))
    with pytest.raises(ValueError, match="invalid literal") as raised:
        int(value)
    assert value[:190] in str(raised.value)
    masked = Masker([value])(str(raised.value))
    assert masked == f"invalid literal for int() with base 10: '{MASK}"


def test_a_value_that_repeats_itself_is_masked_in_bounded_time() -> None:
    values = ["a" * 1_000 + "b", "ab" * 500 + "c"]
    assert Masker(values)("a" * 100_000) == MASK
    assert Masker(values)("ab" * 50_000) == MASK


@G06
def test_what_pydantic_and_reprlib_quote_of_a_value_is_masked() -> None:
    value = "sk-ant-api03-Qw3rTyQw3rTyQw3rTyQw3rTyQw3rTyQw3rTyQw3rTyQw3rTy"

    class Login(pydantic.BaseModel):
        key: int

    with pytest.raises(pydantic.ValidationError) as caught:
        Login.model_validate({"key": value})
    for text in (str(caught.value), reprlib.repr(value), f"{reprlib.repr([value])}"):
        masked = Masker([value])(text)
        assert MASK in masked
        assert not any(value[at : at + LONG] in masked for at in range(len(value) - LONG))


@G06
@settings(max_examples=scale(examples(100), 5000), deadline=None)
@given(value=st.text("abcXYZ019_é", min_size=1, max_size=5))
def test_a_short_value_is_masked_where_it_is_a_token(value: str) -> None:
    mask = Masker([value])
    assert mask(f"({value})") == f"({MASK})"
    assert mask(f"the key {value!r} is wrong") == f"the key '{MASK}' is wrong"
    longer = f"-x{value}- -{value}x-"
    assert mask(longer) == longer


@G06
@settings(max_examples=scale(examples(50), 2000), deadline=None)
@given(value=values, at=st.integers(-80, 10))
def test_no_half_of_a_value_is_left_where_a_text_is_cut(value: str, at: int) -> None:
    assume(not set(value) & set(" .*"))
    text = "." * (300 + at) + FORMS["percent, all of it"](value) + " and so on"
    assert set(Masker([value])(text, 300)) <= set(".* andso")


@G06
def test_a_key_of_several_lines_is_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n  hkiG9w0BAQEFAASC\n}\n-----END KEY-----\n"
    mask = Masker([key])
    assert mask("line 3 is hkiG9w0BAQEFAASC") == f"line 3 is {MASK}"
    assert mask(repr(key.splitlines())).count("MIIE") == 0
    assert mask("{} is an empty dict") == "{} is an empty dict"


@G06
def test_what_is_blank_or_not_there_masks_nothing() -> None:
    text = "as it is: 100 % of it\n\n" + "x" * MAX_CHARS
    assert Masker(["", "       ", "\n"])(text) == text[:MAX_CHARS]
    error = ValueError("as it is")
    assert Masker([]).error(error) is error
    assert Masker(["s3cr3t-value"]).error(error) is error


@pytest.mark.parametrize(
    "piece",
    [
        "x",
        "\\x41%41\\\\",
        "\\x41%41+",
        "%25",
        "%255c%2541",
        "+a",
        "\\\\",
        "é%41+\\x41",
        "s3cr3t-valu",
        "QUFB\n",
    ],
)
def test_the_longest_texts_are_masked_in_bounded_time(piece: str) -> None:
    mask = Masker([NASTY, "s3cr3t-value"])
    text = piece * (MAX_CHARS // len(piece))
    calls = 0

    def count(_frame: object, what: str, _argument: object) -> None:
        nonlocal calls
        calls += what == "call"

    sys.setprofile(count)
    try:
        masked = mask(text)
    finally:
        sys.setprofile(None)
    assert MAX_CHARS // 100 < len(masked) <= MAX_CHARS
    assert calls < 3 * MAX_WORK, "each of them takes about a microsecond"


# ── exceptions ───────────────────────────────────────────────────────────────────────────────


class Broken(Exception):
    """A user's own exception, whose text is made when it is asked for."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __str__(self) -> str:
        return f"broken by {self.value!r}"


def wrong(value: str) -> Exception:
    """What quotes ``value`` in every form and place of an exception."""
    error: BaseException = KeyError(value)
    for number, text in enumerate(in_every_form(value)):
        new: BaseException = RuntimeError(text)
        if number % 3 == 0:
            new.__cause__ = error
        elif number % 3 == 1:
            new.__context__ = error
        else:
            new = BaseExceptionGroup(text, [error, GeneratorExit(text)])
        new.add_note(text)
        error = new
    # Its class, too, may have been given a name from outside.
    whole: Broken = type(f"Broken by {value}", (Broken,), {})(value)
    whole.__cause__ = error
    whole.__context__ = SyntaxError("no", ("file.py", 1, 1, f"x = {value!r}"))
    return whole


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@G06
@settings(max_examples=scale(examples(25), 1000), deadline=None)
@given(value=values)
def test_an_exception_is_shown_without_the_value_wherever_it_quotes_it(value: str) -> None:
    try:
        raise wrong(value)
    except Exception as error:
        masked = Masker([value]).error(error)
        text, own = shown(masked), str(error)
    assert own == f"broken by {value!r}"
    assert not leaks(text, value)
    assert type(masked).__name__.startswith("Broken") and masked.__traceback__ is not None
    assert "test_an_exception_is_shown" in text


@G06
def test_exceptions_that_refer_to_one_another_in_a_circle_are_masked() -> None:
    one, two = ValueError("s3cr3t-value"), ValueError("s3cr3t-value")
    one.__cause__, two.__cause__ = two, one
    assert "s3cr3t" not in shown(Masker(["s3cr3t-value"]).error(one))
    last: Exception = ValueError("s3cr3t-value")
    for _ in range(500):
        new = ValueError("again")
        new.__context__ = last
        last = new
    assert "s3cr3t" not in shown(Masker(["s3cr3t-value"]).error(last))


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("values", [["s3cr3t-value"], []], ids=["masked", "nothing to mask"])
def test_whatever_its_class_does_an_exception_can_be_shown_and_logged(
    kind: str, values: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """In bounded time and space, under the name of its class."""
    mask = Masker(values)
    try:
        raise HOSTILE[kind]()
    except BaseException as caught:
        error = caught
    made = mask.error(error)
    text = shown(made)
    assert "test_whatever_its_class_does" in text
    assert len(text) < 1_000_000
    assert class_name_of(error) in text
    said = render_failure(error, mask)
    assert said.is_error and len(said.content) < 20_000
    log.error("tool.raised", exc_info=error)
    assert "test_whatever_its_class_does" in logged(caplog)


@pytest.mark.spec("G-02")
def test_what_an_application_makes_of_its_log_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def fails(*given: object, **_: object) -> None:
        asked.append(given)
        raise OSError("no room")

    monkeypatch.setattr(logging.getLogger("hubbub"), "log", fails)
    log.error("run.failed", run_id="r")
    assert asked


LONGER = "x" * (MAX_CHARS + 100_000)
"""Such as a server's answer that is quoted as a whole."""


class Unusual(Exception):
    """Its notes are not what ``add_note`` makes, and are shown all the same."""


def long_errors(value: str) -> dict[str, Exception]:
    """What quotes a value far behind the beginning of a text that its traceback shows."""
    text = f"{LONGER} {value}"
    noted, listed, odd = ValueError("short"), Unusual("short"), Unusual("short")
    noted.add_note(text)
    listed.__notes__ = ({"token": value}, text)  # type: ignore[assignment]
    odd.__notes__ = {"token": value}  # type: ignore[assignment]
    return {
        "text": ValueError(text),
        "note": noted,
        "notes in a tuple": listed,
        "notes in a dict": odd,
        "group": ExceptionGroup(text, [KeyError("short")]),
        "member": ExceptionGroup("short", [KeyError(text)]),
        "syntax": SyntaxError("no", ("file.py", 1, 1, text)),
        "message of a syntax error": SyntaxError(text, ("file.py", 1, 1, "x = 1")),
        "encodings": ValueError("\\x41%41+" * (MAX_CHARS // 8) + value),
    }


@G06
@pytest.mark.parametrize("place", long_errors("s3cr3t-value"))
@pytest.mark.parametrize("values", [["s3cr3t-value"], []], ids=["masked", "nothing to mask"])
def test_an_exception_whose_text_is_too_long_is_shown_cut(place: str, values: list[str]) -> None:
    error = long_errors("s3cr3t-value")[place]
    text = shown(Masker(values).error(error))
    if values:
        assert "s3cr3t" not in text
    assert len(text) < MAX_CHARS + 10_000
    assert type(error).__name__ in text


@G06
def test_what_is_too_large_to_be_read_in_every_way_is_cut_to_what_was_read() -> None:
    noise, value = "\\x41%41+" * (MAX_CHARS // 10), "s3cr3t-value"
    quoted = "".join(f"%2525{byte:02X}" for byte in value.encode())
    masked = Masker([value])(f"{value} {quoted} {noise}{quoted}")
    assert masked.startswith(f"{MASK} {MASK} \\x41") and len(masked) > MAX_CHARS // 100
    assert quoted not in masked and value not in masked


@G06
def test_nothing_is_left_of_what_no_part_of_could_be_read() -> None:
    value = "s3cr3t-value" * 10_000
    masked = Masker([value])("\\x41%41+%5C" * 20_000 + value)
    assert "s3cr3t-value" not in masked


# ── places ───────────────────────────────────────────────────────────────────────────────────

NAME = "TOKEN"
DECLARED = (VariableDefinition(name=NAME),)


@tool(variables=DECLARED)
async def raises(state: RunState) -> str:
    raise wrong(state.env[NAME])


@tool(variables=DECLARED)
def raises_in_a_thread(state: RunState) -> str:
    raise wrong(state.env[NAME])


@tool
async def says_so(state: RunState) -> str:
    raise ToolError("\n".join(in_every_form(state.env[NAME])))


@tool
async def returns(state: RunState) -> ToolResult:
    return ToolResult("\n".join(in_every_form(state.env[NAME])), is_error=True)


@tool
async def groups(state: RunState) -> str:
    raise ExceptionGroup("two", [wrong(state.env[NAME]), KeyError(state.env[NAME])])


@tool
async def listens(state: RunState) -> str:
    value = state.env[NAME]

    def heard(event: Any) -> None:
        raise wrong(value)

    async def heard_later(event: Any) -> None:
        raise wrong(value)

    state.hub.subscribe("agent:status", heard)
    state.hub.subscribe("agent:status", heard_later)
    state.set_status("at work")
    await anyio.sleep(1)
    return "ok"


@tool
async def nothing() -> str:
    return "ok"


def of_tool(what: Any) -> Callable[[str], AgentDefinition]:
    return lambda value: model_agent(ScriptedModel([call(what.name), "Well."]), what)


def hook_raises(state: Any, value: Any) -> Any:
    raise wrong(state.env[NAME])


async def hook_raises_later(state: Any, value: Any) -> Any:
    raise wrong(state.env[NAME])


HOOKS = (
    Hook(id="before", point="before_create_message", fn=hook_raises),
    Hook(id="after", point="after_tool_call_success", fn=hook_raises_later),
    Hook(id="at the end", point="after_session", fn=hook_raises_later),
)


def of_hook(hook: str) -> Callable[[str], AgentDefinition]:
    definition = model_agent(ScriptedModel([call("nothing"), "Well."]), nothing)
    return lambda value: structs.replace(definition, hooks=(hook,))


def of_model(error: Callable[[str], Exception]) -> Callable[[str], AgentDefinition]:
    def make(value: str) -> AgentDefinition:
        def fail(request: Any) -> str:
            raise error(value)

        return model_agent(Failing(fail))

    return make


class Failing:
    """A model of a user's own."""

    name = "failing"

    def __init__(self, fail: Callable[[Any], str]) -> None:
        self._fail = fail

    async def call(self, request: Any, on_delta: Any = None) -> Any:
        self._fail(request)


async def fails(ctx: Any) -> None:
    raise wrong(ctx.env[NAME])


async def fails_in_a_step(ctx: Any) -> None:
    def do() -> None:
        raise wrong(ctx.env[NAME])

    await ctx.step("do", do)


async def fails_in_a_session(ctx: Any) -> None:
    model = ScriptedModel([call("raises"), "Well."])
    async with ctx.session(model=model, tools=[raises]) as session:
        await session.send("Go.")
        async for _ in session.receive():
            pass


async def fails_as_a_listener(ctx: Any) -> None:
    async def heard_later(event: Any) -> None:
        raise wrong(ctx.env[NAME])

    ctx.hub.subscribe("agent:*", lambda event: heard(event))
    ctx.hub.subscribe("agent:*", heard_later)

    def heard(event: Any) -> None:
        raise wrong(ctx.env[NAME])

    ctx.say("hello")
    await anyio.sleep(1)


async def fails_as_a_reader(ctx: Any) -> None:
    def heard(event: Any) -> None:
        raise wrong(ctx.env[NAME])

    ctx.hub.subscribe("session:message", heard)
    ctx.hub.send_to_run(ctx.run_id, "hello")
    await anyio.sleep(1)


async def fails_in_a_group(ctx: Any) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(fails, ctx)
        group.start_soon(fails, ctx)


def of_code(body: Callable[[Any], Any]) -> Callable[[str], AgentDefinition]:
    @agent("assistant")
    async def assistant(input: Any, ctx: Any) -> str:
        await body(ctx)
        return "done"

    return lambda value: assistant


PLACES: dict[str, Callable[[str], AgentDefinition]] = {
    "tool": of_tool(raises),
    "plain tool": of_tool(raises_in_a_thread),
    "tool that says so": of_tool(says_so),
    "tool that returns an error": of_tool(returns),
    "tool with a group": of_tool(groups),
    "tool that listens": of_tool(listens),
    "hook before": of_hook("before"),
    "hook after": of_hook("after"),
    "hook at the end": of_hook("at the end"),
    "model": of_model(wrong),
    "provider": of_model(lambda v: ModelUnavailable("m", "server", "; ".join(in_every_form(v)))),
    "code agent": of_code(fails),
    "code agent with a group": of_code(fails_in_a_group),
    "step": of_code(fails_in_a_step),
    "session of a code agent": of_code(fails_in_a_session),
    "listener of a code agent": of_code(fails_as_a_listener),
    "reader of a code agent": of_code(fails_as_a_reader),
}

STORES = ("memory", "late", "sqlite")


@asynccontextmanager
async def open_runtime(
    definition: AgentDefinition, store: str, folder: Path, ports: Ports, **options: Any
) -> AsyncIterator[Runtime]:
    where: Any = f"sqlite:{folder}" if store == "sqlite" else MemoryJournal()
    if store == "late":
        where = LateJournal(where)
    async with Runtime([definition], hooks=HOOKS, store=where, ports=ports, **options) as rt:
        yield rt


def logged(caplog: pytest.LogCaptureFixture) -> str:
    formatter = logging.Formatter("%(name)s %(message)s")
    return "\n".join(formatter.format(each) for each in caplog.records)


@G06
@pytest.mark.spec("M-04")
@pytest.mark.anyio
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("place", PLACES)
async def test_what_fails_there_tells_nobody_the_value(
    place: str, store: str, tmp_path: Path, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="hubbub")
    async with open_runtime(PLACES[place](NASTY), store, tmp_path, ports) as rt:
        seen = Observer(rt.hub).events
        run = await rt.start("assistant", "Go.", env={NAME: NASTY})
        outcome = await run.result()
        stored = await rt.hub.read()
    texts = [
        text for event in (*seen, *stored) for text in texts_in(json.loads(encode_event(event)))
    ]
    texts += [repr(outcome), *texts_in(outcome.output), *map(repr, seen)]
    assert not [(text[:500], found) for text in texts if (found := leaks(text, NASTY))]
    assert not leaks(logged(caplog), NASTY)
    told = [x for x in texts if MASK in x]
    assert told or place.startswith("hook")
    assert MASK in logged(caplog) or place == "tool that returns an error"


@G06
@pytest.mark.spec("M-04")
@pytest.mark.anyio
async def test_a_channel_a_listener_and_a_model_tell_nobody_what_a_run_was_given(
    ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys of providers, too, which any model may find where they are."""
    key = "sk-live-0123456789"
    bot = model_agent(Failing(lambda request: _raise(wrong(key))))

    async def heard(event: Any, context: Any) -> None:
        raise wrong(NASTY)

    def listens(event: Any) -> None:
        raise wrong(NASTY)

    environ = {"ANTHROPIC_API_KEY": key}
    channel = Channel(name="c", handlers={"agent:start": heard})
    async with (
        Runtime([bot], store="memory", ports=ports, environ=environ) as rt,
        Channels(rt.hub, channel),
    ):
        seen = Observer(rt.hub).events
        rt.hub.subscribe("agent:start", listens)
        run = await rt.start("assistant", "Go.", env={NAME: NASTY})
        await run.result()
        await anyio.sleep(1)
    texts = [text for event in seen for text in texts_in(json.loads(encode_event(event)))]
    told = {event.type for event in seen if "broken by" in getattr(event, "error", "")}
    assert told >= {"channel:error", "hub:error"}
    for text in (*texts, *map(repr, seen), logged(caplog)):
        assert not leaks(text, NASTY) and not leaks(text, key)


def _raise(error: Exception) -> str:
    raise error
