"""The files and the contents that events name."""

from collections.abc import Iterator

from hubbub.hub.events.event import ContentPart, Event, FileRef

__all__ = ["files_of", "kept_contents", "parts_of"]


def files_of(event: Event) -> Iterator[FileRef]:
    """Every file that an event names, in what it takes too."""
    yield from getattr(event, "files", ())
    for item in getattr(event, "items", ()):
        yield from getattr(item, "files", ())


def parts_of(event: Event) -> Iterator[ContentPart]:
    """Every part that an event has, in what it opens a run with and in what it takes, too."""
    yield from getattr(event, "parts", ())
    if (message := getattr(event, "message", None)) is not None:
        yield from getattr(message, "parts", ())
    for said in getattr(event, "history", ()):
        yield from said.parts
    for item in getattr(event, "items", ()):
        yield from parts_of(item)


def kept_contents(event: Event) -> Iterator[FileRef | ContentPart]:
    """Whatever of an event has a content that a store keeps, with its digest and its size."""
    yield from files_of(event)
    yield from (part for part in parts_of(event) if part.digest)
