"""``Stack``: who has the conversation, as its events tell.

    session:push   in the lane of the run that has it: the frame has it from now on
    session:pop    in the lane of a frame's caller: it is gone, and with it those above it
    session:start, session:end   whether the run that has it is at work, or waits for the user

Rules
-----
* A frame of somebody who has no part in the conversation (an isolated child) is none of it.
* A frame that is over is at work, to those who watch, until its caller has its result.
* Following an event again changes nothing, so what is read may overlap with what is received.
"""

from typing import Final

from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub

__all__ = ["Level", "Stack", "short_name"]

SKILL: Final = "skill:"

FOLLOWED: Final = (
    "session:start", "session:end", "session:push", "session:pop", "session:prompt",
    "session:prompt:end", "session:reply", "agent:start", "agent:handoff", "agent:complete",
    "agent:text",
)  # fmt: skip
"""The types that tell, of a run's whole past, its present state and what was said."""


def short_name(agent: str) -> str:
    """What people call an agent: a skill by its own name."""
    return agent.removeprefix(SKILL)


class Level:
    """One run in the stack: the conversation's root, or a frame."""

    __slots__ = ("agent", "in_session", "is_over", "run_id", "seq")

    def __init__(self, run_id: str, agent: str = "", *, in_session: bool = False) -> None:
        self.run_id = run_id
        self.agent = agent
        self.in_session = in_session
        self.is_over = False
        self.seq = 0
        """The last event of its own that was followed."""

    @property
    def name(self) -> str:
        return short_name(self.agent)

    @property
    def is_at_work(self) -> bool:
        return self.in_session or self.is_over


class Stack:
    """The runs that have a part in one conversation, its root first."""

    __slots__ = ("_left", "_levels")

    def __init__(self) -> None:
        self._levels: list[Level] = []
        self._left: set[str] = set()

    def begin(self, root_run_id: str, agent: str) -> None:
        """From now on it is this conversation."""
        self._levels = [Level(root_run_id, agent)]
        self._left.clear()

    @property
    def root_run_id(self) -> str:
        """Empty before there is a conversation."""
        return self._levels[0].run_id if self._levels else ""

    @property
    def top(self) -> Level:
        """The level that has the conversation; there must be one."""
        return self._levels[-1]

    @property
    def at_work(self) -> Level:
        """The level that an interruption is for: of those that are not over, the last."""
        return next((each for each in reversed(self._levels) if not each.is_over), self._levels[0])

    @property
    def has_frames(self) -> bool:
        return len(self._levels) > 1

    @property
    def is_at_work(self) -> bool:
        """Whether the level that has the conversation is at work and does not wait for the user."""
        return bool(self._levels) and self.top.is_at_work

    def is_held_by(self, question: e.SessionPrompt, hub: Hub) -> bool:
        """Whether the run that has the conversation can only wait for the answer: it has paused
        over the question itself, or waits for a child that has."""
        asker, top = question.run_id, self.top.run_id
        owner = hub.dispatcher.owner
        waits = asker == top or (owner is not None and owner.waits_for(top, asker))
        return question.pauses and waits

    @property
    def names(self) -> tuple[str, ...]:
        """Whom the user talks through: the root's name, then each frame's."""
        return tuple([level.name for level in self._levels])

    def find(self, run_id: str) -> Level | None:
        """The level of a run that has a part in the conversation now."""
        return next((level for level in self._levels if level.run_id == run_id), None)

    def has_left(self, run_id: str) -> bool:
        """Whether a run was a frame, is none any more, and has not written its end yet."""
        return run_id in self._left

    def has_followed(self, event: Event) -> bool:
        """Whether an event is none that comes after those that were followed."""
        level = self.find(event.run_id)
        return level is not None and event.lane == "own" and event.seq <= level.seq

    def follow(self, event: Event) -> None:
        """Note what ``event`` says about the stack."""
        level = self.find(event.run_id)
        if level is None:
            if isinstance(event, e.AgentComplete):
                self._left.discard(event.run_id)
            return
        if event.lane != "own" or self.has_followed(event):
            return
        level.seq = event.seq
        level.agent = event.agent or level.agent
        match event:
            case e.SessionPush():
                self._cut(self._levels.index(level) + 1)
                frame = Level(event.frame_run_id, event.frame_agent, in_session=True)
                self._levels.append(frame)
            case e.SessionPop():
                popped = self.find(event.frame_run_id)
                if popped is not None:
                    self._cut(self._levels.index(popped))
            case e.SessionStart():
                level.in_session = True
            case e.SessionEnd():
                level.in_session = False
            case e.AgentHandoff():
                level.agent = event.to
            case e.AgentComplete():
                self._end(level)

    def _end(self, level: Level) -> None:
        level.in_session = False
        if level is self._levels[0]:
            self._cut(1)
            return
        # What was above it is popped in its own lane.
        level.is_over = True

    def _cut(self, at: int) -> None:
        gone = self._levels[at:]
        self._left.update(level.run_id for level in gone if not level.is_over)
        del self._levels[at:]

    async def read(self, hub: Hub) -> list[Event]:
        """Follow what is on record of the conversation; returns what of it was looked at."""
        found: list[Event] = []
        read = ""
        while self.top.run_id != read:
            read = self.top.run_id
            events = await hub.read(read, types=FOLLOWED)
            found += events
            for event in events:
                self.follow(event)
        return found
