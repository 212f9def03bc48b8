"""``Transcript``: which events of a run are shown on the screen, and how.

    said          the text of the agent that has the conversation, as it is written; of the final
                  text only what is missing
    void          text that a retry or a restart has made untrue: a line says so
    tools         one line when a call starts, one with its result, errors in colour
    takeovers     ``▸ NAME takes over``, ``↩ NAME → its result``, ``✗ NAME gave … back: why``, in
                  the place of the lines of the calls; ``▸ NAME`` where another one speaks
    children      the same, indented by their depth and prefixed by their name; of their text the
                  first lines, when it is finished
    endings       one line, unless all is well

It decides nothing about the conversation: see ``console``.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from hubbub.channels.console.asked import prompt_lines, prompt_title
from hubbub.channels.console.screen import Screen, Style
from hubbub.channels.console.speech import Speech
from hubbub.channels.console.stack import Stack, short_name
from hubbub.hub import events as e
from hubbub.hub.events import Ending, Event

__all__ = ["Transcript"]

RESULT_SHOWN: Final = 2_000
"""Characters of a tool's arguments, result or output that are looked at for its one line."""

CHILD_LINES: Final = 10
"""Lines of a child's text that are shown."""

COMPLETE, INTERRUPT = "complete", "interrupt"

SAID_BETTER: Final = frozenset((COMPLETE, INTERRUPT, "use_agent", "use_skill"))
"""Calls whose line is left out when what they have come to has a line of its own."""


class Transcript:
    """Shows the events of one conversation's runs, in order.

    It reads ``stack``, which gets an event after it was shown.
    """

    __slots__ = (
        "_call", "_children", "_held", "_over", "_popped", "_screen", "_speech", "_stack",
    )  # fmt: skip

    def __init__(self, screen: Screen, stack: Stack) -> None:
        self._screen = screen
        self._stack = stack
        self._speech = Speech(screen, stack)
        self._children: dict[str, tuple[str, int]] = {}
        """Names and depths of the live descendants, for the margin."""
        self._call: tuple[str, str] = ("", "")
        self._held: e.AgentToolStart | e.SessionEnd | None = None
        """Not shown yet: what comes next may say it better."""
        self._over: tuple[str, str] = ("", "")
        """The frame that has ended last, and what went wrong with it."""
        self._popped: e.SessionPop | None = None

    def begin(self) -> None:
        """The conversation is another one."""
        self._speech.begin()
        self._children.clear()
        self._held = None

    def user_spoke(self) -> None:
        """The user has sent another message: the next ending is shown again."""
        self._speech.user_spoke()

    def remind(self, past: Iterable[Event]) -> None:
        """Show the last text of the agent that has the conversation, said before this console."""
        self._speech.remind(past)

    def show(self, event: Event) -> None:
        """Put ``event`` on the screen, if it is of a kind that is shown."""
        show = _SHOWN.get(event.__class__)
        if show is None or self._stack.has_left(event.run_id):
            return
        if self._held is not None and not _replaces(event, self._held):
            self._release()
        show(self, event)

    @property
    def is_holding(self) -> bool:
        """Whether a call's line waits for what will replace it."""
        return isinstance(self._held, e.AgentToolStart)

    def settle(self, *, is_quiet: bool = False) -> None:
        """Nothing more has happened so far: show what has waited.

        The line of a call still waits, unless ``is_quiet``: nothing has happened for a while.
        """
        if self._held is not None and (is_quiet or not self.is_holding):
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, None
        if isinstance(held, e.SessionEnd):
            self._end(held)
        elif held is not None:
            self._show_call(held)

    # ── what is said ─────────────────────────────────────────────────────────────────────────

    def _delta(self, event: e.AgentTextDelta) -> None:
        if not self._is_aside(event):  # Children would interleave.
            self._speech.delta(event)

    def _text(self, event: e.AgentText) -> None:
        if not self._is_aside(event):
            self._speech.text(event)
            return
        lines = [line for line in event.text.splitlines() if line.strip()]
        for line in lines[:CHILD_LINES]:
            self._line(event, line)
        if len(lines) > CHILD_LINES:
            self._line(event, f"… {len(lines) - CHILD_LINES} more lines", "dim")

    def _thinking(self, event: e.AgentThinkingDelta) -> None:
        if not self._is_aside(event):
            self._speech.thinking(event)

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    def _retry(self, event: e.AgentRetry) -> None:
        if event.kind == "output" and event.call_id:
            return  # The result of that call says it.
        if not self._is_aside(event):
            self._speech.void(event)
            self._speech.mark(event)
        wait = f"in {event.delay:.1f} s" if event.delay else "at once"
        again = f"asking {event.model}" if event.model else f"trying again {wait}"
        why = event.error or event.kind
        if event.kind == "output":
            told = [line[2:] for line in why.splitlines() if line.startswith("- ")]
            why, again = "the answer does not fit", f"told so: {'; '.join(told)}"
        text = f"{self._prefix(event)}{why}; {again}"
        self._screen.trouble(text, "warning")

    def _restore(self, event: e.AgentRestore) -> None:
        if not self._is_aside(event):
            self._speech.void(event)
        self._line(event, "going on after a restart", "warning")

    def _tool_start(self, event: e.AgentToolStart) -> None:
        if not self._is_aside(event):
            self._screen.end_saying()
            if event.name in SAID_BETTER:
                self._held = event
                return
        self._show_call(event)

    def _show_call(self, event: e.AgentToolStart) -> None:
        self._call = (event.run_id, event.call_id)
        self._line(event, f"• {event.name}({_arguments(event.arguments)})", "dim")

    def _tool_complete(self, event: e.AgentToolComplete) -> None:
        popped = self._popped
        if popped is not None and _is_same_call(event, popped):
            self._popped = None
            self._given_back(popped, event.output)
            return
        if self._held is not None and not event.is_error and event.name == COMPLETE:
            self._held = None
            return
        if event.name == INTERRUPT and not event.is_error and not self._is_aside(event):
            return  # The user has just typed it.
        if self._held is not None:
            self._release()
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

    def _compaction(self, event: e.SessionCompaction) -> None:
        if event.error:
            self._line(event, f"· older messages were not summarised: {event.error}", "warning")
        else:
            self._line(event, "· older messages are summarised from here on", "dim")

    def _child(self, event: e.AgentChild) -> None:
        if event.takeover and not self._is_aside(event):
            return  # Its push says so.
        depth = self._margin(event)[1] + 1
        self._children[event.child_run_id] = (event.name or event.child_agent, depth)
        of = "" if event.name in ("", event.child_agent) else f" ({event.child_agent})"
        if event.error:
            self._line(event, f"✗ {event.child_agent} was not started: {event.error}", "error")
        elif event.child_run_id:
            self._line(event, f"+ {event.name or event.child_agent}{of}", "dim")

    def _question(self, event: e.SessionPrompt) -> None:
        if not self._is_aside(event):
            self._held = None
            self._screen.end_saying()
            self._speech.mark(event)
        if event.pauses:
            self._call = (event.run_id, event.call_id)
        for text, indent in prompt_lines(event, self._asker(event)):
            self._screen.exact(text, "question", indent=indent)

    def announce(self, event: e.SessionPrompt) -> None:
        """Write a line that another prompt is waiting behind the one shown."""
        self._line(event, f"· next: {prompt_title(event, self._asker(event))}", "dim")

    def _asker(self, event: e.SessionPrompt) -> str:
        """The name of the child that asks, or of a frame that needs more than an answer."""
        name, _ = self._margin(event)
        level = self._stack.find(event.run_id)
        if name or level is None or event.kind == "question":
            return name
        return level.name

    def _undelivered(self, event: e.HubDeadLetter) -> None:
        if isinstance(event.message, e.SessionMessage) and not self._is_aside(event):
            text = event.message.content[:RESULT_SHOWN]
            self._screen.trouble(f"not handled, the run is over: {text}", "warning")

    # ── takeovers ────────────────────────────────────────────────────────────────────────────

    def _push(self, event: e.SessionPush) -> None:
        if self._is_aside(event):
            return
        self._held = None
        self._screen.end_saying()
        name, task = short_name(event.frame_agent), event.message[:RESULT_SHOWN]
        self._screen.line(f"▸ {name} takes over: {task}" if task else f"▸ {name}", "dim")
        self._speech.introduce(event.frame_run_id)

    def _pop(self, event: e.SessionPop) -> None:
        if self._is_aside(event):
            return
        self._screen.end_saying()
        self._popped = event
        if self._over[0] != event.frame_run_id:
            self._speech.voice(event).has_unwound = True

    def _given_back(self, popped: e.SessionPop, output: str) -> None:
        """One line for a frame that has ended; one that was taken away is reported at the end."""
        run_id, why = self._over
        if run_id != popped.frame_run_id:
            return
        name = short_name(popped.frame_agent)
        if popped.is_error:
            why = why or output[:RESULT_SHOWN]
            self._screen.trouble(f"✗ {name} gave the conversation back: {why}")
            return
        first = next((line for line in output[:RESULT_SHOWN].splitlines() if line.strip()), "")
        self._screen.line(f"↩ {name} → {first}" if first else f"↩ {name}", "dim")

    # ── endings ──────────────────────────────────────────────────────────────────────────────

    def _session_start(self, event: e.SessionStart) -> None:
        if not self._is_aside(event):
            self._speech.voice(event).begin_session()

    def _session_end(self, event: e.SessionEnd) -> None:
        if event.run_id == event.root_run_id:
            self._end(event)
        elif not self._is_aside(event):
            self._held = event  # If the frame is over with it, how it is popped says it all.

    def _complete(self, event: e.AgentComplete) -> None:
        if event.run_id == event.root_run_id:
            self._end(event)
        elif not self._is_aside(event):
            self._held = None
            self._screen.end_saying()
            self._over = (event.run_id, "" if event.success else _why(event))
        else:
            self._end_child(event)

    def _end_child(self, event: e.AgentComplete) -> None:
        if not event.success:
            self._line(event, f"✗ {_ending(event)}", "error")
        elif (output := _output(event)) is not None:
            self._line(event, f"→ {output}", "dim")
        else:
            self._line(event, "done", "dim")
        self._children.pop(event.run_id, None)

    def _end(self, event: Ending) -> None:
        """Say how a session or the run ended, once."""
        voice = self._speech.voice(event)
        voice.partial = None
        voice.thought = 0
        self._screen.end_saying()
        if voice.told == (event.outcome, event.reason):
            return
        voice.told = (event.outcome, event.reason)
        if event.outcome == "interrupted" and voice.has_unwound:
            self._back_to(event)
        elif event.outcome != "completed" or not event.success:
            style: Style = "warning" if event.outcome == "interrupted" else "error"
            self._screen.trouble(_ending(event), style)
        elif not voice.has_said and (output := _output(event)) is not None:
            # A code agent that said nothing: what it returned is its answer.
            self._speech.mark(event)
            self._speech.say(output)
        elif not voice.has_said and event.reason:
            self._screen.trouble(f"nothing was said: {event.reason}", "warning")

    def _back_to(self, event: Event) -> None:
        level = self._stack.find(event.run_id)
        self._speech.introduce(event.run_id)
        self._screen.trouble(f"back to {level.name if level else event.agent}", "dim")

    # ── the margin ───────────────────────────────────────────────────────────────────────────

    def _is_aside(self, event: Event) -> bool:
        """Whether the event is a child's that has no part in the conversation."""
        return event.run_id != event.root_run_id and self._stack.find(event.run_id) is None

    def _margin(self, event: Event) -> tuple[str, int]:
        if not self._is_aside(event):
            return "", 0
        return self._children.get(event.run_id, (event.agent, 1))

    def _prefix(self, event: Event) -> str:
        name = self._margin(event)[0]
        return f"{name}: " if name else ""

    def _line(self, event: Event, text: str, style: Style = "") -> None:
        self._speech.mark(event)
        name, depth = self._margin(event)
        if name:
            text = f"{name}: {text.lstrip()}"
        else:
            depth += (len(text) - len(text.lstrip())) // 2
        self._screen.line(text.lstrip(), style, indent=2 * depth)


def _replaces(event: Event, held: e.AgentToolStart | e.SessionEnd) -> bool:
    """Whether the line of ``event`` makes that of ``held`` redundant."""
    if isinstance(held, e.SessionEnd):
        return isinstance(event, e.AgentComplete) and event.run_id == held.run_id
    match event:
        case e.AgentChild(takeover=True) | e.SessionPush() | e.SessionPrompt(pauses=True):
            return _is_same_call(event, held)
        case e.AgentToolComplete():
            return _is_same_call(event, held)
    return False


def _is_same_call(event: Event, other: Event) -> bool:
    return (event.run_id, event.call_id) == (other.run_id, other.call_id)


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
        "completed": "failed",  # A session may complete without success.
        "limit": "stopped: the limit of steps is reached",
        "timed_out": "timed out",
    }.get(event.outcome, event.outcome)
    if event.outcome == "limit" and event.reason != "limit":
        return f"stopped: the limit {event.reason} is reached"
    if not event.reason or event.reason in (event.outcome, words):
        return words
    return f"{words}: {event.reason}"


def _why(event: Ending) -> str:
    """Why a frame gave the conversation back; a user who sent it back knows."""
    return event.reason if event.outcome == "interrupted" and event.reason else _ending(event)


_SHOWN: Final[dict[type, Callable[[Transcript, Any], None]]] = {
    e.AgentTextDelta: Transcript._delta,
    e.AgentText: Transcript._text,
    e.AgentThinkingDelta: Transcript._thinking,
    e.AgentRetry: Transcript._retry,
    e.AgentRestore: Transcript._restore,
    e.AgentToolStart: Transcript._tool_start,
    e.AgentToolComplete: Transcript._tool_complete,
    e.AgentStatus: Transcript._status,
    e.SessionCompaction: Transcript._compaction,
    e.AgentHandoff: Transcript._handoff,
    e.AgentChild: Transcript._child,
    e.AgentComplete: Transcript._complete,
    e.SessionPrompt: Transcript._question,
    e.SessionPush: Transcript._push,
    e.SessionPop: Transcript._pop,
    e.SessionStart: Transcript._session_start,
    e.SessionEnd: Transcript._session_end,
    e.HubDeadLetter: Transcript._undelivered,
}
