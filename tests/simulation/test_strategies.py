"""What is drawn fits the setup and shrinks to something small; planted bugs are found by it."""

import subprocess
import sys
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from little_bugs import keys_hold, plant_early_acknowledgement, plant_no_dedupe, support_desk
from msgspec import Meta, Struct

from hubbub import tool
from hubbub.hub import events as e
from hubbub.runtime.simulation.aims import aim, depth_of, interleavings_of
from hubbub.runtime.simulation.faults import ChannelFault, Crash, Fault, ModelFault, ToolFault
from hubbub.runtime.simulation.history import History
from hubbub.runtime.simulation.invariants import INVARIANTS
from hubbub.runtime.simulation.scripts import offered, scripted
from hubbub.runtime.simulation.setup import Setup
from hubbub.runtime.simulation.simulate import SimulationFailed, simulate
from hubbub.runtime.simulation.steps import Open, Restart, Say, Wait
from hubbub.runtime.simulation.strategies import (
    ALL_FAULTS,
    arguments_of,
    faults,
    replies,
    scripts,
    seeds,
    steps,
    stores,
)

DESK = support_desk()
few: dict[str, Any] = {
    "deadline": None, "database": None, "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip
shrink = settings(max_examples=2000, **few)
ask = settings(max_examples=400, phases=[Phase.generate], **few)


def drawn(strategy):
    found = []

    @ask
    @given(value=strategy)
    def draw(value):
        found.append(value)

    draw()
    return found


# ── what is drawn ────────────────────────────────────────────────────────────────────────────


def test_faults_are_of_every_kind_and_name_what_the_setup_has():
    found = [fault for each in drawn(faults(DESK)) for fault in each]
    assert {type(fault) for fault in found} == set(ALL_FAULTS)
    assert {x.agent for x in found if isinstance(x, ModelFault)} == {"", "desk", "refunds"}
    assert {x.tool for x in found if isinstance(x, ToolFault)} == {"", "look_up", "pay_back"}


def test_faults_that_could_never_strike_are_not_drawn():
    silent = Setup(agents=())
    assert not any(
        isinstance(fault, ModelFault | ToolFault)
        for each in drawn(faults(silent))
        for fault in each
    )
    assert {type(x) for each in drawn(faults(DESK, Crash, max_size=1)) for x in each} == {Crash}
    assert max(map(len, drawn(faults(DESK, max_size=2)))) == 2


@pytest.mark.parametrize("kind", ALL_FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_shrinks_to_the_first_of_its_kind(kind: type[Fault]):
    found = find(faults(DESK, kind), bool, settings=shrink)
    assert len(found) == 1
    if kind is Crash:
        assert found == [Crash(commit=1)]
    elif kind is ModelFault:
        assert found == [ModelFault(kind="error")]
    elif kind is ToolFault:
        assert found == [ToolFault(kind="raise")]


def test_steps_begin_with_an_open_and_shrink_to_it():
    assert all(isinstance(each[0], Open) for each in drawn(steps(DESK)))
    assert find(steps(DESK), lambda _: True, settings=shrink) == [
        Open(agent="desk", input="Hello.", user="ann")
    ]
    said = find(steps(DESK), lambda x: any(isinstance(y, Say) for y in x), settings=shrink)
    assert said[1:] == [Say(text="Hello.", user="ann")]


def test_steps_are_of_every_kind_and_of_all_users():
    found = [step for each in drawn(steps(DESK, users=("eva", "kim"))) for step in each]
    assert {type(step).__name__ for step in found} == {
        "Open", "Say", "Wait", "Interrupt", "Terminate", "Close", "Restart",
    }  # fmt: skip
    assert {step.user for step in found if isinstance(step, Open | Say)} == {"eva", "kim"}
    # The one who pays back is nobody's to open, unless one says so.
    assert {step.agent for step in found if isinstance(step, Open)} == {"desk"}


# ── scripts ──────────────────────────────────────────────────────────────────────────────────


class Address(Struct):
    street: str
    number: Annotated[int, Meta(ge=1, le=99)]
    parts: tuple[str, ...] = ()


@tool
def order(
    what: Literal["book", "pen"],
    count: Annotated[int, Meta(gt=0, multiple_of=3)],
    to: Address,
    price: Annotated[float, Meta(ge=0.5, lt=10)] = 1.0,
    code: Annotated[str, Meta(pattern="^[a-c]{2}$")] = "ab",
    name: Annotated[str, Meta(min_length=3, max_length=4)] = "abc",
    others: list[Address] | None = None,
    notes: dict[str, int] = {},  # noqa: B006
    rest: Any = None,
    either: int | str | bool | None = None,
) -> str:
    """Order something."""
    return what


def test_arguments_fit_the_schema_of_their_tool():
    left_out = set()

    @settings(max_examples=300, **few)
    @given(text=arguments_of(order.spec))
    def check(text):
        left_out.update(set(order.schema["properties"]) - set(order.parse(text)))

    check()
    assert left_out == {"price", "code", "name", "others", "notes", "rest", "either"}


def test_replies_call_what_is_offered_and_are_rarely_nonsense():
    found = drawn(replies(order.spec))
    fit = [x for x in found if x.calls and all(_fits(call) for call in x.calls)]
    odd = [x for x in found if x.is_empty or not all(_fits(call) for call in x.calls)]
    assert len(fit) > 80
    assert 0 < len(odd) < 100


def _fits(call) -> bool:
    try:
        return call.name == "order" and bool(order.parse(call.arguments))
    except Exception:
        return False


def test_a_prompt_is_offered_its_tools_and_what_its_place_gives_it():
    names = {prompt: {spec.name for spec in specs} for prompt, specs in offered(DESK).items()}
    assert names == {
        "prompt-of-desk": {"look_up", "use_agent", "complete"},
        "prompt-of-refunds": {"pay_back", "complete"},
    }


def test_scripted_agents_say_what_was_drawn_for_them_and_then_a_last_word():
    script = find(
        scripts(DESK),
        lambda x: (
            any(c.name == "use_agent" for r in x["prompt-of-desk"][:1] for c in r.calls)
            and x["prompt-of-refunds"]
        ),
        settings=shrink,
    )
    history = simulate([Open(agent="desk", input="go")], scripted(DESK, script))
    assert len(history.runs) == 2
    _, refunds = history.runs
    assert history.said(refunds)
    more = simulate(
        [Open(agent="desk", input="go"), Wait(), Say(text="and?")], scripted(DESK, script)
    )
    assert more.said(more.roots[0])[-1] == "That is all."


@settings(max_examples=60, **few)
@given(steps=steps(DESK), faults=faults(DESK), seed=seeds(), script=scripts(DESK))
def test_whatever_models_say_the_invariants_hold(steps, faults, seed, script):
    simulate(steps, scripted(DESK, script), seed=seed, faults=faults)


# ── a small support desk ─────────────────────────────────────────────────────────────────────


@settings(max_examples=100, **few)
@given(steps=steps(DESK), faults=faults(DESK), seed=seeds(), store=stores("memory", "late"))
def test_the_support_desk_is_correct(steps, faults, seed, store):
    paid: list[int] = []
    history = simulate(steps, support_desk(paid), seed=seed, faults=faults, store=store)
    asked = sum(
        isinstance(x, e.AgentStep) and any(call.name == "pay_back" for call in x.calls)
        for x in history.events
    )
    assert len(paid) <= asked
    aim(history)


class Played:
    """How many worlds it took, and what was the last one: the smallest that fails."""

    def __init__(self, most: int, *kinds: type[Fault], steps: int = 6, **options: Any) -> None:
        self._kinds = kinds
        self._steps = steps
        self.worlds = 0
        self.first = 0
        self.last: tuple[Any, ...] = ()
        self._most = most
        self._options = options

    def failure(self, check: Any = None) -> BaseException:
        @settings(
            max_examples=self._most,
            phases=[Phase.generate, Phase.shrink],
            report_multiple_bugs=False,
            **few,
        )
        @given(
            steps=steps(DESK, max_size=self._steps), faults=faults(DESK, *self._kinds), seed=seeds()
        )
        def play(steps, faults, seed):
            self.worlds += 1
            try:
                if check is not None:
                    check(steps, faults, seed)
                else:
                    simulate(steps, DESK, seed=seed, faults=faults, **self._options)
            except AssertionError:
                self.first = self.first or self.worlds
                self.last = (steps, faults, seed)
                raise

        with pytest.raises(AssertionError) as failed:
            play()
        return failed.value


def test_acknowledging_too_early_is_found_and_shrunk(monkeypatch):
    plant_early_acknowledgement(monkeypatch)
    played = Played(200)
    failed = played.failure()
    assert isinstance(failed, SimulationFailed)
    story, faults_, seed = played.last
    assert seed == 0
    assert len(story) + len(faults_) <= 4
    assert Restart(kill=True) in story or isinstance(faults_[0], Crash)
    assert played.first <= 200
    again = Played(200)
    again.failure()
    assert (again.worlds, again.first, again.last) == (played.worlds, played.first, played.last)
    with pytest.raises(SimulationFailed):  # The line that is printed does it again.
        eval(failed.replay, {"setup": DESK, "simulate": simulate, **vars(_names())})
    monkeypatch.undo()
    simulate(story, DESK, faults=faults_, seed=seed)


def _names() -> Any:
    from types import SimpleNamespace

    from hubbub.runtime.simulation import faults as fault_classes
    from hubbub.runtime.simulation import steps as step_classes

    return SimpleNamespace(**{**vars(fault_classes), **vars(step_classes)})


def test_missing_dedupe_is_found_and_shrunk(monkeypatch):
    plant_no_dedupe(monkeypatch)
    played = Played(1500, invariants={**INVARIANTS, "keys_hold": keys_hold})
    failed = played.failure()
    assert isinstance(failed, SimulationFailed)
    assert failed.broken == "keys_hold"
    story, faults_, seed = played.last
    assert (len(story), seed) == (3 - len(faults_), 0)
    assert all(isinstance(fault, ChannelFault) for fault in faults_)
    assert played.first <= 1500


def test_payment_that_is_made_again_after_a_crash_is_found_and_shrunk():
    def pays_once(story, faults_, seed):
        paid: list[int] = []
        history = simulate(
            story, support_desk(paid, retries_payments=True), seed=seed, faults=faults_
        )
        calls = {
            (x.run_id, x.step, at)
            for x in history.events
            if isinstance(x, e.AgentStep)
            for at, call in enumerate(x.calls)
            if call.name == "pay_back"
        }
        assert len(paid) <= len(calls), "an order was paid back twice"

    played = Played(2000, Crash, steps=2)
    assert "paid back twice" in str(played.failure(pays_once))
    story, faults_, seed = played.last
    assert seed == 0
    assert len(story) == 1
    assert all(isinstance(fault, Crash) for fault in faults_)
    assert played.first <= 2000


# ── around it ────────────────────────────────────────────────────────────────────────────────


def test_aim_is_nothing_outside_of_hypothesis_and_counts_what_it_says():
    aim(History())
    assert (depth_of(History()), interleavings_of(History())) == (0, 0)
    history = simulate([Open(agent="desk", input="go"), Open(agent="desk", input="go")], DESK)
    assert depth_of(history) == 1
    assert interleavings_of(history) > 2


@pytest.mark.parametrize("module", ["strategies", "machine"])
def test_without_hypothesis_it_says_what_to_install(module):
    program = f"""
import sys
sys.modules["hypothesis"] = None
from hubbub.hub.errors import MissingExtra
try:
    import hubbub.runtime.simulation.{module}
except MissingExtra as problem:
    print(problem)
import hubbub.runtime.simulation.scripts, hubbub.runtime.simulation.simulate
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'hubbub[testing]'" in done.stdout, done.stderr
    assert not done.stderr
