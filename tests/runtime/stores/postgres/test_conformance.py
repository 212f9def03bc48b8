"""The suites that prove any store, on a real server and on both loops."""

import pkgutil
import runpy
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from support.postgres import Server

from hubbub.hub import conformance
from hubbub.hub.conformance import CHECKS, REMOVAL_CHECKS, Check
from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio]


@pytest.mark.long
@pytest.mark.spec("X-01")
@pytest.mark.parametrize("check", CHECKS + REMOVAL_CHECKS, ids=lambda check: check.__name__)
async def test_postgres_conforms(check: Check, server: Server) -> None:
    address = server.dsn()
    await check(lambda: PostgresStore(address))


def shipped() -> Iterator[Any]:
    """Every check of every suite, and those that no suite has."""
    for each in pkgutil.iter_modules(conformance.__path__):
        for name, found in vars(import_module(f"{conformance.__name__}.{each.name}")).items():
            if name.endswith("CHECKS"):
                yield from found
            elif name.startswith("check_") and len(signature(found).parameters) == 1:
                yield found


def run_by(test: Callable[..., Any]) -> Iterator[Any]:
    """The checks that a test is given."""
    for mark in test.pytestmark:  # type: ignore[attr-defined]
        if mark.name == "parametrize" and mark.args[0] == "check":
            yield from mark.args[1]


def test_no_check_of_any_suite_is_left_out_on_postgres() -> None:
    beside = runpy.run_path(str(Path(__file__).with_name("test_sharing.py")))
    run = {*run_by(test_postgres_conforms), *run_by(beside["test_the_shared_store_conforms"])}
    assert [each.__name__ for each in shipped() if each not in run] == []
    assert len(run) > 100
