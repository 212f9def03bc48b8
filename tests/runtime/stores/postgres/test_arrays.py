"""Lists arrive at the server as they were sent, whatever their elements hold."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.postgres import Server
from support.profiles import examples

from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.arrays import BETWEEN
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection

pytestmark = pytest.mark.long

TEXTS = st.text(
    st.one_of(
        st.sampled_from(f"{BETWEEN}{{}}[]\"\\,; \n\t'N"),
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    )
) | st.sampled_from(["", "NULL", "null", '","', "\\", '"', BETWEEN, "t", "-1"])
NUMBERS = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def db(server: Server) -> Iterator[PostgresConnection]:
    connection = PostgresConnection(PostgresAddress(server.dsn()), "hubbub:test")
    connection.connect()
    yield connection
    connection.close()


def sent(db: PostgresConnection, kind: str, values: list[Any]) -> list[Any]:
    select = f"SELECT * FROM unnest(?::{kind}[])"
    return [value for (value,) in db.execute(select, (values,)).fetchall()]


@settings(
    max_examples=examples(500),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(TEXTS) | st.lists(TEXTS | st.none()),
    numbers=st.lists(NUMBERS) | st.lists(NUMBERS | st.none()),
    truths=st.lists(st.booleans() | st.none()),
)
def test_what_is_sent_in_an_array_arrives(
    db: PostgresConnection, texts: list[Any], numbers: list[Any], truths: list[Any]
) -> None:
    assert sent(db, "text", texts) == texts
    assert sent(db, "bigint", numbers) == numbers
    assert sent(db, "boolean", truths) == truths


@pytest.mark.parametrize(
    "values", [["a\0b"], ["a", None, "\0"], [b"bytes"], ["a", 1.5], [["nested"]]]
)
def test_what_no_array_holds_is_refused_before_it_is_sent(
    db: PostgresConnection, values: list[Any]
) -> None:
    with pytest.raises(psycopg.DataError):
        sent(db, "text", values)
    assert sent(db, "text", ["next"]) == ["next"]


def test_half_of_a_character_is_refused_before_it_is_sent(db: PostgresConnection) -> None:
    with pytest.raises(UnicodeEncodeError):
        sent(db, "text", ["\ud800"])
    assert sent(db, "text", ["next"]) == ["next"]
