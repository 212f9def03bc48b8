"""A thread as text, from which the same thread can be made again: what snapshots hold.

    Thread ──encode_thread──► JSON ──decode_thread──► the same Thread

The ``CodeThread`` of a code agent stands in a list: so both are told apart.  The text is JSON, as
the values within are.  What stands at its default is left out, so that it is that very object
again: some of these are told by what they are (``NO_USAGE``, ``NULL``).

``fold_version`` names how a thread is made of events.  Its number is raised by hand when events
come to something else than before, which ``tests/agents/snapshots/test_thread_text.py`` notices by
recorded journals; its digest follows from the shapes of all structs: nobody can forget these.
"""

import hashlib
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.state.thread import Thread

__all__ = ["FOLD", "decode_thread", "encode_thread", "fold_version", "shape_of"]

FOLD: Final = 1
"""Raised when the same events come to another thread than before."""


def encode_thread(thread: Thread | CodeThread) -> bytes:
    """A thread as text.  Raises what ``msgspec`` does for a text that is none."""
    return _ENCODER.encode(thread if isinstance(thread, Thread) else (thread,))


def decode_thread(text: bytes) -> Thread | CodeThread:
    """The thread that a text was made of.  Raises ``msgspec.DecodeError`` for another text."""
    found = _decoder().decode(text)
    return found if isinstance(found, Thread) else found[0]


@cache
def fold_version() -> str:
    """Names what a snapshot holds: another version's cannot be read."""
    shapes = f"{shape_of(Thread)}\n{shape_of(CodeThread)}"
    digest = hashlib.sha256(shapes.encode()).hexdigest()
    return f"{FOLD}-{digest[:16]}"


def shape_of(struct: type[msgspec.Struct]) -> str:
    """The fields, types and defaults of a struct and of all that it is made of, as text."""
    shapes: dict[str, str] = {}

    def words_of(part: Any) -> str:
        if isinstance(part, tuple):
            return f"({', '.join(map(words_of, part))})"
        if not isinstance(part, inspect.Type):
            return repr(bytes(part) if isinstance(part, msgspec.Raw) else part)
        if not isinstance(part, inspect.StructType):
            parts = [words_of(getattr(part, name)) for name in part.__struct_fields__]
            return f"{type(part).__name__}({', '.join(parts)})"
        name = part.cls.__qualname__
        if name not in shapes:
            shapes[name] = ""  # It may hold one of itself.
            fields = [
                f"{x.encode_name}: {words_of(x.type)} = {words_of(x.default)}" for x in part.fields
            ]
            shapes[name] = f"{name}({part.tag!r}; {'; '.join(fields)})"
        return name

    words_of(inspect.type_info(struct))
    return "\n".join(shapes.values())


_ENCODER: Final = msgspec.json.Encoder()


@cache
def _decoder() -> msgspec.json.Decoder[Thread | tuple[CodeThread]]:
    # Made when the first is read: a program that reads none does not wait for it.
    return msgspec.json.Decoder(Thread | tuple[CodeThread])
