"""Files that go from run to run: copies under names of the receiver's own (A-01, C-02, SA 7.12)."""

import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from support.agents import Observer

from hubbub import (
    AgentDefinition,
    PromptDefinition,
    Resumable,
    RunState,
    Runtime,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
)
from hubbub.agents.definitions.tools import ToolError, ToolResult, tool
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelReply,
    ModelRequest,
    UserMessage,
)
from hubbub.hub.events import AgentToolComplete, SessionMessage, SessionOpen, SessionResult
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


@tool
async def write(path: str, text: str, state: RunState) -> str:
    await state.files.write(path, text)
    return f"wrote {path}"


@tool
async def read(path: str, state: RunState) -> str:
    return await state.files.read_text(path)


@tool
async def files(state: RunState) -> list[str]:
    return list(state.files.list())


@tool
async def finish(message: str, paths: list[str]) -> str:
    return f"finished with {len(paths)}"


@tool
async def fail(message: str, path: str) -> str:
    return "failed"


@tool
async def fail_to_finish(message: str, paths: list[str]) -> str:
    raise ToolError("not yet")


Script = list[Any]


class Pair:
    """A parent and its child, each with a script; and what each was shown."""

    def __init__(self, parent: Script, child: Script, **config: Any) -> None:
        self.scripts = {"parent": parent, "child": child}
        self.requests: dict[str, list[ModelRequest]] = {"parent": [], "child": []}
        self.config = config
        self.stop: Any = SessionToolBinding("finish", "message", "paths")

    def _model(self, who: str) -> FunctionModel:
        script = ScriptedModel(self.scripts[who])

        async def answer(request: ModelRequest) -> ModelReply:
            self.requests[who].append(request)
            return await script.call(request)

        return FunctionModel(answer)

    @property
    def agents(self) -> list[AgentDefinition]:
        worker = PromptDefinition(
            name="worker", prompt="You work.", model=self._model("child"),
            tools=(write, read, files, finish, fail, fail_to_finish),
        )  # fmt: skip
        critic = PromptDefinition(
            name="critic", prompt="You judge.", model=ScriptedModel(["on"] * 20)
        )
        side = SideConfig(
            prompt=worker, session_stop=self.stop,
            session_fail=SessionToolBinding("fail", "message", "path"),
        )  # fmt: skip
        child = AgentDefinition(
            name="child", type="dual_ai", expose_as_tool=True, max_session_turns=9,
            side_a=side, side_b=SideConfig(prompt=critic), description="It works.",
        )  # fmt: skip
        config = SubagentToolConfig(
            name="child", init_attachments_property="papers", init_agent_name_property="called",
            **self.config,
        )  # fmt: skip
        lead = PromptDefinition(
            name="lead", prompt="You lead.", model=self._model("parent"),
            tools=(write, read, files, config),
        )  # fmt: skip
        return [AgentDefinition(name="parent", side_a=SideConfig(prompt=lead)), child]

    async def play(self, journal: Journal, ports: Ports, *more: str) -> Observer:
        """All of it: until nothing has happened for an hour."""
        async with Runtime(self.agents, store=journal, ports=ports) as runtime:
            observer = Observer(runtime.hub)
            run = await runtime.start("parent", "go")
            await anyio.sleep(3600)
            for text in more:
                await run.send(text)
                await anyio.sleep(3600)
        return observer

    def results(self, who: str) -> list[AnsweredCall]:
        """Every result that one of them was shown, in order."""
        steps = [m for m in self.requests[who][-1].messages if isinstance(m, AssistantMessage)]
        return [each for step in steps for each in step.calls]

    def outputs(self, who: str, name: str) -> list[str]:
        return [each.output for each in self.results(who) if each.name == name]

    def heard(self, who: str) -> list[tuple[str, tuple[str, ...]]]:
        messages = self.requests[who][-1].messages
        return [(m.content, m.notes) for m in messages if isinstance(m, UserMessage)]


def note(*paths: str) -> tuple[str, ...]:
    return ("Attachments:\n" + "\n".join(f"- {path}" for path in paths),)


def delegate(message: str, *papers: str) -> Any:
    return call("child", message=message, papers=list(papers), called="Ann")


def create(message: str, *papers: str) -> Any:
    arguments = {"message": message, "papers": list(papers)}
    return call("subagent_create", agent="child", name="Ann", arguments=arguments)


def tell(message: str, *papers: str) -> Callable[[ModelRequest], Any]:
    """Write to the subagent whose reference the model was shown."""

    def answer(request: ModelRequest) -> Any:
        found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", request.system_notes[0])
        assert found is not None
        return call(
            "subagent_message", reference=found[0], message=message, attachments=list(papers)
        )

    return answer


RESUMABLE = Resumable(receives_messages="side_a")


# ── from parent to child ─────────────────────────────────────────────────────────────────────


@pytest.mark.spec("A-01", "C-02")
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("resumable", [False, RESUMABLE], ids=["once", "resumable"])
async def test_a_child_is_given_copies_behind_its_first_message(
    resumable: Any, blocking: bool, journal: Journal, ports: Ports
) -> None:
    begin = create if resumable else delegate
    pair = Pair(
        [
            reply("", call("write", path="f/in.txt", text="1"), call("write", path="b", text="2"),
                  call("write", path="private", text="3")),
            begin("look at these", "f/in.txt", "b"),
            *["done"] * 3,
        ],
        [
            reply("", call("files"), call("read", path="f/in.txt"), call("read", path="b")),
            call("finish", message="seen", paths=[]),
        ],
        blocking=blocking, resumable=resumable,
    )  # fmt: skip
    observer = await pair.play(journal, ports)
    assert pair.heard("child") == [("look at these", note("f/in.txt", "b"))]
    assert pair.outputs("child", "files") == ['["b","f/in.txt"]']
    assert pair.outputs("child", "read") == ["1", "2"]
    (opening,) = [x for x in observer.all("session:open") if x.parent_run_id]
    assert isinstance(opening, SessionOpen)
    assert [ref.path for ref in opening.files] == ["f/in.txt", "b"], "in the message that opens it"
    assert opening.tags == ("name:Ann",)
    assert opening.name == "Ann"


@pytest.mark.spec("C-02")
async def test_the_arguments_become_message_name_and_files(journal: Journal, ports: Ports) -> None:
    pair = Pair(
        [
            call("write", path="in.txt", text="1"),
            reply("", call("child", task="dig", papers=["in.txt"], called="Ann"),
                  call("child", task="dig deeper", papers=[], called="")),
            "done",
        ],
        [call("finish", message="dug", paths=[])],
        blocking=True, init_user_message_property="task",
    )  # fmt: skip
    observer = await pair.play(journal, ports)
    one, two = [x for x in observer.all("session:open") if x.parent_run_id]
    assert (one.input, one.name, one.tags) == ("dig", "Ann", ("name:Ann",))
    assert (two.input, two.name, two.tags, two.files) == ("dig deeper", "", (), ())
    assert [ref.path for ref in one.files] == ["in.txt"]
    shown = [x.messages[0] for x in pair.requests["child"]]
    assert shown == [
        UserMessage(content="dig", notes=note("in.txt")),
        UserMessage(content="dig deeper"),
    ]
    named = [(x.name, x.child_agent) for x in observer.all("agent:child")]
    assert named == [("Ann", "child"), ("child", "child")]


@pytest.mark.spec("A-01")
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_message_takes_files_along_and_a_clash_overwrites_nothing(
    blocking: bool, journal: Journal, ports: Ports
) -> None:
    pair = Pair(
        [
            call("write", path="in.txt", text="one"),
            create("first", "in.txt"),
            call("write", path="in.txt", text="two"),
            tell("second", "in.txt"),
            *["done"] * 5,
        ],
        [
            call("finish", message="1", paths=[]),
            reply("", call("files"), call("read", path="in.txt"), call("read", path="in-2.txt")),
            call("finish", message="2", paths=[]),
        ],
        blocking=blocking, resumable=RESUMABLE,
    )  # fmt: skip
    await pair.play(journal, ports)
    assert pair.heard("child") == [("first", note("in.txt")), ("second", note("in-2.txt"))]
    assert pair.outputs("child", "files") == ['["in-2.txt","in.txt"]']
    assert pair.outputs("child", "read") == ["one", "two"]


@pytest.mark.spec("A-01", "T-07")
@pytest.mark.parametrize("root", ["/", "/attachments/"])
async def test_files_may_be_named_from_the_root_wherever_a_model_names_them(
    root: str, journal: Journal, ports: Ports
) -> None:
    pair = Pair(
        [
            call("write", path=f"{root}f/in.txt", text="1"),
            create("first", f"{root}f/in.txt"),
            tell("second", f"{root}f/in.txt", "f/in.txt"),
            reply("", call("files"), call("read", path=f"{root}out.txt")),
            create("refused", f"{root}../f/in.txt"),
            "done",
        ],
        [
            reply("", call("read", path=f"{root}f/in.txt"),
                  call("write", path=f"{root}out.txt", text="2")),
            call("finish", message="1", paths=[f"{root}out.txt"]),
            call("fail", message="2", path=f"{root}out.txt"),
        ],
        blocking=True, resumable=RESUMABLE,
    )  # fmt: skip
    await pair.play(journal, ports)
    assert pair.heard("child") == [("first", note("f/in.txt")), ("second", note("f/in-2.txt"))]
    assert pair.outputs("child", "read") == ["1"]
    assert pair.outputs("parent", "files") == ['["f/in.txt","out-2.txt","out.txt"]']
    assert pair.outputs("parent", "read") == ["2"]
    refused = pair.results("parent")[-1]
    assert refused.is_error and f"there is no file '{root}../f/in.txt'" in refused.output


@pytest.mark.spec("A-01", "T-07")
async def test_a_model_may_write_attachments_before_the_name_of_any_file(
    journal: Journal, ports: Ports
) -> None:
    pair = Pair(
        [
            call("write", path="f/in.txt", text="1"),
            create("first", "attachments/f/in.txt"),
            tell("second", "attachments/f/in.txt"),
            reply("", call("read", path="attachments/out.txt")),
            "done",
        ],
        [
            reply("", call("read", path="attachments/f/in.txt"),
                  call("write", path="out.txt", text="2")),
            call("finish", message="1", paths=["attachments/out.txt"]),
            call("fail", message="2", path="attachments/out.txt"),
        ],
        blocking=True, resumable=RESUMABLE,
    )  # fmt: skip
    await pair.play(journal, ports)
    assert pair.heard("child") == [("first", note("f/in.txt")), ("second", note("f/in-2.txt"))]
    assert pair.outputs("child", "read") == ["1"]
    assert pair.outputs("parent", "read") == ["2"]


@pytest.mark.spec("A-01")
async def test_what_is_written_later_does_not_show_on_either_side(
    journal: Journal, ports: Ports
) -> None:
    pair = Pair(
        [
            call("write", path="in.txt", text="before"),
            create("first", "in.txt"),
            call("write", path="in.txt", text="after"),
            tell("second"),
            reply("", call("read", path="in.txt"), call("read", path="out.txt")),
            tell("third"),
            call("read", path="out.txt"),
            *["done"] * 3,
        ],
        [
            call("write", path="out.txt", text="before"),
            call("finish", message="1", paths=["out.txt"]),
            reply("", call("read", path="in.txt"), call("write", path="in.txt", text="changed"),
                  call("write", path="out.txt", text="after")),
            call("finish", message="2", paths=[]),
            call("read", path="out.txt"),
            call("finish", message="3", paths=[]),
        ],
        blocking=True, resumable=RESUMABLE,
    )  # fmt: skip
    await pair.play(journal, ports)
    assert pair.outputs("child", "read") == ["before", "after"]
    assert pair.outputs("parent", "read") == ["after", "before", "before"]


@pytest.mark.spec("A-01")
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("papers", [["ghost"], ["in.txt", "ghost"], ["../in.txt"], ["in.txt", ""]])
@pytest.mark.parametrize("how", ["once", "create", "message"])
async def test_a_missing_file_is_an_error_and_nothing_is_started_or_queued(
    how: str, papers: list[str], blocking: bool, journal: Journal, ports: Ports
) -> None:
    begin = {"once": delegate, "create": create}
    steps: Script = [call("write", path="in.txt", text="1")]
    steps += [create("first"), tell("second", *papers)] if how == "message" else [
        begin[how]("first", *papers)
    ]  # fmt: skip
    pair = Pair(
        [*steps, *["done"] * 4],
        [call("finish", message="1", paths=[]), call("finish", message="never", paths=[])],
        blocking=blocking, resumable=False if how == "once" else RESUMABLE,
    )  # fmt: skip
    observer = await pair.play(journal, ports)
    refused = pair.results("parent")[-1]
    assert refused.is_error
    missing = papers[-1]
    assert repr(missing) in refused.output and "there is no file" in refused.output
    assert "in.txt'" not in refused.output.replace("'../in.txt'", ""), "only what is missing"
    children = observer.all("agent:child")
    assert len(children) == (1 if how == "message" else 0)
    assert len(observer.all("session:open")) == 1 + len(children)
    assert not [x for x in observer.all("session:message") if x.source]
    assert not observer.all("agent:message")
    if how == "message":
        assert [text for text, _ in pair.heard("child")] == ["first"]
    info = [each for each in await journal.runs() if each.parent_run_id]
    assert len(info) == len(children)


# ── from child to parent ─────────────────────────────────────────────────────────────────────


def told(observer: Observer, words: str, text: str) -> str:
    reference = observer.first("agent:child").child_run_id
    return f"Subagent (reference: {reference}) has {words}:\n\n{text}"


@pytest.mark.spec("A-01", "C-09")
@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("resumable", [False, RESUMABLE], ids=["once", "resumable"])
async def test_a_result_brings_its_files(
    resumable: Any, blocking: bool, journal: Journal, ports: Ports
) -> None:
    begin = create if resumable else delegate
    pair = Pair(
        [
            call("write", path="out.txt", text="the parent's own"),
            begin("go"),
            *([] if blocking else ["well"]),
            reply("", call("files"), *[
                call("read", path=path) for path in ("out.txt", "out-2.txt", "f/b")
            ]),
            "done",
        ],
        [
            reply("", call("write", path="out.txt", text="the child's"),
                  call("write", path="f/b", text="b"), call("write", path="private", text="p")),
            call("finish", message="here", paths=["out.txt", "f/b"]),
        ],
        blocking=blocking, resumable=resumable,
    )  # fmt: skip
    observer = await pair.play(journal, ports)
    paths = note("out-2.txt", "f/b")
    (result,) = observer.all("session:result")
    assert isinstance(result, SessionResult)
    assert [ref.path for ref in result.files] == ["out.txt", "f/b"]
    name = "subagent_create" if resumable else "child"
    answer = next(each for each in pair.results("parent") if each.name == name)
    if blocking:
        assert (answer.output, answer.is_error, answer.notes) == ("here", False, paths)
        assert pair.heard("parent") == [("go", ())]
    else:
        assert answer.notes == ()
        text = told(observer, "returned the following result", "here")
        assert pair.heard("parent") == [("go", ()), (text, paths)]
    assert pair.outputs("parent", "files") == ['["f/b","out-2.txt","out.txt"]']
    assert pair.outputs("parent", "read") == ["the parent's own", "the child's", "b"]


@pytest.mark.spec("A-01", "C-09")
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_failure_brings_its_file_named_by_a_path(
    blocking: bool, journal: Journal, ports: Ports
) -> None:
    pair = Pair(
        [
            delegate("go"),
            *([] if blocking else ["well"]),
            call("read", path="log.txt"),
            "done",
        ],
        [
            call("write", path="log.txt", text="what happened"),
            call("fail", message="it broke", path="log.txt"),
        ],
        blocking=blocking,
    )  # fmt: skip
    observer = await pair.play(journal, ports)
    answer = pair.results("parent")[0]
    if blocking:
        assert (answer.output, answer.is_error, answer.notes) == (
            "it broke", True, note("log.txt"),
        )  # fmt: skip
    else:
        text = told(observer, "reported a failure", "it broke")
        assert pair.heard("parent")[1:] == [(text, note("log.txt"))]
    assert pair.outputs("parent", "read") == ["what happened"]


@pytest.mark.spec("A-01")
@pytest.mark.parametrize(
    ("bound", "missing"),
    [
        (call("finish", message="early", paths=["ghost"]), "ghost"),
        (call("finish", message="early", paths=["there", "ghost"]), "ghost"),
        (call("finish", message="early", paths=["../there"]), "../there"),
        (call("fail", message="early", path="ghost"), "ghost"),
    ],
)
async def test_a_bound_call_with_a_missing_file_is_an_error_and_the_session_goes_on(
    bound: Any, missing: str, journal: Journal, ports: Ports
) -> None:
    pair = Pair(
        [delegate("go"), "done"],
        [
            call("write", path="there", text="1"),
            bound,
            call("finish", message="in the end", paths=["there"]),
        ],
        blocking=True,
    )
    observer = await pair.play(journal, ports)
    refused = [x for x in observer.all("agent:tool:complete") if x.is_error]
    assert len(refused) == 1
    assert isinstance(refused[0], AgentToolComplete)
    assert not refused[0].ran, "its tool is not run"
    assert repr(missing) in refused[0].output
    assert pair.results("parent")[0].output == "in the end"
    assert pair.results("parent")[0].notes == note("there")
    assert len(observer.all("session:result")) == 1


@pytest.mark.spec("A-01", "S-05")
async def test_a_bound_call_that_fails_gives_nothing_to_the_parent(
    journal: Journal, ports: Ports
) -> None:
    pair = Pair(
        [delegate("go"), call("files"), "done"],
        [
            call("write", path="there", text="1"),
            call("fail_to_finish", message="no", paths=["there"]),
            *["that is all"] * 9,
        ],
        blocking=True,
    )
    pair.stop = SessionToolBinding("fail_to_finish", "message", "paths")
    await pair.play(journal, ports)
    answer = pair.results("parent")[0]
    assert answer.notes == ("Reason: limit",), "it ended otherwise"
    assert pair.outputs("parent", "files") == ["[]"]


@pytest.mark.spec("A-01")
async def test_a_file_written_in_the_same_step_is_there_for_the_bound_call(
    journal: Journal, ports: Ports
) -> None:
    pair = Pair(
        [delegate("go"), "done"],
        [
            reply("", call("write", path="out.txt", text="1"),
                  call("finish", message="here", paths=["out.txt"])),
        ],
        blocking=True,
    )  # fmt: skip
    await pair.play(journal, ports)
    assert pair.results("parent")[0].notes == note("out.txt")


@pytest.mark.spec("A-01")
async def test_several_children_give_files_of_one_name(journal: Journal, ports: Ports) -> None:
    pair = Pair(
        [
            reply("", *[delegate(f"{number}") for number in range(3)]),
            reply("", call("files"), *[
                call("read", path=path) for path in ("out.txt", "out-2.txt", "out-3.txt")
            ]),
            "done",
        ],
        [
            lambda request: call(
                "write", path="out.txt", text=f"of {request.messages[0].content}"
            ),
            call("finish", message="here", paths=["out.txt"]),
        ],
        blocking=True,
    )  # fmt: skip
    await pair.play(journal, ports)
    notes = [each.notes for each in pair.results("parent")[:3]]
    assert notes == [note("out.txt"), note("out-2.txt"), note("out-3.txt")]
    assert pair.outputs("parent", "read") == ["of 0", "of 1", "of 2"]


@pytest.mark.spec("A-01", "T-04")
@pytest.mark.parametrize("blocking", [True, False])
async def test_copies_outlive_the_child_the_process_and_parking(blocking: bool) -> None:
    journal, ports = MemoryJournal(), virtual_ports()
    pair = Pair(
        [
            delegate("go"),
            *([] if blocking else ["well"]),
            "done",
            call("read", path="out.txt"),
            "done again",
        ],
        [
            call("write", path="out.txt", text="kept"),
            call("finish", message="here", paths=["out.txt"]),
        ],
        blocking=blocking,
    )
    observer = await pair.play(journal, ports)
    run_id = observer.first("agent:start").run_id
    async with Runtime(pair.agents, store=journal, ports=ports) as runtime:
        await runtime.hub.send_to_run(run_id, "read it")
        await runtime.result(run_id)
    assert pair.outputs("parent", "read") == ["kept"]


@pytest.mark.spec("A-01", "D-04")
async def test_a_tool_names_files_in_a_second_block(journal: Journal, ports: Ports) -> None:
    @tool
    async def draw(state: RunState) -> ToolResult:
        await state.files.write("picture.png", b"\x89PNG")
        return ToolResult("drawn", attachments=("picture.png",))

    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        return call("draw") if len(requests) == 1 else "done"

    prompt = PromptDefinition(name="painter", prompt="", model=FunctionModel(answer), tools=(draw,))
    agents = [AgentDefinition(name="painter", side_a=SideConfig(prompt=prompt))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await runtime.run("painter", "go")
    last = requests[-1].messages[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.calls[0].output, last.calls[0].notes) == ("drawn", note("picture.png"))


@pytest.mark.spec("A-01", "T-07")
async def test_no_message_between_relatives_names_a_path_of_the_sender(
    journal: Journal, ports: Ports
) -> None:
    """What is copied stands as content by digest in the message, never as a name to look up."""
    pair = Pair(
        [call("write", path="in.txt", text="1"), create("first"), tell("second", "in.txt"), "done"],
        [call("finish", message="1", paths=[]), call("finish", message="2", paths=[])],
        blocking=True, resumable=RESUMABLE,
    )  # fmt: skip
    observer = await pair.play(journal, ports)
    (message,) = [x for x in observer.all("session:message") if x.source]
    assert isinstance(message, SessionMessage)
    assert message.attachments == ()
    assert [(ref.path, ref.size) for ref in message.files] == [("in.txt", 1)]
