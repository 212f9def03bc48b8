"""The process that is killed.

    python tests/torture/worker.py FOLDER --loop trio --life 7 --seed 3 [--finish]

Works on the store in FOLDER until somebody kills it, and says on its standard output, line by
line, what it has been told is so: after the awaiting of it has returned, and not before.  With
``--finish`` it only goes on with what earlier lives have left, and ends when nothing is at work.
"""

import argparse
import os
import random
import sys
from pathlib import Path
from time import perf_counter

import anyio

sys.path.insert(0, str(Path(__file__).parents[1]))

from hubbub import Message, Retention, Runtime
from hubbub.runtime.schedules.schedules import Cron
from torture.workload import ORDERS, SCHEDULED, SECRET, TICKED, Effects, agents

__all__ = ["main"]

USERS = 5
LIVES_A_CONVERSATION = 3


def tell(*words: object) -> None:
    """One line, whole or not at all: a pipe takes as much at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--loop", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--life", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--finish", action="store_true")
    parser.add_argument("--store", default="", help="another one than that in FOLDER")
    parser.add_argument("--ended", type=float, help="seconds after which an ended tree goes")
    options = parser.parse_args()
    anyio.run(_live, options, backend=options.loop)


async def _live(options: argparse.Namespace) -> None:
    effects = Effects(options.folder / "effects.log")
    ticks = Cron("tick", "* * * * * *", SCHEDULED, f"safe#{TICKED}", misfire="latest")
    start = perf_counter()
    async with Runtime(
        agents(effects, tell), store=options.store or f"sqlite:{options.folder / 'store'}",
        schedules=() if options.finish else (ticks,),
        retention=None if options.ended is None else Retention(ended=options.ended),
    ) as runtime:  # fmt: skip
        tell("open", round(1000 * (perf_counter() - start), 1))
        if options.finish:
            await _until_quiet(runtime)
            tell("quiet")
            return
        async with anyio.create_task_group() as group:
            for number in range(USERS):
                draw = random.Random(options.seed * 1000 + number)
                group.start_soon(_converse, runtime, options.life, number, draw)
            group.start_soon(_employ, runtime, options.life)


async def _until_quiet(runtime: Runtime) -> None:
    while True:
        await runtime.hub.journal.flush()
        infos = await runtime.hub.journal.runs()
        if all(info.status == "parked" and not info.waiting for info in infos):
            return
        await anyio.sleep(0.02)


async def _converse(runtime: Runtime, life: int, user: int, draw: random.Random) -> None:
    """One user: orders, each with a key, some of them sent again."""
    key = f"user{user}x{life // LIVES_A_CONVERSATION}"
    run = await runtime.start("lead", session_key=key, env={SECRET: f"secret_of_{key}"})
    tell("started", run.run_id, key)
    tell("secret", run.run_id, f"secret_of_{key}")
    number = 0
    while True:
        number += 1
        name = f"l{life}u{user}m{number}"
        whats = draw.sample(ORDERS, draw.randint(1, 3))
        orders = " ".join(f"{what}#{name}o{at}" for at, what in enumerate(whats))
        message = Message(orders, key=name)
        receipt = await runtime.hub.send_to_run(run.run_id, message)
        if not receipt.accepted:
            tell("refused", run.run_id, receipt.reason)
            return
        tell("accepted", run.run_id, name)
        if draw.random() < 0.3:
            again = await runtime.hub.send_to_run(run.run_id, message)
            tell("again", run.run_id, name, again.status)
        if draw.random() < 0.7:
            await run.result()
            tell("answered", run.run_id, name)
        await anyio.sleep(draw.random() * 0.03)


async def _employ(runtime: Runtime, life: int) -> None:
    """One code agent after another."""
    number = 0
    while True:
        number += 1
        run = await runtime.start("clerk", f"l{life}k{number}")
        tell("employed", run.run_id)
        await runtime.hub.send_to_run(run.run_id, Message("hello", key="hello"))
        tell("accepted", run.run_id, "hello")
        outcome = await run.finished()
        tell("finished", run.run_id, outcome.outcome)


if __name__ == "__main__":
    main()
