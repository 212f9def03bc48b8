"""Tasks and threads in which code runs that is not the library's own, and how they end.

Reading order: ``cancelling`` (where the event loops differ), ``waiter`` (what a task waits for),
``raised`` (whose an exception is), ``outermost`` (starts such tasks, and lends a task that is not
ours to such code), ``forked`` (what becomes of them in a forked child), ``stepped``,
``kept_threads``, ``callables`` (what a function that was given does), ``waits`` (what holds up a
waiter), ``stack_room`` (whether a call can be carried out).
"""
