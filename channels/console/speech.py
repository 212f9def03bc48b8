"""``Speech``: the texts that the agent that has the conversation writes to the user.

Rules
-----
* Text appears as it is written, and once: of a finished text only what is missing is added.
* Text that a retry or a restart has made untrue is said to be void, in a line.
* When another one speaks than before, a line says who, first.
"""

from collections.abc import Iterable

from hubbub.channels.console.screen import Screen
from hubbub.channels.console.stack import Stack
from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["Speech", "Voice"]

VOID = "the unfinished text above is void"


class Voice:
    """An agent that writes to the user: the root's, or a frame's."""

    __slots__ = ("has_said", "has_unwound", "partial", "thought", "told")

    def __init__(self) -> None:
        self.partial: tuple[int, str] | None = None
        """The step whose text has been streamed so far, and that text."""
        self.thought = 0
        self.has_said = False
        self.told: tuple[str, str] | None = None
        """How the latest session ended, once that has been told."""
        self.has_unwound = False
        """Whether a frame was taken away from above it in this session."""

    def begin_session(self) -> None:
        self.told = None
        self.has_said = self.has_unwound = False


class Speech:
    """Writes the texts of the runs of ``stack`` to the screen, in order."""

    __slots__ = ("_screen", "_speaker", "_stack", "_voices")

    def __init__(self, screen: Screen, stack: Stack) -> None:
        self._screen = screen
        self._stack = stack
        self._voices: dict[str, Voice] = {}
        self._speaker = ""

    def begin(self) -> None:
        """The conversation is another one; its root's speech needs no introduction."""
        self._voices.clear()
        self._speaker = self._stack.root_run_id

    def user_spoke(self) -> None:
        """The user has sent another message: the next ending is shown again."""
        for voice in self._voices.values():
            voice.told = None
            voice.has_said = False

    def voice(self, event: Event) -> Voice:
        """The voice of the run that ``event`` is about."""
        voice = self._voices.get(event.run_id)
        if voice is None:
            voice = self._voices[event.run_id] = Voice()
        return voice

    # ── who speaks ───────────────────────────────────────────────────────────────────────────

    def mark(self, event: Event) -> None:
        """Write a line with the speaker's name if the speaker has changed."""
        level = self._stack.find(event.run_id)
        if level is not None and level.run_id != self._speaker:
            self._speaker = level.run_id
            self._screen.end_saying()
            self._screen.line(f"▸ {level.name}", "dim")

    def introduce(self, run_id: str) -> None:
        """A line has just announced that ``run_id`` has the conversation."""
        self._speaker = run_id
        for gone in [each for each in self._voices if self._stack.find(each) is None]:
            del self._voices[gone]

    def remind(self, past: Iterable[Event]) -> None:
        """Repeat what the agent that has the conversation said last; not for pipes."""
        top = self._stack.top
        said = [x for x in past if isinstance(x, e.AgentText) and x.run_id == top.run_id]
        if said and not self._screen.is_plain:
            self._screen.line(f"▸ {top.name}, before:", "dim")
            self.say(said[-1].text)
            self._speaker = top.run_id

    # ── what is said ─────────────────────────────────────────────────────────────────────────

    def delta(self, event: e.AgentTextDelta) -> None:
        """A piece of text; not for pipes, which cannot take back what turns out void."""
        if self._screen.is_plain:
            return
        voice = self.voice(event)
        step, text = voice.partial or (event.step, "")
        if event.offset > (len(text) if step == event.step else 0):
            return  # What it follows was missed: the finished text brings it.
        self.mark(event)
        if step != event.step:
            self._screen.end_saying()
            text = ""
        voice.partial = (event.step, text + event.text)
        self._screen.say(event.text)

    def text(self, event: e.AgentText) -> None:
        """A finished text."""
        self.mark(event)
        voice = self.voice(event)
        voice.has_said = True
        step, shown = voice.partial or (event.step, "")
        if step != event.step:  # A tool speaks between the pieces of a step.
            self._screen.end_saying()
            self.say(event.text)
        elif event.text.startswith(shown):
            voice.partial = None
            self.say(event.text[len(shown) :])
        elif not shown.startswith(event.text):
            self.void(event, "the text above is not what was meant; it reads")
            self.say(event.text)
        else:
            voice.partial = (step, shown[len(event.text) :])
            self._screen.end_saying()

    def say(self, text: str) -> None:
        self._screen.say(text)
        self._screen.end_saying()

    def thinking(self, event: e.AgentThinkingDelta) -> None:
        """One line a step."""
        voice = self.voice(event)
        if voice.thought != event.step:
            voice.thought = event.step
            self.mark(event)
            self._screen.line("thinking …", "dim")

    def void(self, event: Event, why: str = VOID) -> None:
        """What has been streamed of an unfinished text is not true any more."""
        voice = self.voice(event)
        partial, voice.partial = voice.partial, None
        self._screen.end_saying()
        if partial is not None and partial[1].strip():
            self._screen.line(f"✗ {why}", "warning")
