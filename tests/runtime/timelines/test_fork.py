"""A fork goes on from any record of an old run, whole, and nothing in the old one changes."""

from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.crash_journal import CrashJournal
from support.stores import agents as code_agents

from hubbub import (
    Agent,
    AgentDefinition,
    FunctionModel,
    Image,
    ModelReply,
    ModelRequest,
    PromptDefinition,
    RunState,
    Runtime,
    SideConfig,
    tool,
)
from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.hub.errors import BadValue, CallerError, UnknownAgent, UnknownRun
from hubbub.hub.events import SessionPrompt
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.store import Store
from hubbub.runtime import Replayed
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.inspection.prompts import open_prompts
from hubbub.runtime.inspection.record_check import RecordCheck
from hubbub.runtime.inspection.replay import NoSuchRecord
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store
from hubbub.runtime.timelines.cut import NoFork

pytestmark = pytest.mark.anyio

PICTURE = b"\x89PNG\r\n\x1a\n a picture"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, ports: Ports) -> Store:
    if request.param == "memory":
        return MemoryJournal()
    return sqlite_store(tmp_path / "store", ports=ports)


@tool
async def note(text: str, state: RunState) -> str:
    """Write something down."""
    await state.files.write("note.txt", text)
    await state.kv.set("last", text)
    return f"noted {text}"


def answer(request: ModelRequest) -> ModelReply:
    last = request.messages[-1]
    if not isinstance(last, UserMessage):
        return reply("It is done.")
    match last.content.split():
        case ["note", what]:
            return reply("Let me see.", call("note", text=what))
        case ["ask", *what]:
            return reply("", call("helper", message=" ".join(what)))
        case _:
            return reply(f"You said {last.content}.")


helper = Agent("helper", "You help.", model=FunctionModel(answer), tools=[note])


def desk(name: str = "desk", words: str = "") -> AgentDefinition:
    def said(request: ModelRequest) -> ModelReply:
        return reply(words) if words else answer(request)

    tools = [note, helper.as_tool()]
    return Agent(name, "You serve.", model=FunctionModel(said), tools=tools)


def lanes(reader: StoreReader) -> list[Any]:
    return [(row.run_id, row.lane, row.seq, row.body) for row in reader.event_rows()]


def problems(reader: StoreReader) -> list[str]:
    """What is wrong with a store; one in memory keeps no contents itself."""
    found = RecordCheck(reader, tell=print).problems()
    return [x.text for x in found if "the content is missing" not in x.what]


async def talk(rt: Runtime) -> str:
    """A conversation with a file, a key and a child."""
    run = await rt.start("desk", "hello", session_key="ann")
    await run.result()
    await run.ask("note milk")
    await run.ask("ask jam")
    return run.run_id


async def test_every_record_can_be_gone_on_from(store: Store, ports: Ports) -> None:
    async with Runtime([desk()], store=store, ports=ports) as rt:
        old = await talk(rt)
        last = (await rt.state_at(old)).seq
        with closing(store.reader()) as reader:
            before = [x for x in lanes(reader) if x[0] == old]
        for seq in range(last + 1):
            was = await rt.state_at(old, seq)
            fork = await rt.fork(old, seq)
            assert fork.run_id != old
            at_cut = await rt.state_at(fork.run_id, seq)
            assert (at_cut.phase, at_cut.step, at_cut.keys) == (was.phase, was.step, was.keys)
            assert at_cut.files == was.files and len(at_cut.children) == len(was.children)
            assert len(at_cut.conversation) == len(was.conversation)
            assert (await fork.ask("bye")).output == "You said bye."
        with closing(store.reader()) as reader:
            assert [x for x in lanes(reader) if x[0] == old] == before
            assert problems(reader) == []


async def test_another_agent_goes_on_with_its_own_words(store: Store, ports: Ports) -> None:
    other = desk("other", "I am another.")
    async with Runtime([desk(), other], store=store, ports=ports) as rt:
        old = await talk(rt)
        for seq in (0, 1, 7, None):
            fork = await rt.fork(old, seq, agent="other", message="who are you?")
            assert (await fork.result()).output == "I am another."
            assert (await rt.state_at(fork.run_id)).agent == "other"
        same = await rt.fork(old, agent=other, session_key="bob", new_run_id="my-fork")
        assert same.run_id == "my-fork"
        found = await rt.find("bob")
        assert found is not None and found.run_id == "my-fork"
        known = await rt.find("ann")
        assert known is not None and known.run_id == old


async def test_a_message_is_the_first_thing_that_it_is_told(store: Store, ports: Ports) -> None:
    async with Runtime([desk()], store=store, ports=ports) as rt:
        old = await talk(rt)
        fork = await rt.fork(old, message=["look", Image(PICTURE, name="a.png")])
        assert (await fork.result()).output == "You said look."
        said = (await rt.state_at(fork.run_id)).conversation[-2]
        assert isinstance(said, UserMessage) and said.parts[0].name == "a.png"
        content = await rt.hub.ports.blobs.get(fork.run_id, said.parts[0].digest)
        assert content == PICTURE
        area = (await rt.state_at(fork.run_id)).files
        assert await rt.hub.ports.blobs.get(fork.run_id, area[0].digest) == b"milk"


async def test_a_run_that_has_ended_goes_on_before_its_end(store: Store, ports: Ports) -> None:
    async with Runtime([desk()], store=store, ports=ports) as rt:
        once = await rt.run("desk", "note tea")
        closed = await rt.start("desk", "hello")
        await closed.result()
        closed.close()
        await closed.finished()
        ended = await rt.start("desk", "hello")
        await ended.result()
        await rt.terminate(ended.run_id)
        await ended.finished()
        for run_id in (once.run_id, closed.run_id, ended.run_id):
            fork = await rt.fork(run_id, message="bye")
            assert (await fork.result()).output == "You said bye."
            last = await rt.state_at(run_id)
            with pytest.raises(NoFork, match=r"at its end after record \d+; fork it .* 0 to \d+"):
                await rt.fork(run_id, last.seq)
            info = await rt.hub.journal.info(fork.run_id)
            assert info is not None and info.inbox == "open"


async def test_a_call_under_way_is_lost_and_what_waits_is_heard(store: Store, ports: Ports) -> None:
    begun = anyio.Event()

    @tool
    async def slow() -> str:
        """Takes a day."""
        begun.set()
        await anyio.sleep(86_400)
        return "done"

    def says(request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return (
                reply("", call("slow")) if last.content == "work" else reply(f"so {last.content}")
            )
        return reply("it is over")

    worker = Agent("worker", "You work.", model=FunctionModel(says), tools=[slow])
    async with Runtime([worker], store=store, ports=ports, grace=0) as rt:
        run = await rt.start("worker", "work")
        await begun.wait()
        await rt.hub.send_to_run(run.run_id, "one")
        await rt.hub.send_to_run(run.run_id, "two")
        fork = await rt.fork(run.run_id, message="three")
        await anyio.sleep(60)
        said = (await rt.state_at(fork.run_id)).conversation
        (lost,) = [x for each in said if isinstance(each, AssistantMessage) for x in each.calls]
        assert "may or may not have had its effect" in lost.output
        heard = [x.content for x in said if isinstance(x, UserMessage)]
        assert heard == ["work", "one", "two", "three"]
        still = await rt.state_at(run.run_id)
        assert still.calls[0].status == "started" and still.restarts == 0


async def test_what_a_person_was_asked_is_not_open_in_the_fork(store: Store, ports: Ports) -> None:
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def says(request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return reply("", call("pay", amount=5))
        return reply(last.calls[0].output)

    clerk = Agent("clerk", "You pay.", model=FunctionModel(says), tools=[pay])
    async with Runtime([clerk], store=store, ports=ports) as rt:
        run = await rt.start("clerk", "pay five", session_key="ann")
        await anyio.sleep(60)
        fork = await rt.fork(run.run_id)
        assert "forked while this was asked" in str((await fork.result()).output)
        with closing(store.reader()) as reader:
            assert {x.run_id for x in open_prompts(reader)} == {run.run_id}
            (open_one,) = open_prompts(reader)
        await rt.hub.approve(open_one.prompt_id)
        assert (await run.result()).output == "paid" and paid == [5]


@pytest.mark.parametrize("approval", [True, lambda amount: amount > 0], ids=["always", "predicate"])
@pytest.mark.parametrize("parallel", [False, True], ids=["in-order", "parallel"])
async def test_what_was_approved_in_a_run_is_not_run_in_a_fork_of_it(
    store: Store, ports: Ports, approval: Any, parallel: bool
) -> None:
    """From each record: those between a step and its prompts, and between an approval and the
    begin of the call, included."""
    paid: list[str] = []

    @tool
    async def look(state: RunState) -> str:
        """Look."""
        return "fine"

    @tool(approval=approval)
    async def pay(amount: int, state: RunState) -> str:
        """Pay."""
        paid.append(state.run_id)
        return "paid"

    def says(request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            wanted = (call("look"), call("pay", amount=5), call("pay", amount=6))
            return reply("I pay.", *wanted)
        return reply(", ".join(x.output for x in last.calls))

    def approve(prompt: SessionPrompt) -> None:
        if prompt.run_id == "old":
            rt.hub.approve(prompt.prompt_id)

    prompt = PromptDefinition(
        name="clerk", prompt="You pay.", model=FunctionModel(says), tools=[look, pay],
        parallel_tool_calls=parallel,
    )  # fmt: skip
    clerk = AgentDefinition(name="clerk", side_a=SideConfig(prompt="clerk"))
    async with Runtime([clerk], prompts=[prompt], store=store, ports=ports) as rt:
        rt.hub.subscribe(SessionPrompt, approve)
        run = await rt.start("clerk", "pay five and six", run_id="old")
        assert (await run.result()).output == "fine, paid, paid"
        last = (await rt.state_at("old")).seq
        forks = [(await rt.fork("old", seq)).run_id for seq in range(last)]
        await anyio.sleep(60)
        assert paid == ["old", "old"]
        with closing(store.reader()) as reader:
            asked = [x for x in open_prompts(reader) if x.run_id in forks[:5]]
        for each in asked:  # Whoever is asked there decides there.
            await rt.hub.approve(each.prompt_id)
        await anyio.sleep(60)
        assert sorted(paid[2:]) == sorted(x.run_id for x in asked)
        assert set(paid[2:]) >= set(forks[:4])
        with closing(store.reader()) as reader:
            assert problems(reader) == []


async def test_a_child_at_work_goes_on_below_the_fork(store: Store, ports: Ports) -> None:
    """At each record of the parent, those between a call and its child's result included."""
    async with Runtime([desk()], store=store, ports=ports) as rt:
        run = await rt.start("desk", "ask note jam")
        await run.result()
        last = (await rt.state_at(run.run_id)).seq
        for seq in range(4, last):
            fork = await rt.fork(run.run_id, seq)
            await anyio.sleep(60)
            state = await rt.state_at(fork.run_id)
            old = await rt.state_at(run.run_id)
            assert state.outcome == "completed" and not state.calls, seq
            assert len(state.conversation) == len(old.conversation), seq
            assert set(state.children).isdisjoint(old.children)
        with closing(store.reader()) as reader:
            assert problems(reader) == []


async def test_an_id_that_somebody_has_chosen_is_no_word(store: Store, ports: Ports) -> None:
    async with Runtime([desk()], store=store, ports=ports) as rt:
        run = await rt.start("desk", "note desk", run_id="desk")
        await run.result()
        fork = await rt.fork("desk", message="ask desk")
        await fork.result()
        state = await rt.state_at(fork.run_id)
        assert state.agent == "desk" and state.keys == {"last": "desk"}
        with closing(store.reader()) as reader:
            assert problems(reader) == []


async def test_values_are_those_of_now_and_what_is_given(store: Store, ports: Ports) -> None:
    @tool
    async def token(state: RunState) -> str:
        """Show."""
        return ",".join(sorted(f"{name}={state.env[name]}" for name in state.env))

    def says(request: ModelRequest) -> ModelReply:
        last = request.messages[-1]
        return reply("", call("token")) if isinstance(last, UserMessage) else reply("ok")

    def output(state: Replayed) -> str:
        last = state.conversation[-2]
        assert isinstance(last, AssistantMessage)
        return last.calls[0].output

    holder = Agent("holder", "You hold.", model=FunctionModel(says), tools=[token])
    async with Runtime([holder], store=store, ports=ports) as rt:
        run = await rt.start("holder", "show", env={"A": "1"})
        await run.result()
        fork = await rt.fork(run.run_id, message="show", env={"B": "2"})
        await fork.result()
        assert output(await rt.state_at(fork.run_id)) == "A=1,B=2"
        with pytest.raises(CallerError, match="is there already"):
            await rt.fork(fork.run_id, new_run_id=run.run_id, env={"A": "other"})
        await rt.start("holder", "show", session_key="ann")
        with pytest.raises(CallerError, match="of the key 'ann', is there already"):
            await rt.fork(run.run_id, new_run_id="mine", session_key="ann", env={"A": "refused"})
        mine = await rt.start("holder", "show", run_id="mine", env={"A": "its own"})
        await mine.result()
        assert output(await rt.state_at("mine")) == "A=its own"
        assert (await run.ask("show")).output == "ok"
        assert output(await rt.state_at(run.run_id)) == "A=1"
        run.close()
        await run.finished()
        late = await rt.fork(run.run_id, message="show")
        await late.result()
        assert output(await rt.state_at(late.run_id)) == ""


async def test_what_cannot_be_forked_is_one_line(store: Store, ports: Ports) -> None:
    async with Runtime([desk(), *code_agents()], store=store, ports=ports, grace=0) as rt:
        old = await talk(rt)
        (child,) = (
            x.run_id for x in await store.runs(live=False, root_run_id=old) if x.parent_run_id
        )
        last = (await rt.state_at(old)).seq
        code = await rt.start("parent", "wait")
        await anyio.sleep(1)
        tip = store.tip
        wrong: Any = "7"
        for problem, words, given in (
            (UnknownRun, "nobody", {"run_id": "nobody"}),
            (NoFork, f"in whose tree it is; fork {old}", {"run_id": child}),
            (NoFork, "is a code agent at work there", {"run_id": code.run_id}),
            (NoSuchRecord, f"from 1 to {last}", {"run_id": old, "seq": last + 1}),
            (NoSuchRecord, f"from 1 to {last}", {"run_id": old, "seq": -1}),
            (BadValue, "seq", {"run_id": old, "seq": wrong}),
            (BadValue, "seq", {"run_id": old, "seq": True}),
            (UnknownAgent, "nobody", {"run_id": old, "agent": "nobody"}),
            (BadValue, "is a code agent", {"run_id": old, "agent": "parent"}),
            (BadValue, "new_run_id", {"run_id": old, "new_run_id": "a/b"}),
            (CallerError, "is there already", {"run_id": old, "new_run_id": old}),
            (CallerError, "key 'ann', is there already", {"run_id": old, "session_key": "ann"}),
            (BadValue, "env", {"run_id": old, "env": {"a b": "c"}}),
            (BadValue, "message", {"run_id": old, "message": b"x"}),
            (BadValue, "session_key", {"run_id": old, "session_key": "x" * 2000}),
        ):  # fmt: skip
            with pytest.raises(problem, match=words) as raised:
                await rt.fork(**given)
            assert "\n" not in str(raised.value)
        assert store.tip == tip


async def test_a_fork_is_there_after_a_restart(tmp_path: Path, ports: Ports) -> None:
    address = f"sqlite:{tmp_path}"
    async with Runtime([desk()], store=address, ports=ports) as rt:
        old = await talk(rt)
        fork = await rt.fork(old, 7, session_key="bob")
        await anyio.sleep(60)
    assert [*StoreCheck(address, thorough=True).problems()] == []
    async with Runtime([desk()], store=address, ports=ports) as rt:
        again = await rt.handle(fork.run_id)
        assert (await again.ask("bye")).output == "You said bye."
    assert [*StoreCheck(address, thorough=True).problems()] == []


@pytest.mark.parametrize("after", range(12))
async def test_a_fork_is_there_whole_or_not_at_all_wherever_the_process_dies(
    after: int, ports: Ports
) -> None:
    """``after`` so many commits of the process that forks, those of its fork at work included."""
    kept = MemoryJournal()
    async with Runtime([desk()], store=kept, ports=ports) as rt:
        old = await talk(rt)
    with closing(kept.reader()) as reader:
        before = {row.run_id for row in reader.rows()}
        was = [x for x in lanes(reader) if x[0] == old]
    dying: Any = CrashJournal(kept, after)
    async with Runtime([desk()], store=dying, ports=ports, grace=0) as rt:
        with anyio.move_on_after(60):
            fork = await rt.fork(old, 9, message="note tea", session_key="bob")
            await fork.result()
    async with Runtime([desk()], store=kept, ports=ports) as rt:
        found = await rt.find("bob")
        with closing(kept.reader()) as reader:
            assert (found is None) == ({row.run_id for row in reader.rows()} == before)
            assert [x for x in lanes(reader) if x[0] == old] == was
            assert problems(reader) == []
        if found is not None:
            await anyio.sleep(60)
            assert (await found.ask("bye")).output == "You said bye."
            said = (await rt.state_at(found.run_id)).conversation
            heard = [x.content for x in said if isinstance(x, UserMessage)]
            assert heard == ["hello", "note milk", "note tea", "bye"]


async def test_two_forks_of_one_key_are_one(store: Store, ports: Ports) -> None:
    async with Runtime([desk()], store=store, ports=ports) as rt:
        old = await talk(rt)
        made: list[str] = []

        async def fork() -> None:
            try:
                made.append((await rt.fork(old, session_key="bob")).run_id)
            except CallerError:
                made.append("")

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(fork)
        found = await rt.find("bob")
        assert found is not None and sorted(made)[:4] == [""] * 4
        assert sorted(made)[4] == found.run_id
        with closing(store.reader()) as reader:
            assert problems(reader) == []
