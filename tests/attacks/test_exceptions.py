"""Every class of exception, at every place where users' code runs (``places.py``)."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import Observer

from attacks.cancellations import CANCELLATIONS, CleanUp, agents_that_clean_up
from attacks.hostile_exceptions import HOSTILE, uninspectable
from attacks.places import PLACES, Place, RaisingBlobs, Site, Trap, agents_of, by_future, by_timer
from attacks.scale import scale
from hubbub import Agent, CustomEvent, Runtime, ScriptedModel, tool
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports, SystemIds
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import InlineOffload, InlineWorker, LoopClock
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

STATUS = 3
BOUND = 20.0
"""Seconds by the wall in which a program must have ended, on however busy a machine."""


class Own(BaseException):
    """A class of its own, which no ``except Exception`` stops."""


class Mute(Exception):
    """One that cannot say what it is about."""

    def __str__(self) -> str:
        raise Own("no words")


class MuteBase(Own):
    __str__ = Mute.__str__


def stolen() -> BaseException:
    """A real cancellation of the loop at work, raised where nobody is cancelled."""
    return STOLEN[anyio.get_cancelled_exc_class()]


STOLEN: dict[type[BaseException], BaseException] = {}


async def steal() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException as error:
            STOLEN[type(error)] = error
            raise


KINDS: dict[str, Trap] = {
    "ValueError": lambda: ValueError("bad"),
    "without words": Mute,
    "a base class without words": MuteBase,
    "MemoryError": MemoryError,
    "RecursionError": lambda: RecursionError("deep"),
    "StopIteration": lambda: StopIteration(3),
    "StopAsyncIteration": StopAsyncIteration,
    "ExceptionGroup": lambda: ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [Own("one"), ValueError("two")]),
    "a group of cancellations": lambda: BaseExceptionGroup("x", [asyncio.CancelledError()]),
    "asyncio.CancelledError": asyncio.CancelledError,
    "a stolen cancellation": stolen,
    "GeneratorExit": GeneratorExit,
    "GeneratorExit out of a future": by_future(GeneratorExit),
    "a BaseException": lambda: Own("own"),
    "uninspectable": uninspectable,
    **{kind: trap for kind, trap in HOSTILE.items() if kind != "a group of many ways"},
}

OWN_GROUPS = ("the tool grouped", "code_in_a_group")
"""Code with a task group of its own."""

BREAKS_A_GROUP = {
    "asyncio": ("__class__ raises", "__getattribute__ raises"),
    "trio": (
        "uninspectable", "__repr__ raises", "neither __str__ nor __repr__",
        "groups 600 deep", "groups 5000 deep",
    ),
}  # fmt: skip
"""What no task group of the loop's own library can be left with, in a program without hubbub too:
the task's scopes are out of order from then on.  A test below demands that it is just these."""


STORES: dict[str, Callable[[Path, Ports], Journal]] = {
    "late": lambda folder, ports: LateJournal(MemoryJournal()),
    "sqlite": lambda folder, ports: sqlite_store(folder, ports=ports),
    "memory": lambda folder, ports: MemoryJournal(),
}
SHORT = [
    ("without words", "late"), ("BaseExceptionGroup", "sqlite"),
    ("asyncio.CancelledError", "sqlite"), ("GeneratorExit out of a future", "late"),
    ("uninspectable", "sqlite"), ("text raises", "late"), ("groups 600 deep", "memory"),
    ("__getattr__ raises", "memory"),
]  # fmt: skip


@pytest.mark.anyio
@pytest.mark.spec("G-02")
@pytest.mark.parametrize(("kind", "kept"), scale(0, 1) * [*product(KINDS, STORES)] or SHORT)
async def test_only_what_raised_it_is_affected_and_it_has_its_outcome(
    kind: str,
    kept: str,
    tmp_path: Path,
    anyio_backend_name: str,
    eventually: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    """At each place in turn; then another run goes on, and the runtime is left in order."""
    await steal()
    trap = KINDS[kind]
    agents, hooks = agents_of(trap)
    ports = Ports(
        LoopClock(), SystemIds(0), InlineOffload(), blobs=RaisingBlobs(trap),
        make_worker=InlineWorker,
    )  # fmt: skip
    store = STORES[kept](tmp_path, ports)
    runtime = Runtime(agents, hooks=hooks, store=store, ports=ports)
    async with runtime:
        other = await runtime.start("keeper", "x")
        for name, place in PLACES.items():
            if kind in BREAKS_A_GROUP[anyio_backend_name] and name in OWN_GROUPS:
                continue
            await attack(name, place, Site(runtime, trap, Observer(runtime.hub), eventually))
        await other.send("still here")
        assert (await other.result()).output == "still here"
        before = anyio.current_time()
    assert anyio.current_time() - before < 10


IN_THE_CALLERS_TASK = ("an async service", "an agent called as a function")


class Starting(Runtime):
    """Whose runs have no part in the task that waits for them."""

    async def run(self, *args: Any, **options: Any) -> Any:
        return await (await self.start(*args, **options)).result()


@pytest.mark.anyio
@pytest.mark.spec("G-02")
@pytest.mark.parametrize("kept", STORES)
@pytest.mark.parametrize("times", [1, 2])
async def test_code_that_cancels_its_own_task_ends_by_that_and_nothing_else_does(
    times: int,
    kept: str,
    tmp_path: Path,
    eventually: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    """``call_later(1, current_task().cancel)``: the task is the hub's, and others' work, too."""

    def trap() -> BaseException:
        return asyncio.CancelledError("by itself")

    agents, hooks = agents_of(by_timer(trap))
    ports = Ports(
        LoopClock(), SystemIds(0), InlineOffload(), blobs=RaisingBlobs(trap),
        make_worker=InlineWorker,
    )  # fmt: skip
    runtime = Starting(agents, hooks=hooks, store=STORES[kept](tmp_path, ports), ports=ports)
    async with runtime:
        other = await runtime.start("keeper", "x")
        for name, place in [*PLACES.items()] * times:
            if name in IN_THE_CALLERS_TASK:
                continue
            seen = Observer(runtime.hub)
            await attack(name, place, Site(runtime, by_timer(trap), seen, eventually))
            assert runtime.hub.tasks.is_open, name
        await other.send("still here")
        assert (await other.result()).output == "still here"


@tool
async def in_a_hurry() -> str:
    """Its timer is set and never taken back: it strikes whatever the task does then."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return "in time"


@pytest.mark.parametrize("kept", STORES)
def test_a_timer_that_strikes_after_its_code_harms_that_run_alone(
    kept: str, tmp_path: Path
) -> None:
    agents = [
        Agent("hurried", "x", model=ScriptedModel([call("in_a_hurry"), "done"], repeat=True),
              tools=[in_a_hurry]),
        Agent("keeper", "x", model=ScriptedModel(["still here"], repeat=True)),
    ]  # fmt: skip

    async def main() -> None:
        async with Starting(agents, store=STORES[kept](tmp_path, Ports())) as runtime:
            other = await runtime.start("keeper", "x")
            with anyio.fail_after(BOUND):
                for _ in range(5):
                    await runtime.run("hurried", "x")  # Whatever its outcome is, it has one.
                await other.send("x")
                assert (await other.result()).output == "still here"

    anyio.run(main)


@pytest.mark.parametrize("kept", STORES)
@pytest.mark.parametrize("is_always", [False, True])
def test_a_listener_that_cancels_the_task_that_calls_it_stops_neither_store_nor_hub(
    kept: str, is_always: bool, tmp_path: Path
) -> None:
    agent = Agent("keeper", "x", model=ScriptedModel(["still here"], repeat=True))

    async def main() -> None:
        own = asyncio.current_task()
        cancelled: list[str] = []

        def careless(event: Event) -> None:
            task = asyncio.current_task()
            if task is not None and task is not own and (is_always or not cancelled):
                cancelled.append(event.type)
                task.cancel()

        async with Starting([agent], store=STORES[kept](tmp_path, Ports())) as runtime:
            with anyio.fail_after(BOUND):
                with runtime.hub.subscribe("*", careless):
                    for _ in range(3):
                        await runtime.run("keeper", "x")  # Whatever its outcome is, it has one.
                        await runtime.hub.publish(CustomEvent.of("attack:said", durable=True))
                assert cancelled
                assert (await runtime.run("keeper", "x")).output == "still here"

    anyio.run(main)


async def in_a_group(trap: Trap) -> None:
    try:
        async with anyio.create_task_group():
            raise trap()
    except BaseException:
        pass
    with anyio.CancelScope():
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("backend", BREAKS_A_GROUP)
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind in HOSTILE or kind == "uninspectable"]
)
def test_the_loops_own_groups_break_of_what_is_left_out_and_of_nothing_else(
    backend: str, kind: str
) -> None:
    """Without hubbub: a task of its own raises it within a group, and goes on."""

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(in_a_group, KINDS[kind])

    broken = False
    try:
        anyio.run(main, backend=backend)
    except BaseException:
        broken = True
    assert broken == (kind in BREAKS_A_GROUP[backend])


# ── work that is being cancelled ─────────────────────────────────────────────────────────────

ENDINGS: dict[str, Trap] = {
    **KINDS,
    "a group of the loop's cancellation": lambda: BaseExceptionGroup("g", [stolen(), Own("o")]),
    "a group of a cancellation and an error": lambda: BaseExceptionGroup(
        "clean-up", [asyncio.CancelledError(), ValueError("v")]
    ),
    "a group of GeneratorExit": lambda: BaseExceptionGroup("g", [GeneratorExit()]),
    "deep in groups": lambda: BaseExceptionGroup(
        "g", [BaseExceptionGroup("h", [asyncio.CancelledError(), GeneratorExit(), Own("o")])]
    ),
}
SHORT_ENDINGS = [kind for kind in ENDINGS if "group" in kind and kind not in HOSTILE]


@pytest.mark.anyio
@pytest.mark.spec("G-02")
@pytest.mark.parametrize("kept", ["memory", "sqlite"])
@pytest.mark.parametrize("kind", scale(0, 1) * [*ENDINGS] or SHORT_ENDINGS)
async def test_what_cancelled_work_raises_in_its_clean_up_affects_nobody_else(
    kind: str,
    kept: str,
    tmp_path: Path,
    eventually: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    await steal()
    trap = ENDINGS[kind]
    ports = Ports(LoopClock(), SystemIds(0), InlineOffload(), make_worker=InlineWorker)
    clean_up = CleanUp(trap)
    async with Runtime(
        agents_that_clean_up(clean_up), store=STORES[kept](tmp_path, ports), ports=ports
    ) as runtime:
        other = await runtime.start("keeper", "x")
        for name, cancel in CANCELLATIONS.items():
            try:
                with anyio.fail_after(600):
                    await cancel(runtime, clean_up)
            except BaseException as error:
                error.add_note(f"cancelled: {name}")
                raise
        await other.send("still here")
        assert (await other.result()).output == "still here"
        assert runtime.hub.tasks.is_open


# ── what ends the program, at every place ────────────────────────────────────────────────────

EXITS: dict[str, Trap] = {
    "an exit": lambda: SystemExit(3),
    "a group with an exit": lambda: BaseExceptionGroup("g", [SystemExit(3), ValueError("v")]),
    "an exit deep in groups": lambda: BaseExceptionGroup(
        "g", [ValueError("v"), BaseExceptionGroup("h", [asyncio.CancelledError(), SystemExit(3)])]
    ),
    "an interrupt in a group": lambda: BaseExceptionGroup("g", [KeyboardInterrupt()]),
}
SHORT_EXITS = [("an exit", "sqlite"), ("an exit deep in groups", "memory")]


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize(("kind", "kept"), scale(0, 1) * [*product(EXITS, STORES)] or SHORT_EXITS)
@pytest.mark.parametrize("name", PLACES)
def test_an_exit_ends_the_program_wherever_it_is_raised_and_in_whatever_group(
    name: str, kind: str, kept: str, loop: str, tmp_path: Path
) -> None:
    """Alone, for its status: neither asyncio nor Python looks for it in a group."""
    trap = EXITS[kind]

    async def eventually(is_so: Callable[[], bool]) -> None:
        while not is_so():
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        agents, hooks = agents_of(trap)
        ports = Ports(ids=SystemIds(0), offload=InlineOffload(), blobs=RaisingBlobs(trap))
        store = STORES[kept](tmp_path, ports)
        with anyio.fail_after(BOUND):
            async with Runtime(agents, hooks=hooks, store=store, ports=ports, grace=0) as runtime:
                await PLACES[name](Site(runtime, trap, Observer(runtime.hub), eventually))

    with pytest.raises((SystemExit, KeyboardInterrupt)) as raised:
        anyio.run(main, backend=loop)
    assert isinstance(raised.value, KeyboardInterrupt) or raised.value.code == STATUS


async def attack(name: str, place: Place, site: Site) -> None:
    try:
        with anyio.fail_after(600):
            await place(site)
    except BaseException as error:
        error.add_note(f"at {name}")
        raise


# ── what ends the process ────────────────────────────────────────────────────────────────────

PROGRAM_PLACES = (
    "listener of starts", "async tool", "listener", "step", "plain tool", "model", "code",
    "async listener", "body", "while a thread asks",
)  # fmt: skip
COMPLAINED_OF = ("listener of starts", "while a thread asks")
"""Where asyncio, but for what is done about it, says that it has met an exception at the end."""
PROGRAM = Path(__file__).with_name("ending.py")


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    loop, store, place = arguments
    process = subprocess.Popen(
        [sys.executable, PROGRAM, loop, folder, store, place],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> int:
    """Its status; killed, and a failure, when it does not end."""
    try:
        _, said = process.communicate(timeout=BOUND)
    finally:
        process.kill()
    for complaint in ("never awaited", "never retrieved", "unhandled exception", "destroyed"):
        assert complaint not in said, said
    return process.returncode


def lost(folder: Path) -> set[int]:
    """The numbers of what was accepted and is not in the store."""

    async def read() -> set[int]:
        async with Runtime([], store=f"sqlite:{folder / 'store'}") as runtime:
            return {x.data["number"] for x in await runtime.hub.read(types="program:work")}  # type: ignore[attr-defined]

    accepted = {int(line) for line in (folder / "accepted").read_text().split()}
    return accepted - anyio.run(read)


LIVES = [*product(("asyncio", "trio"), ("memory", "sqlite"))]


@pytest.mark.spec("G-02")
@pytest.mark.parametrize(
    ("place", "loop", "kept"),
    [
        (place, *life)
        for number, place in enumerate(PROGRAM_PLACES[: scale(4, 10)])
        for life in scale(0, 1) * LIVES or LIVES[number : number + 1]
    ]
    + [(place, *life) for place, life in product(COMPLAINED_OF, LIVES[: scale(2, 0)])],
)
def test_leaving_the_program_ends_it_with_its_status(
    place: str, loop: str, kept: str, tmp_path: Path
) -> None:
    assert end(begin(tmp_path, loop, kept, place)) == STATUS
    if kept == "sqlite":
        assert not lost(tmp_path)


@pytest.mark.spec("G-02", "D-04")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("place", ["blocked", "blocked, left"])
def test_a_plain_tool_that_blocks_does_not_hold_the_process(
    place: str, loop: str, tmp_path: Path
) -> None:
    process = begin(tmp_path, loop, "memory", place)
    assert process.stdout is not None
    assert process.stdout.readline() == "blocked\n"
    if place == "blocked":
        process.send_signal(signal.SIGINT)
    assert end(process) in ((-signal.SIGINT, 128 + signal.SIGINT) if place == "blocked" else (3,))


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_ctrl_c_ends_the_program_though_a_listener_answers_each_event_with_another(
    loop: str, tmp_path: Path
) -> None:
    for number in range(scale(1, 10)):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = begin(folder, loop, "sqlite", "while a listener answers itself")
        time.sleep(0.1 + number * 0.013)
        process.send_signal(signal.SIGINT)
        assert end(process) in (-signal.SIGINT, 128 + signal.SIGINT), number
        assert not lost(folder), number


@pytest.mark.spec("G-02")
@pytest.mark.parametrize(("loop", "kept"), LIVES)
def test_ctrl_c_ends_the_program_at_any_moment(loop: str, kept: str, tmp_path: Path) -> None:
    """Once, or twice in a row: the second one comes while it is being left."""
    first = int((loop, kept) in LIVES[1:3])  # Short: on each loop and store both, once each.
    for number in range(scale(first, 0), scale(first + 1, 60)):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = begin(folder, loop, kept, "nowhere")
        time.sleep(number * 0.013 % 0.3)
        process.send_signal(signal.SIGINT)
        if number % 2:
            time.sleep(number * 0.007 % 0.05)
            process.send_signal(signal.SIGINT)
        assert end(process) in (-signal.SIGINT, 128 + signal.SIGINT), number
        if kept == "sqlite":
            assert not lost(folder), number
