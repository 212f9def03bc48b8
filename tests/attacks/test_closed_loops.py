"""A loop that is closed over a runtime at work: leaving says so, and releases everything.

As users have it who keep a runtime open by hand, over ``loop.run_until_complete``.  Each story is
a program of its own, for asyncio complains about the tasks that were left in the loop.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spec("H-15", "G-03")

PROGRAM = """
import asyncio, sys, threading, time
from hubbub import Agent, Hub, Runtime, ToolError, agent, tool
from hubbub.channels import Channel, Channels
from hubbub.hub.errors import WrongLoop

store, leaving = sys.argv[1:]
entered = []

class Slow:
    name = "slow"
    async def call(self, request, on_delta=None):
        await asyncio.sleep(3600)

@tool
def hold() -> str:
    time.sleep(0.2)
    return "held"

@agent("code", on_restart="resume")
async def code(input, ctx):
    async for message in ctx.messages():
        return message.content

def make(grace=5):
    return Runtime([code, Agent("model", "", model=Slow())], store=store, grace=grace)

async def begin():
    rt = await make().__aenter__()
    run = await rt.start("code", 1)
    await rt.start("model", "x")
    assert (await run.send("kept")).accepted
    stream = await rt.hub.subscribe("*").__aenter__()
    rt.hub.subscribe("*", listen)
    return rt, stream

async def listen(event):
    await asyncio.sleep(3600)

loop = asyncio.new_event_loop()
rt, stream = loop.run_until_complete(begin())
channels = Channels(rt.hub, Channel("channel"))
loop.run_until_complete(channels.__aenter__())
loop.close()

async def leave():
    try:  # As ``async with rt, channels`` does it.
        if leaving == "hub":
            await rt.hub.aclose()
        elif leaving == "stream":
            await stream.__aexit__(None, None, None)
        elif leaving == "channels":
            await channels.__aexit__(None, None, None)
    finally:
        await rt.__aexit__(None, None, None)

for _ in range(2):
    try:
        asyncio.run(leave())
    except WrongLoop as error:
        print(error)
for each in threading.enumerate():
    if each.name.startswith("hubbub"):
        each.join(10)
        assert not each.is_alive(), each

async def again():
    async with make(grace=0) as rt:
        runs = await rt.hub.journal.runs(live=False)
        return [await (await rt.handle(run.run_id)).result() for run in runs if run.agent == "code"]

if store != "memory":
    (outcome,) = asyncio.run(again())
    assert outcome.output == "kept", outcome
print("reopened")
"""


@pytest.mark.parametrize(
    ("store", "leaving"),
    [("memory", "runtime"), ("sqlite", "runtime"), ("sqlite", "hub"), ("sqlite", "stream"),
     ("sqlite", "channels")],
)  # fmt: skip
def test_leaving_after_the_loop_was_closed_raises_and_releases_everything(
    store: str, leaving: str, tmp_path: Path
) -> None:
    where = store if store == "memory" else f"sqlite:{tmp_path}"
    came = subprocess.run(
        [sys.executable, "-c", PROGRAM, where, leaving],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False,
    )  # fmt: skip
    said = came.stdout.splitlines()
    assert came.returncode == 0 and said[-1:] == ["reopened"], came.stderr[-3000:]
    assert len(said) == 3
    assert all("that loop was closed while tasks were at work" in each for each in said[:2])
