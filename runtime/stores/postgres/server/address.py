"""``PostgresAddress``: what ``postgresql://…`` names, and how it is said without its password."""

import hashlib
import re
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from hubbub.hub.errors import BadValue
from hubbub.hub.texts import check_label
from hubbub.runtime.stores.postgres.server.arrays import ArrayDumper
from hubbub.runtime.stores.postgres.server.attentive import AttentiveConnection

__all__ = ["SCHEMA", "PostgresAddress"]

SCHEMA: Final = "hubbub"
"""The schema of a store, unless the address names another one (``?schema=NAME``)."""

EXPECTED: Final = (
    'expected "postgresql://USER:PASSWORD@HOST:PORT/DATABASE", with %40 for an @ in a password, '
    "%2F for a /, and ?schema=NAME for another schema than hubbub"
)

HANDSHAKES: Final = (3, 3, 6, 10)
"""Seconds after which a handshake is given up and tried again, unless the address says otherwise:
the first ones soon, as what was cut off in the middle of one hears nothing any more; later ones
not, as the server may have much to do."""

LONGEST: Final = 36
"""Characters of a schema that are shown in the names of connections."""

DEFAULTS: Final = {
    "keepalives": "1", "keepalives_idle": "5", "keepalives_interval": "2",
    "keepalives_count": "3", "tcp_user_timeout": "10000",
}  # fmt: skip
"""How a connection notices that its server is gone, unless the address says otherwise."""


class PostgresAddress:
    """A database, and the schema in it that is a store.

    ``place`` is for messages: it holds no password.  Raises ``BadValue``, which repeats nothing of
    the text, for what is no address.
    """

    __slots__ = ("_parameters", "place", "schema")

    def __init__(self, text: str) -> None:
        check_label("store", text)
        parsed = _parsed(text)
        if parsed is None:
            raise BadValue("store", EXPECTED)
        _check_once(text)
        found, self.schema = parsed
        if re.fullmatch(r"[a-z_][a-z0-9_]{0,50}", self.schema) is None:
            raise BadValue("store", "a schema is called by a-z, 0-9 and _, 50 of them at most")
        if self.schema.startswith("pg_"):
            raise BadValue("store", "a schema is called by what does not begin with pg_")
        self._parameters = {**DEFAULTS, **{key: str(value) for key, value in found.items()}}
        if "," in self._parameters.get("host", ""):
            self._parameters.setdefault("target_session_attrs", "read-write")
        self.place = _shown(self._parameters, self.schema)

    def __repr__(self) -> str:
        return f"PostgresAddress({self.place!r})"

    def handshake(self, slow: int) -> int:
        """Seconds that a handshake may take after so many, one after the other, took too long."""
        found = self._parameters.get("connect_timeout", "")
        return int(found) if found.isdecimal() else HANDSHAKES[min(slow, len(HANDSHAKES) - 1)]

    @property
    def prefix(self) -> str:
        """What the names of all connections of a store begin with."""
        schema = self.schema
        if len(schema) > LONGEST:  # The server cuts off what is longer than a name of its own.
            digest = hashlib.sha256(schema.encode()).hexdigest()[:8]
            schema = f"{schema[: LONGEST - 9]}~{digest}"
        return f"hubbub:{schema}:"

    def name_of(self, what: str, worker: int) -> str:
        """What the server calls a connection of the process that has this row in ``worker``: by
        that its connections are found when its lease is over."""
        return f"{self.prefix}{what}:{worker}"

    def connect(self, name: str, slow: int = 0) -> AttentiveConnection:
        """A connection that the server knows under a name.

        ``slow`` says how many handshakes, one after the other, took too long.  Raises
        ``psycopg.Error``, and ``psycopg.errors.ConnectionTimeout`` for one more.
        """
        parameters: dict[str, Any] = {
            "application_name": name, "connect_timeout": str(self.handshake(slow)),
            **self._parameters, "client_encoding": "UTF8",
        }  # fmt: skip
        try:
            db = AttentiveConnection.connect(
                autocommit=True, cursor_factory=psycopg.RawCursor, **parameters
            )
        except OSError as error:  # What it waits by needs a descriptor, beside the connection's.
            raise psycopg.OperationalError(str(error)) from error
        db.adapters.register_dumper(list, ArrayDumper)
        return db


def _parsed(text: str) -> tuple[dict[str, Any], str] | None:
    """What libpq makes of an address, and the schema; ``None``, without the words of whoever finds
    something wrong: they may repeat a part of the password."""
    try:
        parts = urlsplit(text)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        wanted = [value for key, value in query if key == "schema"]
        others = [each for each in query if each[0] != "schema"]
        rest = urlencode(others, safe="/:,", quote_via=quote)
        # Without a host, which a socket's address may be, ``urlunsplit`` leaves out the slashes.
        found = dict(conninfo_to_dict(f"{parts.scheme}://{parts.netloc}{parts.path}?{rest}"))
    except (ValueError, psycopg.Error):
        return None
    ports = str(found.get("port", "")).split(",")
    is_url = text[len(parts.scheme) :].startswith("://")
    are_ports = all(port.isdecimal() or not port for port in ports)
    if not (is_url and are_ports) or _may_show_a_password(parts):
        return None
    return found, wanted[-1] if wanted else SCHEMA


def _check_once(text: str) -> None:
    """Raise ``BadValue`` where an option is given twice: which one counts nobody would know."""
    keys = [key for key, _ in parse_qsl(urlsplit(text).query, keep_blank_values=True)]
    for key in keys:
        if keys.count(key) > 1:
            raise BadValue("store", f"expected {key}=… once in the address, not {keys.count(key)}×")


def _may_show_a_password(parts: SplitResult) -> bool:
    """Whether a part of a password, or a setting, stands where messages show a name.

    That is so after an @ or a / of a password that is not written as %40 or %2F, and where settings
    are written as in ``host=db password=…``.
    """
    login, _, host = parts.netloc.rpartition("@")
    names = f"{login.partition(':')[0]} {host} {parts.path}"
    is_split = "@" in login or "@" in parts.path or bool(parts.fragment)
    return is_split or "=" in names


def _shown(parameters: dict[str, str], schema: str) -> str:
    host, port = parameters.get("host", ""), parameters.get("port", "")
    user, is_path = parameters.get("user", ""), host.startswith("/")
    netloc = f"{user}@" if user else ""
    if not is_path:
        netloc += f"{host}:{port}" if port else host
    query = {"host": host} if is_path else {}
    query |= {"schema": schema} if schema != SCHEMA else {}
    shown = f"postgresql://{netloc}/{parameters.get('dbname', '')}"
    return f"{shown}?{urlencode(query, safe='/')}" if query else shown
