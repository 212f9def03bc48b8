"""``hubbub vacuum``: a store's file becomes as small as what it holds."""

from collections.abc import Callable

import msgspec

from hubbub.hub.errors import OperatorError
from hubbub.runtime.cli.printing import Write, document
from hubbub.runtime.stores.open import DEFAULT_STORE, folder_of_store
from hubbub.runtime.text import printable

__all__ = ["vacuum_command"]


def vacuum_command(write: Write, notice: Write) -> Callable[..., int]:
    def vacuum(*, json: bool = False, store: str = DEFAULT_STORE) -> int:
        """Give room that was freed in a store's file back to the disk; nothing in it changes.

        After hubbub prune, for example: without this the room is kept, and used again. No runtime
        may be at work on the store. It needs free room of its own meanwhile: twice what is given
        back. A file of an older hubbub is rewritten once, which needs about twice what it holds.

        Parameters
        ----------
        json
            Print one JSON object instead: file, before, after (bytes), rewritten.
        store
            sqlite:PATH, the folder that a runtime uses.
        """
        from hubbub.runtime.stores.sqlite.vacuum import vacuum

        folder = folder_of_store(store)
        if folder is None:
            raise OperatorError(
                "PostgreSQL gives freed room back by itself, to its own tables (autovacuum); to "
                "the disk by its VACUUM FULL, while no worker is at work"
            )
        made = vacuum(folder, tell=notice)
        if json:
            write(document(msgspec.structs.asdict(made)))
        else:
            how = ", rewritten" if made.rewritten else ""
            write(f"{printable(made.file)}: {made.before:,} bytes before, {made.after:,} now{how}")
        return 0

    return vacuum
