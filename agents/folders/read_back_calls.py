"""Calls without a result, made again from what a run's folder says (agents/folders/read_back.py).

Rules
-----
* A call that was running is on record as started, so that recovery says that it may have run.
* One that waited for a child waits again; if the child is nowhere to be found, it is answered
  that way at once.
* One that waited for the user's answer asks again: its question is in its arguments.
* A takeover does not survive: its frame is read back as ended, and its call may have run.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.agents.folders.rewritten_lane import RewrittenLane
from hubbub.agents.state.thread import OpenCall, OpenStep
from hubbub.agents.turn.calls import LOST
from hubbub.hub import events as e
from hubbub.hub.events import ToolCall

__all__ = ["ReadBackCalls"]


class _Question(Struct, frozen=True):
    prompt: str
    options: tuple[str, ...] = ()


_question: Final = msgspec.json.Decoder(_Question)


class ReadBackCalls:
    """The calls of a lane that is made again; ``unanswered`` by step and index."""

    def __init__(
        self, lane: RewrittenLane, warnings: list[str], is_there: Callable[[str], bool]
    ) -> None:
        self.lane = lane
        self.warnings = warnings
        self.is_there = is_there
        self.unanswered: dict[tuple[int, int], ToolCall] = {}

    def go_on(self, known: OpenStep | None) -> None:
        """Bring what is unanswered to where it was; ``known`` says where, if anything does."""
        step = self.lane.thread.open
        if known is not None and (step is None or known.number != step.number):
            known = None
        running = False
        for number, index in list(self.unanswered):
            if step is None or number != step.number:
                self._begin(number, index)
                continue
            call = known.calls[index] if known is not None and index < len(known.calls) else None
            if call is not None and call.status == "waiting":
                self._wait_again(number, index, call)
            elif call is not None and call.status == "todo":
                continue
            elif call is not None or step.parallel or not running:
                self._begin(number, index)
                running = True

    def wait(self, step: int, index: int, child: str, key: str) -> None:
        """Have a call wait for what a child makes of a message."""
        call = f"{step}.{index}"
        self.lane.put(
            e.AgentMessage(to=child, key=key, step=step, index=index, waits=True, call_id=call)
        )

    def lose(self, step: int, index: int) -> None:
        """Answer a call: it may have run."""
        call = self.unanswered.pop((step, index))
        self.lane.put(
            e.AgentToolComplete(
                step=step, index=index, name=call.name, output=LOST, is_error=True,
                turn=self.lane.thread.turn, side=self.lane.thread.side, call_id=f"{step}.{index}",
            )
        )  # fmt: skip

    def _begin(self, step: int, index: int) -> None:
        call = self.unanswered[step, index]
        self.lane.put(
            e.AgentToolStart(
                step=step, index=index, name=call.name, arguments=call.arguments,
                turn=self.lane.thread.turn, side=self.lane.thread.side, call_id=f"{step}.{index}",
            )
        )  # fmt: skip

    def _wait_again(self, step: int, index: int, call: OpenCall) -> None:
        self._begin(step, index)
        if call.takeover:
            self.warnings.append(
                f"call {index} of step {step} had given the conversation to {call.child}, which "
                "is over"
            )
            self.lose(step, index)
        elif not call.child:
            self._ask_again(step, index, call)
        elif self.is_there(call.child):
            self.wait(step, index, call.child, call.key)
        else:
            self.warnings.append(f"call {index} of step {step} waited for {call.child}, not found")
            self.lose(step, index)

    def _ask_again(self, step: int, index: int, call: OpenCall) -> None:
        try:
            asked = _question.decode(self.unanswered[step, index].arguments)
        except (msgspec.DecodeError, UnicodeError):
            self.warnings.append(f"call {index} of step {step} had asked what nobody knows")
            self.lose(step, index)
            return
        left = max(call.expires_at - self.lane.at, 0) / 1_000_000
        self.lane.put(
            e.SessionPrompt(
                prompt_id=call.key, question=asked.prompt, options=asked.options, timeout=left,
                pauses=True, turn=self.lane.thread.turn, side=self.lane.thread.side,
                call_id=f"{step}.{index}",
            )
        )  # fmt: skip
