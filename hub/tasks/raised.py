"""What users' code has raised: whose affair it is.

Whatever its class, an exception is the affair of what raised it, with three exceptions: what ends
the process, the loop's own cancellation of the task at hand, and ``ChildActivated``, which is no
error.
"""

from hubbub.hub.tasks.cancelling import is_being_cancelled, is_cancellation

__all__ = ["exit_in", "is_contained"]


def exit_in(error: BaseException) -> BaseException | None:
    """What ends the process, if ``error`` is that or a group that holds it."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return error
    if isinstance(error, Exception) or not isinstance(error, BaseExceptionGroup):
        return None
    found = (exit_in(each) for each in error.exceptions)
    return next((each for each in found if each is not None), None)


def is_contained(error: BaseException, *, since: int = 0) -> bool:
    """Whether ``error`` ends no more than the code that raised it, awaited in the task at hand.

    Of code that is not awaited everything is contained but ``exit_in``.  ``since`` is how often the
    task had been cancelled before (``cancellations``).
    """
    if isinstance(error, Exception):
        return True
    if exit_in(error) is not None:
        return False
    if _holds_cancellation(error):
        return not is_being_cancelled(since)
    return True


def _holds_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds_cancellation(each) for each in error.exceptions)
    return is_cancellation(error)
