"""The endpoints of OpenAI's API: ``/v1/models``, ``/v1/responses``, ``/v1/chat/completions``.

A response is what came of one item in a run's inbox; its id names the run and the item.  Nothing is
kept here: whatever is said of a response is read from its run's events, as often as somebody asks.

Reading order: ``answers`` (what came of an item, and how that is told), ``requests`` (what is asked
for, and which run is told), ``endpoints`` (the routes), ``responses``, ``chat``, ``models``;
``endpoint`` and ``delivering`` (the way of a request and of its answer), ``leaving``.
"""
