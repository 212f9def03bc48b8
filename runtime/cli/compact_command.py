"""``hubbub compact``: has a summary take the place of the older messages of a run of a store."""

from collections.abc import Callable
from typing import Annotated

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import CommandScreen
from hubbub.runtime.inspection.find import find_run
from hubbub.runtime.stores.open import DEFAULT_STORE, open_reader

__all__ = ["compact_command"]


def compact_command(screen: CommandScreen) -> Callable[..., int]:
    from cyclopts import Parameter

    def compact(
        run: Annotated[str, Parameter(name="RUN")], /, *, store: str = DEFAULT_STORE
    ) -> int:
        """Have a run's model summarise its older messages, in what it is shown from then on.

        The record keeps them. The next runtime on the store does it: while one is at work, have
        its program do it (hub.compact, or POST /api/runs/RUN/compact). Of a code agent nothing is
        summarised.

        Parameters
        ----------
        run
            A run's id, its beginning or end (4 characters or more), or a session key.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.inspection.compacting import compact_run
        from hubbub.runtime.stores.sql.in_use import StoreInUse

        with open_reader(store) as opened:
            run_id, place = find_run(opened, run), opened.place
        try:
            screen.loop(lambda: compact_run(store, run_id, Ports()), "asyncio")
        except StoreInUse as error:
            if error.command:
                raise
            raise OperatorError(
                f"{place}: a runtime is at work on this store; have its program do it "
                f"(hub.compact, or POST /api/runs/{run_id}/compact), or stop it and give this "
                "command again"
            ) from None
        screen.write(f"run {run_id}: its older messages are summarised by the next runtime")
        return 0

    return compact
