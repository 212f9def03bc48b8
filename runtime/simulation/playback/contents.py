"""``RecordedBlobs``: contents of files and parts while a recording is played."""

from collections.abc import Mapping

__all__ = ["RecordedBlobs"]


class RecordedBlobs:
    """Contents of the recording, where it has any, and those that are made now.

    It does not say how large they are (``size_of``): what names a content that was not recorded
    is accepted now as it was then.
    """

    def __init__(self, recorded: Mapping[str, bytes]) -> None:
        self._contents = dict(recorded)

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        self._contents[digest] = content

    async def get(self, root_run_id: str, digest: str) -> bytes | None:
        return self._contents.get(digest)

    def drop(self, root_run_id: str) -> None:
        """Nothing: it is one tree that is played."""
