"""Playing a recording again: what users said, to the same agents, with recorded answers.

    replay_recording("test_x.jsonl", "my_agents:assistant").check()

What ``hubbub export RUN --as-test`` writes calls it.  Hub, runtime and agents are real; models and
tools are not asked, they answer as they did (``recorded_replies``).  Everything happens at the
time it happened, in virtual time, which takes none.  What every run did is then compared with what
its counterpart in the recording did (``actions``).
"""

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct, structs

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.resolution.skill_agents import CALLERS_MODEL
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports, SystemIds
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.tasks.lockstep_offload import LockstepOffload
from hubbub.hub.virtual import InlineOffload, InlineWorker, LoopClock
from hubbub.runtime.loading.agents import CannotLoad, LoadedAgents, load_agents
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.loop.seeded import run_seeded
from hubbub.runtime.simulation.playback.actions import RunLane
from hubbub.runtime.simulation.playback.code import recorded_code
from hubbub.runtime.simulation.playback.comparison import Playback, WentOtherwise, compared
from hubbub.runtime.simulation.playback.contents import RecordedBlobs
from hubbub.runtime.simulation.playback.recording import (
    Placed,
    RecordedRun,
    Recording,
    read_recording,
)
from hubbub.runtime.simulation.playback.replies import (
    RecordedModel,
    RecordedPrice,
    Replies,
    recorded_tool,
)
from hubbub.runtime.simulation.playback.stand_ins import recorded_server, stand_ins
from hubbub.runtime.simulation.story.setup import Setup

__all__ = ["Playback", "WentOtherwise", "replay_recording"]

OTHER_IDS: Final = 2**64
"""Ids are not those of a simulation with the same seed, which may be the recorded ones."""

WITHHELD: Final = "quarantine"
"""Stands for the value of a variable: a recording has none."""

_SAID: Final = (e.SessionMessage, e.SessionReply, e.SessionClose, e.SessionTerminate,
                e.SessionAbort, e.SessionReset, e.SessionCompact, e.SessionVariables,
                e.SessionLimits)  # fmt: skip
_BY_RUNTIME: Final = (e.SessionVariables, e.SessionLimits)
"""What a runtime does more for than to put it into an inbox."""
_ENDINGS: Final = (e.SessionClose, e.SessionTerminate, e.SessionAbort)


def replay_recording(
    path: str | Path,
    agents: str = "",
    *,
    folder: str | Path | None = None,
    real_tools: Collection[str] = (),
    seed: int = 0,
) -> Playback:
    """Play a recording of ``hubbub export RUN --as-test`` again.

    ``agents`` is ``MODULE:AGENT``, as ``hubbub chat`` takes it, and ``folder`` where that module
    lies, if it is not found otherwise; without, stand-ins made from the recording do what was
    done then.  No model is asked and no tool is called but those named in ``real_tools``: they
    run, in virtual time, where waiting for a network takes none.  The functions of code agents
    run, and with them whatever they do by themselves (``ctx.step``).

    Raises ``BadRecording``, ``CannotLoad``, and ``BadValue`` for a tool that is not there.
    """
    recording = read_recording(Path(path))
    whose = _Agents(agents, folder, real_tools)
    return run_seeded(lambda: _Player(recording, whose, seed).play(), seed)


class _Agents(Struct, frozen=True):
    """The agents that the recording is played with."""

    spec: str
    folder: str | Path | None
    real_tools: Collection[str]

    def load(self) -> LoadedAgents:
        if self.folder is None:
            return load_agents(self.spec)
        folder = str(Path(self.folder).resolve())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            return load_agents(self.spec)
        except CannotLoad as error:
            if isinstance(error.__cause__, ModuleNotFoundError):
                raise CannotLoad(
                    self.spec, f"no module in {folder}; give its present folder: folder="
                ) from error.__cause__
            raise


class _Player:
    """One playing of one recording."""

    def __init__(self, recording: Recording, agents: _Agents, seed: int) -> None:
        self._recording = recording
        self._cues = _cues(recording, agents)
        self._next = 0
        self._ports = Ports(
            clock=LoopClock(recording.began), ids=SystemIds(OTHER_IDS + seed),
            offload=LockstepOffload(), own_offload=InlineOffload(), make_worker=InlineWorker,
            blobs=RecordedBlobs(recording.contents),
        )  # fmt: skip
        self._replies = Replies(recording, self._ports.clock, self._reach)
        self._setup = self._setup_of(agents)
        self._counterparts = self._replies.counterparts
        self._counterparts.meet(recording.root, recording.root)
        self._hub = Hub(journal=MemoryJournal(ids=self._ports.ids), ports=self._ports)

    def _setup_of(self, agents: _Agents) -> Setup:
        model = RecordedModel(self._replies)
        if not agents.spec:
            return stand_ins(self._recording, model, self._replies)
        loaded = agents.load()
        setup = Setup(
            agents=loaded.agents, prompts=loaded.prompts, tools=loaded.tools, skills=loaded.skills
        )
        named = dict.fromkeys(_models_of(setup), model)
        left = set(agents.real_tools)

        def wrap(tool: Tool[..., Any]) -> Tool[..., Any]:
            left.discard(tool.name)
            return tool if tool.name in agents.real_tools else recorded_tool(tool, self._replies)

        def wrap_code(code: AgentDefinition) -> AgentDefinition:
            return recorded_code(code, self._replies, agents.real_tools)

        def wrap_server(server: McpServer) -> McpServer:
            real = set(filter(server.claims, agents.real_tools))
            left.difference_update(real)
            return server if real else recorded_server(server, self._recording, self._replies)

        wrapped = setup.wrapped(lambda _: model, wrap, wrap_code, wrap_server)
        if left:
            raise BadValue("real_tools", f"{agents.spec} has no tool {', '.join(sorted(left))}")
        return structs.replace(wrapped, models=named)

    async def play(self) -> Playback:
        setup = structs.replace(
            self._setup,
            env={**_withheld(self._setup), **self._setup.env},
            options={**self._setup.options, "prices": self._prices()},
        )
        runtime = Runtime(**setup.arguments(), hub=self._hub, grace=0, environ={})
        async with self._hub:
            self._hub.subscribe(
                ("agent:child", "session:prompt", "session:variables"), self._follow
            )
            async with runtime:
                while self._next < len(self._cues):
                    cue = self._cues[self._next]
                    await self._replies.sleep_until(cue.event.at, cue.place)
                    if self._next < len(self._cues) and self._cues[self._next] is cue:
                        if isinstance(cue.event, _BY_RUNTIME):
                            self._next += 1
                            await self._say_to(runtime, cue.event)
                        # What was taken with it is there with it.
                        self._reach(self._taken_at(cue.place))
                await self._replies.sleep_until(self._recording.ended, 0)
                await anyio.sleep(1)
                return compared(self._recording, await self._lanes(), self._counterparts)

    def _prices(self) -> dict[str, RecordedPrice]:
        names = (*self._setup.models, RecordedModel.name)
        return dict.fromkeys(names, RecordedPrice(replies=self._replies))

    # ── saying it again ──────────────────────────────────────────────────────────────────────

    def _taken_at(self, place: int) -> int:
        own = (x.place for x in self._recording.owned() if x.place > place)
        return next(own, place + 1)

    def _reach(self, place: int) -> None:
        """Send every message that precedes this place."""
        while self._next < len(self._cues) and self._cues[self._next].place < place:
            cue = self._cues[self._next]
            if isinstance(cue.event, _BY_RUNTIME):
                return
            self._next += 1
            self._say(cue.event)

    def _say(self, event: Event) -> None:
        to = self._counterparts.now_of(event.run_id)
        if to is None:  # Not begun this time: the comparison shows what is missing.
            return
        event = self._counterparts.as_now(event)
        fresh: Any = structs.replace(
            event, run_id=to, root_run_id="", parent_run_id=None, at=0, lane="", seq=0
        )
        if isinstance(event, e.SessionOpen):
            fresh = structs.replace(fresh, reports=False, depth=0, frame=0, variables=())
            self._hub.pipeline.open(fresh)
        elif isinstance(event, e.SessionReply):
            self._hub.prompts.reply(event)
        else:
            self._hub.emit(fresh)

    async def _say_to(self, runtime: Runtime, event: e.SessionVariables | e.SessionLimits) -> None:
        run_id = self._counterparts.now_of(event.run_id)
        if isinstance(event, e.SessionLimits):
            if run_id is not None:
                await runtime.limit(run_id, event.limits)
            return
        request = self._counterparts.now_of(event.request_id)
        if run_id is not None and request is not None:
            await runtime.provide_variables(run_id, request, dict.fromkeys(event.names, WITHHELD))

    # ── which run is which ───────────────────────────────────────────────────────────────────

    def _follow(self, event: Event) -> None:
        then_of = self._counterparts.then_of(event.run_id)
        run = self._recording.runs.get(then_of or "")
        if run is None:
            return
        match event:
            case e.AgentChild() if event.child_run_id:
                self._meet(run, event)
            case e.SessionPrompt():
                self._pair(run, e.SessionPrompt, "prompt_id", event.prompt_id)
            case e.SessionVariables():
                self._pair(run, e.SessionVariables, "request_id", event.request_id)
            case _:
                pass

    def _meet(self, run: RecordedRun, child: e.AgentChild) -> None:
        """A run has started a child: find its counterpart in the recording."""
        left = [
            x.event
            for x in run.own
            if isinstance(x.event, e.AgentChild)
            and x.event.child_agent == child.child_agent
            and x.event.child_run_id in self._recording.runs
            and self._counterparts.now_of(x.event.child_run_id) is None
        ]
        same = [x for x in left if (x.step, x.index) == (child.step, child.index)]
        for then in (same or left)[:1]:
            self._counterparts.meet(then.child_run_id, child.child_run_id)

    def _pair(self, run: RecordedRun, kind: type[Event], field: str, now: str) -> None:
        """Pair it with the next run of the same kind in the recording."""
        ids = (getattr(x.event, field) for x in run.own if isinstance(x.event, kind))
        then = next((x for x in ids if self._counterparts.now_of(x) is None), None)
        if then is not None:
            self._counterparts.meet(then, now)

    # ── then and now ─────────────────────────────────────────────────────────────────────────

    async def _lanes(self) -> list[RunLane]:
        lanes = []
        for info in await self._hub.journal.runs(live=False):
            loaded = await self._hub.journal.load(info.run_id)
            own = () if loaded is None else loaded.events
            # Not the agent of now: a run may be handed over.
            agent = next((x.agent for x in own if isinstance(x, e.AgentStart)), info.agent)
            lanes.append(RunLane(info.run_id, info.parent_run_id, agent, own))
        return lanes


def _cues(recording: Recording, agents: _Agents) -> list[Placed]:
    """Inputs in order: from users, channels and schedules, and the messages that tools send."""
    cues: list[Placed] = []
    for run in recording.runs.values():
        for placed in run.inbox:
            event = placed.event
            if isinstance(event, e.SessionOpen):
                if run.run_id == recording.root and not cues:
                    cues.append(placed)
            elif isinstance(event, _SAID) and _is_said(placed, run, recording, agents):
                cues.append(placed)
    return sorted(map(recording.as_heard, cues), key=lambda cue: cue.place)


def _is_said(placed: Placed, run: RecordedRun, recording: Recording, agents: _Agents) -> bool:
    event = placed.event
    if isinstance(event, e.SessionMessage):
        sender = recording.runs.get(event.source)
        # A tool's own words to its run carry no sender.
        speaker = run if sender is None and event.from_run else sender
        if speaker is None:
            return True
        if event.prompt_id or _is_of_model(speaker, run, event):
            return False  # It is asked again, or sent by what its model says.
        # What runs says its own words again.
        runs = agents.spec and (speaker.is_code or _tool_at(speaker, placed) in agents.real_tools)
        return event.from_run and not runs
    if isinstance(event, _ENDINGS):
        # A child's messages come from its parent, when the parent gets its own.
        return not any(
            isinstance(x.event, _ENDINGS) and x.place < placed.place
            for above in _above(run, recording)
            for x in above.inbox
        )
    return True


def _is_of_model(speaker: RecordedRun, run: RecordedRun, event: e.SessionMessage) -> bool:
    """Whether a message is what the speaker's model has sent to its child."""
    return event.key != "" and any(
        isinstance(x.event, e.AgentMessage) and (x.event.to, x.event.key) == (run.run_id, event.key)
        for x in speaker.own
    )


def _tool_at(run: RecordedRun, placed: Placed) -> str:
    """The tool that was at work: of calls side by side, the one that began last."""
    open_calls: dict[str, str] = {}
    for each in run.own:
        if each.place > placed.place:
            break
        if isinstance(each.event, e.AgentToolStart):
            open_calls[each.event.call_id] = each.event.name
        elif isinstance(each.event, e.AgentToolComplete):
            open_calls.pop(each.event.call_id, None)
    return next(reversed(open_calls.values()), "")


def _above(run: RecordedRun, recording: Recording) -> list[RecordedRun]:
    above: list[RecordedRun] = []
    while run.parent_run_id is not None and run.parent_run_id in recording.runs:
        if len(above) == len(recording.runs):
            raise BadValue("recording", f"the parents of run {run.run_id} form a circle")
        run = recording.runs[run.parent_run_id]
        above.append(run)
    return above


def _withheld(setup: Setup) -> dict[str, str]:
    """Values for what must have one, and was given to the runtime or in an opening then.

    A scoped variable is none of it: who wants one asks for it again, and is given it again.
    """
    sides = setup.definitions().sides.values()
    return {
        each.name: WITHHELD
        for side in sides
        for each in side.variables
        if each.required and not each.scoped
    }


def _models_of(setup: Setup) -> set[str]:
    """All models that definitions refer to by name."""
    prompts: list[PromptDefinition] = [*setup.prompts]
    for agent in setup.reached():
        sides = (side for side in (agent.side_a, agent.side_b) if side is not None)
        prompts += (x.prompt for x in sides if isinstance(x.prompt, PromptDefinition))
    skills = [*setup.skills, *(x for p in prompts for x in p.skills if isinstance(x, Skill))]
    asked = [each.model for x in prompts for each in x.choices]
    found = [*asked, *(x.model for x in skills)]
    return {x for x in found if isinstance(x, str) and x and x != CALLERS_MODEL}
