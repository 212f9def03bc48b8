"""A signal that comes while Python collects garbage raises what it raises."""

import os
import subprocess
import sys

import pytest

COLLECTS = """
import gc, signal
import hubbub.hub.home_loop

class Alarm(BaseException):
    pass

def alarmed(number, frame):
    raise Alarm

signal.signal(signal.SIGALRM, alarmed)
many = [[] for _ in range(1_000_000)]
raised = 0
for _ in range(5):
    try:
        # It comes in the midst of a collection, which takes longer.
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        while signal.getitimer(signal.ITIMER_REAL)[0]:
            gc.collect()
        sum(range(100))
    except Alarm:
        raised += 1
print(raised)
"""


@pytest.mark.spec("G-02")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no such signals")
def test_what_a_signal_raises_is_not_swallowed_by_what_hears_of_collections() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTS], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("5\n", "")
