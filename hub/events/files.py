"""The files that events name."""

from collections.abc import Iterator

from hubbub.hub.events.event import Event, FileRef

__all__ = ["files_of"]


def files_of(event: Event) -> Iterator[FileRef]:
    """Every file that an event names, in what it takes too."""
    yield from getattr(event, "files", ())
    for item in getattr(event, "items", ()):
        yield from getattr(item, "files", ())
