"""``hubbub runs | show | tail | replay | schedules``: what a store holds.  They change nothing."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.ports import Ports
from hubbub.hub.store.reader import Stored
from hubbub.runtime.cli.printing import Loop, Write, at_least, document, write_all
from hubbub.runtime.inspection.find import find_run
from hubbub.runtime.stores.open import DEFAULT_STORE, open_reader, watch_of

if TYPE_CHECKING:
    from hubbub.hub.store.reader import StoreReader
    from hubbub.runtime.schedules.status import ScheduleStatus
from hubbub.runtime.text import printable_json

__all__ = ["replay_command", "runs_command", "schedules_command", "show_command", "tail_command"]

POLL_SECONDS: Final = 0.25
"""Between two looks at a store that is followed."""


def runs_command(write: Write, notice: Write) -> Callable[..., int]:
    def runs(
        *,
        all: bool = False,
        limit: int = 50,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """List the runs of a store, children under their parents, the newest tree first.

        And what they wait for people to answer, and schedules that have not fired yet. Works
        beside a runtime at work and without one. Exit code 1 if a run is damaged; the others are
        listed all the same.

        Parameters
        ----------
        all
            List runs that have ended, too.
        limit
            How many trees.
        json
            Print one JSON object instead: runs (parents first), more, prompts, schedules.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.cli.text import run_lines, waiting_schedule_lines
        from hubbub.runtime.inspection.views import list_runs

        now = Ports().clock.now()
        with open_reader(store) as opened:
            found = list_runs(opened, ended=all, limit=at_least(1, "--limit", limit))
            schedules = _schedules(opened, now)
        if json:
            write(document({**msgspec.structs.asdict(found), "schedules": schedules}))
        else:
            write_all(write, run_lines(found, now, ended=all))
            write_all(write, waiting_schedule_lines(schedules))
        damaged = [each for each in found.runs if each.damage]
        for run in damaged:
            notice(f"run {run.run_id}: {run.damage}")
        return 1 if damaged else 0

    return runs


def show_command(write: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def show(
        run: Annotated[str, Parameter(name="RUN")],
        /,
        *,
        full: bool = False,
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Show everything about a run: state, family, files, keys, inbox, open prompts, talk.

        Messages in takeover frames are indented below the agent that took over.

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
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.cli.text import report_lines
        from hubbub.runtime.inspection.views import report

        with open_reader(store) as opened:
            found = report(opened, find_run(opened, run), full=full, frames=True)
        if json:
            write(document(found))
        else:
            write_all(write, report_lines(found, Ports().clock.now(), full=full))
        return 0

    return show


def tail_command(write: Write, loop: Loop) -> Callable[..., int]:
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

        Ctrl-C ends it, and so does the removal of the store.

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
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.cli.text import event_line
        from hubbub.runtime.inspection.views import follow_events, last_events

        patterns = Patterns(types or "*")
        count = at_least(0, "--lines", lines)

        def show(stored: Stored) -> None:
            write(_event_object(stored) if json else event_line(stored))

        with open_reader(store) as opened:
            check = watch_of(store)
            run_id = None if run is None else find_run(opened, run)
            with opened.one_moment():
                reached = opened.tip
                last = last_events(opened, count, run_id=run_id, types=patterns)
            for stored in last:
                show(stored)
            if follow:
                clock = Ports().clock
                following = partial(
                    follow_events, opened, reached, show, clock, POLL_SECONDS, run_id=run_id,
                    types=patterns, check=check,
                )  # fmt: skip
                loop(following, "asyncio")
        return 0

    return tail


def replay_command(write: Write) -> Callable[..., int]:
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
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.cli.text import replay_lines
        from hubbub.runtime.inspection.replay import replay as replay_run

        with open_reader(store) as opened, opened.one_moment():
            state = replay_run(opened, find_run(opened, run), until)
        if json:
            write(document(state))
        else:
            write_all(write, replay_lines(state, full=full))
        return 0

    return replay


def schedules_command(write: Write) -> Callable[..., int]:
    def schedules(*, json: bool = False, store: str = DEFAULT_STORE) -> int:
        """List the schedules that a store remembers: when they ran last, and will next.

        Parameters
        ----------
        json
            Print one JSON object instead: schedules (times in µs since 1970).
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.cli.text import schedule_lines

        now = Ports().clock.now()
        with open_reader(store) as opened:
            statuses = _schedules(opened, now)
        if json:
            write(document({"schedules": statuses}))
        else:
            write_all(write, schedule_lines(statuses, now))
        return 0

    return schedules


def _schedules(store: "StoreReader", now: int) -> "tuple[ScheduleStatus, ...]":
    """Every schedule that a store remembers, fired or not."""
    from hubbub.runtime.schedules.status import NOTES, schedule_statuses

    return schedule_statuses(store.notes(NOTES), now)


def _event_object(stored: Stored) -> str:
    from hubbub.hub.events.codec import encode_event

    event = msgspec.Raw(encode_event(stored.event))
    line = msgspec.json.encode({"position": stored.position, "event": event})
    return printable_json(line.decode())
