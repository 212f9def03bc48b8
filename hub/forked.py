"""How a process ends that code of the user's has forked off where the parent's work goes on."""

import sys
from collections.abc import Callable
from contextlib import suppress
from os import _exit, getpid
from typing import TypeVar

from hubbub.hub.logs import log

__all__ = ["end_forked", "ending_forks"]

T = TypeVar("T")


def ending_forks(fn: Callable[[], T]) -> Callable[[], T]:
    """``fn``, in whose forked children the process ends with it: nobody there waits for it."""
    here = getpid()

    def call() -> T:
        try:
            result = fn()
        except BaseException as error:
            if getpid() != here:
                end_forked(error)
            raise
        if getpid() != here:
            end_forked(None)
        return result

    return call


def end_forked(error: BaseException | None) -> None:
    """End this process: by the code of a ``SystemExit``, by 1 for another error, else by 0.

    Nothing of the parent's is left properly: not its loop, which the child does not run, nor its
    threads, which it does not have.
    """
    code = error.code if isinstance(error, SystemExit) else error
    if not (code is None or isinstance(code, int)):
        log.error("process.forked_and_failed", exc_info=error)
        code = 1
    for name in ("stdout", "stderr"):  # What the child has printed is not lost.
        with suppress(Exception):
            getattr(sys, name).flush()
    _exit(code or 0)
