"""``hubbub export | import``: runs as files, and back into a store."""

from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, assert_never

from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import Write, document, write_all
from hubbub.runtime.inspection.find import find_run
from hubbub.runtime.stores.open import DEFAULT_STORE, folder_of_store, open_reader
from hubbub.runtime.stores.sqlite.output_file import (
    check_output,
    is_standard_output,
    write_output,
)

if TYPE_CHECKING:
    from hubbub.hub.store.reader import StoreReader
    from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.text import printable_json

__all__ = ["export_command", "import_command"]

_REMEDY: Final = "name a file to write: --out FILE"


def export_command(write: Write, notice: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def export(
        run: Annotated[str, Parameter(name="RUN")] = "",
        /,
        *,
        out: Path | None = None,
        no_files: bool = False,
        context: bool = False,
        state: bool = False,
        as_test: bool = False,
        agents: str | None = None,
        folders: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Write a run and everything below it as JSON lines, which hubbub import accepts.

        The export holds what was said and the contents of files, and no values of secrets.

        Parameters
        ----------
        run
            A run's id, or its beginning or end. With --folders it may be left out.
        out
            Write to this file, device or pipe; a file is replaced as a whole. Nothing in the
            store's folder is written. Default: standard output.
        no_files
            Leave out the contents of files.
        context
            Write a conversation as context.jsonl tells it instead: what was said to and by the
            main agent and each agent and skill that took over, in order.
        state
            Write what state.json says of the run instead, with its active_stack.
        as_test
            Write a regression test instead, a file for pytest, and beside it the export as its
            recording: the users' messages are sent again, and each run must do the same (calls,
            answers, children, takeovers, texts, outcomes; not ids, times, wording of prompts).
            No model and no tool is called: they answer as recorded. real_tools=[...]
            in the test names tools to call. Functions of code agents do run, steps included.
            --out names the file. Default: test_AGENT_RUN.py here.
        agents
            With --as-test: MODULE:AGENT, your agents, which are tested; the test finds their
            module from wherever it is run. Default: stand-ins made from the recording.
        folders
            Write the folders of agents instead, as a store in a folder keeps them in agents/:
            of the run and everything below it, or of all. --out names the folder, which is
            missing or empty. Default: agents here.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        what = _what(run, context, state, as_test, folders, agents=agents, no_files=no_files)
        wanted = _Wanted(run, what, out, agents, has_contents=not no_files)
        _export(write, notice, store, wanted)
        return 0

    return export


Exported: TypeAlias = Literal["run", "context", "state"]


class _Wanted(Struct, frozen=True):
    """What is to be exported, and where to."""

    run: str
    what: Exported | Literal["test", "folders"]
    out: Path | None
    agents: str | None
    has_contents: bool


def _export(write: Write, notice: Write, store: str, wanted: _Wanted) -> None:
    out = wanted.out
    with open_reader(store) as opened:
        folder = folder_of_store(store)
        if wanted.what == "folders":
            write(_write_folders(opened, folder, wanted.run, out, notice))
            return
        run_id, contents = find_run(opened, wanted.run), wanted.has_contents
        if wanted.what == "test":
            write(_write_test(opened, folder, run_id, wanted.agents, out, contents=contents))
            return
        lines = _exported(opened, run_id, wanted.what, contents=contents)
        _write_lines(write, out, lines, folder)


def _what(
    run: str, context: bool, state: bool, as_test: bool, folders: bool, *, agents: str | None,
    no_files: bool,
) -> Exported | Literal["test", "folders"]:  # fmt: skip
    """What is asked for.  Raises ``OperatorError`` for two things at once, and for no run."""
    if context + state + as_test + folders > 1:
        raise OperatorError(
            "--context, --state, --as-test, --folders: any two are two exports; give one of them"
        )
    if agents is not None and not as_test:
        raise OperatorError("--agents says whose test it is; give --as-test with it")
    if folders and no_files:
        raise OperatorError("--no-files: agents' folders hold their files; leave one of them out")
    if folders:
        return "folders"
    if not run:
        raise OperatorError("RUN is missing: which run? hubbub runs --all lists them")
    return "context" if context else "state" if state else "test" if as_test else "run"


def _exported(
    opened: "StoreReader", run_id: str, what: Exported, *, contents: bool
) -> Generator[bytes, None, None]:
    """The lines of an export."""
    from hubbub.runtime.inspection.folder_export import export_context, export_state
    from hubbub.runtime.stores.exchange.export import export_run

    match what:
        case "context":
            yield from export_context(opened, run_id)
        case "state":
            yield export_state(opened, run_id)
        case "run":
            yield from export_run(opened, run_id, contents=contents)
        case _:
            assert_never(what)


def _write_lines(
    write: Write, out: Path | None, lines: Generator[bytes, None, None], store: "DataFolder | None"
) -> None:
    with closing(lines):
        if out is None or is_standard_output(out):  # A line about it would be part of it.
            write_all(write, (printable_json(line[:-1].decode()) for line in lines))
        else:
            count = write_output(out, lines, remedy=_REMEDY, store=store)
            write(f"wrote {out}: {count:,} lines")


def import_command(write: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def import_(
        file: Annotated[Path, Parameter(name="FILE")],
        /,
        *,
        replace: bool = False,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Take an export into a store: the same runs with the same ids, all or none of them.

        No runtime may be at work on the store; the next one goes on with the runs.

        Parameters
        ----------
        file
            A file that hubbub export has written.
        replace
            Replace runs that the store has already.
        json
            Print one JSON object instead: run_id, runs, events, contents, replaced.
        store
            sqlite:PATH or postgresql://…; made if there is none.
        """
        from hubbub.runtime.inspection.imports import import_runs
        from hubbub.runtime.stores.exchange.incoming_runs import MAX_LINE_BYTES

        ports = Ports()
        try:
            opened = file.open("rb")
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            raise OperatorError(f"{file}: {problem}; name a file of hubbub export") from error
        with opened:
            # A device, or what is no export, may have no lines at all.
            lines = iter(partial(opened.readline, MAX_LINE_BYTES + 1), b"")
            found = import_runs(store, str(file), lines, replace=replace, ports=ports)
        if json:
            write(document(found))
        else:
            counts = f"{found.runs:,} runs, {found.events:,} events, {found.contents:,} contents"
            write(f"imported run {found.run_id}: {counts} of files")
        return 0

    return import_


def _write_folders(
    store: "StoreReader", folder: "DataFolder | None", run: str, out: Path | None, notice: Write
) -> str:
    """Write agents' folders; returns the line to print."""
    from hubbub.runtime.copies.agent_folders import write_agent_folders
    from hubbub.runtime.stores.exchange.export import family_of

    run_ids = None
    if run:
        run_ids = [row.run_id for row in family_of(store, find_run(store, run))]
    out = Path("agents") if out is None else out
    made = write_agent_folders(store, out, run_ids, beside=folder, tell=notice)
    return f"wrote {made.folder}: {made.folders:,} folders of agents"


def _write_test(
    store: "StoreReader",
    folder: "DataFolder | None",
    run_id: str,
    agents: str | None,
    out: Path | None,
    *,
    contents: bool,
) -> str:
    """Write a regression test and its recording; returns the lines to print."""
    from hubbub.runtime.inspection.as_test import recorded_test

    made = recorded_test(store, run_id, agents=agents, out=out, contents=contents)
    with closing(made.lines):
        for path in (made.path, made.recording):
            check_output(path, remedy=_REMEDY, store=folder)
            if path.exists():  # Somebody may have changed it, or it may be another file.
                raise OperatorError(f"{path} is there already; give another --out, or remove it")
        count = write_output(made.recording, made.lines, remedy=_REMEDY, store=folder)
    write_output(made.path, (made.text.encode(),), remedy=_REMEDY, store=folder)
    return f"wrote {made.path} and {made.recording}: {count:,} lines; run it: pytest {made.path}"
