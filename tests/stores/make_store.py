"""Keeps a store of today's format, which every later version must open (see ``migrations.py``):

    uv run python tests/stores/make_store.py

Writes ``format_N.tar.gz``, N being the format: ``left/``, the folder of a store that was left in
order, ``killed/``, the same one later, of a process that was killed, and for each of them what it
held, as JSON, read without hubbub.  What is there is never written over.
``tests/runtime/stores/test_migrations.py`` opens them all.
"""

import json
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.stores import fill, open_runtime

from hubbub import Message
from hubbub.runtime.stores.sqlite.migrations import newest

__all__ = ["held"]

HERE = Path(__file__).parent

RUN = ("run_id", "root_run_id", "parent_run_id", "agent", "name", "session_key", "descriptor",
       "status", "inbox", "waiting", "created_at", "wake_at")  # fmt: skip


def held(store: Path) -> dict[str, Any]:
    """What a store of format 1 holds; reads a copy, for SQLite changes what it reads."""
    with tempfile.TemporaryDirectory() as scratch:
        for file in store.glob("hubbub.db*"):
            shutil.copy(file, scratch)
        with closing(sqlite3.connect(Path(scratch) / "hubbub.db")) as db:
            runs = db.execute(f"SELECT {', '.join(RUN)} FROM run ORDER BY born").fetchall()
            return {
                "runs": [dict(zip(RUN, run, strict=True)) for run in runs],
                "events": db.execute("SELECT body FROM event ORDER BY position").fetchall(),
                "notes": dict(db.execute("SELECT key, value FROM note").fetchall()),
                "secrets": dict(db.execute("SELECT key, value FROM secret").fetchall()),
            }


async def _make(folder: Path) -> None:
    left, killed = folder / "left", folder / "killed"
    filled = await fill(left, mirror=True)
    shutil.copytree(left, folder / "again", copy_function=shutil.copy2)
    async with open_runtime(folder / "again", mirror=True) as rt:
        await rt.hub.send_to_run(filled.chat, Message("once more", key="later"))
        await rt.hub.send_to_run(filled.parent, "are you still there?")
        await rt.hub.journal.flush()
        await rt.hub.journal.projected()  # type: ignore[attr-defined]
        shutil.copytree(folder / "again", killed)
    shutil.rmtree(folder / "again")
    for store in (left, killed):
        what = json.dumps(held(store), indent=1)
        (folder / f"{store.name}.json").write_text(what)


def main() -> None:
    archive = HERE / f"format_{newest()}.tar.gz"
    if archive.exists():
        raise SystemExit(f"{archive}: is there, and is kept as it is")
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(_make, Path(folder))
        with tarfile.open(archive, "w:gz") as tar:
            for each in sorted(Path(folder).iterdir()):
                tar.add(each, each.name)
    print(archive, archive.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
