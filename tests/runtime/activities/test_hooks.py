"""Hooks at work: where they stand, what becomes of what they return (D-06)."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from msgspec import structs
from support.agents import Observer, heard, model_agent
from support.crash_journal import CrashJournal
from support.profiles import portion

from hubbub import (
    AgentDefinition,
    Hook,
    Message,
    PromptDefinition,
    Resumable,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
    SubagentRegistryEntry,
    SubagentToolConfig,
)
from hubbub.agents.definitions.tools import ToolError, ToolResult, tool
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelRequest,
    Thinking,
    ToolCall,
    UserMessage,
)
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import (
    AgentStart,
    AgentStep,
    AgentText,
    AgentToolComplete,
    SessionReset,
    SessionTaken,
)
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio

POINTS = (
    "filter_messages", "before_create_message", "after_create_message",
    "before_store_tool_result", "after_tool_call_success", "after_tool_call_failure",
    "after_thread_created", "after_subagent_created", "after_session",
)  # fmt: skip
CHANGING = POINTS[:2] + POINTS[3:6]


@tool
async def look(where: str) -> str:
    return f"seen {where}"


@tool
async def trip() -> None:
    raise ToolError("tripped")


def script() -> list[Any]:
    return [reply("let me", call("look", where="up"), call("trip")), "done", "done again"]


class Played:
    """A conversation with hooks: what is in the journal, and what the model was shown."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.recorded: list[Any] = []
        self.took = 0.0

    async def play(
        self,
        hooks: list[Hook],
        journal: Journal,
        ports: Ports,
        *,
        prompt_hooks: tuple[str, ...] | None = None,
        agent_hooks: tuple[str, ...] = (),
    ) -> "Played":
        scripted = ScriptedModel(script())

        async def answer(request: ModelRequest) -> Any:
            self.requests.append(request)
            return await scripted.call(request)

        prompt = PromptDefinition(
            name="prompt", prompt="", model=FunctionModel(answer), tools=(look, trip),
            hooks=prompt_hooks,
        )  # fmt: skip
        agent = AgentDefinition(name="agent", side_a=SideConfig(prompt=prompt), hooks=agent_hooks)
        async with Runtime([agent], hooks=hooks, store=journal, ports=ports) as runtime:
            before = ports.clock.monotonic()
            run = await runtime.start("agent", "hello")
            await run.result()
            self.took = ports.clock.monotonic() - before
            await run.send("and")
            await run.result()
            self.recorded = await runtime.hub.read(run.run_id)
        return self

    @property
    def texts(self) -> list[str]:
        return [x.text for x in self.recorded if isinstance(x, AgentText)]

    @property
    def results(self) -> list[tuple[str, bool]]:
        return [(x.output, x.is_error) for x in self.recorded if isinstance(x, AgentToolComplete)]

    @property
    def taken(self) -> list[str]:
        items = [item for x in self.recorded if isinstance(x, SessionTaken) for item in x.items]
        return [item.input if item.type == "session:open" else item.content for item in items]


def plain_of(played: Played) -> tuple[Any, ...]:
    """Everything that a hook could have changed."""
    shown = [(x.messages, x.system, x.tools) for x in played.requests]
    return shown, played.texts, played.results, played.taken


# ── where they stand ─────────────────────────────────────────────────────────────────────────


def told_as(log: list[Any], point: str) -> Hook:
    async def note(state: RunState, value: Any) -> None:
        assert isinstance(state, RunState)
        log.append((point, value))

    return Hook(point, point, note)  # type: ignore[arg-type]


@pytest.mark.spec("D-06")
async def test_every_point_is_reached_with_its_value_in_its_place(
    journal: Journal, ports: Ports
) -> None:
    log: list[Any] = []
    hooks = [told_as(log, point) for point in POINTS if point != "after_subagent_created"]
    await Played().play(hooks, journal, ports, prompt_hooks=tuple(h.id for h in hooks))
    assert [point for point, _ in log] == [
        "before_create_message", "after_thread_created", "after_create_message",
        "filter_messages", "before_create_message",
        "after_tool_call_success", "before_store_tool_result",
        "after_tool_call_failure", "before_store_tool_result", "after_create_message",
        "filter_messages", "before_create_message", "after_create_message", "after_session",
        "before_create_message", "after_create_message",
        "filter_messages", "before_create_message", "after_create_message", "after_session",
    ]  # fmt: skip
    values = [value for _, value in log]
    hello, said = UserMessage(content="hello"), AssistantMessage(text="let me")
    assert values[:5] == [hello, "hello", hello, (hello,), said]
    assert values[5:9] == [ToolResult("seen up")] * 2 + [ToolResult("tripped", is_error=True)] * 2
    created = values[9]
    assert (created.text, [each.output for each in created.calls]) == (
        "let me", ["seen up", "tripped"],
    )  # fmt: skip
    assert values[10] == (hello, created)
    assert (values[13].outcome, values[13].success, values[13].session) == ("completed", True, 1)
    assert values[14] == UserMessage(content="and")
    assert values[19].session == 2


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("config", ["once", "resumable", "immediate", "disabled"])
async def test_the_parent_is_told_of_a_child_that_was_created(
    config: str, journal: Journal, ports: Ports
) -> None:
    log: list[Any] = []
    configs: dict[str, dict[str, Any]] = {
        "once": {}, "resumable": {"resumable": Resumable(receives_messages="side_a")},
        "immediate": {"immediate": True}, "disabled": {"immediate": True, "optional": "NEVER"},
    }  # fmt: skip
    calls = {
        "once": call("child", message="go"),
        "resumable": call("subagent_create", agent="child", name="Ann", arguments={"message": "g"}),
    }
    below = PromptDefinition(name="below", prompt="", model=ScriptedModel(["hm"] * 5))
    child = AgentDefinition(
        name="child", type="dual_ai", expose_as_tool=True, max_session_turns=2,
        side_a=SideConfig(prompt=below), side_b=SideConfig(prompt=below),
    )  # fmt: skip
    agent = model_agent(
        ScriptedModel([calls[config], "done"] if config in calls else ["done"]),
        SubagentToolConfig(name="child", **configs[config]),  # type: ignore[arg-type]
        hooks=("after_subagent_created",),
    )  # fmt: skip
    hooks = [told_as(log, "after_subagent_created")]
    async with Runtime([agent, child], hooks=hooks, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        await run.result()
    if config == "disabled":
        assert log == [], "none was"
        return
    ((_, entry),) = log
    assert isinstance(entry, SubagentRegistryEntry)
    created = next(x for x in observer.all("agent:child") if x.child_run_id)
    assert (entry.reference, entry.name) == (created.child_run_id, "child")
    assert entry.resumable == (config == "resumable")


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("kind", ["once", "start", "json"])
async def test_a_thread_is_created_with_its_opening_text_or_none(
    kind: str, journal: Journal, ports: Ports
) -> None:
    log: list[Any] = []
    hooks = [told_as(log, "after_thread_created")]
    agents = [model_agent(ScriptedModel(["done"]), hooks=("after_thread_created",))]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        if kind == "once":
            await runtime.run("assistant", "hello")
        else:
            run = await runtime.start("assistant", {"a": 1} if kind == "json" else None)
            await run.result()
    assert log == [("after_thread_created", "hello" if kind == "once" else None)]


@pytest.mark.spec("D-06")
async def test_what_is_told_is_on_record(journal: Journal, ports: Ports) -> None:
    found: list[tuple[str, str]] = []

    def telling(point: str, type_: str) -> Hook:
        async def look_up(state: RunState, value: Any) -> None:
            loaded = await journal.load(state.run_id)
            assert loaded is not None
            found.append((point, [x.type for x in loaded.events if x.type == type_][-1]))

        return Hook(point, point, look_up)  # type: ignore[arg-type]

    hooks = [
        telling("after_thread_created", "agent:start"),
        telling("after_create_message", "session:taken"),
        telling("after_session", "session:end"),
    ]
    await Played().play(hooks, journal, ports, agent_hooks=tuple(hook.id for hook in hooks))
    assert {point for point, _ in found} == {hook.id for hook in hooks}


@pytest.mark.spec("D-06")
async def test_after_a_session_the_hook_is_given_what_it_came_to(
    journal: Journal, ports: Ports
) -> None:
    given: list[Any] = []
    hooks = [told_as(given, "after_session")]
    agents = [model_agent(ScriptedModel(["one"]), hooks=("after_session",))]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        outcome = await (await runtime.start("assistant", "hello")).result()
    ((_, told),) = given
    assert (told.output, told.outcome, told.success) == ("one", "completed", True)
    assert told.output == outcome.output


@pytest.mark.spec("D-06", "T-11")
async def test_the_message_of_a_reset_is_told_as_one_that_was_created(
    journal: Journal, ports: Ports
) -> None:
    log: list[Any] = []
    hooks = [told_as(log, "after_create_message")]
    agents = [model_agent(ScriptedModel(["one", "two"]), hooks=("after_create_message",))]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "hello")
        await run.result()
        runtime.hub.emit(SessionReset(run_id=run.run_id, message="fresh"))
        await run.result()
    assert [getattr(m, "content", None) or m.text for _, m in log] == [
        "hello", "one", "fresh", "one",
    ]  # fmt: skip


# ── order, and what is returned ──────────────────────────────────────────────────────────────


def worded(value: Any) -> str:
    if isinstance(value, tuple):
        return worded(value[-1])
    return str(value.text if isinstance(value, AssistantMessage) else value.content)


def reworded(value: Any, text: str) -> Any:
    if isinstance(value, tuple):
        return (*value[:-1], reworded(value[-1], text))
    field = "text" if isinstance(value, AssistantMessage) else "content"
    return structs.replace(value, **{field: text})


def adding(mark: str, point: str, *, is_async: bool) -> Hook:
    def add(state: RunState, value: Any) -> Any:
        return reworded(value, worded(value) + mark)

    async def add_later(state: RunState, value: Any) -> Any:
        await anyio.sleep(1)
        return add(state, value)

    return Hook(mark, point, add_later if is_async else add)  # type: ignore[arg-type]


def doing_nothing(point: str) -> Hook:
    return Hook("nothing", point, lambda state, value: None)  # type: ignore[arg-type]


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("point", CHANGING)
async def test_hooks_run_in_list_order_each_fed_what_the_one_before_returned(
    point: str, journal: Journal, ports: Ports
) -> None:
    hooks = [
        adding(" c", point, is_async=True), doing_nothing(point),
        adding(" a", point, is_async=False), adding(" b", point, is_async=True),
    ]  # fmt: skip
    order = (" b", "nothing", " a", " c")
    played = await Played().play(hooks, journal, ports, prompt_hooks=order)
    marks = " b a c"
    match point:
        case "filter_messages":
            assert played.requests[0].messages == (UserMessage(content=f"hello{marks}"),)
            assert played.taken == ["hello", "and"], "what is filtered is not changed for good"
            assert heard(played.requests[2]) == ["hello", f"and{marks}"]
        case "before_create_message":
            assert played.taken == [f"hello{marks}", f"and{marks}"]
            assert played.texts == [f"{text}{marks}" for text in ("let me", "done", "done again")]
            assert heard(played.requests[2]) == [f"hello{marks}", f"and{marks}"]
        case "before_store_tool_result":
            assert played.results == [(f"seen up{marks}", False), (f"tripped{marks}", True)]
        case "after_tool_call_success":
            assert played.results == [(f"seen up{marks}", False), ("tripped", True)]
        case "after_tool_call_failure":
            assert played.results == [("seen up", False), (f"tripped{marks}", True)]
    last = played.requests[1].messages[-1]
    if point.endswith(("result", "success", "failure")):
        assert isinstance(last, AssistantMessage)
        assert [(each.output, each.is_error) for each in last.calls] == played.results


@pytest.mark.spec("D-06")
async def test_a_result_passes_the_points_one_after_the_other_and_may_change_sides(
    journal: Journal, ports: Ports
) -> None:
    def forgive(state: RunState, result: ToolResult) -> ToolResult:
        return ToolResult("never mind", attachments=("note.txt",))

    hooks = [
        Hook("forgive", "after_tool_call_failure", forgive),
        adding(" success", "after_tool_call_success", is_async=False),
        adding(" stored", "before_store_tool_result", is_async=False),
    ]
    order = tuple(hook.id for hook in hooks)
    played = await Played().play(hooks, journal, ports, prompt_hooks=order)
    assert played.results == [("seen up success stored", False), ("never mind stored", False)]
    last = played.requests[1].messages[-1]
    assert isinstance(last, AssistantMessage)
    assert last.calls[1].notes == ("Attachments:\n- note.txt",)


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("point", ["after_create_message", "after_thread_created", "after_session"])
async def test_what_is_told_goes_from_hook_to_hook_and_no_further(
    point: str, journal: Journal, ports: Ports
) -> None:
    seen: list[Any] = []
    hooks = [
        Hook("one", point, lambda state, value: "replaced"),  # type: ignore[arg-type]
        Hook("two", point, lambda state, value: seen.append(value)),  # type: ignore[arg-type]
    ]
    plain = await Played().play([], MemoryJournal(), virtual_ports())
    played = await Played().play(hooks, journal, ports, prompt_hooks=("one", "two"))
    assert seen and set(seen) == {"replaced"}
    assert plain_of(played) == plain_of(plain)


@pytest.mark.spec("D-06")
async def test_what_was_said_with_thought_and_calls_keeps_them(
    journal: Journal, ports: Ports
) -> None:
    def rethink(state: RunState, message: Any) -> Any:
        if isinstance(message, UserMessage):
            return structs.replace(message, role="system")
        assert message.calls == (), "calls are not a hook's to change"
        return AssistantMessage(text="other words", thinking=(Thinking(text="other thoughts"),))

    hooks = [Hook("rethink", "before_create_message", rethink)]
    played = await Played().play(hooks, journal, ports, prompt_hooks=("rethink",))
    assert set(played.texts) == {"other words"}
    assert {x.text for x in played.recorded if x.type == "agent:thinking"} == {"other thoughts"}
    steps = [x for x in played.recorded if isinstance(x, AgentStep)]
    assert [each.name for each in steps[0].calls] == ["look", "trip"]
    message = played.requests[2].messages[-1]
    assert isinstance(message, UserMessage) and message.role == "system"


@pytest.mark.spec("D-06")
async def test_an_opening_that_is_changed_starts_the_run_with_what_it_was_changed_to(
    journal: Journal, ports: Ports
) -> None:
    log: list[Any] = []
    hooks = [adding("!", "before_create_message", is_async=True),
             told_as(log, "after_thread_created")]  # fmt: skip
    order = ("!", "after_thread_created")
    played = await Played().play(hooks, journal, ports, prompt_hooks=order)
    (start,) = [x for x in played.recorded if isinstance(x, AgentStart)]
    assert start.input == "hello!"
    assert log == [("after_thread_created", "hello!")]


@pytest.mark.spec("D-06")
async def test_messages_that_wait_together_pass_one_by_one_and_keep_their_rest(
    journal: Journal, ports: Ports
) -> None:
    requests: list[ModelRequest] = []

    async def answer(request: ModelRequest) -> str:
        requests.append(request)
        await anyio.sleep(10)
        return "done"

    hooks = [adding("!", "before_create_message", is_async=True)]
    agents = [model_agent(FunctionModel(answer), hooks=("!",))]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(5)
        run.send("one")
        run.send(Message("two", silent=True, key="k", metadata={"a": 1}))
        await anyio.sleep(7.5)  # While the hook looks at them.
        run.send("three")
        await run.result()
        taken = [x for x in await run.read() if isinstance(x, SessionTaken)]
    assert heard(requests[-1]) == ["hello!", "one!", "two!", "three!"]
    items = [item for x in taken for item in x.items if item.type == "session:message"]
    assert [item.content for item in items] == ["one!", "two!", "three!"]
    assert (items[1].silent, items[1].key, items[1].metadata) == (True, "k", {"a": 1})


# ── whose ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-06")
@pytest.mark.parametrize(
    ("prompt_hooks", "agent_hooks", "marks"),
    [
        (None, (), ""),
        (None, (" a",), " a"),
        ((), (" a", " b"), ""),
        ((" b",), (" a",), " b"),
        ((" b", " c"), (), " b c"),
    ],
)
async def test_a_prompts_list_replaces_its_agents(
    prompt_hooks: Any, agent_hooks: Any, marks: str, journal: Journal, ports: Ports
) -> None:
    hooks = [adding(mark, "before_create_message", is_async=False) for mark in (" a", " b", " c")]
    played = await Played().play(
        hooks, journal, ports, prompt_hooks=prompt_hooks, agent_hooks=agent_hooks
    )
    assert played.taken == [f"hello{marks}", f"and{marks}"]


@pytest.mark.spec("D-06")
def test_ids_are_unique_and_known() -> None:
    def runtime(ids: tuple[str, ...], hooks: list[Hook]) -> Runtime:
        return Runtime([model_agent(ScriptedModel([]), hooks=ids)], hooks=hooks, store="memory")

    one = doing_nothing("after_session")
    runtime(("nothing",), [one])
    with pytest.raises(DefinitionError, match="nothing"):
        runtime((), [one, doing_nothing("filter_messages")])
    with pytest.raises(DefinitionError, match="ghost"):
        runtime(("ghost",), [one])
    with pytest.raises(DefinitionError, match="listed twice"):
        runtime(("nothing", "nothing"), [one])


@pytest.mark.spec("D-06", "S-02")
async def test_each_side_of_two_has_its_own_hooks(journal: Journal, ports: Ports) -> None:
    log: list[Any] = []

    def noting(which: str, point: str) -> Hook:
        async def note(state: RunState, value: Any) -> None:
            log.append((which, point, worded(value) if point != "after_session" else value.outcome))

        return Hook(f"{which} {point}", point, note)  # type: ignore[arg-type]

    points = ("filter_messages", "before_create_message", "after_create_message", "after_session")
    hooks = [noting(which, point) for which in ("a", "b") for point in points]

    def side(which: str, words: list[str]) -> SideConfig:
        ids = tuple(f"{which} {point}" for point in points)
        prompt = PromptDefinition(
            name=which, prompt="", model=ScriptedModel(words), hooks=(*ids, f"mark {which}")
        )
        return SideConfig(prompt=prompt)

    marks = [
        Hook(f"mark {which}", "before_create_message",
             lambda state, value, which=which: reworded(value, f"{worded(value)}/{which}"))
        for which in ("a", "b")
    ]  # fmt: skip
    agent = AgentDefinition(
        name="two", type="dual_ai", max_session_turns=3,
        side_a=side("a", ["one", "three"]), side_b=side("b", ["two"]),
    )  # fmt: skip
    async with Runtime([agent], hooks=[*hooks, *marks], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("two", "zero")
    assert outcome.outcome == "limit"
    assert log == [
        ("a", "before_create_message", "zero"),
        ("a", "after_create_message", "zero/a"),
        ("a", "filter_messages", "zero/a"),
        ("a", "before_create_message", "one"),
        ("a", "after_create_message", "one/a"),
        ("b", "filter_messages", "one/a"),
        ("b", "before_create_message", "two"),
        ("b", "after_create_message", "two/b"),
        ("a", "filter_messages", "two/b"),
        ("a", "before_create_message", "three"),
        ("a", "after_create_message", "three/a"),
        ("a", "after_session", "limit"),
    ]


@pytest.mark.spec("D-06", "S-04")
async def test_what_a_turn_hands_over_beside_its_words_is_told_once(
    journal: Journal, ports: Ports
) -> None:
    log: list[Any] = []

    @tool
    async def hand_over() -> str:
        return "the plan"

    def prompt(which: str, words: list[Any], *tools: Any) -> PromptDefinition:
        return PromptDefinition(
            name=which, prompt="", model=ScriptedModel(words), tools=tools,
            hooks=("after_create_message",),
        )  # fmt: skip

    agent = AgentDefinition(
        name="two", type="dual_ai", max_session_turns=2,
        side_a=SideConfig(
            prompt=prompt("a", [reply("here", call("hand_over"))], hand_over),
            stop_tool="hand_over",
        ),
        side_b=SideConfig(prompt=prompt("b", ["thanks"])),
    )  # fmt: skip
    hooks = [told_as(log, "after_create_message")]
    async with Runtime([agent], hooks=hooks, store=journal, ports=ports) as runtime:
        await runtime.run("two", "zero")
    told = [message for _, message in log]
    assert told[0] == UserMessage(content="zero")
    assert (told[1].text, told[1].calls[0].output) == ("here", "the plan")
    assert told[2:] == [UserMessage(content="the plan"), AssistantMessage(text="thanks")]


# ── those that fail ──────────────────────────────────────────────────────────────────────────


async def hang(state: RunState, value: Any) -> Any:
    await anyio.sleep_forever()


async def cancel(state: RunState, value: Any) -> Any:
    raise asyncio.CancelledError


async def cancel_itself(state: RunState, value: Any) -> Any:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await anyio.sleep(1)
    raise TimeoutError("given up")


def explode(state: RunState, value: Any) -> Any:
    raise ZeroDivisionError("inside")


async def explode_in_a_group(state: RunState, value: Any) -> Any:
    async with anyio.create_task_group() as group:
        group.start_soon(explode_later)
        await anyio.sleep_forever()


async def explode_later() -> None:
    raise ZeroDivisionError("inside")


def with_the_wrong_arguments() -> Any: ...


BAD: dict[str, Callable[..., Any]] = {
    "raises": explode,
    "raises in a group": explode_in_a_group,
    "is called wrongly": with_the_wrong_arguments,
    "hangs": hang,
    "is cancelled": cancel,
    "cancels itself": cancel_itself,
    "returns a number": lambda state, value: 3,
    "returns a text": lambda state, value: "text",
    "returns its state": lambda state, value: state,
    "returns what holds no text": lambda state, value: reworded(value, 3),  # type: ignore[arg-type]
}


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("point", CHANGING)
async def test_a_hook_that_fails_is_logged_and_what_it_was_given_goes_on(
    point: str, bad: str, caplog: pytest.LogCaptureFixture, journal: Journal, ports: Ports
) -> None:
    seen: list[Any] = []
    hooks = [
        Hook("bad", point, BAD[bad]),  # type: ignore[arg-type]
        Hook("next", point, lambda state, value: seen.append(value)),  # type: ignore[arg-type]
    ]
    plain = await Played().play([], MemoryJournal(), virtual_ports())
    played = await Played().play(hooks, journal, ports, prompt_hooks=("bad", "next"))
    assert plain_of(played) == plain_of(plain)
    assert seen, "the next one is fed what the bad one was given"
    ignored = [x.getMessage() for x in caplog.records if "hook.ignored" in x.getMessage()]
    assert len(ignored) == len(seen)
    assert all("hook='bad'" in text and f"point='{point}'" in text for text in ignored)
    if bad == "hangs":
        assert played.took >= 60
        assert played.took == pytest.approx(60 * round(played.took / 60), abs=1)
    else:
        assert played.took < 10


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("bad", [name for name in BAD if not name.startswith("returns")])
@pytest.mark.parametrize("point", ["after_create_message", "after_thread_created", "after_session"])
async def test_a_hook_that_fails_when_told_disturbs_nothing(
    point: str, bad: str, caplog: pytest.LogCaptureFixture, journal: Journal, ports: Ports
) -> None:
    seen: list[Any] = []
    hooks = [
        Hook("bad", point, BAD[bad]),  # type: ignore[arg-type]
        Hook("next", point, lambda state, value: seen.append(value)),  # type: ignore[arg-type]
    ]
    plain = await Played().play([], MemoryJournal(), virtual_ports())
    played = await Played().play(hooks, journal, ports, prompt_hooks=("bad", "next"))
    assert plain_of(played) == plain_of(plain)
    assert seen
    assert caplog.text.count("hook.ignored") == len(seen)


@pytest.mark.spec("D-06")
async def test_a_hook_within_its_minute_is_waited_for(journal: Journal, ports: Ports) -> None:
    async def slow(state: RunState, value: Any) -> Any:
        await anyio.sleep(59)
        return reworded(value, "in time")

    hooks = [Hook("slow", "before_create_message", slow)]
    played = await Played().play(hooks, journal, ports, prompt_hooks=("slow",))
    assert played.taken == ["in time"] * 2


# ── calls keep their results ─────────────────────────────────────────────────────────────────


def invent(state: RunState, messages: Any) -> Any:
    made = AnsweredCall(id="call_9_9", name="look", arguments="{}", output="made up")
    return (*messages, AssistantMessage(calls=(made,)))


def split(state: RunState, messages: Any) -> Any:
    return [_without_results(message) for message in messages]


def _without_results(message: Any) -> Any:
    calls = tuple(
        ToolCall(id=each.id, name=each.name, arguments=each.arguments)
        for each in getattr(message, "calls", ())
    )
    return structs.replace(message, calls=calls) if calls else message


def double(state: RunState, messages: Any) -> Any:
    return [*messages, *messages]


@pytest.mark.spec("D-06", "S-07")
@pytest.mark.parametrize("filter", [invent, split, double])
async def test_a_filter_that_tears_calls_from_results_is_ignored(
    filter: Any, caplog: pytest.LogCaptureFixture, journal: Journal, ports: Ports
) -> None:
    hooks = [Hook("tear", "filter_messages", filter)]
    plain = await Played().play([], MemoryJournal(), virtual_ports())
    played = await Played().play(hooks, journal, ports, prompt_hooks=("tear",))
    assert played.requests[1].messages == plain.requests[1].messages
    assert "hook.ignored" in caplog.text


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("kind", [tuple, list, iter, "generator"])
async def test_a_filter_may_give_its_messages_in_any_form(
    kind: Any, journal: Journal, ports: Ports
) -> None:
    def shout(state: RunState, messages: Any) -> Any:
        made = [
            reworded(each, each.content.upper()) if isinstance(each, UserMessage) else each
            for each in messages
        ]
        return (each for each in made) if kind == "generator" else kind(made)

    hooks = [Hook("shout", "filter_messages", shout)]
    played = await Played().play(hooks, journal, ports, prompt_hooks=("shout",))
    assert [heard(request) for request in played.requests] == [
        ["HELLO"], ["HELLO"], ["HELLO", "AND"],
    ]  # fmt: skip
    assert len(played.requests[2].messages) == 4


# ── replay ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-06", "T-04")
async def test_reading_a_run_again_calls_no_hook(journal: Journal, ports: Ports) -> None:
    log: list[Any] = []
    hooks = [told_as(log, point) for point in POINTS]
    agents = [model_agent(ScriptedModel(["one", "two"]), hooks=tuple(h.id for h in hooks))]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "hello")
        await run.result()
        log.clear()
        await anyio.sleep(3600)
        assert log == []
        await run.send("and")
        await run.result()
        parked = [point for point, _ in log]
    log.clear()
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        await anyio.sleep(3600)
        assert log == [], "nothing is said again"
        await runtime.hub.send_to_run(run.run_id, "and")
        await runtime.result(run.run_id)
    assert [point for point, _ in log][:2] == parked[:2] == [
        "before_create_message", "after_create_message",
    ]  # fmt: skip
    assert "after_thread_created" not in parked + [point for point, _ in log]


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
async def test_after_a_crash_no_hook_sees_what_was_recorded_before_it(late: bool) -> None:
    """Killed after any commit: what is on record is changed once, and told at most once."""
    marks = ("before_create_message", "before_store_tool_result")
    told_points = ("after_create_message", "after_thread_created", "after_session")

    async def life(after: int | None) -> tuple[list[Any], list[Any], int, list[Any], Played]:
        ports, journal, played = virtual_ports(), MemoryJournal(), Played()
        run_id = ports.ids.run_id(ports.clock.now())
        logs: list[list[Any]] = []
        commits, before = 0, []
        for number, limit in enumerate((after, None)):
            log: list[Any] = []
            logs.append(log)
            hooks = [told_as(log, point) for point in told_points]
            hooks += [adding(point, point, is_async=True) for point in marks]
            ids = tuple(hook.id for hook in hooks)
            crash = CrashJournal(journal, limit)
            store: Any = LateJournal(crash) if late else crash  # type: ignore[arg-type]
            agents = [model_agent(ScriptedModel(script(), latency=1), look, trip, hooks=ids)]
            runtime = Runtime(agents, hooks=hooks, store=store, ports=ports, grace=0)
            async with runtime:
                if number == 0 or not before:
                    runtime.hub.open("assistant", "hello", run_id=run_id)
                await anyio.sleep(600)
            commits = crash.commits if number == 0 else commits
            if number == 0:
                loaded = await journal.load(run_id)
                before = list(loaded.events) if loaded is not None else []
                if loaded is not None and loaded.waiting:
                    before = before or [loaded]
        loaded = await journal.load(run_id)
        assert loaded is not None
        played.recorded = list(loaded.events)
        return logs[0], logs[1], commits, before, played

    whole_log, again, commits, _, whole = await life(None)
    assert again == []
    assert commits > 6
    for after in portion(range(commits)):
        first, second, _, _, played = await life(after)
        assert played.taken == whole.taken == ["hellobefore_create_message"]
        assert played.texts == whole.texts
        for output, is_error in played.results:
            assert output.count("before_store_tool_result") <= 1
            assert is_error or output == "seen upbefore_store_tool_result"
        told = [*first, *second]
        for each in {str(x) for x in told}:
            assert [str(x) for x in told].count(each) == 1, (after, each)
        assert [point for point, _ in told].count("after_thread_created") <= 1
        assert len(told) >= len(whole_log) - 2, "only what was just being told may be missed"


# ── interruption ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-06", "T-10")
@pytest.mark.parametrize("how", ["interrupt", "terminate"])
@pytest.mark.parametrize("point", POINTS[:6])
async def test_a_run_with_a_hanging_hook_can_be_stopped(
    point: str, how: str, journal: Journal, ports: Ports
) -> None:
    hung: list[str] = []

    async def hang_once(state: RunState, value: Any) -> Any:
        if not hung:
            hung.append(point)
            await anyio.sleep_forever()

    @tool
    async def act(well: bool) -> str:
        if not well:
            raise ToolError("not well")
        return "acted"

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.content == "go":
            return reply("", call("act", well=True), call("act", well=False))
        return f"re: {heard(request)[-1]}"

    hooks = [Hook("hang", point, hang_once)]  # type: ignore[arg-type]
    agents = [model_agent(FunctionModel(answer), act, hooks=("hang",))]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant")
        await run.send("go")
        await anyio.sleep(5)
        assert hung == [point]
        before = ports.clock.monotonic()
        if how == "terminate":
            await run.terminate("enough")
            outcome = await run.finished()
            assert (outcome.outcome, outcome.reason) == ("terminated", "enough")
        else:
            await run.interrupt("enough")
            await run.send("next")
            assert (await run.result()).output == "re: next"
        took = ports.clock.monotonic() - before
        # What is told of what is on record has its minute, and so has, where there is no turn
        # to interrupt yet, what looks at a message; any other is cancelled at once.
        waits = point == "after_create_message" or (
            point == "before_create_message" and how == "interrupt"
        )
        assert took < (61 if waits else 1)


@pytest.mark.spec("D-06", "R-16")
async def test_leaving_does_not_wait_for_a_hanging_hook(journal: Journal, ports: Ports) -> None:
    hooks = [Hook("hang", "after_session", hang)]
    agents = [model_agent(ScriptedModel(["done"]), hooks=("hang",))]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports, grace=5) as runtime:
        await runtime.start("assistant", "go")
        await anyio.sleep(1)
        before = ports.clock.monotonic()
    assert ports.clock.monotonic() - before <= 6


# ── what a hook may do ───────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-06", "T-01")
@pytest.mark.parametrize("point", POINTS[:7])
async def test_a_hook_may_write_at_every_point(point: str, journal: Journal, ports: Ports) -> None:
    async def write(state: RunState, value: Any) -> None:
        await state.files.write("log.txt", point)
        await state.kv.set("count", state.kv.get("count", 0) + 1)
        state.set_status(f"at {point}")

    hooks = [Hook("write", point, write)]  # type: ignore[arg-type]
    played = await Played().play(hooks, journal, ports, prompt_hooks=("write",))
    counts = [x.value for x in played.recorded if x.type == "agent:key"]
    assert counts and counts == list(range(1, len(counts) + 1))
    assert any(x.type == "agent:status" and x.status == f"at {point}" for x in played.recorded)
    assert [x for x in played.recorded if x.type == "agent:file"]
    assert played.texts == ["let me", "done", "done again"]


# ── known to be wrong, outside of what this file's modules can mend ──────────────────────────


@pytest.mark.spec("D-06", "S-07")
@pytest.mark.parametrize("what", ["spawned", "result"])
async def test_a_tool_at_work_is_run_once_though_hooks_are_told_meanwhile(
    what: str, journal: Journal, ports: Ports
) -> None:
    ran: list[str] = []
    log: list[Any] = []

    @tool
    async def act(state: RunState) -> str:
        ran.append("act")
        if what == "spawned" and len(ran) == 1:
            await state.spawn("child", "go").finished()
        await anyio.sleep(100)
        return "acted"

    below = PromptDefinition(name="below", prompt="", model=ScriptedModel(["hm"] * 5, latency=1))
    child = AgentDefinition(
        name="child", type="dual_ai", expose_as_tool=True, max_session_turns=2,
        side_a=SideConfig(prompt=below), side_b=SideConfig(prompt=below),
    )  # fmt: skip
    first = [] if what == "spawned" else [call("child", message="go")]
    agent = model_agent(
        ScriptedModel([reply("", *first, call("act")), "done"]),
        SubagentToolConfig(name="child", blocking=False), act,  # type: ignore[arg-type]
        hooks=("after_subagent_created", "after_create_message"),
    )  # fmt: skip
    hooks = [told_as(log, "after_subagent_created"), told_as(log, "after_create_message")]
    async with Runtime([agent, child], hooks=hooks, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        await anyio.sleep(1000)
        await run.terminate()
    assert ran == ["act"]
    assert len([point for point, _ in log if point == "after_subagent_created"]) == 1


@pytest.mark.spec("D-06")
async def test_a_hook_does_not_use_up_the_time_of_its_tool(journal: Journal, ports: Ports) -> None:
    @tool(timeout=2)
    async def act() -> str:
        await anyio.sleep(1)
        return "acted"

    async def slow(state: RunState, value: Any) -> None:
        await anyio.sleep(5)

    model = ScriptedModel([call("act"), "done"])
    agents = [model_agent(model, act, hooks=("slow",))]
    hooks = [Hook("slow", "after_tool_call_success", slow)]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        await run.result()
        (result,) = [x for x in await run.read() if isinstance(x, AgentToolComplete)]
    assert result.output == "acted"


@pytest.mark.spec("D-06")
async def test_a_call_that_timed_out_has_failed_for_hooks_too(
    journal: Journal, ports: Ports
) -> None:
    @tool(timeout=2)
    async def act() -> str:
        await anyio.sleep(10)
        return "acted"

    agents = [model_agent(ScriptedModel([call("act"), "done"]), act, hooks=(" noted",))]
    hooks = [adding(" noted", "after_tool_call_failure", is_async=False)]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        await run.result()
        (result,) = [x for x in await run.read() if isinstance(x, AgentToolComplete)]
    assert result.output.startswith("timed out")
    assert result.output.endswith(" noted")


@pytest.mark.spec("D-06", "C-08")
async def test_a_message_passes_the_hooks_of_the_side_that_receives_it(
    journal: Journal, ports: Ports
) -> None:
    log: list[Any] = []

    def noting(which: str) -> Hook:
        return Hook(
            which, "before_create_message", lambda state, value: log.append((which, worded(value)))
        )

    def prompt(which: str) -> PromptDefinition:
        model = ScriptedModel([which] * 9)
        return PromptDefinition(name=which, prompt="", model=model, hooks=(which,))

    child = AgentDefinition(
        name="child", type="dual_ai", expose_as_tool=True, max_session_turns=1,
        side_a=SideConfig(prompt=prompt("a")), side_b=SideConfig(prompt=prompt("b")),
    )  # fmt: skip
    config = SubagentToolConfig(name="child", resumable=Resumable(receives_messages="side_b"))
    create = call("subagent_create", agent="child", name="Ann", arguments={"message": "hello"})
    agent = model_agent(ScriptedModel([create, "done"]), config)  # type: ignore[arg-type]
    async with Runtime(
        [agent, child], hooks=[noting("a"), noting("b")], store=journal, ports=ports
    ) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        await run.result()
        reference = observer.first("agent:child").child_run_id
        await runtime.hub.send_to_run(reference, "for b")
        await runtime.result(reference)
    assert ("b", "for b") in log
    assert ("a", "for b") not in log


@pytest.mark.spec("D-06")
@pytest.mark.parametrize("parallel", [False, True])
async def test_the_result_of_a_child_that_a_call_waited_for_passes_the_hooks_of_results(
    parallel: bool, journal: Journal, ports: Ports
) -> None:
    """A hook that redacts results must not be passed by, whoever did the work."""
    ran: list[str] = []

    @tool
    async def act() -> str:
        ran.append("act")
        await anyio.sleep(50)
        return "acted"

    @tool
    async def finish(result: str) -> str:
        return "ok"

    model = ScriptedModel([call("finish", result="a secret")], latency=5)
    inner = PromptDefinition(name="inner", prompt="", model=model, tools=[finish])
    side = SideConfig(prompt=inner, session_stop=SessionToolBinding("finish", "result"))
    child = AgentDefinition(
        name="child", type="dual_ai", expose_as_tool=True, max_session_turns=2, side_a=side,
        side_b=side,
    )  # fmt: skip
    agent = model_agent(
        ScriptedModel([reply("", call("child", message="go"), call("act")), "done"]),
        SubagentToolConfig(name="child"), act,  # type: ignore[arg-type]
        hooks=("redact",), parallel_tool_calls=parallel,
    )  # fmt: skip

    def redact(state: RunState, value: ToolResult) -> ToolResult:
        return ToolResult(value.content.replace("secret", "***"), value.is_error)

    hooks = [Hook("redact", "before_store_tool_result", redact)]
    async with Runtime([agent, child], hooks=hooks, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        with anyio.fail_after(1000):
            assert (await run.result()).output == "done"
        results = [x for x in await run.read() if isinstance(x, AgentToolComplete)]
    assert {x.name: x.output for x in results} == {"child": "a ***", "act": "acted"}
    assert ran == ["act"], "and what runs beside it is run once"
