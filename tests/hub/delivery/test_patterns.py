"""Which events a subscription gets (H-02)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub import CustomEvent, Hub, Runtime, agent
from hubbub.hub.delivery.patterns import MAX_PATTERNS, Patterns
from hubbub.hub.errors import BadPattern

words = st.text("ab", min_size=1, max_size=3)
types = st.lists(words, min_size=1, max_size=4).map(":".join)


@pytest.mark.spec("H-02")
@given(types)
def test_star_matches_every_type(type_):
    assert Patterns("*").match(type_)


@pytest.mark.spec("H-02")
@given(types, types)
def test_exact_type_matches_itself_only(pattern, type_):
    assert Patterns(pattern).match(type_) == (pattern == type_)


@pytest.mark.spec("H-02")
@given(types, types)
def test_prefix_matches_whatever_begins_with_it(stem, type_):
    assert Patterns(f"{stem}:*").match(type_) == type_.startswith(f"{stem}:")


@pytest.mark.spec("H-02")
@given(st.lists(st.one_of(types, types.map(lambda t: f"{t}:*")), min_size=1, max_size=5), types)
def test_list_matches_what_any_of_its_patterns_matches(patterns, type_):
    assert Patterns(patterns).match(type_) == any(Patterns(p).match(type_) for p in patterns)


@pytest.mark.spec("H-02")
@pytest.mark.parametrize("type_", ["agent:start", "agent:tool:start", "agent:text:delta"])
def test_agent_star_matches_every_agent_event(type_):
    assert Patterns("agent:*").match(type_)
    assert not Patterns("agent:*").match("agents:start")
    assert not Patterns("agent:*").match("agent")


@pytest.mark.spec("H-02")
@pytest.mark.parametrize(
    "pattern",
    [
        "", " ", ":", "**", "a*", "agent:st*", "*:start", "agent:*:start", "*a", ":*", "agent:**",
        "agent start", "agent: *", b"agent:*", [],
        ["agent:*", "x*"], None, 7, [None], [["agent:*"]],
        ["a"] * (MAX_PATTERNS + 1),
    ],
)  # fmt: skip
def test_other_pattern_is_refused_with_a_remedy(pattern):
    with pytest.raises(BadPattern, match=r"write '\*', 'agent:start', 'agent:\*'"):
        Patterns(pattern)


@pytest.mark.anyio
@pytest.mark.spec("H-02")
async def test_bad_pattern_leaves_no_subscription(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        with pytest.raises(BadPattern):
            hub.subscribe("agent*", print)
        with pytest.raises(BadPattern):
            hub.subscribe("agent*")
        assert hub.statistics().subscribers == 0


@pytest.mark.anyio
@pytest.mark.spec("H-02")
async def test_event_that_several_patterns_match_is_delivered_once(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        got = []
        hub.subscribe(["*", "shop:*", "shop:order"], got.append)
        await hub.publish(CustomEvent.of("shop:order"))
        assert [event.type for event in got] == ["shop:order"]


@pytest.mark.anyio
@pytest.mark.spec("H-02")
async def test_run_filter_gives_that_run_only(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        got = []
        hub.subscribe("*", lambda event: got.append(event.data["n"]), run_id="a")
        for n, run_id in enumerate(["a", "b", "", "a"]):
            with hub.scoped(run_id=run_id):
                await hub.publish(CustomEvent.of("test:tick", n=n))
        assert got == [0, 3]


@pytest.mark.anyio
@pytest.mark.spec("H-02")
async def test_both_filters_must_hold(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        got = []
        hub.subscribe(
            "*", lambda event: got.append(event.data["n"]), run_id="a", root_run_id="root"
        )
        places = [("a", "root"), ("a", "other"), ("b", "root"), ("a", "")]
        for n, (run_id, root) in enumerate(places):
            with hub.scoped(run_id=run_id, root_run_id=root):
                await hub.publish(CustomEvent.of("test:tick", n=n))
        assert got == [0]


@pytest.mark.anyio
@pytest.mark.spec("H-02")
async def test_run_filter_of_no_run_gives_what_is_about_none(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        got = []
        subscription = hub.subscribe("*", got.append, run_id="")
        await hub.publish(CustomEvent.of("test:tick"))
        await hub.publish(CustomEvent.of("test:tick", run_id="a"))
        with hub.scoped(run_id="a"):
            await hub.publish(CustomEvent.of("test:tick"))
        assert [event.run_id for event in got] == ["", ""]
        subscription.close()
        assert hub.statistics().subscribers == 0


@pytest.mark.anyio
@pytest.mark.spec("H-02", "R-13")
async def test_tree_filter_includes_children_spawned_later(journal, ports):
    @agent("leaf")
    async def leaf(input: str, ctx):
        return input

    @agent("branch")
    async def branch(input: str, ctx):
        return (await ctx.spawn("leaf", input).result()).output

    @agent("root")
    async def root(input: str, ctx):
        async for message in ctx.messages():
            return (await ctx.spawn("branch", message.content).result()).output
        return None

    async with Runtime(agents=[leaf, branch, root], store=journal, ports=ports) as rt:
        ours, other = await rt.start("root", ""), await rt.start("root", "")
        got = []
        rt.hub.subscribe("agent:start", got.append, root_run_id=ours.run_id)
        by_stream = rt.hub.subscribe("agent:start", root_run_id=ours.run_id)
        await ours.send("deep")
        await other.send("elsewhere")
        assert (await ours.result()).output == "deep"
        assert (await other.result()).output == "elsewhere"
        by_stream.close()
        assert [event.agent for event in got] == ["branch", "leaf"]
        assert {event.root_run_id for event in got} == {ours.run_id}
        assert [event async for event in by_stream] == got
