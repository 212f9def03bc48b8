"""A damaged record of one run keeps nothing else from being listed, and is told."""

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.stores import fill

from hubbub import Runtime, tool
from hubbub.__main__ import main
from hubbub.hub.errors import HubbubError
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.finding.answers import answer
from hubbub.runtime.inspection.prompts import find_prompt, open_prompts
from hubbub.runtime.inspection.views import list_runs
from hubbub.runtime.models.scripted import FunctionModel, call
from hubbub.runtime.schedules.schedules import Cron
from hubbub.runtime.stores.open import open_reader

LISTS = (
    "runs", "conversations", "schedules", "workers", 'trees {"ended": true}', "trees {}", "prompts",
    "requests", "agents",
)  # fmt: skip


@tool(approval=True)
def risky(text: str) -> str:
    """Do it."""
    return text


ASKER = model_agent(FunctionModel(lambda _: call("risky", text="x")), risky, name="asker")


async def filled(folder: Path) -> None:
    """The usual store, a run that asks a person, and a schedule."""
    await fill(folder)
    tick = Cron("tick", "0 0 1 1 *", agent="asker", prompt="go")
    async with Runtime([ASKER], store=f"sqlite:{folder}", schedules=[tick]) as rt:
        for _ in range(2):
            run = await rt.start("asker", "go")
            async with run.events("session:prompt") as prompts:
                await anext(prompts)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "store"
    anyio.run(filled, folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


@contextmanager
def database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / "hubbub.db")) as db:
        yield db
        db.commit()


def listed(reader: StoreReader) -> dict[str, set[str]]:
    """The runs of each list."""
    found = {}
    for question in LISTS:
        answered: Any = answer(reader, question, 0)
        for key in ("runs", "conversations"):
            answered = answered.get(key, answered) if isinstance(answered, dict) else answered
        rows = answered if isinstance(answered, list) else []
        found[question] = {row["run_id"] for row in rows if "run_id" in row}
    return found


@pytest.mark.spec("G-07", "U-06")
def test_wherever_one_event_is_damaged_all_other_runs_are_listed(folder: Path) -> None:
    with open_reader(f"sqlite:{folder}") as reader:
        sound = listed(reader)
    assert len(sound['trees {"ended": true}']) == 6 and len(sound["prompts"]) == 2
    with database(folder) as db:
        events = db.execute(
            "SELECT position, body, (SELECT run_id FROM address WHERE number = run) FROM event"
        ).fetchall()
    told = 0
    for position, body, run_id in events:
        for torn in ("{", '{"type": "agent:complete", "at": "now"}'):
            with database(folder) as db:
                db.execute("UPDATE event SET body = ? WHERE position = ?", (torn, position))
            with open_reader(f"sqlite:{folder}") as reader:
                found = listed(reader)
                for question, runs in sound.items():
                    missing = runs - found[question]
                    assert not missing or (question, missing) == ("prompts", {run_id}), position
                damaged = [x for x in list_runs(reader, ended=True).runs if x.damage]
                assert {x.run_id for x in damaged} <= {run_id}
                assert all(f"position {position} is no event" in x.damage for x in damaged)
                told += len(damaged)
        with database(folder) as db:
            db.execute("UPDATE event SET body = ? WHERE position = ?", (body, position))
    assert told > 10


@pytest.mark.spec("G-07")
@pytest.mark.parametrize("kind", ["agent:complete", "agent:step"])
def test_the_command_lists_the_others_and_says_what_is_wrong_with_the_damaged_one(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "--all", "--json", "--store", f"sqlite:{folder}"]) == 0
    sound = json.loads(capsys.readouterr().out)
    with database(folder) as db:
        (position, run_id), *_ = db.execute(
            "SELECT position, (SELECT run_id FROM address WHERE number = run) FROM event"
            f" WHERE type = '{kind}' AND lane = 'own' LIMIT 1"
        )
        db.execute("UPDATE event SET body = '{' WHERE position = ?", (position,))
    assert main(["runs", "--all", "--json", "--store", f"sqlite:{folder}"]) == 1
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert [x["run_id"] for x in found["runs"]] == [x["run_id"] for x in sound["runs"]]
    (damaged,) = [x for x in found["runs"] if x["damage"]]
    assert damaged["run_id"] == run_id and f"position {position}" in damaged["damage"]
    assert str(folder) not in damaged["damage"]
    assert told.err.count("\n") == 1 and run_id in told.err and "hubbub fsck" in told.err
    assert main(["runs", "--all", "--store", f"sqlite:{folder}"]) == 1
    told = capsys.readouterr()
    assert all(x["run_id"] in told.out for x in sound["runs"])
    assert told.err.count("\n") == 1 and run_id in told.err


@pytest.mark.spec("G-07")
def test_what_a_damaged_run_asks_hides_no_other_prompt(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_reader(f"sqlite:{folder}") as reader:
        one, other = open_prompts(reader)
    with database(folder) as db:
        db.execute(
            "UPDATE event SET body = '{' WHERE type = 'session:prompt' AND run ="
            " (SELECT number FROM address WHERE run_id = ?)", (one.run_id,),
        )  # fmt: skip
    assert main(["reply", "--json", "--store", f"sqlite:{folder}"]) == 1
    told = capsys.readouterr()
    assert [x["prompt_id"] for x in json.loads(told.out)["prompts"]] == [other.prompt_id]
    assert told.err.count("\n") == 1 and one.run_id in told.err
    with open_reader(f"sqlite:{folder}") as reader:
        assert find_prompt(reader, other.prompt_id[2:]) == other
        for given in (one.prompt_id, one.prompt_id[2:]):
            with pytest.raises(HubbubError, match="is no event"):
                find_prompt(reader, given)
