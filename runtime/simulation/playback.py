"""Playing a recording again: what users said, to the same agents, with recorded answers.

    replay_recording("test_x.jsonl", "my_agents:assistant") -> Playback(recorded, replayed)

What ``hubbub export RUN --as-test`` writes calls it.  Hub, runtime and agents are real; models and
tools are not asked, they answer as they did (``recorded_replies``).  Everything happens at the
time it happened, in virtual time, which takes none.
"""

from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct, structs

from hubbub.agents.definitions import PromptDefinition
from hubbub.agents.skill_agents import CALLERS_MODEL
from hubbub.agents.skills import Skill
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub
from hubbub.hub.memory_journal import MemoryJournal
from hubbub.hub.ports import Ports, SystemIds
from hubbub.hub.virtual import InlineOffload, InlineWorker, LoopClock
from hubbub.runtime.load_agent import load_agents
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.simulation.loop import run_seeded
from hubbub.runtime.simulation.recorded_replies import RecordedModel, Replies, recorded_tool
from hubbub.runtime.simulation.recording import (
    Placed,
    RecordedRun,
    Recording,
    read_recording,
    transcript,
)
from hubbub.runtime.simulation.setup import Setup
from hubbub.runtime.simulation.stand_ins import stand_ins

__all__ = ["Playback", "replay_recording"]

MOMENT: Final = 0.000_001
"""Lets what is due now happen first."""

WITHHELD: Final = "withheld"
"""Stands for the value of a variable: a recording has none."""

_SAID: Final = (e.SessionMessage, e.SessionReply, e.SessionClose, e.SessionTerminate,
                e.SessionAbort, e.SessionReset, e.SessionVariables)  # fmt: skip
_ENDINGS: Final = (e.SessionClose, e.SessionTerminate, e.SessionAbort)


class Playback(Struct, frozen=True):
    """What the runs said then and now, a line each; see ``transcript``."""

    recorded: list[str]
    replayed: list[str]


def replay_recording(path: str | Path, agents: str = "", *, seed: int = 0) -> Playback:
    """Play a recording of ``hubbub export RUN --as-test`` again.

    ``agents`` is ``MODULE:AGENT``, as ``hubbub chat`` takes it; without, stand-ins made from the
    recording do what was done then.  Raises ``BadRecording`` and ``CannotLoad``.
    """
    recording = read_recording(Path(path))
    return run_seeded(lambda: _Player(recording, agents, seed).play(), seed)


class _Player:
    """One playing of one recording."""

    def __init__(self, recording: Recording, agents: str, seed: int) -> None:
        self._recording = recording
        self._cues = _cues(recording, has_code=bool(agents))
        self._next = 0
        self._ports = Ports(
            clock=LoopClock(recording.began), ids=SystemIds(seed), offload=InlineOffload(),
            make_worker=InlineWorker,
        )  # fmt: skip
        self._replies = Replies(recording, self._ports.clock, self._reach)
        self._setup = self._setup_of(agents)
        self._ids: dict[str, str] = {recording.root: recording.root}
        """The run of now for each of the recording's."""
        self._replies.runs[recording.root] = recording.root
        self._prompts: dict[str, str] = {}
        self._requests: dict[str, str] = {}
        self._hub = Hub(journal=MemoryJournal(ids=self._ports.ids), ports=self._ports)

    def _setup_of(self, agents: str) -> Setup:
        model = RecordedModel(self._replies)
        if not agents:
            return stand_ins(self._recording, model, self._replies)
        loaded = load_agents(agents)
        setup = Setup(
            agents=loaded.agents, prompts=loaded.prompts, tools=loaded.tools, skills=loaded.skills
        )
        named = dict.fromkeys(_models_of(setup), model)
        wrapped = setup.wrapped(lambda _: model, lambda tool: recorded_tool(tool, self._replies))
        return structs.replace(wrapped, models=named)

    async def play(self) -> Playback:
        runtime = Runtime(**self._setup.arguments(), hub=self._hub, grace=0, environ={})
        async with self._hub:
            self._hub.subscribe(
                ("agent:child", "session:prompt", "session:variables"), self._follow
            )
            async with runtime:
                while self._next < len(self._cues):
                    cue = self._cues[self._next]
                    await self._wait_until(cue.event.at)
                    if self._next < len(self._cues) and self._cues[self._next] is cue:
                        if isinstance(cue.event, e.SessionVariables):
                            self._next += 1
                            await self._provide(runtime, cue.event)
                        # What was taken with it is there with it.
                        self._reach(self._taken_at(cue.place))
                await self._wait_until(self._recording.ended)
                await anyio.sleep(1)
                replayed = await self._transcript()
        return Playback(self._recording.transcript(), replayed)

    async def _wait_until(self, at: int) -> None:
        await anyio.sleep(max(0, at - self._ports.clock.now()) / 1_000_000 + MOMENT)

    # ── saying it again ──────────────────────────────────────────────────────────────────────

    def _taken_at(self, place: int) -> int:
        own = (x.place for x in self._recording.owned() if x.place > place)
        return next(own, place + 1)

    def _reach(self, place: int) -> None:
        """Say what was said before this place."""
        while self._next < len(self._cues) and self._cues[self._next].place < place:
            cue = self._cues[self._next]
            if isinstance(cue.event, e.SessionVariables):
                return
            self._next += 1
            self._say(cue.event)

    def _say(self, event: Event) -> None:
        to = self._ids.get(event.run_id)
        if to is None:  # Never begun, this time: what it does not say is told.
            return
        fresh: Any = structs.replace(
            event, run_id=to, root_run_id="", parent_run_id=None, at=0, lane="", seq=0
        )
        if isinstance(event, e.SessionOpen):
            fresh = structs.replace(fresh, reports=False, depth=0, frame=0, variables=())
            self._hub.open_run(fresh)
        elif isinstance(event, e.SessionReply):
            prompt = self._prompts.get(event.prompt_id, event.prompt_id)
            self._hub.reply(prompt, event.content, source=event.source)
        else:
            self._hub.emit(fresh)

    async def _provide(self, runtime: Runtime, event: e.SessionVariables) -> None:
        run_id = self._ids.get(event.run_id)
        request = self._requests.get(event.request_id)
        if run_id is not None and request is not None:
            await runtime.provide_variables(run_id, request, dict.fromkeys(event.names, WITHHELD))

    # ── which run is which ───────────────────────────────────────────────────────────────────

    def _follow(self, event: Event) -> None:
        run = self._recording.runs.get(self._replies.runs.get(event.run_id, ""))
        if run is None:
            return
        match event:
            case e.AgentChild() if event.child_run_id:
                self._meet(run, event)
            case e.SessionPrompt():
                known = set(self._prompts)
                then = _nth(run, e.SessionPrompt, lambda x: x.prompt_id not in known)
                if then is not None:
                    self._prompts[then.prompt_id] = event.prompt_id
            case e.SessionVariables():
                known = set(self._requests)
                then = _nth(run, e.SessionVariables, lambda x: x.request_id not in known)
                if then is not None:
                    self._requests[then.request_id] = event.request_id
            case _:
                pass

    def _meet(self, run: RecordedRun, child: e.AgentChild) -> None:
        """A run began another: which one was it then?"""
        left = [
            x.event
            for x in run.own
            if isinstance(x.event, e.AgentChild)
            and x.event.child_agent == child.child_agent
            and x.event.child_run_id in self._recording.runs
            and x.event.child_run_id not in self._ids
        ]
        same = [x for x in left if (x.step, x.index) == (child.step, child.index)]
        for then in (same or left)[:1]:
            self._ids[then.child_run_id] = child.child_run_id
            self._replies.runs[child.child_run_id] = then.child_run_id

    async def _transcript(self) -> list[str]:
        lanes = []
        for info in await self._hub.journal.runs(live=False):
            loaded = await self._hub.journal.load(info.run_id)
            own = () if loaded is None else loaded.events
            # Not the agent of now: a run may be handed over.
            agent = next((x.agent for x in own if isinstance(x, e.AgentStart)), info.agent)
            lanes.append((info.run_id, info.parent_run_id, agent, own))
        # The recording's order, for the runs that are in it: they may have begun at one time.
        order = {self._ids.get(run_id): place for place, run_id in enumerate(self._recording.runs)}
        lanes.sort(key=lambda lane: order.get(lane[0], len(order)))
        return transcript(lanes)


def _nth(run: RecordedRun, kind: Any, is_left: Any) -> Any:
    return next((x.event for x in run.own if isinstance(x.event, kind) and is_left(x.event)), None)


def _cues(recording: Recording, *, has_code: bool) -> list[Placed]:
    """What came from outside, in order: users, channels, schedules, and tools' own messages."""
    cues: list[Placed] = []
    for run in recording.runs.values():
        for placed in run.inbox:
            event = placed.event
            if isinstance(event, e.SessionOpen):
                if run.run_id == recording.root and not cues:
                    cues.append(placed)
            elif isinstance(event, _SAID) and _is_said(placed, run, recording, has_code):
                cues.append(placed)
    return sorted(cues, key=lambda cue: cue.place)


def _is_said(placed: Placed, run: RecordedRun, recording: Recording, has_code: bool) -> bool:
    event = placed.event
    if isinstance(event, e.SessionMessage):
        sender = recording.runs.get(event.source)
        if sender is None:
            # A tool's own words to its run carry no sender; a code agent says its again itself.
            return not (event.from_run and has_code and run.is_code)
        return event.from_run and not (has_code and sender.is_code)
    if isinstance(event, _ENDINGS):
        # What a run below is told comes from above, when those above are told.
        return not any(
            isinstance(x.event, _ENDINGS) and x.place < placed.place
            for above in _above(run, recording)
            for x in above.inbox
        )
    return True


def _above(run: RecordedRun, recording: Recording) -> list[RecordedRun]:
    above: list[RecordedRun] = []
    while run.parent_run_id is not None and run.parent_run_id in recording.runs:
        run = recording.runs[run.parent_run_id]
        above.append(run)
    return above


def _models_of(setup: Setup) -> set[str]:
    """The models that are named, wherever they stand."""
    prompts: list[PromptDefinition] = [*setup.prompts]
    for agent in setup.agents:
        sides = (side for side in (agent.side_a, agent.side_b) if side is not None)
        prompts += (x.prompt for x in sides if isinstance(x.prompt, PromptDefinition))
    skills = [*setup.skills, *(x for p in prompts for x in p.skills if isinstance(x, Skill))]
    found = [*(x.model for x in prompts), *(x.model for x in skills)]
    return {x for x in found if isinstance(x, str) and x and x != CALLERS_MODEL}
