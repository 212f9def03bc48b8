"""``hubbub backup | fsck``: keeping a store, and knowing that it is sound."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import FAILED, Write, document
from hubbub.runtime.stores.open import DEFAULT_STORE

__all__ = ["backup_command", "fsck_command"]

MAX_PROBLEMS: Final = 1_000
"""Problems of a store that are listed one by one."""


def backup_command(write: Write, notice: Write) -> Callable[..., int]:
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
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.cli.text import backup_line
        from hubbub.runtime.inspection.backup import backup_store

        clock = Ports().clock
        began = clock.now()
        made = backup_store(store, destination, tell=notice)
        seconds = max(0, clock.now() - began) / 1_000_000  # The clock can be set back.
        if json:
            write(document({**msgspec.structs.asdict(made), "seconds": seconds}))
        else:
            write(backup_line(made, seconds))
        return 0

    return backup


def fsck_command(write: Write, notice: Write) -> Callable[..., int]:
    def fsck(*, thorough: bool = False, json: bool = False, store: str = DEFAULT_STORE) -> int:
        """Check a store: every event, inbox, counter and file. Changes nothing.

        Each problem is one line with its place and its remedy. Exit code 1: there is damage.
        Folders of agents that a killed process has left out of date are listed, too, but are no
        damage: the next runtime updates them.

        Parameters
        ----------
        thorough
            Check the database's indexes, too.
        json
            Print one JSON object instead: ok, runs, events, problems (which of them heals by
            itself), more.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
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
            summary += f"; {behind:,} places in agents/ are behind, to be updated automatically"
        if json:
            write(document({
                "ok": not damage, "runs": check.runs, "events": check.events, "problems": told,
                "more": count - len(told),
            }))  # fmt: skip
        elif damage:
            notice(f"{damage:,} problems in {summary}")
        else:
            write(f"all is well: {summary}")
        return FAILED if damage else 0

    return fsck
