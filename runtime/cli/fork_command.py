"""``hubbub fork``: a new run of a store that goes on from a record of an old one."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from hubbub.hub.errors import OperatorError
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.runtime.cli.printing import CommandScreen, document
from hubbub.runtime.inspection.find import find_run
from hubbub.runtime.stores.open import DEFAULT_STORE, open_reader

if TYPE_CHECKING:
    from hubbub.runtime.timelines.forking import Forked, ForkWanted

__all__ = ["fork_command"]


def fork_command(screen: CommandScreen) -> Callable[..., int]:
    from cyclopts import Parameter

    def fork(
        run: Annotated[str, Parameter(name="RUN")],
        seq: Annotated[int | None, Parameter(name="SEQ")] = None,
        /,
        *,
        message: str | None = None,
        agent: str = "",
        model: str = "",
        prompt: str = "",
        session_key: str = "",
        new_run_id: str = "",
        json: bool = False,
        store: str = DEFAULT_STORE,
    ) -> int:
        """Make a new run that goes on from a record of an old one, which stays as it is.

        With all runs below it, as of the same moment. The next runtime on the store goes on with
        it: while one is at work, have its program do it (rt.fork).

        Parameters
        ----------
        run
            A root's id, its beginning or end (4 characters or more), or a session key.
        seq
            The number of the record (seq in hubbub tail --json, lane own). Default: the last one;
            of a run that has ended, the last one before its end.
        message
            What it is told first.
        agent
            Who goes on instead, with another prompt, model or tools.
        model
            Another model that it asks: provider:name, or one of the next runtime's models=.
        prompt
            Another text of its instructions.
        session_key
            The conversation that it is from now on.
        new_run_id
            Its id, if it is not to get one.
        json
            Print one JSON object instead: run_id, of_run_id, of_seq, agent, runs, records.
        store
            sqlite:PATH, the folder that a runtime uses, or postgresql://…
        """
        from hubbub.runtime.timelines.forking import ForkWanted

        with open_reader(store) as opened:
            run_id, place = find_run(opened, run), opened.place
        wanted = ForkWanted(
            run_id=run_id, seq=seq, message=message, agent=agent, model=model, prompt=prompt,
            session_key=session_key, new_run_id=new_run_id,
        )  # fmt: skip
        made = _forked(screen, store, place, wanted)
        screen.write(document(made) if json else _line(made))
        return 0

    return fork


def _line(made: "Forked") -> str:
    return (
        f"run {made.run_id} is run {made.of_run_id} after its record {made.of_seq}: "
        f"{made.runs:,} runs, {made.records:,} records; the next runtime goes on with it"
    )


def _forked(screen: CommandScreen, store: str, place: str, wanted: "ForkWanted") -> "Forked":
    from hubbub.runtime.inspection.store_at_rest import on_store_at_rest
    from hubbub.runtime.stores.sql.in_use import StoreInUse
    from hubbub.runtime.timelines.forking import fork_run

    made: list[Forked] = []

    async def act(hub: Hub) -> None:
        made.append(await fork_run(hub, wanted))

    try:
        screen.loop(lambda: on_store_at_rest(store, Ports(), act, command="hubbub fork"), "asyncio")
    except StoreInUse as error:
        if error.command:
            raise
        raise OperatorError(
            f"{place}: a runtime is at work on this store; have its program do it "
            f'(rt.fork("{wanted.run_id}")), or stop it and give this command again'
        ) from None
    return made[0]
