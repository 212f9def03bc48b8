"""``CallOrder``: the calls of one kind that code makes, and their records by earlier executions.

Rules
-----
* Code that is executed again makes its calls again.  A call finds the record of one that was the
  same: equal in its ``identity``, or made with the same ``key``.  Among equal ones the first that
  has not been found yet; so equal calls of several tasks may swap what they find.
* A call that finds none is new, and gets a number that no record has: where tasks run at once, it
  may be the first to come that far.  But where one task makes all calls (``in_order``) they come
  in the same order each time: there a call in the place of another one cannot go on.  The result
  of the recorded one may not be its own, and a new one may do a second time what is done.
* Records of before identities were kept are found by their numbers.
* Those that are ``passed`` over a call does not find, nor does it come in the place of one.

The number of a call is how many were made before it, refused ones included, plus one; unless that
is the number of a record.
"""

import hashlib
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.texts import check_label
from hubbub.hub.values import encode_hook, encode_value

__all__ = ["CallOrder", "CallPlace", "RecordedCall", "identity_of", "keyed"]

_KEY: Final = "key:"
_DIGITS: Final = 16

_encode = msgspec.json.Encoder(enc_hook=encode_hook, order="deterministic").encode


def identity_of(what: str, *said: object) -> str:
    """What a call with these values has in common with the same call of another execution.

    The order of a dict's keys and a set's members is of no account.  Raises ``BadValue``, which
    names ``what``, for values that cannot be encoded.
    """
    encoded = bytes(encode_value(what, said, encode=_encode))
    return hashlib.sha256(encoded).hexdigest()[:_DIGITS]


def keyed(key: str) -> str:
    """The identity of a call with a ``key``; raises ``BadValue`` for what is none."""
    check_label("key", key)
    if not key:
        raise BadValue("key", "expected a text that no other call of this kind has")
    return _KEY + key


class RecordedCall(Struct, frozen=True, gc=False):
    """What is on record of a call."""

    number: int
    identity: str = ""
    in_order: bool = False


class CallPlace(Struct, frozen=True, gc=False):
    """Which call it is."""

    number: int
    is_new: bool = True
    is_other: bool = False
    """Whether the record of that number is of another call, so that this one cannot go on."""


class CallOrder:
    """What one execution calls, in its order."""

    __slots__ = ("_by_identity", "_count", "_keys", "_last", "_left", "_taken")

    def __init__(
        self, recorded: Iterable[RecordedCall] = (), withdrawn: Iterable[int] = ()
    ) -> None:
        """``withdrawn`` are the numbers of calls that were given up and are found by none."""
        self._left = {call.number: call for call in recorded}
        self._by_identity: dict[str, deque[int]] = {}
        for call in self._left.values():
            if call.identity:
                self._by_identity.setdefault(call.identity, deque()).append(call.number)
        self._taken = {*self._left, *withdrawn}
        """Every number that a record or a call of this execution has."""
        self._last = max(self._taken, default=0)
        self._count = 0
        self._keys: set[str] = set()

    def place(
        self, identity: str, *, in_order: bool = False, passed: Collection[int] = ()
    ) -> CallPlace:
        """Which call comes next; raises ``BadValue`` for a key that a call has had already.

        ``in_order``: all calls so far, this one included, were made by one task.  ``passed`` are
        the numbers of records that it does not find.
        """
        is_keyed = identity.startswith(_KEY)
        if is_keyed:
            if identity in self._keys:
                key = identity.removeprefix(_KEY)
                raise BadValue("key", f"{key!r} was given before; each call needs a key of its own")
            self._keys.add(identity)
        self._count += 1
        here = self._left.get(self._count)
        if here is not None and here.number in passed:
            here = None
        if here is not None and not here.identity:
            return self._found(here.number)
        if same := self._by_identity.get(identity):
            found = next((number for number in same if number not in passed), 0)
            if found:
                same.remove(found)
                return self._found(found)
        if here is not None and here.in_order and in_order and not is_keyed:
            return CallPlace(here.number, is_new=False, is_other=True)
        number = self._count if self._count not in self._taken else self._last + 1
        self._taken.add(number)
        self._last = max(self._last, number)
        return CallPlace(number)

    def give_up(self, identity: str) -> None:
        """A call came to nothing, refused or cancelled: its key may be given again."""
        self._keys.discard(identity)

    @property
    def left(self) -> tuple[int, ...]:
        """The numbers of the records that no call has found so far."""
        return tuple(self._left)

    def _found(self, number: int) -> CallPlace:
        del self._left[number]
        return CallPlace(number, is_new=False)
