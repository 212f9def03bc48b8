"""``Transcript``: what of a run's events is put on a screen, and how (K-03).

    said          the text of the root run, as it is written; the final text only what is missing
    void          text that a retry or a restart has made untrue: a line says so
    tools         one line when a call starts, one with its result, errors in colour
    children      the same, indented by their depth and prefixed by their name; of their text the
                  first lines, when it is finished
    endings       one line, unless all is well

It decides nothing about the conversation: see ``console``.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hubbub.channels.screen import Screen, Style
from hubbub.hub import events as e
from hubbub.hub.events import Ending, Event

__all__ = ["Transcript"]

RESULT_SHOWN: Final = 2_000
"""Characters of a tool's arguments, result or output that are looked at for its one line."""

CHILD_LINES: Final = 10
"""Lines of a child's text that are shown."""


class Transcript:
    """Shows the events of one run and its descendants, in order."""

    __slots__ = ("_call", "_children", "_has_said", "_partial", "_screen", "_thought", "_told")

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._partial: tuple[int, str] | None = None
        """The step whose text has been streamed so far, and that text."""
        self._children: dict[str, tuple[str, int]] = {}
        """Names and depths of the live descendants, for the margin."""
        self._call: tuple[str, str] = ("", "")
        self._thought = 0
        self._has_said = False
        self._told: tuple[str, str] | None = None
        """How the latest session ended, once that has been told."""

    def show(self, event: Event) -> None:
        """Put ``event`` on the screen, if it is of a kind that is shown."""
        show = _SHOWN.get(event.__class__)
        if show is not None:
            show(self, event)

    def begin(self) -> None:
        """A further thing has been said to the run: its ending is news again."""
        self._told = None
        self._has_said = False

    # ── what is said ─────────────────────────────────────────────────────────────────────────

    def _delta(self, event: e.AgentTextDelta) -> None:
        if self._screen.is_plain or self._is_child(event):
            return  # A pipe cannot take back what turns out void; children would interleave.
        step, text = self._partial or (event.step, "")
        if step != event.step:
            self._screen.end_saying()
            text = ""
        self._partial = (event.step, text + event.text)
        self._screen.say(event.text)

    def _text(self, event: e.AgentText) -> None:
        if self._is_child(event):
            lines = [line for line in event.text.splitlines() if line.strip()]
            for line in lines[:CHILD_LINES]:
                self._line(event, line)
            if len(lines) > CHILD_LINES:
                self._line(event, f"… {len(lines) - CHILD_LINES} more lines", "dim")
            return
        self._has_said = True
        step, shown = self._partial or (event.step, "")
        if step != event.step:  # A tool speaks between the pieces of a step.
            self._screen.end_saying()
            self._say(event.text)
            return
        self._partial = None
        if event.text.startswith(shown):
            self._say(event.text[len(shown) :])
        elif not shown.startswith(event.text):
            self._void("the text above is not what was meant; it reads")
            self._say(event.text)
        else:
            self._partial = (step, shown[len(event.text) :])
            self._screen.end_saying()

    def _say(self, text: str) -> None:
        self._screen.say(text)
        self._screen.end_saying()

    def _thinking(self, event: e.AgentThinkingDelta) -> None:
        if not self._is_child(event) and self._thought != event.step:
            self._thought = event.step
            self._screen.line("thinking …", "dim")

    def _void(self, why: str) -> None:
        partial, self._partial = self._partial, None
        self._screen.end_saying()
        if partial is not None and partial[1].strip():
            self._screen.line(f"✗ {why}", "warning")

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    def _retry(self, event: e.AgentRetry) -> None:
        if not self._is_child(event):
            self._void("the unfinished text above is void")
        wait = f"in {event.delay:.1f} s" if event.delay else "at once"
        text = f"{self._prefix(event)}{event.error or event.kind}; trying again {wait}"
        self._screen.trouble(text, "warning")

    def _restore(self, event: e.AgentRestore) -> None:
        if not self._is_child(event):
            self._void("the unfinished text above is void")
        self._line(event, "going on after a restart", "warning")

    def _tool_start(self, event: e.AgentToolStart) -> None:
        if not self._is_child(event):
            self._screen.end_saying()
        self._call = (event.run_id, event.call_id)
        self._line(event, f"• {event.name}({_arguments(event.arguments)})", "dim")

    def _tool_complete(self, event: e.AgentToolComplete) -> None:
        # Directly under the line of its start a result needs no name.
        is_next = self._call == (event.run_id, event.call_id)
        self._call = ("", "")
        name = "" if is_next else f"{event.name} "
        if event.is_error:
            self._line(event, f"  {name}✗ {event.output[:RESULT_SHOWN]}", "error")
        else:
            self._line(event, f"  {name}→ {event.output[:RESULT_SHOWN]}", "dim")

    def _status(self, event: e.AgentStatus) -> None:
        self._line(event, f"· {event.status}", "dim")

    def _handoff(self, event: e.AgentHandoff) -> None:
        self._line(event, f"· {event.to} goes on", "dim")

    def _child(self, event: e.AgentChild) -> None:
        depth = self._margin(event)[1] + 1
        self._children[event.child_run_id] = (event.name or event.child_agent, depth)
        of = "" if event.name in ("", event.child_agent) else f" ({event.child_agent})"
        if event.error:
            self._line(event, f"✗ {event.child_agent} was not started: {event.error}", "error")
        elif event.child_run_id:
            self._line(event, f"+ {event.name or event.child_agent}{of}", "dim")

    def _question(self, event: e.SessionPrompt) -> None:
        if not self._is_child(event):
            self._screen.end_saying()
        self._screen.trouble(f"{self._prefix(event)}? {event.question}", "question")
        for number, option in enumerate(event.options, 1):
            self._screen.trouble(f"{number}) {option}", "question", indent=2)

    def _undelivered(self, event: e.HubDeadLetter) -> None:
        if isinstance(event.message, e.SessionMessage) and not self._is_child(event):
            text = event.message.content[:RESULT_SHOWN]
            self._screen.trouble(f"not handled, the run is over: {text}", "warning")

    # ── endings ──────────────────────────────────────────────────────────────────────────────

    def _session_start(self, event: e.SessionStart) -> None:
        if not self._is_child(event):
            self.begin()

    def _session_end(self, event: e.SessionEnd) -> None:
        if not self._is_child(event):
            self._end(event)

    def _complete(self, event: e.AgentComplete) -> None:
        if not self._is_child(event):
            self._end(event)
            return
        if not event.success:
            self._line(event, f"✗ {_ending(event)}", "error")
        elif (output := _output(event)) is not None:
            self._line(event, f"→ {output}", "dim")
        else:
            self._line(event, "done", "dim")
        self._children.pop(event.run_id, None)

    def _end(self, event: Ending) -> None:
        """Say how a session or the run ended, once."""
        self._partial = None
        self._thought = 0
        self._screen.end_saying()
        if self._told == (event.outcome, event.reason):
            return
        self._told = (event.outcome, event.reason)
        if event.outcome != "completed" or not event.success:
            style: Style = "warning" if event.outcome == "interrupted" else "error"
            self._screen.trouble(_ending(event), style)
        elif not self._has_said and (output := _output(event)) is not None:
            # A code agent that said nothing: what it returned is its answer.
            self._say(output)
        elif not self._has_said and event.reason:
            self._screen.trouble(f"nothing was said: {event.reason}", "warning")  # S-09

    # ── the margin ───────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _is_child(event: Event) -> bool:
        return event.run_id != event.root_run_id

    def _margin(self, event: Event) -> tuple[str, int]:
        if not self._is_child(event):
            return "", 0
        return self._children.get(event.run_id, (event.agent, 1))

    def _prefix(self, event: Event) -> str:
        name = self._margin(event)[0]
        return f"{name}: " if name else ""

    def _line(self, event: Event, text: str, style: Style = "") -> None:
        name, depth = self._margin(event)
        if name:
            text = f"{name}: {text.lstrip()}"
        else:
            depth += (len(text) - len(text.lstrip())) // 2
        self._screen.line(text.lstrip(), style, indent=2 * depth)


def _arguments(text: str) -> str:
    """The arguments of a call as they would be written in Python; as they are, if malformed."""
    try:
        found = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text[:RESULT_SHOWN]
    return ", ".join(f"{name}={value!r}"[:RESULT_SHOWN] for name, value in found.items())


def _output(event: Ending) -> str | None:
    output = event.output
    if output is None or isinstance(output, str):
        return output or None
    return bytes(event.output_json).decode(errors="replace")


def _ending(event: Ending) -> str:
    words = {
        "completed": "failed",  # A session may complete without success (decision 12).
        "limit": "stopped: the limit of steps is reached",
        "timed_out": "timed out",
    }.get(event.outcome, event.outcome)
    if not event.reason or event.reason in (event.outcome, words):
        return words
    return f"{words}: {event.reason}"


_SHOWN: Final[dict[type, Callable[[Transcript, Any], None]]] = {
    e.AgentTextDelta: Transcript._delta,
    e.AgentText: Transcript._text,
    e.AgentThinkingDelta: Transcript._thinking,
    e.AgentRetry: Transcript._retry,
    e.AgentRestore: Transcript._restore,
    e.AgentToolStart: Transcript._tool_start,
    e.AgentToolComplete: Transcript._tool_complete,
    e.AgentStatus: Transcript._status,
    e.AgentHandoff: Transcript._handoff,
    e.AgentChild: Transcript._child,
    e.AgentComplete: Transcript._complete,
    e.SessionPrompt: Transcript._question,
    e.SessionStart: Transcript._session_start,
    e.SessionEnd: Transcript._session_end,
    e.HubDeadLetter: Transcript._undelivered,
}
