"""``compact_run``: the wish for a summary, put into the inbox of a run of a store at rest."""

from hubbub.hub.errors import OperatorError
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.store_at_rest import on_store_at_rest

__all__ = ["compact_run"]


async def compact_run(store: str, run_id: str, ports: Ports) -> None:
    """Have a run's older messages summarised when the next runtime is at work on the store; on
    record when this returns.

    Raises ``StoreInUse`` where one is at work now, ``OperatorError`` where the store cannot be
    written, and for a run that has ended.
    """

    async def ask(hub: Hub) -> None:
        receipt = await hub.compact(run_id)
        if receipt.rejected:
            raise OperatorError(f"run {run_id}: {receipt.reason}; nothing was sent")

    await on_store_at_rest(store, ports, ask, command="hubbub compact")
