"""``HeldContents``: contents of files that are in no event yet, and must not go."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

__all__ = ["HeldContents"]


class HeldContents:
    """By digest, for which trees of runs they are held: from before they are looked for until an
    event of that tree names them, or the tree is gone.

    Changed in the thread of the event loop; any thread may ask whether something is in it.
    """

    def __init__(self) -> None:
        self._roots: dict[str, set[str]] = {}
        self._digests: defaultdict[str, set[str]] = defaultdict(set)
        self._loose: list[str] = []

    def __contains__(self, digest: object) -> bool:
        return digest in self._roots

    def hold(self, root_run_id: str, digests: Iterable[str]) -> None:
        """An event of a tree is to name these."""
        for digest in digests:
            self._roots.setdefault(digest, set()).add(root_run_id)
            self._digests[root_run_id].add(digest)

    def on_record(self, found: Iterable[tuple[str, str]]) -> None:
        """Events name these, by the roots of their trees."""
        for root_run_id, digest in found:
            if digest in self._digests.get(root_run_id, ()):
                self._release(root_run_id, digest)

    def drop(self, root_run_id: str) -> None:
        """A tree is gone; what was held for it is loose."""
        for digest in [*self._digests.get(root_run_id, ())]:
            self._release(root_run_id, digest)
            self._loose.append(digest)

    def take_loose(self) -> Sequence[str]:
        """What has become loose since this was asked last."""
        found, self._loose = self._loose, []
        return found

    def _release(self, root_run_id: str, digest: str) -> None:
        digests, roots = self._digests[root_run_id], self._roots[digest]
        digests.discard(digest)
        if not digests:
            del self._digests[root_run_id]
        roots.discard(root_run_id)
        if not roots:
            del self._roots[digest]
