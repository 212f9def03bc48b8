"""What a model's provider refuses ends the turn that asked with it, and no later one."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.agents import Observer, model_agent
from support.crash_journal import CrashJournal
from support.profiles import examples, portion

from hubbub import (
    AgentDefinition,
    Compaction,
    FunctionModel,
    Image,
    Message,
    ModelReply,
    ModelRequest,
    Runtime,
    ToolResult,
    tool,
)
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.refusals import blamed_by
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("T-12")]

WINDOW = 2000
"""Characters that the model here can be shown."""

PICTURE = Image(b"\x89PNG\r\n\x1a\n picture", name="a.png")
REFUSED = Fault("request", times=None, status=400, message="it cannot be read")
TOO_LONG = Fault("request", times=None, status=400, message="prompt is too long")


def shown(request: ModelRequest) -> list[str]:
    """Everything that a request says."""
    words: list[str] = []
    for message in request.messages:
        words.append(message.content)
        if isinstance(message, UserMessage):
            words += message.notes
            continue
        for made in message.calls:
            words += [made.output, *made.notes]
    return words


def has_parts(request: ModelRequest) -> bool:
    for message in request.messages:
        given = message.calls if isinstance(message, AssistantMessage) else (message,)
        if any(each.parts for each in given):
            return True
    return False


def picky(request: ModelRequest) -> Any:
    """Refuses pictures, the word poison and what is too long, as a provider would each time."""
    words = shown(request)
    if has_parts(request) or any("poison" in each for each in words):
        return REFUSED
    if sum(map(len, words)) > WINDOW:
        return TOO_LONG
    if request.purpose == "summary":
        return ModelReply(text="In short.")
    last = request.messages[-1]
    if isinstance(last, UserMessage) and last.content.startswith("fetch "):
        return reply("", call("fetch", what=last.content.removeprefix("fetch ")))
    return f"heard {len(request.messages)}"


@tool(idempotent=True)
async def fetch(what: str) -> Any:
    """Fetch what is asked for."""
    return {
        "poison": "a poison",
        "much": "x" * 3 * WINDOW,
        "picture": ["Here.", PICTURE],
        "error": ToolResult("a poison", is_error=True),
    }[what]


def assistant(**prompt: Any) -> AgentDefinition:
    return model_agent(FunctionModel(picky), fetch, **prompt)


BAD: dict[str, Any] = {
    "a word": "This is poison.",
    "a long one": "x" * 3 * WINDOW,
    "a picture": ["Look at this.", PICTURE],
    "a picture alone": Message("", parts=[PICTURE]),
    "a result": "fetch poison",
    "a long result": "fetch much",
    "a picture fetched": "fetch picture",
    "an error": "fetch error",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
@pytest.mark.parametrize("first", [True, False])
async def test_the_next_message_is_answered_without_what_was_refused(
    ports: Ports, bad: Any, first: bool
) -> None:
    async with Runtime([assistant()], store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", bad if first else "Hello.")
        assert (await run.result()).success is not first
        if not first:
            await run.ask(bad)
        refused = observer.all("session:end")[-1]
        assert not refused.success
        assert refused.left_out
        assert "left out from now on" in refused.reason
        assert "the next message goes on" in refused.reason
        for _ in range(2):
            assert (await run.ask("And now?")).success


async def test_words_stay_that_a_refused_picture_came_with() -> None:
    seen: list[ModelRequest] = []

    def noting(request: ModelRequest) -> Any:
        seen.append(request)
        return picky(request)

    agents = [model_agent(FunctionModel(noting))]
    async with Runtime(agents, store="memory", ports=virtual_ports()) as runtime:
        run = await runtime.start("assistant", ["Look at this.", PICTURE])
        await run.result()
        assert (await run.ask("Well?")).success
    first, second = seen[-1].messages
    assert isinstance(first, UserMessage)
    assert (first.content, first.parts) == ("Look at this.", ())
    assert "image a.png" in first.notes[0]
    assert second.content == "Well?"


async def test_short_messages_taken_with_a_long_one_are_kept(ports: Ports) -> None:
    seen: list[ModelRequest] = []

    def noting(request: ModelRequest) -> Any:
        seen.append(request)
        return picky(request)

    agents = [model_agent(FunctionModel(noting, latency=5.0))]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        run = await runtime.start("assistant", "Hello.")
        await run.send("x" * 3 * WINDOW)
        await run.send("My name is Ann.")
        await run.result()
        assert (await run.ask("And now?")).success
    words = shown(seen[-1])
    assert "My name is Ann." in words
    assert not any("xxx" in each for each in words)


async def test_of_many_messages_that_are_refused_together_none_fails_the_next_turn(
    ports: Ports,
) -> None:
    agents = [model_agent(FunctionModel(picky, latency=5.0))]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        run = await runtime.start("assistant", "Hello.")
        for text in ("One.", f"Long {'and long ' * 50}", "A poison.", "Two."):
            await run.send(text)
        outcome = await run.result()
        assert not outcome.success
        assert "a message, 9 characters" in outcome.reason
        assert (await run.ask("And now?")).success


@pytest.mark.parametrize("fault", [
    Fault("auth", times=None, status=401), Fault("request", times=None, status=404),
    Fault("request", times=None), Fault("server", times=None, status=500),
    Fault("rate_limit", times=None, status=429),
])  # fmt: skip
async def test_what_fails_for_another_reason_leaves_everything_in(
    ports: Ports, fault: Fault
) -> None:
    given: list[Any] = ["Hello.", fault]

    def answer(request: ModelRequest) -> Any:
        words = shown(request)
        return given[1] if "Question." in words and "Again." not in words else str(words)

    agents = [model_agent(FunctionModel(answer))]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "Hello.")
        await run.result()
        assert not (await run.ask("Question.")).success
        end = observer.all("session:end")[-1]
        assert (end.refused, end.left_out, end.summarise) == ("", (), False)
        assert "Question." in (await run.ask("Again.")).output


async def test_where_nothing_is_new_the_error_says_what_helps(ports: Ports) -> None:
    is_strict = False

    def answer(request: ModelRequest) -> Any:
        return REFUSED if is_strict else "Yes."

    agents = [model_agent(FunctionModel(answer))]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "Hello.")
        await run.result()
        is_strict = True
        for _ in range(3):
            await run.ask("More.")
        ends = observer.all("session:end")
        assert [len(end.left_out) for end in ends] == [0, 1, 1, 1]


async def test_a_model_that_was_only_down_may_accept_what_another_refused(ports: Ports) -> None:
    first = FunctionModel(
        lambda request: Fault("auth", times=None) if "Help." in shown(request) else "I am first.",
        name="first",
    )
    second = FunctionModel(lambda _: REFUSED, name="second")
    models: Any = [first, second]
    agents = [model_agent(models)]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "Hello.")
        await run.result()
        await run.ask("Help.")
    end = observer.all("session:end")[-1]
    assert (end.refused, end.left_out) == ("request", ())


async def test_a_history_that_has_grown_too_long_is_summarised_and_nothing_is_lost(
    ports: Ports,
) -> None:
    seen: list[ModelRequest] = []

    def noting(request: ModelRequest) -> Any:
        seen.append(request)
        return picky(request)

    # The window that it is given is far greater than the model's.
    agents = [model_agent(FunctionModel(noting), compaction=Compaction(window=10**9))]
    async with Runtime(agents, store="memory", ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "Hello." + "h" * 200)
        await run.result()
        number = 0
        while (await run.ask(f"Question {number} " + "q" * 200)).success:
            number += 1
        end = observer.all("session:end")[-1]
        assert (end.refused, end.summarise, end.left_out) == ("length", True, ())
        assert "older messages are summarised" in end.reason
        assert (await run.ask("And now?")).success
        assert any(f"Question {number} " in each for each in shown(seen[-1]))
        assert len(observer.all("session:compaction")) == 1


async def test_a_run_that_ends_with_its_session_leaves_nothing_out(ports: Ports) -> None:
    async with Runtime([assistant()], store="memory", ports=ports) as runtime:
        run = await runtime.start("assistant", "This is poison.", once=True)
        outcome = await run.result()
    assert not outcome.success
    assert "left out" not in outcome.reason


# ── what is durable ──────────────────────────────────────────────────────────────────────────

GOOD = "How are you?"


async def life(
    journal: MemoryJournal, after: int | None, ports: Ports, run_id: str, said: Sequence[Any]
) -> tuple[list[bool], int]:
    """Say it all, one after another, and how each turn ended; or until the process dies."""
    store: Any = CrashJournal(journal, after)
    outcomes: list[bool] = []
    async with Runtime([assistant()], store=store, ports=ports, grace=0) as runtime:

        async def talk() -> None:
            run = await runtime.start("assistant", run_id=run_id)
            for number, each in enumerate(said):
                outcomes.append((await run.ask(_keyed(each, str(number)))).success)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk)
            if after is not None:
                await store.crashed.wait()
                tasks.cancel_scope.cancel()
    return outcomes, store.commits


def _keyed(said: Any, key: str) -> Message:
    if isinstance(said, list):
        said = Message(said[0], parts=said[1:])
    return structs.replace(said, key=key) if isinstance(said, Message) else Message(said, key=key)


async def test_killed_after_any_commit_only_what_is_refused_fails() -> None:
    said = [GOOD, BAD["a long one"], BAD["a picture fetched"], GOOD, BAD["a picture"], GOOD]
    expected = [each is GOOD for each in said]

    ports, journal = virtual_ports(), MemoryJournal()
    run_id = ports.ids.run_id(ports.clock.now())
    outcomes, commits = await life(journal, None, ports, run_id, said)
    assert outcomes == expected
    whole = await told(journal, run_id)
    for after in portion(range(1, commits)):
        ports, journal = virtual_ports(), MemoryJournal()
        run_id = ports.ids.run_id(ports.clock.now())
        await life(journal, after, ports, run_id, said)
        outcomes, _ = await life(journal, None, ports, run_id, said)
        assert outcomes == expected, after
        assert await told(journal, run_id) == whole, after


async def told(journal: MemoryJournal, run_id: str) -> list[Any]:
    """What a run's lane says of what was left out, and the conversation that follows from it."""
    loaded = await journal.load(run_id)
    assert loaded is not None
    ends = [x for x in loaded.events if isinstance(x, e.SessionEnd)]
    return [[end.left_out for end in ends], fold_all(EMPTY, loaded.events).transcript]


_said = st.sampled_from([GOOD, GOOD, *BAD.values()])


@settings(max_examples=examples(100), deadline=None)
@given(said=st.lists(_said, min_size=1, max_size=8), death=st.none() | st.integers(1, 40))
async def test_in_any_story_a_turn_fails_if_its_own_message_is_refused_and_only_then(
    said: list[Any], death: int | None
) -> None:
    ports, journal = virtual_ports(), MemoryJournal()
    run_id = ports.ids.run_id(ports.clock.now())
    if death is not None:
        with anyio.move_on_after(10_000):  # The story may be over before.
            await life(journal, death, ports, run_id, said)
    outcomes, _ = await life(journal, None, ports, run_id, said)
    assert outcomes == [each is GOOD for each in said]


def test_of_two_sides_the_one_whose_request_was_refused_reads_something_else() -> None:
    words = UserMessage(content="x" * 99)
    given_words = AssistantMessage(text="x" * 99, is_given=True)
    thread = Thread(
        two_sided=True, side="side_b", in_session=True, transcript=(given_words,),
        transcript_b=(words,),
    )  # fmt: skip
    end = e.SessionEnd(outcome="failed", left_out=blamed_by(thread.transcript_b, "request"))
    after = fold(thread, end)
    assert after.transcript == (given_words,)
    assert "Left out here: a message, 99 characters" in after.transcript_b[0].content
