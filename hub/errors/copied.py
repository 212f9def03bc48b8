"""``CopiedWhole``: exceptions that leave their process, or are copied, as they are.

Python makes a pickled exception again by calling its class with its ``args``: an exception that
takes facts and writes its own sentence has only the sentence there, so that the call fails, or
quotes the sentence in another one.  In a pool of processes that failure is in the thread which
reads the results, and whoever waits for them waits on.
"""

from typing import Any, Final

__all__ = ["BoundedError", "CopiedWhole"]

MOST: Final = 20_000
"""Characters of an error's text: far more than anybody reads."""

END: Final = 2_000
"""Of these its last, which say what to do."""


class CopiedWhole(BaseException):
    """Pickled and copied with its class, text, attributes and notes, whatever it was made from."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args), dict(self.__dict__)


class BoundedError(CopiedWhole):
    """Its text is bounded, whatever it quotes."""

    def __init__(self, *args: object) -> None:
        super().__init__(*map(_shortened, args))


def _made_again(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    # Not called: what the class would write is in ``args``, and the rest in the attributes.
    return kind.__new__(kind, *args)


def _shortened(said: object) -> object:
    """A text of at most ``MOST`` characters, cut in its middle; anything else as it is."""
    if not isinstance(said, str) or len(said) <= MOST:
        return said
    begin, end = said[: MOST - END - 50], said[-END:]
    return f"{begin} … ({len(said) - len(begin) - END:,} more) … {end}"
