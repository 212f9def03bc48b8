"""``Servers``: the PostgreSQL of some stories, and what can be done to it."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from support.postgres import Server, folder_in_memory
from support.postgres_disk import SmallDisk, mounted_disk

__all__ = ["Servers"]

MEGABYTES: Final = 1024
"""Of the disk that the database is on, where that is to be full."""


class Servers:
    """A primary; a synchronous standby, and disks of their own, where ``faults`` want them."""

    def __init__(self, primary: Server, ends: ExitStack, faults: Sequence[str]) -> None:
        self.primary = primary
        self.disk: SmallDisk | None = None
        """What the primary's database is on."""
        self._ends = ends
        if "disk_full" in faults:
            self.disk = ends.enter_context(mounted_disk(primary, MEGABYTES))
            place = self.disk.space
            primary.query(f"CREATE TABLESPACE small LOCATION '{place}'", database="postgres")
            primary.query("ALTER DATABASE test SET TABLESPACE small", database="postgres")
        if "failover" in faults:
            self._add_standby()

    def fail_over(self, moved: Callable[[int], None]) -> None:
        """The primary dies, and its standby takes its place; ``moved`` is called with its port."""
        self.primary.stop()
        self.primary, self.disk = self._standby, self._standby_disk
        moved(self.primary.port)
        self.primary.promote()
        self._add_standby()

    def _add_standby(self) -> None:
        spaces = {}
        self._standby_disk = None
        if self.disk is not None:
            self._standby_disk = self._ends.enter_context(mounted_disk(self.primary, MEGABYTES))
            spaces[self.disk.space] = self._standby_disk.space
        self._standby = self.primary.standby(self._ends.enter_context(folder_in_memory()), spaces)
        self._ends.callback(self._standby.stop)
        self._standby.start()
        self.primary.wait_for_standby()
