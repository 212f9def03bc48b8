"""How events reach those who listen, and in which order.

Reading order: ``audience`` (who listens to what), ``dispatch`` (the one order), ``stream`` (what
is read with ``async for``), ``inbox`` (the messages of a run, as such a stream reads them),
``listening`` (what ``subscribe`` makes of a pattern and a handler).
"""
