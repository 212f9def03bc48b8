"""``Lines``: what a command prints, as messages of the protocol, within bounds.  ``answer_in``: the
same of a body over HTTP.

a message                      read, also where its texts or numbers are not quite JSON
meant as an answer, but none   an error for the request that it answers, which need not wait
anything else                  skipped, and counted: many servers print what is no message
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from hubbub.hub.near_misses import shown
from hubbub.runtime.mcp.answers import finite, is_flat, with_flat_tools

__all__ = ["MAX_LINE", "Lines", "answer_in", "said_in"]

MAX_LINE: Final = 64 << 20
"""Bytes of one line: the largest document that providers take, in base64, and half as much."""

MAX_NOISE: Final = 10_000
"""Lines that are no messages, one after another, until nothing more is expected of the server."""

MAX_NOISE_BYTES: Final = 16 << 20

_EDGE: Final = 2_000
"""Bytes at either end of a line that is no JSON among which the id of a request is looked for."""

MAX_VALUES: Final = 500_000
"""Values in one line, about: what is read of it takes memory and time by their number."""

MAX_NESTED: Final = 200
"""Lists and objects within one another that are read of a list of tools with more of them."""

_BRACKET: Final = re.compile(
    rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([\[\]{}])', re.DOTALL
)

_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)

_ID: Final = re.compile(rb'"id"\s*:\s*("?)([0-9]{1,15})\1\s*[,}]')


class Lines:
    """Cuts a stream of bytes into lines, and reads each."""

    __slots__ = ("_noise", "_noise_bytes", "_pieces", "_size", "fault", "noise")

    def __init__(self) -> None:
        self.fault = ""
        """Why nothing more is read; empty as long as it is."""
        self.noise = ""
        """The last line that was no message, and how many were none since the last one that was."""
        self._pieces: list[bytes] = []
        self._size = 0
        self._noise = 0
        self._noise_bytes = 0

    def read(self, chunk: bytes) -> Iterator[JSONRPCMessage]:
        """The messages that end in this chunk; none once there is a ``fault``."""
        *ended, rest = chunk.split(b"\n")
        for each in ended:
            if not self._took(each):
                return
            line = b"".join(self._pieces)
            self._pieces, self._size = [], 0
            if (message := _message_of(line)) is not None:
                self._noise = self._noise_bytes = 0
                self.noise = ""
                yield message
            elif not self._skipped(line):
                return
        self._took(rest)

    def _took(self, piece: bytes) -> bool:
        self._size += len(piece)
        if self._size > MAX_LINE:
            self._pieces.clear()
            self.fault = f"it has printed a line of more than {MAX_LINE >> 20} MB"
        elif piece:
            self._pieces.append(piece)
        return not self.fault

    def _skipped(self, line: bytes) -> bool:
        if line.isspace() or not line:
            return True
        self._noise += 1
        self._noise_bytes += len(line)
        text = shown(line[:_EDGE].decode(errors="replace").strip())
        many = "a line that is" if self._noise == 1 else f"{self._noise:,} lines that are"
        self.noise = f"it has printed {many} no message: {text}"
        if self._noise >= MAX_NOISE or self._noise_bytes >= MAX_NOISE_BYTES:
            self.fault = self.noise
        return not self.fault


def answer_in(body: bytes, asked: int | str) -> bytes:
    """What is said at the one place where the answer to a request can be: the answer, whatever id
    it has, or an error for that request."""
    message = _message_of(body.strip())
    if not isinstance(message, JSONRPCResponse | JSONRPCError):
        message = _no_message(body, asked)
    message.id = asked
    return message.model_dump_json(exclude_unset=True).encode()


def said_in(event: bytes, asked: int | str | None) -> bytes:
    """The message of one event of a stream, which may have come for a request: what is none is an
    error for that, or nothing."""
    message = _message_of(event)
    if message is None and asked is not None:
        message = _no_message(event, asked)
    return b"" if message is None else message.model_dump_json(exclude_unset=True).encode()


def _no_message(said: bytes, asked: int | str) -> JSONRPCError:
    text = shown(said[:_EDGE].decode(errors="replace").strip())
    error = ErrorData(code=PARSE_ERROR, message=f"it is no message: {text}")
    return JSONRPCError(jsonrpc="2.0", id=asked, error=error)


def _message_of(line: bytes) -> JSONRPCMessage | None:
    if has_too_many_values(line):  # Reading it would hold up all others.
        return _unreadable(line, f"it holds more than {MAX_VALUES:,} values")
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _mended(line) if line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{") else None


def has_too_many_values(line: bytes) -> bool:
    """Whether a line of JSON holds more values than are read."""
    if _separators(line) <= MAX_VALUES:  # Also of those in texts.
        return False
    return _separators(_TEXT.sub(b"", line)) > MAX_VALUES


def _separators(line: bytes) -> int:
    return line.count(b",") + line.count(b"[") + line.count(b"{")


def _mended(line: bytes) -> JSONRPCMessage | None:
    """The message that a line was meant to be, or an error for the request that it answers."""
    try:
        # This reader takes halves of surrogate pairs.
        given = finite(with_flat_tools(_read(line)))
    except RecursionError:
        return _mended_list(line) or _unreadable(line, "it is no JSON: nested too deeply")
    except ValueError as problem:
        return _unreadable(line, f"it is no JSON: {problem}")
    return _message_in(given)


def _mended_list(line: bytes) -> JSONRPCMessage | None:
    """A list of tools, of which some are nested too deeply to be read; None for anything else."""
    try:
        given = with_flat_tools(_read(_cut(line)))
    except (ValueError, RecursionError):
        return None
    # Where something was cut out and the tool is not left out, it shows.
    return _message_in(finite(given)) if is_flat(given, MAX_NESTED - 1) else None


def _cut(line: bytes) -> bytes:
    """A line of JSON without what is nested deeper than is read."""
    kept: list[bytes] = []
    depth = begin = at = 0
    while (found := _BRACKET.match(line, at)) is not None:
        at = found.end()
        if found[1] in b"[{":
            depth += 1
            if depth == MAX_NESTED + 1:
                kept.append(line[begin : found.start(1)] + b"null")
        else:
            depth -= 1
            if depth == MAX_NESTED:
                begin = at
    if depth <= MAX_NESTED:
        kept.append(line[begin:])
    return b"".join(kept)


def _read(line: bytes) -> Any:
    return json.loads(line.decode("utf-8-sig", "replace").strip())


def _message_in(given: Any) -> JSONRPCMessage | None:
    """The message that an object was meant to be, or an error for the request that it answers."""
    if isinstance(number := given.get("id"), float) and number.is_integer():
        given["id"] = int(number)
    try:
        # By its text, as this refuses what is nested too deeply.
        return jsonrpc_message_adapter.validate_json(json.dumps(given), by_name=False)
    except ValueError:
        return None if "method" in given else _failed(given.get("id"), _problem(given))


def _problem(answer: dict[str, Any]) -> str:
    if answer.get("jsonrpc") != "2.0":
        return f"jsonrpc: expected '2.0', not {shown(answer.get('jsonrpc'))}"
    if "error" in answer:
        return f"error: expected a code and a message, not {shown(answer['error'])}"
    if "result" in answer and isinstance(answer["result"], dict):
        return "its values are nested too deeply"
    if "result" in answer:
        return f"result: expected an object, not {shown(answer['result'])}"
    return "it has neither a result nor an error"


def _unreadable(line: bytes, problem: str) -> JSONRPCMessage | None:
    """An error for the request that a line answers which is not read, where its id can be found."""
    ends = line[:_EDGE], line[-_EDGE:]
    if not any(b'"jsonrpc"' in each for each in ends) or any(b'"method"' in x for x in ends):
        return None
    found = next((match for each in ends if (match := _ID.search(each))), None)
    return None if found is None else _failed(int(found[2]), problem)


def _failed(request: Any, problem: str) -> JSONRPCMessage | None:
    if isinstance(request, bool) or not isinstance(request, int | str):
        return None
    error = ErrorData(code=PARSE_ERROR, message=problem)
    return JSONRPCError(jsonrpc="2.0", id=request, error=error)
