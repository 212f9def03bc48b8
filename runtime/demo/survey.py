"""The demo: agents at work on real files, on a scripted model, without a network.

    surveyor (a model run) ── list_documents, read_documents, compare_documents
        └── reader (a code run), one per text file ── agent:status, demo:facts, its output

When half of the documents are read, a bystander who knows nothing but the hub sends the surveyor
a message by its ``run_id``; the surveyor sees it at its next step boundary and answers it in its
report.  Whatever is shown of the demo is made of the hub's events alone (``demo_story``).

Over a store that lasts, a demo whose process was killed can be resumed (``resume=True``): what
is on record is not read again, and the viewer is shown all of it, from the beginning.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import msgspec
from msgspec import Struct

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.spawned import SpawnedOutcome, SpawnedRun
from hubbub.agents.definitions.tools import Tool, tool
from hubbub.hub.events import AgentChild, AgentComplete, CustomEvent, Event
from hubbub.hub.hub import Hub
from hubbub.hub.message import Message
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.store import Store
from hubbub.runtime.demo.documents import (
    MAX_DOCUMENTS,
    DocumentFacts,
    FoundDocument,
    Listing,
    document_facts,
    is_document,
    list_documents,
)
from hubbub.runtime.demo.survey_model import Extreme, Overview, Totals, many, surveyor_model
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.runs.context import RunContext
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.text import printable

__all__ = ["READERS", "STEER", "Demo", "Survey", "own_documents", "run_demo", "task_of"]

READERS: Final = 16
"""Documents that are read at once."""

STEER: Final = "Also tell me which file has the longest line."

_NAMED: Final = 20


class Demo(Struct, frozen=True, kw_only=True):
    """What the demo works on.

    ``wanted`` selects files by name.  ``latency`` is how long the scripted model takes for a
    step, in seconds, so that a person can follow.  ``steer`` is said when half is read; empty
    for nothing.
    """

    folder: Path
    wanted: Callable[[str], bool] = lambda name: True
    latency: float = 0.0
    steer: str = STEER
    max_documents: int = MAX_DOCUMENTS


async def run_demo(
    demo: Demo,
    watch: Callable[[Event], object],
    *,
    ports: Ports | None = None,
    journal: Store | None = None,
    resume: bool = False,
) -> RunOutcome:
    """Run the demo to its end; ``watch`` is given each event, in order.

    With ``resume`` the journal's last demo goes on where it was, on the documents of ``demo``.
    Returns how the surveyor's run ended; its output is the report.  What lies in the folder is
    never an exception.  Cancelling leaves nothing behind.
    """
    ports = ports or Ports()
    survey = Survey(demo, ports)
    async with Runtime(
        survey.agents,
        store=journal or "memory",
        ports=ports,
        keep=demo.max_documents + 1000,
        max_spawns=demo.max_documents,
        grace=0,
    ) as runtime:
        survey.runtime = runtime
        bystander = Bystander(runtime.hub, demo.steer)
        runtime.hub.subscribe(
            ["demo:listing", AgentComplete.type], bystander, after="start" if resume else None
        )
        begun = await _last(runtime) if resume else None
        run = begun or await _start(runtime, demo.folder)
        async with run.events() as events:
            async for event in events:
                watch(event)
        return await run.finished()


async def _start(runtime: Runtime, folder: Path) -> Run:
    return await runtime.start("surveyor", task_of(folder), once=True)


def task_of(folder: Path) -> str:
    """The surveyor's task."""
    return f"Survey the documents in {printable(str(folder))} and report."


async def _last(runtime: Runtime) -> Run | None:
    """The surveyor that the journal has, at work or not; ``None`` if it had not begun."""
    known = await runtime.hub.journal.runs(live=False)
    surveyors = [each for each in known if each.agent == "surveyor"]
    return Run(runtime.outcomes, surveyors[-1].run_id, "surveyor") if surveyors else None


def own_documents() -> tuple[Path, Callable[[str], bool]]:
    """What the demo reads by default: hubbub's own documents where they are, as in a clone,
    else every text file of the current folder."""
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        return root, is_document
    return Path.cwd(), lambda name: True


# ── the code agent ───────────────────────────────────────────────────────────────────────────


async def _read(input: FoundDocument, ctx: RunContext) -> DocumentFacts:
    """Read one document and tell what is in it."""

    async def read() -> DocumentFacts:
        again = ctx.attempt > 1
        ctx.status("going on after a crash" if again else f"reading {input.size:,} bytes")
        return await ctx.hub.hub.ports.offload.run(partial(document_facts, input))

    facts = await ctx.step("read", read, type=DocumentFacts)
    ctx.hub.emit(CustomEvent.of("demo:facts", **msgspec.structs.asdict(facts)))
    ctx.status(f"found {many(facts.words, 'word')}")
    return facts


reader = AgentDefinition(
    name="reader", execute=_read, description="Reads one document.", on_restart="resume"
)


# ── the model agent ──────────────────────────────────────────────────────────────────────────


class Survey:
    """The surveyor's tools, which know one folder; ``runtime`` is who runs its agents."""

    def __init__(self, demo: Demo, ports: Ports) -> None:
        self._demo = demo
        self._ports = ports
        self._listing: Listing | None = None
        self.runtime: Runtime | None = None

    @property
    def agents(self) -> tuple[AgentDefinition, ...]:
        """The surveyor and the reader."""
        demo = self._demo
        model = FunctionModel(surveyor_model, latency=demo.latency, clock=self._ports.clock)
        prompt = PromptDefinition(
            name="surveyor",
            prompt="Survey the documents of a folder with your tools and report what you found.",
            model=model,
            tools=self.tools,
        )
        return AgentDefinition(name="surveyor", side_a=SideConfig(prompt=prompt)), reader

    @property
    def tools(self) -> tuple[Tool[..., Any], ...]:
        makers = (self.list_documents, self.read_documents, self.compare_documents)
        return tuple(tool(method, idempotent=True, timeout=None) for method in makers)

    async def list_documents(self, state: RunState) -> Overview:
        """Find the text files of the folder."""
        listing = await self._list()
        state.hub.emit(
            CustomEvent.of(
                "demo:listing",
                folder=printable(str(self._demo.folder)),
                documents=len(listing.documents),
                skipped=[msgspec.structs.asdict(each) for each in listing.skipped],
                skipped_count=listing.skipped_count,
                notes=listing.notes,
            )
        )
        return Overview(
            folder=printable(str(self._demo.folder)),
            documents=len(listing.documents),
            skipped_count=listing.skipped_count,
            skipped=listing.skipped[:_NAMED],
            notes=listing.notes,
        )

    async def read_documents(self, first: int, last: int, state: RunState) -> Totals:
        """Read documents, counted from 1, each in a run of its own; returns the totals."""
        documents = (await self._list()).documents[max(0, first - 1) : last]
        waiting = iter(documents)
        begun = await self._begun(state)
        found: list[Totals] = []

        async def work() -> None:
            for document in waiting:  # Shared: each document goes to a free reader.
                run: SpawnedRun | None = begun.get(document.path)
                if run is None:
                    run = state.spawn(reader, document, name=document.path, result="handle")
                found.append(_totals(document, await run.finished()))

        async with anyio.create_task_group() as readers:
            for _ in range(min(READERS, len(documents))):
                readers.start_soon(work)
        total = sum(found, Totals())
        return msgspec.structs.replace(
            total,
            broken=tuple(sorted(total.broken)[:_NAMED]),
            failed=tuple(sorted(total.failed)[:_NAMED]),
        )

    async def _begun(self, state: RunState) -> dict[str, Run]:
        """The readers that were started before the process was killed, by document."""
        assert self.runtime is not None
        children = await state.hub.read(state.run_id, types=AgentChild.type)
        return {
            child.name: Run(
                self.runtime.outcomes, child.child_run_id, child.child_agent, is_root=False
            )
            for child in children
            if isinstance(child, AgentChild)
        }

    async def compare_documents(self, by: Literal["longest_line"], state: RunState) -> Extreme:
        """Find the longest line of all documents read so far, in the journal of this run."""
        events = await state.hub.read(root_run_id=state.root_run_id, types="demo:facts")
        facts = [
            msgspec.convert(event.data, DocumentFacts)
            for event in events
            if isinstance(event, CustomEvent)
        ]
        if not any(each.longest_length for each in facts):
            return Extreme()
        # The first by name where several are as long, in whichever order they were read.
        best = min(facts, key=lambda each: (-each.longest_length, each.path))
        return Extreme(path=best.path, line=best.longest_line, length=best.longest_length)

    async def _list(self) -> Listing:
        if self._listing is None:
            demo = self._demo
            self._listing = await self._ports.offload.run(
                partial(
                    list_documents,
                    demo.folder,
                    wanted=demo.wanted,
                    max_documents=demo.max_documents,
                )
            )
        return self._listing


def _totals(document: FoundDocument, outcome: SpawnedOutcome) -> Totals:
    """What one reader's end adds."""
    if not outcome.success:
        return Totals(failures=1, failed=(f"{document.path} ({printable(outcome.reason)})",))
    facts = msgspec.convert(outcome.output, DocumentFacts)
    return Totals(
        documents=1, markdown=facts.kind == "markdown", lines=facts.lines, words=facts.words,
        headings=facts.headings, links=facts.links, images=facts.images,
        broken_links=facts.broken_links, truncated=facts.truncated,
        broken=tuple(f"{document.path} → {target}" for target in facts.broken),
    )  # fmt: skip


# ── the bystander ────────────────────────────────────────────────────────────────────────────


class Bystander:
    """Listens to the hub and, when half is read, says ``text`` to the surveyor."""

    def __init__(self, hub: Hub, text: str) -> None:
        self._hub = hub
        self._text = text
        self._left = 0
        self.receipt: Receipt | None = None

    def __call__(self, event: Event) -> None:
        if event.type == "demo:listing" and isinstance(event, CustomEvent):
            self._left = (event.data["documents"] + 1) // 2
        elif event.agent == "reader" and self._left:
            self._left -= 1
            if not self._left and self._text:
                self.receipt = self._hub.send_to_run(
                    event.root_run_id, Message(self._text, key="steer"), source="bystander"
                )
