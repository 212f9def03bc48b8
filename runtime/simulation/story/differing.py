"""Which fields of two threads differ."""

from collections.abc import Iterator

from msgspec import structs

from hubbub.agents.state.thread import Thread

__all__ = ["differing"]


def differing(one: Thread, two: Thread) -> Iterator[str]:
    """The names of the fields in which they differ."""
    for field in structs.fields(Thread):
        if getattr(one, field.name) != getattr(two, field.name):
            yield field.name
