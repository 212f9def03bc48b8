"""How events reach those who listen, and in which order.

Reading order: ``patterns`` (what one listens to), ``audience`` (who listens to what),
``dispatch`` (the one order), ``stream`` (what is read with ``async for``), ``inbox`` (the
messages of a run, as such a stream reads them), ``listening`` (what ``subscribe`` makes of a
pattern and a handler), ``scope`` (what an emitter's surroundings add to its events),
``dead_letters`` (what nobody will handle), ``services`` (functions that answer).
"""
