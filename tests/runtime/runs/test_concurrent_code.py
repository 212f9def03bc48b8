"""Code agents whose tasks run at once, executed again after a crash (P-15, P-10, U-05).

Whatever the order in which their tasks come this time, each gets what is its own.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from support.agents import echo_model
from support.crash_journal import CrashJournal
from support.profiles import examples, portion

from hubbub import AgentDefinition, Hub, Message, RunContext, Runtime
from hubbub.agents.state.call_order import CallOrder, RecordedCall, identity_of, keyed
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, ChildChanged
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

RUN = "worker-1"
Body = Callable[[RunContext], Awaitable[Any]]


def code(body: Body, *, name: str = "worker", on_restart: Any = "resume") -> AgentDefinition:
    async def execute(input: Any, ctx: RunContext) -> Any:
        return await body(ctx)

    return AgentDefinition(name=name, execute=execute, on_restart=on_restart)


async def _help(input: Any, ctx: RunContext) -> str:
    await anyio.sleep(2)
    return f"helped {input}"


HELPER = AgentDefinition(name="helper", execute=_help, on_restart="resume")


class Lives:
    """One process after another on a store, in each of which a person answers what is asked."""

    def __init__(self, kind: str, folder: Path, *agents: AgentDefinition) -> None:
        self.kind = kind
        self.folder = folder
        self.agents = (*agents, HELPER)
        self.ports: Ports = virtual_ports()
        self.commits = 0
        self._memory = MemoryJournal()

    def journal(self) -> Journal:
        if self.kind == "sqlite":
            return sqlite_store(self.folder, ports=self.ports, mirror=False)
        return self._memory

    async def live(self, after: int | None = None, seconds: float = 10_000) -> Any:
        """One process, until the run is over, or it is dead; the run's outcome."""
        crashing = CrashJournal(self.journal(), after)
        store: Any = LateJournal(crashing) if self.kind == "late" else crashing
        outcome = None
        async with Runtime(self.agents, store=store, ports=self.ports, grace=0) as rt:
            async with anyio.create_task_group() as group:

                async def go() -> None:
                    nonlocal outcome
                    with rt.hub.subscribe(
                        e.SessionPrompt, lambda x: group.start_soon(_answer, rt.hub, x)
                    ):
                        for prompt in await _open(rt.hub):
                            group.start_soon(_answer, rt.hub, prompt)
                        first = Message("Go.", key="m")
                        await rt.hub.open("worker", first, run_id=RUN, source="web")
                        outcome = await rt.finished(RUN)
                        group.cancel_scope.cancel()

                group.start_soon(go)
                with anyio.move_on_after(seconds):
                    await crashing.crashed.wait()
                group.cancel_scope.cancel()
            self.commits = crashing.commits
        return outcome

    async def events(self) -> list[Event]:
        async with Hub(journal=self.journal(), ports=self.ports) as hub:
            return await hub.read()


async def _open(hub: Hub) -> list[e.SessionPrompt]:
    found: dict[str, e.SessionPrompt] = {}
    for event in await hub.read(types=["session:prompt", "session:prompt:end"]):
        if isinstance(event, e.SessionPrompt):
            found[event.prompt_id] = event
        elif isinstance(event, e.SessionPromptEnd):
            found.pop(event.prompt_id, None)
    return list(found.values())


async def _answer(hub: Hub, prompt: e.SessionPrompt) -> None:
    await anyio.sleep(1 + len(prompt.question) % 3)
    await hub.reply(prompt.prompt_id, f"answered {prompt.question}")


@contextmanager
def noted(words: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(words)
        raise


def children(events: list[Event]) -> list[e.AgentChild]:
    return [x for x in events if isinstance(x, e.AgentChild) and x.run_id == RUN]


def prompts(events: list[Event]) -> list[e.SessionPrompt]:
    return [x for x in events if isinstance(x, e.SessionPrompt)]


def asked_for_good(events: list[Event]) -> list[e.SessionPrompt]:
    return [x for x in prompts(events) if not x.question.endswith(" or not")]


# ── what is killed anywhere ──────────────────────────────────────────────────────────────────


class Plan(Struct, frozen=True):
    """What each task does, one thing after another, and how long it dawdles before each."""

    tasks: tuple[tuple[str, ...], ...]
    seed: int

    def seconds(self, attempt: int, task: int, place: int) -> float:
        return Random(f"{self.seed} {attempt} {task} {place}").choice((0.0, 0.0, 0.5, 1.0, 3.0))


STARTING = ("spawn", "same", "left")
ASKING = ("ask", "keyed", "asked inside")
KINDS = (*STARTING, *ASKING, "step", "late step", "given up", "kv", "file", "session")

PLANS = st.builds(
    Plan,
    st.lists(
        st.lists(st.sampled_from(KINDS), max_size=3).map(tuple),
        min_size=2, max_size=4,
    ).map(tuple),
    st.integers(0, 99),
)  # fmt: skip


async def _late(own: str) -> str:
    await anyio.sleep(0.7)
    return f"made {own}"


def planned(plan: Plan, wrong: list[str]) -> AgentDefinition:
    """Does what is planned, and lists what was not its own."""

    async def do(ctx: RunContext, kind: str, own: str) -> tuple[Any, Any]:
        match kind:
            case "spawn":
                return (await ctx.spawn("helper", own).result()).output, f"helped {own}"
            case "same":  # Equal in all tasks, so whichever child it gets is right.
                run = ctx.spawn("helper", {"b": 1, "a": 2}, name="any")
                return (await run.result()).output, "helped {'b': 1, 'a': 2}"
            case "ask":
                return await ctx.ask(own), f"answered {own}"
            case "keyed":
                said = await ctx.ask(f"{own}, try {ctx.attempt}", key=own)
                return str(said).partition(",")[0], f"answered {own}"
            case "asked inside":
                return await ctx.step(f"asks {own}", ctx.ask, own), f"answered {own}"
            case "given up":
                with anyio.move_on_after(1.5):
                    return await ctx.ask(f"{own} or not"), f"answered {own} or not"
            case "left":
                run = ctx.spawn("helper", own)
                with anyio.move_on_after(1.5):
                    return (await run.result()).output, f"helped {own}"
            case "late step":
                with anyio.move_on_after(0.5 * ctx.attempt):
                    return await ctx.step(own, _late, own), f"made {own}"
            case "kv":
                await ctx.kv.set(own, f"kept {own}")
                return ctx.kv.get(own), f"kept {own}"
            case "file":
                await ctx.files.write(own, f"kept {own}".encode())
                return await ctx.files.read(own), f"kept {own}".encode()
            case "session":
                async with ctx.session(model=echo_model(0.5)) as session:
                    await session.send(own)
                    async for _ in session.receive():
                        await anyio.sleep(0.1)
                    return session.text, f"echo: {own}"
            case _:
                return await ctx.step(own, lambda: f"made {own}"), f"made {own}"
        return None, None  # It took too long.

    async def body(ctx: RunContext) -> None:
        async def one(number: int, kinds: tuple[str, ...]) -> None:
            for place, kind in enumerate(kinds):
                await anyio.sleep(plan.seconds(ctx.attempt, number, place))
                found, expected = await do(ctx, kind, f"{number}.{place}")
                if found != expected:
                    wrong.append(f"{expected!r} was wanted, and {found!r} found")

        async with anyio.create_task_group() as group:
            for number, kinds in enumerate(plan.tasks):
                group.start_soon(one, number, kinds)

    return code(body)


async def killed_everywhere(plan: Plan, kind: str, folder: Path) -> None:
    wrong: list[str] = []
    whole = Lives(kind, folder / "whole", planned(plan, wrong))
    assert (await whole.live()).success
    for after in portion(range(3, whole.commits)):
        again = Random(f"{plan.seed} {after}").randint(1, 20)
        with noted(f"killed after {after} of {whole.commits} commits, and after {again} more"):
            lives = Lives(kind, folder / str(after), planned(plan, wrong))
            outcome = await lives.live(after) or await lives.live(again) or await lives.live()
            assert outcome.success, outcome.reason
            assert not wrong, wrong
            every = [kind for kinds in plan.tasks for kind in kinds]
            events = await lives.events()
            assert len(children(events)) == sum(map(every.count, STARTING))
            assert len(asked_for_good(events)) == sum(map(every.count, ASKING))
            ended = [x.prompt_id for x in events if isinstance(x, e.SessionPromptEnd)]
            assert sorted(ended) == sorted(x.prompt_id for x in prompts(events))


@pytest.mark.spec("P-15", "P-10", "U-05")
@given(plan=PLANS, store=st.sampled_from(["memory", "late"]))
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_each_task_gets_its_own_wherever_the_process_is_killed(
    plan: Plan, store: str, tmp_path: Path
) -> None:
    await killed_everywhere(plan, store, tmp_path)


@pytest.mark.spec("P-15", "P-10", "U-05")
@pytest.mark.parametrize("seed", range(3))
async def test_each_task_gets_its_own_from_a_database(seed: int, tmp_path: Path) -> None:
    tasks = (("spawn", "ask"), ("ask", "keyed", "spawn"), ("step", "same", "ask"))
    await killed_everywhere(Plan(tasks, seed), "sqlite", tmp_path)


# ── spawning ─────────────────────────────────────────────────────────────────────────────────


async def restarted(
    before: Body, after: Body, tmp_path: Path, *, seconds: float = 5
) -> tuple[Any, list[Event]]:
    """The outcome of a run whose code is ``after`` once its process has been left."""
    lives = Lives("memory", tmp_path, code(before))
    assert await lives.live(seconds=seconds) is None
    lives.agents = (code(after), HELPER)
    return await lives.live(), await lives.events()


def spawning(*inputs: Any, **options: Any) -> Body:
    async def body(ctx: RunContext) -> list[Any]:
        runs = [ctx.spawn("helper", each, **options) for each in inputs]
        await anyio.sleep(10)
        return [(await run.result()).output for run in runs]

    return body


@pytest.mark.spec("P-15")
async def test_a_child_is_found_by_what_it_is_asked_and_not_by_its_order(tmp_path: Path) -> None:
    outcome, events = await restarted(
        spawning("a", "b", {"x": 1, "y": [2]}), spawning({"y": [2], "x": 1}, "b", "a"), tmp_path
    )
    assert outcome.output == ["helped {'x': 1, 'y': [2]}", "helped b", "helped a"]
    assert [x.index for x in children(events)] == [1, 2, 3]


@pytest.mark.spec("P-15")
async def test_one_tasks_child_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    outcome, events = await restarted(spawning("at 10:03"), spawning("at 10:08"), tmp_path)
    assert outcome.outcome == "failed"
    for words in ("child number 1", "with another name or input", "into steps, or give key="):
        assert words in outcome.reason
    assert len(children(events)) == 1


@pytest.mark.spec("P-15")
async def test_a_key_finds_a_child_whatever_its_input(tmp_path: Path) -> None:
    outcome, events = await restarted(
        spawning("at 10:03", key="report"), spawning("at 10:08", key="report"), tmp_path
    )
    assert outcome.output == ["helped at 10:03"]
    assert [x.identity for x in children(events)] == ["key:report"]


@pytest.mark.spec("P-15")
async def test_a_key_is_a_text_and_given_once_unless_its_call_came_to_nothing(
    tmp_path: Path,
) -> None:
    async def body(ctx: RunContext) -> None:
        ctx.spawn("helper", "a", key="one")
        assert await ctx.ask("Sure?", key="one") == "answered Sure?"
        with pytest.raises(BadValue, match="'one' was given before"):
            ctx.spawn("helper", "b", key="one")
        with pytest.raises(BadValue, match="'one' was given before"):
            await ctx.ask("Sure?", key="one")
        with pytest.raises(BadValue, match="agent"):
            ctx.spawn(7, "b", key="two")  # type: ignore[call-overload]
        assert (await ctx.spawn("helper", "b", key="two").result()).success
        with anyio.move_on_after(0.5):
            await ctx.ask("Really?", key="two")
        assert await ctx.ask("Really?", key="two") == "answered Really?"
        for key in ("", 7, "\ud800"):
            with pytest.raises(BadValue, match="key"):
                ctx.spawn("helper", "b", key=key)  # type: ignore[arg-type]
            with pytest.raises(BadValue, match="key"):
                await ctx.ask("Sure?", key=key)  # type: ignore[call-overload]

    lives = Lives("memory", tmp_path, code(body))
    outcome = await lives.live()
    assert outcome.success, outcome.reason
    assert len(children(await lives.events())) == 2


@pytest.mark.spec("P-15")
async def test_another_agent_under_the_same_key_is_refused(tmp_path: Path) -> None:
    async def other(ctx: RunContext) -> None:
        with pytest.raises(ChildChanged, match=r"as a run of 'helper', but now .* 'worker'"):
            ctx.spawn("worker", "a", key="one")

    outcome, _ = await restarted(spawning("a", key="one"), other, tmp_path)
    assert outcome.success, outcome.reason


@pytest.mark.spec("P-15")
async def test_what_comes_to_one_task_from_several_is_no_change(tmp_path: Path) -> None:
    """Its one task starts what it does in the order in which others are done."""

    async def body(ctx: RunContext) -> list[Any]:
        send, receive = anyio.create_memory_object_stream[str](10)
        first, late = ("a", "b") if ctx.attempt == 1 else ("b", "a")

        async def fetch(name: str) -> None:
            await anyio.sleep(1 if name == first else 20)
            await send.send(await ctx.step(f"fetch {name}", lambda: name))

        found = {}
        async with send, receive, anyio.create_task_group() as group:
            group.start_soon(fetch, late)
            group.start_soon(fetch, first)
            for _ in "ab":
                name = await receive.receive()
                found[name] = ctx.spawn("helper", name)
        return [(await found[name].result()).output for name in "ab"]

    outcome, events = await restarted(body, body, tmp_path)
    assert outcome.output == ["helped a", "helped b"], outcome.reason
    assert len(children(events)) == 2


@pytest.mark.spec("P-15")
async def test_a_child_that_is_not_asked_for_again_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks run at once, so the other input may be that of one that comes early."""

    async def body(ctx: RunContext) -> list[Any]:
        found: list[Any] = []

        async def one() -> None:
            run = ctx.spawn("helper", f"attempt {ctx.attempt}")
            await anyio.sleep(10)
            found.append((await run.result()).output)

        async with anyio.create_task_group() as group:
            group.start_soon(one)
        return found

    outcome, events = await restarted(body, body, tmp_path)
    assert outcome.output == ["helped attempt 2"]
    first, second = children(events)
    assert [x.index for x in (first, second)] == [1, 2]
    (line,) = [x.getMessage() for x in caplog.records if "children.not_found" in x.getMessage()]
    assert first.child_run_id in line
    assert second.child_run_id not in line


# ── asking ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-15", "U-05")
async def test_of_two_questions_the_first_answer_counts_again(tmp_path: Path) -> None:
    """The question that was withdrawn for it does not fail the next execution."""

    async def body(ctx: RunContext) -> list[str]:
        said: list[str] = []

        async def one(question: str, group: Any) -> None:
            said.append(await ctx.ask(question))
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for question in ("Slow", "Fast?"):  # Answered after so long as their lengths say.
                group.start_soon(one, question, group)
        await anyio.sleep(10)
        return said

    # "Slow" takes 2 seconds to answer, "Fast?" takes 3.
    outcome, events = await restarted(body, body, tmp_path)
    assert outcome.output == ["answered Slow"], outcome.reason
    ends = [x.reason for x in events if isinstance(x, e.SessionPromptEnd)]
    assert ends[:2] == ["answered", "closed"]


@pytest.mark.spec("P-15", "U-05")
async def test_a_question_that_was_given_up_is_asked_again(tmp_path: Path) -> None:
    async def body(ctx: RunContext) -> list[str]:
        said: list[str] = []
        while not said:
            with anyio.move_on_after(0.5 if ctx.attempt == 1 else 60):
                said.append(await ctx.ask("Ready?"))
        said.append(await ctx.ask("Sure?"))
        return said

    lives = Lives("memory", tmp_path, code(body))
    assert await lives.live(seconds=1.75) is None
    outcome, events = await lives.live(), await lives.events()
    assert outcome.output == ["answered Ready?", "answered Sure?"], outcome.reason
    ids = [x.prompt_id for x in prompts(events)]
    assert len(set(ids)) == len(ids)
    ended = [x.prompt_id for x in events if isinstance(x, e.SessionPromptEnd)]
    assert sorted(ended) == sorted(ids)


# ── steps ────────────────────────────────────────────────────────────────────────────────────


async def _twice_at_once(ctx: RunContext) -> list[str]:
    found: list[str] = []

    async def work(city: str) -> str:
        await anyio.sleep(1)
        return f"fetched {city}"

    async def one(city: str) -> None:
        found.append(await ctx.step("fetch", work, city))

    async with anyio.create_task_group() as group:
        group.start_soon(one, "Rome")
        group.start_soon(one, "Oslo")
    return sorted(found)


@pytest.mark.spec("P-15")
async def test_two_steps_of_one_name_at_once_are_refused_where_a_crash_could_swap_them(
    tmp_path: Path,
) -> None:
    async def body(ctx: RunContext) -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            await _twice_at_once(ctx)
        (error,) = caught.value.exceptions
        assert isinstance(error, BadValue)
        assert "give each a name of its own" in str(error)
        # What was cut off or refused is not under way any more.
        assert await ctx.step("fetch", lambda: "again") == "again"

    lives = Lives("memory", tmp_path, code(body))
    outcome = await lives.live()
    assert outcome.success, outcome.reason
    lives = Lives("memory", tmp_path, code(_twice_at_once, on_restart="fail"))
    assert (await lives.live()).output == ["fetched Oslo", "fetched Rome"]


@pytest.mark.spec("P-15")
async def test_steps_of_one_name_belong_to_one_task_at_a_time(tmp_path: Path) -> None:
    """Two tasks at once may not share a name, however short its steps; tasks that follow each
    other, and one that was started by another, may."""

    async def body(ctx: RunContext) -> list[int]:
        found: list[int] = []
        go_on = anyio.Event()

        async def make(number: int) -> None:
            found.append(await ctx.step("make", lambda: number))

        async def make_and_wait(number: int) -> None:
            await make(number)
            await go_on.wait()

        async def below() -> None:
            await make(2)
            async with anyio.create_task_group() as inner:
                inner.start_soon(make, 3)
            await make(4)

        await make(1)
        async with anyio.create_task_group() as group:
            group.start_soon(below)
        for number in (5, 6):
            async with anyio.create_task_group() as group:
                group.start_soon(make, number)
        await make(7)
        async with anyio.create_task_group() as group:
            group.start_soon(make_and_wait, 8)
            await anyio.sleep(1)
            group.start_soon(refused, make, 9)
            await anyio.sleep(1)
            go_on.set()
        await make(10)
        return found

    async def refused(make: Callable[[int], Awaitable[None]], number: int) -> None:
        with pytest.raises(BadValue, match="a task that runs at the same time"):
            await make(number)

    lives = Lives("memory", tmp_path, code(body))
    outcome = await lives.live()
    assert outcome.output == [1, 2, 3, 4, 5, 6, 7, 8, 10], outcome.reason


# ── the order of calls ───────────────────────────────────────────────────────────────────────


def numbers(order: CallOrder, *identities: str, in_order: bool = False) -> list[int]:
    return [order.place(each, in_order=in_order).number for each in identities]


@pytest.mark.spec("P-15", "P-12")
def test_records_of_before_identities_were_kept_are_found_by_their_numbers() -> None:
    order = CallOrder([RecordedCall(1), RecordedCall(2), RecordedCall(3, "b")])
    places = [order.place(each) for each in ("b", "a", "b", "b")]
    assert [(place.number, place.is_new) for place in places] == [
        (1, False), (2, False), (3, False), (4, True)
    ]  # fmt: skip


@pytest.mark.spec("P-15")
def test_equal_calls_are_found_in_the_order_of_their_records() -> None:
    order = CallOrder([RecordedCall(1, "a"), RecordedCall(2, "b"), RecordedCall(3, "a")])
    assert numbers(order, "a", "a", "a", "b") == [1, 3, 4, 2]


@pytest.mark.spec("P-15")
def test_code_without_records_counts_its_calls_the_refused_ones_included() -> None:
    assert numbers(CallOrder(), "a", "b", "a") == [1, 2, 3]
    # The second was refused then, so it has no record.
    order = CallOrder([RecordedCall(1, "a", True), RecordedCall(3, "c", True)])
    assert numbers(order, "a", "b", "c", "d", in_order=True) == [1, 2, 3, 4]


@pytest.mark.spec("P-15")
def test_a_new_call_has_a_number_of_its_own() -> None:
    order = CallOrder([RecordedCall(1, "a"), RecordedCall(2, "b")])
    assert numbers(order, "c", "b", "d", "a") == [3, 2, 4, 1]


@pytest.mark.spec("P-15")
@pytest.mark.parametrize("then", [False, True])
@pytest.mark.parametrize("now", [False, True])
def test_only_what_was_and_is_in_order_can_be_out_of_it(then: bool, now: bool) -> None:
    place = CallOrder([RecordedCall(1, "a", then)]).place("b", in_order=now)
    assert place.is_other == (then and now)
    assert place.is_new != place.is_other
    keys = CallOrder([RecordedCall(1, "a", then)]).place(keyed("b"), in_order=now)
    assert keys.is_new


@pytest.mark.spec("P-15")
@given(
    before=st.lists(st.sampled_from("abcd"), max_size=8),
    kept=st.integers(0, 8),
    random=st.randoms(use_true_random=False),
)
def test_in_whatever_order_calls_come_each_finds_an_equal_record_or_is_new(
    before: list[str], kept: int, random: Random
) -> None:
    recorded = [RecordedCall(n, each) for n, each in enumerate(before[:kept], 1)]
    again = [*before]
    random.shuffle(again)
    order, by_number = CallOrder(recorded), {call.number: call.identity for call in recorded}
    places = [(each, order.place(each)) for each in again]
    assert len({place.number for _, place in places}) == len(again)
    for each, place in places:
        assert by_number.get(place.number) == (None if place.is_new else each)
    assert sum(not place.is_new for _, place in places) == len(recorded)


@pytest.mark.spec("P-15")
def test_identities_tell_values_apart_and_not_their_order() -> None:
    assert identity_of("x", {"a": 1, "b": {3, 1}}) == identity_of("x", {"b": {1, 3}, "a": 1})
    several = [("a",), ("a", None), ("a", "b"), (["a", "b"],), (1,), ("1",), (1.5,), (b"1",)]
    assert len({identity_of("x", *each) for each in several}) == len(several)
    with pytest.raises(BadValue, match="x"):
        identity_of("x", object())
