"""A child that is forked off by code of a run's, or beside it: nothing goes on in both processes.

No model is asked there, no tool run and nobody told, neither of the run that forked nor of another.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAM: Final = """
import json, multiprocessing, os, sys, time
import anyio
from hubbub import (
    Agent, FunctionModel, Hook, RunContext, RunState, Runtime, agent, tool,
)
from hubbub.agents.model import AssistantMessage
from hubbub.runtime.models.scripted import call, reply

LOOP, STORE, PLACE, WAY, NOTES = sys.argv[1:]
PARENT = os.getpid()
children = []

def note(text):
    with open(NOTES, "a") as notes:
        notes.write(f"{'parent' if os.getpid() == PARENT else 'child'} {text}\\n")

class Failed(Exception):
    pass

def fork():
    # Once, where it is called. What the child does then is all that it may do.
    if children or os.getpid() != PARENT:
        return
    if WAY == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=note, args=("works",))
        process.start()
        children.append(process.pid)
        return
    if child := os.fork():
        children.append(child)
        return
    if WAY == "raises":
        raise Failed("in the child")
    if WAY == "exits":
        raise SystemExit(5)

async def forks():
    fork()
    if WAY == "waits" and os.getpid() != PARENT:
        await anyio.sleep(0.01)
        note("waited")

def at(place):
    if place == PLACE:
        fork()

async def waits_at(place):
    if place == PLACE:
        await forks()

@tool
async def first(state: RunState) -> str:
    "First."
    note("first")
    await anyio.sleep(0.05)
    await waits_at("async tool")
    return "1"

def is_needed() -> bool:
    note("predicate")
    at("predicate")
    return False

@tool(approval=is_needed)
async def second() -> str:
    "Second."
    note("second")
    return "2"

@tool
async def tick() -> str:
    "Tick."
    await anyio.sleep(0.02)
    note("tick")
    return "t"

def plain(request):
    note("model")
    at("plain model")
    answers = sum(isinstance(each, AssistantMessage) for each in request.messages)
    if not answers:
        return reply("", call("first"), call("second"))
    return call("second") if answers == 1 else "done"

async def model(request):
    answer = plain(request)
    await waits_at("async model")
    return answer

def ticking(request):
    answers = sum(isinstance(each, AssistantMessage) for each in request.messages)
    return call("tick") if answers < 25 else "over"

def before(state, value):
    note("hook")
    at("plain hook")

async def after(state, value):
    note("next hook")
    await waits_at("async hook")

@agent("code")
async def code(input, ctx: RunContext):
    await anyio.sleep(0.05)
    note("code")
    await waits_at("code")
    return 1

def hears(event):
    note("hears")
    at("plain listener")

async def hears_later(event):
    note("hears later")
    await waits_at("async listener")

hooks = [
    Hook("before", "before_create_message", before), Hook("after", "before_create_message", after)
]
bot = Agent(
    "bot", "x", model=FunctionModel(model), tools=[first, second], hooks=["before", "after"]
)
other = Agent("other", "x", model=FunctionModel(ticking), tools=[tick])

def ended(child):
    for _ in range(800):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "it lives"

async def main():
    async with Runtime([bot, other, code], store=STORE, hooks=hooks) as rt:
        for handler in (hears, hears_later, hears_later, hears):
            rt.hub.subscribe("agent:tool:complete", handler)
        beside = await rt.start("other", "x")
        runs = [await rt.start("bot", "x"), await rt.start("code", "x")]
        with anyio.fail_after(20):
            if PLACE == "body":
                await anyio.sleep(0.1)
                await forks()
            if PLACE == "plain tool":
                await anyio.to_thread.run_sync(fork)
            outputs = [(await run.result()).output for run in runs]
            outputs.append((await beside.result()).output)
        code_of_child = ended(children[0])
    children.clear()
    print(json.dumps({"code": code_of_child, "outputs": outputs}), flush=True)

try:
    anyio.run(main, backend=LOOP)
finally:
    if os.getpid() != PARENT:
        os._exit(99)
"""

PLACES: Final = (
    "async tool", "plain model", "async model", "predicate", "plain hook", "async hook", "code",
    "plain listener", "async listener",
)  # fmt: skip

CODES: Final = {"returns": 0, "raises": 1, "exits": 5, "waits": 1, "multiprocessing": 0}
"""What a child does next, and how it ends."""

WAITING: Final = ("async tool", "async model", "async hook", "code", "async listener", "body")

ROWS: Final = (
    *(("memory", place, way) for place in PLACES for way in ("returns", "raises")),
    *(("memory", place, "exits") for place in ("async tool", "plain hook", "plain listener")),
    *(("memory", place, "waits") for place in WAITING),
    *(("memory", place, "multiprocessing") for place in ("async tool", "plain hook", "body")),
    *(("sqlite", place, "returns") for place in PLACES),
    ("sqlite", "async tool", "waits"), ("sqlite", "body", "waits"),
)  # fmt: skip


def told(loop: str, store: str, place: str, way: str, folder: Path) -> tuple[Any, list[str]]:
    """What the program says, and what parent and child have done."""
    notes = folder / "notes"
    at = "memory" if store == "memory" else f"sqlite:{folder / 'store'}"
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, loop, at, place, way, str(notes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), notes.read_text().splitlines()


@pytest.mark.long
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize(("store", "place", "way"), ROWS)
def test_nothing_of_a_runtime_goes_on_in_a_forked_child(
    store: str, place: str, way: str, loop: str, tmp_path: Path
) -> None:
    """The child ends where its code returns to the library, raises, or waits; it may also end by
    itself."""
    said, done = told(loop, store, place, way, tmp_path)
    in_child = [line for line in done if line.startswith("child")]
    assert in_child == (["child works"] if way == "multiprocessing" else [])
    assert said == {"code": CODES[way], "outputs": ["done", 1, "over"]}
    counts = [done.count(f"parent {each}") for each in ("first", "second", "tick", "code")]
    assert counts == [1, 2, 25, 1]


AFTER: Final = """
import os, sys
import anyio
from hubbub import Runtime

async def main():
    async with Runtime():
        pass
    child = os.fork()
    if not child:
        with anyio.CancelScope() if sys.argv[1] == "trio" else open(os.devnull):
            for _ in range(3):
                await (anyio.sleep(0) if sys.argv[1] == "trio" else others())
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)

class others:
    def __await__(self):
        yield

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_what_is_forked_off_when_a_runtime_was_left_is_nothing_to_it(loop: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", AFTER, loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "7\n", done.stderr
