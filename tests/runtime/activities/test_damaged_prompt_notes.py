"""What a run asks people survives damage to the note of it, wherever that strikes."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import model_agent
from support.asked import Asked

from hubbub import AgentDefinition, Runtime, tool
from hubbub.agents.model import AssistantMessage
from hubbub.agents.state.lasting_prompts import LastingPrompt, note_of, read_note
from hubbub.agents.state.prompts import LASTING
from hubbub.runtime.inspection.check import StoreCheck
from hubbub.runtime.models.scripted import FunctionModel, call
from hubbub.runtime.stores.open import sqlite_store

WAIT = 20.0

Damage = Callable[[str, Any], tuple[Any, Any]]
"""Makes of a note's key and value damaged ones."""


def desk(paid: list[int], timeout: float | None = None) -> AgentDefinition:
    @tool(approval=True, approval_timeout=timeout)
    async def pay(order: int) -> str:
        """Pay an order back."""
        paid.append(order)
        return "paid"

    def work(request: Any) -> Any:
        is_done = isinstance(request.messages[-1], AssistantMessage)
        return "Done." if is_done else call("pay", order=7)

    return model_agent(FunctionModel(work), pay, name="desk")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float | None], tuple[Path, str]]:
    """Makes copies of a store in which a run waits for an approval, and says what it asks."""
    made: dict[tuple[float | None, str | None], tuple[Path, str]] = {}

    async def ask(folder: Path, timeout: float | None, run_id: str | None) -> str:
        async with Runtime([desk([], timeout)], store=sqlite_store(folder), grace=0) as rt:
            seen = Asked(rt.hub)
            await rt.start("desk", "Pay 7 back.", session_key="web_ada", run_id=run_id)
            with anyio.fail_after(WAIT):
                (asked,) = await seen.wait(1)
            return asked.prompt_id

    def copy(timeout: float | None, run_id: str | None = None) -> tuple[Path, str]:
        if (timeout, run_id) not in made:
            folder = tmp_path_factory.mktemp("asked") / "store"
            made[timeout, run_id] = folder, anyio.run(ask, folder, timeout, run_id)
        folder, prompt_id = made[timeout, run_id]
        copied = tmp_path_factory.mktemp("copy") / "store"
        shutil.copytree(folder, copied)
        return copied, prompt_id

    return copy


def strike(folder: Path, damage: Damage) -> None:
    """Damage the note of the only open prompt."""
    with sqlite3.connect(folder / "hubbub.db") as db:
        key, value = db.execute(
            "SELECT key, value FROM note WHERE key LIKE ? AND value <> ''", (f"{LASTING}%",)
        ).fetchone()
        new_key, new_value = damage(key, value)
        db.execute("UPDATE note SET key = ?, value = ? WHERE key = ?", (new_key, new_value, key))
    db.close()


def flipped(text: str, bit: int) -> str:
    """A text with one bit of it turned, as SQLite reads it; of another is said nothing."""
    data = bytearray(text.encode())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    return data.decode(errors="replace")


def found(folder: Path) -> list[str]:
    return [str(each) for each in StoreCheck(f"sqlite:{folder}").problems()]


async def approved(folder: Path, prompt_id: str) -> tuple[str, str, list[int]]:
    """What becomes of an approval, of its run, and what was paid."""
    paid: list[int] = []
    async with Runtime([desk(paid)], store=sqlite_store(folder), grace=0) as rt:
        run = await rt.find("web_ada")
        assert run is not None
        with anyio.fail_after(WAIT):
            while (receipt := await rt.hub.approve(prompt_id)).reason.startswith("the process"):
                await anyio.lowlevel.checkpoint()
            outcome = await run.result()
    return receipt.status, outcome.output, paid


STRUCK: dict[str, Damage] = {
    "a value of another type": lambda key, value: (key, value.encode()),
    "a key of another type": lambda key, value: (key.encode(), value),
    "no value": lambda key, value: (key, "{"),
    "a list": lambda key, value: (key, "[1]"),
    "a key of nobody": lambda key, value: (f"{LASTING}nobody", value),
    "an other prefix": lambda key, value: (f"q{key[1:]}", value),
}


@pytest.mark.spec("G-07", "U-03")
@pytest.mark.parametrize("damage", STRUCK.values(), ids=[*STRUCK])
@pytest.mark.parametrize("run_id", [None, "order-7"])
def test_a_damaged_note_neither_stops_the_store_nor_loses_an_approval(
    stores: Callable[..., tuple[Path, str]], damage: Damage, run_id: str | None
) -> None:
    folder, prompt_id = stores(None, run_id)
    strike(folder, damage)
    assert anyio.run(approved, folder, prompt_id) == ("accepted", "Done.", [7])
    assert found(folder) == []


@pytest.mark.spec("G-07", "U-03")
@given(bit=st.integers(0, 5_000), in_key=st.booleans())
@settings(max_examples=15, deadline=None)
def test_an_approval_is_given_whichever_bit_of_its_note_is_turned(
    stores: Callable[..., tuple[Path, str]], bit: int, in_key: bool
) -> None:
    folder, prompt_id = stores(None)
    strike(
        folder,
        lambda key, value: (flipped(key, bit), value) if in_key else (key, flipped(value, bit)),
    )
    assert anyio.run(approved, folder, prompt_id) == ("accepted", "Done.", [7])
    shutil.rmtree(folder)


@pytest.mark.spec("G-07")
@given(bit=st.integers(0, 5_000), in_key=st.booleans())
def test_a_turned_bit_of_a_note_is_noticed(bit: int, in_key: bool) -> None:
    kept = LastingPrompt("run.call", "approval", ("a",), 1, 2, "agent", "a", "tool", "{}")
    note = note_of(kept)
    key, note = (flipped("run.call", bit), note) if in_key else ("run.call", flipped(note, bit))
    try:
        # The bit that divides the note from its checksum makes it one of a version before.
        assert read_note(key, note) == kept and not in_key
    except ValueError:
        return


@pytest.mark.spec("G-07", "U-03")
def test_an_approval_expires_though_its_note_is_damaged(
    stores: Callable[..., tuple[Path, str]],
) -> None:
    folder, _ = stores(0.2)
    strike(folder, lambda key, value: (key, value.replace('"kind"', '"kine"')))

    async def wait() -> tuple[bool, str]:
        paid: list[int] = []
        async with Runtime([desk(paid, 0.2)], store=sqlite_store(folder), grace=0) as rt:
            run = await rt.find("web_ada")
            assert run is not None
            with anyio.fail_after(WAIT):
                outcome = await run.result()
            return outcome.success, str(paid)

    assert anyio.run(wait) == (True, "[]")


@pytest.mark.spec("G-07")
def test_the_check_of_a_store_names_a_damaged_note(
    stores: Callable[..., tuple[Path, str]],
) -> None:
    folder, _ = stores(None)
    strike(folder, lambda key, value: (key, value.replace("desk", "dusk")))
    (problem,) = found(folder)
    assert "note 'pause/" in problem and "checksum" in problem


@pytest.mark.spec("G-07")
@pytest.mark.parametrize("note", ['{"tried":{}', "[1]", "", b"\xff", 7, '{"tried": 5}'])
def test_a_damaged_note_of_suspects_stops_no_store(
    stores: Callable[..., tuple[Path, str]], note: object
) -> None:
    folder, prompt_id = stores(None)
    with sqlite3.connect(folder / "hubbub.db") as db:
        for key in ("runs:tried", "runs:left", "agents", "schedule/x", "asked"):
            db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (key, note))
    db.close()
    assert anyio.run(approved, folder, prompt_id) == ("accepted", "Done.", [7])
