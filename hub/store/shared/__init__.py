"""A store in memory that several processes of a simulated world share.

Reading order: ``memory`` (leases, trees, owners: the server's side), ``link`` (the way there),
``reads``
and ``journal`` (the share of one process).
"""
