"""What a conversation with frames must come to, said in plain data (see ``little_programs``).

The independent model of the state machine over stacks: frames are a list, a frame's open calls
are a list, what was said and not heard yet is a list.  At rest the frame on top waits for the user.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from support.programs import LIMITS, MAIN, Program

__all__ = ["StackModel"]

MAX_ITERATIONS = 25


@dataclass
class Frame:
    """Who has, or waits for, the conversation."""

    label: str
    agent: str
    once: bool = False
    program: Program = ()
    name: str = ""
    """Whose program that is."""
    position: int = 0
    steps: int = 0
    at_work: bool = True
    waits: bool = False
    calls: list[Sequence[Any]] = field(default_factory=list)
    inbox: list[tuple[int, str, Program, bool]] = field(default_factory=list)
    last: str = "completed"

    def hear(self, label: str, program: Program) -> None:
        self.name, self.program, self.position = label, program, 0

    @property
    def limit(self) -> int:
        own = LIMITS[self.agent]
        return own if self.agent == MAIN else min(own, MAX_ITERATIONS)


class StackModel:
    """One conversation after another; what is remembered of each run is its trace."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.traces: dict[str, list[str]] = {}
        self.noted: set[str] = set()
        self.dead: list[str] = []
        self.closing = False
        self._count = 0

    @property
    def unread(self) -> int:
        """Inboxes that hold something: what moves from several at once comes when it comes."""
        return sum(bool(frame.inbox) for frame in self.frames)

    # ── what is done to it ───────────────────────────────────────────────────────────────────

    def open(self, label: str, program: Program) -> None:
        self.closing = False
        self.frames = [Frame(label, MAIN)]
        self.traces[label] = []
        self.frames[0].hear(label, program)
        self._run()

    def say(self, label: str, program: Program, *, to: int = 0, silent: bool = False) -> None:
        self._put(label, program, to, silent)
        self._run()

    def say_two(self, one: tuple[str, Program], two: tuple[str, Program], after: int) -> None:
        """The second comes when so many steps have been made."""
        self._put(*one)
        self._run(late=two, after=after)

    def stop(self, word: str) -> None:
        if len(self.frames) == 1:
            self.say(word, ())
        else:
            self.interrupt(0)

    def back(self) -> None:
        if len(self.frames) == 1:
            self.say("/back", ())
            return
        self._over(self.frames[-1], "interrupted")
        self._run()

    def interrupt(self, at: int) -> None:
        """The frames above the one that is interrupted are popped; it stays, and idles."""
        below = self.frames[at]
        if not below.at_work:
            return
        self._cut(below, "interrupted")
        above, self.frames = self.frames[at + 1 :], self.frames[: at + 1]
        for frame in above:
            self._cut(frame, "interrupted")
            self._trace(frame, "over interrupted")
            self._leave(frame, below)
        self._run()

    def reset(self, label: str, program: Program) -> None:
        main, rest = self.frames[0], self.frames[1:]
        self._cut(main, "interrupted")
        for frame in rest:
            self._cut(frame, "interrupted")
            self._trace(frame, "over interrupted")
            self._leave(frame, main)
        self.frames = [main]
        main.hear(label, program)
        main.at_work, main.steps = True, 0
        self._run()

    def close(self) -> None:
        self.closing = True
        self._run()

    def terminate(self) -> None:
        for frame in self.frames:
            self._cut(frame, "terminated")
            self._trace(frame, "over terminated")
        self.frames = []

    # ── what comes of it ─────────────────────────────────────────────────────────────────────

    def _run(self, late: tuple[str, Program] | None = None, after: int = 0) -> None:
        made = 0
        while self.frames:
            if late is not None and made == after:
                self._put(*late)
                late = None
            top = self.frames[-1]
            if top.calls:
                self._call(top)
                continue
            self._take(top)
            if top.at_work:
                self._step(top)
                made += 1
            elif self.closing:
                self._over(top, "interrupted" if len(self.frames) > 1 else top.last)
            elif late is not None:
                self._put(*late)
                late = None
            else:
                return

    def _put(self, label: str, program: Program, to: int = 0, silent: bool = False) -> None:
        self._count += 1
        self.frames[to].inbox.append((self._count, label, program, silent))

    def _take(self, top: Frame) -> None:
        """Everything that waits for whoever is on top, in order; the last of it is obeyed."""
        main = self.frames[0]
        taken = list(top.inbox)
        top.inbox.clear()
        if top is not main:
            taken += [item for item in main.inbox if not item[3]]
            main.inbox = [item for item in main.inbox if item[3]]
        for _, label, program, _ in sorted(taken):
            self._trace(top, f"take {label}")
            top.hear(label, program)
        if taken and not top.at_work:
            top.at_work, top.steps = True, 0

    def _step(self, top: Frame) -> None:
        step = top.program[top.position] if top.position < len(top.program) else ("say",)
        name = f"{top.name}.{top.position}"
        top.position += 1
        top.steps += 1
        match step:
            case ["note"]:
                top.calls = [("note", name)]
            case ["tell"]:
                self._trace(top, f"say {name}")
                top.calls = [("note", name)]
            case ["use", agent, program]:
                top.calls = [("use_agent", name, agent, program)]
            case ["three", one, two]:
                top.calls = [
                    ("note", name), ("use_agent", f"{name}-1", *one),
                    ("use_agent", f"{name}-2", *two),
                ]  # fmt: skip
            case ["complete"]:
                top.calls = [("complete", name)]
            case ["last"]:
                top.calls = [("complete", name), ("note", name)]
            case ["fail"] | ["empty"]:
                self._end(top, "failed")
            case _:
                self._trace(top, f"say {name}")
                self._end(top, "completed", name)

    def _call(self, top: Frame) -> None:
        kind, name, *rest = top.calls.pop(0)
        is_frame = len(self.frames) > 1
        if kind == "use_agent" and rest[0] != top.agent:
            frame = Frame(name, rest[0], once=self.closing or top.once)
            frame.hear(name, rest[1])
            top.waits = True
            self.traces[name] = []
            self.frames.append(frame)
            return
        if kind == "complete" and is_frame:
            self._trace(top, "complete ok")
            for other, *_ in top.calls:
                self._trace(top, f"{other} error")
            top.calls = []
            self._end(top, "completed", name, pops=True)
            return
        if kind == "note":
            self.noted.add(name)
        self._trace(top, f"{kind} ok" if kind == "note" else f"{kind} error")
        self._answered(top)

    def _answered(self, top: Frame) -> None:
        if not top.calls and top.steps >= top.limit:
            self._end(top, "limit")

    def _end(self, top: Frame, outcome: str, result: str = "", *, pops: bool = False) -> None:
        """A session ends; and the frame, unless it has only said something to the user."""
        self._trace(top, f"end {outcome}")
        top.at_work, top.last = False, outcome
        if len(self.frames) > 1 and (pops or top.once or outcome != "completed"):
            self._over(top, outcome, result if outcome == "completed" else "")

    def _over(self, top: Frame, outcome: str, result: str = "") -> None:
        self._trace(top, f"over {outcome}")
        self.frames.pop()
        if not self.frames:
            return
        caller = self.frames[-1]
        self._leave(top, caller)
        caller.waits = False
        self._trace(caller, f"use_agent ok {result}" if result else "use_agent error")
        self._answered(caller)

    def _leave(self, frame: Frame, below: Frame) -> None:
        if self.closing:
            self.dead += [label for _, label, _, _ in frame.inbox]
        else:
            below.inbox += frame.inbox

    def _cut(self, frame: Frame, outcome: str) -> None:
        """Whatever is open is answered with an error."""
        if frame.waits:
            self._trace(frame, "use_agent error")
        for kind, *_ in frame.calls:
            self._trace(frame, f"{kind} error")
        if frame.at_work:
            self._trace(frame, f"end {outcome}")
            frame.last = outcome
        frame.waits, frame.calls, frame.at_work = False, [], False

    def _trace(self, frame: Frame, line: str) -> None:
        self.traces[frame.label].append(line)
