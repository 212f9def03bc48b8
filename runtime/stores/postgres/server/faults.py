"""What errors of PostgreSQL mean: what passes, what is for people, what a commit is to blame for.

passes      the server is away, restarts, has too much to do or no room, or two transactions met
contents    a value that no table can hold, a row that is there already: one commit's trouble
removal     a trigger, or a right, stands in the way of what is to go: that stays
the rest    is for people, as one line with a remedy
"""

from collections.abc import Mapping
from typing import Final

import psycopg

from hubbub.hub.errors import OperatorError

__all__ = ["is_of_contents", "is_of_removal", "is_passing", "postgres_failure", "postgres_wait"]

PASSING: Final = frozenset((
    "40001", "40P01", "55P03", "57014",  # Another transaction was in the way, or somebody.
    "57P01", "57P02", "57P03", "57P05", "53300", "25006", "25P03",  # The server is not there yet.
    "25P04", "40003",  # It has ended the transaction, or does not know what became of it.
    "53000", "53100", "53200",  # It has no room: somebody may make some.
))  # fmt: skip

REMEDIES: Final = {
    "28": "give the right user and password, or let the server accept them (pg_hba.conf)",
    "3D": "create it (createdb), or give another one",
    "3F": "create it, or give another one with ?schema=NAME",
    "42501": "have the database's owner grant it (GRANT CREATE ON DATABASE, or the schema's owner)",
    "42": "a table of the store is missing or changed: restore it, or give another schema",
    "53100": "free some space and start again: what was acknowledged is kept",
    "53300": "close other connections, or raise max_connections",
    "57P04": "the database was dropped: restore it from a backup",
    "58": "look at the server's disk and start again: what was acknowledged is kept",
    "XX": "the server reports damage: look at its log, and restore the database from a backup",
}  # fmt: skip
"""By the beginning of a code of PostgreSQL; the longest that fits counts."""

AWAY: Final = "start the server, or give the right host and port"

WHILE_WAITING: Final = {
    "4": "another transaction is in the way: look for one that stands still (pg_stat_activity)",
    "55P03": "another transaction is in the way: look for one that stands still (pg_stat_activity)",
    "57014": "somebody has cancelled it: it is tried again",
    "25006": "it takes no writes: wait until it is the primary, or let it write "
             "(default_transaction_read_only)",
    "53": "free some space, or memory",
    "53300": "close other connections, or raise max_connections",
}  # fmt: skip
"""What to do while it is tried again, by the beginning of a code; the longest that fits counts."""

NO_FILES: Final = "let the process open more files (ulimit -n), or have it close some"

GONE: Final = "start the server, or mend the way there; what was submitted is kept meanwhile"


def is_passing(error: BaseException) -> bool:
    """Whether the same may work a little later, by a new connection if need be."""
    if not isinstance(error, psycopg.Error):
        return False
    code = error.sqlstate
    if code is None:  # Of the client: the connection is gone, or was never there.
        return isinstance(error, psycopg.OperationalError)
    return code in PASSING or code.startswith("08")


def is_of_contents(error: Exception) -> bool:
    """Whether what was to be written is to blame, rather than the database."""
    if not isinstance(error, psycopg.Error):
        return not isinstance(error, OSError | MemoryError | OperatorError)
    code = error.sqlstate
    if code is None:
        return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
    if code.startswith("23"):  # A position that is taken: the head has not what the events have.
        return error.diag.table_name != "event" or code != "23505"
    return code.startswith(("22", "54"))


def is_of_removal(error: Exception) -> bool:
    """Whether it is how a trigger, or a right that was taken away, refuses something."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("P0001", "42501")


def postgres_failure(place: str, error: BaseException) -> str:
    """What is wrong, and what to do, in one line."""
    code, words = _said(error)
    remedy = _by_code(REMEDIES, code)
    if not remedy and code:
        remedy = "look at the server's log, and start again: what was acknowledged is kept"
    elif not remedy:
        remedy = _of_client(words)
    return _line(place, code, words, remedy)


def postgres_wait(place: str, error: BaseException) -> str:
    """What is waited for, and what to do about it meanwhile, in one line."""
    code, words = _said(error)
    remedy = _by_code(WHILE_WAITING, code) or (NO_FILES if "open files" in words else GONE)
    return _line(place, code, words, remedy)


def _said(error: BaseException) -> tuple[str, str]:
    """The code, which may be empty, and the words of an error."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # Of several attempts to connect the last line says what came of the last one.
    line = lines[-1] if lines[0].startswith("Multiple connection attempts") else lines[0]
    return getattr(error, "sqlstate", None) or "", " ".join(line.split()).removeprefix("- ")


def _by_code(remedies: Mapping[str, str], code: str) -> str:
    return next((remedies[code[:n]] for n in (5, 2, 1) if code[:n] in remedies), "")


def _of_client(words: str) -> str:
    """What to do about an error that no server has sent."""
    if "open files" in words:
        return NO_FILES
    if 'database "' in words and "does not exist" in words:
        return REMEDIES["3D"]
    if "could not write" in words or "No space left" in words:  # To whom it cannot begin to talk.
        return REMEDIES["53100"]
    if any(text in words for text in ("password", "authentication", 'role "', "pg_hba")):
        return REMEDIES["28"]
    if "connect" not in words and "server" not in words and "resolve" not in words:
        return "look at the address and at the server's log"
    return AWAY


def _line(place: str, code: str, words: str, remedy: str) -> str:
    return f"{place}: {words}{f' ({code})' if code else ''}; {remedy}"
