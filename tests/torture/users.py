"""``Users``: people who converse with agents through one channel, and say what they were told."""

import random
from collections.abc import Callable
from itertools import count
from time import perf_counter
from typing import Any, Final

import anyio

from hubbub import Message, Runtime
from hubbub.hub.events import SessionPrompt
from hubbub.hub.receipt import Receipt
from torture.workload import GUIDE, ORDERS, SECRET, WITH_USERS, secret_of

__all__ = ["Users"]

CONVERSATIONS: Final = 20
EMPLOYERS: Final = 2
"""Those who have code agents work."""

PAUSE: Final = 0.4
"""Seconds between two messages of a conversation, at most."""

ORDERED: Final = (*ORDERS, "risky", *WITH_USERS)


class Users:
    """``tell`` notes what has been acknowledged.

    What they say has names that begin with ``seed`` and ``life``: those of other channels, before
    or beside this one, say something else to the same agents.
    """

    def __init__(
        self, runtime: Runtime, tell: Callable[..., None], *, seed: int, life: int
    ) -> None:
        self._runtime, self._hub, self._tell = runtime, runtime.hub, tell
        self._seed, self._life = seed, life
        self._answered: set[str] = set()
        """Prompts."""

    async def talk(self) -> None:
        """Converse, until this is cancelled."""
        async with anyio.create_task_group() as group:
            for user in range(CONVERSATIONS):
                group.start_soon(self._converse, user, self._draw(user))
            for number in range(EMPLOYERS):
                group.start_soon(self._employ, number)

    def _draw(self, user: int) -> random.Random:
        return random.Random(f"{self._seed} {self._life} {user}")

    # ── conversations ────────────────────────────────────────────────────────────────────────

    async def _converse(self, user: int, draw: random.Random) -> None:
        """Orders, each with a key, some of them sent again; interruptions, and some endings."""
        numbers = count(1)
        for life in count(1):
            secret = secret_of(f"u{user}")
            opened = await self._hub.open(
                "lead", session_key=f"user{user}x{life}", env={SECRET: secret}
            )
            if not await self._is_accepted(opened):
                continue
            self._tell("opened", opened.run_id)
            self._tell("secret", opened.run_id, secret)
            for _ in range(draw.randint(5, 20)):
                name = f"u{user}c{self._life}m{next(numbers)}"
                if not await self._order(opened.run_id, name, draw):
                    break
                await self._wait(opened.run_id, name, draw)
            if draw.random() < 0.3:
                ended = await self._hub.terminate(opened.run_id, "enough")
                if await self._is_accepted(ended):
                    self._tell("terminated", opened.run_id)

    async def _order(self, run_id: str, name: str, draw: random.Random) -> bool:
        """Whether the conversation goes on."""
        whats = draw.sample(ORDERED, draw.randint(1, 2))
        orders = " ".join(f"{what}#{name}o{at}" for at, what in enumerate(whats))
        message, start = Message(orders, key=name), perf_counter()
        receipt = await self._hub.send_to_run(run_id, message)
        if not await self._is_accepted(receipt):
            return False
        self._tell("accepted", run_id, name, round(1000 * (perf_counter() - start), 2))
        if draw.random() < 0.2:
            again = await self._hub.send_to_run(run_id, message)
            self._tell("again", run_id, name, again.status)
        return True

    async def _wait(self, run_id: str, name: str, draw: random.Random) -> None:
        """For the answer, or not; some have no patience."""
        chance = draw.random()
        if chance < 0.5:
            with anyio.move_on_after(20):
                await self._runtime.result(run_id)
        elif chance < 0.6:
            receipt = await self._hub.interrupt(run_id, name)
            if await self._is_accepted(receipt):
                self._tell("interrupted", run_id, name)
        await anyio.sleep(draw.random() * PAUSE)

    async def _employ(self, number: int) -> None:
        """One code agent after another."""
        for job in count(1):
            opened = await self._hub.open("clerk", f"c{self._life}n{number}j{job}")
            if not await self._is_accepted(opened):
                continue
            self._tell("opened", opened.run_id)
            outcome = await self._runtime.finished(opened.run_id)
            self._tell("finished", opened.run_id, outcome.outcome)

    async def _is_accepted(self, receipt: Receipt) -> bool:
        """Whether something was accepted, or is there already."""
        if receipt.status == "rejected":
            self._tell("refused", receipt.run_id or "-", receipt.reason)
            if receipt.failed_store:  # The member says so, and that ends the story.
                await anyio.sleep_forever()
        return receipt.status != "rejected"

    # ── prompts ──────────────────────────────────────────────────────────────────────────────

    async def answer_open(self) -> None:
        """Answer what was asked before anybody listened."""
        for asked in await self._hub.ask("runtime", "prompts"):
            await self.answer(asked["run_id"], asked["prompt_id"], asked["kind"], asked["question"])

    async def answer(self, run_id: str, prompt_id: str, kind: str, question: str) -> None:
        """Two answer at once, and do not agree."""
        if prompt_id in self._answered:
            return
        self._answered.add(prompt_id)
        async with anyio.create_task_group() as group:
            for number in range(2):
                draw = random.Random(f"{self._life} {number} {prompt_id}")
                text = f"{question}={self._life}.{number}"
                if kind == "approval":
                    text = draw.choice(("approve", "approve", "deny"))
                group.start_soon(self._reply, run_id, prompt_id, text)

    async def _reply(self, run_id: str, prompt_id: str, text: str) -> None:
        receipt = await self._hub.reply(prompt_id, text)
        if receipt.accepted:
            self._tell("replied", run_id, prompt_id, text)

    def answer_to(self, prompt: SessionPrompt) -> tuple[Any, ...]:
        """What ``answer`` is to be called with."""
        return (prompt.run_id, prompt.prompt_id, prompt.kind, prompt.question)

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    async def rest(self) -> None:
        """Return when all is done that was begun: agents who want to know more are told so."""
        journal = self._hub.journal
        for number in count():
            await journal.flush()
            infos = await journal.runs()
            if all(x.status == "ended" or (x.status == "parked" and not x.waiting) for x in infos):
                return
            guided = {x.root_run_id for x in infos if x.agent == GUIDE and x.status != "ended"}
            if number % 10 == 9:
                for run_id in guided:
                    name = f"over{self._life}n{number}"
                    receipt = await self._hub.send_to_run(run_id, Message("No more.", key=name))
                    if receipt.accepted:
                        self._tell("accepted", run_id, name, 0)
                await self.answer_open()
            await anyio.sleep(0.1)
