"""No store that somebody tries to name is repeated with its password, by no command."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from hubbub import Runtime
from hubbub.__main__ import main
from hubbub.hub.errors import BadValue
from hubbub.hub.ports import Ports
from hubbub.runtime.stores.open import open_intake, open_original, open_store, place_of_store

PASSWORD: Final = "pl4nted-pa55word"

FORMS: Final = (
    f"host=db password={PASSWORD}", f"service=x password={PASSWORD}",
    f"password={PASSWORD} host=db:5432", f"host=db,password={PASSWORD}", f"{PASSWORD}:u@db/d",
    f"postgresql+psycopg:hubbub:{PASSWORD}", f"postgresql+psycopg://u:{PASSWORD}@db/d",
    f"postgresql+asyncpg://db/d?password={PASSWORD}", f"postgres ://u:{PASSWORD}@db/d",
    f" postgresql://u:{PASSWORD}@db/d", f"POSTGRESQL://u:{PASSWORD}@db/d", f"pg:u:{PASSWORD}",
    f"jdbc:postgresql://db/d?user=u&password={PASSWORD}", f"postgresq://u:{PASSWORD}@db/d",
    f"mysql://u:{PASSWORD}/db", f"u:{PASSWORD}", PASSWORD, f"{PASSWORD}:", f"://{PASSWORD}",
    f"'postgresql://u:{PASSWORD}@db/d'", f"store=postgresql://u:{PASSWORD}@db/d",
    f"PGPASSWORD={PASSWORD} postgresql://u@db/d", f"sqlite3:{PASSWORD}", f"memory:{PASSWORD}",
    f"sqlite={PASSWORD}", f"{PASSWORD}\n:x", f"sqlite\x00{PASSWORD}", f"{PASSWORD}\ud800",
)  # fmt: skip
"""What is no store."""

ADDRESSES: Final = (
    f"postgresql:host=127.0.0.1 password={PASSWORD}", f"postgres:hubbub:{PASSWORD}",
    f"postgresql://host=127.0.0.1 password={PASSWORD}", f"postgresql://u:1/{PASSWORD}@127.0.0.1/d",
    f"postgresql://127.0.0.1:1/d password={PASSWORD}",
    f"postgresql://127.0.0.1:1/d;password={PASSWORD}", f"postgresql://127.0.0.1:1/d&pw={PASSWORD}",
    f"postgresql://127.0.0.1;password={PASSWORD}/d", f"postgresql://u:{PASSWORD}/x@127.0.0.1:1/d",
    f"postgresql://[u:{PASSWORD}@127.0.0.1:1/d",
    f"postgresql://user=u password={PASSWORD}@127.0.0.1:1/d",
)  # fmt: skip
"""What begins as an address of PostgreSQL does, with a password where a name belongs."""

COMMANDS: Final = tuple(
    tuple(line.split())
    for line in (
        "worker --store STORE", "worker json --store STORE", "workers --store STORE",
        "serve --port 0 --store STORE", "serve --port 0 --role channel --store STORE",
        "demo --workers 2 --store STORE", "migrate STORE sqlite:new", "migrate sqlite:new STORE",
        "export --all --store STORE", "import runs.jsonl --store STORE", "fsck --store STORE",
        "runs --store STORE", "show abcd --store STORE", "tail --store STORE",
        "replay --store STORE", "schedules --store STORE", "conversations --store STORE",
        "reply --store STORE", "compact abcd --store STORE", "backup to --store STORE",
    )
)  # fmt: skip


@pytest.mark.parametrize("store", [*FORMS, *ADDRESSES])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_no_command_repeats_a_password(
    command: tuple[str, ...], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("runs.jsonl").write_text("{}\n")
    assert main([store if word == "STORE" else word for word in command]) == 2
    told = capsys.readouterr()
    assert PASSWORD not in told.out + told.err
    assert told.err.startswith("hubbub: ") and told.err.count("\n") == 1


USES: Final[dict[str, Callable[[str], object]]] = {
    "runtime": lambda store: Runtime(store=store),
    "store": lambda store: open_store(store, Ports()),
    "place": place_of_store,
    "original": lambda store: open_original(store).__enter__(),
    "intake": lambda store: open_intake(store, Ports().ids).__enter__(),
}


@pytest.mark.parametrize("store", [*FORMS, *ADDRESSES])
@pytest.mark.parametrize("use", USES)
def test_what_is_no_store_is_refused_and_not_repeated(use: str, store: str) -> None:
    with pytest.raises(BadValue) as caught:
        USES[use](store)
    error = caught.value
    assert PASSWORD not in repr((str(error), error, error.__cause__, error.__context__))


@pytest.mark.parametrize("scheme", ["sqlite3", "mysql", "redis", "file"])
def test_another_kind_of_store_is_told_by_its_scheme(scheme: str) -> None:
    with pytest.raises(BadValue, match=f"or \"memory\", not '{scheme}:…'"):
        open_store(f"{scheme}://x", Ports())
