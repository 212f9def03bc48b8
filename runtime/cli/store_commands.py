"""The commands over a store: ``hubbub runs | show | tail | export | import | replay | …``.

Plain functions for cyclopts.  They print through ``write`` and tell through ``notice``; what goes
wrong is raised, and the command line makes one line of it.
"""

import os
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, assert_never

import msgspec

from hubbub.hub.errors import OperatorError
from hubbub.hub.patterns import Patterns
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import DEFAULT_STORE
from hubbub.runtime.stores.sqlite.private_files import open_private

if TYPE_CHECKING:
    from hubbub.runtime.stores.sqlite.file import StoreFile

__all__ = ["store_commands"]

Write: TypeAlias = Callable[[str], object]
Loop: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, Any]], Literal["asyncio"]], Any]

FAILED: Final = 1

POLL_SECONDS: Final = 0.25
"""Between two looks at a store that is followed."""

MAX_PROBLEMS: Final = 1_000
"""Problems of a store that are told one by one."""


def store_commands(write: Write, notice: Write, loop: Loop) -> Mapping[str, Callable[..., int]]:
    """The commands by name, in the order in which help lists them."""
    return {
        "runs": _runs_command(write),
        "show": _show_command(write),
        "tail": _tail_command(write, loop),
        "replay": _replay_command(write),
        "schedules": _schedules_command(write),
        "export": _export_command(write),
        "import": _import_command(write, loop),
        "backup": _backup_command(write, notice),
        "fsck": _fsck_command(write, notice),
    }


def _runs_command(write: Write) -> Callable[..., int]:
    def runs(
        *,
        all: bool = False,
        limit: int = 50,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """List the runs of a store, children under their parents, the newest tree first.

        Works beside a runtime at work and without one.

        Parameters
        ----------
        all
            List runs that have ended, too.
        limit
            How many trees.
        json
            Print one JSON object instead: runs (parents first), more.
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        from hubbub.runtime.cli.text import run_lines
        from hubbub.runtime.inspection.views import list_runs
        from hubbub.runtime.stores.sqlite.file import open_store_file

        with open_store_file(store) as opened:
            found = list_runs(opened, ended=all, limit=_at_least(1, "--limit", limit))
        if json:
            write(_document(found))
        else:
            _write_all(write, run_lines(found, Ports().clock.now(), ended=all))
        return 0

    return runs


def _show_command(write: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def show(
        run: Annotated[str, Parameter(name="RUN")],
        /,
        *,
        full: bool = False,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Show everything about a run: state, family, files, keys, inbox, conversation.

        What was said in takeover frames stands indented below who took over.

        Values of secrets are never shown.

        Parameters
        ----------
        run
            A run's id, or its beginning or end (4 characters or more).
        full
            The whole conversation, and texts uncut.
        json
            Print one JSON object instead.
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        from hubbub.runtime.cli.text import report_lines
        from hubbub.runtime.inspection.views import report
        from hubbub.runtime.stores.sqlite.file import open_store_file

        with open_store_file(store) as opened:
            found = report(opened, opened.find(run), full=full, frames=True)
        if json:
            write(_document(found))
        else:
            _write_all(write, report_lines(found, Ports().clock.now(), full=full))
        return 0

    return show


def _tail_command(write: Write, loop: Loop) -> Callable[..., int]:
    from cyclopts import Parameter

    def tail(
        *,
        run: Annotated[str | None, Parameter(name="--run")] = None,
        types: list[str] | None = None,
        lines: Annotated[int, Parameter(name=["--lines", "-n"])] = 20,
        follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Print the last events of a store or of a run, and with --follow what comes next.

        Ctrl-C ends it.

        Parameters
        ----------
        run
            A run's id, or its beginning or end.
        types
            Only these: agent:text, or agent:* (several: give it again).
        lines
            How many to begin with.
        follow
            Go on with what is written from now on.
        json
            One JSON object a line: position, event.
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        from hubbub.runtime.cli.text import event_line
        from hubbub.runtime.inspection.views import follow_events, last_events
        from hubbub.runtime.stores.sqlite.file import Stored, open_store_file

        patterns = Patterns(types or "*")
        count = _at_least(0, "--lines", lines)

        def show(stored: Stored) -> None:
            write(_event_object(stored) if json else event_line(stored))

        with open_store_file(store) as opened:
            run_id = None if run is None else opened.find(run)
            with opened.one_moment():
                reached = opened.tip
                last = last_events(opened, count, run_id=run_id, types=patterns)
            for stored in last:
                show(stored)
            if follow:
                clock = Ports().clock
                loop(
                    lambda: follow_events(
                        opened, reached, show, clock, POLL_SECONDS, run_id=run_id, types=patterns
                    ),
                    "asyncio",
                )
        return 0

    return tail


def _replay_command(write: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def replay(
        run: Annotated[str, Parameter(name="RUN")],
        /,
        *,
        until: int | None = None,
        full: bool = False,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Show a run as it was after any of its own records. Runs nothing.

        The state is folded from the run's records, as a runtime does that goes on with it: phase,
        session, turn, step, the conversation as the model sees it, open calls, children, files,
        keys.

        Parameters
        ----------
        run
            A run's id, or its beginning or end.
        until
            The number of the record (seq in hubbub tail --json, lane own). Default: the last.
        full
            Texts uncut.
        json
            Print one JSON object instead.
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        from hubbub.runtime.cli.text import replay_lines
        from hubbub.runtime.inspection.replay import replay as replay_run
        from hubbub.runtime.stores.sqlite.file import open_store_file

        with open_store_file(store) as opened, opened.one_moment():
            state = replay_run(opened, opened.find(run), until)
        if json:
            write(_document(state))
        else:
            _write_all(write, replay_lines(state, full=full))
        return 0

    return replay


def _schedules_command(write: Write) -> Callable[..., int]:
    def schedules(*, json: bool = False, store: str = DEFAULT_STORE) -> int:
        """List the schedules that a store remembers: when they ran last, and will next.

        Parameters
        ----------
        json
            Print one JSON object instead: schedules (times in µs since 1970).
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        from hubbub.runtime.cli.text import schedule_lines
        from hubbub.runtime.schedules.status import NOTES, schedule_statuses
        from hubbub.runtime.stores.sqlite.file import open_store_file
        from hubbub.runtime.stores.sqlite.reader import SqliteReader

        now = Ports().clock.now()
        with open_store_file(store) as opened:
            statuses = schedule_statuses(SqliteReader(opened.db).notes(NOTES), now)
        if json:
            write(_document({"schedules": statuses}))
        else:
            _write_all(write, schedule_lines(statuses, now))
        return 0

    return schedules


def _export_command(write: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def export(
        run: Annotated[str, Parameter(name="RUN")],
        /,
        *,
        out: Path | None = None,
        no_files: bool = False,
        context: bool = False,
        state: bool = False,
        as_test: bool = False,
        agents: str | None = None,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Write a run and everything below it as JSON lines, which hubbub import takes in.

        The export holds what was said and the contents of files, and no values of secrets.

        Parameters
        ----------
        run
            A run's id, or its beginning or end.
        out
            Write to this file. Default: standard output.
        no_files
            Leave out the contents of files.
        context
            Write a conversation as context.jsonl tells it instead: what was said to and by the
            main agent and each agent and skill that took over, in order.
        state
            Write what state.json says of the run instead, with its active_stack.
        as_test
            Write a regression test instead, a file for pytest, and beside it the export as its
            recording: what users said is said again, and each run must do the same (calls,
            answers, children, takeovers, texts, outcomes; not ids, times, wording of prompts).
            No model is asked and no tool is called: they answer as they did. real_tools=[...]
            in the test names tools to call. Functions of code agents do run, steps included.
            --out names the file. Default: test_AGENT_RUN.py here.
        agents
            With --as-test: MODULE:AGENT, your agents, which are tested; the test finds their
            module from wherever it is run. Default: stand-ins made from the recording.
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        if context + state + as_test > 1:
            raise OperatorError(
                "--context, --state, --as-test: any two are two exports; give one of them"
            )
        if agents is not None and not as_test:
            raise OperatorError("--agents says whose test it is; give --as-test with it")
        from hubbub.runtime.stores.sqlite.file import open_store_file

        with open_store_file(store) as opened:
            run_id = opened.find(run)
            if as_test:
                write(_write_test(opened, run_id, agents, out, contents=not no_files))
                return 0
            what: Exported = "context" if context else "state" if state else "run"
            with closing(_exported(opened, run_id, what, contents=not no_files)) as lines:
                if out is None:
                    _write_all(write, (line[:-1].decode() for line in lines))
                else:
                    write(f"wrote {out}: {_write_file(out, lines):,} lines")
        return 0

    return export


Exported: TypeAlias = Literal["run", "context", "state"]


def _exported(
    opened: "StoreFile", run_id: str, what: Exported, *, contents: bool
) -> Generator[bytes, None, None]:
    """The lines of an export."""
    from hubbub.runtime.inspection.export import export_run
    from hubbub.runtime.inspection.folder_export import export_context, export_state

    match what:
        case "context":
            yield from export_context(opened, run_id)
        case "state":
            yield export_state(opened, run_id)
        case "run":
            yield from export_run(opened, run_id, contents=contents)
        case _:
            assert_never(what)


def _import_command(write: Write, loop: Loop) -> Callable[..., int]:
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
            What hubbub export has written.
        replace
            Put the export in the place of runs that the store has already.
        json
            Print one JSON object instead: run_id, runs, events, contents, replaced.
        store
            sqlite:PATH; made if there is none.
        """
        from hubbub.runtime.inspection.imports import import_runs

        ports = Ports()
        try:
            opened = file.open("rb")
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            raise OperatorError(f"{file}: {problem}; name a file of hubbub export") from error
        with opened:
            found = loop(
                lambda: import_runs(store, str(file), opened, replace=replace, ports=ports),
                "asyncio",
            )
        if json:
            write(_document(found))
        else:
            counts = f"{found.runs:,} runs, {found.events:,} events, {found.contents:,} contents"
            write(f"imported run {found.run_id}: {counts} of files")
        return 0

    return import_


def _backup_command(write: Write, notice: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def backup(
        destination: Annotated[Path, Parameter(name="DEST")],
        /,
        *,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Copy a store into a folder, as of one moment, also while a runtime is at work.

        The copy opens as a store: --store sqlite:DEST. It holds everything, VALUES OF SECRETS
        INCLUDED (an export never does): keep it as safe as the store.

        Parameters
        ----------
        destination
            The folder; missing or empty.
        json
            Print one JSON object instead: folder, runs, events, contents, size, seconds.
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        from hubbub.runtime.cli.text import backup_line
        from hubbub.runtime.inspection.backup import backup_store

        clock = Ports().clock
        began = clock.now()
        made = backup_store(store, destination, tell=notice)
        seconds = (clock.now() - began) / 1_000_000
        if json:
            write(_document({**msgspec.structs.asdict(made), "seconds": seconds}))
        else:
            write(backup_line(made, seconds))
        return 0

    return backup


def _fsck_command(write: Write, notice: Write) -> Callable[..., int]:
    def fsck(*, thorough: bool = False, json: bool = False, store: str = DEFAULT_STORE) -> int:
        """Check a store: every event, inbox, counter and file. Changes nothing.

        Each problem is one line with its place and its remedy. Exit code 1: there is damage.
        Folders of agents that a killed process has left behind the database are told of, too;
        they are none: the next runtime brings them in line.

        Parameters
        ----------
        thorough
            Check the database's indexes, too.
        json
            Print one JSON object instead: ok, runs, events, problems (which of them heals by
            itself), more.
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        from hubbub.runtime.cli.text import short
        from hubbub.runtime.inspection.check import StoreCheck

        check = StoreCheck(store, thorough=thorough, tell=notice)
        told: list[Any] = []
        count = behind = 0
        for count, problem in enumerate(check.problems(), 1):
            behind += problem.heals
            if count <= MAX_PROBLEMS and json:
                told.append({**msgspec.structs.asdict(problem), "text": problem.text})
            elif count <= MAX_PROBLEMS:
                write(short(problem.text, None))
        damage = count - behind
        summary = f"{check.runs:,} runs, {check.events:,} events"
        if behind:
            summary += f"; {behind:,} places in agents/ are behind, and heal by themselves"
        if json:
            write(_document({
                "ok": not damage, "runs": check.runs, "events": check.events, "problems": told,
                "more": count - len(told),
            }))  # fmt: skip
        elif damage:
            notice(f"{damage:,} problems in {summary}")
        else:
            write(f"all is well: {summary}")
        return FAILED if damage else 0

    return fsck


# ── how things are printed ───────────────────────────────────────────────────────────────────


def _write_all(write: Write, lines: Iterator[str]) -> None:
    for line in lines:
        write(line)


def _document(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _event_object(stored: Any) -> str:
    from hubbub.hub.events.codec import encode_event

    event = msgspec.Raw(encode_event(stored.event))
    return msgspec.json.encode({"position": stored.position, "event": event}).decode()


def _write_test(
    store: Any, run_id: str, agents: str | None, out: Path | None, *, contents: bool
) -> str:
    """Write a regression test and its recording; returns what is told of it."""
    from hubbub.runtime.inspection.as_test import recorded_test

    made = recorded_test(store, run_id, agents=agents, out=out, contents=contents)
    if made.path.exists():  # Somebody may have changed it.
        raise OperatorError(f"{made.path} is there already; give another --out, or remove it")
    with closing(made.lines):
        count = _write_file(made.recording, made.lines)
    _write_file(made.path, iter((made.text.encode(),)))
    return f"wrote {made.path} and {made.recording}: {count:,} lines; run it: pytest {made.path}"


def _write_file(path: Path, lines: Iterator[bytes]) -> int:
    """Write a file that is there whole or not at all; returns how many lines it has."""
    scratch = path.with_name(f"{path.name}.part")
    count = 0
    try:
        with open_private(scratch) as file:
            for line in lines:
                file.write(line)
                count += 1
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise OperatorError(f"{path}: {problem}; name a file to write: --out FILE") from error
    finally:
        scratch.unlink(missing_ok=True)
    return count


def _at_least(least: int, name: str, number: int) -> int:
    if number < least or number > sys.maxsize:
        raise OperatorError(f"{name} {number}: a number of at least {least} is wanted")
    return number
