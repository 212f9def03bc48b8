"""What comes with words: files, which get names of the run's own, and parts for its model."""

from typing import TypeAlias

from msgspec.structs import replace

from hubbub.agents.state.area import (
    attachment_note,
    find_files,
    marked,
    parts_of_files,
    place_files,
    with_files,
)
from hubbub.agents.state.thread import Thread
from hubbub.hub.events import ContentPart, FileRef, SessionResult

__all__ = ["placed_files", "received"]

Parts: TypeAlias = tuple[ContentPart, ...]


def received(
    thread: Thread, files: tuple[FileRef, ...], named: tuple[str, ...], parts: Parts
) -> tuple[Thread, tuple[str, ...], Parts]:
    """The thread with these files, the notes about them, and all parts: files are, too, where
    their names say that a model may read them.  A file that is not there is said to be missing."""
    if files:
        placed = place_files(thread.area, files)
        thread = replace(thread, area=with_files(thread.area, placed))
        named = (*named, *(ref.path for ref in placed))
    if named:
        parts = (*parts, *parts_of_files(find_files(thread.area, named)[0]))
    if parts and not thread.has_parts:
        thread = replace(thread, has_parts=True)
    return thread, attachment_note(marked(thread.area, named)), parts


def placed_files(thread: Thread, item: SessionResult) -> tuple[FileRef, ...]:
    """The files of a result under the names they get here."""
    return place_files(thread.area, item.files) if item.files else ()
