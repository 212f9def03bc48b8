"""What a role, the address or the environment sets for sessions changes nothing."""

from collections.abc import Callable

import pytest
from support.postgres import Server

from hubbub import Agent, FunctionModel, Message, ModelRequest, Runtime
from hubbub.agents.model import UserMessage
from hubbub.runtime.stores.open import open_reader

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.spec("X-01")]

TEXT = "grüße 😀 \\x41 \"NULL\" {null,'a'}"

SETTINGS = [
    ("client_encoding", "LATIN1"), ("client_encoding", "SQL_ASCII"), ("client_encoding", "EUC_JP"),
    ("array_nulls", "off"), ("standard_conforming_strings", "off"), ("bytea_output", "escape"),
    ("datestyle", "'SQL, DMY'"), ("timezone", "'Asia/Kolkata'"), ("extra_float_digits", "-15"),
    ("intervalstyle", "sql_standard"), ("transform_null_equals", "on"), ("search_path", "public"),
    ("default_transaction_isolation", "serializable"), ("default_transaction_deferrable", "on"),
    ("statement_timeout", "1000"), ("lock_timeout", "1"), ("quote_all_identifiers", "on"),
    ("lc_messages", "'C'"), ("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"),
]  # fmt: skip


def last_heard(request: ModelRequest) -> str:
    return [x.content for x in request.messages if isinstance(x, UserMessage)][-1]


async def is_kept_as_it_was(address: str) -> None:
    """What is said is heard, on record, and read again, by another process."""
    for _ in range(2):
        agent = Agent("bot", "You.", model=FunctionModel(last_heard))
        async with Runtime([agent], store=address) as rt:
            run = await rt.start("bot", Message(TEXT), session_key=TEXT)
            assert (await run.result()).output == TEXT
    with open_reader(address) as reader:
        assert not [*reader.faults(thorough=True)]


@pytest.mark.parametrize(("name", "value"), SETTINGS, ids=lambda each: each.strip("'"))
async def test_settings_of_a_role_change_nothing(server: Server, name: str, value: str) -> None:
    address = server.dsn(user="odd")
    if not server.query("SELECT 1 FROM pg_roles WHERE rolname = 'odd'"):
        server.query("CREATE ROLE odd LOGIN SUPERUSER")
    server.query("ALTER ROLE odd RESET ALL")
    server.query(f"ALTER ROLE odd SET {name} = {value}")
    await is_kept_as_it_was(address)


def in_environment(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    return address


def in_options(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return f"{address}&options=-c%20client_encoding%3DLATIN1"


def in_address(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return f"{address}&client_encoding=LATIN1"


@pytest.mark.parametrize("change", [in_environment, in_options, in_address])
async def test_another_encoding_of_the_client_changes_nothing(
    server: Server,
    change: Callable[[str, pytest.MonkeyPatch], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await is_kept_as_it_was(change(server.dsn(), monkeypatch))
