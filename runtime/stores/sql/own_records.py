"""How one record of a run is found by its number, in the time that those behind it take.

The lanes have no index by number: what is looked for stands near the end.  A database that is asked
for the number itself may read all of the run, or of the store; asked for the last one up to that
number, it goes backwards and stops there.
"""

__all__ = ["own_record"]


def own_record(columns: str, run: str = "?") -> str:
    """A statement for ``columns`` of the own event of a run with a number, which is given twice.

    ``columns`` are among ``run``, ``position``, ``seq``, ``type`` and ``crc``; ``run`` says which
    run it is, in SQL.
    """
    return (
        f"SELECT {columns} FROM (SELECT run, position, seq, type, crc FROM event "
        f"WHERE run = {run} AND lane = 'own' AND seq <= ? ORDER BY position DESC LIMIT 1) AS found "
        "WHERE seq = ?"
    )
