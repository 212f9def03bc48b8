"""A run's own files and keys, as tools, hooks and code agents use them (T-01, T-04, T-07)."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.agents import model_agent
from support.profiles import examples

from hubbub import AgentDefinition, Hook, Run, RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import UserMessage
from hubbub.agents.state.area import MAX_FILES, MAX_KEYS, MAX_VALUE_BYTES
from hubbub.hub.errors import BadPath, BadValue, CallerError, LimitExceeded, NoSuchFile
from hubbub.hub.events import AgentFile, AgentKey, FileRef
from hubbub.hub.events.files import MAX_FILE_BYTES
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

Work = Callable[[Any], Awaitable[Any]]
WHERE = ("tool", "hook", "code")


class Worker:
    """An agent that does, at each message, the next piece of work where it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.work: list[Work] = []
        self.found: list[Any] = []

    async def _do(self, owner: Any) -> None:
        try:
            self.found.append(await self.work.pop(0)(owner))
        except Exception as error:
            self.found.append(error)

    @property
    def agent(self) -> AgentDefinition:
        if self.where == "code":

            @agent("assistant", on_restart="resume")
            async def code(input: Any, ctx: RunContext) -> None:
                async for message in ctx.messages():
                    if not message.redelivered:
                        await self._do(ctx)

            return code

        @tool
        async def act(state: RunState) -> str:
            await self._do(state)
            return "acted"

        def answer(request: Any) -> Any:
            asked = isinstance(request.messages[-1], UserMessage)
            return call("act") if asked and self.where == "tool" else "done"

        hooks = ("act",) if self.where == "hook" else ()
        return model_agent(FunctionModel(answer), act, hooks=hooks)

    @property
    def hooks(self) -> list[Hook]:
        async def act(state: RunState, value: Any) -> None:
            await self._do(state)

        return [Hook("act", "filter_messages", act)]

    def open(self, journal: Journal, ports: Ports) -> Runtime:
        return Runtime([self.agent], hooks=self.hooks, store=journal, ports=ports)

    async def do(self, run: Run, work: Work) -> Any:
        """What ``work`` returns; raises what it raises."""
        self.work.append(work)
        before = len(self.found)
        await run.send("go")
        while len(self.found) == before:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        if self.where != "code":
            await run.result()
        found = self.found[-1]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture(params=WHERE)
def worker(request: pytest.FixtureRequest) -> Worker:
    return Worker(request.param)


# ── files ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-01", "T-07")
async def test_files_are_written_read_listed_and_deleted(
    worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def work(at: Any) -> None:
        assert at.files.list() == ()
        stat = await at.files.write("notes/ä.txt", "grüße")
        assert (stat.path, stat.size) == ("notes/ä.txt", len("grüße".encode()))
        await at.files.write("picture.png", b"\x89PNG\0\xff")
        await at.files.write("empty", "")
        await at.files.write("notebook", bytearray(b"mutable"))
        assert at.files.list() == ("empty", "notebook", "notes/ä.txt", "picture.png")
        assert at.files.list("notes") == at.files.list("notes/") == ("notes/ä.txt",)
        assert at.files.list("note") == (), "a folder, not a beginning"
        assert await at.files.read("notes/ä.txt") == "grüße".encode()
        assert await at.files.read_text("notes/ä.txt") == "grüße"
        assert await at.files.read("picture.png") == b"\x89PNG\0\xff"
        assert await at.files.read_text("picture.png") == "\ufffdPNG\0\ufffd"
        assert await at.files.read("empty") == b""
        assert at.files.stat("notes/ä.txt") == stat
        again = await at.files.write("notes/ä.txt", b"other")
        assert at.files.stat("notes/ä.txt") == again != stat
        assert await at.files.read("notes/ä.txt") == b"other"
        await at.files.delete("notes/ä.txt")
        assert at.files.list() == ("empty", "notebook", "picture.png")

    async with worker.open(journal, ports) as runtime:
        run = await runtime.start("assistant")
        await worker.do(run, work)
        written = [x for x in await run.read() if isinstance(x, AgentFile)]
    assert [[ref.path for ref in x.files] or list(x.deleted) for x in written] == [
        ["notes/ä.txt"], ["picture.png"], ["empty"], ["notebook"], ["notes/ä.txt"], ["notes/ä.txt"],
    ]  # fmt: skip
    assert all(x.run_id == run.run_id and x.lane == "own" for x in written)


@pytest.mark.spec("T-07")
@pytest.mark.parametrize("path", ["ghost", "notes", "notes/ghost"])
async def test_a_file_that_is_not_there_is_named(
    path: str, worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def work(at: Any) -> None:
        await at.files.write("notes/there", "")
        for look in (at.files.read, at.files.read_text, at.files.delete):
            with pytest.raises(NoSuchFile, match=path):
                await look(path)
        with pytest.raises(NoSuchFile, match=path):
            at.files.stat(path)
        assert at.files.list() == ("notes/there",)

    async with worker.open(journal, ports) as runtime:
        await worker.do(await runtime.start("assistant"), work)


ESCAPES = (
    "..", "../x", "a/../../x", "a/..", "/../x", "/attachments/../x", "/attachments//x", "/C:/x",
    "//host/share", "/\\host", "\\\\host\\share", "C:", "//attachments/x", "/./x", "/a\0b",
    "C:x", "c:/x", "C:\\x", "a\\b", "..\\x", "a\0b", "\0", "", ".", "./a", "a//b", "a/",
    "a\nb", "a\x7fb", "a\ud800b", "a\u202eb", "x" * 256, "/".join(["x"] * 600), None, 3, b"a",
)  # fmt: skip


@pytest.mark.spec("T-07")
async def test_a_name_that_leads_out_is_refused_and_nothing_is_written(
    worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def work(at: Any) -> None:
        for path in ESCAPES:
            for attempt in (
                lambda: at.files.write(path, "x"),  # noqa: B023
                lambda: at.files.read(path),  # noqa: B023
                lambda: at.files.read_text(path),  # noqa: B023
                lambda: at.files.delete(path),  # noqa: B023
            ):
                with pytest.raises(BadPath) as caught:
                    await attempt()
                assert "is no name of a file" in str(caught.value)
                assert caught.value.path == path
            with pytest.raises(BadPath):
                at.files.stat(path)
            if path not in ("", "a/"):  # All files; and a folder is named so, too.
                with pytest.raises(BadPath):
                    at.files.list(path)
        assert at.files.list() == ()

    async with worker.open(journal, ports) as runtime:
        run = await runtime.start("assistant")
        await worker.do(run, work)
        assert not [x for x in await run.read() if isinstance(x, AgentFile)]


@pytest.mark.spec("T-07")
async def test_attachments_of_a_relative_path_means_the_area_where_no_such_folder_has_the_file(
    worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def work(at: Any) -> None:
        await at.files.write("a.txt", "of the area")
        await at.files.write("f/b.txt", "deeper")
        assert await at.files.read_text("attachments/a.txt") == "of the area"
        assert at.files.stat("attachments/f/b.txt") == at.files.stat("f/b.txt")
        assert at.files.list("attachments") == at.files.list() == ("a.txt", "f/b.txt")
        assert at.files.list("attachments/f") == ("f/b.txt",)
        await at.files.write("attachments/a.txt", "of a folder of that name")
        assert await at.files.read_text("attachments/a.txt") == "of a folder of that name"
        assert at.files.list("attachments/") == ("attachments/a.txt",)
        for path in ("attachments/../a.txt", "attachments//a.txt", "attachments/"):
            with pytest.raises(BadPath):
                await at.files.read(path)
        await at.files.delete("attachments/a.txt")
        await at.files.delete("attachments/a.txt")
        assert at.files.list() == ("f/b.txt",)

    async with worker.open(journal, ports) as runtime:
        await worker.do(await runtime.start("assistant"), work)


@pytest.mark.spec("T-07")
@pytest.mark.parametrize("root", ["/", "/attachments/"])
async def test_one_leading_slash_and_attachments_mean_the_root_of_the_area(
    root: str, worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def work(at: Any) -> None:
        assert (await at.files.write(f"{root}f/a.txt", "one")).path == "f/a.txt"
        await at.files.write("f/a.txt", "two")
        await at.files.write("attachments/b", "of a folder of that name")
        assert await at.files.read_text(f"{root}f/a.txt") == "two"
        assert await at.files.read(f"{root}f/a.txt") == b"two"
        assert at.files.stat(f"{root}f/a.txt") == at.files.stat("f/a.txt")
        assert at.files.list() == at.files.list(root) == ("attachments/b", "f/a.txt")
        assert at.files.list(root.rstrip("/")) == at.files.list()
        assert at.files.list(f"{root}f") == at.files.list(f"{root}f/") == ("f/a.txt",)
        assert at.files.list("attachments") == ("attachments/b",)
        with pytest.raises(NoSuchFile):
            await at.files.read("/attachments/b")
        await at.files.delete(f"{root}f/a.txt")
        assert at.files.list("/f") == ()

    async with worker.open(journal, ports) as runtime:
        run = await runtime.start("assistant")
        await worker.do(run, work)
        recorded = [x for x in await run.read() if isinstance(x, AgentFile)]
    assert {ref.path for x in recorded for ref in x.files} == {"f/a.txt", "attachments/b"}
    assert [x.deleted for x in recorded if x.deleted] == [("f/a.txt",)]


names = st.sampled_from(
    [
        "a", "b.txt", "f/a", "f/b.txt", "/a", "/attachments/f/a",
        "../a", "//a", "C:a", "a\0", "f//a", "",
    ]
)  # fmt: skip
contents = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.binary())
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, contents),
        st.tuples(st.sampled_from(["read", "stat", "delete"]), names, st.none()),
        st.tuples(st.just("set"), st.sampled_from("kl"), st.none() | st.integers() | st.text("a")),
        st.tuples(st.sampled_from(["get", "unset"]), st.sampled_from("kl"), st.none()),
    ),
    max_size=12,
)


class PlainArea:
    """What the area must be: two dicts."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.keys: dict[str, Any] = {}

    def do(self, verb: str, name: str, value: Any) -> Any:
        if verb in ("set", "get", "unset"):
            if verb == "set":
                self.keys[name] = value
            if verb == "unset":
                self.keys.pop(name, None)
            return self.keys.get(name, "not there") if verb == "get" else None
        name = {"/a": "a", "/attachments/f/a": "f/a"}.get(name, name)
        if name not in ("a", "b.txt", "f/a", "f/b.txt"):
            return "BadPath"
        if verb == "write":
            self.files[name] = value.encode() if isinstance(value, str) else value
            return len(self.files[name])
        if name not in self.files:
            return "NoSuchFile"
        if verb == "delete":
            del self.files[name]
            return None
        return self.files[name] if verb == "read" else len(self.files[name])


async def real(at: Any, verb: str, name: str, value: Any) -> Any:
    try:
        match verb:
            case "write":
                return (await at.files.write(name, value)).size
            case "read":
                return await at.files.read(name)
            case "stat":
                return at.files.stat(name).size
            case "delete":
                return await at.files.delete(name)
            case "set":
                return await at.kv.set(name, value)
            case "unset":
                return await at.kv.delete(name)
            case _:
                return at.kv.get(name, "not there")
    except (BadPath, NoSuchFile) as error:
        return type(error).__name__


async def snapshot(at: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    files = {path: await at.files.read(path) for path in at.files.list()}
    return files, {key: at.kv.get(key) for key in at.kv.keys()}  # noqa: SIM118


@pytest.mark.spec("T-01", "T-04", "T-07")
@given(first=operations, second=operations, where=st.sampled_from(WHERE), late=st.booleans())
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_the_area_is_a_dict_that_outlives_parking_and_processes(
    first: list[Any], second: list[Any], where: str, late: bool
) -> None:
    worker, plain, ports, inner = Worker(where), PlainArea(), virtual_ports(), MemoryJournal()

    def work(operations: list[Any]) -> Work:
        async def do(at: Any) -> None:
            for verb, name, value in operations:
                assert await real(at, verb, name, value) == plain.do(verb, name, value), verb
            assert await snapshot(at) == (plain.files, plain.keys)

        return do

    async with worker.open(LateJournal(inner) if late else inner, ports) as runtime:
        run = await runtime.start("assistant")
        await worker.do(run, work(first))
        await anyio.sleep(3600)
        assert runtime.hub.statistics().parked == (where != "code")
        await worker.do(run, work(second))
    async with worker.open(LateJournal(inner) if late else inner, ports) as runtime:
        await worker.do(await runtime.handle(run.run_id), work([]))
        await worker.do(await runtime.handle(run.run_id), work(first))


@pytest.mark.spec("T-07")
async def test_a_file_is_on_record_when_its_writing_returns(
    worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def work(at: Any) -> None:
        await at.files.write("a", "1")
        await at.kv.set("k", 1)
        loaded = await journal.load(at.run_id)
        assert loaded is not None
        kinds = [type(x) for x in loaded.events if isinstance(x, AgentFile | AgentKey)]
        assert kinds == [AgentFile, AgentKey]

    async with worker.open(journal, ports) as runtime:
        await worker.do(await runtime.start("assistant"), work)


@pytest.mark.spec("T-07")
async def test_an_area_has_limits_and_says_them(
    worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def work(at: Any) -> None:
        with pytest.raises(LimitExceeded, match="bytes of a file"):
            await at.files.write("big", bytes(MAX_FILE_BYTES + 1))
        with pytest.raises(LimitExceeded, match="bytes of a value"):
            await at.kv.set("big", "x" * MAX_VALUE_BYTES)
        await at.kv.set("big", "x" * (MAX_VALUE_BYTES - 2))  # Two quotes more.
        for content in (None, 3, ["a"], object()):
            with pytest.raises(BadValue, match="expected a str or bytes"):
                await at.files.write("odd", content)
        with pytest.raises(BadValue, match="content"):
            await at.files.write("odd", "half \ud800 a pair")
        for key in ("", "x" * 256, None, 3, "half \ud800 a pair"):
            with pytest.raises(BadValue, match="key"):
                await at.kv.set(key, 1)
        with pytest.raises(BadValue, match="odd"):
            await at.kv.set("odd", object())
        assert at.files.list() == ()
        assert at.kv.keys() == ("big",)

    async with worker.open(journal, ports) as runtime:
        await worker.do(await runtime.start("assistant"), work)


@pytest.mark.spec("T-07")
async def test_a_full_area_takes_changes_but_nothing_more(ports: Ports) -> None:
    """Filled by the journal: ten thousand writes are one event here."""
    worker, journal = Worker("code"), MemoryJournal()

    async def fill(at: Any) -> None:
        stat = await at.files.write("first", "1")
        for number in range(MAX_KEYS):
            await at.kv.set(f"{number}", number)
        refs = [
            FileRef(path=f"f/{number}", digest=stat.digest, size=1)
            for number in range(MAX_FILES - 1)
        ]
        run = runtime.runs.get(at.run_id)
        assert run is not None
        run.record(AgentFile(files=tuple(refs)), None)

    async def work(at: Any) -> None:
        assert len(at.files.list()) == MAX_FILES
        with pytest.raises(LimitExceeded, match="files of a run"):
            await at.files.write("one more", "1")
        with pytest.raises(LimitExceeded, match="keys of a run"):
            await at.kv.set("one more", 1)
        await at.files.write("first", "changed")
        await at.kv.set("0", "changed")
        await at.files.delete("f/0")
        await at.kv.delete("1")
        await at.files.write("one more", "1")
        await at.kv.set("one more", 1)

    async with worker.open(journal, ports) as runtime:
        run = await runtime.start("assistant")
        await worker.do(run, fill)
        await worker.do(run, work)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-01")
async def test_values_are_kept_by_key_and_are_fresh_each_time(
    worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def work(at: Any) -> None:
        assert at.kv.get("k") is None
        assert at.kv.get("k", "none") == "none"
        value = {"list": [1, 2.5, None, True, "日"]}
        await at.kv.set("k", value)
        value["list"].append("changed outside")
        assert at.kv.get("k") == {"list": [1, 2.5, None, True, "日"]}
        at.kv.get("k")["list"].clear()
        assert at.kv.get("k") == {"list": [1, 2.5, None, True, "日"]}
        await at.kv.set("nothing", None)
        assert at.kv.get("nothing", "none") is None, "a value of None is one"
        assert at.kv.keys() == ("k", "nothing")
        await at.kv.delete("k")
        await at.kv.delete("never was")
        assert at.kv.keys() == ("nothing",)

    async with worker.open(journal, ports) as runtime:
        await worker.do(await runtime.start("assistant"), work)


# ── variables of a code agent ────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-01", "D-07")
async def test_variables_are_read_and_set(worker: Worker, journal: Journal, ports: Ports) -> None:
    async def work(at: Any) -> None:
        assert at.env["GIVEN"] == "at the start"
        assert "OWN" not in at.env
        at.set_env("OWN", "set")
        at.set_env("GIVEN", "")
        assert dict(at.env) == {"GIVEN": "", "OWN": "set"}
        with pytest.raises(BadValue):
            at.set_env("OWN", 3)
        with pytest.raises(KeyError, match="GHOST"):
            at.env["GHOST"]

    async def later(at: Any) -> None:
        assert dict(at.env) == {"GIVEN": "", "OWN": "set"}

    async with worker.open(journal, ports) as runtime:
        run = await runtime.start("assistant", env={"GIVEN": "at the start"})
        await worker.do(run, work)
        await anyio.sleep(3600)
        await worker.do(run, later)
    async with worker.open(journal, ports) as runtime:
        await worker.do(await runtime.handle(run.run_id), later)


# ── others ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-07")
async def test_every_run_has_an_area_of_its_own(
    worker: Worker, journal: Journal, ports: Ports
) -> None:
    async def write(at: Any) -> None:
        await at.files.write("mine", at.run_id)
        await at.kv.set("mine", at.run_id)

    async def look(at: Any) -> None:
        assert await at.files.read_text("mine") == at.kv.get("mine") == at.run_id
        assert at.files.list() == at.kv.keys() == ("mine",)

    async with worker.open(journal, ports) as runtime:
        runs = [await runtime.start("assistant") for _ in range(3)]
        for work in (write, look):
            for run in runs:
                await worker.do(run, work)


@pytest.mark.spec("T-07", "S-08")
async def test_parallel_tools_write_at_once_and_nothing_is_lost(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def write(number: int, state: RunState) -> str:
        await anyio.sleep(number % 3)
        await state.files.write(f"{number}", f"{number}" * 3)
        await state.kv.set(f"{number}", number)
        await state.files.write("shared", f"{number}")
        return f"wrote {number}"

    seen: list[Any] = []

    @tool
    async def look(state: RunState) -> str:
        seen.append(await snapshot(state))
        return "looked"

    def answer(request: Any) -> Any:
        steps = len(request.messages) - 1
        if steps == 0:
            return reply("", *[call("write", number=number) for number in range(20)])
        return call("look") if steps == 1 else "done"

    agents = [model_agent(FunctionModel(answer), write, look, parallel_tool_calls=True)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        await run.result()
        writes = [x.files[0] for x in await run.read() if isinstance(x, AgentFile)]
    ((files, keys),) = seen
    last = [ref for ref in writes if ref.path == "shared"][-1]
    assert files.pop("shared") and last.size in (1, 2)
    assert files == {f"{n}": (f"{n}" * 3).encode() for n in range(20)}
    assert keys == {f"{n}": n for n in range(20)}


@pytest.mark.spec("T-07", "S-10", "T-10")
async def test_what_a_tool_writes_after_its_call_is_over_is_refused(
    journal: Journal, ports: Ports
) -> None:
    errors: list[Exception] = []
    kept: list[Any] = []

    async def write(state: Any) -> None:
        for attempt in (
            lambda: state.files.write("late", "x"),
            lambda: state.kv.set("late", 1),
            lambda: state.files.delete("early"),
            lambda: state.kv.delete("early"),
        ):
            try:
                await attempt()
            except CallerError as error:
                errors.append(error)
        try:
            state.set_env("LATE", "x")
        except CallerError as error:
            errors.append(error)

    @tool
    async def act(state: RunState) -> str:
        kept.append(state)
        await state.files.write("early", "x")
        await state.kv.set("early", 1)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
                await write(state)
        return "never"

    def answer(request: Any) -> Any:
        return "done" if len(request.messages) > 1 else call("act")

    async with Runtime([model_agent(FunctionModel(answer), act)], store=journal, ports=ports) as rt:
        run = await rt.start("assistant", "go")
        await anyio.sleep(1)
        await run.interrupt("enough")
        await run.result()
        await anyio.sleep(10)
        assert len(errors) == 5, "while it was being cancelled"
        assert all("this call is over" in str(error) for error in errors)
        run.send("and now?")
        await run.result()
        await write(kept[0])
        assert len(errors) == 10, "and ever after"
        written = [x for x in await run.read() if isinstance(x, AgentFile | AgentKey)]
        assert len(written) == 2
        assert kept[0].files.list() == kept[0].kv.keys() == ("early",), "looking is always allowed"
        assert "LATE" not in kept[0].env


@pytest.mark.spec("T-07", "R-04")
async def test_what_a_code_agent_writes_after_its_end_is_refused(
    journal: Journal, ports: Ports
) -> None:
    kept: list[RunContext] = []

    @agent("code")
    async def code(input: Any, ctx: RunContext) -> None:
        kept.append(ctx)
        await ctx.files.write("early", "x")

    async with Runtime([code], store=journal, ports=ports) as runtime:
        run = await runtime.start("code")
        await run.finished()
        before = await run.read()
        for attempt in (
            lambda: kept[0].files.write("late", "x"),
            lambda: kept[0].kv.set("late", 1),
            lambda: kept[0].files.delete("early"),
        ):
            with pytest.raises(CallerError, match="over"):
                await attempt()
        assert await run.read() == before


# ── a name is that of a file or of a folder ──────────────────────────────────────────────────


@pytest.mark.spec("T-07", "G-08")
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b/c", "a"), ("a/b", "a/b/c")])
async def test_no_name_is_a_file_and_a_folder_whichever_was_first_and_after_a_restart(
    first: str, second: str, where: str, ports: Ports, tmp_path: Path
) -> None:
    def store() -> Any:
        return sqlite_store(tmp_path, ports=ports)

    async def write(owner: Any) -> Any:
        for path in (second, f"/attachments/{second}"):
            with pytest.raises(BadPath, match=r"is a file, not a folder|is a folder, which has"):
                await owner.files.write(path, "other")
        await owner.files.write(first, "again")  # It can be written anew.
        return owner.files.list()

    async def replaced(owner: Any) -> Any:
        await owner.files.delete(first)
        await owner.files.write(second, "other")
        return owner.files.list()

    worker = Worker(where)
    async with worker.open(store(), ports) as rt:
        run = await rt.start("assistant", session_key="web_x_ann")
        await worker.do(run, lambda owner: owner.files.write(first, "one"))
        assert await worker.do(run, write) == (first,)
    async with worker.open(store(), ports) as rt:
        run_id = run.run_id
        worker.work.append(write)
        await rt.hub.send_to_run(run_id, "go")
        await anyio.sleep(10)
        assert worker.found.pop() == (first,)
        with pytest.raises(BadPath):
            await rt.hub.ask("runtime", f"put {run_id} {second}", given=b"x")
        worker.work.append(replaced)
        await rt.hub.send_to_run(run_id, "go")
        await anyio.sleep(10)
        assert worker.found.pop() == (second,)
    assert not [*StoreCheck(f"sqlite:{tmp_path}").problems()]


@pytest.mark.spec("T-07")
async def test_two_calls_that_write_at_once_do_not_make_a_file_of_a_folder(ports: Ports) -> None:
    worker = Worker("tool")

    async def write(owner: Any) -> Any:
        refused: list[str] = []

        async def one(path: str) -> None:
            try:
                await owner.files.write(path, "x" * 10)
            except BadPath as error:
                refused.append(str(error))

        async with anyio.create_task_group() as group:
            for path in ("a", "a/b"):
                group.start_soon(one, path)
        return len(owner.files.list()), len(refused)

    async with worker.open(LateJournal(MemoryJournal()), ports) as rt:
        run = await rt.start("assistant")
        assert await worker.do(run, write) == (1, 1)


@pytest.mark.spec("G-08", "P-12")
async def test_an_area_of_an_older_version_that_has_both_is_sound(
    ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder shows what it can of them; the run has both."""
    worker = Worker("tool")

    async def write(owner: Any) -> Any:
        for path in ("a", "a/b", "c/d", "c"):
            await owner.files.write(path, path)
        return [await owner.files.read_text(path) for path in owner.files.list()]

    async with worker.open(sqlite_store(tmp_path, ports=ports), ports) as rt:
        run = await rt.start("assistant", session_key="web_x_ann")
        with monkeypatch.context() as older:
            older.setattr("hubbub.runtime.activities.files.place_problem", lambda *_: "")
            assert await worker.do(run, write) == ["a", "a/b", "c", "c/d"]
    assert not [*StoreCheck(f"sqlite:{tmp_path}").problems()]

    async def tidy(owner: Any) -> None:
        await owner.files.delete("a")
        await owner.files.delete("c")

    async with worker.open(sqlite_store(tmp_path, ports=ports), ports) as rt:
        worker.work.append(tidy)
        await rt.hub.send_to_run(run.run_id, "go")
        await anyio.sleep(10)
    shown = tmp_path / "agents" / run.run_id / "files"
    assert [(shown / path).read_text() for path in ("a/b", "c/d")] == ["a/b", "c/d"]
    assert not [*StoreCheck(f"sqlite:{tmp_path}").problems()]


@pytest.mark.spec("G-08", "P-12", "T-07")
@pytest.mark.parametrize("where", ["tool", "code"])
async def test_a_name_that_is_too_long_in_bytes_is_refused_and_an_older_one_is_no_damage(
    where: str, ports: Ports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, names = Worker(where), ("😀" * 70, f"{'日' * 86}/a")

    async def refused(owner: Any) -> Any:
        for path in names:
            with pytest.raises(BadPath, match="at most 255 bytes"):
                await owner.files.write(path, path)
        return owner.files.list()

    async def write(owner: Any) -> Any:
        for path in (*names, "a"):
            await owner.files.write(path, path)
        return [await owner.files.read_text(path) for path in names]

    async def tidy(owner: Any) -> Any:
        await owner.files.write(names[0], "again")
        await owner.files.delete(names[1])
        return owner.files.list()

    async with worker.open(sqlite_store(tmp_path, ports=ports), ports) as rt:
        run = await rt.start("assistant", session_key="web_x_ann")
        assert await worker.do(run, refused) == ()
        with pytest.raises(BadPath):
            await rt.hub.ask("runtime", f"put {run.run_id} {names[0]}", given=b"x")
        with monkeypatch.context() as older:
            older.setattr("hubbub.runtime.activities.files.place_problem", lambda *_: "")
            assert await worker.do(run, write) == [*names]
    assert not [*StoreCheck(f"sqlite:{tmp_path}").problems()]
    async with worker.open(sqlite_store(tmp_path, ports=ports), ports) as rt:
        worker.work.append(tidy)
        await rt.hub.send_to_run(run.run_id, "go")
        await anyio.sleep(10)
        assert worker.found.pop() == ("a", names[0])
    assert (tmp_path / "agents" / run.run_id / "files" / "a").read_text() == "a"
    assert not [*StoreCheck(f"sqlite:{tmp_path}").problems()]
