"""``LeftOut``: what a model refused, and is not shown again."""

from msgspec import Struct

__all__ = ["LeftOut"]


class LeftOut(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Something in a conversation in whose place a model reads from now on that it is left out.

    ``place`` is that of the message, from 0, in the conversation as the side sees it whose request
    was refused; ``call`` the number of the call there whose result it is, if it is one.  With
    ``only_parts`` its words stay.  ``what`` says in words what it is: kind and size.
    """

    place: int
    call: int | None = None
    only_parts: bool = False
    what: str = ""
