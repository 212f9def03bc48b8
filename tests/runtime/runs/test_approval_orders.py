"""Approvals and external calls in any order of answers, messages, interruptions and restarts.

A plain model says what each call of a step comes to; the library agrees, whatever is drawn.
"""

import random
from typing import Any

import anyio
import pytest
from attacks.scale import scale
from support.agents import model_agent
from support.asked import Asked
from support.crash_journal import CrashJournal
from support.families import Recorder

from hubbub import Runtime, external_tool, tool
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("U-03", "U-04", "H-10")]

ROOT = "root-1"
KINDS = ("plain", "guarded", "pick")


class Model:
    """What the calls of one step come to."""

    def __init__(self, kinds: list[str], *, parallel: bool) -> None:
        self.kinds = kinds
        self.parallel = parallel
        self.results: dict[int, str] = {}
        self.approved: set[int] = set()
        self.ran: list[int] = []
        self.go_on()

    @property
    def pending(self) -> list[int]:
        """Calls that wait for an answer, by index."""
        return [
            at for at, kind in enumerate(self.kinds)
            if kind != "plain" and at not in self.results and at not in self.approved
        ]  # fmt: skip

    def go_on(self) -> None:
        """Calls run in their turn."""
        for at, kind in enumerate(self.kinds):
            if at in self.results:
                continue
            if kind == "plain" or at in self.approved:
                self.ran.append(at)
                self.results[at] = f"ran {at}"
            elif not self.parallel:
                return

    def answer(self, at: int, text: str | None) -> None:
        """An approval (``None``), or what a call comes to."""
        if text is None:
            self.approved.add(at)
        else:
            self.results[at] = text
        self.go_on()

    def message(self, text: str) -> None:
        for at in self.pending:
            denied = f"not run: denied: {text}"
            self.results[at] = denied if self.kinds[at] == "guarded" else f"no result: {text}"
        self.go_on()

    def interrupt(self) -> None:
        for at in range(len(self.kinds)):
            self.results.setdefault(at, "interrupted: enough")


class Story:
    """One step of calls, and what people do about it."""

    def __init__(self, ports: Ports, seed: int) -> None:
        self.draw = random.Random(seed)
        self.ports = ports
        kinds = [self.draw.choice(KINDS) for _ in range(self.draw.randint(1, 5))]
        kinds[self.draw.randrange(len(kinds))] = self.draw.choice(KINDS[1:])
        self.model = Model(kinds, parallel=self.draw.random() < 0.5)
        self.is_late = self.draw.random() < 0.5
        self.said_before = self.draw.random() < 0.5
        self.journal = MemoryJournal()
        self.ran: list[int] = []
        self.prompts: dict[int, str] = {}

    def agents(self) -> list[Any]:
        @tool
        async def plain(at: int) -> str:
            self.ran.append(at)
            return f"ran {at}"

        @tool(approval=True)
        async def guarded(at: int) -> str:
            self.ran.append(at)
            return f"ran {at}"

        pick = external_tool("pick", {
            "type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"],
        })  # fmt: skip
        calls = [call(kind, at=at) for at, kind in enumerate(self.model.kinds)]
        model = Recorder(reply("", *calls), "Done.", latency=5.0)
        parallel = self.model.parallel
        return [model_agent(model, plain, guarded, pick, parallel_tool_calls=parallel)]

    async def live(self) -> None:
        is_new = True
        while is_new or self.model.pending:
            crashing: Any = CrashJournal(self.journal)
            store: Any = LateJournal(crashing) if self.is_late else crashing
            async with Runtime(self.agents(), store=store, ports=self.ports, grace=0) as rt:
                if is_new:
                    asked = Asked(rt.hub)
                    await rt.hub.open("assistant", "Go.", run_id=ROOT)
                    await anyio.sleep(1)
                    if self.said_before:  # What is asked then is not answered by it.
                        await rt.hub.send_to_run(ROOT, "And thanks!")
                    await asked.wait(len(self.model.pending))
                    self.prompts = {x.arguments["at"]: x.prompt_id for x in asked.prompts}
                    is_new = False
                    await anyio.sleep(1)
                while self.model.pending and self.draw.random() < 0.8:
                    await self.do_something(rt)
                    await anyio.sleep(1)
                if not self.model.pending:
                    await rt.result(ROOT)
                else:
                    crashing._after = crashing.commits
        loaded = await self.journal.load(ROOT)
        assert loaded is not None
        done = {int(x.index): x.output for x in loaded.events if isinstance(x, e.AgentToolComplete)}
        assert done == self.model.results
        assert sorted(self.ran) == sorted(self.model.ran)
        if not self.model.parallel:
            assert self.ran == self.model.ran
        taken = [x for x in loaded.events if isinstance(x, e.SessionTaken)]
        said = [getattr(item, "content", "") for each in taken for item in each.items]
        assert said.count("And thanks!") == self.said_before
        ended = [x.prompt_id for x in loaded.events if isinstance(x, e.SessionPromptEnd)]
        assert sorted(ended) == sorted(self.prompts.values())

    async def do_something(self, rt: Runtime) -> None:
        draw, model, hub = self.draw, self.model, rt.hub
        what = draw.choice(["approve", "deny", "reply", "text", "again", "message", "interrupt"])
        at = draw.choice(model.pending)
        prompt_id, is_guarded = self.prompts[at], model.kinds[at] == "guarded"
        match what:
            case "approve":
                receipt = await hub.approve(prompt_id)
                assert receipt.accepted == is_guarded
                if is_guarded:
                    model.answer(at, None)
            case "deny":
                assert (await hub.deny(prompt_id, "no")).accepted
                model.answer(at, "not run: denied: no" if is_guarded else "no result: no")
            case "reply" | "text":
                text = "approve" if what == "text" else "well"
                assert (await hub.reply(prompt_id, text)).accepted
                if not is_guarded:
                    model.answer(at, text)
                else:
                    model.answer(at, None if what == "text" else "not run: denied: well")
            case "again":
                decided = [x for x in self.prompts if x not in model.pending]
                if decided:
                    late = self.prompts[draw.choice(decided)]
                    assert (await hub.reply(late, "approve")).rejected
            case "message" if draw.random() < 0.4:
                await hub.send_to_run(ROOT, "Stop that.")
                model.message("Stop that.")
            case "interrupt" if draw.random() < 0.3:
                await hub.interrupt(ROOT, "enough")
                model.interrupt()
            case _:
                await anyio.sleep(100)


@pytest.mark.parametrize("block", range(4))
async def test_every_call_comes_to_what_people_decided(block: int, ports: Ports) -> None:
    for seed in range(scale(25, 1000)):
        story = Story(ports, 1000 * block + seed)
        try:
            await story.live()
        except BaseException as error:
            error.add_note(f"seed {1000 * block + seed}: {story.model.kinds}")
            raise
