"""A pass beside runs at work and a pruning at rest choose the same trees, by one plain rule."""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import trio.testing
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from support.profiles import examples
from support.pruned_stores import problems
from support.retention_model import goes_by_rule, trees_of
from support.virtual_time import VirtualTimeLoop

from hubbub import Agent, AgentDefinition, FunctionModel, Retention, Runtime, agent
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports, SystemIds
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader, decoded
from hubbub.hub.store.store import removals_of
from hubbub.hub.virtual import InlineOffload, InlineWorker, LoopClock
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.removal.passes import RetentionPasses
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader
from hubbub.runtime.stores.retention.pruning import find_trees

BACKENDS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "asyncio": lambda: {"loop_factory": VirtualTimeLoop},
    "trio": lambda: {"clock": trio.testing.MockClock(autojump_threshold=0)},
}


class Tree(Struct, frozen=True):
    """A tree that comes to be, so many seconds after the one before."""

    kind: str
    """``alone``; ``family``, whose child works on for a while; ``talk``; ``ended`` talk; ``fork``
    of a talk, or ``ended fork``."""
    pause: int
    seconds: int = 0
    """How long a child outlives its root."""
    which: int = 0
    """Of which talk a fork is."""


trees = st.builds(
    Tree, st.sampled_from(["alone", "alone", "family", "talk", "ended", "fork", "ended fork"]),
    st.integers(0, 20), st.integers(1, 60), st.integers(0, 5),
)  # fmt: skip

retentions = st.builds(
    lambda **limits: Retention(**{name: x for name, x in limits.items() if x is not None}),
    ended=st.one_of(st.none(), st.integers(1, 60)),
    keep_last=st.one_of(st.none(), st.integers(1, 5)),
    max_bytes=st.one_of(st.none(), st.none(), st.integers(1_000, 20_000)),
    silent=st.just(10_000),  # It ends what lives, and never lasts so long here.
).filter(lambda retention: retention.removes)


def cast() -> list[AgentDefinition]:
    @agent("worker", on_restart="resume")
    async def worker(input: Any, ctx: Any) -> str:
        await anyio.sleep(float(input))
        return "done"

    @agent("family")
    async def family(input: Any, ctx: Any) -> str:
        ctx.spawn("worker", input, result="ignore")
        return "begun"

    @agent("alone")
    async def alone(input: Any, ctx: Any) -> str:
        return "done"

    bot = Agent("bot", "You repeat.", model=FunctionModel(lambda request: "Yes."))
    return [worker, family, alone, bot]


async def tell(rt: Runtime, story: Sequence[Tree]) -> None:
    """Have the trees come to be."""
    talks: list[str] = []
    for number, tree in enumerate(story):
        await anyio.sleep(tree.pause)
        match tree.kind:
            case "alone":
                await rt.run("alone", "go")
            case "family":
                await rt.run("family", str(tree.seconds))
            case "talk" | "ended":
                run = await rt.start("bot", f"hello {number}")
                await run.result()
                talks.append(run.run_id)
            case _ if talks:
                run = await rt.fork(talks[tree.which % len(talks)], message=f"hello {number}")
                await run.result()
                talks.append(run.run_id)
        if tree.kind.startswith("ended") and talks:
            await rt.hub.terminate(talks[-1])
            await rt.finished(talks[-1])
    await rt.hub.journal.flush()


def ports(seed: int = 1) -> Ports:
    return Ports(
        clock=LoopClock(), ids=SystemIds(seed), offload=InlineOffload(), make_worker=InlineWorker
    )


def events_of(store: StoreReader) -> list[Event]:
    return [decoded(store, row.position, row.body) for row in store.event_rows()]


async def chosen(rt: Runtime, retention: Retention) -> tuple[list[str], set[str], list[str]]:
    """What goes by the rule, what a pass has go, and what a pruning would, at this moment."""
    await anyio.sleep(0.5)  # What goes on after a restart is on record by then.
    await rt.hub.journal.flush()
    journal, now = rt.hub.journal, rt.hub.ports.clock.now()
    events = await journal.inspect(events_of)
    found = await journal.inspect(partial(find_trees, retention=retention, now=now))
    store = removals_of(journal)
    assert store is not None
    await store.prepare_removals()
    passes = RetentionPasses(rt.services, retention, store)
    await passes.make_pass()
    left = await journal.inspect(lambda reader: {*reader.roots().values()})
    gone = {*trees_of(events)} - left
    assert passes.removed.trees == len(gone) and not passes.removed.problems
    return goes_by_rule(events, retention, now), gone, [x.root_run_id for x in found.trees]


def in_one_order(events: Sequence[Event]) -> bool:
    """Whether trees are over in the order in which their roots are: for a size a pass looks at
    these, and a pruning at the ends of whole trees."""
    roots = [x.run_id for x in events if x.type == "agent:complete" and x.parent_run_id is None]
    over = {root: tree for root, tree in trees_of(events).items() if tree.is_over}
    ends = sorted(over, key=lambda root: (over[root].last_at, over[root].place))
    return ends == [root for root in roots if root in over]


@pytest.mark.parametrize("loop", BACKENDS)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(story=st.lists(trees, min_size=1, max_size=12), retention=retentions)
def test_a_pass_and_a_pruning_choose_what_goes_by_the_rule(
    loop: str, store: str, story: list[Tree], retention: Retention
) -> None:
    async def live(kept: Any, place: str) -> None:
        async with Runtime(cast(), store=kept, ports=ports(), grace=0.1) as rt:
            await tell(rt, story)
            is_alike = in_one_order(await rt.hub.journal.inspect(events_of))
            expected, gone, pruned = await chosen(rt, retention)
            assert pruned == expected
            if retention.max_bytes is None or is_alike:
                assert gone == {*expected}
            event(f"{min(len(gone), 3)} went of {len(story) // 4}")

    if store == "memory":
        anyio.run(live, MemoryJournal(), "", backend=loop, backend_options=BACKENDS[loop]())
        return
    with tempfile.TemporaryDirectory() as folder:
        place = f"sqlite:{folder}/store"
        anyio.run(live, place, place, backend=loop, backend_options=BACKENDS[loop]())
        assert problems(place) == []


@pytest.mark.parametrize("loop", BACKENDS)
@settings(
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
)
@given(
    before=st.lists(trees, max_size=5), old=st.lists(trees, min_size=1, max_size=4),
    after=st.lists(trees, max_size=5), ended=st.integers(1, 60),
)  # fmt: skip
def test_an_imported_tree_goes_by_its_age_though_it_came_late(
    loop: str, before: list[Tree], old: list[Tree], after: list[Tree], ended: int
) -> None:
    retention = Retention(ended=ended)

    async def other(folder: Path) -> None:
        async with Runtime(cast(), store=f"sqlite:{folder}/old", ports=ports(), grace=0.1) as rt:
            await tell(rt, old)
            await rt.run("alone", "the last one")

    async def main(folder: Path) -> None:
        place, mine = f"sqlite:{folder}/store", ports(2)
        await mine.clock.sleep(
            mine.clock.monotonic() + 200
        )  # All that comes from elsewhere is older.
        async with Runtime(cast(), store=place, ports=mine, grace=0.1) as rt:
            await tell(rt, before)
        with open_reader(f"sqlite:{folder}/old") as reader:
            for row in [x for x in reader.rows() if x.parent_run_id is None]:
                import_runs(place, "old.jsonl", export_run(reader, row.run_id), ports=mine)
        async with Runtime(cast(), store=place, ports=mine, grace=0.1) as rt:
            await tell(rt, after)
            expected, gone, pruned = await chosen(rt, retention)
            assert pruned == expected and gone == {*expected}

    with tempfile.TemporaryDirectory() as name:
        for part in (other, main):
            anyio.run(part, Path(name), backend=loop, backend_options=BACKENDS[loop]())
        assert problems(f"sqlite:{name}/store") == []
