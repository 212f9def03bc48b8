"""``RequestBody``: the fields of a request, each of which is read when it is asked for."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hubbub.channels.http.openai.answers.refusals import Refused
from hubbub.channels.http.wire.bodies import json_problem

__all__ = ["RequestBody"]


class RequestBody(Mapping[str, Any]):
    """A JSON object, of which nothing is made but of the fields that are read.

    Clients send what nobody here hears, of any length; millions of small values in it would hold
    the loop.  Raises ``Refused`` for what is no JSON object, and reading a field does so for one
    that is no text.
    """

    __slots__ = ("_found", "_sent", "digest")

    def __init__(self, content: bytes) -> None:
        self.digest = hashlib.sha256(content).hexdigest()
        """Of the whole body, to tell whether the same is sent again."""
        try:
            self._sent = _fields.decode(content)
        except msgspec.ValidationError:
            raise Refused(400, "The body of the request must be a JSON object.") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise _unreadable(error, content) from None
        self._found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            sent = self._sent[name]
            try:
                self._found[name] = msgspec.json.decode(sent)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                raise _unreadable(error, bytes(sent)) from None
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sent)

    def __len__(self) -> int:
        return len(self._sent)


def _unreadable(error: Exception, content: bytes) -> Refused:
    problem = json_problem(error, content)
    return Refused(400, f"We could not parse the JSON body of your request ({problem}).")


_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
