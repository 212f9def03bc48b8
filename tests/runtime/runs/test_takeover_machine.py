"""Stacks beside a model of plain data, and whatever happens at once (issue 5).

Depth is pushes minus pops; each popped result answers exactly one open call; what is said reaches
the frame that is on top; nothing is lost or answered twice.  And all of it over crashes.
"""

import copy
import random
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing
from anyio.pytest_plugin import get_runner
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.profiles import examples
from support.programs import MAIN, Program, label_of, spoken
from support.stack_model import StackModel
from support.stored_runs import StoredRuns
from support.virtual_time import VirtualTimeLoop
from support.worlds import World, traces

from hubbub import Message
from hubbub.hub import events as e
from hubbub.runtime.remembered import recent as recent_threads

BACKENDS: dict[str, Callable[[], dict[str, Any]]] = {
    "asyncio": lambda: {"loop_factory": VirtualTimeLoop},
    "trio": lambda: {"clock": trio.testing.MockClock(autojump_threshold=0)},
}


# ── one thing after another, and everything is foreseen ──────────────────────────────────────

simple = st.sampled_from(
    [["note"], ["tell"], ["say"], ["say"], ["complete"], ["last"], ["empty"], ["fail"], ["flaky"]]
)
names = st.sampled_from(["ann", "bob"])


def _deeper(inner: Any) -> Any:
    uses = st.tuples(names, inner).map(list)
    use = uses.map(lambda x: ["use", *x])
    three = st.tuples(uses, uses).map(lambda x: ["three", *x])
    return st.lists(st.one_of(simple, use, use, three), min_size=1, max_size=5)


programs = st.recursive(
    st.lists(simple, min_size=1, max_size=3), _deeper, max_leaves=8
)  # What a frame is told, and what it tells those it calls.
pushing = st.tuples(names, programs).map(lambda x: [["use", *x]])
spoken_programs = st.one_of(pushing, pushing, programs)
words = st.sampled_from(["cancel", "Stop ", " /STOP"])
crashes = st.sampled_from([None, None, None, 0, 1, 2, 3, 5, 8])
users = st.sampled_from(["ann's phone", "web"])


class Stacks(RuleBasedStateMachine):
    """Everything that can be done to a stack at rest, done to it and to the model."""

    backend = "asyncio"
    store = "memory"

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._runner = self._stack.enter_context(get_runner(self.backend, BACKENDS[self.backend]()))
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self.world = World(self.store, Path(folder))
        self.model = StackModel()
        self.count = self.roots = 0
        self.root = ""
        self.ids: list[str] = []
        self._run(self.world.begin)

    def _run(self, fn: Any) -> None:
        self._runner.run_test(fn, {})

    def teardown(self) -> None:
        try:
            self._run(self.world.end)
        finally:
            self._stack.close()

    # ── both do it ───────────────────────────────────────────────────────────────────────────

    def _label(self) -> str:
        self.count += 1
        return f"m{self.count}"

    def _act(self, crash: int | None, *acts: Callable[[], Any]) -> None:
        """Do it, maybe in a process that dies meanwhile; what was not accepted is done again."""

        async def act() -> None:
            world = self.world
            if crash is not None:
                world.crash_after(crash)
            receipts = [each() for each in acts]
            await world.rest()
            if crash is not None:
                await world.end()
                await world.begin()
                await world.rest()
                for each, receipt in zip(acts, receipts, strict=True):
                    if receipt.status == "pending":
                        await each()
                        await world.rest()
            assert all(x.status in ("accepted", "pending") for x in receipts), receipts

        self._run(act)

    def _send(self, text: str, to: str, user: str, *, silent: bool = False) -> Callable[[], Any]:
        self.count += 1
        message = Message(text, key=f"k{self.count}", silent=silent)
        return lambda: self.world.hub.send_to_run(to, message, source=user)

    def _compare(self, *others: StackModel) -> None:
        async def compare() -> None:
            tally = await self.world.tally()
            tally.check()
            found = traces(tally)
            for model in (self.model, *others):
                if model.traces == found:
                    self.model = model
                    break
            assert found == self.model.traces
            assert set(self.world.programs.noted) == self.model.noted
            self.ids = tally.stack(self.root) if self.model.frames else []
            assert [self._name(tally, x) for x in self.ids] == [x.label for x in self.model.frames]

        self._run(compare)

    @staticmethod
    def _name(tally: StoredRuns, run_id: str) -> str:
        (start,) = [x for x in tally.own[run_id] if isinstance(x, e.AgentStart)]
        return label_of(start.input)

    # ── rules ────────────────────────────────────────────────────────────────────────────────

    @initialize(program=spoken_programs, crash=crashes)
    def begin(self, program: Program, crash: int | None) -> None:
        self.open(program, crash)

    @precondition(lambda self: self.root and not self.model.frames)
    @rule(program=spoken_programs, crash=crashes)
    def open(self, program: Program, crash: int | None) -> None:
        self.roots += 1
        self.root, label = f"root-{self.roots}", self._label()
        text, root = spoken(label, program), self.root
        self._act(crash, lambda: self.world.hub.open(MAIN, text, run_id=root))
        self.model.open(label, program)
        self._compare()

    @precondition(lambda self: self.model.frames)
    @rule(program=spoken_programs, user=users, crash=crashes)
    def say(self, program: Program, user: str, crash: int | None) -> None:
        label = self._label()
        self._act(crash, self._send(spoken(label, program), self.root, user))
        self.model.say(label, program)
        self._compare()

    @precondition(lambda self: self.model.frames)
    @rule(one=programs, two=programs, crash=crashes)
    def say_at_once(self, one: Program, two: Program, crash: int | None) -> None:
        """Two users at once: taken together, or the second when the first's next step is made."""
        first, second = (self._label(), one), (self._label(), two)
        sends = [
            self._send(spoken(*said), self.root, user)
            for said, user in zip((first, second), ("ann's phone", "web"), strict=True)
        ]
        self._act(crash, *sends)
        models = [copy.deepcopy(self.model) for _ in range(3)]
        for model, after in zip(models, (1, 0, 1_000_000), strict=True):
            model.say_two(first, second, after)
        self.model, *others = models
        self._compare(*others)

    @precondition(lambda self: len(self.model.frames) > 1)
    @rule(at=st.integers(1, 5), program=programs, crash=crashes)
    def say_to_a_frame(self, at: int, program: Program, crash: int | None) -> None:
        at = 1 + at % (len(self.ids) - 1)
        label = self._label()
        self._act(crash, self._send(spoken(label, program), self.ids[at], "web"))
        self.model.say(label, program, to=at)
        self._compare()

    @precondition(lambda self: self.model.frames)
    @rule(program=programs, crash=crashes)
    def tell_main(self, program: Program, crash: int | None) -> None:
        """What an agent tells the main agent is not for the frame on top."""
        label = self._label()
        self._act(crash, self._send(spoken(label, program), self.root, "agent", silent=True))
        self.model.say(label, program, silent=True)
        self._compare()

    @precondition(lambda self: self.model.frames and self.model.unread < 2)
    @rule(word=words, at=st.integers(0, 5), crash=crashes)
    def stop(self, word: str, at: int, crash: int | None) -> None:
        self._act(crash, self._send(word, self.ids[at % len(self.ids)], "web"))
        self.model.stop(word)
        self._compare()

    @precondition(lambda self: self.model.frames)
    @rule(crash=crashes)
    def back(self, crash: int | None) -> None:
        self._act(crash, self._send("/back", self.root, "web"))
        self.model.back()
        self._compare()

    @precondition(lambda self: self.model.frames and self.model.unread < 2)
    @rule(at=st.integers(0, 5), crash=crashes)
    def interrupt(self, at: int, crash: int | None) -> None:
        at %= len(self.ids)
        run_id = self.ids[at]
        self._act(crash, lambda: self.world.hub.interrupt(run_id, "why not"))
        self.model.interrupt(at)
        self._compare()

    @precondition(lambda self: self.model.frames and not self.model.unread)
    @rule(program=programs, crash=crashes)
    def reset(self, program: Program, crash: int | None) -> None:
        label, root = self._label(), self.root
        item = e.SessionReset(message=spoken(label, program))
        self._act(crash, lambda: self.world.hub.pipeline.deliver(item, to=root))
        self.model.reset(label, program)
        self._compare()

    @precondition(lambda self: self.model.frames and self.count > 4)
    @rule(crash=crashes)
    def close(self, crash: int | None) -> None:
        root = self.root
        self._act(crash, lambda: self.world.hub.close_run(root))
        self.model.close()
        self._compare()

    @precondition(lambda self: self.model.frames and self.count > 6)
    @rule(crash=crashes)
    def terminate(self, crash: int | None) -> None:
        root = self.root
        self._act(crash, lambda: self.world.hub.terminate(root))
        self.model.terminate()
        self._compare()


@pytest.mark.spec("I-01", "I-05", "I-08", "I-09", "I-10", "I-13", "I-16")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
def test_a_stack_does_what_the_model_does(store: str, backend: str) -> None:
    class Machine(Stacks):
        pass

    Machine.store, Machine.backend = store, backend
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(10 if store == "sqlite" else 40), stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
            phases=[phase for phase in Phase if phase is not Phase.explain],
        ),
    )  # fmt: skip


# ── everything at once, and only what must hold is looked at ─────────────────────────────────


class Chaos:
    """People, programs and crashes that know nothing of each other."""

    def __init__(self, seed: int, world: World) -> None:
        self.draw = random.Random(seed)
        self.world = world
        self.count = self.roots = 0
        self.frames: list[str] = []

    @property
    def root(self) -> str:
        return f"root-{self.roots}"

    def program(self, depth: int = 0) -> list[list[Any]]:
        kinds = ["note", "tell", "say", "say", "complete", "last", "empty", "flaky", "fail"]
        if depth < 3:
            kinds += ["use"] * 4 + ["three"] * 2
        return [self._step(self.draw.choice(kinds), depth) for _ in range(self.draw.randint(1, 3))]

    def _step(self, kind: str, depth: int) -> list[Any]:
        uses = {"use": 1, "three": 2}.get(kind, 0)
        told = [[self.draw.choice(["ann", "bob"]), self.program(depth + 1)] for _ in range(uses)]
        return [kind, *told[0]] if kind == "use" else [kind, *told]

    def text(self) -> str:
        self.count += 1
        return spoken(f"m{self.count}", self.program())

    async def live(self, *, dies: bool) -> None:
        """One process, with whatever happens in it."""
        world = self.world
        await world.begin()
        try:
            world.hub.subscribe("session:push", self._pushed)
            for _ in range(self.draw.randint(3, 12)):
                await self._next()
            if dies:
                world.crash_after(self.draw.choice([0, 1, 2, 3, 5, 8]))
                await anyio.sleep(self.draw.choice([0, 1, 100]))
            else:
                await self._wind_up()
        finally:
            await world.end()
        (await world.tally()).check(is_quiet=False)

    def _pushed(self, event: Any) -> None:
        self.frames.append(event.frame_run_id)

    async def _next(self) -> None:
        hub = self.world.hub
        info = await hub.journal.info(self.root)
        self.roots += info is not None and info.inbox != "open"
        if info is None or info.inbox != "open":
            hub.open(MAIN, self.text(), run_id=self.root)
        else:
            self._do()
        if self.draw.random() < 0.5:
            await anyio.sleep(self.draw.choice([0, 0, 0.3, 0.6, 1, 2, 500]))

    def _do(self) -> None:
        hub, root, draw = self.world.hub, self.root, self.draw
        frame = draw.choice([root, *self.frames[-3:]])
        match draw.choices(range(10), [10, 4, 4, 3, 3, 2, 1, 2, 1, 0.5])[0]:
            case 0:
                hub.send_to_run(root, self.text(), source="web")
            case 1:
                hub.send_to_run(root, self.text(), source="web")
                hub.send_to_run(root, self.text(), source="phone")
            case 2:
                hub.send_to_run(frame, self.text(), source="web")
            case 3:
                hub.send_to_run(frame, draw.choice(["cancel", "Stop", " /stop "]), source="web")
            case 4:
                hub.send_to_run(frame, "/back", source="web")
            case 5:
                hub.interrupt(frame, "why not")
            case 6:
                hub.send_to_run(root, Message(self.text(), silent=True), source="agent")
            case 7:
                hub.interrupt(root, "why not")
            case 8:
                hub.emit(e.SessionReset(run_id=root, message=self.text()))
            case _:
                draw.choice([hub.close_run, hub.terminate])(root)

    async def _wind_up(self) -> None:
        """It comes to rest; and whatever happened, the main agent is usable after a word."""
        world = self.world
        await world.rest()
        tally = await world.tally()
        tally.check()
        assert not tally.strays()
        info = tally.infos[self.root]
        if info.inbox != "open":
            return
        while len((await world.tally()).stack(self.root)) > 1:
            await world.hub.send_to_run(self.root, "stop", source="web")
            await world.rest()
        await world.hub.send_to_run(self.root, spoken("last", [["say"]]), source="web")
        await world.rest()
        tally = await world.tally()
        tally.check()
        assert tally.threads[self.root].last_text == "last.0"


@pytest.mark.anyio
@pytest.mark.spec("I-01", "I-08", "I-09", "I-10", "I-13", "I-16")
@pytest.mark.parametrize("max_live", [2, 20_000])
@pytest.mark.parametrize("store", ["memory", "late"])
@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_at_once_nothing_is_lost_or_answered_twice(
    seed: int, store: str, max_live: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trio._core._run as core

    monkeypatch.setattr(core, "_ALLOW_DETERMINISTIC_SCHEDULING", False)
    monkeypatch.setattr(core, "_r", random.Random(seed))
    monkeypatch.setattr(recent_threads, "MIN_EVENTS", 0 if seed % 2 else 100)
    latency = random.Random(seed).choice([0, 0.5])
    chaos = Chaos(seed, World(store, tmp_path, latency=latency, max_live=max_live))
    with anyio.fail_after(1_000_000):
        for left in range(seed % 4, -1, -1):
            await chaos.live(dies=left > 0)
