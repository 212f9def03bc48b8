"""Killed after any commit between call, prompt, answer and effect (U-03, U-04, P-10).

A step asks for an approval that is given, one that is denied, and the result of an external tool;
then one more is approved with other arguments.  Nothing unapproved ever runs, an approved call that
has finished runs once, each prompt keeps its id, and no answer that was acknowledged is lost.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.crash_journal import CrashJournal
from support.profiles import portion

from hubbub import AgentDefinition, Message, Runtime, external_tool, tool
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.prompts import open_prompts_of
from hubbub.agents.state.thread import EMPTY
from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

ROOT = "root-1"
SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}

ANSWERS: dict[str, Callable[[Any, str], Any]] = {
    f"{ROOT}.call_1_1": lambda hub, id_: hub.approve(id_),
    f"{ROOT}.call_1_2": lambda hub, id_: hub.reply(id_, "picked"),
    f"{ROOT}.call_1_3": lambda hub, id_: hub.deny(id_, "no"),
    f"{ROOT}.call_2_0": lambda hub, id_: hub.approve(id_, {"order": 5}),
}


class Shop:
    """Lives of one store in which orders are refunded, and what was done in all of them."""

    def __init__(self, kind: str, folder: Path, *, idempotent: bool = False) -> None:
        self.kind = kind
        self.folder = folder
        self.ports: Ports = virtual_ports()
        self.refunded: list[int] = []
        self.approved: set[str] = set()
        """What a person has wanted to approve."""
        self.acknowledged: set[str] = set()
        self.shown: list[str] = []
        self._memory = MemoryJournal()
        self._idempotent = idempotent

    def agent(self) -> AgentDefinition:
        @tool(approval=lambda order: order != 0, idempotent=self._idempotent)
        async def refund(order: int) -> str:
            asked = {1: f"{ROOT}.call_1_1", 2: f"{ROOT}.call_1_3", 5: f"{ROOT}.call_2_0"}[order]
            assert asked in self.approved, "it was not approved"
            await anyio.sleep(1)
            self.refunded.append(order)
            return f"refunded {order}"

        @tool
        async def look() -> str:
            await anyio.sleep(1)
            return "looked"

        def answer(request: ModelRequest) -> Any:
            steps = sum(isinstance(m, AssistantMessage) for m in request.messages)
            if not steps:
                return reply("", call("look"), call("refund", order=1), call("pick", what="x"),
                             call("refund", order=2))  # fmt: skip
            return call("refund", order=4) if steps == 1 else "Done."

        model = FunctionModel(answer, latency=1.0)
        return model_agent(model, refund, look, external_tool("pick", SCHEMA))

    def journal(self) -> Journal:
        if self.kind == "sqlite":
            return sqlite_store(self.folder, ports=self.ports, mirror=False)
        return self._memory

    async def live(self, after: int | None = None) -> bool:
        """One process, until all is said and done, or it is dead.  Was it all?"""
        over = False
        crashing = CrashJournal(self.journal(), after)
        store: Any = LateJournal(crashing) if self.kind == "late" else crashing
        async with Runtime([self.agent()], store=store, ports=self.ports, grace=0) as rt:
            async with anyio.create_task_group() as group:

                async def go() -> None:
                    nonlocal over
                    await self._serve(rt, group)
                    over = True
                    group.cancel_scope.cancel()

                group.start_soon(go)
                with anyio.fail_after(10_000):
                    await crashing.crashed.wait()
                group.cancel_scope.cancel()
            self.commits = crashing.commits
        return over

    async def _serve(self, rt: Runtime, group: Any) -> None:
        rt.hub.subscribe("session:prompt", lambda x: group.start_soon(self._answer, rt, x))
        loaded = await rt.hub.journal.load(ROOT)
        if loaded is not None:  # Shown again.
            for prompt in open_prompts_of(fold_all(EMPTY, loaded.events)):
                group.start_soon(self._answer, rt, prompt)
        await rt.hub.open("assistant", Message("Refund.", key="m"), run_id=ROOT, source="web")
        await rt.result(ROOT)

    async def _answer(self, rt: Runtime, prompt: Any) -> None:
        """A person reads, and answers; not again what was acknowledged."""
        self.shown.append(prompt.prompt_id)
        await anyio.sleep(2)
        if prompt.prompt_id in self.acknowledged:
            return
        if prompt.kind == "approval" and prompt.prompt_id != f"{ROOT}.call_1_3":
            self.approved.add(prompt.prompt_id)
        receipt = await ANSWERS[prompt.prompt_id](rt.hub, prompt.prompt_id)
        # A process before may have got the answer, and died before it could say so.
        known = receipt.status == "duplicate" or receipt.reason in (
            "approved",
            "answered",
            "denied",
        )
        assert receipt.status == "accepted" or known, receipt
        self.acknowledged.add(prompt.prompt_id)

    async def lane(self) -> list[e.Event]:
        journal = self.journal()
        await journal.open()
        try:
            loaded = await journal.load(ROOT)
            assert loaded is not None
            return list(loaded.events)
        finally:
            await journal.aclose()

    async def check(self) -> None:
        lane = await self.lane()
        opened = [x.prompt_id for x in lane if isinstance(x, e.SessionPrompt)]
        assert sorted(opened) == sorted(ANSWERS), "each is asked once, by the same id"
        ended = [x.prompt_id for x in lane if isinstance(x, e.SessionPromptEnd)]
        assert sorted(ended) == sorted(ANSWERS)
        done = {x.call_id: x for x in lane if isinstance(x, e.AgentToolComplete)}
        lost = {order for order, id_ in ((1, "1.1"), (5, "2.0")) if done[id_].output == LOST}
        for order, id_ in ((1, "1.1"), (5, "2.0")):
            times = self.refunded.count(order)
            if order in lost:
                assert times <= 1
            else:
                assert done[id_].output == f"refunded {order}"
                assert times == 1 or (self._idempotent and times == 2)
        assert len(lost) <= (0 if self._idempotent else 1)
        assert 2 not in self.refunded and 4 not in self.refunded
        assert done["1.3"].output == "not run: denied: no"
        assert done["1.2"].output == "picked"
        assert '{"order":5}' in done["2.0"].notes[0]
        texts = [x.text for x in lane if isinstance(x, e.AgentText)]
        assert texts == ["Done."]


@pytest.mark.spec("U-03", "U-04", "P-10", "H-10")
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
async def test_killed_after_any_commit_nothing_unapproved_runs_and_no_answer_is_lost(
    store: str, idempotent: bool, tmp_path: Path
) -> None:
    whole = Shop(store, tmp_path / "whole", idempotent=idempotent)
    assert await whole.live()
    await whole.check()
    assert whole.refunded == [1, 5]
    for after in portion(range(whole.commits)):
        shop = Shop(store, tmp_path / str(after), idempotent=idempotent)
        try:
            over = await shop.live(after)
            if not over:
                assert await shop.live()
            await shop.check()
        except BaseException as error:
            error.add_note(f"killed after {after} of {whole.commits} commits")
            raise
