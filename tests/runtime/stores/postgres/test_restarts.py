"""What holds over crashes and restarts on SQLite holds on PostgreSQL, too.

They are the same tests: each folder that they open as a store is a schema here.
"""

import importlib.util
import sys
from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from support.postgres import Server

from hubbub.runtime.stores.postgres.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.long]

RUNTIME: Final = Path(__file__).parents[2]

SAME: Final = (
    "supervision/test_takeover_crash", "supervision/test_approval_crash",
    "supervision/test_question_crash", "supervision/test_headless_crash",
    "supervision/test_loop_deaths", "supervision/test_endings_without_room",
    "supervision/test_restarts", "runs/test_keyed_starts", "runs/test_racing_endings",
    "runs/test_concurrent_code",
)  # fmt: skip
"""Tests that open a store of SQLite by ``sqlite_store``, or one of ``support`` does for them."""

SUPPORT: Final = ("support.restarts", "support.worlds")

ELSEWHERE: Final = frozenset((
    "test_a_deferred_child_is_booted_once_after_a_restart_and_values_stand_nowhere",
    "test_an_hour_is_an_hour_whoever_was_there",
    "test_a_run_s_own_values_survive_and_go_with_its_end",
))  # fmt: skip
"""Tests that look into the file of the database."""


def _load(name: str) -> ModuleType:
    path = RUNTIME / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"postgres_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def kept(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Of the tests of this module those that open a store on disk, and leave it in order or kill
    its process without copying files; one row of each on each loop."""
    rows: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        assert isinstance(item, pytest.Function)
        values = getattr(item, "callspec", None)
        parameters = values.params if values is not None else {}
        if {"sqlite", "left"} & {x for x in parameters.values() if isinstance(x, str)}:
            loop = str(parameters.get("anyio_backend", ""))
            if item.originalname not in ELSEWHERE:
                rows[item.originalname, loop].append(item)
    return [some[-1] for some in rows.values()]  # Rows differ in what agents do.


MODULES: Final = tuple(map(_load, SAME))

for _module in MODULES:
    for _name, _value in vars(_module).items():
        is_test = _name.startswith("test_") and callable(_value)
        if is_test or type(_value).__name__ == "FixtureFunctionDefinition":
            assert not is_test or _name not in globals(), _name
            globals()[_name] = _value


@pytest.fixture(autouse=True)
def _on_postgres(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def store_of(folder: Path, *, ports: Any = None, **_: Any) -> PostgresStore:
        schema = f"of_{sha256(str(folder).encode()).hexdigest()[:20]}"
        return PostgresStore(server.dsn(schema), ports=ports)

    for module in (*MODULES, *(sys.modules[name] for name in SUPPORT if name in sys.modules)):
        if hasattr(module, "portion"):  # Which place is tried, SQLite's tests vary.
            monkeypatch.setattr(module, "portion", lambda places: [*places][::8])
        if hasattr(module, "sqlite_store"):
            monkeypatch.setattr(module, "sqlite_store", store_of)
