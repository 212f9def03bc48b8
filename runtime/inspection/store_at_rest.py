"""``on_store_at_rest``: puts something into inboxes of a store on which no runtime is at work.

    the store, opened for writing ──► a hub without a runtime ──► an inbox

A run takes what was put there when the next runtime is at work on the store.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import folder_of_store, open_store, sqlite_store
from hubbub.runtime.stores.sql.in_use import StoreInUse

__all__ = ["on_store_at_rest"]

PATIENCE: Final = 2.0
"""Seconds for which another command may have the store: it may do the same."""

COMMAND_PATIENCE: Final = 5.0
"""The same where it is certain that it is a command, which is done soon."""

POLL_SECONDS: Final = 0.05


async def on_store_at_rest(
    store: str, ports: Ports, act: Callable[[Hub], Awaitable[None]], *, command: str
) -> None:
    """Have ``act`` do something with a hub of the store; what it has awaited there is durable.

    ``command`` is the command that does it.  Raises ``StoreInUse`` where a runtime is at work on
    the store, or for long another command, ``OperatorError`` where it cannot
    be written, and what ``act`` raises.
    """
    until = ports.clock.monotonic() + PATIENCE
    while True:
        try:
            await _now(store, ports, act, command)
            return
        except StoreInUse as error:
            more = COMMAND_PATIENCE - PATIENCE if error.command else 0.0
            if ports.clock.monotonic() >= until + more:
                raise
        await ports.clock.sleep(POLL_SECONDS)


async def _now(
    store: str, ports: Ports, act: Callable[[Hub], Awaitable[None]], command: str
) -> None:
    folder = folder_of_store(store)
    # Folders of agents are kept up to date where there are any, and made by no command.
    opened = open_store(store, ports)
    if folder is not None:
        mirror = folder.agents.is_dir()
        opened = sqlite_store(folder.database, ports=ports, mirror=mirror, command=command)
    async with Hub(journal=opened, ports=ports) as hub:
        await act(hub)
