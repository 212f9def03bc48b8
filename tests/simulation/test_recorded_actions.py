"""What is told of runs, and what differs between two of them."""

from hubbub.hub import events as e
from hubbub.hub.events import Event, ToolCall
from hubbub.runtime.simulation.playback.actions import RunLane, actions_of, names_of, unheard


def lane(*events: Event) -> RunLane:
    return RunLane("r", None, "main", events)


def told(of: RunLane, instead: RunLane | None = None) -> list[str]:
    found = actions_of(of, "main", unheard(instead or of), lambda text: text.replace("child", "C"))
    return [deed.what for deed in found]


def called(*results: Event, arguments: str = '{"a":1}') -> RunLane:
    return lane(e.AgentStep(step=1, calls=(ToolCall(name="x", arguments=arguments),)), *results)


def result(output: str = "y", **more: bool) -> Event:
    return e.AgentToolComplete(call_id="1.0", step=1, name="x", output=output, **more)


def test_runs_are_named_by_the_agents_that_lead_to_them_and_numbered() -> None:
    lanes = [
        RunLane("1", "elsewhere", "main", ()), RunLane("2", "1", "a", ()),
        RunLane("3", "1", "a", ()), RunLane("4", "3", "b", ()), RunLane("5", "1", "a", ()),
    ]  # fmt: skip
    names = names_of(lanes)
    assert list(names.values()) == ["main", "main/a", "main/a 2", "main/a 2/b", "main/a 3"]
    # Runs that are known keep their names, others get free ones.
    again = names_of(lanes, {"1": "main", "5": "main/a"}, names.values())
    assert list(again.values()) == ["main", "main/a 4", "main/a 5", "main/a 5/b", "main/a"]


def test_a_call_is_told_with_its_arguments_and_its_answer() -> None:
    assert told(called(result())) == ['x(a=1) → "y"']
    assert told(called(result("no", is_error=True))) == ['x(a=1) → error "no"']
    assert told(called(arguments="{oops")) == ['x("{oops") → (no answer)']


def test_a_refusal_is_told_without_its_words_where_the_recording_has_one() -> None:
    refused = called(result("bad arguments", is_error=True, ran=False))
    assert told(refused) == ["x(a=1) → (refused)"]
    assert told(called(result("in other words", is_error=True)), refused) == told(refused)
    assert told(called(result()), refused) == ['x(a=1) → "y"']
    assert told(refused, called(result())) == ['x(a=1) → error "bad arguments"']


def test_a_call_that_had_no_answer_yet_may_have_any() -> None:
    assert told(called(result()), called()) == told(called())


def test_what_may_differ_is_not_told() -> None:
    seen = lane(
        e.AgentThinking(text="hm"), e.AgentRetry(error="429"), e.AgentPark(), e.AgentRestore(),
        e.AgentToolStart(name="x"), e.AgentKey(key="k"), e.AgentClaim(owner="o"),
    )  # fmt: skip
    assert told(seen) == []
    usage = e.Usage(input_tokens=7)
    assert told(lane(e.SessionEnd(usage=usage))) == told(lane(e.SessionEnd()))


def test_children_are_told_with_their_modes() -> None:
    modes = [
        e.AgentChild(child_run_id="child", child_agent="a", name="n", **{mode: True})
        for mode in ("blocking", "resumable", "explicit", "immediate", "takeover")
    ]
    found = told(lane(*modes, e.AgentChild(child_agent="a", error="no room", child_run_id="z")))
    assert len(set(found)) == 6
    assert found[0] == 'starts C (blocking), named "n"'
    assert found[1] == 'starts C (non-blocking, resumable), named "n"'
    assert found[-1] == "cannot start a (non-blocking)"


def test_a_run_is_at_rest_when_it_is_over_or_waits_for_a_user() -> None:
    model = e.SessionStart(side="side_a")
    assert not lane().is_at_rest
    assert not lane(model, e.AgentText(text="x")).is_at_rest
    assert lane(model, e.SessionEnd()).is_at_rest
    assert lane(model, e.AgentPark()).is_at_rest
    assert lane(e.SessionStart(), e.AgentComplete()).is_at_rest
    # Code may be at anything, and mail is still to be read.
    assert not lane(e.SessionStart(), e.AgentText(text="x")).is_at_rest
    assert not RunLane("r", None, "main", (model, e.AgentPark()), has_mail=True).is_at_rest
