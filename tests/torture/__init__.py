"""Torture of the store: processes that are killed, disks that lose power.

    uv run python -m tests.torture.run --cycles 500
    uv run python -m tests.torture.run --vfs 5000
    uv run python -m tests.torture.nemesis --seconds 600

``run`` is the command; ``worker`` the process that is killed, ``workload`` what it does,
``killing`` the one that kills it, ``audit`` what must hold of the folder afterwards, and ``power``
the disk that loses power under the store's writer.

``nemesis`` is the command for several processes over one PostgreSQL.  Of a ``story`` the ``cast``
are processes (``member_process``, in which ``member`` is run; a channel carries what ``users`` say)
over ``servers``; ``faults`` is what is done to them, ``take_overs`` and ``heard`` are looked at
beside the tables (``tests/support/sql_history.py``, ``tests/support/promises.py``).
"""
