"""A listener that joins in the middle of an answer first gets its text so far (U-01)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import anyio
import anyio.lowlevel
import pytest
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import heard, model_agent
from support.profiles import examples
from support.virtual_time import VirtualTimeLoop

from hubbub import Event, Hub, Runtime, agent
from hubbub.agents.model import (
    ModelReply,
    ModelRequest,
    OnDelta,
    TextDelta,
    Thinking,
    ThinkingDelta,
)
from hubbub.hub.delivery import answers
from hubbub.hub.errors import ModelUnavailable
from hubbub.hub.events import AgentTextDelta, AgentThinkingDelta
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import ScriptedModel
from hubbub.runtime.stores.open import sqlite_store

WORDS: Final = [f"{word} " for word in ("zero", "öne", "two👋", "three", "four", "five", "six")]
TEXT: Final = "".join(WORDS)
SO_FAR: Final = "".join(WORDS[:3])
"""What has been said after three and a half seconds: reasoning takes the first one."""


def speaker() -> ScriptedModel:
    return ScriptedModel([TEXT], latency=float(len(WORDS)), chunk=None)


def deltas(events: Sequence[Event]) -> list[AgentTextDelta]:
    return [x for x in events if isinstance(x, AgentTextDelta)]


@pytest.fixture(params=["memory", "late", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Any, ports: Ports) -> Journal:
    if request.param == "sqlite":
        return sqlite_store(tmp_path, ports=ports)
    inner = MemoryJournal()
    return inner if request.param == "memory" else LateJournal(inner)


def _streamed(hub: Hub, run: Any, got: list[Event]) -> Any:
    return hub.subscribe("agent:*", partial=True)


def _by_the_handle(hub: Hub, run: Any, got: list[Event]) -> Any:
    return run.events()


def _called(hub: Hub, run: Any, got: list[Event]) -> Any:
    hub.subscribe("agent:text:delta", got.append, partial=True)


def _awaited_for_the_run(hub: Hub, run: Any, got: list[Event]) -> Any:
    async def take(event: Event) -> None:
        got.append(event)

    hub.subscribe(["agent:text:*"], take, run_id=run.run_id, partial=True)


def _after_the_past(hub: Hub, run: Any, got: list[Event]) -> Any:
    return hub.subscribe("*", root_run_id=run.run_id, after="start", partial=True)


WAYS: Final = [_streamed, _by_the_handle, _called, _awaited_for_the_run, _after_the_past]


@pytest.mark.anyio
@pytest.mark.spec("U-01")
@pytest.mark.parametrize("listen", WAYS)
@pytest.mark.parametrize("joins_at", [0.5, 3.5, 6.5])
async def test_a_listener_that_joins_first_gets_the_text_so_far_in_one_piece(
    listen: Callable[..., Any], joins_at: float, store: Journal, ports: Ports
) -> None:
    got: list[Event] = []
    async with Runtime([model_agent(speaker())], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "go")
        await anyio.sleep(joins_at)
        stream = listen(rt.hub, run, got)

        async def read() -> None:
            async with stream:
                async for event in stream:
                    got.append(event)  # noqa: PERF401  # Each as it comes.

        if stream is not None:
            rt.hub.tasks.start(read(), name="a listener")
        await anyio.sleep(0.1)
        before = TEXT[: sum(map(len, WORDS[: int(joins_at)]))]
        assert [(x.offset, x.text) for x in deltas(got)] == ([(0, before)] if before else [])
        await run.result()
        await anyio.sleep(1)
        assert not rt.hub.dispatcher.answers.by_run
    assert "".join(x.text for x in deltas(got)) == TEXT
    assert [x.offset for x in deltas(got)] == [
        sum(len(y.text) for y in deltas(got)[:n]) for n in range(len(deltas(got)))
    ]
    assert all((x.step, x.attempt, x.block, x.agent) == (1, 1, 0, "assistant") for x in deltas(got))
    order = [x.type for x in got]
    if "session:taken" in order:
        assert order.index("session:taken") < order.index("agent:text:delta")


@pytest.mark.anyio
@pytest.mark.spec("U-01")
@pytest.mark.parametrize("lossless", [False, True])
async def test_a_listener_that_falls_behind_gets_what_it_has_missed_in_one_piece(
    lossless: bool, store: Journal, ports: Ports
) -> None:
    got: list[Event] = []

    async def take(event: Event) -> None:
        got.append(event)
        if len(got) == 1:
            await anyio.sleep(3.2)

    async with Runtime([model_agent(speaker())], store=store, ports=ports) as rt:
        rt.hub.subscribe(["agent:text:delta"], take, partial=True, buffer=1, lossless=lossless)
        run = await rt.start("assistant", "go")
        await run.result()
        await anyio.sleep(1)
        missed = rt.hub.statistics().dropped
    said = deltas(got)
    assert "".join(x.text for x in said) == TEXT
    assert missed == (0 if lossless else 2) and len(said) < len(WORDS)


@pytest.mark.anyio
@pytest.mark.spec("U-01")
async def test_pieces_that_wait_for_a_commit_come_behind_it_and_once(ports: Ports) -> None:
    """The model answers while the store still writes what led to it."""
    journal = LateJournal(MemoryJournal(), turns=40)
    got: list[Event] = []
    late: list[Event] = []
    pieces = [(-1.0, -1, "a"), (-2.0, -1, "b"), (-3.0, -1, "c"), (0.0, -1, "d")]
    async with Runtime([model_agent(Speaker([[pieces]]))], store=journal, ports=ports) as rt:
        rt.hub.subscribe("*", got.append, partial=True)
        receipt = rt.hub.open("assistant", "0")
        under_way = rt.hub.dispatcher.answers.by_run
        for _ in range(100):
            if not under_way:
                await anyio.lowlevel.checkpoint()
        assert not under_way[receipt.run_id][0].is_shown
        rt.hub.subscribe("*", late.append, partial=True)
        await rt.result(receipt.run_id)
        await anyio.sleep(1)
    for each in (got, late):
        assert "".join(x.text for x in deltas(each)) == "abcd"
        order = [x.type for x in each]
        assert order.index("session:taken") < order.index("agent:text:delta")


@pytest.mark.anyio
async def test_a_plain_subscription_gets_only_what_is_said_from_then_on(
    store: Journal, ports: Ports
) -> None:
    got: list[Any] = []
    async with Runtime([model_agent(speaker())], store=store, ports=ports) as rt:
        run = await rt.start("assistant", "go")
        await anyio.sleep(3.5)
        rt.hub.subscribe("agent:text:delta", got.append)
        await run.result()
    assert got[0].offset == len(SO_FAR)


@pytest.mark.anyio
async def test_two_conversations_of_one_code_agent_are_told_apart(
    store: Journal, ports: Ports
) -> None:
    @agent("talker")
    async def talker(input: Any, ctx: Any) -> None:
        async def talk(model: Any) -> None:
            async with ctx.session(model=model) as session:
                await session.send("go")
                async for _ in session.receive():
                    ctx.status("said")  # A record in the middle of the other answer.

        async with anyio.create_task_group() as group:
            group.start_soon(talk, speaker())
            group.start_soon(talk, ScriptedModel(["a b c d"], latency=4.0))

    got: list[Event] = []
    async with Runtime([talker], store=store, ports=ports) as rt:
        run = await rt.start("talker", "go")
        await anyio.sleep(3.2)
        async with run.events() as events:
            got.extend([event async for event in events])
    by_step: defaultdict[int, str] = defaultdict(str)
    for each in deltas(got):
        assert each.offset == len(by_step[each.step])
        by_step[each.step] += each.text
    assert sorted(by_step.values()) == sorted([TEXT, "a b c d"])


@pytest.mark.anyio
async def test_of_an_answer_that_grows_too_long_the_end_is_kept_and_the_offset_shows_it(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.runtime.activities.deltas.MAX_KEPT", 8)
    got: list[Event] = []
    async with Runtime([model_agent(speaker())], store="memory", ports=ports) as rt:
        run = await rt.start("assistant", "go")
        await anyio.sleep(3.5)
        rt.hub.subscribe("agent:text:delta", got.append, partial=True)
        await run.result()
        await anyio.sleep(1)
    first = deltas(got)[0]
    assert first.offset > 0
    assert "".join(x.text for x in deltas(got)) == TEXT[first.offset :]


@pytest.mark.anyio
async def test_an_agents_own_deltas_pass_as_they_are(ports: Ports) -> None:
    @agent("talker")
    async def talker(input: Any, ctx: Any) -> None:
        for text in ("a", "b", "b"):
            ctx.hub.emit(AgentTextDelta(text=text))

    got: list[Event] = []
    async with Runtime([talker], store="memory", ports=ports) as rt:
        rt.hub.subscribe("agent:text:delta", got.append, partial=True)
        await rt.run("talker", "go")
        await anyio.sleep(1)
    assert [x.text for x in deltas(got)] == ["a", "b", "b"]


@pytest.mark.anyio
async def test_where_nobody_listens_no_event_is_made(ports: Ports) -> None:
    async with Runtime([model_agent(speaker())], store="memory", ports=ports) as rt:
        before = rt.hub.dispatcher.number
        await rt.run("assistant", "go")
        assert rt.hub.dispatcher.number == before


# ── any listener, any answer ─────────────────────────────────────────────────────────────────

Piece = tuple[float, int, str]
"""Seconds before it (turns of the loop, where below zero), the block of reasoning or -1, and the
text."""


class Listener(NamedTuple):
    joins: float
    turns: int
    leaves: float
    way: int
    buffer: int | None
    lossless: bool
    pause: float


class Speaker:
    """Says what it is to say in each attempt; all attempts but the last fail."""

    name = "speaker"

    def __init__(self, scripts: list[list[list[Piece]]]) -> None:
        self.scripts = scripts

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        assert on_delta is not None
        attempts = self.scripts[int(heard(request)[-1])]
        pieces = attempts[min(request.attempt, len(attempts)) - 1]
        for seconds, block, text in pieces:
            if seconds > 0:
                await anyio.sleep(seconds)
            for _ in range(int(-seconds)):
                await anyio.lowlevel.checkpoint()
            on_delta(TextDelta(text) if block < 0 else ThinkingDelta(text, block))
        if request.attempt < len(attempts):
            raise ModelUnavailable(self.name, "server", "no")
        said = said_in(pieces)
        thinking = tuple(Thinking(text=said.get(block, "")) for block in (0, 1))
        return ModelReply(text=said.get(-1, "") or ".", thinking=thinking)


def said_in(pieces: list[Piece]) -> dict[int, str]:
    found: defaultdict[int, str] = defaultdict(str)
    for _, block, text in pieces:
        found[block] += text
    return found


piece = st.tuples(
    st.sampled_from([0.0, 0.0, -1.0, -4.0, 0.5, 1.0]),
    st.sampled_from([-1, -1, 0, 1]),
    st.text(alphabet="aé👋", min_size=1, max_size=4),
)
scripts = st.lists(
    st.lists(st.lists(piece, max_size=8), min_size=1, max_size=3), min_size=1, max_size=3
)
listener = st.builds(
    Listener,
    turns=st.integers(0, 12),
    joins=st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.75, 2.25, 4.0]),
    leaves=st.sampled_from([0.5, 2.0, 100.0, 100.0, 100.0]),
    way=st.integers(0, 3),
    buffer=st.sampled_from([None, None, 1, 3]),
    lossless=st.booleans(),
    pause=st.sampled_from([0.0, 0.0, 0.75]),
)


async def hear(rt: Runtime, run: Any, plan: Listener, got: list[Event]) -> None:
    """Listen as planned until the time to leave."""
    await anyio.sleep(plan.joins)
    for _ in range(plan.turns):
        await anyio.lowlevel.checkpoint()
    options: dict[str, Any] = {"partial": True, "buffer": plan.buffer, "lossless": plan.lossless}

    async def take(event: Event) -> None:
        got.append(event)
        await anyio.sleep(plan.pause)

    if plan.way == 2:
        place = rt.hub.subscribe("agent:*", take, **options)
        await anyio.sleep(plan.leaves)
        place.close()
        return
    if plan.way == 0:
        stream = run.events()
    elif plan.way == 1:
        stream = rt.hub.subscribe("*", after="start", **options)
    else:
        stream = rt.hub.subscribe(["agent:text:*", "agent:thinking:*"], **options)
    with anyio.move_on_after(plan.leaves):
        async with stream:
            async for event in stream:
                await take(event)


@pytest.mark.spec("U-01", "R-11")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@settings(max_examples=examples(100), deadline=None)
@given(scripts, st.lists(listener, min_size=1, max_size=4), st.sampled_from([0, 1, 10, 40]))
def test_whoever_joins_and_leaves_gets_each_part_once_and_in_order(
    loop: str, plans: list[list[list[Piece]]], listeners: list[Listener], late: int
) -> None:
    heard_by: list[list[Event]] = [[] for _ in listeners]

    async def main() -> None:
        inner = MemoryJournal()
        store: Any = LateJournal(inner, turns=late) if late else inner
        bot = model_agent(Speaker(plans))
        async with (
            Runtime([bot], store=store, ports=virtual_ports()) as rt,
            anyio.create_task_group() as group,
        ):
            runs = [await rt.start("assistant", str(n)) for n in range(len(plans))]
            for number, (plan, got) in enumerate(zip(listeners, heard_by, strict=True)):
                group.start_soon(hear, rt, runs[number % len(runs)], plan, got)
            for run in runs:
                await run.result()
                run.close()
            await anyio.sleep(1000)
            assert not rt.hub.dispatcher.answers.by_run
            group.cancel_scope.cancel()
        texts.update({run.run_id: attempts for run, attempts in zip(runs, plans, strict=True)})

    texts: dict[str, list[list[Piece]]] = {}
    options: dict[str, Any] = (
        {"loop_factory": VirtualTimeLoop}
        if loop == "asyncio"
        else {"clock": trio.testing.MockClock(autojump_threshold=0)}
    )
    anyio.run(main, backend=loop, backend_options=options)
    for plan, got in zip(listeners, heard_by, strict=True):
        check(plan, got, texts)


def check(plan: Listener, got: list[Event], texts: dict[str, list[list[Piece]]]) -> None:
    reached: dict[Any, int] = {}
    may_drop = plan.buffer is not None and plan.way != 0
    for event in got:
        if not isinstance(event, AgentTextDelta | AgentThinkingDelta):
            continue
        block = -1 if isinstance(event, AgentTextDelta) else event.block
        key = (event.run_id, event.step, event.attempt, block)
        whole = said_in(texts[event.run_id][event.attempt - 1])[block]
        end = reached.get(key, 0)
        assert event.offset >= end, "nothing comes twice"
        assert may_drop or event.offset == end, "and nothing is left out"
        assert whole[event.offset :].startswith(event.text) and event.text
        reached[key] = event.offset + len(event.text)
    if may_drop or plan.leaves < 100:
        return
    for (run_id, _, attempt, block), end in reached.items():
        assert end == len(said_in(texts[run_id][attempt - 1])[block]), "to the end"


def test_what_a_stream_remembers_of_answers_is_bounded() -> None:
    under_way = answers.PartialAnswers(lambda call: call())
    received = answers.ReceivedText(under_way)

    class Lane:
        seq = 1

    for number in range(1000):
        about = AgentTextDelta(run_id=f"r{number}", step=1)
        answer = under_way.begin(about, Lane())
        block = answer.block((AgentTextDelta, 0))
        block.pieces, block.length = ["a"], 1
        event = answer.rest((AgentTextDelta, 0), 0)
        assert event is not None
        received.give(event)
        answer.ended_at = 0
        under_way.overtake(AgentTextDelta(run_id=f"r{number}", seq=2))
    assert not under_way.by_run
    assert len(received._reached) <= 64
