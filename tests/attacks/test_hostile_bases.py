"""Whatever stands in a base of an export, also in the last one, which no record depends on yet: it
is refused, or the run can be read, and goes on."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.pruned_stores import problems

from attacks.hostile_values import mutated
from attacks.scale import scale
from hubbub import (
    Agent,
    FunctionModel,
    Image,
    Limits,
    Message,
    ModelRequest,
    Retention,
    RunState,
    Runtime,
    tool,
)
from hubbub.__main__ import main
from hubbub.agents.model import AssistantMessage
from hubbub.hub.errors import OperatorError
from hubbub.hub.events import HubErrorEvent
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.inspection.imports import import_runs
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.exchange import lanes, run_check
from hubbub.runtime.stores.exchange.export import export_run
from hubbub.runtime.stores.open import open_reader

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-04")]

BASE = b'"type":"agent:base"'
PNG = b"\x89PNG\r\n\x1a\n"


@tool
async def note(text: str, state: RunState) -> str:
    """Write something down."""
    await state.files.write("notes.txt", text)
    await state.kv.set("last", {"text": text})
    return "noted"


def answer(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        return "done"
    name = {"number 1": "note", "number 2": "helper"}.get(str(last.content))
    return (
        "fine"
        if name is None
        else call(name, **{"note": {"text": "x"}}.get(name, {"message": "x"}))
    )


def agents() -> list[Agent]:
    helper = Agent("helper", "You help.", model=FunctionModel(lambda _: "helped"))
    tools = [note, helper.as_tool()]
    return [Agent("desk", "You serve.", model=FunctionModel(answer), tools=tools)]


async def export_with_bases(store: str, ports: Ports) -> tuple[str, list[bytes]]:
    """A run that has lost its first turns, and has a base with records before it, too."""
    kept = Retention(keep_turns=2)
    async with Runtime(agents(), store=store, ports=ports, retention=kept) as rt:
        first = Message("look", parts=[Image(data=PNG)])
        run = await rt.start("desk", first, session_key="chat", limits=Limits(model_calls=900))
        for turn in range(12):
            await run.ask(f"number {turn}")
        await anyio.sleep(120)
        for turn in range(6):
            await run.ask(f"more {turn}")
    with open_reader(store) as reader:
        lines = list(export_run(reader, run.run_id))
    events = [json.loads(line).get("event", {}) for line in lines]
    own = [x for x in events if x.get("lane") == "own" and x["run_id"] == run.run_id]
    at = [i for i, x in enumerate(own) if x["type"] == "agent:base"]
    assert own[at[0]]["seq"] > own[at[0] - 1]["seq"] + 1
    assert own[at[-1]]["seq"] == own[at[-1] - 1]["seq"] + 1
    return run.run_id, lines


def refused(store: str, lines: Sequence[bytes], ports: Ports) -> str:
    """Why an import is refused; empty where it is not."""
    try:
        import_runs(store, "f.jsonl", lines, ports=ports)
    except OperatorError as error:
        return str(error)
    return ""


async def goes_on(store: str, run_id: str) -> None:
    """A message to the run is answered, and so is one to a fork of it."""
    told: list[str] = []
    async with Runtime(agents(), store=store, ports=virtual_ports(1)) as rt:
        rt.hub.subscribe(HubErrorEvent, lambda event: told.append(event.error))
        with anyio.fail_after(600):
            run = await rt.handle(run_id)
            assert (await run.ask("and now?")).output == "fine"
            fork = await rt.fork(run_id, message="and here?")
            assert (await fork.result()).output == "fine"
    assert told == []


async def test_a_base_with_any_value_replaced_is_refused_or_its_run_goes_on(
    tmp_path: Path, ports: Ports
) -> None:
    run_id, lines = await export_with_bases(f"sqlite:{tmp_path / 'made'}", ports)
    places = [i for i, line in enumerate(lines) if BASE in line]
    chance, kept = random.Random(7), 0
    rounds = scale(120, 3_000)
    for number in range(rounds):
        place = places[number % len(places)]
        document = mutated(chance, json.loads(lines[place]), (run_id, "call_1_0"))
        changed = [*lines[:place], json.dumps(document).encode() + b"\n", *lines[place + 1 :]]
        store = f"sqlite:{tmp_path / 'imported'}"
        if why := refused(store, changed, ports):
            assert why.startswith("f.jsonl line ") and "\n" not in why
            continue
        kept += 1
        assert problems(store) == []
        await goes_on(store, run_id)
        assert problems(store) == []
        shutil.rmtree(tmp_path / "imported")
    assert kept < rounds // 2


async def test_the_last_base_of_a_run_is_read_before_it_takes_the_place_of_a_good_one(
    tmp_path: Path,
    ports: Ports,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an import refuses, ``fsck`` finds where a store has it of an older version."""
    store, file = f"sqlite:{tmp_path / 'made'}", tmp_path / "bad.jsonl"
    run_id, lines = await export_with_bases(store, ports)
    place = max(i for i, line in enumerate(lines) if BASE in line)
    for old, new, why in (
        (b'"transcript":[{"type":"user"', b'"transcript":[{"type":"x"', "its base cannot be read"),
        (b'"limits":{"model_calls":900}', b'"limits":{"model_calls":5}', "says limits"),
        (b'"depth":0', b'"depth":3', "says depth 3 of its origin, which is 0"),
    ):
        assert old in lines[place]
        bad = lines[place].replace(old, new)
        file.write_bytes(b"".join([*lines[:place], bad, *lines[place + 1 :]]))
        for more in (["--replace", "--store", store], ["--store", f"sqlite:{tmp_path / 'new'}"]):
            assert main(["import", str(file), *more]) != 0
            assert why in capsys.readouterr().err
        with monkeypatch.context() as older:
            older.setattr(lanes, "base_problem", lambda *_: "")
            older.setattr(run_check, "contradiction", lambda *_: "")
            assert refused(f"sqlite:{tmp_path / why}", file.read_bytes().splitlines(), ports) == ""
        (found,) = problems(f"sqlite:{tmp_path / why}")
        assert run_id in found and why in found and "from a backup" in found
    assert problems(store) == []
    await goes_on(store, run_id)


@pytest.mark.parametrize("value", [b'"\x80"', b"1e999"], ids=["a text", "a number"])
async def test_a_value_that_nobody_has_read_yet_is_read_before_it_is_kept(
    value: bytes, tmp_path: Path, ports: Ports
) -> None:
    _, lines = await export_with_bases(f"sqlite:{tmp_path / 'made'}", ports)
    for old in (b'"output":"fine"', b'"input":"look"', b'"last":{"text":"x"}'):
        place = max((i for i, line in enumerate(lines) if old in line), default=-1)
        assert place >= 0, old
        bad = lines[place].replace(old, old.split(b":")[0] + b":" + value)
        changed = [*lines[:place], bad, *lines[place + 1 :]]
        why = refused(f"sqlite:{tmp_path / 'new'}", changed, ports)
        assert why.startswith("f.jsonl line ") and "\n" not in why, old
