"""``hubbub migrate``: a whole store into another kind of store."""

from collections.abc import Callable
from typing import Annotated

import msgspec

from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import Write, document

__all__ = ["migrate_command"]


def migrate_command(write: Write, notice: Write) -> Callable[..., int]:
    from cyclopts import Parameter

    def migrate(
        source: Annotated[str, Parameter(name="FROM")],
        target: Annotated[str, Parameter(name="TO")],
        /,
        *,
        json: bool = False,
    ) -> int:
        """Copy a whole store into another kind of store: a folder into PostgreSQL, and back.

        Everything comes along: runs, inboxes, keys, notes, schedules, contents of files and VALUES
        OF SECRETS (encrypted in PostgreSQL, with HUBBUB_SECRETS_KEY). Cursors of programs hold in
        the copy, and a runtime goes on with the runs there. Nobody may be at work on either store.
        The source stays as it was. If this is interrupted, do it again.

        Parameters
        ----------
        source
            sqlite:PATH or postgresql://…, the store as it is now.
        target
            The same, where the copy goes: nothing may be there yet.
        json
            Print one JSON object instead: source, target, name, runs, events, keys, notes,
            secrets (how many), contents, folders, seconds.
        """
        from hubbub.runtime.cli.text import migrated_lines
        from hubbub.runtime.copies.migration import migrate_store

        clock = Ports().clock
        began = clock.now()
        made = migrate_store(source, target, tell=notice)
        seconds = max(0, clock.now() - began) / 1_000_000  # The clock can be set back.
        if json:
            write(document({**msgspec.structs.asdict(made), "seconds": seconds}))
        else:
            for line in migrated_lines(made, seconds):
                write(line)
        return 0

    return migrate
