"""Attachments of a message from outside: files that its run has, or nothing is sent."""

from collections.abc import Collection
from typing import Final

from hubbub.channels.http.wire.host import SOURCE
from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.hub import Hub
from hubbub.hub.store.journal import Addressing
from hubbub.hub.store.reader import StoreReader

__all__ = ["check_attachments"]

MAX_ATTACHMENTS: Final = 100
"""Attachments of one message."""


async def check_attachments(
    hub: Hub,
    names: Collection[str],
    to: str,
    by: Addressing = "run",
    *,
    key: str | None = None,
    opens: bool = False,
) -> None:
    """Raise ``Refusal`` where the run that ``to`` and ``by`` name has no such file.

    One that is to be opened (``opens``) has none.  A run that is not found is left to the sending,
    which says so, and so is what was accepted before under the same ``key``: its file may be gone.
    """
    if not names or not hub.is_served("runtime"):
        return
    if len(names) > MAX_ATTACHMENTS:
        raise Refusal("invalid-value", f"attachments: at most {MAX_ATTACHMENTS:,} files")
    found = await hub.journal.find(to, by)
    run_ids = [run_id for run_id in found if await hub.journal.info(run_id) is not None]
    if len(run_ids) != 1 and not (opens and not run_ids):
        return
    missing = [name for name in names if not run_ids or not await _has(hub, run_ids[0], name)]
    if not missing or (run_ids and key and await _is_known(hub, run_ids[0], key)):
        return
    remedy = "send it first: PUT /api/runs/{run_id}/files/{path}"
    raise Refusal("unknown-file", f"the run has no file {', '.join(map(repr, missing))}; {remedy}")


async def _has(hub: Hub, run_id: str, name: str) -> bool:
    return await hub.ask("runtime", f"file {run_id} {name}") is not None


async def _is_known(hub: Hub, run_id: str, key: str) -> bool:
    """Whether the run has accepted something of ours under a key."""

    def look(reader: StoreReader) -> bool:
        return any((row.source, row.key) == (SOURCE, key) for row in reader.accepted(run_id))

    return await hub.journal.inspect(look)
