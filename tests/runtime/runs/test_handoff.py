"""Handoff: the same run goes on as another agent (SA 6, D-10)."""

from collections import Counter
from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life, heard
from support.crash_journal import CrashJournal
from support.profiles import portion

from hubbub import (
    AgentDefinition,
    Event,
    PromptDefinition,
    RunState,
    Runtime,
    SideConfig,
)
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.tools import ToolResult, tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.errors import DefinitionError
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, ScriptItem, call, reply

pytestmark = pytest.mark.anyio


@tool
async def look(what: str) -> str:
    await anyio.sleep(1)
    return f"saw {what}"


class Agent:
    """An agent with its own script: the item of each answer it has given so far."""

    def __init__(self, name: str, *script: ScriptItem, **options: Any) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._script = script
        self._options = options

    async def _answer(self, request: ModelRequest) -> ModelReply:
        # The history it was handed holds others' steps; its own are those after it took over.
        at = len(self.requests)
        self.requests.append(request)
        return await ScriptedModel(self._script[at : at + 1], latency=1, repeat=True).call(request)

    @property
    def definition(self) -> AgentDefinition:
        options = dict(self._options)
        side = {k: options.pop(k) for k in ("max_steps", "stop_tool") if k in options}
        agent = {k: options.pop(k) for k in ("env", "hooks") if k in options}
        prompt = PromptDefinition(
            name=self.name, prompt=options.pop("prompt", f"You are {self.name}."),
            model=FunctionModel(self._answer), **options,
        )  # fmt: skip
        return AgentDefinition(
            name=self.name, side_a=SideConfig(prompt=prompt, **side), expose_as_tool=True, **agent
        )

    @property
    def offered(self) -> list[str]:
        return [spec.name for spec in self.requests[-1].tools]


def said(request: ModelRequest) -> list[str]:
    return [m.text for m in request.messages if isinstance(m, AssistantMessage)]


def calls_in(request: ModelRequest) -> list[tuple[str, str, bool]]:
    return [
        (each.name, each.output, each.is_error)
        for m in request.messages
        if isinstance(m, AssistantMessage)
        for each in m.calls
    ]


@pytest.mark.spec("D-10", "D-05", "S-07")
async def test_the_new_agent_goes_on_in_the_same_turn_with_the_whole_history(
    journal: Journal, ports: Ports
) -> None:
    desk = Agent(
        "desk", reply("I'll see", call("look", what="the file")),
        reply("one moment", call("billing", reason="money"), call("look", what="nothing")),
        tools=(look, "billing"),
    )  # fmt: skip
    billing = Agent("billing", reply("", call("refund")), "done", tools=(tool(refund),))
    async with Runtime([desk.definition, billing.definition], store=journal, ports=ports) as rt:
        observer = Observer(rt.hub)
        run = await rt.start("desk", "my money back")
        await anyio.sleep(1.5)
        run.send("please")  # waits in the queue over the handoff's step
        outcome = await run.result()
        info = await journal.info(run.run_id)
    assert (outcome.outcome, outcome.output) == ("completed", "done")
    assert desk.offered == ["look", "billing"] and billing.offered == ["refund"]
    assert {r.system for r in billing.requests} == {"You are billing."}
    assert heard(billing.requests[0]) == ["my money back", "please"]
    assert said(billing.requests[0]) == ["I'll see", "one moment"]
    assert calls_in(billing.requests[1]) == [
        ("look", "saw the file", False),
        ("billing", "The conversation was handed over to billing.", False),
        ("look", "skipped: the conversation was handed over to billing", True),
        ("refund", "refunded", False),
    ]
    own = observer.of(run.run_id)
    (handoff,) = [x for x in own if isinstance(x, e.AgentHandoff)]
    assert (handoff.to, handoff.turn, handoff.call_id) == ("billing", 1, "2.0")
    assert [x.type for x in own].count("session:start") == 1, "the same session, the same turn"
    starts = [x.name for x in own if isinstance(x, e.AgentToolStart)]
    assert starts == ["look", "billing", "refund"]
    # What comes after the handoff's own commit carries the new name.
    at = [x.type for x in own].index("agent:handoff")
    assert {x.agent for x in own[:at]} == {"desk"}
    steps = [(x.agent, x.step) for x in own if isinstance(x, e.AgentStep)]
    assert steps == [("desk", 1), ("desk", 2), ("billing", 3), ("billing", 4)]
    assert {x.agent for x in own[at:] if x.call_id != "2.0" and x.call_id != "2.1"} >= {"billing"}
    assert own[-2].agent == "billing"
    assert info is not None and info.agent == "billing"


def refund() -> str:
    return "refunded"


@pytest.mark.spec("D-10")
async def test_every_event_after_the_handoffs_commit_carries_the_new_name(
    journal: Journal, ports: Ports
) -> None:
    seen: list[str] = []

    @tool
    def who(state: RunState) -> str:
        seen.append(state.agent)
        state.hub.emit(e.CustomEvent.of("shop:asked"))
        return "you"

    desk = Agent("desk", call("billing"), tools=("billing",))
    billing = Agent("billing", reply("let me see", call("who")), "done", tools=(who,))
    async with Runtime([desk.definition, billing.definition], store=journal, ports=ports) as rt:
        observer = Observer(rt.hub)
        run = await rt.start("desk", "hello")
        await run.result()
        await run.close()
        await run.finished()
    own = observer.of(run.run_id)
    at = [x.type for x in own].index("agent:handoff")
    commit = [x for x in own if x.seq and x.seq <= own[at].seq + 1]
    rest = [x for x in own if x not in commit]
    assert {x.agent for x in rest} == {"billing"}
    assert {"agent:text:delta", "agent:text", "agent:tool:start", "session:end", "shop:asked",
            "agent:complete"} <= {x.type for x in rest}  # fmt: skip
    assert seen == ["billing"]
    assert assert_one_life(observer.events, run.run_id).agent == "billing"


@pytest.mark.spec("D-10", "H-08")
async def test_the_run_is_addressed_by_its_new_name(journal: Journal, ports: Ports) -> None:
    desk = Agent("desk", call("billing"), tools=("billing",))
    billing = Agent("billing", "hello", "again")
    async with Runtime([desk.definition, billing.definition], store=journal, ports=ports) as rt:
        run = await rt.start("desk", "hello")
        await run.result()
        refused = await rt.hub.send_to("desk", "are you there?")
        accepted = await rt.hub.send_to("billing", "and you?")
        assert (refused.accepted, accepted.accepted) == (False, True)
        assert (await run.result()).output == "again"


@pytest.mark.spec("D-10", "D-07")
async def test_env_prompt_and_variables_are_the_new_agents_and_the_runs_own_stay(
    journal: Journal, ports: Ports
) -> None:
    seen: list[dict[str, str]] = []

    @tool
    def note(state: RunState) -> str:
        seen.append({name: state.env[name] for name in sorted(state.env)})
        state.set_env("CASE", "42")
        return "noted"

    tone = VariableDefinition(name="TONE", type="text")
    case = VariableDefinition(name="CASE", type="text")
    options: dict[str, Any] = {"tools": (note, "billing"), "variables": (tone, case)}
    desk = Agent("desk", call("note"), call("billing"), env={"TONE": "kind", "DESK": "1"},
                 prompt="Be {{TONE}}.", **options)  # fmt: skip
    billing = Agent("billing", call("note"), "done", env={"TONE": "dry"}, tools=(note,),
                    variables=(tone, case), prompt="Be {{TONE}} about {{CASE}}.")  # fmt: skip
    async with Runtime([desk.definition, billing.definition], store=journal, ports=ports) as rt:
        run = await rt.start("desk", "hello", env={"OWN": "mine"})
        await run.result()
    assert [r.system for r in desk.requests] == ["Be kind."] * 2
    assert [r.system for r in billing.requests] == ["Be dry about 42."] * 2
    assert seen == [
        {"DESK": "1", "OWN": "mine", "TONE": "kind"},
        {"CASE": "42", "OWN": "mine", "TONE": "dry"},
    ]


@pytest.mark.spec("D-10", "D-06")
async def test_hooks_are_the_new_agents_from_its_first_step(journal: Journal, ports: Ports) -> None:
    asked: list[str] = []

    def hook(name: str) -> Hook:
        def mark(state: RunState, result: ToolResult) -> ToolResult:
            return ToolResult(f"{result.content} ({name})")

        return Hook(name, "before_store_tool_result", mark)

    def tap(state: RunState, messages: Any) -> None:
        asked.append(state.agent)

    hooks = [hook("desk-hook"), hook("billing-hook"), Hook("tap", "filter_messages", tap)]
    desk = Agent("desk", call("look", what="a"), call("billing"), tools=(look, "billing"),
                 hooks=("desk-hook",))  # fmt: skip
    billing = Agent("billing", call("look", what="b"), "done", tools=(look,),
                    hooks=("billing-hook", "tap"))  # fmt: skip
    agents = [desk.definition, billing.definition]
    async with Runtime(agents, hooks=hooks, store=journal, ports=ports) as rt:
        run = await rt.start("desk", "hello")
        await run.result()
    outputs = {output for name, output, _ in calls_in(billing.requests[-1]) if name == "look"}
    assert outputs == {"saw a (desk-hook)", "saw b (billing-hook)"}
    assert asked == ["billing", "billing"]


@pytest.mark.spec("D-10")
async def test_files_and_keys_stay_with_the_run(journal: Journal, ports: Ports) -> None:
    @tool
    async def keep(state: RunState) -> str:
        await state.files.write("notes.txt", b"seen")
        await state.kv.set("case", 42)
        return "kept"

    @tool
    async def find(state: RunState) -> str:
        return f"{await state.files.read_text('notes.txt')} {state.kv.get('case')}"

    desk = Agent("desk", reply("", call("keep"), call("billing")), tools=(keep, "billing"))
    billing = Agent("billing", call("find"), "done", tools=(find,))
    async with Runtime([desk.definition, billing.definition], store=journal, ports=ports) as rt:
        run = await rt.start("desk", "hello")
        await run.result()
    assert ("find", "seen 42", False) in calls_in(billing.requests[-1])


@pytest.mark.spec("D-10")
async def test_the_conversation_may_be_handed_back(journal: Journal, ports: Ports) -> None:
    desk = Agent("desk", call("billing"), "welcome back", tools=("billing",))
    billing = Agent("billing", call("desk"), tools=("desk",))
    async with Runtime([desk.definition, billing.definition], store=journal, ports=ports) as rt:
        run = await rt.start("desk", "hello")
        assert (await run.result()).output == "welcome back"
        steps = [(x.agent, x.turn) for x in await run.read() if isinstance(x, e.AgentStep)]
    assert steps == [("desk", 1), ("billing", 1), ("desk", 1)]


@pytest.mark.spec("D-10")
async def test_a_handoff_to_itself_is_refused_as_a_tool_error(
    journal: Journal, ports: Ports
) -> None:
    desk = Agent("desk", call("desk"), "then I do it", tools=("desk",))
    async with Runtime([desk.definition], store=journal, ports=ports) as rt:
        observer = Observer(rt.hub)
        run = await rt.start("desk", "hello")
        assert (await run.result()).output == "then I do it"
    assert calls_in(desk.requests[1]) == [("desk", "you are desk already; go on yourself", True)]
    assert observer.all("agent:handoff") == []


@pytest.mark.spec("D-10", "D-05")
def test_a_side_of_two_cannot_hand_over_and_an_unexposed_agent_cannot_be_handed_to() -> None:
    prompt = PromptDefinition(name="p", prompt="", model=ScriptedModel([]), tools=("billing",))
    both = SideConfig(prompt=prompt)
    pair = AgentDefinition(
        name="pair", type="dual_ai", side_a=both, side_b=both, max_session_turns=2
    )
    billing = Agent("billing").definition
    with pytest.raises(DefinitionError, match="a side of dual_ai cannot hand over to 'billing'"):
        Runtime([pair, billing], store="memory")
    hidden = AgentDefinition(name="billing", side_a=billing.side_a)
    with pytest.raises(DefinitionError, match="agent 'billing' is not exposed"):
        Runtime([Agent("desk", tools=("billing",)).definition, hidden], store="memory")


# ── after a restart ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("D-10", "T-04")
async def test_after_parking_and_in_the_next_process_it_is_still_the_new_agent(
    journal: Journal, ports: Ports
) -> None:
    desk = Agent("desk", call("billing"), tools=("billing",))
    billing = Agent("billing", "one", "two", "three")
    agents = [desk.definition, billing.definition]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        run = await rt.start("desk", "hello")
        await run.result()
        await anyio.sleep(3600)
        assert rt.hub.statistics().parked == 1
        run.send("still there?")
        assert (await run.result()).output == "two"
    async with Runtime(agents, store=journal, ports=ports) as rt:
        observer = Observer(rt.hub)
        await rt.hub.send_to_run(run.run_id, "and now?")
        assert (await rt.result(run.run_id)).output == "three"
    assert heard(billing.requests[-1]) == ["hello", "still there?", "and now?"]
    assert {r.system for r in billing.requests} == {"You are billing."}
    assert len(desk.requests) == 1
    assert {x.agent for x in observer.of(run.run_id)} == {"billing"}


class Shop:
    """Three agents and what they do outside of the journal; their answers depend on no process."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.systems: list[str] = []

    def agents(self) -> list[AgentDefinition]:
        @tool(idempotent=True)
        async def work(name: str) -> str:
            self.ran[name] += 1
            await anyio.sleep(0.5)
            return f"{name} done"

        def model(*script: ScriptItem) -> FunctionModel:
            scripted = ScriptedModel(script, latency=1)

            async def answer(request: ModelRequest) -> ModelReply:
                self.systems.append(request.system)
                return await scripted.call(request)

            return FunctionModel(answer)

        def one(name: str, *tools: Any) -> AgentDefinition:
            answers = model(
                reply("hello", call("work", name="a"), call("sales")),
                reply("", call("work", name="b"), call("support"), call("work", name="never")),
                call("work", name="c"),
                "sold",
            )
            prompt = PromptDefinition(name=name, prompt=name, model=answers, tools=(work, *tools))
            side = SideConfig(prompt=prompt)
            return AgentDefinition(name=name, side_a=side, expose_as_tool=True)

        return [one("desk", "sales"), one("sales", "support"), one("support")]


@pytest.mark.spec("D-10", "S-07")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
async def test_killed_after_any_commit_the_conversation_is_handed_over_all_the_same(
    late: bool,
) -> None:
    async def held(after: int | None) -> tuple[list[Event], Shop, int, str]:
        shop, ports, journal = Shop(), virtual_ports(), MemoryJournal()
        run_id = ports.ids.run_id(ports.clock.now())
        crash = CrashJournal(journal, after)
        store: Any = LateJournal(crash) if late else crash  # type: ignore[arg-type]
        if after is not None:
            async with Runtime(shop.agents(), store=store, ports=ports, grace=0) as rt:
                rt.hub.open("desk", "hello", run_id=run_id)
                with anyio.fail_after(1000):
                    await crash.crashed.wait()
            store = journal
        async with Runtime(shop.agents(), store=store, ports=ports) as rt:
            await rt.hub.open("desk", "hello", run_id=run_id)
            await rt.result(run_id)
            info = await journal.info(run_id)
        assert info is not None
        loaded = await journal.load(run_id)
        assert loaded is not None
        return list(loaded.events), shop, crash.commits, info.agent

    whole, _, commits, name = await held(None)
    end = fold_all(EMPTY, whole)
    assert (end.agent, name, end.last_text) == ("support", "support", "sold")
    assert commits > 8
    for after in portion(range(commits)):
        events, shop, _, name = await held(after)
        thread = fold_all(EMPTY, events)
        assert (thread.agent, name) == ("support", "support"), after
        assert thread.transcript == end.transcript, after
        assert [x.to for x in events if isinstance(x, e.AgentHandoff)] == ["sales", "support"]
        steps = [x.agent for x in events if isinstance(x, e.AgentStep)]
        assert steps == ["desk", "sales", "support", "support"], after
        assert shop.ran["never"] == 0
        # Nobody was asked out of turn: each agent's prompt, again at most for the lost call.
        order = [name for name, before in zip(shop.systems, ["", *shop.systems], strict=False)
                 if name != before]  # fmt: skip
        assert order == ["desk", "sales", "support"], after
