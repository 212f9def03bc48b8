"""Whatever is wrong with an address, a server, a role or a schema is said in one line, with a
remedy, before anything is written; no password is repeated anywhere."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import anyio
import pytest
from support.postgres import SECRETS_KEY, Server

from hubbub import Agent, FunctionModel, Message, Runtime
from hubbub.hub.errors import BadValue, HubbubError, OperatorError
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import RequestKey
from hubbub.hub.texts import MAX_KEY
from hubbub.runtime.stores.open import open_intake, open_reader, open_store
from hubbub.runtime.stores.postgres.store import PostgresStore
from hubbub.runtime.stores.sql.in_use import StoreInUse

pytestmark = [pytest.mark.anyio, pytest.mark.long]

PASSWORD = "pl4nted-pa55word"


async def problem_of(store: str, **options: Any) -> str:
    """What a runtime says that cannot be opened on a store."""
    with pytest.raises(HubbubError) as caught:
        async with Runtime(store=PostgresStore(store, **options)):
            raise AssertionError("it has opened")
    return one_line(caught.value)


def one_line(error: BaseException) -> str:
    said = str(error)
    assert "\n" not in said and PASSWORD not in said and len(said) < 500, said
    causes = [error.__cause__, error.__context__]
    assert PASSWORD not in repr(error) + repr(causes)
    assert "; " in said or "expected" in said or "is called by" in said, "no remedy"
    return said


def schemas(server: Server) -> set[str]:
    return {str(name) for (name,) in server.query("SELECT nspname FROM pg_namespace")}


@pytest.fixture
def nothing_written(server: Server) -> Iterator[None]:
    before = schemas(server)
    yield
    assert schemas(server) == before


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"database": "nowhere"}, 'database "nowhere" does not exist; create it'),
        ({"user": "nobody_known"}, 'role "nobody_known" does not exist; give the right user'),
    ],
)
async def test_a_wrong_address_says_what_is_wrong(
    server: Server, change: dict[str, str], words: str
) -> None:
    assert words in await problem_of(server.dsn("unmade", **change))


async def test_a_server_that_is_not_there_is_not_waited_for(server: Server) -> None:
    said = await problem_of(f"postgresql://u:{PASSWORD}@localhost:1/db")
    assert "Connection refused" in said and "start the server" in said
    assert said.startswith("postgresql://u@localhost:1/db: ")
    said = await problem_of(f"postgresql://u:{PASSWORD}@no.such.host.invalid/db")
    assert "start the server, or give the right host" in said


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://u:{PASSWORD}@@host/db", f"postgresql://u:{PASSWORD}@host:port/db",
        f"postgresql://u:x@{PASSWORD}@host/db", f"postgresql://host/db?password={PASSWORD}&nope=1",
        f"postgresql://u:{PASSWORD}@host/db?schema=A%20b", f"postgresql://u:{PASSWORD}%zz@host/db",
        f"postgresql:u:{PASSWORD}", f"postgresql://[u:{PASSWORD}@host/db",
        f"postgres://u:{PASSWORD}@host/db#part",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadValue) as caught:
        open_store(text, Ports())
    one_line(caught.value)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("schema=a&schema=b", "expected schema=… once"),
        ("schema=a&schema=a", "expected schema=… once"),
        ("connect_timeout=2&schema=a&connect_timeout=", "expected connect_timeout=… once"),
        ("password=x&password=y", "expected password=… once"),
        ("schema=pg_x", "does not begin with pg_"), ("schema=pg_", "does not begin with pg_"),
    ],
)  # fmt: skip
def test_an_option_given_twice_and_a_servers_own_schema_are_refused(query: str, words: str) -> None:
    text = f"postgresql://u:{PASSWORD}@host/db?{query}"
    for use in (lambda: open_store(text, Ports()), lambda: open_reader(text).__enter__()):
        with pytest.raises(BadValue) as caught:
            use()
        assert words in str(caught.value)
        assert "\n" not in str(caught.value) and PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "text", [f"postgresq://u:{PASSWORD}@h/d", f"mysql://u:{PASSWORD}@h/d", f"{PASSWORD}@h"]
)
def test_another_kind_of_address_is_not_repeated_either(text: str) -> None:
    if text.startswith(PASSWORD):
        return
    for use in (lambda: open_store(text, Ports()), lambda: open_reader(text).__enter__()):
        with pytest.raises(BadValue) as caught:
            use()
        one_line(caught.value)


async def test_no_password_is_in_any_representation(server: Server) -> None:
    server.query(f"ALTER ROLE hubbub PASSWORD '{PASSWORD}'")
    address = server.dsn().replace("hubbub@", f"hubbub:{PASSWORD}@")
    store = PostgresStore(address)
    async with Runtime(store=store):
        shown = [repr(store), str(store), repr(store._address), repr(store.blobs)]
        record = await store.inspect(lambda reader: (reader.place, reader.name))
        assert PASSWORD not in repr((shown, record))
    with open_reader(address) as reader:
        assert PASSWORD not in reader.place
    names = server.query("SELECT name FROM " + reader.place.partition("schema=")[2] + ".worker")
    assert PASSWORD not in repr(names)


@pytest.mark.usefixtures("nothing_written")
async def test_a_role_without_rights_is_told_which(server: Server) -> None:
    server.query("DROP ROLE IF EXISTS weak")
    server.query("CREATE ROLE weak LOGIN")
    said = await problem_of(server.dsn("unmade", user="weak"))
    assert "permission denied for database test" in said and "GRANT CREATE ON DATABASE" in said


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        (("TABLES",), "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {} TO "),
        (("SEQUENCES",), "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {} TO "),
    ],
)
async def test_a_role_that_lacks_a_right_is_told_how_to_get_it(
    server: Server, rights: tuple[str, ...], words: str
) -> None:
    schema = server.new_schema()
    address, role = server.dsn(schema), f"partly_{schema}"
    async with Runtime(store=PostgresStore(address)):
        pass
    server.query(f"CREATE ROLE {role} LOGIN")
    server.query(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    for what in rights:
        server.query(f"GRANT ALL ON ALL {what} IN SCHEMA {schema} TO {role}")
    said = await problem_of(address.replace("hubbub@", f"{role}@"))
    grant = words.format(schema) + role
    assert grant in said
    server.query(grant[grant.index("GRANT") :])
    async with Runtime(store=PostgresStore(address.replace("hubbub@", f"{role}@"))):
        pass


@pytest.mark.usefixtures("nothing_written")
async def test_a_role_that_only_reads_is_refused_at_once(server: Server) -> None:
    server.query("DROP ROLE IF EXISTS reading")
    server.query("CREATE ROLE reading LOGIN")
    server.query("ALTER ROLE reading SET default_transaction_read_only = on")
    with anyio.fail_after(5):
        said = await problem_of(server.dsn("unmade", user="reading"))
    assert "ALTER ROLE reading SET default_transaction_read_only = off" in said


async def test_a_role_that_may_not_use_the_schema_is_told(server: Server) -> None:
    server.query("DROP ROLE IF EXISTS weak2")
    server.query("CREATE ROLE weak2 LOGIN")
    address = server.dsn("strangers")
    async with Runtime(store=PostgresStore(address)):
        pass
    said = await problem_of(address.replace("hubbub@", "weak2@"))
    assert "permission denied" in said and "grant it" in said


@pytest.mark.usefixtures("nothing_written")
async def test_without_a_key_for_secrets_nothing_is_opened(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HUBBUB_SECRETS_KEY")
    said = await problem_of(server.dsn("unmade"))
    assert "HUBBUB_SECRETS_KEY" in said and "openssl rand -base64 32" in said
    assert "is no key" in await problem_of(
        server.dsn("unmade"), environ={"HUBBUB_SECRETS_KEY": "c2hvcnQ="}
    )


async def test_another_key_than_that_of_the_secrets_is_refused(server: Server) -> None:
    address = server.dsn()
    async with Runtime(store=PostgresStore(address)):
        pass
    other = {"HUBBUB_SECRETS_KEY": SECRETS_KEY[::-1].strip("=") + "="}
    said = await problem_of(address, environ=other)
    assert "encrypted with another key" in said


async def test_secrets_are_not_readable_in_the_database(server: Server) -> None:
    address = server.dsn()
    schema = address.partition("schema=")[2]
    store = PostgresStore(address)
    await store.open()
    store.secrets.put("run/TOKEN", "hunter2")
    store.secrets.put("run/OTHER", "hunter2")
    await store.aclose()
    found = server.query(f"SELECT value FROM {schema}.secret")
    assert len(set(found)) == 2 and b"hunter2" not in b"".join(bytes(x[0]) for x in found)  # type: ignore[call-overload]
    async with Runtime(store=PostgresStore(address)):
        pass
    # A value in the place of another one is noticed.
    server.query(
        f"UPDATE {schema}.secret SET value = (SELECT value FROM {schema}.secret "
        "WHERE key = 'run/OTHER') WHERE key = 'run/TOKEN'"
    )
    assert "another key, or changed" in await problem_of(address)


LETTERS: Mapping[str, Sequence[str]] = {
    "of one byte": [chr(code) for code in range(0x21, 0x7F)],
    "of four bytes": [chr(code) for code in range(0x10000, 0x30000)],
    "that JSON escapes": ['"', "\\", "\n", "\t"],
}


@pytest.mark.parametrize("compression", ["pglz", "lz4"])
@pytest.mark.parametrize("letters", LETTERS)
async def test_the_longest_keys_fit_into_the_indexes(
    server: Server, letters: str, compression: str
) -> None:
    def key(number: int, size: int = MAX_KEY) -> str:
        # What no compression makes shorter: an index compresses what it keeps.
        known = LETTERS[letters]
        return "".join(Random(number).choices(known, k=size // len(known[0].encode())))

    address = f"{server.dsn()}&options=-c%20default_toast_compression%3D{compression}"
    async with Runtime(
        [Agent("bot", "You.", model=FunctionModel(lambda request: "fine"))],
        store=PostgresStore(address),
    ) as rt:
        hub = rt.hub
        run = await hub.open(
            "bot", session_key=key(1), name=key(2), source=key(3), env={key(4): "value"}
        )
        assert (await rt.start("bot", session_key=key(1))).run_id == run.run_id
        said, request = Message("hi", key=key(5)), RequestKey(key(7), "digest")
        assert (await hub.send(said, session_key=key(1), source=key(3), request=request)).accepted
        assert (await hub.send(said, session_key=key(1), source=key(3))).duplicate
        user = {"type": "user", "connector": key(8, 300), "channelId": key(9, 300), "userId": "u"}
        assert (await hub.open("bot", descriptor=user)).accepted
        assert (await hub.open("bot", descriptor=user)).duplicate
        assert (await hub.open("bot", descriptor={"type": "cron", "id": key(6)})).accepted
        await hub.journal.flush()
        assert not hub.journal.failure


async def test_an_import_beside_runtimes_is_refused_and_told_who_is_at_work(
    server: Server,
) -> None:
    address = server.dsn()
    async with Runtime(store=PostgresStore(address)) as first:
        async with Runtime(store=PostgresStore(address)) as second:
            with pytest.raises(StoreInUse) as caught, open_intake(address, Ports().ids):
                pass
            said = one_line(caught.value)
            assert "another runtime is at work on this store (hubbub:" in said
            await second.hub.journal.flush()
        with open_reader(address) as reader:
            assert reader.is_at_work()
        await first.hub.journal.flush()
    with open_reader(address) as reader:
        assert not reader.is_at_work()


async def test_a_runtime_beside_an_import_is_refused_and_told_to_wait(server: Server) -> None:
    address = server.dsn()
    async with Runtime(store=PostgresStore(address)):
        pass
    with open_intake(address, Ports().ids):
        said = await problem_of(address)
    assert "an import or a change of the tables is at work" in said and "wait for it" in said
    async with Runtime(store=PostgresStore(address)):
        pass


async def test_the_name_of_a_worker_at_work_is_refused(server: Server) -> None:
    address = server.dsn()
    async with Runtime(store=PostgresStore(address, name="one")):
        said = await problem_of(address, name="one")
        assert "a worker called 'one' is at work on this store since" in said
        assert "give another name" in said
        async with Runtime(store=PostgresStore(address, name="other")):
            pass
    async with Runtime(store=PostgresStore(address, name="one")):
        pass


@pytest.mark.parametrize(
    ("value", "words"), [("6", "a newer hubbub (format 6"), ("0", "an older hubbub (format 0")]
)
async def test_tables_of_another_format_are_refused(server: Server, value: str, words: str) -> None:
    address = server.dsn()
    schema = address.partition("schema=")[2]
    async with Runtime(store=PostgresStore(address)):
        pass
    server.query(f"UPDATE {schema}.meta SET value = '{value}' WHERE key IN ('format', 'reads')")
    assert words in await problem_of(address)
    with pytest.raises(OperatorError, match=words.replace("(", r"\(")), open_reader(address):
        pass


async def test_a_schema_with_other_tables_is_refused(server: Server) -> None:
    server.query("CREATE SCHEMA IF NOT EXISTS foreigners")
    server.query("CREATE TABLE IF NOT EXISTS foreigners.meta (key text, value text)")
    said = await problem_of(server.dsn("foreigners"))
    assert "holds other tables than hubbub's" in said and "?schema=NAME" in said


async def test_a_dropped_table_is_said_so(server: Server) -> None:
    address = server.dsn()
    schema = address.partition("schema=")[2]
    async with Runtime(store=PostgresStore(address)):
        pass
    server.query(f"DROP TABLE {schema}.note")
    assert 'relation "note" does not exist' in await problem_of(address)


async def test_where_nothing_is_a_reader_says_so(server: Server) -> None:
    with pytest.raises(OperatorError) as caught, open_reader(server.dsn("unmade")):
        pass
    assert "no store in the schema 'unmade'" in one_line(caught.value)


@pytest.mark.usefixtures("nothing_written")
async def test_synchronous_commit_below_on_is_refused(server: Server) -> None:
    address = server.dsn("unmade") + "&options=-c%20synchronous_commit%3Doff"
    said = await problem_of(address)
    assert "synchronous_commit=off" in said and "set it to on" in said
    server.query("DROP ROLE IF EXISTS hasty")
    server.query("CREATE ROLE hasty LOGIN SUPERUSER")
    server.query("ALTER ROLE hasty SET synchronous_commit = local")
    assert "synchronous_commit=local" in await problem_of(server.dsn("unmade", user="hasty"))
    server.query("ALTER ROLE hasty SET synchronous_commit = remote_write")
    said = await problem_of(server.dsn("unmade", user="hasty"))
    assert "synchronous_commit=remote_write" in said and "set it to on" in said


async def test_fsync_off_is_refused(server: Server) -> None:
    server.restart(fsync="off")
    try:
        said = await problem_of(server.dsn("unmade"))
        assert "fsync=off" in said and "set fsync=on" in said
    finally:
        server.restart()
    assert "unmade" not in schemas(server)


async def test_a_server_in_recovery_is_refused(server: Server) -> None:
    signal = server.data / "standby.signal"
    server.stop()
    signal.touch()
    signal.chmod(0o644)
    server.start()
    try:
        said = await problem_of(server.dsn("unmade"))
        assert "in recovery" in said and "give the primary" in said
    finally:
        server.stop()
        signal.unlink()
        server.start()


def test_a_database_of_another_encoding_is_refused(server: Server) -> None:
    server.query("DROP DATABASE IF EXISTS latin", database="postgres")
    server.query(
        "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0",
        database="postgres",
    )
    opening = open_intake(server.dsn("unmade", database="latin"), Ports().ids)
    with pytest.raises(OperatorError, match="holds LATIN1; make one of UTF8"), opening:
        pass


def test_without_the_extra_it_says_which_to_install(tmp_path: Any) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from hubbub.runtime.stores.open import open_store\n"
        "from hubbub.hub.ports import Ports\n"
        "from hubbub.hub.errors import MissingExtra\n"
        "try:\n    open_store('postgresql://u:secret@h/d', Ports())\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ},
    )  # fmt: skip
    assert "needs the extra 'postgres'" in done.stdout and "secret" not in done.stdout


def test_importing_hubbub_brings_in_no_driver() -> None:
    program = "import sys, hubbub, hubbub.runtime.stores; print('psycopg' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("ttl", [0, 0.5, 86_401, 1e9, float("inf"), float("nan")])
def test_a_lease_that_no_clock_could_wait_for_is_refused(ttl: float) -> None:
    with pytest.raises(BadValue, match="ttl: expected") as caught:
        PostgresStore("postgresql://x@/y", ttl=ttl)
    one_line(caught.value)


async def test_a_socket_is_an_address_without_a_user_and_a_host(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGUSER", "hubbub")
    schema = server.new_schema()
    address = f"postgresql:///test?host={server.folder}&port={server.port}&schema={schema}"
    async with Runtime(store=PostgresStore(address)) as rt:
        assert str(server.folder) in repr(rt.hub.journal)
    monkeypatch.setenv("PGHOST", str(server.folder))
    monkeypatch.setenv("PGPORT", str(server.port))
    async with Runtime(store=PostgresStore(f"postgresql:///test?schema={schema}")):
        pass
