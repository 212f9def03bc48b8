"""``CopiedWhole``: exceptions that leave their process, or are copied, as they are.

Python makes a pickled exception again by calling its class with its ``args``: an exception that
takes facts and writes its own sentence has only the sentence there, so that the call fails, or
quotes the sentence in another one.  In a pool of processes that failure is in the thread which
reads the results, and whoever waits for them waits on.
"""

from typing import Any

__all__ = ["CopiedWhole"]


class CopiedWhole(BaseException):
    """Pickled and copied with its class, text, attributes and notes, whatever it was made from."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args), dict(self.__dict__)


def _made_again(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    # Not called: what the class would write is in ``args``, and the rest in the attributes.
    return kind.__new__(kind, *args)
