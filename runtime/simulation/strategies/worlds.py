"""Strategies of Hypothesis for simulated worlds: what may happen, as data that shrinks.

    @given(steps=steps(SETUP), faults=faults(SETUP), seed=seeds())
    def test_support_desk(steps, faults, seed):
        simulate(steps, SETUP, faults=faults, seed=seed)

    seeds()           in which order tasks run, and the ids
    steps(setup)      what users do: a scenario
    faults(setup)     what goes wrong: names of its agents and tools, small numbers
    scripts(setup)    what models say: replies that call what they are offered; for ``scripted``,
                      which makes a setup of a setup and what was drawn
    stores()          the three stores
    events()          any event (``event_strategies``)

Setups are given as to ``simulate``: a ``Setup``, or a function that makes one.  What could be no
strategy, such as one of agents that the setup does not have, raises ``BadValue`` at once.

Small numbers, so that what is found shrinks to *crash at commit 1* of a short conversation.  The
first thing of each choice is the simplest one.  Needs the extra ``testing``.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, cast, get_args

from msgspec import structs

from hubbub.agents.model import ModelReply, ToolCall, ToolSpec
from hubbub.agents.resolution.reached import held_agents
from hubbub.hub.errors import BadValue, MissingExtra
from hubbub.hub.near_misses import kind_of
from hubbub.hub.values import check_counts, encode_value
from hubbub.runtime.models.scripted import reply
from hubbub.runtime.simulation.story.arguments import (
    check_agents,
    check_store,
    check_texts,
    check_workers,
    setup_of,
)
from hubbub.runtime.simulation.story.faults import (
    AnyFault,
    ChannelFault,
    ChannelFaultKind,
    ClockJump,
    Crash,
    CutWorker,
    KillWorker,
    ListenerFault,
    ListenerFaultKind,
    ModelFault,
    ModelFaultKind,
    PauseWorker,
    ToolFault,
    ToolFaultKind,
    WorkerFault,
    WorldFault,
)
from hubbub.runtime.simulation.story.history import StoreName
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.story.steps import (
    Approve,
    Close,
    Deny,
    Interrupt,
    Open,
    Reply,
    Restart,
    Say,
    Step,
    Terminate,
    Wait,
)
from hubbub.runtime.simulation.strategies.scripts import (
    Scripts,
    check_prompts,
    definitions_of,
    offered,
)

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy

    from hubbub.runtime.simulation.strategies.event_strategies import (
        events,
        json_values,
    )
    from hubbub.runtime.simulation.strategies.event_types import register_events
    from hubbub.runtime.simulation.strategies.schema_values import values_of
except ImportError:
    raise MissingExtra("strategies for simulated worlds", "testing") from None

__all__ = [
    "arguments_of", "events", "faults", "json_values", "opened_agents", "register_events",
    "replies", "scripts", "seconds", "seeds", "steps", "stores", "texts",
]  # fmt: skip

AnySetup: TypeAlias = Setup | Callable[[], Setup]

MAX_COMMIT: Final = 30
MAX_CALL: Final = 5
MAX_LIFE: Final = 2
MAX_SECTORS: Final = 15
MAX_RUNS: Final = 3
"""Runs that the steps of one scenario speak of."""

ALL_FAULTS: Final[tuple[type[WorldFault], ...]] = (
    Crash, ModelFault, ToolFault, ListenerFault, ChannelFault, ClockJump,
)  # fmt: skip
"""Those that can strike in every world."""
WORKER_FAULTS: Final[tuple[type[WorldFault], ...]] = (KillWorker, PauseWorker, CutWorker)
KNOWN_FAULTS: Final[tuple[type[WorldFault], ...]] = get_args(AnyFault)
TEXTS: Final = ("Hello.", "Where is my parcel?", "Yes.", "No, thank you.", "été")
SECONDS: Final = (0.0, 1.0, 0.1, 10.0, 60.0, 3_600.0)
MOMENTS: Final = (0.0, 1.0, 0.1, 0.3, 3.0, 10.0)
"""When something happens to a worker."""
ODD_ARGUMENTS: Final = ("", "{", "[]", '{"no_such_field": 1}')
NONSENSE: Final = 15
"""Of so many replies about one is nonsense."""


# ── worlds ───────────────────────────────────────────────────────────────────────────────────


def seeds() -> SearchStrategy[int]:
    """Seeds of worlds."""
    return st.integers(0, 2**16 - 1)


def stores(*names: StoreName) -> SearchStrategy[StoreName]:
    """Names of stores: of these, or any."""
    for name in names:
        check_store("stores", name)
    return st.sampled_from(names or get_args(StoreName))


def texts() -> SearchStrategy[str]:
    """What somebody says."""
    return st.sampled_from(TEXTS)


def seconds() -> SearchStrategy[float]:
    """How long something takes: nothing at all, up to an hour."""
    return st.sampled_from(SECONDS)


# ── faults ───────────────────────────────────────────────────────────────────────────────────


def faults(
    setup: AnySetup, *kinds: type[WorldFault], max_size: int = 3, workers: int | None = None
) -> SearchStrategy[list[WorldFault]]:
    """What goes wrong in a world of ``setup``, at most ``max_size`` things.

    ``kinds`` are classes of faults; without any, every kind that could strike there.  Agents and
    tools are named as the setup names them, or not at all.  ``workers`` is that of the world: from
    2 on its workers are paused, killed and cut off, too.
    """
    for kind in kinds:
        if kind not in KNOWN_FAULTS:
            known = ", ".join(each.__name__ for each in KNOWN_FAULTS)
            raise BadValue("faults", f"{kind!r} is no class of faults; there are {known}")
    check_counts(0, max_size=max_size)
    count = check_workers(workers, (), "memory")
    struck = [kind for kind in kinds if issubclass(kind, WorkerFault)]
    if struck and count is None:
        problem = f"a {struck[0].__name__} strikes one of several workers; give workers=2, or more"
        raise BadValue("faults", problem)
    found = [*_faults(setup_of(setup), kinds or ALL_FAULTS)]
    if count is not None:
        found += _of_workers(count, kinds or WORKER_FAULTS)
    return st.lists(st.one_of(*found), max_size=max_size)


def _faults(
    setup: Setup, kinds: Sequence[type[WorldFault]]
) -> Iterable[SearchStrategy[WorldFault]]:
    sides = definitions_of(setup).sides
    agents = sorted({agent for agent, _ in sides})
    tools = sorted({tool.name for side in sides.values() for tool in side.tools.values()})
    calls = st.integers(1, MAX_CALL)
    commits, lives = st.integers(1, MAX_COMMIT), st.integers(0, MAX_LIFE)
    if Crash in kinds:
        when = st.sampled_from(("after", "before"))
        yield st.builds(Crash, commit=commits, when=when, life=lives)
    if ModelFault in kinds and agents:
        yield st.builds(
            ModelFault, agent=st.sampled_from(["", *agents]), call=calls,
            kind=_words(ModelFaultKind, "error", "crash"), seconds=seconds(),
        )  # fmt: skip
    if ToolFault in kinds and tools:
        yield st.builds(
            ToolFault, tool=st.sampled_from(["", *tools]), call=calls,
            kind=_words(ToolFaultKind, "raise", "crash"), seconds=seconds(),
        )  # fmt: skip
    if ListenerFault in kinds:
        yield st.builds(ListenerFault, kind=_words(ListenerFaultKind, "raise"), seconds=seconds())
    if ChannelFault in kinds:
        yield st.builds(
            ChannelFault, message=calls, kind=_words(ChannelFaultKind), seconds=seconds()
        )
    if ClockJump in kinds:
        jumps = st.sampled_from((1.0, -1.0, 60.0, -60.0, 86_400.0, -86_400.0))
        yield st.builds(ClockJump, at=seconds(), seconds=jumps)
    if Crash in kinds:  # What is found shrinks to something simpler, if it can.
        sectors = st.integers(0, MAX_SECTORS)
        yield st.builds(Crash, commit=commits, when=st.just("torn"), life=lives, sectors=sectors)


def _of_workers(
    count: int, kinds: Sequence[type[WorldFault]]
) -> Iterable[SearchStrategy[WorldFault]]:
    for kind in WORKER_FAULTS:
        if kind in kinds:
            moments = st.sampled_from(MOMENTS)
            yield st.builds(
                kind, worker=st.integers(0, count - 1), at=moments, seconds=st.sampled_from(SECONDS)
            )


def _words(literal: object, simplest: str = "", hardest: str = "") -> SearchStrategy[str]:
    words = sorted(get_args(literal), key=lambda word: (word == hardest, word != simplest))
    return st.sampled_from(words)


# ── conversations ────────────────────────────────────────────────────────────────────────────


def steps(
    setup: AnySetup,
    *,
    users: Sequence[str] = ("ann", "bob"),
    agents: Sequence[str] = (),
    words: SearchStrategy[str] | None = None,
    max_size: int = 10,
) -> SearchStrategy[list[Step]]:
    """What users do, one thing after the other; the first is that somebody opens a run.

    ``agents`` are those that are opened: by default the setup's, except for those that only others
    use.  ``words`` is what is said.  Each user has one session key, and may also go without.
    """
    setup = setup_of(setup)
    check_texts("steps: users", users)
    check_texts("steps: agents", agents)
    check_agents("steps: agents", agents, setup)
    check_counts(1, max_size=max_size)
    if words is not None and not isinstance(words, SearchStrategy):
        raise BadValue("steps: words", f"expected a strategy of texts, not {kind_of(words)}")
    said = texts() if words is None else words
    who = st.sampled_from(tuple(users))
    names = st.sampled_from(tuple(agents) or opened_agents(setup))
    keys = st.sampled_from(("", *(f"chat-{user}" for user in users)))
    to = st.integers(0, MAX_RUNS - 1)
    once = st.sampled_from(("", "m1"))
    opens = st.builds(Open, agent=names, input=said, key=keys, user=who)
    kinds: list[SearchStrategy[Step]] = [
        st.builds(Say, to=to, text=said, key=once, user=who),
        st.builds(Wait, seconds=seconds()),
        opens,
        st.builds(Restart, kill=st.booleans()),
        st.builds(Interrupt, to=to),
        st.builds(Close, to=to),
        st.builds(Terminate, to=to),
    ]
    if any_asks(setup):  # Last, so that other setups have the scenarios that they always had.
        kinds += [
            st.builds(Approve, to=to, user=who),
            st.builds(Deny, to=to, reason=said, user=who),
            st.builds(Reply, to=to, text=said, user=who),
        ]
    others: SearchStrategy[Step] = st.one_of(kinds)
    drawn = st.tuples(opens, st.lists(others, max_size=max_size - 1))
    return drawn.map(lambda x: [*_addressed([x[0], *x[1]])])


_ABOUT_RUNS: Final = Say | Interrupt | Close | Terminate | Reply | Approve | Deny


def _addressed(drawn: Iterable[Step]) -> Iterable[Step]:
    """Each step about a run that is open by then, so that leaving out an ``Open`` leaves a story:
    Hypothesis shrinks by leaving out one thing at a time."""
    opened = 0
    for step in drawn:
        opened += isinstance(step, Open)
        if isinstance(step, _ABOUT_RUNS) and step.to >= opened:
            yield structs.replace(step, to=step.to % opened)
        else:
            yield step


def any_asks(setup: AnySetup) -> bool:
    """Whether some tool needs a person's approval, or is carried out elsewhere."""
    definitions = setup_of(setup).definitions()
    return any(side.may_ask for side in definitions.sides.values())


def opened_agents(setup: AnySetup) -> tuple[str, ...]:
    """The agents that a user opens: those that are nobody's tool, or all if there are none."""
    setup = setup_of(setup)
    names = tuple(agent.name for agent in setup.agents)
    prompts = (side.prompt for side in setup.definitions().sides.values())
    held = {each.name for prompt in prompts for each in held_agents(prompt)}
    opened = (x for x in setup.agents if not x.expose_as_tool and x.name not in held)
    return tuple(x.name for x in opened) or names


# ── models ───────────────────────────────────────────────────────────────────────────────────


def scripts(setup: AnySetup, *prompts: str, max_size: int = 5) -> SearchStrategy[Scripts]:
    """What the models of a setup say, by prompt.

        @given(script=scripts(SETUP))
        def test_whatever_they_say(script):
            simulate(STEPS, scripted(SETUP, script))

    ``prompts`` names those that get a script: by default all, those of skills (``skill:NAME``)
    included.  A reply is text, or calls of what that prompt is offered with arguments that fit,
    and rarely nonsense: nothing at all, a tool that does not exist, arguments that are none.
    """
    check_counts(0, max_size=max_size)
    found = offered(setup_of(setup))
    check_prompts("scripts", prompts, found)
    return st.fixed_dictionaries(
        {
            name: st.lists(replies(*found[name]), max_size=max_size)
            for name in prompts or found
        }
    )  # fmt: skip


def replies(*tools: ToolSpec) -> SearchStrategy[ModelReply]:
    """Replies of a model that is offered ``tools``; it may call two of them at once."""
    for each in tools:
        _check_spec("replies", each)
    words = texts().map(reply)
    good: SearchStrategy[ModelReply] = words
    if tools:
        calls = st.lists(_calls(tools), min_size=1, max_size=2)
        said = st.sampled_from(("", "Let me see."))
        good = words | st.builds(lambda text, made: reply(text, *made), said, calls)
    # Not one_of: that would draw as much nonsense as sense.
    return st.integers(0, NONSENSE).flatmap(
        lambda number: _nonsense(tools) if number == NONSENSE else good
    )


def arguments_of(tool: ToolSpec) -> SearchStrategy[str]:
    """Arguments that fit the schema of a tool, as a model writes them."""
    _check_spec("arguments_of", tool)
    return values_of(tool.schema).map(lambda value: bytes(encode_value("value", value)).decode())


def _check_spec(what: str, tool: object) -> None:
    if not isinstance(tool, ToolSpec):
        raise BadValue(what, f"expected a ToolSpec, not {kind_of(tool)}; a tool's is tool.spec")


def _calls(tools: Sequence[ToolSpec]) -> SearchStrategy[ToolCall]:
    return st.one_of(
        *(
            st.builds(ToolCall, name=st.just(each.name), arguments=arguments_of(each))
            for each in tools
        )
    )


def _nonsense(tools: Sequence[ToolSpec]) -> SearchStrategy[ModelReply]:
    names = st.sampled_from(("no_such_tool", *(each.name for each in tools)))
    odd = st.builds(ToolCall, name=names, arguments=st.sampled_from(ODD_ARGUMENTS))
    return st.just(ModelReply()) | cast(
        "SearchStrategy[ModelReply]", odd.map(lambda x: reply("", x))
    )
