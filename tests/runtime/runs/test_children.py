"""Children in all four modes: one result per invocation, in the seed's words (SA 7, SB)."""

import re
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life
from support.families import Recorder, answers, child, config, heard, offered, only, parent

from hubbub import AgentDefinition, Message, PromptDefinition, RunState, Runtime, SideConfig, tool
from hubbub.agents.model import ModelRequest
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.errors import NoSuchFile
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import Fault, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio

RESULT = "Subagent (reference: {}) has returned the following result:\n\n{}"
FAILURE = "Subagent (reference: {}) has reported a failure:\n\n{}"


def runtime(*agents: Any, journal: Journal, ports: Ports, **options: Any) -> Runtime:
    return Runtime(agents, store=journal, ports=ports, **options)


def create(message: str = "Do it.", name: str = "Bob", agent: str = "helper") -> Any:
    return call("subagent_create", agent=agent, name=name, arguments={"message": message})


def reference_in(request: ModelRequest) -> str:
    """The first reference that the registry message names."""
    (note,) = request.system_notes
    return note.splitlines()[1].removeprefix("- ").partition(":")[0]


def simple_reference(request: ModelRequest) -> str:
    """The reference in the last answer, that of a child of the kind that does not stay."""
    found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", answers(request)[-1].output)
    return found[0] if found else ""


def write(message: str) -> Any:
    """A step of a script: write to the first child in the registry."""
    return lambda request: call(
        "subagent_message", reference=reference_in(request), message=message
    )


# ── the four modes ───────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("C-01", "C-09")
async def test_a_blocking_call_waits_and_gets_the_bare_result(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(call("helper", message="Count to 3."), "Thanks.")
    work = Recorder(call("finish", result="1, 2, 3"))
    agents = (parent(boss, config()), child(work))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        outcome = await rt.run("main", "Please.")
        assert outcome.output == "Thanks."
        (done,) = answers(boss.requests[1])
        assert (done.output, done.is_error, done.notes) == ("1, 2, 3", False, ())
        assert heard(boss.requests[1]) == ["Please."], "and nothing is queued besides"
        assert heard(work.requests[0]) == ["Count to 3."], "the child sees its message only"
        started = seen.first("agent:child")
        end = assert_one_life(seen.events, started.child_run_id)
        assert (end.outcome, end.output) == ("completed", "1, 2, 3")
        assert started.waits and not started.resumable


@pytest.mark.spec("C-01", "C-09", "C-11")
async def test_a_call_that_does_not_block_is_answered_at_once_and_told_later(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(call("helper", message="Count."), "Under way.", "Thanks.")
    work = Recorder(call("finish", result="1, 2, 3"), latency=5)
    agents = (parent(boss, config(blocking=False)), child(work))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        outcome = await run.result()
        assert outcome.output == "Under way.", "the parent does not wait"
        started = seen.first("agent:child")
        (done,) = answers(boss.requests[1])
        assert started.child_run_id in done.output and not done.is_error
        await rt.finished(started.child_run_id)
        outcome = await run.result()
        assert outcome.output == "Thanks.", "the result has woken the idle parent"
        text = RESULT.format(started.child_run_id, "1, 2, 3")
        assert heard(boss.requests[2]) == ["Please.", text]
        result = seen.first("session:result")
        assert result.metadata == {"reference": started.child_run_id, "name": "", "reason": ""}


@pytest.mark.spec("C-01", "C-06", "C-18")
async def test_a_resumable_child_stays_and_is_written_to(journal: Journal, ports: Ports) -> None:
    boss = Recorder(create("First."), write("Second."), "Thanks.")
    work = Recorder(call("finish", result="one"), call("finish", result="two"))
    agents = (parent(boss, config(stays=True)), child(work))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        assert (await run.result()).output == "Thanks."
        assert [a.output for a in answers(boss.requests[2])] == ["one", "two"]
        assert heard(boss.requests[2]) == ["Please."]
        assert heard(work.requests[1])[-1] == "Second.", "the child remembers the first"
        assert [i.status for i in await rt.hub.journal.runs()] == ["parked", "parked"]


@pytest.mark.spec("C-01", "C-08", "C-18")
async def test_a_resumable_child_that_does_not_block_reports_each_invocation_once(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(create("First."), "Waiting.", write("Second."), "Waiting again.", "Thanks.")
    work = Recorder(call("finish", result="one"), call("finish", result="two"), latency=5)
    agents = (parent(boss, config(stays=True, blocking=False)), child(work))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        reference = None
        with anyio.fail_after(600):
            while len(boss.requests) < 5:  # noqa: ASYNC110
                await anyio.sleep(1)
        assert (await run.result()).output == "Thanks."
        reference = seen.first("agent:child").child_run_id
        told = [text for text in heard(boss.requests[-1]) if text != "Please."]
        assert told == [RESULT.format(reference, "one"), RESULT.format(reference, "two")]
        sent = answers(boss.requests[-1])[-1]
        assert reference in sent.output and not sent.is_error


@pytest.mark.spec("C-06")
async def test_the_lifecycle_tools_exist_only_where_a_subagent_stays(
    journal: Journal, ports: Ports
) -> None:
    with_it, without = Recorder("hi"), Recorder("hi")
    agents = (
        parent(with_it, config(stays=True), name="with"),
        parent(without, config(), name="without"),
        child(Recorder()),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        await rt.run("with", "?")
        await rt.run("without", "?")
    assert offered(with_it.requests[0]) == ["subagent_create", "subagent_message"]
    assert offered(without.requests[0]) == ["helper"]


@pytest.mark.spec("C-06", "C-19")
@pytest.mark.parametrize("name", ["", "   ", "\n\t"])
async def test_a_new_instance_must_have_a_name(name: str, journal: Journal, ports: Ports) -> None:
    boss = Recorder(create(name=name), "Oh.")
    agents = (parent(boss, config(stays=True)), child(Recorder()))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        await rt.run("main", "Please.")
        (refused,) = answers(boss.requests[1])
        assert refused.is_error and "name" in refused.output
        assert not seen.all("agent:child")


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("C-07")
@pytest.mark.parametrize("parallel", [False, True])
async def test_the_cap_on_instances_holds_also_for_creates_in_one_step(
    parallel: bool, journal: Journal, ports: Ports
) -> None:
    steps = reply("", create(name="a"), create(name="b"), create(name="c"))
    boss = Recorder(steps, "Well.")
    agents = (
        parent(boss, config(stays=True, max_instances=2, blocking=False),
               parallel_tool_calls=parallel),
        child(Recorder(Fault("hang"))),
    )  # fmt: skip
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        done = answers(boss.requests[1])
        refused = only(done, lambda each: each.is_error)
        live = [event.child_run_id for event in seen.all("agent:child")]
        assert len(live) == 2
        assert "at most 2" in refused.output and "subagent_message" in refused.output
        assert all(run_id in refused.output for run_id in live)


@pytest.mark.spec("C-07", "T-05")
async def test_a_terminated_instance_makes_room(journal: Journal, ports: Ports) -> None:
    boss = Recorder(create(name="a"), "One.", create(name="b"), "Two.")
    agents = (
        parent(boss, config(stays=True, max_instances=1)),
        child(Recorder(call("finish", result="x"))),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        await rt.terminate(seen.first("agent:child").child_run_id)
        await rt.finished(seen.first("agent:child").child_run_id)
        run.send("Another.")
        await run.result()
        assert [a.output for a in answers(boss.requests[-1])] == ["x", "x"]
        assert len(seen.all("agent:child")) == 2


@tool
async def gone(state: RunState) -> str:
    """Terminate the first child."""
    thread = await state.get_child_thread(state.children[0].reference)
    await thread.terminate("no longer wanted")
    return "terminated"


@pytest.mark.spec("C-08")
@pytest.mark.parametrize("kind", ["unknown", "own", "not resumable", "foreign", "terminated"])
async def test_a_message_to_no_child_of_ours_is_a_tool_error(
    kind: str, journal: Journal, ports: Ports
) -> None:
    foreign: list[str] = []

    def wrong(request: ModelRequest) -> Any:
        reference = {
            "unknown": "nobody",
            "own": run_id,
            "not resumable": simple_reference(request),
            "foreign": foreign[0] if foreign else "",
            "terminated": reference_in(request),
        }[kind]
        return call("subagent_message", reference=reference, message="Hello?")

    end = call("gone") if kind == "terminated" else call("simple", message="x")
    boss = Recorder(create(), end, wrong, "Well.")
    agents = (
        parent(boss, config(stays=True), config("simple", blocking=False), gone),
        child(Recorder(call("finish", result="x"))),
        child(Recorder(Fault("hang")), name="simple"),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        other = await rt.start("helper", "Somebody else's.")
        foreign.append(other.run_id)
        run_id = rt.ports.ids.run_id(rt.ports.clock.now())
        run = await rt.start("main", "Please.", run_id=run_id)
        await run.result()
        refused = answers(boss.requests[3])[-1]
        assert refused.is_error, refused
        assert {
            "terminated": "terminated", "not resumable": "takes no messages"
        }.get(kind, "no subagent with the reference") in refused.output  # fmt: skip


@pytest.mark.spec("C-08")
@pytest.mark.parametrize("side", ["side_a", "side_b"])
async def test_the_receiving_side_hears_a_message_as_the_user_and_takes_the_next_turn(
    side: str, journal: Journal, ports: Ports
) -> None:
    boss = Recorder(create("First."), write("Second."), "Thanks.")
    a = Recorder(call("finish", result="one"), call("finish", result="two by a"))
    b = Recorder(call("finish", result="two by b"))
    agents = (
        parent(boss, config(stays=True, receives_messages=side)),
        child(a, other=b),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
        assert answers(boss.requests[2])[-1].output == f"two by {side[-1]}"
        request = (a if side == "side_a" else b).requests[-1]
        assert heard(request)[-1] == "Second."
        if side == "side_b":
            mine = [m for m in request.messages if getattr(m, "is_given", False)]
            assert [m.text for m in mine] == ["First."], "the other side's are its own words"


# ── texts and outcomes ───────────────────────────────────────────────────────────────────────


@tool
async def explode() -> str:
    """Fails."""
    raise RuntimeError("broken")


ENDINGS: dict[str, tuple[Any, str, str]] = {
    "stop": ([call("finish", result="fine")], RESULT, "fine"),
    "fail": ([call("give_up", reason="cannot")], FAILURE, "cannot"),
    "limit": (["a", "b", "c", "d", "e"], RESULT, "Go on."),
    "model": ([Fault("auth", message="bad key")], FAILURE, "bad key"),
    "silent": ([call("finish", result="")], FAILURE, "without any text"),
}


@pytest.mark.spec("C-09", "C-10")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("stays", [True, False])
async def test_each_ending_is_told_in_the_words_of_the_seed(
    ending: str, blocking: bool, stays: bool, journal: Journal, ports: Ports
) -> None:
    script, words, content = ENDINGS[ending]
    start = create() if stays else call("helper", message="Do it.")
    boss = Recorder(start, "Said.", "Heard.")
    work = ScriptedModel(script)
    agents = (
        parent(boss, config(stays=stays, blocking=blocking)),
        child(work, max_session_turns=4),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        if not blocking:
            with anyio.fail_after(60):
                while len(boss.requests) < 3:  # noqa: ASYNC110
                    await anyio.sleep(1)
        await run.result()
        request = boss.requests[-1]
        reference = seen.first("agent:child").child_run_id
        (done,) = answers(request)
        if blocking:
            assert content in done.output and done.is_error is (words is FAILURE)
            assert "Subagent (reference" not in done.output
            notes = done.notes
        else:
            (message,) = [m for m in request.messages if m.__class__.__name__ == "UserMessage"][1:]
            text = words.format(reference, "")
            assert message.content.startswith(text) and content in message.content
            notes = message.notes
        assert (notes == ("Reason: limit",)) is (ending == "limit")
        assert len(seen.all("session:result")) == 1
        assert len(seen.all("agent:complete")) == (0 if stays else 1)


@pytest.mark.spec("C-10", "T-05")
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("stays", [True, False])
async def test_a_terminated_child_is_reported_and_unblocks_its_parent(
    blocking: bool, stays: bool, journal: Journal, ports: Ports, eventually: Any
) -> None:
    start = create() if stays else call("helper", message="Do it.")
    boss = Recorder(start, "Said.", "Heard.")
    agents = (
        parent(boss, config(stays=stays, blocking=blocking)),
        child(ScriptedModel([Fault("hang")])),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await eventually(seen.has("agent:child"))
        await anyio.sleep(1)
        reference = seen.first("agent:child").child_run_id
        await rt.terminate(reference, "enough")
        await rt.terminate(reference, "enough")
        await rt.finished(reference)
        await anyio.sleep(1)
        await run.result()
        assert len(seen.all("session:result")) == 1
        if blocking:
            (done,) = answers(boss.requests[1])
            assert done.is_error and "enough" in done.output
            assert len(boss.requests) == 2
        else:
            assert heard(boss.requests[2])[-1] == FAILURE.format(reference, "terminated: enough")
        if stays:
            run.send("And now?")
            await run.result()
            assert "terminated" in boss.requests[-1].system_notes[0]


@pytest.mark.spec("C-10")
async def test_a_child_whose_time_is_over_is_reported_as_a_failure(
    journal: Journal, ports: Ports
) -> None:
    """A deadline comes with ``session:open``; here from a caller who opens it by hand."""
    boss = Recorder(call("helper", message="x"), "Well.")
    agents = (parent(boss, config()), child(ScriptedModel([Fault("hang")])))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.", timeout=5)
        outcome = await run.finished()
        assert outcome.outcome == "timed_out"
        child_id = seen.first("agent:child").child_run_id
        assert assert_one_life(seen.events, run.run_id).outcome == "timed_out"
        assert (await rt.hub.journal.info(child_id)) is not None


@pytest.mark.spec("C-11")
async def test_a_result_that_comes_in_the_middle_of_a_turn_is_seen_at_the_next_step(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def wait_long() -> str:
        """Waits."""
        await anyio.sleep(60)
        return "waited"

    boss = Recorder(call("helper", message="x"), call("wait_long"), "All done.")
    agents = (
        parent(boss, config(blocking=False), wait_long),
        child(Recorder(call("finish", result="early"), latency=5)),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
        assert len(boss.requests) == 3, "no turn of its own"
        request = boss.requests[2]
        assert [a.output for a in answers(request)][-1] == "waited"
        assert heard(request)[-1].endswith("early"), "behind the results of the step before"


@pytest.mark.spec("C-11")
async def test_a_result_that_the_last_step_of_a_turn_did_not_see_forces_the_next(
    journal: Journal, ports: Ports
) -> None:
    """It comes while the tool that ends the turn is at work: taken, told, and seen by no step."""

    @tool
    async def stop_here() -> str:
        """Ends the turn."""
        await anyio.sleep(60)
        return "that is all"

    steps = reply("", call("helper", message="x"), call("stop_here"))
    boss = Recorder(steps, "I see.")
    prompt = PromptDefinition(
        name="p", prompt="", model=boss, tools=[config(blocking=False), stop_here]
    )
    main = AgentDefinition(name="main", side_a=SideConfig(prompt=prompt, stop_tool="stop_here"))
    work = child(Recorder(call("finish", result="early"), latency=5))
    async with runtime(main, work, journal=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        with anyio.fail_after(600):
            while (await run.result()).output != "I see.":  # noqa: ASYNC110
                await anyio.sleep(1)
        assert heard(boss.requests[1])[-1].endswith("early")
        ends = [x for x in await run.read() if x.type == "session:end"]
        assert [x.output for x in ends] == ["that is all", "I see."]  # type: ignore[attr-defined]


@pytest.mark.spec("C-11")
@pytest.mark.parametrize("when", ["idle", "between steps", "beside a call"])
async def test_a_turn_that_fails_over_a_result_is_not_taken_again_by_itself(
    when: str, journal: Journal, ports: Ports
) -> None:
    """As with what a user says: it stays in the conversation, and the next turn reads it."""

    @tool
    async def wait_long() -> str:
        """Waits."""
        await anyio.sleep(60)
        return "waited"

    @tool
    async def look() -> str:
        """Looks."""
        await anyio.sleep(1)
        return "looked"

    steps = {
        "idle": ["It is under way."],
        "between steps": [call("look"), call("look")],
        "beside a call": [call("wait_long")],
    }[when]

    def fail_over_it(request: ModelRequest) -> Any:
        return Fault("auth") if heard(request)[-1].endswith("early") else "I see."

    boss = Recorder(call("helper", message="x"), *steps, fail_over_it)
    agents = (
        parent(boss, config(blocking=False), wait_long, look),
        child(Recorder(call("finish", result="early"), latency=1.5)),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        await anyio.sleep(1000)
        assert len(boss.requests) == len(steps) + 2
        assert heard(boss.requests[-1])[-1].endswith("early")
        failed = [x for x in await run.read() if isinstance(x, e.SessionEnd) and not x.success]
        assert len(failed) == 1
        assert fold_all(EMPTY, await own_lane(journal, run.run_id)).unseen == ()
        await run.send("Well?")
        assert (await run.result()).output == "I see."
        assert sum(x.endswith("early") for x in heard(boss.requests[-1])) == 1


async def own_lane(journal: Journal, run_id: str) -> Sequence[Event]:
    loaded = await journal.load(run_id)
    assert loaded is not None
    return loaded.events


@pytest.mark.spec("C-12", "C-13")
@pytest.mark.parametrize("script", [
    [call("finish", result="x")], [call("give_up", reason="x")], [Fault("auth")], ["a"] * 9,
])  # fmt: skip
async def test_an_explicit_child_queues_nothing_however_it_ends(
    script: Any, journal: Journal, ports: Ports
) -> None:
    boss = Recorder(create(), "Fine.", "No more.")
    stays = config(stays=True, blocking=False, parent_communication="explicit")
    agents = (parent(boss, stays), child(ScriptedModel(script), max_session_turns=4))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        await anyio.sleep(60)
        await run.result()
        assert any(event.run_id != run.run_id for event in seen.all("session:end"))
        assert len(boss.requests) == 2, "no turn of the parent's"
        assert heard(boss.requests[1]) == ["Please."]


@pytest.mark.spec("C-12")
async def test_a_blocking_call_of_an_explicit_child_gets_its_result(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(create(), "Fine.")
    stays = config(stays=True, parent_communication="explicit")
    agents = (parent(boss, stays), child(Recorder(call("finish", result="x"))))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
        assert [a.output for a in answers(boss.requests[1])] == ["x"]


@pytest.mark.spec("C-12", "C-20")
async def test_an_explicit_child_speaks_by_its_tools(journal: Journal, ports: Ports) -> None:
    @tool
    async def speak(state: RunState) -> str:
        """Speak up."""
        state.set_status("half way")
        receipt = await state.notify_parent("Look at this.")
        return receipt.status

    boss = Recorder(create(), "Fine.", "I see.")
    stays = config(stays=True, blocking=False, parent_communication="explicit")
    work = Recorder(call("speak"), Fault("hang"), latency=5)
    agents = (parent(boss, stays), child(work, speak))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        await anyio.sleep(30)
        await run.result()
        reference = seen.first("agent:child").child_run_id
        assert heard(boss.requests[2])[-1] == f"Subagent (reference: {reference}):\n\nLook at this."
        assert "half way" in boss.requests[2].system_notes[0]
        (message,) = seen.all("session:message")
        assert message.silent and message.source == reference


@pytest.mark.spec("C-13", "S-05")
async def test_a_status_changes_the_registry_and_starts_no_turn(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(create(), "Fine.", "Still fine.")
    work = Recorder(call("report", status="three of five"), Fault("hang"), latency=5)
    agents = (parent(boss, config(stays=True, blocking=False)), child(work))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        run = await rt.start("main", "Please.")
        await run.result()
        await anyio.sleep(60)
        await run.result()
        assert len(boss.requests) == 2
        run.send("How far?")
        await run.result()
        assert "three of five" in boss.requests[2].system_notes[0]


# ── the registry ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("C-14")
async def test_the_registry_has_every_field_of_the_seed(journal: Journal, ports: Ports) -> None:
    found: list[Any] = []

    @tool
    async def look(state: RunState) -> str:
        """Look at the children."""
        found.extend(state.children)
        return "ok"

    two = reply("", create(name="one"), create(name="two"), call("helper2", message="x"))
    boss = Recorder(two, call("look"), "Thanks.")
    agents = (
        parent(boss, config(stays=True, blocking=False), config("helper2"), look),
        child(Recorder(Fault("hang"))),
        child(Recorder(call("finish", result="x")), name="helper2"),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        started = seen.all("agent:child")
        assert [entry.reference for entry in found] == [s.child_run_id for s in started[:2]]
        first, second = found
        assert (first.name, first.title, first.thread_name) == ("helper", "Helper", "one")
        assert first.description == "Does what helper does."
        assert (first.resumable, first.blocking) == (True, False)
        assert first.parent_communication == "implicit"
        assert first.spawn_group_id == second.spawn_group_id != ""
        assert 0 < first.created_at <= second.created_at
        assert first.status == "running"


@pytest.mark.spec("C-14")
async def test_one_system_message_tells_of_the_children_anew_at_each_step(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(create(name="Ada"), "One.", "Two.")
    work = Recorder(call("finish", result="x"), latency=5)
    agents = (parent(boss, config(stays=True, blocking=False)), child(work))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        await anyio.sleep(30)
        await run.result()
        reference = seen.first("agent:child").child_run_id
        notes = [request.system_notes for request in boss.requests]
        assert notes[0] == ()
        assert notes[1] == (f"Your subagents, by reference:\n- {reference}: helper 'Ada': running",)
        assert notes[2] == (f"Your subagents, by reference:\n- {reference}: helper 'Ada': idle",)
        assert all(request.system == "You lead." for request in boss.requests)


# ── budgets, waiting, visibility ─────────────────────────────────────────────────────────────


@pytest.mark.spec("C-15")
@pytest.mark.parametrize(
    ("limit", "words"),
    [("max_depth", "deep"), ("max_descendants", "live at once"), ("max_spawns", "may start")],
)
async def test_a_budget_of_the_tree_is_a_tool_error_for_a_model(
    limit: str, words: str, journal: Journal, ports: Ports
) -> None:
    boss = Recorder(call("helper", message="x"), "Well.")
    agents = (parent(boss, config()), child(Recorder(call("finish", result="x"))))
    async with runtime(*agents, journal=journal, ports=ports, **{limit: 0}) as rt:
        seen = Observer(rt.hub)
        await rt.run("main", "Please.")
        (refused,) = answers(boss.requests[1])
        assert refused.is_error and words in refused.output
        assert not seen.all("agent:child")


@pytest.mark.spec("C-15")
@pytest.mark.parametrize("limit", ["max_depth", "max_descendants", "max_spawns"])
@pytest.mark.parametrize("most", [0, 1])
async def test_a_budget_of_the_tree_is_an_error_for_code_that_names_number_and_argument(
    limit: str, most: int, journal: Journal, ports: Ports
) -> None:
    from hubbub import agent
    from hubbub.hub.errors import LimitExceeded

    said: list[str] = []

    @agent("boss")
    async def boss(input: int, ctx: Any) -> None:
        try:
            child = ctx.spawn("boss", input + 1)
            if limit != "max_descendants":
                await child.finished()
            ctx.spawn("boss", 9)
        except LimitExceeded as error:
            said.append(str(error))

    async with runtime(boss, journal=journal, ports=ports, **{limit: most}) as rt:
        await rt.run("boss", 0)
        await anyio.sleep(1)
    assert said
    for words in said:
        assert words.startswith(f"children: the limit is {most}; ")
        assert words.endswith(f"open the runtime with a higher {limit}")


@pytest.mark.spec("C-15")
async def test_live_descendants_are_given_back_when_they_end(
    journal: Journal, ports: Ports
) -> None:
    one = call("helper", message="x")
    boss = Recorder(one, one, one, "Thanks.")
    agents = (parent(boss, config()), child(Recorder(call("finish", result="x"))))
    async with runtime(*agents, journal=journal, ports=ports, max_descendants=1) as rt:
        outcome = await rt.run("main", "Please.")
        assert outcome.output == "Thanks."
        assert [a.output for a in answers(boss.requests[3])] == ["x", "x", "x"]


@pytest.mark.spec("C-15")
async def test_a_run_cannot_wait_for_itself_or_for_one_that_waits_for_it(
    journal: Journal, ports: Ports
) -> None:
    asked: list[str] = []

    @tool
    async def ask_around(state: RunState) -> str:
        """Ask those who cannot answer."""
        for address in (state.run_id, state.parent_run_id, state.root_run_id):
            with pytest.raises(Exception, match=r"cannot wait|waits for it") as caught:
                await state.hub.ask(str(address), "Are you there?")
            asked.append(type(caught.value).__name__)
        return "asked"

    inner = child(Recorder(call("ask_around"), call("finish", result="x")), ask_around, name="leaf")
    middle = child(Recorder(call("leaf", message="x"), call("finish", result="y")), config("leaf"))
    boss = Recorder(call("helper", message="x"), "Thanks.")
    agents = (parent(boss, config()), middle, inner)
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        outcome = await rt.run("main", "Please.")
        assert outcome.output == "Thanks."
    assert asked == ["WaitCycle"] * 3


@pytest.mark.spec("C-16")
async def test_events_at_any_depth_are_seen_by_a_subscriber_of_the_root(
    journal: Journal, ports: Ports
) -> None:
    leaf = child(Recorder(call("finish", result="leaf")), name="leaf")
    middle = child(
        Recorder(call("leaf", message="x"), call("finish", result="mid")), config("leaf"),
        name="middle",
    )  # fmt: skip
    boss = Recorder(call("middle", message="x"), "Thanks.")
    agents = (parent(boss, config("middle")), middle, leaf)
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        run_id = rt.ports.ids.run_id(rt.ports.clock.now())
        seen: list[e.Event] = []
        rt.hub.subscribe("agent:*", seen.append, root_run_id=run_id)
        run = await rt.start("main", "Please.", run_id=run_id)
        await run.result()
        agents_seen = {event.agent for event in seen if event.type == "agent:start"}
        assert agents_seen == {"main", "middle", "leaf"}
        assert {event.root_run_id for event in seen} == {run_id}
        by_agent = {event.agent: event for event in seen}
        assert by_agent["leaf"].parent_run_id == by_agent["middle"].run_id


@pytest.mark.spec("C-17")
async def test_a_waiting_parent_costs_no_task_and_leaves_memory_for_its_child(
    journal: Journal, ports: Ports
) -> None:
    """With room for one run at once, a chain of four can only end if each waiting one leaves."""
    agents = [child(Recorder(call("finish", result="0")), name="level0")]
    for level in range(1, 4):
        below = f"level{level - 1}"
        model = Recorder(
            call(below, message="x"),
            lambda request: call("finish", result=answers(request)[-1].output + "+"),
        )
        agents.append(child(model, config(below), name=f"level{level}"))
    async with runtime(*agents, journal=journal, ports=ports, max_live=1) as rt:
        in_memory: list[int] = []
        rt.hub.subscribe("agent:step", lambda event: in_memory.append(len(rt.runs.in_memory)))
        with anyio.fail_after(3600):
            run = await rt.start("level3", "Go.")
            assert (await run.finished()).output == "0+++"
            assert (await rt.run("level3", "Go, and I wait for it.")).output == "0+++"
        assert max(in_memory) == 1


@pytest.mark.spec("C-18")
async def test_a_message_that_joins_a_running_session_gets_no_completion_of_its_own(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(create("First."), write("And this."), "Waiting.", "Thanks.")
    work = Recorder("thinking", call("finish", result="both"), latency=20)
    agents = (
        parent(boss, config(stays=True, blocking=False)),
        child(work, other=ScriptedModel(["hm", "hm"], latency=20)),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        await anyio.sleep(300)
        await run.result()
        told = [text for text in heard(boss.requests[-1]) if text.startswith("Subagent")]
        assert len(told) == 1 and told[0].endswith("both")
        assert heard(work.requests[-1])[0] == "First." and "And this." in heard(work.requests[-1])
        assert len(seen.all("session:result")) == 1


@pytest.mark.spec("C-18", "S-08")
async def test_blocking_calls_that_join_one_session_each_get_its_result(
    journal: Journal, ports: Ports
) -> None:
    def both(request: ModelRequest) -> Any:
        reference = reference_in(request)
        messages = [
            call("subagent_message", reference=reference, message=text) for text in ("p", "q")
        ]
        return reply("", *messages)

    boss = Recorder(create("First."), both, "Thanks.")
    work = Recorder(call("finish", result="one"), call("finish", result="two"), latency=20)
    agents = (parent(boss, config(stays=True), parallel_tool_calls=True), child(work))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        outputs = [a.output for a in answers(boss.requests[2])]
        results = [event.content for event in seen.all("session:result")]
        assert outputs[0] == "one" and len(outputs) == 3
        assert set(outputs[1:]) <= set(results) and not any(a.is_error for a in answers(
            boss.requests[2]))  # fmt: skip
        assert heard(boss.requests[2]) == ["Please."]


@pytest.mark.spec("C-10", "T-10", "S-07")
async def test_a_child_that_is_interrupted_answers_the_call_that_waits_for_it_once(
    journal: Journal, ports: Ports, eventually: Any
) -> None:
    """Its session ends, then its run: two items in one batch, one answer."""
    boss = Recorder(call("helper", message="x"), "Oh.")
    agents = (parent(boss, config()), child(Recorder(Fault("hang"))))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await eventually(seen.has("agent:child"))
        await anyio.sleep(1)
        await rt.hub.interrupt(seen.first("agent:child").child_run_id, "stop it")
        with anyio.fail_after(60):
            assert (await run.result()).output == "Oh."
        assert len([x for x in await run.read() if x.type == "agent:tool:complete"]) == 1
        (done,) = answers(boss.requests[1])
        assert done.is_error and "stop it" in done.output


@pytest.mark.spec("A-01", "T-01")
async def test_code_that_writes_to_a_child_sends_copies_of_its_own_files(
    journal: Journal, ports: Ports
) -> None:
    told: list[str] = []

    @tool
    async def send_file(state: RunState) -> str:
        """Send a file to the first child."""
        await state.files.write("plan.txt", "v1")
        thread = await state.get_child_thread(state.children[0].reference)
        await thread.queue_message(Message("Read this.", attachments=("plan.txt",)))
        await state.files.write("plan.txt", "v2")
        with pytest.raises(NoSuchFile):
            thread.queue_message(Message("And this.", attachments=("none.txt",)))
        return "sent"

    @tool
    async def read_file(state: RunState) -> str:
        """Read the plan."""
        told.append(await state.files.read_text("plan.txt"))
        return "read"

    boss = Recorder(create("First."), call("send_file"), "Sent.")
    work = Recorder(call("finish", result="one"), call("read_file"), call("finish", result="two"))
    agents = (parent(boss, config(stays=True), send_file), child(work, read_file))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        await anyio.sleep(10)
        assert told == ["v1"]
        sent = only(seen.all("session:message"))
        assert (sent.source, sent.attachments) == (run.run_id, ())
        last = [m for m in work.requests[-1].messages if getattr(m, "notes", ())]
        assert last[-1].notes == ("Attachments:\n- plan.txt",)


@pytest.mark.spec("C-10", "T-05")
async def test_a_call_whose_message_the_child_never_took_is_answered_by_its_end(
    journal: Journal, ports: Ports, eventually: Any
) -> None:
    boss = Recorder(create("First."), "Ready.", write("Second."), "Oh.")
    work = Recorder(call("finish", result="one"), Fault("hang"))
    agents = (parent(boss, config(stays=True)), child(work))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        reference = seen.first("agent:child").child_run_id
        await rt.hub.send_to_run(reference, "Busy?")
        await eventually(lambda: len(work.requests) == 2)
        run.send("Go on.")
        await eventually(lambda: len(boss.requests) == 3)
        await anyio.sleep(10)
        await rt.terminate(reference, "enough")
        with anyio.fail_after(60):
            assert (await run.result()).output == "Oh."
        done = answers(boss.requests[-1])[-1]
        assert done.is_error and "enough" in done.output
        assert len(seen.all("hub:dead_letter")) == 1, "the message itself, which nobody took"


# ── ends of parents ──────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-06")
async def test_the_clean_end_of_a_parent_leaves_its_children_alone(
    journal: Journal, ports: Ports
) -> None:
    boss = Recorder(reply("", create(), call("slow", message="x")), "Bye.")
    agents = (
        parent(boss, config(stays=True, blocking=False), config("slow", blocking=False)),
        child(Recorder(call("finish", result="1"), latency=50)),
        child(Recorder(call("finish", result="2"), latency=50), name="slow"),
    )
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        outcome = await rt.run("main", "Please.")
        assert outcome.output == "Bye."
        await anyio.sleep(300)
        letters = seen.all("hub:dead_letter")
        assert sorted(letter.message.content for letter in letters) == ["1", "2"]
        assert {letter.reason for letter in letters} == {"ended"}
        stays, simple = (event.child_run_id for event in seen.all("agent:child"))
        infos = {info.run_id: info.status for info in await rt.hub.journal.runs(live=False)}
        assert (infos[stays], infos[simple]) == ("parked", "ended")
        ended = [x for x in await rt.hub.read(simple) if x.type == "session:end"]
        assert [x.output for x in ended] == ["2"], "the result is in the child's own journal"


@pytest.mark.spec("T-05", "T-10")
@pytest.mark.parametrize("what", ["terminate", "interrupt"])
async def test_a_cascade_reaches_who_it_must_and_nobody_else(
    what: str, journal: Journal, ports: Ports, eventually: Any
) -> None:
    hang = Recorder(Fault("hang"))
    middle = child(Recorder(call("leaf", message="x")), config("leaf"), name="middle")
    steps = reply("", call("aside", message="x"), call("middle", message="x"))
    boss = Recorder(steps, "Well.")
    agents = (
        parent(boss, config("aside", blocking=False), config("middle")),
        middle, child(hang, name="leaf"), child(Recorder(Fault("hang")), name="aside"),
    )  # fmt: skip
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await eventually(lambda: bool(hang.requests))
        ids = {event.child_agent: event.child_run_id for event in seen.all("agent:child")}
        if what == "terminate":
            receipt = await run.terminate("enough")
            assert set(receipt.run_ids) == {run.run_id, *ids.values()}
            for run_id in (run.run_id, *ids.values()):
                outcome = await rt.finished(run_id)
                assert outcome.outcome == "terminated"
                assert_one_life(seen.events, run_id)
            rejected = await rt.hub.send_to_run(ids["leaf"], "Still there?")
            assert (rejected.status, rejected.reason) == ("rejected", "terminated")
        else:
            receipt = await run.interrupt("wait")
            assert set(receipt.run_ids) == {run.run_id, ids["middle"], ids["leaf"]}
            outcome = await run.result()
            assert outcome.outcome == "interrupted"
            for name in ("middle", "leaf"):
                assert (await rt.finished(ids[name])).outcome == "interrupted"
            info = await rt.hub.journal.info(ids["aside"])
            assert info is not None and info.status == "active", "it goes on"
            run.send("And now?")
            await run.result()
            done = answers(boss.requests[-1])
            assert [d.is_error for d in done] == [False, True]
            assert "interrupted" in done[1].output
            assert heard(boss.requests[-1]) == ["Please.", "And now?"], "and no second answer"


@pytest.mark.spec("T-05")
async def test_the_cascade_reaches_below_a_child_that_has_ended(
    journal: Journal, ports: Ports, eventually: Any
) -> None:
    hang = Recorder(Fault("hang"))
    middle = child(
        Recorder(call("leaf", message="x"), call("finish", result="m")),
        config("leaf", blocking=False), name="middle",
    )  # fmt: skip
    boss = Recorder(call("middle", message="x"), Fault("hang"))
    agents = (parent(boss, config("middle")), middle, child(hang, name="leaf"))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await eventually(lambda: bool(hang.requests) and len(boss.requests) == 2)
        ids = {event.child_agent: event.child_run_id for event in seen.all("agent:child")}
        receipt = await run.terminate("enough")
        assert set(receipt.run_ids) == {run.run_id, ids["leaf"]}
        assert (await rt.finished(ids["leaf"])).outcome == "terminated"
        assert (await rt.finished(ids["middle"])).outcome == "completed"


@pytest.mark.spec("T-05")
async def test_a_terminated_parent_takes_children_of_code_with_it(
    journal: Journal, ports: Ports
) -> None:
    from hubbub import agent

    @agent("boss")
    async def boss(input: str, ctx: Any) -> None:
        ctx.spawn("helper", "x")
        await anyio.sleep_forever()

    work = Recorder(Fault("hang"))
    async with runtime(boss, child(work), journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("boss", "x")
        with anyio.fail_after(60):
            while not work.requests:  # noqa: ASYNC110
                await anyio.sleep(0.1)
        await run.terminate()
        outcome = await rt.finished(seen.first("agent:child").child_run_id)
        assert outcome.outcome == "terminated"


@pytest.mark.spec("R-13", "C-10")
async def test_a_child_of_code_reports_by_its_handle_only(journal: Journal, ports: Ports) -> None:
    results: list[Any] = []

    @tool
    async def use(state: RunState) -> str:
        """Use a child by its handle."""
        run = state.spawn("helper", "x")
        results.append((await run.finished()).output)
        return "used"

    boss = Recorder(call("use"), "Thanks.")
    agents = (parent(boss, use), child(Recorder(call("finish", result="by handle"))))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await run.result()
        await anyio.sleep(10)
        assert results == ["by handle"]
        assert heard(boss.requests[-1]) == ["Please."]
        assert len(seen.all("session:start")) == 2, "nobody is told of it besides"


@pytest.mark.spec("T-09", "H-04")
async def test_what_a_commit_leaves_over_is_told_before_whoever_it_wakes_is_heard_of(
    journal: Journal, ports: Ports
) -> None:
    """Else a process that dies of what is done next has never told of the letter."""
    boss = Recorder(call("helper", message="Count to 3."), "Thanks.")
    agents = (parent(boss, config()), child(Recorder("late", latency=100)))
    async with runtime(*agents, journal=journal, ports=ports) as rt:
        seen = Observer(rt.hub)
        run = await rt.start("main", "Please.")
        await anyio.sleep(5)
        below = seen.first("agent:child").child_run_id
        await rt.hub.send_to_run(below, "never read")
        seen.events.clear()
        await rt.terminate(below)
        assert (await run.result()).output == "Thanks."
        types = [event.type for event in seen.events]
        assert types.index("hub:dead_letter") < types.index(
            "session:taken", types.index("agent:complete")
        )
        assert seen.first("hub:dead_letter").reason == "terminated"
